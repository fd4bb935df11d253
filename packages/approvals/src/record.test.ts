import { randomBytes } from 'node:crypto'
import type { ChainEntry, ChainLink } from 'rondo/store'
import { describe, expect, it } from 'vitest'
import { createDeskBench } from '../../../test/support/approval-desk.ts'
import { checkpointContent, entryAfter, toSigningKey, verifyRecord } from './record.ts'

const TENANT = 'deployer'
const key = toSigningKey('k1', randomBytes(32))
const keys = { k1: key.public }

function chain(length: number, from: ChainLink = { seq: 0, hash: '' }): ChainEntry[] {
  const entries: ChainEntry[] = []
  for (let i = 0; i < length; i++)
    entries.push(entryAfter(TENANT, key, i, `content ${i}`)(entries.at(-1) ?? from))
  return entries
}

async function* stream(entries: readonly ChainEntry[]): AsyncIterable<ChainEntry> {
  yield* entries
}

const check = (entries: readonly ChainEntry[], options: object = {}) =>
  verifyRecord(stream(entries), { tenant: TENANT, keys, ...options })

describe('a record', () => {
  it('V6 L5 is whole if nothing was touched', async () => {
    const entries = chain(50)
    const { seq = 0, hash = '' } = entries.at(-1) ?? {}
    const head = { seq, hash }
    expect(await check(entries, { head, stored: head })).toEqual({
      entries: 50,
      first: 1,
      head,
      problems: [],
    })
  })

  const stranger = toSigningKey('k1', randomBytes(32))
  const at = (entries: readonly ChainEntry[], i: number) => entries[i] as ChainEntry
  it.each<[string, (entries: ChainEntry[]) => ChainEntry[], RegExp]>([
    [
      'changes the content of an entry',
      (e) => e.with(4, { ...at(e, 4), content: 'approved' }),
      /Entry 5 was changed/,
    ],
    ['changes its time', (e) => e.with(4, { ...at(e, 4), at: 99 }), /Entry 5 was changed/],
    [
      'signs an entry with a key of its own',
      (e) => e.with(4, entryAfter(TENANT, stranger, 4, 'approved')(at(e, 3))),
      /Entry 5 is not signed/,
    ],
    ['drops an entry', (e) => e.toSpliced(4, 1), /Entry 5 is missing/],
    ['exchanges two entries', (e) => e.with(4, at(e, 5)).with(5, at(e, 4)), /missing/],
    ['drops the beginning', (e) => e.slice(3), /no signed checkpoint/],
    [
      'copies a signature',
      (e) => e.with(4, { ...at(e, 4), signature: at(e, 3).signature }),
      /Entry 5 is not signed/,
    ],
    ['names another key', (e) => e.with(4, { ...at(e, 4), key: 'k2' }), /Entry 5 was changed/],
    [
      'takes an entry of another tenant',
      (e) => e.with(4, entryAfter('other', key, 4, 'content 4')(at(e, 3))),
      /was changed/,
    ],
  ])('V6 L5 shows that somebody who can write to the database %s', async (_what, tamper, problem) => {
    expect((await check(tamper(chain(10)))).problems.join('\n')).toMatch(problem)
  })

  it('V6 shows a tail that was cut off if a head was written down, and only then', async () => {
    const entries = chain(10)
    const { seq, hash } = at(entries, 9)
    const cut = entries.slice(0, 7)
    expect((await check(cut)).problems).toEqual([])
    expect((await check(cut, { head: { seq, hash } })).problems.join()).toMatch(
      /ends at 7, before the head 10/,
    )
    const rewritten = [...cut, ...chain(3, cut.at(-1))]
    expect((await check(rewritten, { head: { seq, hash } })).problems.join()).toMatch(
      /another one than the head/,
    )
    expect((await check(cut, { stored: { seq, hash } })).problems.join()).toMatch(
      /names entry 10 as the last/,
    )
  })

  it('V6 is whole if a server appends entries while it is read, and not if the head of the store is another entry', async () => {
    const entries = chain(10)
    expect((await check(entries, { stored: at(entries, 6) })).problems).toEqual([])
    const other = { ...at(entries, 6), hash: at(entries, 5).hash }
    expect((await check(entries, { stored: other })).problems.join()).toMatch(/head that the store names/)
  })

  it('V6 stays verifiable after it was pruned, because a signed checkpoint stands for what is gone', async () => {
    const entries = chain(10)
    const checkpoint = entryAfter(TENANT, key, 11, checkpointContent(at(entries, 4)))(at(entries, 9))
    expect((await check([...entries.slice(5), checkpoint])).problems).toEqual([])
    expect((await check([...entries.slice(6), checkpoint])).problems.join()).toMatch(/no signed checkpoint/)
  })

  it('V6 is verified with the public keys of a server alone, and its content is sealed', async () => {
    const desk = createDeskBench()
    const { id } = await desk.ask()
    await desk.decide(id, 'ann', 'approve', 'a note that nobody else reads')
    const all = (await desk.store.approvals?.entries(TENANT, 0, 100)) ?? []
    expect(all).toHaveLength(3)
    expect(JSON.stringify(all)).not.toMatch(/Deploy|a note/)
    const operator = desk.approvals.desk()
    const publicKeys = await operator.publicKeys()
    expect((await verifyRecord(stream(all), { tenant: TENANT, keys: publicKeys })).problems).toEqual([])
    expect(desk.log).toContain(`Record of approvals: entry 3 is ${at(all, 2).hash}`)
    expect(await operator.prune(2)).toBe(true)
    expect((await operator.verify()).problems).toEqual([])
    expect((await operator.verify({ seq: 9, hash: 'x' })).problems).toHaveLength(1)
    await desk.close()
  })
})

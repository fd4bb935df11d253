import type { RecordStore } from 'rondo/store'
import { describe, expect, it, onTestFinished } from 'vitest'
import { createMemoryStore } from '../../rondo/src/store/memory/store.ts'
import { createHandover, type HandoverResume } from './handover.ts'
import type { Sealer } from './sent.ts'

const sealer: Sealer = {
  seal: async (purpose, data) => Buffer.from(`${purpose}:${data}`).toString('base64url'),
  async open(purpose, sealed) {
    const text = Buffer.from(sealed, 'base64url').toString()
    return text.startsWith(`${purpose}:`)
      ? new TextEncoder().encode(text.slice(purpose.length + 1))
      : undefined
  },
}
const WAIT_MS = 600_000
const { signal } = new AbortController()

/** Two instances that share a store whose time the test sets. */
function instances(resume: HandoverResume, refuse: (id: string) => boolean = () => false) {
  const time = { now: 0 }
  const { records, bus } = createMemoryStore({ now: () => time.now })
  if (records === undefined || bus === undefined) throw new Error('The store has no records')
  const owners = new Set<string>()
  const bounded: RecordStore = {
    ...records,
    async put(record) {
      owners.add(record.owner)
      return refuse(record.id) ? 'limit' : records.put(record)
    },
  }
  const create = () => {
    const clock = { now: () => time.now, after: () => () => {} }
    const parts = { records: bounded, bus, sealer, clock, waitMs: WAIT_MS, leaseMs: 15_000, resume }
    const one = createHandover({ ...parts, end() {}, warn() {} })
    onTestFinished(() => one.close())
    return one
  }
  return { holder: create(), other: create(), time, records, owners }
}

const done = { kind: 'step', step: { kind: 'result', result: { ok: true } } } as const

describe('K3 the hand-over of a held call', () => {
  it('still works in a later step, when the time for the answers of the first one is over', async () => {
    const { holder, other, time, records } = instances(async () => done)
    await holder.hold('call', 'ada', 1)
    time.now = WAIT_MS - 1_000
    await holder.hold('call', 'ada', 2)
    time.now = WAIT_MS + 1_000
    await records.touch(['gateway-held-call'])
    expect(await other.deliver('call', 'ada', 2, {}, signal)).toEqual(done)
  })

  it('says that there is no room for answers, and does not wait for an outcome that cannot come', async () => {
    let taken = 0
    const resume: HandoverResume = async () => {
      taken += 1
      return done
    }
    const { holder, other } = instances(resume, (id) => id.endsWith('answers'))
    await holder.hold('call', 'ada', 1)
    expect(await other.deliver('call', 'ada', 1, {}, signal)).toMatchObject({
      kind: 'failed',
      message: expect.stringMatching(/no room.*nothing was answered/),
    })
    expect(taken).toBe(0)
  })

  it('uses the share of the store of each caller, so that one cannot use up that of another', async () => {
    const { holder, owners } = instances(async () => done)
    await holder.hold('one', 'ada', 1)
    await holder.hold('two', 'bob', 1)
    expect(owners.size).toBe(2)
  })

  it('gives nothing to another caller than the one whose call is held', async () => {
    const { holder, other } = instances(async () => done)
    await holder.hold('call', 'ada', 1)
    expect(await other.deliver('call', 'eve', 1, {}, signal)).toBeUndefined()
    expect(await other.deliver('call', 'ada', 1, {}, signal)).toEqual(done)
  })
})

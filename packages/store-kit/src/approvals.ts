/** The contract of the part of a store for approvals, on every database, and the controls that show that these cases can fail. */

import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import type { ApprovalStore, ApprovalWrite, ChainEntry, ChainEntryAfter, ChainLink, Store } from 'rondo/store'
import {
  assertEqual,
  assertMatch,
  type ContractTime,
  describe,
  eachCase,
  it,
  type StoreHarness,
} from './harness.ts'

const TENANT = 'tracker'

/** An entry whose hash covers the one before, as a signed one does. */
const entryOf =
  (content: string): ChainEntryAfter =>
  (last: ChainLink): ChainEntry => {
    const seq = last.seq + 1
    const hash = createHash('sha256').update(`${seq} ${last.hash} ${content}`).digest('hex')
    return { seq, previous: last.hash, hash, key: 'k1', signature: `of ${hash}`, at: 1, content }
  }

let writes = 0

function newWrite(changes: Partial<ApprovalWrite> = {}): ApprovalWrite {
  const write = `write ${++writes}`
  return {
    tenant: TENANT,
    id: 'one',
    version: 0,
    write,
    sealed: 'sealed',
    createdAt: 1000,
    labels: [],
    ...changes,
  }
}

/** Fails unless the entries are a chain from `after` on; returns their contents. */
function assertChain(entries: readonly ChainEntry[], after: ChainLink = { seq: 0, hash: '' }): string[] {
  let last = after
  for (const entry of entries) {
    assertEqual(entry, entryOf(entry.content)(last))
    last = entry
  }
  return entries.map(({ content }) => content)
}

export function describeApprovalContract(harness: StoreHarness): void {
  let now: ContractTime
  let store: Store
  let one: ApprovalStore
  let other: ApprovalStore
  eachCase(harness, (site) => {
    ;({ now, store } = site)
    if (!site.store.approvals || !site.other.approvals) throw new Error('This store has no approvals')
    one = site.store.approvals
    other = site.other.approvals
  })
  const labelled = async (label: string, from = one) =>
    (await from.list({ tenant: TENANT, label, limit: 100 })).map(({ id }) => id)

  describe('requests', () => {
    it('V2 stores one of many writes that replace one version, and applies it once', async () => {
      assertMatch(await one.put(newWrite()), { kind: 'stored' })
      const all = Array.from({ length: 40 }, (_, i) =>
        newWrite({ version: 1, sealed: `by ${i}`, entries: [entryOf(`by ${i}`)] }),
      )
      const outcomes = await Promise.all(all.map((write, i) => (i % 2 ? one : other).put(write)))
      const stored = outcomes.flatMap(({ kind }, i) => (kind === 'stored' ? [i] : []))
      assert.equal(stored.length, 1)
      assertMatch(await other.get(TENANT, 'one'), { version: 2, sealed: `by ${stored[0]}` })
      assertEqual(assertChain(await one.entries(TENANT, 0, 100)), [`by ${stored[0]}`])
    })

    it('V2 creates a request once, whoever creates it first', async () => {
      const all = Array.from({ length: 20 }, (_, i) => newWrite({ sealed: `by ${i}` }))
      const outcomes = await Promise.all(all.map((write, i) => (i % 2 ? one : other).put(write)))
      assert.equal(outcomes.filter(({ kind }) => kind === 'stored').length, 1)
    })

    it('L6 stores a repeated write once: its reply may have been lost', async () => {
      const write = newWrite({ entries: [entryOf('asked')], jobs: [{ name: 'mail', dueAt: now() }] })
      await one.put(write)
      assertMatch(await other.put(write), { kind: 'stored' })
      assertMatch(await one.get(TENANT, 'one'), { version: 1 })
      assertEqual(assertChain(await one.entries(TENANT, 0, 100)), ['asked'])
    })

    it('changes nothing at all in a conflict', async () => {
      await one.put(newWrite({ labels: ['group a'] }))
      const stale = newWrite({
        labels: ['group b'],
        entries: [entryOf('x')],
        jobs: [{ name: 'mail', dueAt: now() }],
      })
      assertEqual(await one.put(stale), { kind: 'conflict' })
      assertEqual(await labelled('group b'), [])
      assertEqual(await one.claim(TENANT, 1000, 10), [])
      assertEqual(await one.head(TENANT), undefined)
    })

    it('keeps the time of creation of the first write', async () => {
      await one.put(newWrite({ createdAt: 5 }))
      await one.put(newWrite({ version: 1, createdAt: 9 }))
      assertMatch(await one.get(TENANT, 'one'), { createdAt: 5, version: 2 })
    })

    it('hides a request that has expired at once, and deletes it with its jobs', async () => {
      const jobs = [{ name: 'mail', dueAt: now() }]
      await one.put(newWrite({ expiresAt: now() + 1000, labels: ['mine'], jobs }))
      now.pass(1000)
      assertEqual(await one.get(TENANT, 'one'), undefined)
      assertEqual(await labelled('mine'), [])
      assert.equal(await store.sweep(10), 1)
      assertEqual(await one.claim(TENANT, 1000, 10), [])
      assertMatch(await one.put(newWrite()), { kind: 'stored' })
    })
  })

  describe('labels', () => {
    it('lists the requests of a label in the order of their creation, in pages', async () => {
      for (const [id, createdAt] of [
        ['c', 2],
        ['a', 3],
        ['b', 2],
      ] as const)
        await one.put(newWrite({ id, createdAt, labels: ['group x', `only ${id}`] }))
      assertEqual(await labelled('group x', other), ['b', 'c', 'a'])
      assertEqual(await labelled('only a'), ['a'])
      const query = { tenant: TENANT, label: 'group x', limit: 1 }
      const [first] = await one.list(query)
      const [second] = await one.list({ ...query, after: first })
      assertEqual([first?.id, second?.id], ['b', 'c'])
      const newest = await one.list({ ...query, limit: 2, newestFirst: true })
      assertEqual(
        newest.map(({ id }) => id),
        ['a', 'c'],
      )
      const [last] = await one.list({ ...query, limit: 2, newestFirst: true, after: newest[1] })
      assert.equal(last?.id, 'b')
    })

    it('replaces all labels with every write', async () => {
      await one.put(newWrite({ labels: ['open', 'group x'] }))
      await one.put(newWrite({ version: 1, labels: ['closed', 'group x'] }))
      assertEqual(
        [await labelled('open'), await labelled('closed'), await labelled('group x')],
        [[], ['one'], ['one']],
      )
    })

    it('finds the labels with a prefix, each once', async () => {
      for (const id of ['a', 'b', 'c'])
        await one.put(newWrite({ id, labels: ['group x', `group ${id}`, 'open'] }))
      assertEqual(await other.labels(TENANT, 'group ', 100), ['group a', 'group b', 'group c', 'group x'])
      assertEqual(await one.labels(TENANT, 'group ', 2), ['group a', 'group b'])
    })

    it('T17 shows nothing of another tenant', async () => {
      await one.put(
        newWrite({ labels: ['open'], jobs: [{ name: 'mail', dueAt: now() }], entries: [entryOf('x')] }),
      )
      assertEqual(await one.get('stranger', 'one'), undefined)
      assertEqual(await one.list({ tenant: 'stranger', label: 'open', limit: 10 }), [])
      assertEqual(await one.labels('stranger', 'o', 10), [])
      assertEqual(await one.claim('stranger', 1000, 10), [])
      assertEqual([await one.head('stranger'), await one.entries('stranger', 0, 10)], [undefined, []])
      assertMatch(await one.put(newWrite({ tenant: 'stranger' })), { kind: 'stored' })
      assertMatch(await one.get(TENANT, 'one'), { version: 1 })
    })
  })

  describe('jobs', () => {
    it('V7 hands a job that is due to one worker', async () => {
      for (const id of ['a', 'b', 'c', 'd'])
        await one.put(newWrite({ id, jobs: [{ name: 'mail', dueAt: now() }] }))
      const claims = await Promise.all(
        Array.from({ length: 10 }, (_, i) => (i % 2 ? one : other).claim(TENANT, 1000, 2)),
      )
      assertEqual(
        claims
          .flat()
          .map(({ request }) => request)
          .sort(),
        ['a', 'b', 'c', 'd'],
      )
    })

    it('V7 L6 hands a job out again when its worker vanished, and refuses the late write of that worker', async () => {
      await one.put(newWrite({ jobs: [{ name: 'mail', dueAt: now() }] }))
      const [first] = await one.claim(TENANT, 1000, 1)
      assertEqual(await other.claim(TENANT, 1000, 1), [])
      now.pass(1000)
      const [second] = await other.claim(TENANT, 1000, 1)
      assertMatch(second, { request: 'one', name: 'mail', attempts: 2 })
      const done = (epoch = 0) => newWrite({ version: 1, done: { name: 'mail', epoch } })
      assertEqual(await one.put(done(first?.epoch)), { kind: 'conflict' })
      assertMatch(await one.put(done(second?.epoch)), { kind: 'stored' })
      now.pass(5000)
      assertEqual(await one.claim(TENANT, 1000, 1), [])
    })

    it('sets a job again in the write that completes it, with its attempts', async () => {
      await one.put(newWrite({ jobs: [{ name: 'mail', dueAt: now() }] }))
      const [job] = await one.claim(TENANT, 1000, 1)
      const again = { name: 'mail', dueAt: now() + 50, attempts: 1 }
      const done = { name: 'mail', epoch: job?.epoch ?? 0 }
      assertMatch(await one.put(newWrite({ version: 1, done, jobs: [again] })), { kind: 'stored' })
      assertEqual(await one.claim(TENANT, 1000, 1), [])
      now.pass(50)
      assertMatch(await one.claim(TENANT, 1000, 1), [{ name: 'mail', attempts: 2 }])
      // The claim of the first time counts no more, although the job has the same name.
      assertEqual(await one.put(newWrite({ version: 2, done })), { kind: 'conflict' })
    })

    it('V7 tells the time by which jobs are due', async () => {
      const at = await other.now()
      const jobs = [
        { name: 'mail', dueAt: at },
        { name: 'remind', dueAt: at + 1000 },
      ]
      await one.put(newWrite({ jobs }))
      assertMatch(await one.claim(TENANT, 5000, 5), [{ name: 'mail' }])
      now.pass(999)
      assertEqual(await one.claim(TENANT, 5000, 5), [])
      now.pass(1)
      assertMatch(await one.claim(TENANT, 5000, 5), [{ name: 'remind' }])
      assertEqual(await one.now(), at + 1000)
    })

    it('removes a job, and leaves others as they are', async () => {
      await one.put(
        newWrite({
          jobs: [
            { name: 'mail', dueAt: now() },
            { name: 'remind', dueAt: now() },
          ],
        }),
      )
      await one.put(newWrite({ version: 1, jobs: [{ name: 'mail', dueAt: null }] }))
      assertEqual(
        (await one.claim(TENANT, 1000, 5)).map(({ name }) => name),
        ['remind'],
      )
    })
  })

  describe('record', () => {
    it('V6 L5 is one chain without gaps, whoever appends', async () => {
      const ids = Array.from({ length: 30 }, (_, i) => `request ${i}`)
      const outcomes = await Promise.all(
        ids.map((id, i) =>
          (i % 2 ? one : other).put(newWrite({ id, entries: [entryOf(id), entryOf(`${id} again`)] })),
        ),
      )
      const entries = await one.entries(TENANT, 0, 100)
      assertEqual(
        assertChain(entries)
          .filter((content) => ids.includes(content))
          .sort(),
        ids.sort(),
      )
      assert.equal(entries.length, 60)
      assertEqual(await one.head(TENANT), { seq: 60, hash: entries.at(-1)?.hash })
      const heads = outcomes.flatMap((outcome) =>
        outcome.kind === 'stored' && outcome.head ? [outcome.head.seq] : [],
      )
      assertEqual(new Set(heads).size, 30)
      assertEqual(
        (await one.entries(TENANT, 57, 2)).map(({ seq }) => seq),
        [58, 59],
      )
    })

    it('V6 has a chain of its own for each tenant', async () => {
      for (const tenant of [TENANT, 'second']) await one.put(newWrite({ tenant, entries: [entryOf(tenant)] }))
      assertEqual((await other.tenants()).toSorted(), ['second', TENANT])
      for (const tenant of [TENANT, 'second'])
        assertEqual(assertChain(await one.entries(tenant, 0, 9)), [tenant])
    })

    it('V6 leaves a checkpoint when it is pruned, and the chain continues', async () => {
      const ids = ['a', 'b', 'c', 'd']
      for (const id of ids) await one.put(newWrite({ id, entries: [entryOf(id)] }))
      const before = await one.entries(TENANT, 0, 100)
      const head = await other.prune(TENANT, 2, ({ seq, hash }) => entryOf(`pruned ${seq} ${hash}`))
      await one.put(newWrite({ id: 'e', entries: [entryOf('e')] }))
      const after = await one.entries(TENANT, 0, 100)
      assertEqual(assertChain(after, before[1]), ['c', 'd', `pruned 2 ${before[1]?.hash}`, 'e'])
      assert.equal(head?.seq, 5)
      assertEqual(await one.prune(TENANT, 1, () => entryOf('never')), undefined)
      assert.equal((await one.head(TENANT))?.seq, 6)
    })
  })
}

interface ApprovalFault {
  /** Completes "a store …". */
  readonly name: string
  /** The case that must fail. */
  readonly caughtBy: string
  weaken(approvals: ApprovalStore): Partial<ApprovalStore>
}

export const APPROVAL_FAULTS: readonly ApprovalFault[] = [
  {
    name: 'lets a write replace a version of a request that is gone',
    caughtBy: 'V2 stores one of many writes that replace one version, and applies it once',
    weaken: (approvals) => ({
      async put(write) {
        let outcome = await approvals.put(write)
        while (outcome.kind === 'conflict') {
          const version = (await approvals.get(write.tenant, write.id))?.version ?? 0
          outcome = await approvals.put({ ...write, version })
        }
        return outcome
      },
    }),
  },
  {
    name: 'applies a repeated write twice',
    caughtBy: 'L6 stores a repeated write once: its reply may have been lost',
    weaken: (approvals) => ({
      async put(write) {
        const version = (await approvals.get(write.tenant, write.id))?.version ?? 0
        return approvals.put({ ...write, version, write: `${Math.random()}` })
      },
    }),
  },
  {
    name: 'lets a worker complete a job that it lost',
    caughtBy:
      'V7 L6 hands a job out again when its worker vanished, and refuses the late write of that worker',
    weaken: (approvals) => ({ put: ({ done: _, ...write }) => approvals.put(write) }),
  },
  {
    name: 'tells the time of a process whose clock is fast',
    caughtBy: 'V7 tells the time by which jobs are due',
    weaken: (approvals) => ({ now: async () => (await approvals.now()) + 120_000 }),
  },
  {
    name: 'loses an entry of the record',
    caughtBy: 'V6 L5 is one chain without gaps, whoever appends',
    weaken: (approvals) => ({
      put: (write) => approvals.put({ ...write, entries: write.entries?.slice(1) }),
    }),
  },
  {
    name: 'shows the requests of one tenant to another',
    caughtBy: 'T17 shows nothing of another tenant',
    weaken: (approvals) => ({ get: (_tenant, id) => approvals.get(TENANT, id) }),
  },
]

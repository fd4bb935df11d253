/** The contract of the part of a store for operators who act, on every database, and the controls that show that these cases can fail. */

import assert from 'node:assert/strict'
import { createTaskId, openSlots } from 'rondo/internal'
import type { OperatorChange, OperatorStore, Store } from 'rondo/store'
import {
  alice,
  answers,
  assertEqual,
  assertMatch,
  type ContractTime,
  claimNew,
  describe,
  eachCase,
  inputs,
  it,
  newTask,
  type StoreHarness,
} from './harness.ts'

const KEEP_MS = 100_000
const LIVE_MS = 50_000

export function describeOperatorActionContract(harness: StoreHarness): void {
  let now: ContractTime
  let store: Store
  let other: Store
  let one: OperatorStore
  eachCase(harness, (site) => {
    ;({ now, store, other } = site)
    if (!site.store.operator) throw new Error('This store has no part for operators')
    one = site.store.operator
  })

  /** A failed task that keeps its journal. */
  const failNew = async (keepMs: number | undefined = KEEP_MS) => {
    const { fence } = await claimNew(store, { journal: ['a', 'b'], message: 'm' })
    await store.tasks.settle(fence, { kind: 'fail', error: 'e', keepMs })
    return fence
  }
  const actOn = (kind: 'cancel' | 'purge', id: string) => one.act({ kind, id }, 'ann')
  const retry = (id: string) => one.act({ kind: 'retry', id, liveMs: LIVE_MS }, 'ann')

  describe('reading', () => {
    it('M4 reads everything that is stored of an open task, and nothing of one that is unknown or expired', async () => {
      const { fence } = await claimNew(store, { head: 'h', journal: ['a'], message: 'm', tool: 't' })
      const slots = openSlots([], inputs('name'))
      await store.tasks.park(fence, slots)
      assertMatch(await other.operator?.read(fence.id), {
        id: fence.id,
        owner: alice,
        head: 'h',
        journal: ['a'],
        slots,
        message: 'm',
        tool: 't',
        epoch: fence.epoch,
        openKeys: ['name'],
      })
      assert.equal(await one.read(createTaskId()), undefined)
      now.pass(3_600_000)
      assert.equal(await one.read(fence.id), undefined)
    })

    it('M4 keeps head, slots and journal of a failed task for as long as was asked, and the task as long', async () => {
      const { fence } = await claimNew(store, { head: 'h', journal: ['a'], ttlMs: 1000 })
      await store.tasks.publish(fence, openSlots([], inputs('name')))
      await store.tasks.settle(fence, { kind: 'fail', error: 'e', keepMs: KEEP_MS })
      now.pass(KEEP_MS - 1)
      assert.equal(await store.sweep(10), 0)
      assertMatch(await one.read(fence.id), {
        status: 'failed',
        head: 'h',
        journal: ['a'],
        outcome: 'e',
        keptUntil: now() + 1,
        openKeys: [],
      })
      assertMatch(await store.tasks.get(fence.id, alice), { status: 'failed', error: 'e' })
      now.pass(1)
      assert.equal(await one.read(fence.id), undefined)
    })

    it('M4 scrubs what a failed task kept when its time is up, and the task itself stays', async () => {
      const fence = await failNew()
      now.pass(KEEP_MS)
      assert.equal(await store.sweep(10), 1)
      assertMatch(await one.read(fence.id), {
        status: 'failed',
        head: '',
        journal: [],
        slots: [],
        outcome: 'e',
      })
      assert.equal(await retry(fence.id), 'refused')
      assert.equal(await store.sweep(10), 0)
    })

    it('M4 counts what a failed task keeps in the bytes of its owner, and deletes it with the task', async () => {
      const large = 'x'.repeat(10_000)
      const { fence } = await claimNew(store, { journal: [large] })
      await store.tasks.settle(fence, { kind: 'fail', error: 'e', keepMs: KEEP_MS })
      now.pass(1)
      const last = await claimNew(store)
      await store.tasks.settle(last.fence, { kind: 'complete', result: 'r' })
      assert.equal(await store.tasks.trim(alice, { count: 10, bytes: 9_000 }), 1)
      assert.equal(await one.read(fence.id), undefined)
      const again = newTask({ id: fence.id })
      await store.tasks.create(again, 10)
      assertMatch(await one.read(fence.id), { journal: [] })
    })

    it('M4 takes no event for a failed task that keeps its slots', async () => {
      const { fence } = await claimNew(store)
      await store.tasks.publish(fence, openSlots([], inputs('paid'), 'hook'))
      await store.tasks.settle(fence, { kind: 'fail', keepMs: KEEP_MS })
      assertMatch(await store.tasks.deliverHook(fence.id, alice, 'paid', 'event'), { kind: 'closed' })
    })
  })

  describe('ending', () => {
    it('M4 cancels and fails an open task once, and fences off its worker', async () => {
      for (const kind of ['cancel', 'fail'] as const) {
        const { fence } = await claimNew(store, { journal: ['a'] })
        const change: OperatorChange =
          kind === 'cancel'
            ? { kind, id: fence.id }
            : { kind, id: fence.id, error: 'because', keepMs: KEEP_MS }
        assert.equal(await one.act(change, 'ann'), 'done')
        assert.equal(await store.tasks.append(fence, 1, ['late']), false)
        assert.equal(await store.tasks.settle(fence, { kind: 'complete', result: 'late' }), false)
        assert.equal(await other.operator?.act(change, 'ann'), 'unchanged')
        const view = await store.tasks.get(fence.id, alice)
        assertMatch(
          view,
          kind === 'cancel' ? { status: 'cancelled' } : { status: 'failed', error: 'because' },
        )
        assertMatch(await one.read(fence.id), { journal: kind === 'cancel' ? [] : ['a'] })
      }
    })

    it('M4 refuses to end a task that has ended in another way', async () => {
      const { fence } = await claimNew(store)
      await store.tasks.settle(fence, { kind: 'complete', result: 'r' })
      assert.equal(await actOn('cancel', fence.id), 'refused')
      assert.equal(await one.act({ kind: 'fail', id: fence.id, keepMs: 0 }, 'ann'), 'refused')
      assertMatch(await store.tasks.get(fence.id, alice), { status: 'completed', result: 'r' })
      assert.equal(await actOn('cancel', createTaskId()), 'unknown')
    })

    it('M4 purges a task that has ended, with its journal, and none that is open', async () => {
      const open = await claimNew(store)
      assert.equal(await actOn('purge', open.fence.id), 'refused')
      const { id } = await failNew()
      assert.equal(await actOn('purge', id), 'done')
      assert.equal(await store.tasks.get(id, alice), undefined)
      assert.equal(await actOn('purge', id), 'unknown')
      await store.tasks.create(newTask({ id }), 10)
      assertMatch(await one.read(id), { journal: [] })
    })
  })

  describe('retrying', () => {
    it('M4 makes a failed task due with the journal that it kept, once', async () => {
      const before = await failNew()
      assert.equal(await retry(before.id), 'done')
      assert.equal(await retry(before.id), 'unchanged')
      assertMatch(await store.tasks.get(before.id, alice), { status: 'working', error: undefined })
      const [lease, ...others] = await other.tasks.claim('w', 1000, 10)
      assertMatch(lease, {
        fence: { id: before.id },
        journal: ['a', 'b'],
        task: { failures: 0, head: 'head' },
      })
      assert.equal(others.length, 0)
      assert.equal(await store.tasks.settle(before, { kind: 'complete', result: 'late' }), false)
      assert.ok(lease && (await other.tasks.settle(lease.fence, { kind: 'complete', result: 'r' })))
      assert.equal(await retry(before.id), 'refused')
    })

    it('M4 lets a task that is retried live on, and its answers count', async () => {
      const { fence } = await claimNew(store, { ttlMs: 1000 })
      await store.tasks.publish(fence, openSlots([], inputs('name')))
      await store.tasks.deliver(fence.id, alice, answers({ name: 'Ada' }))
      await store.tasks.settle(fence, { kind: 'fail', keepMs: 1000 })
      assert.equal(await retry(fence.id), 'done')
      now.pass(LIVE_MS - 1)
      const [lease] = await store.tasks.claim('w', 1000, 10)
      assertMatch(lease?.slots, [{ kind: 'answered', key: 'name', answer: 'Ada' }])
      now.pass(1)
      assert.equal(await one.read(fence.id), undefined)
    })

    it('M4 replaces head and journal for a branch, on exactly the task that was read', async () => {
      const { id } = await failNew()
      const { epoch } = (await one.read(id)) ?? { epoch: -1 }
      const branch = { epoch, head: 'new', journal: ['a'] }
      const stale = { ...branch, epoch: epoch - 1 }
      assert.equal(await one.act({ kind: 'retry', id, liveMs: LIVE_MS, branch: stale }, 'ann'), 'refused')
      assert.equal(await one.act({ kind: 'retry', id, liveMs: LIVE_MS, branch }, 'ann'), 'done')
      assert.equal(await one.act({ kind: 'retry', id, liveMs: LIVE_MS, branch }, 'ann'), 'refused')
      const [lease] = await store.tasks.claim('w', 1000, 10)
      assertMatch(lease, { journal: ['a'], task: { head: 'new' } })
    })

    it('M4 refuses a failed task that kept nothing', async () => {
      const { id } = await failNew(0)
      assert.equal(await retry(id), 'refused')
      assertMatch(await store.tasks.get(id, alice), { status: 'failed', error: 'e' })
    })
  })

  describe('pausing', () => {
    const pause = (kind: 'pause' | 'continue', ...tools: string[]) =>
      one.act({ kind, name: 'refund', tools }, 'ann')

    it('M4 claims no task of a paused tool, in whichever way, until the tool continues', async () => {
      const parked = await claimNew(store, { tool: 'x' })
      await store.tasks.park(parked.fence, openSlots([], inputs('name')))
      assert.equal(await pause('pause', 'x', 'y'), 'done')
      assert.equal(await pause('pause', 'x'), 'unchanged')
      assertEqual(await other.operator?.paused(), ['x', 'y'])
      const taker = { worker: 'w', leaseMs: 1000 }
      const created = newTask({ tool: 'x', journal: ['a'] })
      assertMatch(await store.tasks.create(created, 10, taker), { kind: 'created', lease: undefined })
      const given = answers({ name: 'Ada' })
      assertMatch(await store.tasks.deliver(parked.fence.id, alice, given, taker), {
        kind: 'resumed',
        lease: undefined,
      })
      assertEqual(await other.tasks.claim('w', 1000, 10), [])
      assert.equal(await other.tasks.nextDueMs(10_000), undefined)
      assertMatch(await store.tasks.stats(), { due: 0, running: 0 })
      const free = newTask({ tool: 'z' })
      await store.tasks.create(free, 10)
      assertMatch(await other.tasks.claim('w', 1000, 10), [{ fence: { id: free.id } }])
      assert.equal(await pause('continue', 'x', 'y'), 'done')
      assert.equal(await pause('continue', 'x', 'y'), 'unchanged')
      const leases = await other.tasks.claim('w', 1000, 10)
      assertEqual(new Set(leases.map(({ fence }) => fence.id)), new Set([created.id, parked.fence.id]))
      assertEqual(leases.find(({ fence }) => fence.id === created.id)?.journal, ['a'])
    })

    it('M4 lets a turn of a paused tool continue that runs already', async () => {
      const { fence } = await claimNew(store, { tool: 'x' })
      await pause('pause', 'x')
      assert.equal(await store.tasks.append(fence, 0, ['a']), true)
      assert.equal(await store.tasks.settle(fence, { kind: 'complete', result: 'r' }), true)
    })

    it('M4 lists the tasks of a tool, with the other conditions', async () => {
      const ids: string[] = []
      for (const tool of ['x', 'y', undefined, 'x']) {
        const task = newTask({ tool })
        ids.push(task.id)
        await store.tasks.create(task, 10)
        now.pass(1)
      }
      const [first, second, , last] = ids
      const listed = async (query: object) => (await other.tasks.list(query)).map(({ id }) => id)
      assertEqual(await listed({ tools: ['x'] }), [last, first])
      assertEqual(await listed({ tools: ['x', 'y'], limit: 2 }), [last, second])
      assertEqual(await listed({ tools: ['x'], after: { id: last, createdAt: now() - 1 } }), [first])
      assertEqual(await listed({ tools: ['x'], owner: { ...alice, tenant: 'another' } }), [])
      assertEqual(await listed({ tools: ['x'], owner: alice, status: 'working' }), [last, first])
      assertEqual(await listed({ tools: ['x'], status: 'failed' }), [])
      assertEqual(await listed({ tools: ['x'], id: second }), [])
      assertEqual(await listed({ tools: [] }), [])
    })
  })

  describe('labels', () => {
    const listed = async (query: object) => (await other.tasks.list(query)).map(({ id }) => id)

    it('M5 finds a task by each of its tags, with the other conditions', async () => {
      const first = await claimNew(store, { tool: 'x' })
      now.pass(1)
      const second = await claimNew(store, { tool: 'y' })
      now.pass(1)
      const others = await claimNew(store, { owner: { ...alice, principal: 'bob' } })
      await claimNew(store)
      assert.equal(await one.label(first.fence, 'sealed', ['a', 'b', 'a']), true)
      assert.equal(await one.label(second.fence, 'sealed', ['a']), true)
      assert.equal(await one.label(others.fence, 'sealed', ['c']), true)
      const [id, last] = [first.fence.id, second.fence.id]
      assertEqual(await listed({ labels: [['a']] }), [last, id])
      assertEqual(await listed({ labels: [['b']] }), [id])
      assertEqual(
        await listed({
          labels: [
            ['b', 'c'],
            ['a', 'x'],
          ],
        }),
        [id],
      )
      assertEqual(await listed({ labels: [['a'], ['b'], ['c']] }), [])
      assertEqual(await listed({ labels: [['b'], []] }), [])
      assertEqual(await listed({ labels: [['b', 'c']] }), [others.fence.id, id])
      assertEqual(await listed({ labels: [['A']] }), [])
      assertEqual(await listed({ labels: [[]] }), [])
      assertEqual(await listed({ labels: [['a']], limit: 1 }), [last])
      assertEqual(await listed({ labels: [['a']], after: { id: last, createdAt: now() - 1 } }), [id])
      assertEqual(await listed({ labels: [['a']], tools: ['x'] }), [id])
      assertEqual(await listed({ labels: [['a']], id }), [id])
      assertEqual(await listed({ labels: [['b']], id: last }), [])
      assertEqual(await listed({ labels: [['a', 'c']], owner: alice }), [last, id])
      assertEqual(await listed({ labels: [['a']], status: 'failed' }), [])
    })

    it('M5 replaces labels and tags together, and the next claim has the labels', async () => {
      const { fence, task } = await claimNew(store)
      assert.equal(task.labels, undefined)
      await one.label(fence, 'first', ['a', 'b'])
      await one.label(fence, 'second', ['b', 'c'])
      await one.label(fence, 'second', ['b', 'c'])
      assertEqual(await listed({ labels: [['a']] }), [])
      assertEqual(await listed({ labels: [['b']] }), [fence.id])
      assertEqual(await listed({ labels: [['c']] }), [fence.id])
      assertMatch(await other.operator?.read(fence.id), { labels: 'second' })
      await store.tasks.release(fence, 0, false)
      assertMatch(await other.tasks.claim('w', 1000, 10), [{ task: { labels: 'second' } }])
    })

    it('M5 has the labels in the claim of a task that is resumed', async () => {
      const { fence } = await claimNew(store)
      await one.label(fence, 'sealed', ['a'])
      await store.tasks.park(fence, openSlots([], inputs('name')))
      const taker = { worker: 'w', leaseMs: 1000 }
      assertMatch(await other.tasks.deliver(fence.id, alice, answers({ name: 'Ada' }), taker), {
        lease: { task: { labels: 'sealed' } },
      })
    })

    it('M5 takes no labels from a worker that no longer has the task', async () => {
      const { fence } = await claimNew(store)
      await one.label(fence, 'mine', ['a'])
      await store.tasks.release(fence, 0, false)
      assert.equal(await one.label(fence, 'late', ['b']), false)
      const [lease] = await other.tasks.claim('w', 1000, 10)
      assert.equal(await one.label(fence, 'late', ['b']), false)
      assert.ok(lease && (await store.tasks.settle(lease.fence, { kind: 'complete', result: 'r' })))
      assert.equal(await one.label(lease.fence, 'late', ['b']), false)
      assertEqual(await listed({ labels: [['b']] }), [])
      assertMatch(await one.read(fence.id), { labels: 'mine' })
    })

    it('M5 keeps the labels of a task that has ended, and forgets them with the task', async () => {
      const ended = await claimNew(store)
      await one.label(ended.fence, 'sealed', ['a'])
      await store.tasks.settle(ended.fence, { kind: 'complete', result: 'r' })
      assertEqual(await listed({ labels: [['a']], status: 'completed' }), [ended.fence.id])
      assertMatch(await one.read(ended.fence.id), { labels: 'sealed' })
      const { id } = ended.fence
      const forgotten = async () => {
        assertEqual(await listed({ labels: [['a']] }), [])
        await store.tasks.create(newTask({ id }), Number.POSITIVE_INFINITY)
        assertEqual(await listed({ labels: [['a']] }), [])
        assertMatch(await one.read(id), { labels: undefined })
      }
      assert.equal(await actOn('purge', id), 'done')
      await forgotten()
      const [again] = await store.tasks.claim('w', 1000, 10)
      assert.ok(again && (await one.label(again.fence, 'sealed', ['a'])))
      now.pass(3_600_000)
      assertEqual(await listed({ labels: [['a']] }), [])
      assert.equal(await store.sweep(10), 1)
      await forgotten()
    })
  })

  describe('the record of actions', () => {
    it('M4 has one line for each change that was made, the newest first, with who made it', async () => {
      const { id } = await failNew()
      await retry(id)
      await retry(id)
      now.pass(1)
      await one.act({ kind: 'pause', name: 'refund', tools: ['x'] }, 'bob')
      await actOn('purge', id)
      assertEqual(await other.operator?.actions(10), [
        { at: now(), who: 'bob', action: 'pause', subject: 'refund' },
        { at: now() - 1, who: 'ann', action: 'retry', subject: id },
      ])
      assertMatch(await one.actions(1), [{ action: 'pause' }])
    })

    it('M4 makes one of many changes that are made at once', async () => {
      const { id } = await failNew()
      const all = await Promise.all(
        Array.from({ length: 8 }, (_, i) =>
          (i % 2 ? store : other).operator?.act({ kind: 'retry', id, liveMs: LIVE_MS }, 'ann'),
        ),
      )
      assert.equal(all.filter((outcome) => outcome === 'done').length, 1)
      assert.equal((await one.actions(10)).length, 1)
    })
  })
}

interface OperatorFault {
  /** Completes "a store …". */
  readonly name: string
  /** The case that must fail. */
  readonly caughtBy: string
  weaken(operator: OperatorStore, store: Store): Partial<OperatorStore>
}

export const OPERATOR_FAULTS: readonly OperatorFault[] = [
  {
    name: 'takes labels from a worker that has lost the task',
    caughtBy: 'M5 takes no labels from a worker that no longer has the task',
    weaken: (operator) => ({
      async label(fence, labels, tags) {
        const { epoch = fence.epoch } = (await operator.read(fence.id)) ?? {}
        return operator.label({ ...fence, epoch }, labels, tags)
      },
    }),
  },
  {
    name: 'never removes a tag',
    caughtBy: 'M5 replaces labels and tags together, and the next claim has the labels',
    weaken(operator) {
      const known = new Map<string, readonly string[]>()
      return {
        label(fence, labels, tags) {
          const all = [...(known.get(fence.id) ?? []), ...tags]
          known.set(fence.id, all)
          return operator.label(fence, labels, all)
        },
      }
    },
  },
  {
    name: 'does not compare the epoch of a branch',
    caughtBy: 'M4 replaces head and journal for a branch, on exactly the task that was read',
    weaken: (operator) => ({
      async act(change, who) {
        if (change.kind !== 'retry' || !change.branch) return operator.act(change, who)
        const { epoch = 0 } = (await operator.read(change.id)) ?? {}
        return operator.act({ ...change, branch: { ...change.branch, epoch } }, who)
      },
    }),
  },
  {
    name: 'forgets which tools are paused',
    caughtBy: 'M4 claims no task of a paused tool, in whichever way, until the tool continues',
    weaken: (operator) => ({
      async act(change, who) {
        const outcome = await operator.act(change, who)
        if (change.kind === 'pause') await operator.act({ ...change, kind: 'continue' }, who)
        return outcome
      },
    }),
  },
  {
    name: 'writes a line for a change that was made already',
    caughtBy: 'M4 has one line for each change that was made, the newest first, with who made it',
    weaken: (operator) => ({
      async act(change, who) {
        const outcome = await operator.act(change, who)
        if (outcome === 'unchanged')
          await operator.act({ kind: 'pause', name: 'x', tools: [`${Math.random()}`] }, who)
        return outcome
      },
    }),
  },
]

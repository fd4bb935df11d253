/** The contract for a worker, on every database: exclusive turns, fences, counted failures, ordered journals. */

import assert from 'node:assert/strict'
import { closeSlots, givenAnswers, openSlots } from 'rondo/internal'
import type { Hint, Store } from 'rondo/store'
import {
  alice,
  answers,
  assertEqual,
  assertMatch,
  bob,
  type ContractTime,
  claimNew,
  describe,
  eachCase,
  inputs,
  it,
  newTask,
  type StoreHarness,
} from './harness.ts'

const LEASE = 10_000

export function describeWorkerContract(harness: StoreHarness): void {
  let now: ContractTime
  let store: Store
  let other: Store
  eachCase(harness, (site) => {
    ;({ now, store, other } = site)
  })

  const claimOne = async (from: Store) => (await from.tasks.claim('second', LEASE, 1))[0]

  describe('a task whose owner may not know its id', () => {
    const taker = { worker: 'taker', leaseMs: LEASE }

    it('R6 is not due while it is held, and due once its owner has named it', async () => {
      const { fence, task } = await claimNew(store, { known: false }, LEASE)
      assert.equal(task.known, false)
      await store.tasks.append(fence, 0, ['step'])
      assert.equal(await store.tasks.hold(fence), true)
      now.pass(LEASE)
      assert.equal(await claimOne(other), undefined)
      assert.equal(await store.tasks.append(fence, 1, ['stale']), false)
      assertMatch(await other.tasks.get(fence.id, alice), { status: 'working', known: false })
      assertMatch(await store.tasks.stats(), { due: 0, running: 0, parked: 1 })
      await other.tasks.confirm(fence.id, bob)
      assert.equal(await claimOne(other), undefined)
      await other.tasks.confirm(fence.id, alice)
      assertMatch(await store.tasks.get(fence.id, alice), { known: true })
      const next = await claimOne(store)
      assertMatch(next, { journal: ['step'], task: { id: fence.id, known: true, failures: 0 } })
      // The second time changes nothing: the lease stays as it is.
      await other.tasks.confirm(fence.id, alice)
      assert.equal(await claimOne(other), undefined)
    })

    it('R6 is due at once if its owner named it before it was held', async () => {
      const { fence } = await claimNew(store, { known: false }, LEASE)
      await other.tasks.confirm(fence.id, alice)
      assert.equal(await claimOne(other), undefined)
      assert.equal(await store.tasks.hold(fence), true)
      assertMatch(await claimOne(other), { task: { known: true } })
      assert.equal(await store.tasks.hold(fence), false)
    })

    it('R6 counts as known after an answer, and from its creation unless created as unknown', async () => {
      const creation = await store.tasks.create(newTask({ known: false }), 10, taker)
      if (creation.kind !== 'created' || !creation.lease) throw new Error('no lease')
      const { fence, task } = creation.lease
      assertEqual([task.known, creation.view.known], [false, false])
      await store.tasks.park(fence, openSlots([], inputs('a')))
      const { lease } = await other.tasks.deliver(fence.id, alice, answers({ a: '1' }), taker)
      assert.equal(lease?.task.known, true)
      assert.equal((await claimNew(store)).task.known, true)
    })

    it('R6 keeps its status if its owner names it while it waits or after it has ended', async () => {
      const { fence } = await claimNew(store, { known: false }, LEASE)
      await store.tasks.park(fence, openSlots([], inputs('a')))
      await store.tasks.confirm(fence.id, alice)
      const ended = await claimNew(store, { known: false }, LEASE)
      await store.tasks.settle(ended.fence, { kind: 'complete', result: 'done' })
      await store.tasks.confirm(ended.fence.id, alice)
      now.pass(LEASE)
      assert.equal(await claimOne(other), undefined)
    })
  })

  describe('leases', () => {
    it('assigns a task to one worker at a time, and to the next when the lease has expired', async () => {
      const { fence } = await claimNew(store, {}, LEASE)
      now.pass(LEASE - 1)
      assert.equal(await claimOne(other), undefined)
      now.pass(1)
      assertEqual((await claimOne(other))?.fence, { id: fence.id, epoch: fence.epoch + 1 })
    })

    it('claims a task for the named worker in the write that creates it', async () => {
      const task = newTask({ journal: ['before'] })
      const taker = { worker: 'taker', leaseMs: LEASE }
      const creation = await store.tasks.create(task, 10, taker)
      if (creation.kind !== 'created' || !creation.lease) throw new Error('no lease')
      const { fence, journal, slots } = creation.lease
      assertEqual(journal, ['before'])
      assertEqual(slots, [])
      assertMatch(creation.lease.task, { id: task.id, owner: alice, head: 'head', failures: 0 })
      assert.equal(await claimOne(other), undefined)
      assertMatch(await store.tasks.list({}), [{ worker: 'taker', dueAt: now() + LEASE }])
      assertEqual(await other.tasks.create(task, 10, taker), { kind: 'created', view: creation.view })
      assert.equal(await store.tasks.append(fence, 1, ['more']), true)
      now.pass(LEASE)
      const next = await claimOne(other)
      assertMatch(next, { journal: ['before', 'more'], task: { failures: 1 } })
      assert.equal(await store.tasks.settle(fence, { kind: 'complete', result: 'stale' }), false)
    })

    it('claims a task for the named worker in the answer that resumes it', async () => {
      const { fence } = await claimNew(store, {}, LEASE)
      await store.tasks.append(fence, 0, ['before'])
      await store.tasks.park(fence, openSlots([], inputs('a', 'b')))
      const taker = { worker: 'taker', leaseMs: LEASE }
      assertEqual(await other.tasks.deliver(fence.id, alice, answers({ a: '1' }), taker), {
        kind: 'partial',
      })
      assert.equal(await claimOne(store), undefined)
      const { kind, lease } = await other.tasks.deliver(fence.id, alice, answers({ b: '2' }), taker)
      if (!lease) throw new Error('no lease')
      assert.equal(kind, 'resumed')
      assertMatch(lease, { fence: { epoch: fence.epoch + 1 }, journal: ['before'] })
      assertMatch(lease.task, { id: fence.id, owner: alice, head: 'head', failures: 0 })
      assertEqual(givenAnswers(lease.slots), answers({ a: '1', b: '2' }))
      assert.equal(await claimOne(store), undefined)
      assertMatch(await store.tasks.list({}), [{ worker: 'taker', dueAt: now() + LEASE }])
      assert.equal(await store.tasks.append(fence, 1, ['stale']), false)
      assert.equal(await store.tasks.append(lease.fence, 1, ['more']), true)
      now.pass(LEASE)
      assertMatch(await claimOne(store), { journal: ['before', 'more'], task: { failures: 1 } })
    })

    it('keeps a task with a worker that renews its lease', async () => {
      const { fence } = await claimNew(store, {}, LEASE)
      now.pass(LEASE - 1)
      assertEqual(await store.tasks.renew([fence], LEASE), new Set([fence.id]))
      now.pass(LEASE - 1)
      assert.equal(await claimOne(other), undefined)
      assertEqual(await store.tasks.held([fence]), new Set([fence.id]))
    })

    it('E9 P16 refuses every write of a worker whose task was taken over', async () => {
      const { fence } = await claimNew(store, {}, LEASE)
      await store.tasks.append(fence, 0, ['mine'])
      now.pass(LEASE)
      const taken = await claimOne(other)
      assertEqual(taken?.journal, ['mine'])
      assert.equal(await store.tasks.append(fence, 1, ['stale']), false)
      assert.equal(await store.tasks.status(fence, 'stale'), false)
      assert.equal(await store.tasks.publish(fence, openSlots([], inputs('stale'))), undefined)
      assert.equal(await store.tasks.park(fence, openSlots([], inputs('stale'))), false)
      assert.equal(await store.tasks.settle(fence, { kind: 'complete', result: 'stale' }), false)
      assert.equal(await store.tasks.release(fence, 0, false), false)
      assertEqual(await store.tasks.renew([fence], LEASE), new Set())
      assertEqual(await store.tasks.held([fence]), new Set())
      assertMatch(await store.tasks.get(fence.id, alice), { status: 'working', revision: 1 })
      if (taken) assert.equal(await other.tasks.append(taken.fence, 1, ['next']), true)
    })

    it('P16 refuses the writes of a worker that released the task, even before another claims it', async () => {
      const released = await claimNew(store)
      await store.tasks.release(released.fence, 0, false)
      assert.equal(await store.tasks.append(released.fence, 0, ['stale']), false)
      const parked = await claimNew(store)
      await store.tasks.park(parked.fence, openSlots([], inputs('a')))
      await store.tasks.deliver(parked.fence.id, alice, answers({ a: '1' }))
      const again = (await store.tasks.claim('w', LEASE, 10)).find(
        ({ fence }) => fence.id === parked.fence.id,
      )
      assert.equal(await store.tasks.append(parked.fence, 0, ['stale']), false)
      assert.ok(again !== undefined && again.fence.epoch > parked.fence.epoch)
    })

    it('refuses writes to an expired task, and never lets it be claimed', async () => {
      const { fence } = await claimNew(store, { ttlMs: 1000 }, 500)
      now.pass(1000)
      assert.equal(await store.tasks.append(fence, 0, ['late']), false)
      assert.equal(await store.tasks.settle(fence, { kind: 'complete', result: 'late' }), false)
      assertEqual(await store.tasks.renew([fence], LEASE), new Set())
      assert.equal(await claimOne(other), undefined)
    })

    it('shares tasks between workers without assigning one twice', async () => {
      const ids = Array.from({ length: 120 }, () => newTask())
      await Promise.all(ids.map((task) => store.tasks.create(task, 1000)))
      const rounds = Array.from({ length: 40 }, (_, i) =>
        (i % 2 ? store : other).tasks.claim(`w${i}`, LEASE, 5),
      )
      const claimed = (await Promise.all(rounds)).flat().map(({ fence }) => fence.id)
      const rest = await store.tasks.claim('rest', LEASE, 1000)
      const all = [...claimed, ...rest.map(({ fence }) => fence.id)]
      assert.equal(new Set(all).size, all.length)
      assertEqual(all.sort(), ids.map(({ id }) => id).sort())
    })

    it('assigns the task that has been due longest', async () => {
      const tasks = [newTask(), newTask(), newTask()]
      for (const task of tasks) {
        await store.tasks.create(task, 10)
        now.pass(1)
      }
      const order: string[] = []
      for (const _ of tasks) order.push((await claimOne(store))?.fence.id ?? '')
      assertEqual(
        order,
        tasks.map(({ id }) => id),
      )
    })
  })

  describe('slots of a running task', () => {
    const taker = { worker: 'taker', leaseMs: LEASE }
    const kinds = (slots: readonly { kind: string }[] | undefined) => slots?.map(({ kind }) => kind)

    it('G4 shows a question at once, takes its answer, and leaves the task with its worker', async () => {
      const { fence } = await claimNew(store, { known: false }, LEASE)
      const slots = openSlots([], inputs('a', 'b'))
      assertEqual(await store.tasks.publish(fence, slots), slots)
      const view = await other.tasks.get(fence.id, alice)
      assertMatch(view, { status: 'input_required', inputs: inputs('a', 'b'), revision: 2 })
      assertEqual(await other.tasks.deliver(fence.id, alice, answers({ a: '1' }), taker), {
        kind: 'partial',
      })
      assertMatch(await other.tasks.get(fence.id, alice), { known: true, inputs: inputs('b') })
      assert.equal(await claimOne(other), undefined)
      assert.equal(await store.tasks.append(fence, 0, ['work']), true)
      assertEqual(kinds(await store.tasks.slots(fence.id, alice)), ['answered', 'open'])
      assert.equal(await store.tasks.slots(fence.id, bob), undefined)
      const more = openSlots(slots, inputs('c'))
      assertEqual(kinds(await store.tasks.publish(fence, more)), ['answered', 'open', 'open'])
      assertEqual(await other.tasks.deliver(fence.id, alice, answers({ b: '2', c: '3' })), {
        kind: 'resumed',
      })
      assert.equal((await other.tasks.get(fence.id, alice))?.status, 'working')
      assert.equal(await store.tasks.settle(fence, { kind: 'complete', result: 'done' }), true)
      assert.equal(await store.tasks.slots(fence.id, alice), undefined)
    })

    it('G4 makes a task that parks without having seen an answer due at once', async () => {
      const { fence } = await claimNew(store, {}, LEASE)
      const slots = openSlots([], inputs('a', 'b'))
      await store.tasks.publish(fence, slots)
      await other.tasks.deliver(fence.id, alice, answers({ a: '1' }))
      assert.equal(await store.tasks.park(fence, slots), true)
      assert.equal(await store.tasks.append(fence, 0, ['stale']), false)
      const next = await claimOne(other)
      assertEqual(kinds(next?.slots), ['answered', 'open'])
      assertMatch(await other.tasks.get(fence.id, alice), { status: 'input_required' })
      // The next turn has seen it, so the task waits for the other answer.
      if (next) assert.equal(await store.tasks.park(next.fence, next.slots), true)
      assert.equal(await claimOne(other), undefined)
    })

    it('G2 wakes a parked task at its time, with its question still open', async () => {
      const { fence } = await claimNew(store, {}, LEASE)
      assert.equal(await store.tasks.park(fence, openSlots([], inputs('a')), now() + 5000), true)
      now.pass(4999)
      assert.equal(await claimOne(other), undefined)
      now.pass(1)
      const next = await claimOne(other)
      assertMatch(next, { fence: { id: fence.id }, task: { failures: 0 } })
      assertMatch(await other.tasks.get(fence.id, alice), { status: 'input_required' })
      if (next) assert.equal(await other.tasks.append(next.fence, 0, ['expired']), true)
      assertEqual(await other.tasks.deliver(fence.id, alice, answers({ a: '1' })), { kind: 'resumed' })
    })

    it('G4 keeps what was published if the worker dies, and lets the next one go on', async () => {
      const { fence } = await claimNew(store, {}, LEASE)
      await store.tasks.publish(fence, openSlots([], inputs('a')))
      await other.tasks.deliver(fence.id, alice, answers({ a: '1' }))
      now.pass(LEASE)
      const next = await claimOne(other)
      assertEqual(givenAnswers(next?.slots ?? []), answers({ a: '1' }))
      assert.equal(await store.tasks.publish(fence, openSlots([], inputs('x'))), undefined)
      if (next) assert.equal(await other.tasks.append(next.fence, 0, ['goes on']), true)
    })

    it('G5 closes a slot in the view of its owner, whose late answer changes nothing', async () => {
      const { fence } = await claimNew(store, {}, LEASE)
      const slots = openSlots([], inputs('a'), 'offer')
      await store.tasks.publish(fence, slots)
      await store.tasks.publish(fence, closeSlots(slots, [{ key: 'a', role: 'offer' }]))
      assertMatch(await other.tasks.get(fence.id, alice), { status: 'working', inputs: new Map() })
      assertEqual(await other.tasks.deliver(fence.id, alice, answers({ a: '1' })), { kind: 'idle' })
      assertEqual(kinds(await store.tasks.slots(fence.id, alice)), ['closed'])
    })

    it('R6 hides what a task offers while it is held, and makes it due once its owner names it', async () => {
      const { fence } = await claimNew(store, { known: false }, LEASE)
      await store.tasks.publish(fence, openSlots([], inputs('a'), 'offer'))
      assert.equal(await store.tasks.hold(fence), true)
      assertMatch(await other.tasks.get(fence.id, alice), { status: 'working' })
      await other.tasks.confirm(fence.id, alice)
      assertEqual(kinds((await claimOne(other))?.slots), ['open'])
    })
  })

  describe('hooks', () => {
    const taker = { worker: 'taker', leaseMs: LEASE }

    const parkHook = async () => {
      const { fence } = await claimNew(store, { known: false }, LEASE)
      await store.tasks.append(fence, 0, ['before'])
      assert.equal(await store.tasks.park(fence, openSlots([], inputs('h'), 'hook')), true)
      return fence
    }

    it('G3 are invisible to the owner, who cannot answer them', async () => {
      const fence = await parkHook()
      assertMatch(await other.tasks.get(fence.id, alice), { status: 'working', inputs: new Map() })
      assertEqual(await other.tasks.deliver(fence.id, alice, answers({ h: 'forged' })), { kind: 'idle' })
      assert.equal(await claimOne(other), undefined)
      assert.equal(await store.tasks.append(fence, 1, ['stale']), false)
    })

    it('G3 take one event, which claims the task for the named worker; a second is told so', async () => {
      const fence = await parkHook()
      for (const owner of [bob, { tenant: 'another', principal: 'alice' }])
        assertEqual(await other.tasks.deliverHook(fence.id, owner, 'h', 'x', taker), { kind: 'unknown' })
      assertEqual(await other.tasks.deliverHook(fence.id, alice, 'another', 'x', taker), {
        kind: 'closed',
      })
      const { kind, lease } = await other.tasks.deliverHook(fence.id, alice, 'h', 'event', taker)
      assert.equal(kind, 'accepted')
      assertMatch(lease, {
        fence: { epoch: fence.epoch + 1 },
        journal: ['before'],
        slots: [{ kind: 'answered', role: 'hook', key: 'h', answer: 'event' }],
        task: { known: false },
      })
      assertEqual(await store.tasks.deliverHook(fence.id, alice, 'h', 'second', taker), {
        kind: 'duplicate',
      })
      assertMatch(await store.tasks.deliverHook(fence.id, alice, 'h', 'event'), { kind: 'accepted' })
      assert.equal(await claimOne(store), undefined)
      if (lease) await other.tasks.settle(lease.fence, { kind: 'complete', result: 'done' })
      assertEqual(await store.tasks.deliverHook(fence.id, alice, 'h', 'late'), { kind: 'closed' })
      now.pass(3_600_000)
      assertEqual(await store.tasks.deliverHook(fence.id, alice, 'h', 'late'), { kind: 'unknown' })
    })

    it('G3 take an event while a turn runs, and make a task without a worker due', async () => {
      const { fence } = await claimNew(store, {}, LEASE)
      const slots = openSlots([], inputs('h', 'i'), 'hook')
      await store.tasks.publish(fence, slots)
      assertEqual(await other.tasks.deliverHook(fence.id, alice, 'h', 'event', taker), {
        kind: 'accepted',
        lease: undefined,
      })
      assert.equal(await store.tasks.append(fence, 0, ['mine']), true)
      assert.equal(await store.tasks.park(fence, slots), true)
      const next = await claimOne(other)
      assertEqual(
        next?.slots.map(({ kind }) => kind),
        ['answered', 'open'],
      )
      if (next) await store.tasks.park(next.fence, next.slots)
      assert.equal(await claimOne(other), undefined)
      assert.equal((await store.tasks.deliverHook(fence.id, alice, 'i', 'event')).kind, 'accepted')
      assert.equal((await claimOne(other))?.fence.id, fence.id)
    })
  })

  describe('failures', () => {
    it('counts a failure for a worker that vanished, not for one that released its task', async () => {
      const { fence, task } = await claimNew(store, {}, LEASE)
      assert.equal(task.failures, 0)
      await store.tasks.release(fence, 0, false)
      const second = await claimOne(store)
      assert.equal(second?.task.failures, 0)
      now.pass(LEASE)
      assert.equal((await claimOne(store))?.task.failures, 1)
      now.pass(LEASE)
      assert.equal((await claimOne(store))?.task.failures, 2)
    })

    it('counts turns that threw, and makes the task due after a pause', async () => {
      const { fence } = await claimNew(store)
      assert.equal(await store.tasks.release(fence, 500, true), true)
      assert.equal(await claimOne(store), undefined)
      now.pass(500)
      assert.equal((await claimOne(store))?.task.failures, 1)
    })

    it('resets the failure count when something is recorded, or the task waits for input', async () => {
      await claimNew(store, {}, LEASE)
      now.pass(LEASE)
      const second = await claimOne(store)
      assert.equal(second?.task.failures, 1)
      if (second) await store.tasks.append(second.fence, 0, ['progress'])
      now.pass(LEASE)
      const third = await claimOne(store)
      assert.equal(third?.task.failures, 1)
      if (third) await store.tasks.park(third.fence, openSlots([], inputs('a')))
      await store.tasks.deliver(third?.fence.id ?? '', alice, answers({ a: '1' }))
      assert.equal((await claimOne(store))?.task.failures, 0)
    })
  })

  describe('journals', () => {
    it('D9 begin with the entries of the rounds before, and keep their order', async () => {
      const { fence, journal } = await claimNew(store, { journal: ['before 1', 'before 2'] })
      assertEqual(journal, ['before 1', 'before 2'])
      await store.tasks.append(fence, 2, ['3', '4'])
      await store.tasks.append(fence, 4, ['5'])
      await store.tasks.release(fence, 0, false)
      assertEqual((await claimOne(other))?.journal, ['before 1', 'before 2', '3', '4', '5'])
    })

    it('may be large', async () => {
      const { fence } = await claimNew(store)
      const entries = Array.from({ length: 2000 }, (_, i) => `${i} ${'x'.repeat(i % 1000)}`)
      for (let i = 0; i < entries.length; i += 200)
        assert.equal(await store.tasks.append(fence, i, entries.slice(i, i + 200)), true)
      assert.equal(await store.tasks.append(fence, 2000, ['y'.repeat(2_000_000)]), true)
      await store.tasks.release(fence, 0, false)
      const journal = (await claimOne(other))?.journal
      assertEqual(journal?.slice(0, 2000), entries)
      assert.equal(journal?.[2000]?.length, 2_000_000)
    })

    it('refuse an entry at an index that is taken', async () => {
      const { fence } = await claimNew(store)
      await store.tasks.append(fence, 0, ['first'])
      await assert.rejects(store.tasks.append(fence, 0, ['other']))
      await store.tasks.release(fence, 0, false)
      assertEqual((await claimOne(other))?.journal, ['first'])
    })
  })

  describe('hints', () => {
    it('report due tasks and visible changes', async () => {
      const hints: Hint[] = []
      const stop = store.tasks.onHint((hint) => hints.push(hint))
      const heard = (hint: Hint) =>
        hints
          .splice(0)
          .some(
            (one) =>
              one.kind === hint.kind && (one.kind !== 'changed' || one.id === (hint as { id?: string }).id),
          )
      const { fence } = await claimNew(store)
      assert.equal(heard({ kind: 'due' }), true)
      await store.tasks.status(fence, 'm')
      assert.equal(heard({ kind: 'changed', id: fence.id }), true)
      await store.tasks.park(fence, openSlots([], inputs('a')))
      assert.equal(heard({ kind: 'changed', id: fence.id }), true)
      await store.tasks.deliver(fence.id, alice, answers({ a: '1' }))
      assert.equal(heard({ kind: 'due' }), true)
      await store.tasks.cancel(fence.id, alice)
      assert.equal(heard({ kind: 'changed', id: fence.id }), true)
      stop()
      await claimNew(store)
      assertEqual(hints, [])
    })
  })
}

/** What a worker may rely on, on every database: exclusive turns, fences, counted failures, ordered journals. */

import { closeSlots, givenAnswers, openSlots } from 'rondo/internal'
import type { Hint, Store } from 'rondo/store'
import {
  alice,
  answers,
  bob,
  type ContractTime,
  claimNew,
  describe,
  eachCase,
  expect,
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
      expect(task.known).toBe(false)
      await store.tasks.append(fence, 0, ['step'])
      expect(await store.tasks.hold(fence)).toBe(true)
      now.pass(LEASE)
      expect(await claimOne(other)).toBeUndefined()
      expect(await store.tasks.append(fence, 1, ['stale'])).toBe(false)
      expect(await other.tasks.get(fence.id, alice)).toMatchObject({ status: 'working', known: false })
      expect(await store.tasks.stats()).toMatchObject({ due: 0, running: 0, parked: 1 })
      await other.tasks.confirm(fence.id, bob)
      expect(await claimOne(other)).toBeUndefined()
      await other.tasks.confirm(fence.id, alice)
      expect(await store.tasks.get(fence.id, alice)).toMatchObject({ known: true })
      const next = await claimOne(store)
      expect(next).toMatchObject({ journal: ['step'], task: { id: fence.id, known: true, failures: 0 } })
      // The second time changes nothing: the lease stays as it is.
      await other.tasks.confirm(fence.id, alice)
      expect(await claimOne(other)).toBeUndefined()
    })

    it('R6 is due at once if its owner named it before it was held', async () => {
      const { fence } = await claimNew(store, { known: false }, LEASE)
      await other.tasks.confirm(fence.id, alice)
      expect(await claimOne(other)).toBeUndefined()
      expect(await store.tasks.hold(fence)).toBe(true)
      expect(await claimOne(other)).toMatchObject({ task: { known: true } })
      expect(await store.tasks.hold(fence)).toBe(false)
    })

    it('R6 counts as known after an answer, and from its creation unless created as unknown', async () => {
      const creation = await store.tasks.create(newTask({ known: false }), 10, taker)
      if (creation.kind !== 'created' || !creation.lease) throw new Error('no lease')
      const { fence, task } = creation.lease
      expect([task.known, creation.view.known]).toEqual([false, false])
      await store.tasks.park(fence, openSlots([], inputs('a')))
      const { lease } = await other.tasks.deliver(fence.id, alice, answers({ a: '1' }), taker)
      expect(lease?.task.known).toBe(true)
      expect((await claimNew(store)).task.known).toBe(true)
    })

    it('R6 keeps its status if its owner names it while it waits or after it has ended', async () => {
      const { fence } = await claimNew(store, { known: false }, LEASE)
      await store.tasks.park(fence, openSlots([], inputs('a')))
      await store.tasks.confirm(fence.id, alice)
      const ended = await claimNew(store, { known: false }, LEASE)
      await store.tasks.settle(ended.fence, { kind: 'complete', result: 'done' })
      await store.tasks.confirm(ended.fence.id, alice)
      now.pass(LEASE)
      expect(await claimOne(other)).toBeUndefined()
    })
  })

  describe('leases', () => {
    it('assigns a task to one worker at a time, and to the next when the lease has expired', async () => {
      const { fence } = await claimNew(store, {}, LEASE)
      now.pass(LEASE - 1)
      expect(await claimOne(other)).toBeUndefined()
      now.pass(1)
      expect((await claimOne(other))?.fence).toEqual({ id: fence.id, epoch: fence.epoch + 1 })
    })

    it('claims a task for the named worker in the write that creates it', async () => {
      const task = newTask({ journal: ['before'] })
      const taker = { worker: 'taker', leaseMs: LEASE }
      const creation = await store.tasks.create(task, 10, taker)
      if (creation.kind !== 'created' || !creation.lease) throw new Error('no lease')
      const { fence, journal, slots } = creation.lease
      expect(journal).toEqual(['before'])
      expect(slots).toEqual([])
      expect(creation.lease.task).toMatchObject({ id: task.id, owner: alice, head: 'head', failures: 0 })
      expect(await claimOne(other)).toBeUndefined()
      expect(await store.tasks.list({})).toMatchObject([{ worker: 'taker', dueAt: now() + LEASE }])
      expect(await other.tasks.create(task, 10, taker)).toEqual({ kind: 'created', view: creation.view })
      expect(await store.tasks.append(fence, 1, ['more'])).toBe(true)
      now.pass(LEASE)
      const next = await claimOne(other)
      expect(next).toMatchObject({ journal: ['before', 'more'], task: { failures: 1 } })
      expect(await store.tasks.settle(fence, { kind: 'complete', result: 'stale' })).toBe(false)
    })

    it('claims a task for the named worker in the answer that resumes it', async () => {
      const { fence } = await claimNew(store, {}, LEASE)
      await store.tasks.append(fence, 0, ['before'])
      await store.tasks.park(fence, openSlots([], inputs('a', 'b')))
      const taker = { worker: 'taker', leaseMs: LEASE }
      expect(await other.tasks.deliver(fence.id, alice, answers({ a: '1' }), taker)).toEqual({
        kind: 'partial',
      })
      expect(await claimOne(store)).toBeUndefined()
      const { kind, lease } = await other.tasks.deliver(fence.id, alice, answers({ b: '2' }), taker)
      if (!lease) throw new Error('no lease')
      expect(kind).toBe('resumed')
      expect(lease).toMatchObject({ fence: { epoch: fence.epoch + 1 }, journal: ['before'] })
      expect(lease.task).toMatchObject({ id: fence.id, owner: alice, head: 'head', failures: 0 })
      expect(givenAnswers(lease.slots)).toEqual(answers({ a: '1', b: '2' }))
      expect(await claimOne(store)).toBeUndefined()
      expect(await store.tasks.list({})).toMatchObject([{ worker: 'taker', dueAt: now() + LEASE }])
      expect(await store.tasks.append(fence, 1, ['stale'])).toBe(false)
      expect(await store.tasks.append(lease.fence, 1, ['more'])).toBe(true)
      now.pass(LEASE)
      expect(await claimOne(store)).toMatchObject({ journal: ['before', 'more'], task: { failures: 1 } })
    })

    it('keeps a task with a worker that renews its lease', async () => {
      const { fence } = await claimNew(store, {}, LEASE)
      now.pass(LEASE - 1)
      expect(await store.tasks.renew([fence], LEASE)).toEqual(new Set([fence.id]))
      now.pass(LEASE - 1)
      expect(await claimOne(other)).toBeUndefined()
      expect(await store.tasks.held([fence])).toEqual(new Set([fence.id]))
    })

    it('E9 P16 refuses every write of a worker whose task was taken over', async () => {
      const { fence } = await claimNew(store, {}, LEASE)
      await store.tasks.append(fence, 0, ['mine'])
      now.pass(LEASE)
      const taken = await claimOne(other)
      expect(taken?.journal).toEqual(['mine'])
      expect(await store.tasks.append(fence, 1, ['stale'])).toBe(false)
      expect(await store.tasks.status(fence, 'stale')).toBe(false)
      expect(await store.tasks.publish(fence, openSlots([], inputs('stale')))).toBeUndefined()
      expect(await store.tasks.park(fence, openSlots([], inputs('stale')))).toBe(false)
      expect(await store.tasks.settle(fence, { kind: 'complete', result: 'stale' })).toBe(false)
      expect(await store.tasks.release(fence, 0, false)).toBe(false)
      expect(await store.tasks.renew([fence], LEASE)).toEqual(new Set())
      expect(await store.tasks.held([fence])).toEqual(new Set())
      expect(await store.tasks.get(fence.id, alice)).toMatchObject({ status: 'working', revision: 1 })
      if (taken) expect(await other.tasks.append(taken.fence, 1, ['next'])).toBe(true)
    })

    it('P16 refuses the writes of a worker that released the task, even before another claims it', async () => {
      const released = await claimNew(store)
      await store.tasks.release(released.fence, 0, false)
      expect(await store.tasks.append(released.fence, 0, ['stale'])).toBe(false)
      const parked = await claimNew(store)
      await store.tasks.park(parked.fence, openSlots([], inputs('a')))
      await store.tasks.deliver(parked.fence.id, alice, answers({ a: '1' }))
      const again = (await store.tasks.claim('w', LEASE, 10)).find(
        ({ fence }) => fence.id === parked.fence.id,
      )
      expect(await store.tasks.append(parked.fence, 0, ['stale'])).toBe(false)
      expect(again?.fence.epoch).toBeGreaterThan(parked.fence.epoch)
    })

    it('refuses writes to an expired task, and never lets it be claimed', async () => {
      const { fence } = await claimNew(store, { ttlMs: 1000 }, 500)
      now.pass(1000)
      expect(await store.tasks.append(fence, 0, ['late'])).toBe(false)
      expect(await store.tasks.settle(fence, { kind: 'complete', result: 'late' })).toBe(false)
      expect(await store.tasks.renew([fence], LEASE)).toEqual(new Set())
      expect(await claimOne(other)).toBeUndefined()
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
      expect(new Set(all).size).toBe(all.length)
      expect(all.sort()).toEqual(ids.map(({ id }) => id).sort())
    })

    it('assigns the task that has been due longest', async () => {
      const tasks = [newTask(), newTask(), newTask()]
      for (const task of tasks) {
        await store.tasks.create(task, 10)
        now.pass(1)
      }
      const order: string[] = []
      for (const _ of tasks) order.push((await claimOne(store))?.fence.id ?? '')
      expect(order).toEqual(tasks.map(({ id }) => id))
    })
  })

  describe('slots of a running task', () => {
    const taker = { worker: 'taker', leaseMs: LEASE }
    const kinds = (slots: readonly { kind: string }[] | undefined) => slots?.map(({ kind }) => kind)

    it('G4 shows a question at once, takes its answer, and leaves the task with its worker', async () => {
      const { fence } = await claimNew(store, { known: false }, LEASE)
      const slots = openSlots([], inputs('a', 'b'))
      expect(await store.tasks.publish(fence, slots)).toEqual(slots)
      const view = await other.tasks.get(fence.id, alice)
      expect(view).toMatchObject({ status: 'input_required', inputs: inputs('a', 'b'), revision: 2 })
      expect(await other.tasks.deliver(fence.id, alice, answers({ a: '1' }), taker)).toEqual({
        kind: 'partial',
      })
      expect(await other.tasks.get(fence.id, alice)).toMatchObject({ known: true, inputs: inputs('b') })
      expect(await claimOne(other)).toBeUndefined()
      expect(await store.tasks.append(fence, 0, ['work'])).toBe(true)
      expect(kinds(await store.tasks.slots(fence.id, alice))).toEqual(['answered', 'open'])
      expect(await store.tasks.slots(fence.id, bob)).toBeUndefined()
      const more = openSlots(slots, inputs('c'))
      expect(kinds(await store.tasks.publish(fence, more))).toEqual(['answered', 'open', 'open'])
      expect(await other.tasks.deliver(fence.id, alice, answers({ b: '2', c: '3' }))).toEqual({
        kind: 'resumed',
      })
      expect((await other.tasks.get(fence.id, alice))?.status).toBe('working')
      expect(await store.tasks.settle(fence, { kind: 'complete', result: 'done' })).toBe(true)
      expect(await store.tasks.slots(fence.id, alice)).toBeUndefined()
    })

    it('G4 makes a task that parks without having seen an answer due at once', async () => {
      const { fence } = await claimNew(store, {}, LEASE)
      const slots = openSlots([], inputs('a', 'b'))
      await store.tasks.publish(fence, slots)
      await other.tasks.deliver(fence.id, alice, answers({ a: '1' }))
      expect(await store.tasks.park(fence, slots)).toBe(true)
      expect(await store.tasks.append(fence, 0, ['stale'])).toBe(false)
      const next = await claimOne(other)
      expect(kinds(next?.slots)).toEqual(['answered', 'open'])
      expect(await other.tasks.get(fence.id, alice)).toMatchObject({ status: 'input_required' })
      // The next turn has seen it, so the task waits for the other answer.
      if (next) expect(await store.tasks.park(next.fence, next.slots)).toBe(true)
      expect(await claimOne(other)).toBeUndefined()
    })

    it('G2 wakes a parked task at its time, with its question still open', async () => {
      const { fence } = await claimNew(store, {}, LEASE)
      expect(await store.tasks.park(fence, openSlots([], inputs('a')), now() + 5000)).toBe(true)
      now.pass(4999)
      expect(await claimOne(other)).toBeUndefined()
      now.pass(1)
      const next = await claimOne(other)
      expect(next).toMatchObject({ fence: { id: fence.id }, task: { failures: 0 } })
      expect(await other.tasks.get(fence.id, alice)).toMatchObject({ status: 'input_required' })
      if (next) expect(await other.tasks.append(next.fence, 0, ['expired'])).toBe(true)
      expect(await other.tasks.deliver(fence.id, alice, answers({ a: '1' }))).toEqual({ kind: 'resumed' })
    })

    it('G4 keeps what was published if the worker dies, and lets the next one go on', async () => {
      const { fence } = await claimNew(store, {}, LEASE)
      await store.tasks.publish(fence, openSlots([], inputs('a')))
      await other.tasks.deliver(fence.id, alice, answers({ a: '1' }))
      now.pass(LEASE)
      const next = await claimOne(other)
      expect(givenAnswers(next?.slots ?? [])).toEqual(answers({ a: '1' }))
      expect(await store.tasks.publish(fence, openSlots([], inputs('x')))).toBeUndefined()
      if (next) expect(await other.tasks.append(next.fence, 0, ['goes on'])).toBe(true)
    })

    it('G5 closes a slot in the view of its owner, whose late answer changes nothing', async () => {
      const { fence } = await claimNew(store, {}, LEASE)
      const slots = openSlots([], inputs('a'), 'offer')
      await store.tasks.publish(fence, slots)
      await store.tasks.publish(fence, closeSlots(slots, [{ key: 'a', role: 'offer' }]))
      expect(await other.tasks.get(fence.id, alice)).toMatchObject({ status: 'working', inputs: new Map() })
      expect(await other.tasks.deliver(fence.id, alice, answers({ a: '1' }))).toEqual({ kind: 'idle' })
      expect(kinds(await store.tasks.slots(fence.id, alice))).toEqual(['closed'])
    })

    it('R6 hides what a task offers while it is held, and makes it due once its owner names it', async () => {
      const { fence } = await claimNew(store, { known: false }, LEASE)
      await store.tasks.publish(fence, openSlots([], inputs('a'), 'offer'))
      expect(await store.tasks.hold(fence)).toBe(true)
      expect(await other.tasks.get(fence.id, alice)).toMatchObject({ status: 'working' })
      await other.tasks.confirm(fence.id, alice)
      expect(kinds((await claimOne(other))?.slots)).toEqual(['open'])
    })
  })

  describe('hooks', () => {
    const taker = { worker: 'taker', leaseMs: LEASE }

    const parkHook = async () => {
      const { fence } = await claimNew(store, { known: false }, LEASE)
      await store.tasks.append(fence, 0, ['before'])
      expect(await store.tasks.park(fence, openSlots([], inputs('h'), 'hook'))).toBe(true)
      return fence
    }

    it('G3 are invisible to the owner, who cannot answer them', async () => {
      const fence = await parkHook()
      expect(await other.tasks.get(fence.id, alice)).toMatchObject({ status: 'working', inputs: new Map() })
      expect(await other.tasks.deliver(fence.id, alice, answers({ h: 'forged' }))).toEqual({ kind: 'idle' })
      expect(await claimOne(other)).toBeUndefined()
      expect(await store.tasks.append(fence, 1, ['stale'])).toBe(false)
    })

    it('G3 take one event, which claims the task for the named worker; a second is told so', async () => {
      const fence = await parkHook()
      for (const owner of [bob, { tenant: 'another', principal: 'alice' }])
        expect(await other.tasks.deliverHook(fence.id, owner, 'h', 'x', taker)).toEqual({ kind: 'unknown' })
      expect(await other.tasks.deliverHook(fence.id, alice, 'another', 'x', taker)).toEqual({
        kind: 'closed',
      })
      const { kind, lease } = await other.tasks.deliverHook(fence.id, alice, 'h', 'event', taker)
      expect(kind).toBe('accepted')
      expect(lease).toMatchObject({
        fence: { epoch: fence.epoch + 1 },
        journal: ['before'],
        slots: [{ kind: 'answered', role: 'hook', key: 'h', answer: 'event' }],
        task: { known: false },
      })
      expect(await store.tasks.deliverHook(fence.id, alice, 'h', 'second', taker)).toEqual({
        kind: 'duplicate',
      })
      expect(await store.tasks.deliverHook(fence.id, alice, 'h', 'event')).toMatchObject({ kind: 'accepted' })
      expect(await claimOne(store)).toBeUndefined()
      if (lease) await other.tasks.settle(lease.fence, { kind: 'complete', result: 'done' })
      expect(await store.tasks.deliverHook(fence.id, alice, 'h', 'late')).toEqual({ kind: 'closed' })
      now.pass(3_600_000)
      expect(await store.tasks.deliverHook(fence.id, alice, 'h', 'late')).toEqual({ kind: 'unknown' })
    })

    it('G3 take an event while a turn runs, and make a task without a worker due', async () => {
      const { fence } = await claimNew(store, {}, LEASE)
      const slots = openSlots([], inputs('h', 'i'), 'hook')
      await store.tasks.publish(fence, slots)
      expect(await other.tasks.deliverHook(fence.id, alice, 'h', 'event', taker)).toEqual({
        kind: 'accepted',
        lease: undefined,
      })
      expect(await store.tasks.append(fence, 0, ['mine'])).toBe(true)
      expect(await store.tasks.park(fence, slots)).toBe(true)
      const next = await claimOne(other)
      expect(next?.slots.map(({ kind }) => kind)).toEqual(['answered', 'open'])
      if (next) await store.tasks.park(next.fence, next.slots)
      expect(await claimOne(other)).toBeUndefined()
      expect((await store.tasks.deliverHook(fence.id, alice, 'i', 'event')).kind).toBe('accepted')
      expect((await claimOne(other))?.fence.id).toBe(fence.id)
    })
  })

  describe('failures', () => {
    it('counts a failure for a worker that vanished, not for one that released its task', async () => {
      const { fence, task } = await claimNew(store, {}, LEASE)
      expect(task.failures).toBe(0)
      await store.tasks.release(fence, 0, false)
      const second = await claimOne(store)
      expect(second?.task.failures).toBe(0)
      now.pass(LEASE)
      expect((await claimOne(store))?.task.failures).toBe(1)
      now.pass(LEASE)
      expect((await claimOne(store))?.task.failures).toBe(2)
    })

    it('counts turns that threw, and makes the task due after a pause', async () => {
      const { fence } = await claimNew(store)
      expect(await store.tasks.release(fence, 500, true)).toBe(true)
      expect(await claimOne(store)).toBeUndefined()
      now.pass(500)
      expect((await claimOne(store))?.task.failures).toBe(1)
    })

    it('resets the failure count when something is recorded, or the task waits for input', async () => {
      await claimNew(store, {}, LEASE)
      now.pass(LEASE)
      const second = await claimOne(store)
      expect(second?.task.failures).toBe(1)
      if (second) await store.tasks.append(second.fence, 0, ['progress'])
      now.pass(LEASE)
      const third = await claimOne(store)
      expect(third?.task.failures).toBe(1)
      if (third) await store.tasks.park(third.fence, openSlots([], inputs('a')))
      await store.tasks.deliver(third?.fence.id ?? '', alice, answers({ a: '1' }))
      expect((await claimOne(store))?.task.failures).toBe(0)
    })
  })

  describe('journals', () => {
    it('D9 begin with the entries of the rounds before, and keep their order', async () => {
      const { fence, journal } = await claimNew(store, { journal: ['before 1', 'before 2'] })
      expect(journal).toEqual(['before 1', 'before 2'])
      await store.tasks.append(fence, 2, ['3', '4'])
      await store.tasks.append(fence, 4, ['5'])
      await store.tasks.release(fence, 0, false)
      expect((await claimOne(other))?.journal).toEqual(['before 1', 'before 2', '3', '4', '5'])
    })

    it('may be large', async () => {
      const { fence } = await claimNew(store)
      const entries = Array.from({ length: 2000 }, (_, i) => `${i} ${'x'.repeat(i % 1000)}`)
      for (let i = 0; i < entries.length; i += 200)
        expect(await store.tasks.append(fence, i, entries.slice(i, i + 200))).toBe(true)
      expect(await store.tasks.append(fence, 2000, ['y'.repeat(2_000_000)])).toBe(true)
      await store.tasks.release(fence, 0, false)
      const journal = (await claimOne(other))?.journal
      expect(journal?.slice(0, 2000)).toEqual(entries)
      expect(journal?.[2000]?.length).toBe(2_000_000)
    })

    it('refuse an entry at an index that is taken', async () => {
      const { fence } = await claimNew(store)
      await store.tasks.append(fence, 0, ['first'])
      await expect(store.tasks.append(fence, 0, ['other'])).rejects.toThrow()
      await store.tasks.release(fence, 0, false)
      expect((await claimOne(other))?.journal).toEqual(['first'])
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
      expect(heard({ kind: 'due' })).toBe(true)
      await store.tasks.status(fence, 'm')
      expect(heard({ kind: 'changed', id: fence.id })).toBe(true)
      await store.tasks.park(fence, openSlots([], inputs('a')))
      expect(heard({ kind: 'changed', id: fence.id })).toBe(true)
      await store.tasks.deliver(fence.id, alice, answers({ a: '1' }))
      expect(heard({ kind: 'due' })).toBe(true)
      await store.tasks.cancel(fence.id, alice)
      expect(heard({ kind: 'changed', id: fence.id })).toBe(true)
      stop()
      await claimNew(store)
      expect(hints).toEqual([])
    })
  })
}

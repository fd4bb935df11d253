/** What a task that waits for a time may rely on, on every database: not early, once, and no late answers. */

import { openSlots } from '../../store/input-slots.ts'
import type { Store } from '../../store/store.ts'
import { alice, answers, claimNew, createTime, inputs, type StoreHarness, type StoreSite } from './harness.ts'
import { afterEach, beforeEach, describe, expect, it } from './suite.ts'

const LEASE = 10_000
const HOUR = 3_600_000

export function describeTimeContract(harness: StoreHarness): void {
  let database: StoreSite
  let now: ReturnType<typeof createTime>
  let store: Store
  let other: Store
  beforeEach(async () => {
    database = await harness.create()
    now = createTime()
    store = database.open(now)
    other = database.open(now)
  })
  afterEach(() => database.close())

  const claim = async (from: Store, count = 10) => from.tasks.claim('second', LEASE, count)

  describe('a task that is parked until a time', () => {
    it('G1 is not due a millisecond before, is claimed once, and tells the time of the store', async () => {
      const { fence } = await claimNew(store)
      expect(await store.tasks.park(fence, [], now() + HOUR - 1)).toBe(true)
      expect(await store.tasks.get(fence.id, alice)).toMatchObject({ status: 'working' })
      expect(await store.tasks.stats()).toMatchObject({ due: 0, running: 0, parked: 1 })
      expect((await store.tasks.list({ id: fence.id }))[0]).toMatchObject({ dueAt: now() + HOUR - 1 })
      now.pass(HOUR - 2)
      expect(await claim(store)).toEqual([])
      now.pass(1)
      const claims = await Promise.all([claim(store), claim(other)])
      expect(claims.flat()).toMatchObject([{ fence: { id: fence.id }, now: now(), task: { failures: 0 } }])
    })

    it('G1 keeps the worker that parked it away', async () => {
      const { fence } = await claimNew(store)
      await store.tasks.park(fence, [], now() + 1)
      expect(await store.tasks.append(fence, 0, ['stale'])).toBe(false)
      now.pass(1)
      expect(await store.tasks.settle(fence, { kind: 'complete', result: 'stale' })).toBe(false)
      expect((await claim(other))[0]).toMatchObject({ fence: { id: fence.id } })
      expect(await store.tasks.append(fence, 0, ['stale'])).toBe(false)
    })

    it('G1 says when the next task is due', async () => {
      expect(await store.tasks.nextDueMs(5000)).toBeUndefined()
      const { fence } = await claimNew(store)
      await store.tasks.park(fence, [], now() + 3000)
      expect(await other.tasks.nextDueMs(2999)).toBeUndefined()
      expect(await other.tasks.nextDueMs(3000)).toBe(3000)
      now.pass(1000)
      expect(await other.tasks.nextDueMs(5000)).toBe(2000)
    })

    it('G1 counts as the next one also when it is due already, until it is claimed or expires', async () => {
      for (const ttlMs of [60_000, 5_000]) {
        const { fence } = await claimNew(store, { ttlMs })
        await store.tasks.park(fence, [], now() + 3000)
      }
      now.pass(3000)
      expect(await other.tasks.nextDueMs(1000)).toBe(0)
      now.pass(1999)
      expect(await other.tasks.nextDueMs(1000)).toBe(0)
      expect(await claim(store, 1)).toHaveLength(1)
      expect(await other.tasks.nextDueMs(1000)).toBe(0)
      now.pass(1)
      await claim(store)
      expect(await other.tasks.nextDueMs(1000)).toBeUndefined()
    })

    it('G1 is no longer due once it was cancelled', async () => {
      const { fence } = await claimNew(store)
      await store.tasks.park(fence, [], now() + 1)
      await other.tasks.cancel(fence.id, alice)
      now.pass(1)
      expect(await claim(store)).toEqual([])
    })
  })

  describe('a slot that closes at a time', () => {
    const parked = async () => {
      const { fence } = await claimNew(store)
      const until = new Map([['a', now() + HOUR - 1]])
      await store.tasks.park(fence, openSlots([], inputs('a', 'b'), undefined, until), now() + HOUR - 1)
      return fence
    }

    it('G2 takes an answer before its time, and the task is due when the last one is there', async () => {
      const { id } = await parked()
      now.pass(HOUR - 2)
      expect(await other.tasks.deliver(id, alice, answers({ a: 'x' }))).toMatchObject({ kind: 'partial' })
      expect(await claim(store)).toEqual([])
      expect(await other.tasks.deliver(id, alice, answers({ b: 'y' }))).toMatchObject({ kind: 'resumed' })
      expect(await claim(store)).toHaveLength(1)
    })

    it('G3 as a hook takes an event until then, and says that it is closed afterwards', async () => {
      const park = async () => {
        const { fence } = await claimNew(store)
        const slots = openSlots([], inputs('h'), 'hook', new Map([['h', now() + HOUR - 1]]))
        await store.tasks.park(fence, slots, now() + HOUR - 1)
        return fence.id
      }
      const [early, late] = [await park(), await park()]
      now.pass(HOUR - 2)
      expect(await other.tasks.deliverHook(early, alice, 'h', 'event')).toMatchObject({ kind: 'accepted' })
      now.pass(1)
      expect(await other.tasks.deliverHook(late, alice, 'h', 'event')).toEqual({ kind: 'closed' })
      // What was stored in time counts when its write is repeated because the reply was lost.
      expect(await other.tasks.deliverHook(early, alice, 'h', 'event')).toMatchObject({ kind: 'accepted' })
      expect(await other.tasks.deliverHook(early, alice, 'h', 'second')).toEqual({ kind: 'duplicate' })
      const leases = await claim(store)
      const kinds = new Map(leases.map(({ fence, slots }) => [fence.id, slots[0]?.kind]))
      expect([kinds.get(early), kinds.get(late)]).toEqual(['answered', 'open'])
    })

    it('G2 takes no answer from its time on, whether or not a worker has come', async () => {
      const { id } = await parked()
      now.pass(HOUR - 1)
      expect(await other.tasks.deliver(id, alice, answers({ a: 'x' }))).toMatchObject({ kind: 'partial' })
      const [lease] = await claim(store)
      expect(lease?.slots.map(({ kind }) => kind)).toEqual(['open', 'open'])
      await other.tasks.deliver(id, alice, answers({ a: 'late', b: 'in time' }))
      expect((await store.tasks.slots(id, alice))?.map(({ kind }) => kind)).toEqual(['open', 'answered'])
    })
  })
}

/** Two operations at the same time: the database decides once, and both sides learn the same outcome. */

import { closeSlots, type InputSlot, openSlots } from '../../store/input-slots.ts'
import type { Store } from '../../store/store.ts'
import { alice, answers, claimNew, createTime, inputs, type StoreHarness, type StoreSite } from './harness.ts'
import { afterEach, beforeEach, expect, it } from './suite.ts'

const ROUNDS = 25

export function describeRaceContract(harness: StoreHarness): void {
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

  it('deliver races park: an answer is recorded or has no effect, and a task that received it is due', async () => {
    for (let i = 0; i < ROUNDS; i++) {
      const { fence } = await claimNew(store)
      const given = answers({ a: '1' })
      const [parked, delivery] = await Promise.all([
        store.tasks.park(fence, openSlots([], inputs('a'))),
        other.tasks.deliver(fence.id, alice, given),
      ])
      expect(parked).toBe(true)
      expect(['idle', 'resumed']).toContain(delivery.kind)
      if (delivery.kind === 'idle')
        expect(await other.tasks.deliver(fence.id, alice, given)).toMatchObject({ kind: 'resumed' })
      const leases = await store.tasks.claim('w', 10_000, 10)
      expect(leases.map((lease) => lease.fence)).toEqual([{ id: fence.id, epoch: fence.epoch + 1 }])
    }
  })

  it('G4 deliver races publish and park: no answer is lost, and the task that got one is due', async () => {
    const seen = new Set<string>()
    for (let i = 0; i < ROUNDS; i++) {
      const { fence } = await claimNew(store)
      const slots = openSlots([], inputs('a', 'b'))
      await store.tasks.publish(fence, slots)
      const more = openSlots(slots, inputs('c'))
      const work = async () => {
        const shown = await store.tasks.publish(fence, more)
        seen.add(String(shown?.some(({ kind }) => kind === 'answered')))
        return store.tasks.park(fence, more)
      }
      const given = answers({ a: '1', b: '2', c: '3' })
      const [parked, delivery] = await Promise.all([work(), other.tasks.deliver(fence.id, alice, given)])
      expect(parked).toBe(true)
      expect(['partial', 'resumed']).toContain(delivery.kind)
      const [lease, ...rest] = await store.tasks.claim('w', 10_000, 10)
      expect(rest).toEqual([])
      expect(lease?.fence.id).toBe(fence.id)
      const kinds = lease?.slots.map(({ kind }) => kind)
      expect(kinds?.slice(0, 2)).toEqual(['answered', 'answered'])
    }
    expect(seen.size).toBeGreaterThan(0)
  })

  it('G3 deliveries race on one hook: one is accepted, the others are told so, and the task is due once', async () => {
    for (let i = 0; i < ROUNDS; i++) {
      const { fence } = await claimNew(store)
      const slots = openSlots([], inputs('h'), 'hook')
      const [parked, ...kinds] = await Promise.all([
        store.tasks.publish(fence, slots).then(() => store.tasks.park(fence, slots)),
        ...Array.from({ length: 5 }, async (_, n) => {
          for (;;) {
            const { kind } = await (n % 2 ? store : other).tasks.deliverHook(fence.id, alice, 'h', `by ${n}`)
            // Before the slot is published there is no hook of this name.
            if (kind !== 'closed') return kind
          }
        }),
      ])
      expect(parked).toBe(true)
      expect(kinds.sort()).toEqual(['accepted', ...Array(4).fill('duplicate')])
      const leases = await store.tasks.claim('w', 10_000, 10)
      expect(leases.map((lease) => lease.slots.map(({ kind }) => kind))).toEqual([['answered']])
    }
  })

  it('G3 a delivery races the end of its time: what was accepted is there, and nothing else', async () => {
    const seen = new Set<string>()
    for (let i = 0; i < ROUNDS; i++) {
      const { fence } = await claimNew(store)
      const slots = openSlots([], inputs('h'), 'hook')
      await store.tasks.publish(fence, slots)
      const close = () => store.tasks.publish(fence, closeSlots(slots, [{ key: 'h', role: 'hook' }]))
      const deliver = () => other.tasks.deliverHook(fence.id, alice, 'h', 'event')
      const [merged, { kind }] = (
        i % 2 ? await Promise.all([close(), deliver()]) : (await Promise.all([deliver(), close()])).reverse()
      ) as [readonly InputSlot[], { kind: string }]
      expect(merged.map((slot) => slot.kind)).toEqual([kind === 'accepted' ? 'answered' : 'closed'])
      expect(['accepted', 'closed']).toContain(kind)
      expect((await other.tasks.deliverHook(fence.id, alice, 'h', 'late')).kind).not.toBe('accepted')
      seen.add(kind)
    }
    expect(seen.size).toBeGreaterThan(0)
  })

  it('deliver races deliver: one answer wins each key, and the task is resumed once', async () => {
    for (let i = 0; i < ROUNDS; i++) {
      const { fence } = await claimNew(store)
      const keys = ['a', 'b', 'c']
      await store.tasks.park(fence, openSlots([], inputs(...keys)))
      const deliveries = await Promise.all(
        Array.from({ length: 9 }, (_, n) =>
          (n % 2 ? store : other).tasks.deliver(fence.id, alice, answers({ [keys[n % 3] ?? '']: `by ${n}` })),
        ),
      )
      expect(deliveries.filter(({ kind }) => kind === 'resumed')).toHaveLength(1)
      const [lease, ...more] = await store.tasks.claim('w', 10_000, 10)
      expect(more).toEqual([])
      expect(lease?.slots.map(({ kind }) => kind)).toEqual(['answered', 'answered', 'answered'])
    }
  })

  it('deliver races the same deliver of the same worker: one of them gets the lease', async () => {
    const taker = { worker: 'taker', leaseMs: 10_000 }
    for (let i = 0; i < ROUNDS; i++) {
      const { fence } = await claimNew(store)
      await store.tasks.park(fence, openSlots([], inputs('a')))
      const handovers = await Promise.all(
        Array.from({ length: 6 }, (_, n) =>
          (n % 2 ? store : other).tasks.deliver(fence.id, alice, answers({ a: '1' }), taker),
        ),
      )
      expect(handovers.filter(({ lease }) => lease !== undefined)).toHaveLength(1)
    }
  })

  it('P15 cancel races complete: one of them wins, and the task keeps that ending', async () => {
    const seen = new Set<string>()
    for (let i = 0; i < ROUNDS; i++) {
      const { fence } = await claimNew(store)
      const settle = () => store.tasks.settle(fence, { kind: 'complete', result: 'done' })
      const cancel = () => other.tasks.cancel(fence.id, alice)
      const [settled, cancelled] =
        i % 2 ? await Promise.all([settle(), cancel()]) : (await Promise.all([cancel(), settle()])).reverse()
      expect([settled, cancelled]).toEqual(settled ? [true, 'ended'] : [false, 'cancelled'])
      const status = settled ? 'completed' : 'cancelled'
      expect((await other.tasks.get(fence.id, alice))?.status).toBe(status)
      seen.add(status)
    }
    expect(seen.size).toBeGreaterThan(0)
  })

  it('deliver races expiry: a refused answer changes nothing, and nobody runs an expired task', async () => {
    for (let i = 0; i < ROUNDS; i++) {
      const { fence } = await claimNew(store, { ttlMs: 1000 })
      await store.tasks.park(fence, openSlots([], inputs('a', 'b')))
      const first = Promise.all([
        store.tasks.deliver(fence.id, alice, answers({ a: '1' })),
        other.tasks.deliver(fence.id, alice, answers({ b: '2' })),
      ])
      now.pass(1000)
      for (const { kind } of await first) expect(['unknown', 'partial', 'resumed']).toContain(kind)
      expect(await other.tasks.deliver(fence.id, alice, answers({ b: '3' }))).toMatchObject({
        kind: 'unknown',
      })
      expect(await store.tasks.claim('w', 10_000, 10)).toEqual([])
      expect(await other.tasks.get(fence.id, alice)).toBeUndefined()
    }
  })

  it('P16 append races takeover: a stale entry is in the journal of the next turn, or nowhere', async () => {
    for (let i = 0; i < ROUNDS; i++) {
      const { fence } = await claimNew(store, {}, 1000)
      now.pass(1000)
      const [appended, leases] = await Promise.all([
        store.tasks.append(fence, 0, ['late']),
        other.tasks.claim('w', 1_000_000_000, 10),
      ])
      const [lease] = leases.length > 0 ? leases : await other.tasks.claim('w', 1_000_000_000, 10)
      expect(lease?.journal).toEqual(appended ? ['late'] : [])
    }
  })
}

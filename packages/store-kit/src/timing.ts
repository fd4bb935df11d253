/**
 * The contract about time, on every database: a task that waits for a time is neither early nor late, and of two operations at
 * the same time the database decides once, and both sides learn the same outcome.
 */

import assert from 'node:assert/strict'
import { closeSlots, openSlots } from 'rondo/internal'
import type { InputSlot, Store } from 'rondo/store'
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
  type StoreHarness,
} from './harness.ts'

const LEASE = 10_000
const HOUR = 3_600_000

export function describeTimeContract(harness: StoreHarness): void {
  let now: ContractTime
  let store: Store
  let other: Store
  eachCase(harness, (site) => {
    ;({ now, store, other } = site)
  })

  const claim = async (from: Store, count = 10) => from.tasks.claim('second', LEASE, count)

  describe('a task that is parked until a time', () => {
    it('G1 is not due a millisecond before, is claimed once, and tells the time of the store', async () => {
      const { fence } = await claimNew(store)
      assert.equal(await store.tasks.park(fence, [], now() + HOUR - 1), true)
      assertMatch(await store.tasks.get(fence.id, alice), { status: 'working' })
      assertMatch(await store.tasks.stats(), { due: 0, running: 0, parked: 1 })
      assertMatch((await store.tasks.list({ id: fence.id }))[0], { dueAt: now() + HOUR - 1 })
      now.pass(HOUR - 2)
      assertEqual(await claim(store), [])
      now.pass(1)
      const claims = await Promise.all([claim(store), claim(other)])
      assertMatch(claims.flat(), [{ fence: { id: fence.id }, now: now(), task: { failures: 0 } }])
    })

    it('G1 lives until the end of a wait that is longer than its life, and is claimed then', async () => {
      const { fence, task } = await claimNew(store)
      const due = task.expiresAt + HOUR
      assert.equal(await store.tasks.park(fence, [], due, due + HOUR), true)
      assertMatch(await store.tasks.get(fence.id, alice), { expiresAt: due + HOUR })
      now.pass(due - now())
      const [lease] = await claim(other)
      assertMatch(lease, { fence: { id: fence.id }, task: { expiresAt: due + HOUR } })
      if (lease) assert.equal(await other.tasks.park(lease.fence, [], due + 1, due), true)
      assertMatch(await store.tasks.get(fence.id, alice), { expiresAt: due + HOUR })
      now.pass(HOUR)
      assert.equal(await store.tasks.get(fence.id, alice), undefined)
    })

    it('G1 keeps the worker that parked it away', async () => {
      const { fence } = await claimNew(store)
      await store.tasks.park(fence, [], now() + 1)
      assert.equal(await store.tasks.append(fence, 0, ['stale']), false)
      now.pass(1)
      assert.equal(await store.tasks.settle(fence, { kind: 'complete', result: 'stale' }), false)
      assertMatch((await claim(other))[0], { fence: { id: fence.id } })
      assert.equal(await store.tasks.append(fence, 0, ['stale']), false)
    })

    it('G1 says when the next task is due', async () => {
      assert.equal(await store.tasks.nextDueMs(5000), undefined)
      const { fence } = await claimNew(store)
      await store.tasks.park(fence, [], now() + 3000)
      assert.equal(await other.tasks.nextDueMs(2999), undefined)
      assert.equal(await other.tasks.nextDueMs(3000), 3000)
      now.pass(1000)
      assert.equal(await other.tasks.nextDueMs(5000), 2000)
    })

    it('G1 counts as the next one also when it is due already, until it is claimed or expires', async () => {
      for (const ttlMs of [60_000, 5_000]) {
        const { fence } = await claimNew(store, { ttlMs })
        await store.tasks.park(fence, [], now() + 3000)
      }
      now.pass(3000)
      assert.equal(await other.tasks.nextDueMs(1000), 0)
      now.pass(1999)
      assert.equal(await other.tasks.nextDueMs(1000), 0)
      assert.equal((await claim(store, 1)).length, 1)
      assert.equal(await other.tasks.nextDueMs(1000), 0)
      now.pass(1)
      await claim(store)
      assert.equal(await other.tasks.nextDueMs(1000), undefined)
    })

    it('G1 is no longer due once it was cancelled', async () => {
      const { fence } = await claimNew(store)
      await store.tasks.park(fence, [], now() + 1)
      await other.tasks.cancel(fence.id, alice)
      now.pass(1)
      assertEqual(await claim(store), [])
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
      assertMatch(await other.tasks.deliver(id, alice, answers({ a: 'x' })), { kind: 'partial' })
      assertEqual(await claim(store), [])
      assertMatch(await other.tasks.deliver(id, alice, answers({ b: 'y' })), { kind: 'resumed' })
      assert.equal((await claim(store)).length, 1)
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
      assertMatch(await other.tasks.deliverHook(early, alice, 'h', 'event'), { kind: 'accepted' })
      now.pass(1)
      assertEqual(await other.tasks.deliverHook(late, alice, 'h', 'event'), { kind: 'closed' })
      // An event that was stored in time counts when its write is repeated because the reply was lost.
      assertMatch(await other.tasks.deliverHook(early, alice, 'h', 'event'), { kind: 'accepted' })
      assertEqual(await other.tasks.deliverHook(early, alice, 'h', 'second'), { kind: 'duplicate' })
      const leases = await claim(store)
      const kinds = new Map(leases.map(({ fence, slots }) => [fence.id, slots[0]?.kind]))
      assertEqual([kinds.get(early), kinds.get(late)], ['answered', 'open'])
    })

    it('G2 takes no answer from its time on, whether or not a worker has come', async () => {
      const { id } = await parked()
      now.pass(HOUR - 1)
      assertMatch(await other.tasks.deliver(id, alice, answers({ a: 'x' })), { kind: 'partial' })
      const [lease] = await claim(store)
      assertEqual(
        lease?.slots.map(({ kind }) => kind),
        ['open', 'open'],
      )
      await other.tasks.deliver(id, alice, answers({ a: 'late', b: 'in time' }))
      assertEqual(
        (await store.tasks.slots(id, alice))?.map(({ kind }) => kind),
        ['open', 'answered'],
      )
    })
  })
}

const ROUNDS = 25

export function describeRaceContract(harness: StoreHarness): void {
  let now: ContractTime
  let store: Store
  let other: Store
  eachCase(harness, (site) => {
    ;({ now, store, other } = site)
  })

  it('deliver races park: an answer is recorded or has no effect, and a task that received it is due', async () => {
    for (let i = 0; i < ROUNDS; i++) {
      const { fence } = await claimNew(store)
      const given = answers({ a: '1' })
      const [parked, delivery] = await Promise.all([
        store.tasks.park(fence, openSlots([], inputs('a'))),
        other.tasks.deliver(fence.id, alice, given),
      ])
      assert.equal(parked, true)
      assert.ok(['idle', 'resumed'].includes(delivery.kind), delivery.kind)
      if (delivery.kind === 'idle')
        assertMatch(await other.tasks.deliver(fence.id, alice, given), { kind: 'resumed' })
      const leases = await store.tasks.claim('w', 10_000, 10)
      assertEqual(
        leases.map((lease) => lease.fence),
        [{ id: fence.id, epoch: fence.epoch + 1 }],
      )
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
      assert.equal(parked, true)
      assert.ok(['partial', 'resumed'].includes(delivery.kind), delivery.kind)
      const [lease, ...rest] = await store.tasks.claim('w', 10_000, 10)
      assertEqual(rest, [])
      assert.equal(lease?.fence.id, fence.id)
      const kinds = lease?.slots.map(({ kind }) => kind)
      assertEqual(kinds?.slice(0, 2), ['answered', 'answered'])
    }
    assert.ok(seen.size > 0)
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
      assert.equal(parked, true)
      assertEqual(kinds.sort(), ['accepted', ...Array(4).fill('duplicate')])
      const leases = await store.tasks.claim('w', 10_000, 10)
      assertEqual(
        leases.map((lease) => lease.slots.map(({ kind }) => kind)),
        [['answered']],
      )
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
      assertEqual(
        merged.map((slot) => slot.kind),
        [kind === 'accepted' ? 'answered' : 'closed'],
      )
      assert.ok(['accepted', 'closed'].includes(kind), kind)
      assert.notEqual((await other.tasks.deliverHook(fence.id, alice, 'h', 'late')).kind, 'accepted')
      seen.add(kind)
    }
    assert.ok(seen.size > 0)
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
      assert.equal(deliveries.filter(({ kind }) => kind === 'resumed').length, 1)
      const [lease, ...more] = await store.tasks.claim('w', 10_000, 10)
      assertEqual(more, [])
      assertEqual(
        lease?.slots.map(({ kind }) => kind),
        ['answered', 'answered', 'answered'],
      )
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
      assert.equal(handovers.filter(({ lease }) => lease !== undefined).length, 1)
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
      assertEqual([settled, cancelled], settled ? [true, 'ended'] : [false, 'cancelled'])
      const status = settled ? 'completed' : 'cancelled'
      assert.equal((await other.tasks.get(fence.id, alice))?.status, status)
      seen.add(status)
    }
    assert.ok(seen.size > 0)
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
      for (const { kind } of await first) assert.ok(['unknown', 'partial', 'resumed'].includes(kind), kind)
      assertMatch(await other.tasks.deliver(fence.id, alice, answers({ b: '3' })), {
        kind: 'unknown',
      })
      assertEqual(await store.tasks.claim('w', 10_000, 10), [])
      assert.equal(await other.tasks.get(fence.id, alice), undefined)
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
      assertEqual(lease?.journal, appended ? ['late'] : [])
    }
  })
}

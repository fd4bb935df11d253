/** The contract of the part of a store that limits how many calls run at once, and the controls that show that these cases can fail. */

import assert from 'node:assert/strict'
import type { PermitGrant, PermitRequest, PermitStore, Store } from 'rondo/store'
import {
  alice,
  assertEqual,
  assertMatch,
  type ContractTime,
  claimNew,
  eachCase,
  it,
  newTask,
  type SeededRandom,
  type StoreHarness,
  seededRandom,
} from './harness.ts'

const HOLD_MS = 1_000

function request(holder: string, changes: Partial<PermitRequest> = {}): PermitRequest {
  return { holder, tags: ['t'], limit: 1, holdMs: HOLD_MS, ...changes }
}

function grantOf(grant: PermitGrant): string {
  assert.equal(grant.kind, 'held')
  return grant.kind === 'held' ? grant.grant : ''
}

export function describePermitContract(harness: StoreHarness, runs: number, seed: number): void {
  let now: ContractTime
  let store: Store
  let other: Store
  let one: PermitStore
  let two: PermitStore
  eachCase(harness, (site) => {
    ;({ now, store, other } = site)
    if (!site.store.permits || !site.other.permits) throw new Error('This store has no permits')
    one = site.store.permits
    two = site.other.permits
  })

  it('M3 grants no more permits of a tag than its limit, and one again when one is released', async () => {
    const all = await Promise.all(
      Array.from({ length: 8 }, (_, i) => (i % 2 ? one : two).acquire(request(`flow ${i}`, { limit: 3 }))),
    )
    const held = all.flatMap((grant, i) =>
      grant.kind === 'held' ? [[`flow ${i}`, grant.grant] as const] : [],
    )
    assert.equal(held.length, 3)
    assertMatch(await one.acquire(request('late', { limit: 3 })), { kind: 'busy', retryMs: HOLD_MS })
    const [holder = '', grant = ''] = held[0] ?? []
    await two.release(holder, grant)
    assert.equal((await one.acquire(request('late', { limit: 3 }))).kind, 'held')
    assert.equal((await one.acquire(request('other', { tags: ['u'] }))).kind, 'held')
  })

  it('M3 ends a hold that is not renewed, and refuses the next write of its former holder', async () => {
    const former = grantOf(await one.acquire(request('a')))
    now.pass(HOLD_MS - 1)
    assert.equal(await one.renew('a', former, HOLD_MS), true)
    now.pass(HOLD_MS - 1)
    assert.equal((await two.acquire(request('b'))).kind, 'busy')
    now.pass(1)
    const grant = grantOf(await two.acquire(request('b')))
    assert.equal(await one.renew('a', former, HOLD_MS), false)
    await one.release('a', former)
    assert.equal(await two.renew('b', grant, HOLD_MS), true)
  })

  it('M3 refuses to renew a hold that has ended, even if nobody has taken the permit', async () => {
    const grant = grantOf(await one.acquire(request('a')))
    now.pass(HOLD_MS)
    assert.equal(await one.renew('a', grant, HOLD_MS), false)
    assert.equal((await two.acquire(request('b'))).kind, 'held')
  })

  it('M3 fences off the former grant of a flow that acquires again, and counts the flow once', async () => {
    const former = grantOf(await one.acquire(request('a')))
    const grant = grantOf(await two.acquire(request('a')))
    assert.notEqual(grant, former)
    assert.equal(await one.renew('a', former, HOLD_MS), false)
    await one.release('a', former)
    assert.equal(await two.renew('a', grant, HOLD_MS), true)
    assert.equal((await one.acquire(request('b'))).kind, 'busy')
  })

  it('M3 counts holders that have one of several tags in common, as during a rotation of keys', async () => {
    await one.acquire(request('a', { tags: ['old'] }))
    assert.equal((await two.acquire(request('b', { tags: ['new', 'old'] }))).kind, 'busy')
    assert.equal((await two.acquire(request('c', { tags: ['new'] }))).kind, 'held')
    await one.release('a')
    assert.equal((await two.acquire(request('b', { tags: ['new', 'old'] }))).kind, 'busy')
    await one.release('c')
    assert.equal((await two.acquire(request('b', { tags: ['new', 'old'] }))).kind, 'held')
    assert.equal((await two.acquire(request('a', { tags: ['old'] }))).kind, 'busy')
  })

  it('M3 serves those who wait in their order, wakes the task of the first, and lets nobody pass', async () => {
    const tasks = [newTask(), newTask(), newTask()]
    for (const task of tasks) await store.tasks.create(task, 10)
    const leases = await store.tasks.claim('w', 10_000, 10)
    for (const { fence } of leases) await store.tasks.release(fence, 60_000, false)
    const grant = grantOf(await one.acquire(request('a')))
    for (const [i, { id }] of tasks.entries()) {
      const waits = request(`w${i}`, { task: id, endsWith: tasks[2]?.id, queues: true })
      assert.equal((await one.acquire(waits)).kind, 'busy')
      now.pass(1)
    }
    assertMatch(await two.acquire(request('w1', { task: tasks[1]?.id, queues: true })), { waitedMs: 2 })
    assertEqual(await other.tasks.claim('w', 1000, 10), [])
    await two.release('a', grant)
    assert.equal((await one.acquire(request('passer'))).kind, 'busy')
    assert.equal((await one.acquire(request('w1', { task: tasks[1]?.id, queues: true }))).kind, 'busy')
    const [woken, ...others] = await other.tasks.claim('w', 1000, 10)
    assertEqual([woken?.fence.id, others.length], [tasks[0]?.id, 0])
    assert.equal((await one.acquire(request('w0', { task: tasks[0]?.id, queues: true }))).kind, 'held')
  })

  it('M3 ends the permit and the place in the queue of a task with the task, however it ends', async () => {
    for (const end of ['cancel', 'settle', 'expire'] as const) {
      const { fence } = await claimNew(store, { ttlMs: 5_000 })
      await one.acquire(request('a', { task: fence.id, holdMs: 100_000 }))
      const waiting = await claimNew(store, { ttlMs: 4_000 })
      await one.acquire(request('b', { task: waiting.fence.id, queues: true }))
      await store.tasks.cancel(waiting.fence.id, alice)
      assertMatch(await two.acquire(request('c')), { kind: 'busy', task: fence.id })
      if (end === 'cancel') await store.tasks.cancel(fence.id, alice)
      else if (end === 'settle') await store.tasks.settle(fence, { kind: 'complete', result: 'r' })
      else now.pass(5_000)
      const grant = grantOf(await two.acquire(request('c')))
      assert.equal(await one.renew('a', grant, HOLD_MS), false)
      await two.release('c', grant)
    }
  })

  it('M3 ends a permit that was passed on to an alarm with the alarm, and keeps it when its task ends', async () => {
    for (const passes of ['acquires', 'renews'] as const) {
      const { fence } = await claimNew(store)
      const alarm = await claimNew(store)
      const endsWith = alarm.fence.id
      const given = request('a', { task: fence.id, holdMs: 100_000 })
      const first = await one.acquire(passes === 'acquires' ? { ...given, endsWith } : given)
      if (passes === 'renews') await one.renew('a', grantOf(first), 100_000, endsWith)
      await store.tasks.cancel(fence.id, alice)
      assert.equal((await two.acquire(request('b'))).kind, 'busy')
      const again = grantOf(await two.acquire({ ...given, task: endsWith, endsWith }))
      assert.equal(await two.renew('a', again, 100_000, endsWith), true)
      await store.tasks.settle(alarm.fence, { kind: 'complete', result: 'r' })
      await two.release('b', grantOf(await two.acquire(request('b'))))
    }
  })

  it('M3 gives a turn that has lost its task neither a permit nor a place in the queue', async () => {
    const { fence } = await claimNew(store)
    const asks = request('a', { task: fence.id, queues: true })
    await store.tasks.release(fence, 0, false)
    const [next] = await other.tasks.claim('w', 10_000, 10)
    assertMatch(await two.acquire({ ...asks, turn: fence.epoch }), { kind: 'busy' })
    const grant = grantOf(await one.acquire(request('b')))
    assertMatch(await two.acquire({ ...asks, turn: fence.epoch }), { kind: 'busy' })
    await one.release('b', grant)
    await one.release('b', grantOf(await two.acquire(request('b'))))
    assert.equal((await two.acquire({ ...asks, turn: next?.fence.epoch })).kind, 'held')
  })

  it('M3 sweeps what has ended', async () => {
    await one.acquire(request('a'))
    await one.acquire(request('b', { tags: ['u'], holdMs: 100_000 }))
    now.pass(HOLD_MS)
    assert.equal(await store.sweep(10), 1)
    assert.equal((await two.acquire(request('c', { tags: ['u'] }))).kind, 'busy')
  })

  it('M3 has never more unexpired holders than the limit, in any history over two instances', async () => {
    let granted = 0
    for (let run = 0; run < runs; run++) {
      const random = seededRandom(seed + run)
      granted += await checkHistory([one, two], now, random, `tag ${run}`, `seed ${seed + run}`)
    }
    assert.ok(granted > runs)
  })
}

/** Makes random requests and keeps account of who holds a permit according to the replies; returns how many were granted. */
async function checkHistory(
  stores: readonly PermitStore[],
  now: ContractTime,
  random: SeededRandom,
  tag: string,
  label: string,
): Promise<number> {
  const limit = 1 + random.below(2)
  const holds = new Map<string, { grant: string; until: number }>()
  let granted = 0
  for (let at = 0; at < 40; at++) {
    const store = random.pick(stores)
    const flow = `${tag} ${random.below(5)}`
    const hold = holds.get(flow)
    const act = random.below(8)
    if (act < 4) {
      const grant = await store.acquire(request(flow, { tags: [tag], limit }))
      if (grant.kind === 'held') {
        granted += 1
        holds.set(flow, { grant: grant.grant, until: now() + HOLD_MS })
      }
    } else if (act < 6) now.pass(random.pick([1, 300, HOLD_MS]))
    else if (hold && act === 6) {
      const isHeld = await store.renew(flow, hold.grant, HOLD_MS)
      assert.equal(isHeld, hold.until > now(), `${label}, step ${at}: renewed`)
      if (isHeld) holds.set(flow, { ...hold, until: now() + HOLD_MS })
    } else if (hold) {
      await store.release(flow, hold.grant)
      holds.delete(flow)
    }
    const holders = [...holds.values()].filter(({ until }) => until > now()).length
    assert.ok(holders <= limit, `${label}, step ${at}: ${holders} holders of ${limit}`)
  }
  return granted
}

interface PermitFault {
  /** Completes "a store …". */
  readonly name: string
  /** The case that must fail. */
  readonly caughtBy: string
  weaken(permits: PermitStore): Partial<PermitStore>
}

export const PERMIT_FAULTS: readonly PermitFault[] = [
  {
    name: 'grants one permit more than the limit',
    caughtBy: 'M3 has never more unexpired holders than the limit, in any history over two instances',
    weaken: (permits) => ({ acquire: (given) => permits.acquire({ ...given, limit: given.limit + 1 }) }),
  },
  {
    name: 'renews a hold that has ended',
    caughtBy: 'M3 ends a hold that is not renewed, and refuses the next write of its former holder',
    weaken: (permits) => ({
      async renew(...given) {
        await permits.renew(...given)
        return true
      },
    }),
  },
  {
    name: 'releases the permit of a later grant',
    caughtBy: 'M3 fences off the former grant of a flow that acquires again, and counts the flow once',
    weaken: (permits) => ({ release: (holder) => permits.release(holder) }),
  },
  {
    name: 'ends the permit of a cancelled task before the call is undone',
    caughtBy:
      'M3 ends a permit that was passed on to an alarm with the alarm, and keeps it when its task ends',
    weaken: (permits) => ({
      acquire: (given) => permits.acquire({ ...given, endsWith: undefined }),
      renew: (holder, grant, holdMs) => permits.renew(holder, grant, holdMs),
    }),
  },
  {
    name: 'gives a place in the queue to a turn that has lost its task',
    caughtBy: 'M3 gives a turn that has lost its task neither a permit nor a place in the queue',
    weaken: (permits) => ({ acquire: (given) => permits.acquire({ ...given, turn: undefined }) }),
  },
  {
    name: 'counts only the first tag',
    caughtBy: 'M3 counts holders that have one of several tags in common, as during a rotation of keys',
    weaken: (permits) => ({
      acquire: (given) => permits.acquire({ ...given, tags: given.tags.slice(0, 1) }),
    }),
  },
]

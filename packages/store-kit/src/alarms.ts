/** The contract of the part of a store that rings alarms, and the controls that show that these cases can fail. */

import assert from 'node:assert/strict'
import type { AlarmStore, Store } from 'rondo/store'
import {
  alice,
  assertEqual,
  type ContractTime,
  claimNew,
  eachCase,
  it,
  newTask,
  type StoreHarness,
} from './harness.ts'

const KEEP_MS = 3_600_000

export function describeAlarmContract(harness: StoreHarness): void {
  let now: ContractTime
  let store: Store
  let other: Store
  let one: AlarmStore
  let two: AlarmStore
  eachCase(harness, (site) => {
    ;({ now, store, other } = site)
    if (!site.store.alarms || !site.other.alarms) throw new Error('This store has no alarms')
    one = site.store.alarms
    two = site.other.alarms
  })

  /** An alarm that is parked for a long time, and the task that it follows, which a worker has. */
  const followed = async (ttlMs = KEEP_MS) => {
    const { fence: alarm } = await claimNew(store, { ttlMs: 3 * KEEP_MS })
    await store.tasks.park(alarm, [], now() + KEEP_MS)
    const { fence } = await claimNew(store, { ttlMs, journal: ['a'] })
    assert.equal(await one.set(fence.id, alarm.id, 2 * KEEP_MS), true)
    return { fence, alarm: alarm.id }
  }
  const claimed = async () => (await other.tasks.claim('w', 1_000, 10)).map(({ fence }) => fence.id)

  const ENDS: Readonly<Record<string, (fence: { id: string; epoch: number }) => Promise<unknown>>> = {
    completed: (fence) => store.tasks.settle(fence, { kind: 'complete', result: 'r' }),
    failed: (fence) => store.tasks.settle(fence, { kind: 'fail', error: 'e', keepMs: 1_000 }),
    cancelled: ({ id }) => store.tasks.cancel(id, alice),
  }
  for (const [status, end] of Object.entries(ENDS))
    it(`M1 makes an alarm due when its task has ${status}, and says so on every instance`, async () => {
      const { fence, alarm } = await followed()
      assertEqual([await claimed(), await two.ended(fence.id)], [[], undefined])
      await end(fence)
      assertEqual([await claimed(), await two.ended(fence.id)], [[alarm], status])
    })

  it('M1 makes an alarm due when an operator cancels or fails its task, and takes that back if the task is retried', async () => {
    const { operator } = store
    if (!operator) return
    const gone = await followed()
    await operator.act({ kind: 'cancel', id: gone.fence.id }, 'ann')
    assertEqual([await claimed(), await two.ended(gone.fence.id)], [[gone.alarm], 'cancelled'])
    const { fence, alarm } = await followed()
    await operator.act({ kind: 'fail', id: fence.id, keepMs: 1_000 }, 'ann')
    assertEqual([await claimed(), await two.ended(fence.id)], [[alarm], 'failed'])
    await operator.act({ kind: 'retry', id: fence.id, liveMs: 1_000 }, 'ann')
    assert.equal(await two.ended(fence.id), undefined)
  })

  it('M1 knows how a task ended after the task has expired, and for no longer than was asked', async () => {
    const { fence } = await followed(1_000)
    await store.tasks.cancel(fence.id, alice)
    now.pass(2_000)
    await store.sweep(10)
    assert.equal(await store.tasks.get(fence.id, alice), undefined)
    assert.equal(await two.ended(fence.id), 'cancelled')
    now.pass(2 * KEEP_MS)
    assert.equal(await two.ended(fence.id), undefined)
  })

  it('M1 refuses an alarm for a task that has ended, and takes one for a task that is not created yet', async () => {
    const { fence } = await claimNew(store)
    await store.tasks.cancel(fence.id, alice)
    assert.equal(await two.set(fence.id, 'alarm', KEEP_MS), false)
    const { fence: alarm } = await claimNew(store)
    await store.tasks.park(alarm, [], now() + KEEP_MS)
    const later = newTask()
    assert.equal(await two.set(later.id, alarm.id, KEEP_MS), true)
    assert.equal(await one.set(later.id, alarm.id, KEEP_MS), true)
    await store.tasks.create(later, 10)
    await store.tasks.cancel(later.id, alice)
    assertEqual([await claimed(), await one.ended(later.id)], [[alarm.id], 'cancelled'])
  })

  it('M1 leaves an alarm alone that a worker has, or that has ended', async () => {
    const { fence: alarm } = await claimNew(store, {}, 60_000)
    const { fence } = await claimNew(store)
    await one.set(fence.id, alarm.id, KEEP_MS)
    await store.tasks.cancel(fence.id, alice)
    assertEqual(await claimed(), [])
    assert.equal(await store.tasks.settle(alarm, { kind: 'complete', result: 'r' }), true)
    const { fence: next } = await claimNew(store)
    await one.set(next.id, alarm.id, KEEP_MS)
    await store.tasks.cancel(next.id, alice)
    assertEqual(await claimed(), [])
  })

  it('M1 decides which of setting an alarm and ending the task comes first', async () => {
    for (let i = 0; i < 10; i++) {
      const { fence } = await claimNew(store)
      const [isSet] = await Promise.all([
        two.set(fence.id, 'alarm', KEEP_MS),
        store.tasks.cancel(fence.id, alice),
      ])
      assert.equal(await one.ended(fence.id), isSet ? 'cancelled' : undefined)
    }
  })
}

interface AlarmFault {
  /** Completes "a store …". */
  readonly name: string
  /** The case that must fail. */
  readonly caughtBy: string
  weaken(alarms: AlarmStore): Partial<AlarmStore>
}

export const ALARM_FAULTS: readonly AlarmFault[] = [
  {
    name: 'forgets the alarm of a task',
    caughtBy: 'M1 makes an alarm due when its task has cancelled, and says so on every instance',
    weaken: () => ({ set: async () => true }),
  },
  {
    name: 'follows a task that has ended',
    caughtBy:
      'M1 refuses an alarm for a task that has ended, and takes one for a task that is not created yet',
    weaken: (alarms) => ({
      async set(...given) {
        await alarms.set(...given)
        return true
      },
    }),
  },
]

/** What an operator may rely on: counts, lists without content, deletion in batches. */

import { openSlots } from '../../store/input-slots.ts'
import type { Store } from '../../store/store.ts'
import type { TaskQuery } from '../../store/task-store.ts'
import {
  alice,
  answers,
  bob,
  claimNew,
  createTime,
  inputs,
  newTask,
  type StoreHarness,
  type StoreSite,
} from './harness.ts'
import { afterEach, beforeEach, expect, it } from './suite.ts'

export function describeOperatorContract(harness: StoreHarness): void {
  let database: StoreSite
  let now: ReturnType<typeof createTime>
  let store: Store
  beforeEach(async () => {
    database = await harness.create()
    now = createTime()
    store = database.open(now)
  })
  afterEach(() => database.close())

  it('counts due, running and parked tasks', async () => {
    const parked = await claimNew(store)
    await store.tasks.park(parked.fence, openSlots([], inputs('a')))
    await claimNew(store)
    await store.tasks.create(newTask(), 10)
    now.pass(700)
    await store.tasks.create(newTask(), 10)
    expect(await store.tasks.stats()).toEqual({ due: 2, oldestDueMs: 700, running: 1, parked: 1 })
  })

  it('lists tasks newest first, page by page, without sealed values', async () => {
    const secret = 'SEALED'
    const { fence } = await claimNew(store, { head: secret, message: secret, journal: [secret, secret] })
    await store.tasks.park(fence, openSlots([], new Map([['name', secret]])))
    now.pass(1)
    const rest = [newTask({ head: secret }), newTask({ head: secret })]
    for (const task of rest) await store.tasks.create(task, 10)
    const all = await store.tasks.list({})
    expect(all).toHaveLength(3)
    expect(JSON.stringify(all)).not.toContain(secret)
    expect(all[2]).toMatchObject({
      id: fence.id,
      status: 'input_required',
      openKeys: ['name'],
      entries: 2,
      worker: undefined,
    })
    const [first] = await store.tasks.list({ limit: 1 })
    expect(first).toEqual(all[0])
    expect(await store.tasks.list({ after: first, limit: 10 })).toEqual(all.slice(1))
    expect(await store.tasks.list({ status: 'input_required' })).toEqual(all.slice(2))
    expect(await store.tasks.list({ id: fence.id })).toEqual(all.slice(2))
    const [lease] = await store.tasks.claim('worker-7', 1000, 1)
    expect(await store.tasks.list({ id: lease?.fence.id })).toMatchObject([
      { worker: 'worker-7', dueAt: now() + 1000 },
    ])
  })

  it('G3 says which hooks of a task wait for an event', async () => {
    const { fence } = await claimNew(store)
    const slots = openSlots(openSlots([], inputs('h', 'i'), 'hook'), inputs('name'))
    await store.tasks.park(fence, slots)
    await store.tasks.deliverHook(fence.id, alice, 'h', 'event')
    const waiting = { status: 'input_required', openKeys: ['name'], openHooks: ['i'] }
    expect(await store.tasks.list({ id: fence.id })).toMatchObject([waiting])
    await store.tasks.deliver(fence.id, alice, answers({ name: 'x' }))
    expect(await store.tasks.list({ id: fence.id })).toMatchObject([
      { ...waiting, status: 'working', openKeys: [] },
    ])
    await store.tasks.cancel(fence.id, alice)
    expect(await store.tasks.list({ id: fence.id })).toMatchObject([{ openKeys: [], openHooks: [] }])
  })

  it('E6 lists only the tasks of one owner, page by page, including ended but not expired ones', async () => {
    const mine: string[] = []
    for (let i = 0; i < 5; i++) {
      await store.tasks.create(newTask({ owner: bob }), 10)
      const task = newTask()
      mine.unshift(task.id)
      await store.tasks.create(task, 10)
      await store.tasks.create(newTask({ owner: { tenant: 'another', principal: 'alice' } }), 10)
      now.pass(1)
    }
    await store.tasks.cancel(mine[1] ?? '', alice)
    const seen: string[] = []
    let after: TaskQuery['after']
    for (let page = 0; page < 3; page++) {
      const found = await store.tasks.list({ owner: alice, after, limit: 2 })
      seen.push(...found.map(({ id }) => id))
      after = found.at(-1)
    }
    expect(seen).toEqual(mine)
    expect(await store.tasks.list({ owner: alice, after })).toEqual([])
    expect(await store.tasks.list({ owner: alice, status: 'cancelled' })).toMatchObject([{ id: mine[1] }])
    expect(await store.tasks.list({ owner: bob, id: mine[0] })).toEqual([])
    now.pass(3_600_000)
    expect(await store.tasks.list({ owner: alice })).toEqual([])
  })

  it('lists the tasks of one owner in a stable order, even if they began at the same moment', async () => {
    const ids = new Set<string>()
    for (let i = 0; i < 7; i++) {
      const task = newTask()
      ids.add(task.id)
      await store.tasks.create(task, 10)
    }
    const first = await store.tasks.list({ owner: alice, limit: 4 })
    const second = await store.tasks.list({ owner: alice, after: first.at(-1), limit: 4 })
    expect([first.length, second.length]).toEqual([4, 3])
    expect(new Set([...first, ...second].map(({ id }) => id))).toEqual(ids)
  })

  it('deletes expired tasks in batches, and no others', async () => {
    const kept = await claimNew(store, { ttlMs: 10_000, journal: ['kept'] })
    for (let i = 0; i < 7; i++) await store.tasks.create(newTask({ ttlMs: 1000, journal: ['gone'] }), 100)
    now.pass(1000)
    expect(await store.tasks.list({})).toHaveLength(1)
    expect([await store.sweep(3), await store.sweep(3), await store.sweep(3), await store.sweep(3)]).toEqual([
      3, 3, 1, 0,
    ])
    await store.tasks.release(kept.fence, 0, false)
    expect((await store.tasks.claim('w', 1000, 10)).map(({ journal }) => journal)).toEqual([['kept']])
  })
}

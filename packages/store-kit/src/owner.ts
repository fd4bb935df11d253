/** The contract for the owner of a task, on every database, and for an operator: counts, lists without content. */

import assert from 'node:assert/strict'
import { createTaskId, openSlots } from 'rondo/internal'
import type { Store, TaskQuery } from 'rondo/store'
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

export function describeOwnerContract(harness: StoreHarness): void {
  let now: ContractTime
  let store: Store
  let other: Store
  eachCase(harness, (site) => {
    ;({ now, store, other } = site)
  })

  const park = async (...keys: string[]) => {
    const { fence } = await claimNew(store)
    assert.equal(await store.tasks.park(fence, openSlots([], inputs(...keys))), true)
    return fence.id
  }

  describe('create and get', () => {
    it('E2 finds a task from another connection as soon as create has resolved', async () => {
      const task = newTask({ message: 'begun', pollMs: 700 })
      const creation = await store.tasks.create(task, 10)
      const view = await other.tasks.get(task.id, alice)
      assertEqual(creation, { kind: 'created', view })
      assertEqual(view, {
        id: task.id,
        status: 'working',
        message: 'begun',
        createdAt: now(),
        updatedAt: now(),
        expiresAt: now() + task.ttlMs,
        pollMs: 700,
        known: true,
        revision: 1,
        inputs: new Map(),
        result: undefined,
        error: undefined,
      })
    })

    it('returns the same task for the same id, and refuses the id of another owner', async () => {
      const task = newTask()
      const first = await store.tasks.create(task, 10)
      assertEqual(await other.tasks.create({ ...task, head: 'another' }, 10), first)
      assertEqual(await other.tasks.create({ ...task, owner: bob }, 10), { kind: 'conflict' })
      const [lease] = await store.tasks.claim('w', 1000, 10)
      assert.equal(lease?.task.head, 'head')
    })

    it('E6 T17 shows unknown, foreign and expired tasks alike', async () => {
      const id = await park('name')
      const given = answers({ name: 'x' })
      const strangers = [
        bob,
        { tenant: 'another', principal: 'alice' },
        { tenant: 'alice', principal: 'tracker' },
      ]
      for (const owner of strangers) {
        assert.equal(await store.tasks.get(id, owner), undefined)
        assertMatch(await store.tasks.deliver(id, owner, given), { kind: 'unknown' })
        assert.equal(await store.tasks.cancel(id, owner), 'unknown')
      }
      assert.equal(await store.tasks.get(createTaskId(), alice), undefined)
      assert.equal((await store.tasks.get(id, alice))?.status, 'input_required')
      now.pass(3_600_000)
      assert.equal(await store.tasks.get(id, alice), undefined)
      assertMatch(await store.tasks.deliver(id, alice, given), { kind: 'unknown' })
      assert.equal(await store.tasks.cancel(id, alice), 'unknown')
      assertEqual(await store.tasks.revisions([id]), new Map())
    })

    it('T18 limits the open tasks of one owner without affecting others', async () => {
      const first = newTask()
      await store.tasks.create(first, 2)
      await store.tasks.create(newTask({ ttlMs: 1000 }), 2)
      assertEqual(await store.tasks.create(newTask(), 2), { kind: 'limit' })
      assert.equal((await store.tasks.create(newTask({ owner: bob }), 2)).kind, 'created')
      await store.tasks.cancel(first.id, alice)
      assert.equal((await store.tasks.create(newTask(), 2)).kind, 'created')
      assertEqual(await store.tasks.create(newTask(), 2), { kind: 'limit' })
      now.pass(1000)
      assert.equal((await store.tasks.create(newTask(), 2)).kind, 'created')
    })

    it('T18 enforces the limit if many tasks are created at once', async () => {
      const creations = await Promise.all(
        Array.from({ length: 60 }, (_, i) => (i % 2 ? store : other).tasks.create(newTask(), 5)),
      )
      const created = creations.filter(({ kind }) => kind === 'created').length
      assert.equal(created, 5)
    })

    it('stores any text unchanged', async () => {
      const odd = ['__proto__', 'constructor', '1', '0', 'ключ 🔑', `it's "quoted" \\ $1 ?`]
      const { fence } = await claimNew(store, { head: odd.join() })
      await store.tasks.append(fence, 0, odd)
      const requests = new Map(odd.map((key) => [key, `for ${key}`]))
      await store.tasks.park(fence, openSlots([], requests))
      const view = await other.tasks.get(fence.id, alice)
      assertEqual([...(view?.inputs ?? [])], [...requests])
      await other.tasks.deliver(fence.id, alice, new Map(odd.map((key) => [key, `re ${key}`])))
      const [lease] = await store.tasks.claim('w', 1000, 1)
      assertEqual(lease?.journal, odd)
      assert.equal(lease?.task.head, odd.join())
      assertEqual(
        lease?.slots,
        odd.map((key) => ({ kind: 'answered', key, answer: `re ${key}` })),
      )
    })
  })

  describe('answers', () => {
    it('D6 E3 accepts partial answers, and shows only the keys that are still open', async () => {
      const id = await park('a', 'b')
      assertMatch(await other.tasks.deliver(id, alice, answers({ a: '1' })), { kind: 'partial' })
      const view = await store.tasks.get(id, alice)
      assert.equal(view?.status, 'input_required')
      assertEqual(view?.inputs, inputs('b'))
      assertEqual(await store.tasks.claim('w', 1000, 10), [])
      assertMatch(await store.tasks.deliver(id, alice, answers({ b: '2' })), { kind: 'resumed' })
      assert.equal((await store.tasks.get(id, alice))?.status, 'working')
      const [lease] = await other.tasks.claim('w', 1000, 10)
      assertEqual(lease?.slots, [
        { kind: 'answered', key: 'a', answer: '1' },
        { kind: 'answered', key: 'b', answer: '2' },
      ])
    })

    it('E3 ignores unknown keys, and keeps the first answer to each key', async () => {
      const id = await park('a', 'b')
      assertMatch(await store.tasks.deliver(id, alice, answers({ c: 'x', constructor: 'y' })), {
        kind: 'partial',
      })
      assert.equal((await store.tasks.get(id, alice))?.revision, 2)
      await store.tasks.deliver(id, alice, answers({ a: 'first', c: 'x' }))
      assertMatch(await other.tasks.deliver(id, alice, answers({ a: 'second' })), {
        kind: 'partial',
      })
      await store.tasks.deliver(id, alice, answers({ a: 'third', b: 'only' }))
      const [lease] = await store.tasks.claim('w', 1000, 1)
      assertEqual(
        lease?.slots.map((slot) => slot.kind === 'answered' && slot.answer),
        ['first', 'only'],
      )
      assertMatch(await store.tasks.deliver(id, alice, answers({ a: 'late' })), { kind: 'idle' })
    })

    it('ignores answers to a task that does not wait', async () => {
      const { fence } = await claimNew(store)
      assertMatch(await store.tasks.deliver(fence.id, alice, answers({ a: '1' })), { kind: 'idle' })
      await store.tasks.settle(fence, { kind: 'complete', result: 'r' })
      assertMatch(await store.tasks.deliver(fence.id, alice, answers({ a: '1' })), { kind: 'idle' })
      assert.equal((await store.tasks.get(fence.id, alice))?.result, 'r')
    })
  })

  describe('ended tasks', () => {
    const end = async (result = 'done', owner = alice) => {
      const { fence } = await claimNew(store, { owner })
      now.pass(1)
      await store.tasks.settle(fence, { kind: 'complete', result })
      return fence.id
    }
    const idsOf = async (owner = alice) => (await other.tasks.list({ owner })).map(({ id }) => id)
    const unlimited = Number.MAX_SAFE_INTEGER

    it('T18 are trimmed to a number, those first that ended first', async () => {
      const ids = [await end(), await end(), await end()]
      const cancelled = newTask()
      await store.tasks.create(cancelled, 10)
      now.pass(1)
      await store.tasks.cancel(cancelled.id, alice)
      const limits = { count: 2, bytes: unlimited }
      assert.equal(await store.tasks.trim(alice, limits), 2)
      assertEqual(await idsOf(), [cancelled.id, ids[2]])
      assert.equal(await other.tasks.get(ids[0] ?? '', alice), undefined)
      assert.equal(await store.tasks.trim(alice, limits), 0)
    })

    it('T18 are trimmed to a size, and the last one is kept whatever its size', async () => {
      const large = 'x'.repeat(10_000)
      const ids = [await end(), await end(large), await end(large), await end(large)]
      assert.equal(await store.tasks.trim(alice, { count: 10, bytes: 25_000 }), 2)
      assertEqual(await idsOf(), [ids[3], ids[2]])
      assert.equal(await store.tasks.trim(alice, { count: 10, bytes: 100 }), 1)
      assertMatch(await other.tasks.get(ids[3] ?? '', alice), { result: large })
    })

    it('T18 are trimmed for one owner, without its open tasks and those of others', async () => {
      const open = await park('name')
      const foreign = [await end('r', bob), await end('r', bob)]
      const ids = [await end(), await end()]
      assert.equal(await store.tasks.trim(alice, { count: 1, bytes: unlimited }), 1)
      assertEqual(new Set(await idsOf()), new Set([open, ids[1]]))
      assertEqual(new Set(await idsOf(bob)), new Set(foreign))
    })
  })

  describe('endings', () => {
    it('D8 cancels a waiting or a running task, and none twice', async () => {
      const id = await park('a')
      assert.equal(await other.tasks.cancel(id, alice), 'cancelled')
      assert.equal(await store.tasks.cancel(id, alice), 'ended')
      assertMatch(await store.tasks.deliver(id, alice, answers({ a: '1' })), { kind: 'idle' })
      const view = await store.tasks.get(id, alice)
      assertEqual([view?.status, view?.inputs.size], ['cancelled', 0])
      const { fence } = await claimNew(store)
      assert.equal(await store.tasks.cancel(fence.id, alice), 'cancelled')
      assert.equal(await store.tasks.settle(fence, { kind: 'complete', result: 'late' }), false)
      assertMatch(await store.tasks.get(fence.id, alice), { status: 'cancelled', result: undefined })
    })

    it('P15 increments the revision with every visible change, and with no other', async () => {
      const { fence } = await claimNew(store)
      const revision = async () => (await other.tasks.revisions([fence.id])).get(fence.id)
      assert.equal(await revision(), 1)
      await store.tasks.append(fence, 0, ['entry'])
      await store.tasks.renew([fence], 20_000)
      assert.equal(await revision(), 1)
      now.pass(5)
      await store.tasks.status(fence, 'half way')
      assertMatch(await store.tasks.get(fence.id, alice), {
        revision: 2,
        message: 'half way',
        updatedAt: now(),
      })
      await store.tasks.park(fence, openSlots([], inputs('a', 'b')))
      assert.equal(await revision(), 3)
      await store.tasks.deliver(fence.id, alice, answers({ a: '1' }))
      assert.equal(await revision(), 4)
    })
  })
}

export function describeOperatorContract(harness: StoreHarness): void {
  let now: ContractTime
  let store: Store
  eachCase(harness, (site) => {
    ;({ now, store } = site)
  })

  it('counts due, running and parked tasks', async () => {
    const parked = await claimNew(store)
    await store.tasks.park(parked.fence, openSlots([], inputs('a')))
    await claimNew(store)
    await store.tasks.create(newTask(), 10)
    now.pass(700)
    await store.tasks.create(newTask(), 10)
    assertEqual(await store.tasks.stats(), { due: 2, oldestDueMs: 700, running: 1, parked: 1 })
  })

  it('lists tasks newest first, page by page, without sealed values', async () => {
    const secret = 'SEALED'
    const { fence } = await claimNew(store, { head: secret, message: secret, journal: [secret, secret] })
    await store.tasks.park(fence, openSlots([], new Map([['name', secret]])))
    now.pass(1)
    const rest = [newTask({ head: secret }), newTask({ head: secret })]
    for (const task of rest) await store.tasks.create(task, 10)
    const all = await store.tasks.list({})
    assert.equal(all.length, 3)
    assert.ok(!JSON.stringify(all).includes(secret))
    assertMatch(all[2], {
      id: fence.id,
      status: 'input_required',
      openKeys: ['name'],
      entries: 2,
      worker: undefined,
    })
    const [first] = await store.tasks.list({ limit: 1 })
    assertEqual(first, all[0])
    assertEqual(await store.tasks.list({ after: first, limit: 10 }), all.slice(1))
    assertEqual(await store.tasks.list({ status: 'input_required' }), all.slice(2))
    assertEqual(await store.tasks.list({ id: fence.id }), all.slice(2))
    const [lease] = await store.tasks.claim('worker-7', 1000, 1)
    assertMatch(await store.tasks.list({ id: lease?.fence.id }), [
      { worker: 'worker-7', dueAt: now() + 1000 },
    ])
  })

  it('G3 says which hooks of a task wait for an event', async () => {
    const { fence } = await claimNew(store)
    const slots = openSlots(openSlots([], inputs('h', 'i'), 'hook'), inputs('name'))
    await store.tasks.park(fence, slots)
    await store.tasks.deliverHook(fence.id, alice, 'h', 'event')
    const waiting = { status: 'input_required', openKeys: ['name'], openHooks: ['i'] }
    assertMatch(await store.tasks.list({ id: fence.id }), [waiting])
    await store.tasks.deliver(fence.id, alice, answers({ name: 'x' }))
    assertMatch(await store.tasks.list({ id: fence.id }), [{ ...waiting, status: 'working', openKeys: [] }])
    await store.tasks.cancel(fence.id, alice)
    assertMatch(await store.tasks.list({ id: fence.id }), [{ openKeys: [], openHooks: [] }])
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
    assertEqual(seen, mine)
    assertEqual(await store.tasks.list({ owner: alice, after }), [])
    assertMatch(await store.tasks.list({ owner: alice, status: 'cancelled' }), [{ id: mine[1] }])
    assertEqual(await store.tasks.list({ owner: bob, id: mine[0] }), [])
    now.pass(3_600_000)
    assertEqual(await store.tasks.list({ owner: alice }), [])
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
    assertEqual([first.length, second.length], [4, 3])
    assertEqual(new Set([...first, ...second].map(({ id }) => id)), ids)
  })

  it('deletes expired tasks in batches, and no others', async () => {
    const kept = await claimNew(store, { ttlMs: 10_000, journal: ['kept'] })
    for (let i = 0; i < 7; i++) await store.tasks.create(newTask({ ttlMs: 1000, journal: ['gone'] }), 100)
    now.pass(1000)
    assert.equal((await store.tasks.list({})).length, 1)
    assertEqual(
      [await store.sweep(3), await store.sweep(3), await store.sweep(3), await store.sweep(3)],
      [3, 3, 1, 0],
    )
    await store.tasks.release(kept.fence, 0, false)
    assertEqual(
      (await store.tasks.claim('w', 1000, 10)).map(({ journal }) => journal),
      [['kept']],
    )
  })
}

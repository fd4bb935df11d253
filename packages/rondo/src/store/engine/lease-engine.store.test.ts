/** What the engine asks of its store, and when: confirmations, limits, trims, sweeps, counts and watches. By a clock that is turned by hand. */

import { beforeEach, describe, expect, it } from 'vitest'
import { createEngineBench } from '../../../../../test/support/store/engine-bench.ts'
import { complete, heldTurn } from '../../../../../test/support/store/held-turn.ts'
import { alice, answers, bob, inputs, newTask } from '../../../../../test/support/store/store-harness.ts'
import type { Store } from '../store.ts'
import type { TaskOwner, TaskView } from '../task-engine.ts'
import { createHintBus, ENDED_BYTES, type Hint, type TaskStore } from '../task-store.ts'
import { createLeaseEngine, storable } from './lease-engine.ts'

let { clock, store, events, engineOn, broken } = createEngineBench()
beforeEach(() => {
  ;({ clock, store, events, engineOn, broken } = createEngineBench())
})

const noDatabase = () => Promise.reject(new Error('no database'))
const errorsDuring = () => events.flatMap((event) => (event.kind === 'store-error' ? [event.during] : []))

describe('an owner that names the id of its task', () => {
  /** A task whose owner may not know its id yet. */
  async function unknown() {
    const confirmed: string[] = []
    const confirm: TaskStore['confirm'] = (id, owner) => {
      confirmed.push(id)
      return store.tasks.confirm(id, owner)
    }
    const engine = engineOn({}, broken({ confirm }))
    const task = newTask({ known: false })
    await store.tasks.create(task, 10)
    return { engine, task, confirmed }
  }

  it.each<[string, (engine: ReturnType<typeof engineOn>, id: string) => Promise<unknown>, boolean]>([
    ['to read it', (engine, id) => engine.get(id, alice), true],
    ['to watch it', (engine, id) => engine.watch([id], alice, () => {}), true],
    ['to answer it', (engine, id) => engine.deliver(id, alice, answers({})), true],
    ['as another one', (engine, id) => engine.get(id, bob), false],
  ])('D7 knows it: %s', async (_what, name, isKnown) => {
    const { engine, task, confirmed } = await unknown()
    await name(engine, task.id)
    await name(engine, task.id)
    expect(confirmed).toEqual(isKnown ? [task.id] : [])
  })

  it('D7 knows it also if it answers a part of what is asked', async () => {
    const { engine, task, confirmed } = await unknown()
    const [lease] = await store.tasks.claim('worker', 1_000, 1)
    if (lease === undefined) throw new Error('the task is not due')
    await store.tasks.park(lease.fence, [
      { kind: 'open', key: 'a', request: 'name?' },
      { kind: 'open', key: 'b', request: 'city?' },
    ])
    expect(await engine.deliver(task.id, alice, answers({ a: 'Ada' }))).toBe('partial')
    expect(confirmed).toEqual([task.id])
  })

  it('D7 is not the server that observes it, nor one whose task has ended', async () => {
    const { engine, task, confirmed } = await unknown()
    await engine.observe([task.id], alice, () => {})
    expect(await engine.slots(task.id, alice)).toEqual([])
    await store.tasks.cancel(task.id, alice)
    expect(await engine.get(task.id, alice)).toMatchObject({ status: 'cancelled' })
    expect(confirmed).toEqual([])
  })
})

describe('answers', () => {
  it('E3 have keys that every store can hold', () => {
    expect(storable(answers({ a: '1', 'b\0': '2', '\ud800': '3' }))).toEqual(answers({ a: '1' }))
  })

  it('are not read again when they resume the task', async () => {
    let reads = 0
    const get: TaskStore['get'] = (...given) => {
      reads += 1
      return store.tasks.get(...given)
    }
    const engine = engineOn({}, broken({ get }))
    const serving = await engine.serve(async () => ({ kind: 'park', inputs: inputs('a') }))
    const { id } = await engine.create(newTask())
    await clock.pass(1)
    await serving.stop()
    expect(await engine.deliver(id, alice, answers({ a: 'yes' }))).toBe('resumed')
    expect(reads).toBe(0)
    expect(await engine.deliver(id, alice, answers({ a: 'yes' }))).toBe('idle')
    expect(reads).toBe(1)
  })
})

describe('a new task', () => {
  it('T18 may have a journal up to the limit', async () => {
    const engine = engineOn({ maxJournalBytes: 10 })
    await engine.create(newTask({ journal: ['1234', '567890'] }))
    await expect(engine.create(newTask({ journal: ['1234', '5678901'] }))).rejects.toMatchObject({
      code: 'LIMIT_STATE_BYTES',
      message: expect.stringMatching(/11 bytes; at most 10/),
    })
  })

  it('E6 may not have the id of a task of somebody else', async () => {
    const engine = engineOn()
    const task = newTask()
    const view = await engine.create(task)
    expect(await engine.create(task)).toEqual(view)
    await expect(engine.create({ ...task, owner: bob })).rejects.toMatchObject({ code: 'PEER_TASK' })
  })

  const year = 366 * 86_400_000
  it.each([
    [{ ttlMs: 1 }, true],
    [{ ttlMs: year }, true],
    [{ ttlMs: year + 1 }, false],
    [{ ttlMs: 1.5 }, false],
    [{ ttlMs: -1 }, false],
    [{ pollMs: 1 }, true],
    [{ pollMs: 0.5 }, false],
    [{ pollMs: -1 }, false],
    [{ pollMs: Number.POSITIVE_INFINITY }, false],
  ])('may live and be polled in whole milliseconds: %j, %s', async (changes, isValid) => {
    const creating = engineOn().create(newTask(changes))
    if (isValid) expect(await creating).toMatchObject({ status: 'working' })
    else await expect(creating).rejects.toThrow(/must be a .*whole number/)
  })
})

describe('a list', () => {
  it('has the tasks of its owner, newest first, page by page', async () => {
    const engine = engineOn()
    const ids: string[] = []
    for (let i = 0; i < 3; i++) {
      ids.unshift((await engine.create(newTask())).id)
      await clock.pass(1)
    }
    await engine.create(newTask({ owner: bob }))
    const [first, ...more] = await engine.list(alice, { limit: 2 })
    expect([first, ...more].map((view) => view?.id)).toEqual(ids.slice(0, 2))
    expect((await engine.list(alice, { limit: 2, after: more[0] })).map(({ id }) => id)).toEqual(ids.slice(2))
  })

  it('leaves out a task that expires meanwhile', async () => {
    const gone = newTask()
    const get: TaskStore['get'] = async (id, owner) =>
      id === gone.id ? undefined : store.tasks.get(id, owner)
    const engine = engineOn({}, broken({ get }))
    await engine.create(gone)
    const { id } = await engine.create(newTask())
    expect((await engine.list(alice, { limit: 9 })).map((view) => view.id)).toEqual([id])
  })
})

describe('ended tasks', () => {
  /** An engine over a store that ends every task, and notes what it trims. */
  function counting(options: Parameters<typeof createLeaseEngine>[1], trim?: TaskStore['trim']) {
    const trimmed: (readonly [TaskOwner, object])[] = []
    const on = broken({
      cancel: async () => 'cancelled',
      async trim(owner, limits) {
        trimmed.push([owner, limits])
        return trim?.(owner, limits) ?? 0
      },
    })
    const engine = engineOn(options, on)
    const { id } = newTask()
    return { trimmed, end: (owner: TaskOwner = alice) => engine.cancel(id, owner) }
  }
  const owner = (principal: string) => ({ tenant: 'tracker', principal })

  it('D8 are trimmed whenever a twentieth of the limit has been added, by number', async () => {
    const { trimmed, end } = counting({ maxEndedTasks: 40, maxEndedBytes: 1e9 })
    await end()
    await end(bob)
    await end({ tenant: 'other', principal: alice.principal })
    expect(trimmed).toEqual([])
    await end()
    expect(trimmed).toEqual([[alice, { count: 40, bytes: 1e9 }]])
    await clock.pass(1)
    await end()
    expect(trimmed).toHaveLength(1)
    await end()
    expect(trimmed).toHaveLength(2)
  })

  it('D8 are trimmed by their bytes', async () => {
    const engine = engineOn(
      { maxEndedTasks: 1e9, maxEndedBytes: 40_000 },
      broken({
        async trim(of, limits) {
          events.push({ kind: 'swept', count: 1 })
          return store.tasks.trim(of, limits)
        },
      }),
    )
    await engine.serve(async () => complete('x'.repeat(900)))
    await engine.create(newTask())
    await clock.pass(1)
    expect(events).not.toContainEqual({ kind: 'swept', count: 1 })
    await engine.create(newTask())
    await clock.pass(1)
    expect(events).toContainEqual({ kind: 'swept', count: 1 })
  })

  it('D8 are trimmed as soon as they have a twentieth of the bytes', async () => {
    const { trimmed, end } = counting({ maxEndedTasks: 1e9, maxEndedBytes: 20 * ENDED_BYTES })
    await end()
    expect(trimmed).toHaveLength(1)
  })

  it('D8 without a limit are counted up to the largest integer', async () => {
    const unlimited = { maxEndedTasks: Number.POSITIVE_INFINITY, maxEndedBytes: Number.POSITIVE_INFINITY }
    const { trimmed, end } = counting({ ...unlimited, maxEndedTasks: 1 })
    await end()
    const most = Number.MAX_SAFE_INTEGER
    expect(trimmed).toEqual([[alice, { count: 1, bytes: most }]])
    const none = counting({ ...unlimited, maxEndedBytes: 1 })
    await none.end()
    expect(none.trimmed).toEqual([[alice, { count: most, bytes: 1 }]])
  })

  it('D8 that end during a trim are trimmed after it, and a trim that fails is reported', async () => {
    const gates: (() => void)[] = []
    const { trimmed, end } = counting({ maxEndedTasks: 20 }, async () => {
      await new Promise<void>((resolve) => gates.push(resolve))
      throw new Error('no database')
    })
    for (let i = 0; i < 3; i++) await end()
    expect(trimmed).toHaveLength(1)
    gates.shift()?.()
    await clock.pass(1)
    expect(errorsDuring()).toEqual(['trim'])
    expect(trimmed).toHaveLength(2)
    gates.shift()?.()
    await clock.pass(1)
    expect(trimmed).toHaveLength(2)
  })

  it('D8 I3 are counted for 10,000 owners: the first of them is trimmed early', async () => {
    const { trimmed, end } = counting({ maxEndedTasks: 100 })
    for (let i = 0; i < 10_000; i++) await end(owner(`${i}`))
    expect(trimmed).toEqual([])
    await end(owner('one more'))
    expect(trimmed.map(([{ principal }]) => principal)).toEqual(['0'])
  })

  it('D8 are only those that the store has ended', async () => {
    let trims = 0
    const trim = async () => {
      trims += 1
      return 0
    }
    const engine = engineOn({ maxEndedTasks: 1 }, broken({ trim }))
    const { id } = await engine.create(newTask())
    expect(await engine.cancel(id, bob)).toBe('unknown')
    expect(trims).toBe(0)
    expect(await engine.cancel(id, alice)).toBe('cancelled')
    expect(await engine.cancel(id, alice)).toBe('ended')
    expect(trims).toBe(1)
  })
})

describe('a process that serves', () => {
  it('R11 serves although the store was not ready', async () => {
    const engine = engineOn({}, { ...store, ready: noDatabase })
    const held = heldTurn()
    await engine.serve(held.run)
    expect(errorsDuring()).toEqual(['ready'])
    await engine.create(newTask())
    await clock.pass(1)
    expect(held.turns).toHaveLength(1)
  })

  it('has the name that it is given, or one of its own', async () => {
    const workers: string[] = []
    const claim: TaskStore['claim'] = async (worker) => {
      workers.push(worker)
      return []
    }
    for (const worker of [undefined, undefined, 'mine'])
      await engineOn({ worker }, broken({ claim })).serve(heldTurn().run)
    await clock.pass(1)
    expect(workers[2]).toBe('mine')
    expect(workers[0]).toMatch(/^.+-\d+-[0-9a-f]{8}$/)
    expect(workers[1]).not.toBe(workers[0])
  })

  it('runs 16 turns at a time, and waits ten seconds for them when it stops', async () => {
    const engine = engineOn()
    const held = heldTurn()
    const serving = await engine.serve(held.run)
    for (let i = 0; i < 20; i++) await engine.create(newTask())
    await clock.pass(1)
    expect(held.turns).toHaveLength(16)
    let stopped = false
    void serving.stop().then(() => {
      stopped = true
    })
    await clock.pass(9_999)
    expect(stopped).toBe(false)
    await clock.pass(1)
    expect(stopped).toBe(true)
  })

  it('sweeps about once a minute, and goes on at once while batches are full', async () => {
    const limits: number[] = []
    const counts = [500, 501, 499]
    const sweep: Store['sweep'] = async (limit) => {
      limits.push(limit)
      return counts.shift() ?? 0
    }
    const serving = await engineOn({}, { ...store, sweep }).serve(heldTurn().run)
    await clock.pass(47_950)
    expect(limits).toEqual([])
    await clock.pass(24_300)
    expect(limits).toEqual([500, 500, 500])
    expect(events.filter(({ kind }) => kind === 'swept')).toEqual([
      { kind: 'swept', count: 500 },
      { kind: 'swept', count: 501 },
      { kind: 'swept', count: 499 },
    ])
    await clock.pass(72_000)
    expect(limits.length).toBeGreaterThan(3)
    expect(events.filter(({ kind }) => kind === 'swept')).toHaveLength(3)
    await serving.stop()
    limits.length = 0
    await clock.pass(200_000)
    expect(limits).toEqual([])
  })

  it('R11 reports a sweep that fails, and waits for the next', async () => {
    let sweeps = 0
    const sweep = async () => {
      sweeps += 1
      if (sweeps === 1) return 10
      throw new Error('no database')
    }
    await engineOn({ sweepMs: 1_000, sweepBatch: 10 }, { ...store, sweep }).serve(heldTurn().run)
    await clock.pass(1_300)
    expect(sweeps).toBe(2)
    expect(errorsDuring()).toEqual(['sweep'])
    await clock.pass(300)
    expect(sweeps).toBe(2)
    await clock.pass(900)
    expect(sweeps).toBe(3)
  })

  it('counts its queue at once and every ten seconds, unless nobody listens or that is off', async () => {
    let counted = 0
    const stats: TaskStore['stats'] = () => {
      counted += 1
      return store.tasks.stats()
    }
    const serving = await engineOn({}, broken({ stats })).serve(heldTurn().run)
    await clock.pass(1)
    expect(events.filter(({ kind }) => kind === 'queue')).toEqual([
      { kind: 'queue', due: 0, oldestDueMs: 0, running: 0, parked: 0 },
    ])
    await clock.pass(10_050)
    expect(counted).toBe(2)
    await serving.stop()
    await clock.pass(30_000)
    expect(counted).toBe(2)
    for (const options of [{ statsMs: 0 }, { onEvent: undefined }])
      await engineOn(options, broken({ stats })).serve(heldTurn().run)
    await clock.pass(30_000)
    expect(counted).toBe(2)
  })

  it('R11 reports a count that fails', async () => {
    await engineOn({}, broken({ stats: noDatabase })).serve(heldTurn().run)
    await clock.pass(1)
    expect(errorsDuring()).toEqual(['stats'])
  })

  it('retries after a second, two, four, at most a minute, unless its operator says otherwise', async () => {
    const pauses: number[] = []
    const release: TaskStore['release'] = (fence, delayMs, failed) => {
      pauses.push(delayMs)
      return store.tasks.release(fence, 0, failed)
    }
    const engine = engineOn({ maxFailures: 9, pollMs: 10 }, broken({ release }))
    await engine.serve(noDatabase)
    await engine.create(newTask())
    await clock.pass(1_000)
    expect(pauses).toEqual([1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000])
  })

  it('E5 fails a task after five turns that threw, and keeps nothing of it', async () => {
    const ends: unknown[] = []
    const settle: TaskStore['settle'] = (fence, ending) => {
      ends.push(ending)
      return store.tasks.settle(fence, ending)
    }
    const engine = engineOn({ backoffMs: () => 0, pollMs: 10 }, broken({ settle }))
    let turns = 0
    await engine.serve(() => {
      turns += 1
      return noDatabase()
    })
    await engine.create(newTask())
    await clock.pass(1_000)
    expect(turns).toBe(5)
    expect(ends).toEqual([{ kind: 'fail', keepMs: 0 }])
  })

  it('writes labels if its store has a part for operators', async () => {
    for (const operator of [undefined, store.operator]) {
      const engine = engineOn({}, { ...store, operator })
      const held = heldTurn()
      const serving = await engine.serve(held.run)
      await engine.create(newTask())
      await clock.pass(1)
      expect(held.turns[0]?.label === undefined).toBe(operator === undefined)
      held.end(0, complete('done'))
      await serving.stop()
    }
  })

  it('wakes a task with the event of a hook, and claims it with that write', async () => {
    const engine = engineOn({ pollMs: 60_000 })
    const held = heldTurn()
    await engine.serve(held.run)
    const { id } = await engine.create(newTask())
    await clock.pass(1)
    await held.turns[0]?.publish({ open: [{ key: 'paid', role: 'hook', request: '' }] })
    held.end(0, { kind: 'park', inputs: inputs() })
    await clock.pass(1)
    expect(await engine.deliverHook(id, alice, 'other', 'yes')).toBe('closed')
    expect(await engine.deliverHook(id, alice, 'paid', 'yes')).toBe('accepted')
    expect(held.turns).toHaveLength(2)
    expect(await engine.deliverHook(id, alice, 'paid', 'no')).toBe('duplicate')
  })

  it('resumes a task with the write of its answer', async () => {
    const engine = engineOn({ pollMs: 60_000 })
    const held = heldTurn()
    await engine.serve(held.run)
    const { id } = await engine.create(newTask())
    await clock.pass(1)
    held.end(0, { kind: 'park', inputs: inputs('a') })
    await clock.pass(1)
    expect(await engine.deliver(id, alice, answers({ a: 'yes' }))).toBe('resumed')
    expect(held.turns).toHaveLength(2)
  })

  it('has room wherever it serves: a task that finds no slot here is claimed there', async () => {
    const takers: unknown[] = []
    const create: TaskStore['create'] = (task, limit, taker) => {
      takers.push(taker)
      return store.tasks.create(task, limit, taker)
    }
    const engine = engineOn({ pollMs: 60_000 }, broken({ create }))
    const [one, two] = [heldTurn(), heldTurn()]
    for (const { run } of [one, two]) await engine.serve(run, { concurrency: 1 })
    await clock.pass(1)
    for (let i = 0; i < 3; i++) await engine.create(newTask())
    expect(takers.map((taker) => taker !== undefined)).toEqual([true, true, false])
    expect([one.turns.length, two.turns.length]).toEqual([1, 1])
  })

  it('has defaults for what its operator leaves out', async () => {
    const engine = createLeaseEngine(store)
    const view = await engine.create(newTask())
    expect(await engine.get(view.id, alice)).toEqual(view)
  })
})

describe('a watch', () => {
  /** An engine over a store whose hints the test sends, and which counts its questions. */
  function hinted(changes: Partial<TaskStore> = {}) {
    const hints = createHintBus()
    const asked: (readonly string[])[] = []
    const on = broken({
      onHint: hints.onHint,
      revisions(ids) {
        asked.push(ids)
        return store.tasks.revisions(ids)
      },
      ...changes,
    })
    const seen: (string | undefined)[] = []
    const listener = (_id: string, view: TaskView | undefined) => seen.push(view?.status)
    const hint = async (one: Hint) => {
      hints.publish(one)
      await clock.pass(1)
    }
    return { engine: engineOn({ pollMs: 60_000 }, on), hints, hint, asked, seen, listener }
  }
  const create = async () => {
    const task = newTask()
    await store.tasks.create(task, 100)
    return task.id
  }

  it('E6 of what cannot be an id reports that it is gone, without asking the store', async () => {
    const { engine, hints, seen, listener } = hinted()
    const stop = await engine.watch(['short', ''], alice, listener)
    expect(seen).toEqual([undefined, undefined])
    expect(hints.listening()).toBe(false)
    stop()
    const id = await create()
    await engine.watch(['short', id], alice, listener)
    expect(seen.slice(2)).toEqual([undefined, 'working'])
  })

  it('E6 of a task of somebody else reports that it is gone', async () => {
    const { engine, hints, seen, listener } = hinted()
    await engine.watch([await create()], bob, listener)
    expect(seen).toEqual([undefined])
    expect(hints.listening()).toBe(false)
  })

  it('E4 asks about a task that a hint names, about all if it names none, and not about others', async () => {
    const { engine, hint, asked, seen, listener } = hinted()
    const [a, b] = [await create(), await create()]
    await engine.watch([a, b], alice, listener)
    await hint({ kind: 'changed', id: await create() })
    await hint({ kind: 'due', count: 1 })
    expect(asked).toEqual([])
    await store.tasks.cancel(b, alice)
    await hint({ kind: 'changed', id: b })
    expect(asked).toEqual([[b]])
    await hint({ kind: 'changed' })
    expect(asked.slice(1)).toEqual([[a, b]])
    expect(seen).toEqual(['working', 'working', 'cancelled'])
  })

  it('E4 is polled, and reports only what has changed', async () => {
    let reads = 0
    const get: TaskStore['get'] = (...given) => {
      reads += 1
      return store.tasks.get(...given)
    }
    const { engine, asked, seen, listener } = hinted({ get })
    const id = await create()
    await engine.watch([id], alice, listener)
    await clock.pass(60_050)
    expect([asked, reads, seen]).toEqual([[[id]], 1, ['working']])
    await store.tasks.cancel(id, alice)
    await clock.pass(60_050)
    expect([reads, seen]).toEqual([2, ['working', 'cancelled']])
  })

  it('E4 collects what changes while it asks', async () => {
    const gates: (() => void)[] = []
    const asked: (readonly string[])[] = []
    const revisions: TaskStore['revisions'] = async (ids) => {
      asked.push(ids)
      await new Promise<void>((resolve) => gates.push(resolve))
      return store.tasks.revisions(ids)
    }
    const { engine, hint, listener } = hinted({ revisions })
    const [a, b, c] = [await create(), await create(), await create()]
    await engine.watch([a, b, c], alice, listener)
    await hint({ kind: 'changed', id: a })
    await hint({ kind: 'changed', id: b })
    await hint({ kind: 'changed', id: c })
    expect(asked).toEqual([[a]])
    gates.shift()?.()
    await clock.pass(1)
    expect(asked.slice(1)).toEqual([[b, c]])
    await hint({ kind: 'changed', id: a })
    await hint({ kind: 'changed' })
    await hint({ kind: 'changed', id: b })
    gates.shift()?.()
    await clock.pass(1)
    expect(asked.slice(2)).toEqual([[a, b, c]])
  })

  it('E4 does not ask about a task that is no longer watched', async () => {
    const gates: (() => void)[] = []
    const asked: (readonly string[])[] = []
    const revisions: TaskStore['revisions'] = async (ids) => {
      asked.push(ids)
      await new Promise<void>((resolve) => gates.push(resolve))
      return store.tasks.revisions(ids)
    }
    const { engine, hint, listener } = hinted({ revisions })
    const [a, b] = [await create(), await create()]
    await engine.watch([a], alice, listener)
    const stop = await engine.watch([b], alice, listener)
    await hint({ kind: 'changed', id: a })
    await hint({ kind: 'changed', id: b })
    stop()
    gates.shift()?.()
    await clock.pass(1)
    expect(asked).toEqual([[a]])
  })

  it('E4 of two for one task goes on when one of them stops', async () => {
    const { engine, hints, hint, seen, listener } = hinted()
    const id = await create()
    const stop = await engine.watch([id], alice, listener)
    const other: unknown[] = []
    const stopOther = await engine.observe([id], alice, (_id, view) => other.push(view?.status))
    stop()
    await store.tasks.cancel(id, alice)
    await hint({ kind: 'changed', id })
    expect(seen).toEqual(['working'])
    expect(other).toEqual(['working', 'cancelled'])
    expect(hints.listening()).toBe(true)
    stopOther()
    stopOther()
    expect(hints.listening()).toBe(false)
  })

  it('E4 reports a task that is gone once', async () => {
    const { engine, hints, hint, seen, listener } = hinted()
    const task = newTask({ ttlMs: 1_000 })
    await store.tasks.create(task, 10)
    await engine.watch([task.id], alice, listener)
    await clock.pass(1_000)
    await hint({ kind: 'changed' })
    await hint({ kind: 'changed' })
    expect(seen).toEqual(['working', undefined])
    expect(hints.listening()).toBe(false)
  })

  it('E4 reports no view that is older than the one before', async () => {
    const id = await create()
    const late = await store.tasks.get(id, alice)
    let isLate = false
    const get: TaskStore['get'] = async (...given) => (isLate ? late : store.tasks.get(...given))
    const { engine, hint, seen, listener } = hinted({ get })
    await store.tasks.cancel(id, alice)
    await engine.watch([id], alice, listener)
    isLate = true
    await store.tasks.confirm(id, alice)
    await hint({ kind: 'changed' })
    expect(seen).toEqual(['cancelled'])
  })

  it('E4 reports no view twice', async () => {
    const revisions: TaskStore['revisions'] = async (ids) => new Map(ids.map((id) => [id, 99]))
    const { engine, hint, seen, listener } = hinted({ revisions })
    await engine.watch([await create()], alice, listener)
    await hint({ kind: 'changed' })
    expect(seen).toEqual(['working'])
  })

  it('E4 reports nothing once it has stopped, although a read was under way', async () => {
    const gates: (() => void)[] = []
    let isSlow = false
    const get: TaskStore['get'] = async (...given) => {
      if (isSlow) await new Promise<void>((resolve) => gates.push(resolve))
      return store.tasks.get(...given)
    }
    const { engine, hint, seen, listener } = hinted({ get })
    const id = await create()
    const stop = await engine.watch([id], alice, listener)
    isSlow = true
    await store.tasks.cancel(id, alice)
    await hint({ kind: 'changed' })
    stop()
    for (const open of gates) open()
    await clock.pass(1)
    expect([gates.length, seen]).toEqual([1, ['working']])
  })

  it('R11 that cannot be read at first is refused, and stops', async () => {
    const { engine, hints, listener } = hinted({ get: noDatabase })
    await expect(engine.watch([await create()], alice, listener)).rejects.toThrow('no database')
    expect(hints.listening()).toBe(false)
  })

  it('R11 that cannot be read later is reported, and read again', async () => {
    let fails = true
    const revisions: TaskStore['revisions'] = (ids) => (fails ? noDatabase() : store.tasks.revisions(ids))
    const { engine, hint, seen, listener } = hinted({ revisions })
    const id = await create()
    await engine.watch([id], alice, listener)
    await store.tasks.cancel(id, alice)
    await hint({ kind: 'changed', id })
    expect(errorsDuring()).toEqual(['watch'])
    fails = false
    await hint({ kind: 'changed', id })
    expect(seen).toEqual(['working', 'cancelled'])
  })
})

it('D8 sweeps are spread around their interval, by a fifth of it at most', async () => {
  const waits: number[] = []
  const idly: typeof clock.idly = (ms, fn) => {
    if (ms > 1_000) waits.push(ms)
    return clock.idly(ms, fn)
  }
  const options = { clock: { ...clock, idly }, sweepMs: 2_000, pollMs: 100, statsMs: 0 }
  await engineOn(options).serve(heldTurn().run)
  for (let i = 0; i < 150; i++) await clock.pass(2_000)
  expect(waits.length).toBeGreaterThan(100)
  expect(Math.min(...waits)).toBeGreaterThanOrEqual(1_600)
  expect(Math.max(...waits)).toBeLessThanOrEqual(2_400)
})

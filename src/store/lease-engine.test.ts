/** The engine by a clock that is turned by hand, over the store in memory. */

import { beforeEach, describe, expect, it } from 'vitest'
import { createEngineClock, type EngineClock } from '../../test/support/store/engine-clock.ts'
import { alice, answers, inputs, newTask } from '../../test/support/store/store-harness.ts'
import type { EngineEvent } from './engine-event.ts'
import { createLeaseEngine, type LeaseEngineOptions } from './lease-engine.ts'
import { createMemoryStore } from './memory/memory-store.ts'
import type { Store } from './store.ts'
import type { Outcome, TaskView, Turn } from './task-engine.ts'

const LEASE = 9_000

let clock: EngineClock
let store: Store
let events: EngineEvent[]

beforeEach(() => {
  clock = createEngineClock()
  store = createMemoryStore({ now: clock.now })
  events = []
})

const engineOn = (options: LeaseEngineOptions = {}, on: Store = store) =>
  createLeaseEngine(on, { clock, leaseMs: LEASE, onEvent: (event) => events.push(event), ...options })

const kinds = () => events.map(({ kind }) => kind)
const complete = (result: string): Outcome => ({ kind: 'complete', result })

/** A turn that ends when the test says so. */
function heldTurn() {
  const turns: Turn[] = []
  const ends: ((outcome: Outcome) => void)[] = []
  const run = (turn: Turn) => {
    turns.push(turn)
    return new Promise<Outcome>((resolve) => ends.push(resolve))
  }
  return { run, turns, end: (i: number, outcome: Outcome) => ends[i]?.(outcome) }
}

/** The same store, with some of its methods replaced. */
function broken(changes: Partial<Store['tasks']>): Store {
  return { ...store, tasks: { ...store.tasks, ...changes } }
}

describe('leases', () => {
  it('are renewed for as long as the turn runs', async () => {
    const engine = engineOn()
    const held = heldTurn()
    await engine.serve(held.run)
    const { id } = await engine.create(newTask())
    await clock.pass(LEASE * 5)
    expect(held.turns).toHaveLength(1)
    held.end(0, complete('done'))
    await clock.pass(1)
    expect(await engine.get(id, alice)).toMatchObject({ status: 'completed', result: 'done' })
    expect(kinds()).not.toContain('lost')
  })

  it('E9 that cannot be renewed end the turn by our own clock, before another worker may start', async () => {
    const fail = async () => Promise.reject(new Error('no database'))
    const engine = engineOn({}, broken({ renew: fail, held: fail }))
    const held = heldTurn()
    await engine.serve(held.run)
    await engine.create(newTask())
    await clock.pass(LEASE - 600)
    expect(held.turns[0]?.signal.aborted).toBe(false)
    await clock.pass(600)
    expect(held.turns[0]?.signal.reason).toMatchObject({ code: 'STORE_LEASE_LOST' })
    await expect(held.turns[0]?.record('late')).rejects.toMatchObject({ code: 'STORE_LEASE_LOST' })
    held.end(0, complete('late'))
    await clock.pass(1)
    expect(events).toContainEqual({ kind: 'lost', id: held.turns[0]?.task.id, reason: 'lease ran out' })
  })

  it('give the place of a handler that ignores its signal to another after a grace', async () => {
    const engine = engineOn()
    const held = heldTurn()
    await engine.serve(held.run, { concurrency: 1 })
    const { id } = await engine.create(newTask())
    await engine.create(newTask())
    await clock.pass(1)
    await engine.cancel(id, alice)
    await clock.pass(4_000)
    expect(held.turns).toHaveLength(1)
    await clock.pass(2_000)
    expect(held.turns).toHaveLength(2)
  })
})

describe('turns', () => {
  it('run at most as many at a time as allowed, and the rest after them', async () => {
    const engine = engineOn()
    const held = heldTurn()
    await engine.serve(held.run, { concurrency: 3 })
    for (let i = 0; i < 7; i++) await engine.create(newTask())
    await clock.pass(1)
    expect(held.turns).toHaveLength(3)
    held.end(0, complete(''))
    held.end(1, { kind: 'park', inputs: inputs('a') })
    await clock.pass(1)
    expect(held.turns).toHaveLength(5)
  })

  it('write entries in order, and those that wait for the same write together', async () => {
    const batches: (readonly string[])[] = []
    const engine = engineOn(
      {},
      broken({
        async append(fence, from, entries) {
          batches.push(entries)
          return store.tasks.append(fence, from, entries)
        },
      }),
    )
    await engine.serve(async (turn) => {
      if (turn.journal.length > 0) return complete(turn.journal.join())
      await Promise.all(['1', '2', '3'].map((entry) => turn.record(entry)))
      void turn.record('4')
      return { kind: 'release' }
    })
    const { id } = await engine.create(newTask())
    await clock.pass(1)
    expect(batches).toEqual([['1'], ['2', '3'], ['4']])
    expect((await engine.get(id, alice))?.result).toBe('1,2,3,4')
  })

  it('end when an entry could not be written: nothing is built on what may not be there', async () => {
    let appends = 0
    const append: Store['tasks']['append'] = async () => {
      appends++
      throw new Error('connection lost')
    }
    const engine = engineOn({}, broken({ append }))
    const seen: unknown[] = []
    await engine.serve(async (turn) => {
      for (const entry of ['1', '2']) await turn.record(entry).catch((error) => seen.push(error.message))
      return complete('must not count')
    })
    const { id } = await engine.create(newTask())
    await clock.pass(1)
    expect(seen[0]).toBe('connection lost')
    expect(seen[1]).toMatch(/STORE_LEASE_LOST/)
    expect(appends).toBe(1)
    expect((await engine.get(id, alice))?.status).toBe('working')
  })

  it('T18 refuse entries over the limit of a journal', async () => {
    const engine = engineOn({ maxJournalBytes: 10 })
    const seen: unknown[] = []
    await engine.serve(async (turn) => {
      await turn.record('12345678')
      await turn.record('123').catch((error) => seen.push(error.code))
      return complete('')
    })
    await engine.create(newTask())
    await clock.pass(1)
    expect(seen).toEqual(['LIMIT_STATE_BYTES'])
    await expect(engine.create(newTask({ journal: ['x'.repeat(11)] }))).rejects.toMatchObject({
      code: 'LIMIT_STATE_BYTES',
    })
  })

  it('that park on nothing, or on a used key, have failed', async () => {
    const engine = engineOn({ maxFailures: 1 })
    await engine.serve(async ({ task }) => ({
      kind: 'park',
      inputs: inputs(...(task.head === 'none' ? [] : ['a'])),
    }))
    const none = await engine.create(newTask({ head: 'none' }))
    const used = await engine.create(newTask())
    await clock.pass(1)
    expect((await engine.get(none.id, alice))?.status).toBe('failed')
    await engine.deliver(used.id, alice, answers({ a: '1' }))
    await clock.pass(1)
    expect((await engine.get(used.id, alice))?.status).toBe('failed')
  })

  it('D2 tell their status', async () => {
    const engine = engineOn()
    const held = heldTurn()
    await engine.serve(held.run)
    const { id } = await engine.create(newTask({ message: 'begun' }))
    await clock.pass(1)
    await held.turns[0]?.status('half way')
    expect(await engine.get(id, alice)).toMatchObject({ status: 'working', message: 'half way' })
  })
})

describe('messages of a turn', () => {
  /** A store that writes messages when the test says so. */
  function slowly() {
    const written: string[] = []
    const waiting: (() => void)[] = []
    const slow = broken({
      async status(fence, message) {
        written.push(message)
        await new Promise<void>((resolve) => waiting.push(resolve))
        return store.tasks.status(fence, message)
      },
    })
    return { slow, written, goOn: () => waiting.shift()?.() }
  }

  it('are written one at a time, the newest last, and those in between never', async () => {
    const { slow, written, goOn } = slowly()
    const engine = engineOn({}, slow)
    const held = heldTurn()
    await engine.serve(held.run)
    const { id } = await engine.create(newTask())
    const telling = ['1', '2', '3', '4'].map((message) => held.turns[0]?.status(message))
    expect(written).toEqual(['1'])
    goOn()
    await clock.pass(1)
    expect(written).toEqual(['1', '4'])
    goOn()
    await Promise.all(telling)
    expect(await engine.get(id, alice)).toMatchObject({ message: '4' })
  })

  it('are there before the turn ends', async () => {
    const { slow, goOn } = slowly()
    const engine = engineOn({}, slow)
    await engine.serve(async (turn) => {
      void turn.status('almost')
      return complete('done')
    })
    const { id } = await engine.create(newTask())
    await clock.pass(1)
    expect((await engine.get(id, alice))?.status).toBe('working')
    goOn()
    await clock.pass(1)
    expect(await engine.get(id, alice)).toMatchObject({ status: 'completed', message: 'almost' })
    expect(kinds()).not.toContain('lost')
  })

  it('that could not be written take nothing away from the turn', async () => {
    const engine = engineOn({}, broken({ status: async () => Promise.reject(new Error('no database')) }))
    await engine.serve(async (turn) => {
      await turn.status('lost').catch(() => {})
      await turn.record('entry')
      return complete('done')
    })
    const { id } = await engine.create(newTask())
    await clock.pass(1)
    expect(await engine.get(id, alice)).toMatchObject({ status: 'completed', result: 'done' })
  })
})

describe('failures', () => {
  it('are tried again after growing pauses, and forgotten when something was recorded', async () => {
    const engine = engineOn({ maxFailures: 3, pollMs: 10 })
    const at: number[] = []
    await engine.serve(async (turn) => {
      at.push(clock.now())
      if (at.length === 3) await turn.record('progress')
      throw new Error('not now')
    })
    const { id } = await engine.create(newTask())
    await clock.pass(30_000)
    const pauses = at.slice(1).map((time, i) => Math.round((time - (at[i] ?? 0)) / 1000))
    // 1 s and 2 s after the first two, then a record starts the count anew.
    expect(pauses).toEqual([1, 2, 1, 2])
    expect((await engine.get(id, alice))?.status).toBe('failed')
    expect(events.filter(({ kind }) => kind === 'retry')).toHaveLength(4)
    expect(events.filter(({ kind }) => kind === 'gave-up')).toHaveLength(1)
  })

  it('of the process count too: a task that kills every worker ends as failed', async () => {
    const engine = engineOn({ maxFailures: 3 })
    const { id } = await engine.create(newTask())
    for (let i = 0; i < 3; i++) {
      expect(await store.tasks.claim(`dies ${i}`, 1000, 1)).toHaveLength(1)
      await clock.pass(1000)
    }
    let ran = 0
    await engine.serve(async () => {
      ran++
      return complete('')
    })
    await clock.pass(1)
    expect(ran).toBe(0)
    expect(await engine.get(id, alice)).toMatchObject({ status: 'failed', error: undefined })
  })
})

describe('create', () => {
  it('T18 refuses more open tasks than an owner may have', async () => {
    const engine = engineOn({ maxOpenTasks: 2 })
    await engine.create(newTask())
    await engine.create(newTask())
    await expect(engine.create(newTask())).rejects.toMatchObject({ code: 'LIMIT_TASKS', http: 429 })
  })

  it.each([
    ['a short id', { id: 'short' }],
    ['an id with other characters', { id: `${'x'.repeat(22)}/` }],
    ['no time to live', { ttlMs: 0 }],
    ['a time to live without end', { ttlMs: Number.POSITIVE_INFINITY }],
    ['no poll interval', { pollMs: 0 }],
  ])('refuses %s', async (_, changes) => {
    await expect(engineOn().create(newTask(changes))).rejects.toThrow(TypeError)
  })
})

describe('ids and keys from outside', () => {
  it('E6 of a form that no task has are unknown, without a look into the store', async () => {
    const touched = async () => Promise.reject(new Error('asked the store'))
    const engine = engineOn({}, broken({ get: touched, deliver: touched, cancel: touched }))
    for (const id of ['', 'x', `${'x'.repeat(22)}\0`, '../../etc', 'x'.repeat(65)]) {
      expect(await engine.get(id, alice)).toBeUndefined()
      expect(await engine.deliver(id, alice, answers({ a: '1' }))).toBe('unknown')
      expect(await engine.cancel(id, alice)).toBe('unknown')
    }
  })

  it('E3 that no store could hold are ignored like other unknown keys', async () => {
    const engine = engineOn()
    await engine.serve(async () => ({ kind: 'park', inputs: inputs('a') }))
    const { id } = await engine.create(newTask())
    await clock.pass(1)
    expect(
      await engine.deliver(
        id,
        alice,
        new Map([
          ['a\0', '1'],
          ['\ud800', '2'],
        ]),
      ),
    ).toBe('partial')
  })
})

describe('watching', () => {
  it('E4 tells the view as it is, then each change, then that the task is gone', async () => {
    const engine = engineOn()
    const held = heldTurn()
    await engine.serve(held.run)
    const { id } = await engine.create(newTask({ ttlMs: 5_000 }))
    const seen: (TaskView | undefined)[] = []
    await engine.watch([id], alice, (_, view) => seen.push(view))
    expect(seen.map((view) => view?.status)).toEqual(['working'])
    await clock.pass(1)
    held.end(0, { kind: 'park', inputs: inputs('a') })
    await clock.pass(1)
    expect(seen.map((view) => view?.status)).toEqual(['working', 'input_required'])
    await clock.pass(6_000)
    expect(seen.map((view) => view?.status)).toEqual(['working', 'input_required', undefined])
  })

  it('E4 misses nothing that happens while it looks for the first time', async () => {
    const gates: (() => void)[] = []
    const slow = broken({
      async get(...given) {
        const view = await store.tasks.get(...given)
        if (gates.length === 0) await new Promise<void>((resolve) => gates.push(resolve))
        return view
      },
    })
    const engine = engineOn({}, slow)
    const { id } = await store.tasks.create(newTask(), 10).then((made) => {
      if (made.kind !== 'created') throw new Error(made.kind)
      return made.view
    })
    const seen: (string | undefined)[] = []
    const watching = engine.watch([id], alice, (_id, view) => seen.push(view?.status))
    await new Promise((resolve) => setImmediate(resolve))
    await store.tasks.cancel(id, alice)
    gates[0]?.()
    const stop = await watching
    await new Promise((resolve) => setImmediate(resolve))
    stop()
    // The clock stands still: nothing was found by polling.
    expect(seen.at(-1)).toBe('cancelled')
  })

  it('costs nothing once nobody watches', async () => {
    let asked = 0
    const revisions: Store['tasks']['revisions'] = (ids) => {
      asked++
      return store.tasks.revisions(ids)
    }
    const engine = engineOn({}, broken({ revisions }))
    const { id } = await engine.create(newTask())
    const stop = await engine.watch([id], alice, () => {})
    await clock.pass(500)
    expect(asked).toBeGreaterThan(0)
    stop()
    asked = 0
    await clock.pass(5_000)
    expect(asked).toBe(0)
  })
})

describe('an operator', () => {
  it('hears about queue, sweep and errors of the store', async () => {
    const engine = engineOn({ statsMs: 1000, sweepMs: 1000 })
    const held = heldTurn()
    await engine.serve(held.run, { concurrency: 1 })
    for (const ttlMs of [3_000, 600_000, 600_000]) await engine.create(newTask({ ttlMs }))
    await clock.pass(1_100)
    expect(events).toContainEqual(expect.objectContaining({ kind: 'queue', due: 2, running: 1, parked: 0 }))
    await clock.pass(5_000)
    expect(events).toContainEqual({ kind: 'swept', count: 1 })
  })
})

describe('stop', () => {
  it('takes no more work, waits for turns to hand back, and may be called twice', async () => {
    const engine = engineOn()
    const held = heldTurn()
    const serving = await engine.serve(held.run)
    await engine.create(newTask())
    await clock.pass(1)
    let stopped = false
    const stopping = Promise.all([serving.stop(), serving.stop()]).then(() => {
      stopped = true
    })
    await clock.pass(100)
    expect(held.turns[0]?.draining.aborted).toBe(true)
    expect(held.turns[0]?.signal.aborted).toBe(false)
    expect(stopped).toBe(false)
    held.end(0, { kind: 'release' })
    await stopping
    await engine.create(newTask())
    await clock.pass(10_000)
    expect(held.turns).toHaveLength(1)
  })

  it('hands back what is being created for it at that moment', async () => {
    const gates: (() => void)[] = []
    const slow = broken({
      async create(...given) {
        const made = await store.tasks.create(...given)
        await new Promise<void>((resolve) => gates.push(resolve))
        return made
      },
      async release(...given) {
        await new Promise((resolve) => setImmediate(resolve))
        return store.tasks.release(...given)
      },
    })
    const engine = engineOn({}, slow)
    const serving = await engine.serve(heldTurn().run)
    await clock.pass(1)
    const task = newTask()
    const creating = engine.create(task)
    const stopping = serving.stop()
    await clock.pass(1)
    gates[0]?.()
    await Promise.all([creating, stopping])
    expect((await store.tasks.list({ id: task.id }))[0]).toMatchObject({ worker: undefined, failures: 0 })
  })
})

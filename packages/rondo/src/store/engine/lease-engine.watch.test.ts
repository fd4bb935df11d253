/** Notifications of the engine to watchers, to the operator, and to those who wait for its end. By a clock that is turned by hand. */

import { beforeEach, describe, expect, it } from 'vitest'
import { createEngineBench } from '../../../../../test/support/store/engine-bench.ts'
import { complete, heldTurn } from '../../../../../test/support/store/held-turn.ts'
import { alice, inputs, newTask } from '../../../../../test/support/store/store-harness.ts'
import type { Store } from '../store.ts'
import type { TaskView } from '../task-engine.ts'

let { clock, store, events, kinds, engineOn, broken } = createEngineBench()
beforeEach(() => {
  ;({ clock, store, events, kinds, engineOn, broken } = createEngineBench())
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

  it('are written one at a time; only the newest of those that wait is written', async () => {
    const { slow, written, goOn } = slowly()
    const engine = engineOn({}, slow)
    const held = heldTurn()
    await engine.serve(held.run)
    const { id } = await engine.create(newTask())
    await clock.pass(1)
    const telling = ['1', '2', '3', '4'].map((message) => held.turns[0]?.status(message))
    expect(written).toEqual(['1'])
    goOn()
    await clock.pass(1)
    expect(written).toEqual(['1', '4'])
    goOn()
    await Promise.all(telling)
    expect(await engine.get(id, alice)).toMatchObject({ message: '4' })
  })

  it('are written before the turn ends', async () => {
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

  it('that could not be written do not end the turn', async () => {
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

describe('a watch', () => {
  it('E4 reports the current view, then each change, then that the task is gone', async () => {
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

  it('E4 misses no change during its first read', async () => {
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

  it('stops polling when no task is watched', async () => {
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
  it('receives events for queue, sweep and store errors', async () => {
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

describe('a worker that stops', () => {
  it('claims no more tasks, waits for running turns, and may be called twice', async () => {
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

  it('releases a task that is being created for it at that moment', async () => {
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

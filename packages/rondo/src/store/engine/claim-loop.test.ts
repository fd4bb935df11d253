/** The worker of a process, by a clock that is turned by hand: what it claims, what it reports, and what it leaves to others. */

import { beforeEach, describe, expect, it } from 'vitest'
import { createEngineBench, LEASE } from '../../../../../test/support/store/engine-bench.ts'
import { complete, heldTurn } from '../../../../../test/support/store/held-turn.ts'
import { alice, answers, inputs, newTask } from '../../../../../test/support/store/store-harness.ts'
import { createMemoryStore } from '../memory/store.ts'
import type { Store } from '../store.ts'
import type { NewTask } from '../task-engine.ts'
import { createHintBus, type Fence } from '../task-store.ts'

let { clock, store, events, engineOn, broken } = createEngineBench()
beforeEach(() => {
  ;({ clock, store, events, engineOn, broken } = createEngineBench())
})

const noDatabase = () => Promise.reject(new Error('no database'))
const about = (id: string) => events.filter((event) => 'id' in event && event.id === id)
const errorsDuring = () => events.flatMap((event) => (event.kind === 'store-error' ? [event.during] : []))

/** Creates the task, and has two workers that die claim it: the next turn is its third, and has two failures. */
async function dieTwice(task: NewTask) {
  await store.tasks.create(task, 10)
  for (const worker of ['first', 'second']) {
    await store.tasks.claim(worker, 1, 1)
    await clock.pass(1)
  }
}

/** A store whose clock runs ahead of the worker's, and which undoes failures. */
function ahead() {
  const absolved: Fence[] = []
  const state = { ms: 0 }
  const other = createMemoryStore({ now: () => clock.now() + state.ms })
  const absolve = async (fence: Fence) => void absolved.push(fence)
  return { absolved, state, other, tasks: { ...other.tasks, absolve } }
}

describe('what an operator learns of a turn', () => {
  it('is when it began, whether it was taken over, and how long it took', async () => {
    const engine = engineOn()
    const held = heldTurn()
    await engine.serve(held.run)
    const { id } = await engine.create(newTask())
    await clock.pass(150)
    held.end(0, complete('done'))
    await clock.pass(1)
    expect(about(id)).toEqual([
      { kind: 'began', id, turn: 1, takenOver: false, failures: 0 },
      { kind: 'turn', id, turn: 1, outcome: 'complete', ms: 150 },
    ])
  })

  it('E9 is that it was taken over from a worker that died', async () => {
    const engine = engineOn({ pollMs: 100 })
    const { id } = await engine.create(newTask())
    await store.tasks.claim('dies', 1_000, 1)
    await clock.pass(1_000)
    await engine.serve(heldTurn().run)
    await clock.pass(1)
    expect(about(id)).toEqual([{ kind: 'began', id, turn: 2, takenOver: true, failures: 1 }])
    expect(events).toContainEqual({ kind: 'claimed', count: 1 })
  })

  it('E9 is once that it was lost, although its handler ignores its signal and ends later', async () => {
    const engine = engineOn()
    const held = heldTurn()
    await engine.serve(held.run)
    const { id } = await engine.create(newTask())
    await clock.pass(1)
    await engine.cancel(id, alice)
    await clock.pass(6_000)
    const lost = [
      { kind: 'began', id, turn: 1, takenOver: false, failures: 0 },
      { kind: 'turn', id, turn: 1, outcome: 'lost', ms: expect.any(Number) },
      { kind: 'lost', id, turn: 1, reason: 'cancelled or taken over' },
    ]
    expect(about(id)).toEqual(lost)
    held.end(0, complete('late'))
    await clock.pass(100)
    expect(about(id)).toEqual(lost)
  })

  it('is the failure count and the error of one that threw, without an error if its worker died', async () => {
    const dead = newTask()
    await dieTwice(dead)
    const engine = engineOn({ maxFailures: 2, backoffMs: () => 100 })
    const error = new Error('not now')
    await engine.serve(() => Promise.reject(error))
    const { id } = await engine.create(newTask())
    await clock.pass(500)
    expect(about(id).filter(({ kind }) => kind === 'retry' || kind === 'gave-up')).toEqual([
      { kind: 'retry', id, turn: 1, failures: 1, error },
      { kind: 'gave-up', id, turn: 3, failures: 2, error },
    ])
    const gaveUp = about(dead.id).find(({ kind }) => kind === 'gave-up')
    expect(gaveUp).toEqual({ kind: 'gave-up', id: dead.id, turn: 3, failures: 2 })
    expect(gaveUp).not.toHaveProperty('error')
  })
})

describe('a lease that another worker took before it ran out by our clock', () => {
  it('E9 is no failure of the task, found out by a check or by the write of the outcome', async () => {
    for (const found of ['check', 'write'] as const) {
      const { absolved, state, other, tasks } = ahead()
      const engine = engineOn({}, { ...other, tasks })
      const held = heldTurn()
      await engine.serve(held.run)
      const { id } = await engine.create(newTask())
      await clock.pass(1)
      state.ms = LEASE
      expect(await other.tasks.claim('too early', LEASE, 1)).toHaveLength(1)
      if (found === 'check') await clock.pass(1_000)
      else held.end(0, complete('late'))
      await clock.pass(1)
      expect(absolved).toEqual([{ id, epoch: 1 }])
      expect(held.turns[0]?.signal.aborted).toBe(true)
      await clock.pass(10_000)
      expect(absolved).toHaveLength(1)
    }
  })

  it.each([
    ['ran out', 'lost', LEASE, {}],
    ['ended with its task', 'complete', 1, {}],
    ['was left since the store failed', 'lost', 1, { settle: noDatabase, release: noDatabase }],
  ])('is not one that %s', async (_what, outcome, ms, changes) => {
    const { absolved, other, tasks } = ahead()
    const fails = { renew: noDatabase, held: noDatabase, ...changes }
    const engine = engineOn({}, { ...other, tasks: { ...tasks, ...fails } })
    const held = heldTurn()
    await engine.serve(held.run)
    await engine.create(newTask())
    await clock.pass(1)
    await clock.pass(ms)
    held.end(0, complete('done'))
    await clock.pass(1)
    expect(events).toContainEqual(expect.objectContaining({ kind: 'turn', outcome }))
    expect(absolved).toEqual([])
  })

  it('R11 may fail to be undone', async () => {
    const { state, other, tasks } = ahead()
    const engine = engineOn({}, { ...other, tasks: { ...tasks, absolve: noDatabase } })
    await engine.serve(heldTurn().run)
    await engine.create(newTask())
    await clock.pass(1)
    state.ms = LEASE
    await other.tasks.claim('too early', LEASE, 1)
    await clock.pass(1_000)
    expect(errorsDuring()).toEqual(['absolve'])
  })
})

describe('a task whose turn could not be ended', () => {
  it('E9 waits as long as after its next failure, and is released once', async () => {
    const released: unknown[] = []
    let fails = true
    const settle: Store['tasks']['settle'] = (...given) =>
      fails ? noDatabase() : store.tasks.settle(...given)
    const release: Store['tasks']['release'] = (...given) => {
      released.push(given.slice(1))
      return fails ? noDatabase() : store.tasks.release(...given)
    }
    const backoffMs = (failures: number) => failures * 1_000
    const engine = engineOn({ pollMs: 200, backoffMs, maxFailures: 9 }, broken({ settle, release }))
    const task = newTask()
    await dieTwice(task)
    await engine.serve(async () => complete('done'))
    await clock.pass(300)
    expect(errorsDuring()).toContain('release')
    fails = false
    await clock.pass(2_000)
    expect(new Set(released.map(String))).toEqual(new Set(['3000,true']))
    const count = released.length
    await clock.pass(2_000)
    expect(released).toHaveLength(count)
    expect(await engine.get(task.id, alice)).toMatchObject({ status: 'completed' })
  })

  it('E9 is released when the worker stops, unless the store is still away', async () => {
    for (const away of [false, true]) {
      let fails = true
      const released: string[] = []
      const release: Store['tasks']['release'] = async (fence, ...given) => {
        if (fails) return noDatabase()
        released.push(fence.id)
        return store.tasks.release(fence, ...given)
      }
      const engine = engineOn({ pollMs: 60_000 }, broken({ settle: noDatabase, release }))
      const serving = await engine.serve(async () => complete('done'))
      const { id } = await engine.create(newTask())
      await clock.pass(1)
      fails = away
      await serving.stop()
      expect(released).toEqual(away ? [] : [id])
    }
  })

  it('E9 is not released by this worker if another one has it', async () => {
    const { state, other, tasks } = ahead()
    const released: unknown[] = []
    const release: Store['tasks']['release'] = (...given) => {
      released.push(given)
      return other.tasks.release(...given)
    }
    const engine = engineOn({ pollMs: 200 }, { ...other, tasks: { ...tasks, release } })
    const held = heldTurn()
    await engine.serve(held.run)
    await engine.create(newTask())
    await clock.pass(1)
    state.ms = LEASE
    await other.tasks.claim('too early', 60_000, 1)
    held.end(0, complete('late'))
    await clock.pass(2_000)
    expect(released).toEqual([])
  })
})

describe('a slot', () => {
  it('is reserved for one task at a time while it is created', async () => {
    const takers: unknown[] = []
    const gates: (() => void)[] = []
    const slow = broken({
      async create(task, limit, taker) {
        takers.push(taker?.leaseMs)
        await new Promise<void>((resolve) => gates.push(resolve))
        return store.tasks.create(task, limit, taker)
      },
    })
    const engine = engineOn({}, slow)
    const held = heldTurn()
    await engine.serve(held.run, { concurrency: 2 })
    await clock.pass(1)
    const creating = [1, 2, 3].map(() => engine.create(newTask()))
    expect(takers).toEqual([LEASE, LEASE, undefined])
    for (const open of gates) open()
    await Promise.all(creating)
    await clock.pass(1)
    expect(held.turns).toHaveLength(2)
  })

  it('is free again if the task was not created, or was there before', async () => {
    const create: Store['tasks']['create'] = (task, ...given) =>
      task.head === 'bad' ? noDatabase() : store.tasks.create(task, ...given)
    const engine = engineOn({ pollMs: 60_000 }, broken({ create }))
    const held = heldTurn()
    await engine.serve(held.run, { concurrency: 1 })
    await clock.pass(1)
    await expect(engine.create(newTask({ head: 'bad' }))).rejects.toThrow('no database')
    const task = newTask()
    await engine.create(task)
    await engine.create(task)
    await clock.pass(1)
    expect(held.turns).toHaveLength(1)
    held.end(0, complete('done'))
    await clock.pass(1)
    await engine.create(newTask())
    await clock.pass(1)
    expect(held.turns).toHaveLength(2)
  })

  it('goes to the task that a resumed one leaves behind, not beyond the concurrency limit', async () => {
    const engine = engineOn()
    const held = heldTurn()
    await engine.serve(held.run, { concurrency: 1 })
    const { id } = await engine.create(newTask())
    await clock.pass(1)
    held.end(0, { kind: 'park', inputs: inputs('a') })
    await clock.pass(1)
    await engine.create(newTask())
    await clock.pass(1)
    expect(await engine.deliver(id, alice, answers({ a: 'yes' }))).toBe('resumed')
    await clock.pass(200)
    expect(held.turns).toHaveLength(2)
    held.end(1, complete('done'))
    await clock.pass(1)
    expect(held.turns[2]?.task.id).toBe(id)
  })
})

describe('a claim', () => {
  it('takes at most 256 tasks, and is repeated until a smaller one', async () => {
    const asked: number[] = []
    const claim: Store['tasks']['claim'] = (worker, leaseMs, count) => {
      asked.push(count)
      return store.tasks.claim(worker, leaseMs, count)
    }
    for (let i = 0; i < 300; i++) await store.tasks.create(newTask(), 1_000)
    const engine = engineOn({ pollMs: 60_000 }, broken({ claim }))
    const held = heldTurn()
    await engine.serve(held.run, { concurrency: 600 })
    await clock.pass(1)
    expect(held.turns).toHaveLength(300)
    expect(asked).toEqual([256, 256])
    expect(events.filter(({ kind }) => kind === 'claimed')).toEqual([
      { kind: 'claimed', count: 256 },
      { kind: 'claimed', count: 44 },
    ])
  })

  it('that fails frees its slots, is reported, and is repeated with the next poll', async () => {
    let fails = true
    const claim: Store['tasks']['claim'] = (...given) => (fails ? noDatabase() : store.tasks.claim(...given))
    await store.tasks.create(newTask(), 10)
    const engine = engineOn({ pollMs: 1_000 }, broken({ claim, nextDueMs: async () => undefined }))
    const held = heldTurn()
    await engine.serve(held.run, { concurrency: 1 })
    await clock.pass(1)
    expect(errorsDuring()).toContain('claim')
    fails = false
    await clock.pass(1_300)
    expect(held.turns).toHaveLength(1)
  })

  it('R11 comes after a reclaim that fails, which is reported', async () => {
    await store.tasks.create(newTask(), 10)
    const held = heldTurn()
    await engineOn({}, broken({ reclaim: noDatabase })).serve(held.run)
    await clock.pass(1)
    expect(errorsDuring()).toEqual(['reclaim'])
    expect(held.turns).toHaveLength(1)
  })

  it('is caused by a hint for a task that is due, and not by one that a task has changed', async () => {
    let claims = 0
    const claim: Store['tasks']['claim'] = (...given) => {
      claims += 1
      return store.tasks.claim(...given)
    }
    const hints = createHintBus()
    store.tasks.onHint(hints.publish)
    const engine = engineOn({ pollMs: 60_000 }, broken({ claim, onHint: hints.onHint }))
    const held = heldTurn()
    await engine.serve(held.run)
    await clock.pass(1)
    claims = 0
    const other = engineOn({ pollMs: 60_000 })
    const { id } = await other.create(newTask())
    await clock.pass(1)
    expect([held.turns.length, claims]).toEqual([1, 1])
    await held.turns[0]?.status('changed')
    await engine.cancel(id, alice)
    hints.publish({ kind: 'bus' })
    await clock.pass(1_000)
    expect(claims).toBe(1)
  })
})

describe('a check of the leases', () => {
  /** A store that counts the questions for leases. */
  function counted() {
    const asked: string[] = []
    const on = broken({
      held: (fences) => {
        asked.push('held')
        return store.tasks.held(fences)
      },
      renew: (fences, leaseMs) => {
        asked.push(`renew ${leaseMs}`)
        return store.tasks.renew(fences, leaseMs)
      },
    })
    return { asked, on }
  }

  it('asks every half second, renews after a third of the lease, and asks nothing while no turn runs', async () => {
    const { asked, on } = counted()
    const engine = engineOn({}, on)
    const held = heldTurn()
    await engine.serve(held.run)
    await clock.pass(2_950)
    expect(asked).toEqual([])
    await engine.create(newTask())
    await clock.pass(3_000)
    expect(asked).toEqual([`renew ${LEASE}`, 'held', 'held', 'held', 'held', 'held'])
    held.end(0, complete('done'))
    await clock.pass(1)
    asked.length = 0
    await clock.pass(3_000)
    expect(asked).toEqual([])
  })

  it('asks more often for short leases', async () => {
    const { asked, on } = counted()
    const engine = engineOn({ leaseMs: 800 }, on)
    await engine.serve(heldTurn().run)
    await engine.create(newTask())
    await clock.pass(2_000)
    expect(asked).toHaveLength(10)
  })

  it('E8 is made at once when a running task has changed elsewhere, and not when another one has', async () => {
    const { asked, on } = counted()
    const engine = engineOn({}, on)
    const held = heldTurn()
    await engine.serve(held.run)
    const { id } = await engine.create(newTask())
    const other = newTask()
    await store.tasks.create(other, 10)
    await clock.pass(1)
    held.end(1, { kind: 'park', inputs: inputs('a') })
    await clock.pass(1)
    asked.length = 0
    await store.tasks.deliver(other.id, alice, new Map())
    await store.tasks.cancel(other.id, alice)
    await clock.pass(1)
    expect(asked).toEqual([])
    await store.tasks.cancel(id, alice)
    await clock.pass(1)
    expect(asked).toEqual(['held'])
    expect(held.turns[0]?.signal.aborted).toBe(true)
  })

  it('E8 that runs when a change arrives is repeated', async () => {
    const gates: ((ids: ReadonlySet<string>) => void)[] = []
    let asked = 0
    const on = broken({
      held(fences) {
        asked += 1
        if (asked > 1) return store.tasks.held(fences)
        return new Promise((resolve) => gates.push(resolve))
      },
    })
    const engine = engineOn({}, on)
    const held = heldTurn()
    await engine.serve(held.run)
    const { id } = await engine.create(newTask())
    await clock.pass(500)
    expect(asked).toBe(1)
    await store.tasks.cancel(id, alice)
    // What the store said before the change.
    gates[0]?.(new Set([id]))
    await clock.pass(1)
    expect(asked).toBe(2)
    expect(held.turns[0]?.signal.aborted).toBe(true)
  })

  it('E9 leaves a turn alone whose outcome is being written: that write finds out by itself', async () => {
    const gates: (() => void)[] = []
    const settle: Store['tasks']['settle'] = async (...given) => {
      const written = await store.tasks.settle(...given)
      await new Promise<void>((resolve) => gates.push(resolve))
      return written
    }
    const engine = engineOn({}, broken({ settle }))
    const held = heldTurn()
    await engine.serve(held.run)
    const { id } = await engine.create(newTask())
    await clock.pass(1)
    held.end(0, complete('done'))
    await clock.pass(2_000)
    expect(held.turns[0]?.signal.aborted).toBe(false)
    gates[0]?.()
    await clock.pass(1)
    expect(about(id).at(-1)).toMatchObject({ kind: 'turn', outcome: 'complete' })
  })

  it('brings answers to turns that wait for some, and asks for no others', async () => {
    const asked: (readonly string[])[] = []
    const revisions: Store['tasks']['revisions'] = (ids) => {
      asked.push(ids)
      return store.tasks.revisions(ids)
    }
    const engine = engineOn({}, broken({ revisions }))
    const held = heldTurn()
    await engine.serve(held.run)
    const waits = await engine.create(newTask())
    await engine.create(newTask())
    await clock.pass(1)
    const seen: string[] = []
    held.turns[0]?.onAnswers(({ answer }) => seen.push(answer) > 0)
    await clock.pass(600)
    expect(asked).toEqual([])
    await held.turns[0]?.publish({ open: [{ key: 'a', request: 'name?' }] })
    await store.tasks.deliver(waits.id, alice, answers({ a: 'Ada' }))
    await clock.pass(600)
    expect(seen).toEqual(['Ada'])
    expect(new Set(asked.flat())).toEqual(new Set([waits.id]))
  })

  it('R11 that fails is reported, and repeated', async () => {
    let fails = true
    const on = broken({ held: (fences) => (fails ? noDatabase() : store.tasks.held(fences)) })
    const engine = engineOn({}, on)
    const held = heldTurn()
    await engine.serve(held.run)
    const { id } = await engine.create(newTask())
    await clock.pass(600)
    expect(errorsDuring()).toEqual(['renew'])
    fails = false
    await store.tasks.cancel(id, alice)
    await clock.pass(500)
    expect(held.turns[0]?.signal.aborted).toBe(true)
  })
})

describe('a worker that stops', () => {
  it('starts no task that waits for a slot, and releases a turn that does not end in time', async () => {
    const engine = engineOn({ pollMs: 60_000 })
    const held = heldTurn()
    const serving = await engine.serve(held.run, { concurrency: 2, drainMs: 1_000 })
    for (let i = 0; i < 4; i++) await engine.create(newTask())
    await clock.pass(1)
    const stopping = serving.stop()
    await clock.pass(500)
    held.end(0, complete('done'))
    await clock.pass(400)
    expect(held.turns).toHaveLength(2)
    expect(held.turns[1]?.signal.aborted).toBe(false)
    await clock.pass(100)
    await stopping
    expect(held.turns[1]?.signal.aborted).toBe(true)
    expect(held.turns[1]?.signal.reason.message).toContain('draining')
    const id = held.turns[1]?.task.id ?? ''
    expect(about(id).slice(1)).toEqual([
      { kind: 'turn', id, turn: 1, outcome: 'lost', ms: 1_001 },
      { kind: 'lost', id, turn: 1, reason: 'draining' },
    ])
    expect((await store.tasks.list({ id }))[0]).toMatchObject({ worker: undefined, failures: 0 })
    expect(await store.tasks.nextDueMs(1)).toBe(0)
    await clock.pass(120_000)
    expect(held.turns).toHaveLength(2)
  })

  it('R11 stops although the store has failed', async () => {
    const engine = engineOn({}, broken({ release: noDatabase }))
    const held = heldTurn()
    const serving = await engine.serve(held.run, { drainMs: 100 })
    await engine.create(newTask())
    await clock.pass(1)
    const stopping = serving.stop()
    await clock.pass(100)
    await stopping
    expect(held.turns[0]?.signal.aborted).toBe(true)
  })

  it('sets no timer that outlives it', async () => {
    const engine = engineOn({ statsMs: 1_000 })
    const held = heldTurn()
    const serving = await engine.serve(held.run)
    await engine.create(newTask())
    await clock.pass(1)
    held.end(0, { kind: 'park', inputs: inputs(), wakeAt: clock.now() + 50 })
    await clock.pass(1)
    await serving.stop()
    events.length = 0
    await clock.pass(200_000)
    expect(events).toEqual([])
    expect(held.turns).toHaveLength(1)
  })
})

describe('a claim that is under way', () => {
  /** An engine whose claims wait until the test answers them. */
  async function gated(concurrency: number) {
    const answers: (() => void)[] = []
    const hints = createHintBus()
    let looks = 0
    const on = broken({
      onHint: hints.onHint,
      async claim(...given) {
        await new Promise<void>((resolve) => answers.push(resolve))
        return store.tasks.claim(...given)
      },
      nextDueMs(ms) {
        looks += 1
        return store.tasks.nextDueMs(ms)
      },
    })
    const engine = engineOn({ pollMs: 60_000 }, on)
    const held = heldTurn()
    await engine.serve(held.run, { concurrency })
    await clock.pass(1)
    answers[0]?.()
    await clock.pass(1)
    const fromElsewhere = async () => {
      await store.tasks.create(newTask(), 10)
      hints.publish({ kind: 'due', count: 1 })
    }
    return { engine, held, answers, fromElsewhere, looks: () => looks }
  }

  it('is the only one: a hint meanwhile starts no other', async () => {
    const { held, answers, fromElsewhere } = await gated(8)
    await fromElsewhere()
    await clock.pass(1)
    expect(answers).toHaveLength(2)
    await fromElsewhere()
    await clock.pass(1)
    expect(answers).toHaveLength(2)
    answers[1]?.()
    await clock.pass(1)
    expect(answers).toHaveLength(3)
    answers[2]?.()
    await clock.pass(1)
    expect(held.turns).toHaveLength(2)
  })

  it('G1 comes before the look for the next due task, as do tasks that are due already', async () => {
    const { engine, held, answers, fromElsewhere, looks } = await gated(2)
    const park = () => ({ kind: 'park' as const, inputs: inputs(), wakeAt: clock.now() + 50_000 })
    await engine.create(newTask())
    await clock.pass(1)
    const before = looks()
    await fromElsewhere()
    await clock.pass(1)
    held.end(0, park())
    await clock.pass(1)
    expect(looks()).toBe(before)
    answers[1]?.()
    await clock.pass(1)
    expect(looks()).toBe(before + 1)
    await engine.create(newTask())
    for (let i = 0; i < 3; i++) await fromElsewhere()
    await clock.pass(1)
    expect(held.turns).toHaveLength(3)
    held.end(1, park())
    await clock.pass(1)
    answers[2]?.()
    await clock.pass(1)
    // Two are due, and have no slot.
    expect(held.turns).toHaveLength(4)
    expect(looks()).toBe(before + 1)
  })
})

describe('the look for the next due task', () => {
  it('G1 goes as far as the longest pause between two polls', async () => {
    const within: number[] = []
    const nextDueMs: Store['tasks']['nextDueMs'] = async (ms) => void within.push(ms)
    await engineOn({ pollMs: 1_001 }, broken({ nextDueMs })).serve(heldTurn().run)
    await clock.pass(1)
    expect(within).toEqual([1_202])
  })

  it('R11 that fails is reported as a failure to claim', async () => {
    await engineOn({}, broken({ nextDueMs: noDatabase })).serve(heldTurn().run)
    await clock.pass(1)
    expect(errorsDuring()).toEqual(['claim'])
  })

  it('waits longer and longer for a task that no claim returns, and starts again with the next one', async () => {
    const at: number[] = []
    const looks = [0, 0, 0, 0, undefined, 0, 0]
    const hints = createHintBus()
    const on = broken({
      onHint: hints.onHint,
      async claim() {
        at.push(clock.now())
        return []
      },
      nextDueMs: async () => looks.shift(),
    })
    await engineOn({ pollMs: 60_000 }, on).serve(heldTurn().run)
    const pass = async (ms: number) => {
      for (let i = 0; i < ms; i++) await clock.pass(1)
    }
    await pass(100)
    const pauses = () => at.slice(1).map((time, i) => time - (at[i] ?? 0))
    expect(pauses()).toEqual([5, 10, 20, 40])
    hints.publish({ kind: 'due', count: 1 })
    await pass(50)
    expect(pauses().slice(5)).toEqual([5, 10])
  })
})

describe('a hint that something has changed', () => {
  it.each([
    ['without an id', (_id: string) => ({ kind: 'changed' as const }), true],
    ['of a running task', (id: string) => ({ kind: 'changed' as const, id }), true],
    ['of another task', (_id: string) => ({ kind: 'changed' as const, id: 'other' }), false],
  ])('E8 %s is a reason to check the leases, or none', async (_what, hint, isReason) => {
    const hints = createHintBus()
    let checks = 0
    const held: Store['tasks']['held'] = (fences) => {
      checks += 1
      return store.tasks.held(fences)
    }
    const engine = engineOn({}, broken({ onHint: hints.onHint, held }))
    await engine.serve(heldTurn().run)
    const { id } = await engine.create(newTask())
    await clock.pass(1)
    hints.publish(hint(id))
    await clock.pass(1)
    expect(checks).toBe(isReason ? 1 : 0)
  })
})

it('E8 a hint that something has changed is no reason to ask the store while no turn runs', async () => {
  const hints = createHintBus()
  let asked = 0
  const ask = async () => {
    asked += 1
    return new Set<string>()
  }
  const engine = engineOn({}, broken({ onHint: hints.onHint, held: ask, renew: ask }))
  await engine.serve(heldTurn().run)
  hints.publish({ kind: 'changed' })
  await clock.pass(1)
  expect(asked).toBe(0)
})

describe('a lease that is found taken after it ran out', () => {
  it('E9 was no failure of a clock', async () => {
    const gates: ((held: ReadonlySet<string>) => void)[] = []
    const { absolved, other, tasks } = ahead()
    const ask = () => new Promise<ReadonlySet<string>>((resolve) => gates.push(resolve))
    const engine = engineOn({ leaseMs: 2_300 }, { ...other, tasks: { ...tasks, held: ask, renew: ask } })
    const held = heldTurn()
    await engine.serve(held.run)
    await engine.create(newTask())
    // The worker checks every 500 ms: at 2,000 ms the lease is still held, and at 2,300 ms not.
    await clock.pass(2_300)
    expect(held.turns[0]?.signal.aborted).toBe(false)
    gates[0]?.(new Set())
    await clock.pass(1)
    expect(held.turns[0]?.signal.aborted).toBe(true)
    expect(absolved).toEqual([])
  })
})

describe('the timers of a worker', () => {
  /** Notes for how long they are set. */
  function timed() {
    const set: number[] = []
    const idly: typeof clock.idly = (ms, fn) => {
      set.push(ms)
      return clock.idly(ms, fn)
    }
    return { set, timing: { ...clock, idly } }
  }

  it('are set for the polls, which are spread around their interval, and for nothing without an end', async () => {
    const { set, timing } = timed()
    await engineOn({ clock: timing, pollMs: 100, statsMs: 0, leaseMs: 40_000 }).serve(heldTurn().run)
    for (let i = 0; i < 100; i++) await clock.pass(50)
    const polls = set.filter((ms) => ms !== 500 && ms < 10_000)
    expect(polls.length).toBeGreaterThan(30)
    for (const ms of set) expect(ms).toBeGreaterThan(0)
    for (const ms of polls) {
      expect(ms).toBeGreaterThanOrEqual(80)
      expect(ms).toBeLessThanOrEqual(120)
    }
  })

  it('all end with it', async () => {
    const pending = new Set<object>()
    const idly: typeof clock.idly = (ms, fn) => {
      const timer = {}
      pending.add(timer)
      const cancel = clock.idly(ms, () => {
        pending.delete(timer)
        fn()
      })
      return () => {
        pending.delete(timer)
        cancel()
      }
    }
    const held = heldTurn()
    const engine = engineOn({ clock: { ...clock, idly } })
    const serving = await engine.serve(held.run)
    await engine.create(newTask())
    await clock.pass(1)
    held.end(0, complete('done'))
    await clock.pass(1)
    expect(pending.size).toBeGreaterThan(0)
    await serving.stop()
    expect(pending.size).toBe(0)
  })

  it('are not set once it has stopped, whatever the store says then', async () => {
    const { set, timing } = timed()
    let say = (_ms: number) => {}
    const nextDueMs = () =>
      new Promise<number>((resolve) => {
        say = resolve
      })
    const serving = await engineOn({ clock: timing }, broken({ nextDueMs })).serve(heldTurn().run)
    await clock.pass(1)
    await serving.stop()
    set.length = 0
    say(10)
    await clock.pass(1)
    expect(set).toEqual([])
  })
})

describe('a lease that is only checked', () => {
  it('E9 is no longer than since its last renewal', async () => {
    const engine = engineOn({}, broken({ renew: noDatabase }))
    const held = heldTurn()
    await engine.serve(held.run)
    await clock.pass(100)
    await engine.create(newTask())
    await clock.pass(LEASE - 50)
    expect(held.turns[0]?.signal.aborted).toBe(false)
    await clock.pass(500)
    expect(held.turns[0]?.signal.aborted).toBe(true)
  })

  it('is not kept for a turn that has ended meanwhile', async () => {
    const gates: (() => void)[] = []
    let asked = 0
    const renew: Store['tasks']['renew'] = async (fences, leaseMs) => {
      asked += 1
      const renewed = await store.tasks.renew(fences, leaseMs)
      await new Promise<void>((resolve) => gates.push(resolve))
      return renewed
    }
    const engine = engineOn({}, broken({ renew }))
    const held = heldTurn()
    await engine.serve(held.run)
    await engine.create(newTask())
    await clock.pass(3_000)
    expect(asked).toBe(1)
    held.end(0, complete('done'))
    await clock.pass(1)
    for (const open of gates) open()
    await clock.pass(10_000)
    expect(asked).toBe(1)
  })

  it('is asked about once at a time', async () => {
    let asked = 0
    const ask = () => {
      asked += 1
      return new Promise<ReadonlySet<string>>(() => {})
    }
    const engine = engineOn({}, broken({ held: ask, renew: ask }))
    await engine.serve(heldTurn().run)
    await engine.create(newTask())
    await clock.pass(3_000)
    expect(asked).toBe(1)
  })
})

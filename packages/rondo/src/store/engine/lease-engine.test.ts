/** The engine by a clock that is turned by hand, over the store in memory. */

import { beforeEach, describe, expect, it } from 'vitest'
import { createEngineBench, LEASE } from '../../../../../test/support/store/engine-bench.ts'
import { complete, heldTurn } from '../../../../../test/support/store/held-turn.ts'
import { alice, answers, inputs, newTask } from '../../../../../test/support/store/store-harness.ts'
import { createMemoryStore } from '../memory/store.ts'
import type { Store } from '../store.ts'

let { clock, store, events, kinds, engineOn, broken } = createEngineBench()
beforeEach(() => {
  ;({ clock, store, events, kinds, engineOn, broken } = createEngineBench())
})

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

  it('are looked after only while the process holds one', async () => {
    let wakes = 0
    const idly: typeof clock.idly = (ms, fn) =>
      clock.idly(ms, () => {
        wakes += ms === 500 ? 1 : 0
        fn()
      })
    const engine = engineOn({ clock: { ...clock, idly } })
    const held = heldTurn()
    await engine.serve(held.run)
    await clock.pass(LEASE)
    expect(wakes).toBe(0)
    await engine.create(newTask())
    await clock.pass(LEASE)
    expect(wakes).toBeGreaterThanOrEqual(LEASE / 500 - 1)
    held.end(0, complete('done'))
    await clock.pass(1_000)
    const before = wakes
    await clock.pass(LEASE)
    expect(wakes).toBe(before)
  })

  it('E9 that cannot be renewed end the turn by our own clock, before another worker can start', async () => {
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
    const lost = { kind: 'lost', id: held.turns[0]?.task.id, reason: 'lease ran out' }
    expect(events).toContainEqual(expect.objectContaining(lost))
  })

  it('free the slot of a handler that ignores its signal after a grace period', async () => {
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

describe('a turn whose end could not be written', () => {
  it('E9 is released once the store is back, long before its lease runs out', async () => {
    let fails = true
    const settle: Store['tasks']['settle'] = (...given) =>
      fails ? Promise.reject(new Error('no database')) : store.tasks.settle(...given)
    const engine = engineOn({ pollMs: 200 }, broken({ settle }))
    const at: number[] = []
    await engine.serve(async () => {
      at.push(clock.now())
      return complete('done')
    })
    const { id } = await engine.create(newTask())
    await clock.pass(1)
    fails = false
    await clock.pass(LEASE / 3)
    expect(at).toHaveLength(2)
    expect(await engine.get(id, alice)).toMatchObject({ status: 'completed', result: 'done' })
    expect(events.find((event) => event.kind === 'began' && event.failures > 0)).toMatchObject({
      failures: 1,
    })
  })
})

describe('turns', () => {
  it('run up to the concurrency limit, and the rest after them', async () => {
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

  it('are claimed for all free slots when nobody knows how many are due, and else for as many as are due', async () => {
    const asked: number[] = []
    const claim: Store['tasks']['claim'] = (worker, leaseMs, count) => {
      asked.push(count)
      return store.tasks.claim(worker, leaseMs, count)
    }
    const engine = engineOn({}, broken({ claim }))
    const held = heldTurn()
    const serving = await engine.serve(held.run, { concurrency: 3 })
    await clock.pass(1)
    expect(asked).toEqual([3])
    // Claimed by the write that creates it, as long as a slot is free.
    for (let i = 0; i < 5; i++) await engine.create(newTask())
    await clock.pass(1)
    expect([held.turns.length, asked]).toEqual([3, [3]])
    held.end(0, complete('done'))
    held.end(1, complete('done'))
    await clock.pass(1)
    expect(held.turns).toHaveLength(5)
    expect(asked.slice(1)).toEqual([2])
    for (let i = 2; i < 5; i++) held.end(i, complete('done'))
    await serving.stop()
  })

  it('of tasks that wait go first: one created because a turn ended does not take their slot', async () => {
    const held = heldTurn()
    const next = newTask()
    const engine = engineOn({
      onEvent(event) {
        if (event.kind === 'turn' && held.turns.length === 1) void engine.create(next)
      },
    })
    await engine.serve(held.run, { concurrency: 1 })
    await clock.pass(1)
    await engine.create(newTask())
    const { id } = await engine.create(newTask())
    held.end(0, complete('done'))
    await clock.pass(1)
    expect(held.turns.map(({ task }) => task.id).slice(1)).toEqual([id])
    held.end(1, complete('done'))
    await clock.pass(1)
    expect(held.turns[2]?.task.id).toBe(next.id)
  })

  it('append entries in order, and share a write between entries that wait', async () => {
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

  it('end when an entry could not be written', async () => {
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

  it('fail if they park on nothing or on a used key', async () => {
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

  it('D2 set the status message', async () => {
    const engine = engineOn()
    const held = heldTurn()
    await engine.serve(held.run)
    const { id } = await engine.create(newTask({ message: 'begun' }))
    await clock.pass(1)
    await held.turns[0]?.status('half way')
    expect(await engine.get(id, alice)).toMatchObject({ status: 'working', message: 'half way' })
  })
})

describe('a turn whose outcome is being written', () => {
  /** An engine whose store keeps outcomes waiting until `write`. */
  const slowly = () => {
    const waiting: (() => void)[] = []
    const settle: Store['tasks']['settle'] = async (...given) => {
      await new Promise<void>((resolve) => waiting.push(resolve))
      return store.tasks.settle(...given)
    }
    const write = () => {
      for (const resolve of waiting.splice(0)) resolve()
    }
    return { engine: engineOn({}, broken({ settle })), write }
  }

  it('takes no slot: the next task is claimed meanwhile', async () => {
    const { engine, write } = slowly()
    const held = heldTurn()
    const serving = await engine.serve(held.run, { concurrency: 1 })
    await engine.create(newTask())
    await engine.create(newTask())
    await clock.pass(1)
    expect(held.turns).toHaveLength(1)
    held.end(0, complete('done'))
    await clock.pass(1)
    expect(held.turns).toHaveLength(2)
    held.end(1, complete('done'))
    await clock.pass(1)
    write()
    await serving.stop()
  })

  it('R11 counts where the store cannot keep up: no more of them pile up than there are slots', async () => {
    const { engine, write } = slowly()
    let turns = 0
    const serving = await engine.serve(
      async () => {
        turns++
        return complete('done')
      },
      { concurrency: 2 },
    )
    for (let i = 0; i < 9; i++) await engine.create(newTask())
    await clock.pass(1000)
    expect(turns).toBe(4)
    write()
    await clock.pass(1)
    expect(turns).toBe(8)
    write()
    await clock.pass(1)
    write()
    await serving.stop()
    expect(turns).toBe(9)
  })
})

describe('failures', () => {
  it('are retried with exponential backoff, and reset when an entry is recorded', async () => {
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

  it('of the process count too: a task that kills every worker fails', async () => {
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

describe('engine.create', () => {
  it('T18 refuses more open tasks than an owner may have', async () => {
    const engine = engineOn({ maxOpenTasks: 2 })
    await engine.create(newTask())
    await engine.create(newTask())
    await expect(engine.create(newTask())).rejects.toMatchObject({ code: 'LIMIT_TASKS', http: 429 })
  })

  it('T18 refuses more than a hundred open tasks of an owner unless told otherwise', async () => {
    const engine = engineOn()
    for (let i = 0; i < 100; i++) await engine.create(newTask())
    await expect(engine.create(newTask())).rejects.toMatchObject({ code: 'LIMIT_TASKS' })
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
  it('E6 that cannot be task ids are unknown without a query', async () => {
    const touched = async () => Promise.reject(new Error('asked the store'))
    const engine = engineOn({}, broken({ get: touched, deliver: touched, cancel: touched }))
    for (const id of ['', 'x', `${'x'.repeat(22)}\0`, '../../etc', 'x'.repeat(513)]) {
      expect(await engine.get(id, alice)).toBeUndefined()
      expect(await engine.deliver(id, alice, answers({ a: '1' }))).toBe('unknown')
      expect(await engine.cancel(id, alice)).toBe('unknown')
    }
  })

  it('E3 that no store can hold are ignored like other unknown keys', async () => {
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

describe('a task that is due at a time', () => {
  /** A store may leave out its hints. */
  const onHint = () => () => {}

  it('G1 is claimed then, long after the claim of the turn in which it parked', async () => {
    const engine = engineOn({ pollMs: 60_000 }, broken({ onHint }))
    const held = heldTurn()
    await engine.serve(held.run)
    await clock.pass(1)
    await engine.create(newTask())
    await clock.pass(500)
    held.end(0, { kind: 'park', inputs: inputs(), wakeAt: clock.now() + 1000 })
    await clock.pass(950)
    expect(held.turns).toHaveLength(1)
    await clock.pass(100)
    expect(held.turns).toHaveLength(2)
  })

  it('G1 is the only one whose park has the worker look for the next due task', async () => {
    const { nextDueMs } = store.tasks
    let looks = 0
    const counted: Store['tasks']['nextDueMs'] = (ms) => {
      looks += 1
      return nextDueMs(ms)
    }
    const engine = engineOn({ pollMs: 60_000 }, broken({ onHint, nextDueMs: counted }))
    const held = heldTurn()
    await engine.serve(held.run)
    for (let i = 0; i < 3; i++) await engine.create(newTask())
    await clock.pass(500)
    const before = looks
    held.end(0, { kind: 'park', inputs: inputs('name') })
    held.end(1, complete('done'))
    await clock.pass(50)
    expect(looks).toBe(before)
    held.end(2, { kind: 'park', inputs: inputs(), wakeAt: clock.now() + 1000 })
    await clock.pass(50)
    expect(looks).toBe(before + 1)
  })

  it('G1 is claimed then, although it parked while the next due task was being looked for', async () => {
    let stale = () => {}
    const early = new Promise<undefined>((resolve) => {
      stale = () => resolve(undefined)
    })
    const nextDueMs = store.tasks.nextDueMs
    let looks = 0
    const engine = engineOn(
      { pollMs: 60_000 },
      broken({ nextDueMs: (ms) => (looks++ === 0 ? early : nextDueMs(ms)) }),
    )
    const turns: number[] = []
    await engine.serve(async ({ number, claimedAt }) => {
      turns.push(number)
      if (number > 1) return complete('awake')
      return { kind: 'park', inputs: inputs(), wakeAt: claimedAt + 1000 }
    })
    await clock.pass(1)
    const { id } = await engine.create(newTask())
    await clock.pass(1)
    stale()
    await clock.pass(1000)
    expect(looks).toBeGreaterThan(1)
    expect(turns).toEqual([1, 2])
    expect(await engine.get(id, alice)).toMatchObject({ status: 'completed' })
  })

  it('G1 is claimed although the alarm rang a millisecond before its time', async () => {
    let early = 0
    const before = createMemoryStore({ now: () => clock.now() - early })
    const claim: Store['tasks']['claim'] = async (...given) => {
      early = 1
      const leases = await before.tasks.claim(...given)
      early = 0
      return leases
    }
    const engine = engineOn({ pollMs: 60_000 }, { ...before, tasks: { ...before.tasks, claim } })
    const at: number[] = []
    await engine.serve(async ({ number, claimedAt }) => {
      at.push(clock.now())
      if (number > 1) return complete('awake')
      return { kind: 'park', inputs: inputs(), wakeAt: claimedAt + 1000 }
    })
    await clock.pass(1)
    await engine.create(newTask())
    await clock.pass(2000)
    expect(at).toHaveLength(2)
    expect((at[1] ?? 0) - (at[0] ?? 0)).toBeLessThan(1200)
  })

  it('G1 is claimed although another one, due at a time that just came, was claimed in its place', async () => {
    let ahead = 0
    const sooner = createMemoryStore({ now: () => clock.now() + ahead })
    const engine = engineOn({ pollMs: 60_000 }, sooner)
    const held = heldTurn()
    await engine.serve(
      async (turn) =>
        turn.task.head === 'sleeps' && turn.number === 1
          ? { kind: 'park', inputs: inputs(), wakeAt: turn.claimedAt + 1000 }
          : held.run(turn),
      { concurrency: 1 },
    )
    await clock.pass(1)
    const sleeper = await engine.create(newTask({ head: 'sleeps' }))
    await clock.pass(1)
    await engine.create(newTask())
    // By the store's clock, the one that sleeps is due; the alarm has not rung yet.
    ahead = 2000
    const { id } = await engine.create(newTask())
    held.end(0, complete('done'))
    await clock.pass(1)
    expect(held.turns[1]?.task.id).toBe(sleeper.id)
    held.end(1, complete('done'))
    await clock.pass(100)
    expect(held.turns[2]?.task.id).toBe(id)
  })

  it('R11 does not keep the worker busy if it is due and no claim returns it, or every claim fails', async () => {
    for (const outcome of [async () => [], () => Promise.reject(new Error('a row that cannot be read'))]) {
      let claims = 0
      const claim: Store['tasks']['claim'] = () => {
        claims += 1
        return outcome()
      }
      const pollMs = 1_000
      const engine = engineOn({ pollMs }, broken({ claim, nextDueMs: async () => 0 }))
      const serving = await engine.serve(heldTurn().run)
      await clock.pass(pollMs)
      const atFirst = claims
      expect(atFirst).toBeGreaterThan(2)
      await clock.pass(20 * pollMs)
      // One per poll, and one per alarm.
      expect(claims - atFirst).toBeLessThan(60)
      await serving.stop()
    }
  })

  it('G1 is claimed at its time although the store failed when it was asked for the next one', async () => {
    const { nextDueMs } = store.tasks
    let fails = false
    const engine = engineOn(
      { pollMs: 60_000 },
      broken({ nextDueMs: (ms) => (fails ? Promise.reject(new Error('no database')) : nextDueMs(ms)) }),
    )
    const turns: string[] = []
    await engine.serve(async ({ task, number, claimedAt }) => {
      turns.push(`${task.head} ${number}`)
      if (task.head !== 'sleeps' || number > 1) return complete('')
      return { kind: 'park', inputs: inputs(), wakeAt: claimedAt + 1000 }
    })
    await clock.pass(1)
    await engine.create(newTask({ head: 'sleeps' }))
    await clock.pass(1)
    fails = true
    await engine.create(newTask({ head: 'other' }))
    await store.tasks.create(newTask({ head: 'from elsewhere' }), 10)
    await clock.pass(1)
    fails = false
    expect(kinds()).toContain('store-error')
    await clock.pass(1000)
    expect(turns).toEqual(['sleeps 1', 'other 1', 'from elsewhere 1', 'sleeps 2'])
  })
  it('is not looked for by a worker that has stopped, whose store may be closed', async () => {
    for (const stops of [false, true]) {
      events.length = 0
      let fail = (_error: Error) => {}
      const nextDueMs = () =>
        new Promise<undefined>((_resolve, reject) => {
          fail = reject
        })
      const serving = await engineOn({}, broken({ nextDueMs })).serve(heldTurn().run)
      await clock.pass(1)
      if (stops) await serving.stop()
      fail(new Error('This store is closed'))
      await clock.pass(1)
      expect(kinds().includes('store-error')).toBe(!stops)
      await serving.stop()
    }
  })
})

/** The contract of every engine, by a real clock: turns, answers, takeovers, cancellation, watching. */

import assert from 'node:assert/strict'
import type {
  EngineEvent,
  RunTurn,
  Serving,
  TaskEngine,
  TaskTurn,
  TaskTurnOutcome,
  TaskView,
} from 'rondo/store'
import {
  afterEach,
  alice,
  answers,
  assertEqual,
  assertMatch,
  beforeEach,
  bob,
  type ContractEngineOptions,
  type EngineHarness,
  type EngineSite,
  inputs,
  it,
  newTask,
  until,
} from './harness.ts'

const complete = (result: string): TaskTurnOutcome => ({ kind: 'complete', result })

/** Steps, then a question, then a step: what a handler with one `ask` does. */
const greet: RunTurn = async (turn) => {
  if (turn.journal.length === 0) await turn.record('looked up')
  const name = turn.answers.get('name')
  if (name === undefined) return { kind: 'park', inputs: inputs('name') }
  await turn.record(`heard ${name}`)
  return complete(`hello ${name}`)
}

export function describeEngineContract(harness: EngineHarness): void {
  let site: EngineSite
  let servings: Serving[]
  beforeEach(async () => {
    site = await harness.create()
    servings = []
  })
  afterEach(async () => {
    await Promise.all(servings.map((serving) => serving.stop()))
    await site.close()
  })

  const engineOn = (options: ContractEngineOptions = {}): TaskEngine =>
    site.open({ leaseMs: 2_000, ...options })
  const serve = async (engine: TaskEngine, run: RunTurn, concurrency = 16) => {
    const serving = await engine.serve(run, { concurrency, drainMs: 3_000 })
    servings.push(serving)
    return serving
  }
  const ended = (engine: TaskEngine, id: string): Promise<TaskView> =>
    until('the end of the task', async () => {
      const view = await engine.get(id, alice)
      return view && !['working', 'input_required'].includes(view.status) ? view : undefined
    })
  const waits = (engine: TaskEngine, id: string): Promise<TaskView> =>
    until('a question', async () => {
      const view = await engine.get(id, alice)
      return view?.status === 'input_required' ? view : undefined
    })

  for (const contact of ['get', 'watch', 'deliver'] as const) {
    it(`R6 holds a task until its owner names it, with ${contact}, and continues from its journal`, async () => {
      const turns: string[] = []
      const engine = engineOn({ onEvent: (event) => event.kind === 'turn' && turns.push(event.outcome) })
      let held = 0
      await serve(engine, async (turn) => {
        if (turn.journal.length === 0) await turn.record('a step')
        if (turn.task.known) return complete(turn.journal.join())
        held++
        return { kind: 'hold' }
      })
      const task = newTask({ known: false })
      await engine.create(task)
      await until('the hold', () => turns.includes('hold'))
      // Listing does not name a task.
      assertMatch(await engine.list(alice, { limit: 10 }), [{ status: 'working', known: false }])
      await engine.get(task.id, bob)
      assertMatch(await engine.list(alice, { limit: 10 }), [{ status: 'working', known: false }])
      assert.equal(held, 1)
      if (contact === 'get') await engine.get(task.id, alice)
      if (contact === 'deliver') await engine.deliver(task.id, alice, answers({ nothing: 'x' }))
      if (contact === 'watch') {
        const seen = await new Promise<string | undefined>((resolve) => {
          void engine.watch([task.id], alice, (_, view) => view?.result && resolve(view.result))
        })
        assert.equal(seen, 'a step')
      }
      assertMatch(await ended(engine, task.id), { status: 'completed', result: 'a step' })
      assert.equal(held, 1)
    })
  }

  it('T18 keeps as many ended tasks of an owner as it may, those that ended last', async () => {
    const engine = engineOn({ maxEndedTasks: 2 })
    await serve(engine, async (turn) => complete(turn.task.head))
    const other = engineOn({ maxEndedTasks: 2 })
    const idsOf = async (owner = alice) => (await other.list(owner, { limit: 10 })).map(({ id }) => id)
    const foreign = await engine.create(newTask({ owner: bob }))
    const ids: string[] = []
    for (let i = 0; i < 4; i++) {
      const { id } = await engine.create(newTask())
      ids.push(id)
      await ended(engine, id)
    }
    const cancelled = await engine.create(newTask({ known: false }))
    await engine.cancel(cancelled.id, alice)
    await until('the others to be deleted', async () => (await idsOf()).length <= 2)
    assertEqual(new Set(await idsOf()), new Set([ids[3], cancelled.id]))
    assertEqual(await idsOf(bob), [foreign.id])
  })

  it('G3 G4 brings answers and events to a turn that runs on, from any instance', async () => {
    const engine = engineOn()
    await serve(engine, async (turn) => {
      const got: string[] = []
      const all = new Promise<void>((resolve) =>
        turn.onAnswers(({ key, answer }) => {
          if (got.push(`${key}: ${answer}`) === 2) resolve()
          return true
        }),
      )
      await turn.publish({ open: [{ key: 'name', request: 'who?' }] })
      await turn.publish({ open: [{ key: 'paid', role: 'hook', request: 'schema' }] })
      await all
      return complete(got.join())
    })
    const { id } = await engine.create(newTask())
    const other = engineOn()
    const { inputs: shown } = await waits(other, id)
    assertEqual(shown, new Map([['name', 'who?']]))
    await other.deliver(id, alice, answers({ name: 'Ann' }))
    await until('the event', async () => (await other.deliverHook(id, alice, 'paid', 'yes')) === 'accepted')
    assertMatch(await ended(other, id), { result: 'name: Ann,paid: yes' })
  })

  it('G4 is due again at once if a turn parks that did not take an answer', async () => {
    const engine = engineOn()
    const other = engineOn()
    let refused = 0
    await serve(engine, async (turn) => {
      const name = turn.answers.get('name')
      if (name !== undefined) return complete(name)
      const arrived = new Promise<void>((resolve) =>
        turn.onAnswers(() => {
          refused++
          resolve()
          return false
        }),
      )
      await turn.publish({ open: [{ key: 'name', request: 'who?' }] })
      await arrived
      return { kind: 'park', inputs: inputs('another') }
    })
    const { id } = await engine.create(newTask())
    await waits(other, id)
    await other.deliver(id, alice, answers({ name: 'Ann' }))
    assertMatch(await ended(other, id), { result: 'Ann' })
    assert.ok(refused > 0)
  })

  it('D5 runs a task, parks it at a question, and continues where it stopped', async () => {
    const engine = engineOn()
    await serve(engine, greet)
    const { id } = await engine.create(newTask())
    assertEqual((await waits(engine, id)).inputs, inputs('name'))
    assert.equal(await engine.deliver(id, alice, answers({ name: 'Ada' })), 'resumed')
    assertMatch(await ended(engine, id), { status: 'completed', result: 'hello Ada' })
  })

  it('G1 lets a task live for as long as it waits', async () => {
    const engine = engineOn()
    const liveUntil = Date.now() + 90 * 86_400_000
    await serve(engine, async () => ({ kind: 'park', inputs: inputs('name'), liveUntil }))
    const { id, expiresAt } = await engine.create(newTask())
    assert.ok(expiresAt < liveUntil)
    assertMatch(await waits(engine, id), { expiresAt: liveUntil })
  })

  it('finishes tasks whose answers arrive as soon as the question is visible', async () => {
    const engine = engineOn()
    await serve(engine, greet)
    const tasks = Array.from({ length: 60 }, () => newTask())
    await Promise.all(
      tasks.map(async (task) => {
        await engine.create(task)
        await waits(engine, task.id)
        await engine.deliver(task.id, alice, answers({ name: task.id }))
        assert.equal((await ended(engine, task.id)).result, `hello ${task.id}`)
      }),
    )
  })

  it('another process finishes parked tasks after a restart, with newer code', async () => {
    const before = engineOn()
    const serving = await serve(before, greet)
    const { id } = await before.create(newTask())
    await waits(before, id)
    await serving.stop()
    const after = engineOn()
    await serve(after, async (turn) => {
      await turn.record('v2')
      return complete(`v2 ${turn.journal.join()} ${turn.answers.get('name')}`)
    })
    assert.equal(await after.deliver(id, alice, answers({ name: 'Ada' })), 'resumed')
    assert.equal((await ended(after, id)).result, 'v2 looked up Ada')
  })

  if (harness.vanishes) {
    it('E9 continues the task of a worker without a heartbeat from its journal', async () => {
      const engine = engineOn()
      const { id } = await engine.create(newTask())
      if (site.vanish === undefined) throw new Error('The harness says vanishes, but its site has no vanish')
      await site.vanish(id, ['looked up'])
      const seen: (readonly string[])[] = []
      await serve(engine, async (turn) => {
        seen.push(turn.journal)
        return complete(`failures ${turn.task.failures}`)
      })
      assert.equal((await ended(engine, id)).result, 'failures 1')
      assertEqual(seen, [['looked up']])
    })
  }

  it('aborts a running turn after its task is cancelled elsewhere, long before its lease ends', async () => {
    const engine = engineOn({ leaseMs: 60_000 })
    let turn: TaskTurn | undefined
    await serve(engine, (one) => {
      turn = one
      return new Promise((_, reject) => {
        one.signal.addEventListener('abort', () => reject(one.signal.reason))
      })
    })
    const { id } = await engine.create(newTask())
    const running = await until('the turn', () => turn)
    assert.equal(await engineOn().cancel(id, alice), 'cancelled')
    await until('the signal', () => running.signal.aborted)
    await assert.rejects(running.record('too late'), { code: 'STORE_LEASE_LOST' })
    assert.equal((await engine.get(id, alice))?.status, 'cancelled')
  })

  it('fails a task whose turns always throw, without revealing why', async () => {
    const events: EngineEvent[] = []
    const engine = engineOn({ maxFailures: 3, backoffMs: () => 5, onEvent: (event) => events.push(event) })
    let turns = 0
    await serve(engine, async () => {
      turns++
      throw new Error('always')
    })
    const { id } = await engine.create(newTask())
    assertMatch(await ended(engine, id), { status: 'failed', error: undefined })
    assert.equal(turns, 3)
    assertMatch(
      events.filter(({ kind }) => kind === 'gave-up'),
      [{ kind: 'gave-up', id, failures: 3 }],
    )
  })

  it('two workers share the tasks', async () => {
    const engines = [engineOn(), engineOn()]
    const counts = [0, 0]
    await Promise.all(
      engines.map((engine, i) =>
        serve(
          engine,
          async () => {
            counts[i] = (counts[i] ?? 0) + 1
            await new Promise((resolve) => setTimeout(resolve, 20))
            return complete('done')
          },
          4,
        ),
      ),
    )
    const tasks = Array.from({ length: 80 }, () => newTask())
    const [engine] = engines as [TaskEngine]
    await Promise.all(tasks.map((task) => engine.create(task)))
    await Promise.all(tasks.map(({ id }) => ended(engine, id)))
    assert.equal((counts[0] ?? 0) + (counts[1] ?? 0), 80)
    assert.ok(Math.min(...counts) > 8)
  })

  it('releases tasks on stop: another worker continues at once, and no failure is counted', async () => {
    const [first, second] = [engineOn({ leaseMs: 60_000 }), engineOn()]
    let running = false
    const serving = await serve(first, async (turn) => {
      await turn.record('half')
      running = true
      await new Promise((resolve) => turn.draining.addEventListener('abort', resolve))
      return { kind: 'release' }
    })
    const { id } = await first.create(newTask())
    await until('the turn', () => running)
    await serve(second, async ({ journal, task }) => complete(`${journal.join()} ${task.failures}`))
    await serving.stop()
    assert.equal((await ended(second, id)).result, 'half 0')
  })

  it('releases the task of a turn that does not end in time', async () => {
    const engine = engineOn({ leaseMs: 60_000 })
    let reason: unknown
    let began = false
    const serving = await engine.serve(
      (turn) =>
        new Promise(() => {
          began = true
          turn.signal.addEventListener('abort', () => (reason = turn.signal.reason))
        }),
      { drainMs: 50 },
    )
    const { id } = await engine.create(newTask())
    await until('the turn', () => began)
    await serving.stop()
    assertMatch(reason, { code: 'STORE_LEASE_LOST' })
    await serve(engine, async ({ task }) => complete(`failures ${task.failures}`))
    assert.equal((await ended(engine, id)).result, 'failures 0')
  })

  it('E4 watchers in other processes see every status in order, including the last', async () => {
    const engine = engineOn()
    await serve(engine, greet)
    const watching = engineOn()
    const { id } = await engine.create(newTask())
    const seen: TaskView[] = []
    const stop = await watching.watch([id], alice, (_, view) => view && seen.push(view))
    await until('the question', () => seen.some(({ status }) => status === 'input_required'))
    await engine.deliver(id, alice, answers({ name: 'Ada' }))
    await until('the end', () => seen.some(({ status }) => status === 'completed'))
    stop()
    const revisions = seen.map(({ revision }) => revision)
    assertEqual(
      revisions,
      [...new Set(revisions)].sort((a, b) => a - b),
    )
    assertMatch(seen.at(-1), { status: 'completed', result: 'hello Ada' })
  })

  it('E6 a watcher sees nothing of a task of another owner', async () => {
    const engine = engineOn()
    const { id } = await engine.create(newTask())
    const seen: unknown[] = []
    await engine.watch([id], { ...alice, principal: 'bob' }, (_, view) => seen.push(view))
    assertEqual(seen, [undefined])
  })
}

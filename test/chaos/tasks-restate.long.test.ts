/**
 * Tasks on Restate while its nodes and the workers are killed and frozen. The long form, three nodes and 200 kills, runs
 * with `npm run test:chaos`; a short one on a single node with every `npm test`.
 */

import { afterAll, afterEach, beforeAll, expect, it } from 'vitest'
import { createTaskId, type TaskEngine, type TaskView } from '../../packages/rondo/src/store/task-engine.ts'
import { seededRandom, testSeed } from '../../packages/store-kit/src/harness.ts'
import { describeRestate } from '../support/restate/cases-in-process.ts'
import { type RestateCrew, startRestateCrew } from '../support/restate/crew.ts'
import { startRestate, type TestRestate } from '../support/restate/server.ts'
import type { RestatePlan } from '../support/restate/worker.ts'
import { alice, newTask, until } from '../support/store/store-harness.ts'
import { useCliHome } from '../support/use-cli.ts'

const LONG = process.env.RONDO_LONG !== undefined
/** For trying the long form in a shorter time. */
const KILLS = Number(process.env.RONDO_KILLS ?? 200)
const home = useCliHome()
/** A busy machine takes long to elect the next leader of a partition. */
const PATIENCE_MS = 1_200_000
const TIMEOUT = LONG ? 7_200_000 : 600_000

describeRestate('tasks on Restate', () => {
  let restate: TestRestate
  let crew: RestateCrew
  let engine: TaskEngine
  beforeAll(async () => {
    restate = await startRestate({ nodes: LONG ? 3 : 1 })
  })
  afterAll(() => restate?.stop())
  afterEach(() => crew?.stop())

  const start = async (options: Parameters<typeof startRestateCrew>[1]) => {
    crew = await startRestateCrew(restate, options)
    engine = crew.store.createEngine({ maxOpenTasks: Number.POSITIVE_INFINITY })
  }
  const create = async (plan: RestatePlan, id = createTaskId()) => {
    await engine.create(newTask({ id, head: JSON.stringify(plan) }))
    return id
  }
  const ended = (id: string): Promise<TaskView> =>
    until('the end of the task', async () => {
      const view = await engine.get(id, alice).catch(() => undefined)
      return view?.status === 'completed' || view?.status === 'failed' ? view : undefined
    })
  const damage = () => [...crew.accepted].filter(([, count]) => count > 1).map(([what]) => what)
  const effectsOf = (id: string, steps: number) =>
    Array.from({ length: steps }, (_, step) => crew.applied.get(`${id}/${step}`))

  it('E9 J3 after kill -9 in the middle of a step, another worker continues from the journal', async () => {
    await start({ size: 2 })
    const id = createTaskId()
    const began = crew.began(id, 1)
    await create({ steps: 3, stepMs: 50 }, id)
    const first = await began
    first.signal('SIGKILL')
    const view = await ended(id)
    expect(view.status).toBe('completed')
    expect(JSON.parse(view.result ?? '')).toEqual(effectsOf(id, 3))
    expect(damage()).toEqual([])
  })

  it('E9 J3 a task that kills every process ends as failed, and the workers survive', async () => {
    await start({ size: 1, maxFailures: 3 })
    const [worker] = crew.workers
    const id = await create({ steps: 1, stepMs: 1, poison: true })
    for (let deaths = 0; deaths < 3; deaths++) {
      await worker?.ended()
      await worker?.start()
    }
    expect(await ended(id)).toMatchObject({ status: 'failed', error: undefined })
    expect(worker?.alive).toBe(true)
  })

  /** Freezes the worker of a task until another has finished it, then wakes it and lets it go on. */
  const freeze = async (fenced: boolean) => {
    await start({ size: 2, fenced })
    const id = createTaskId()
    const began = crew.began(id, 1)
    await create({ steps: 3, stepMs: 150 }, id)
    const frozen = await began
    frozen.signal('SIGSTOP')
    const view = await ended(id)
    frozen.signal('SIGCONT')
    // It continues its step and has time to do damage: it can still be stopped afterwards.
    await frozen.stop()
    return { id, view }
  }

  it('E9 P16 a frozen worker is fenced: what it writes after another took over has no effect', async () => {
    const { id, view } = await freeze(true)
    expect(JSON.parse(view.result ?? '')).toEqual(effectsOf(id, 3))
    expect(damage()).toEqual([])
    expect(await engine.get(id, alice)).toMatchObject({ status: 'completed', result: view.result })
  })

  it('P16 control: a frozen worker does damage if the objects do not check the epoch', async () => {
    await freeze(false)
    expect(damage().length).toBeGreaterThan(0)
  })

  it('J3 rondo tasks shows tasks that wait and run, through the admin API', async () => {
    await start({ size: 1 })
    const asks = await create({ steps: 1, stepMs: 1, askAt: 0 })
    await until('the question', async () => (await engine.get(asks, alice))?.status === 'input_required')
    const id = createTaskId()
    const began = crew.began(id, 0)
    await create({ steps: 1, stepMs: 60_000 }, id)
    await began
    const words = ['tasks', `restate+${restate.admin[0]}`, '--schema', crew.namespace]
    const { stdout, code } = await home.run(words)
    expect(code).toBe(0)
    expect(stdout.trimEnd().split('\n')).toHaveLength(3)
    expect(stdout).toMatch(new RegExp(`${asks} +input_required .* go `))
    expect(stdout).toMatch(new RegExp(`${id} +working `))
    expect((await home.run([...words, id])).stdout).toContain('working')
    expect(await home.json([...words, '--stats'])).toMatchObject({
      value: { stats: { due: 0, running: 1, parked: 1 } },
    })
    for (const worker of crew.workers) worker.signal('SIGKILL')
  })

  interface TroubleOptions {
    readonly kills: number
    readonly freezes: number
    readonly fenced: boolean
    readonly seed: number
  }

  /** Creates and answers tasks until all kills have happened; counts the outcomes. */
  const makeTrouble = async ({ kills, freezes, fenced, seed }: TroubleOptions) => {
    const random = seededRandom(seed)
    await start({ size: 3, fenced })
    const created: string[] = []
    let done = 0
    let over = false
    const plans: RestatePlan[] = [
      { steps: 3, stepMs: 5, askAt: 1 },
      { steps: 3, stepMs: 5, sleepAt: 2 },
      { steps: 3, stepMs: 20 },
    ]
    /** Repeats a request until it is acknowledged: the same id creates the same task. */
    const surely = (make: () => Promise<unknown>) =>
      until(
        'an acknowledgement',
        () =>
          make().then(
            () => true,
            () => false,
          ),
        PATIENCE_MS,
      )
    const drive = async () => {
      while (!over) {
        const plan = plans[created.length % plans.length] as RestatePlan
        const id = createTaskId()
        created.push(id)
        await surely(() => create(plan, id))
        await until(
          'the end of a task',
          async () => {
            const view = await engine.get(id, alice).catch(() => undefined)
            if (view?.status === 'input_required')
              await engine.deliver(id, alice, new Map([['go', 'yes']])).catch(() => {})
            else await new Promise((resolve) => setTimeout(resolve, 100))
            return view?.status === 'completed' || view?.status === 'failed'
          },
          PATIENCE_MS,
        )
        done++
      }
    }
    const killNode = async () => {
      const node = random.pick(restate.nodes)
      await node.kill()
      await node.start()
    }
    const killWorker = async () => {
      const worker = random.pick(crew.workers)
      worker.signal('SIGKILL')
      await worker.ended()
      await worker.start()
    }
    const freezeWorker = async () => {
      const id = createTaskId()
      const began = crew.began(id, 1)
      created.push(id)
      await surely(() => create({ steps: 3, stepMs: 300 }, id))
      const frozen = await began
      frozen.signal('SIGSTOP')
      await ended(id)
      frozen.signal('SIGCONT')
      done++
    }
    const counts = { nodes: 0, workers: 0, freezes: 0 }
    const trouble = async () => {
      for (let n = 0; n < kills; n++) {
        const before = done
        if (random.below(2) === 0) {
          await killNode()
          counts.nodes++
        } else {
          await killWorker()
          counts.workers++
        }
        // Something must go on in between, or the kills would hit nothing.
        await until('a task to end', () => done > before, PATIENCE_MS)
      }
      for (; counts.freezes < freezes; counts.freezes++) await freezeWorker()
      over = true
    }
    const drivers = Array.from({ length: 12 }, drive)
    await trouble().finally(() => {
      over = true
    })
    await Promise.all(drivers)
    const views = await Promise.all(created.map((id) => engine.get(id, alice)))
    // Late workers finish what they are at, so that they can do damage.
    await Promise.all(crew.workers.map((worker) => worker.stop()))
    const wrong = views.filter((view) => view?.result !== JSON.stringify(effectsOf(view?.id ?? '', 3)))
    return {
      seed,
      created: created.length,
      lost: created.filter((_, i) => views[i]?.status !== 'completed').length,
      wrong: wrong.length,
      doubled: damage().length,
      ...counts,
    }
  }

  it.runIf(LONG)(
    'E9 P16 J3 three nodes lose no task, and accept nothing twice, whatever is killed',
    { timeout: TIMEOUT },
    async () => {
      const report = await makeTrouble({ kills: KILLS, freezes: 6, fenced: true, seed: testSeed() })
      console.log(report)
      expect(report).toMatchObject({ lost: 0, wrong: 0, doubled: 0 })
      expect(report.nodes + report.workers).toBe(KILLS)
      expect(report.created).toBeGreaterThan(KILLS)
    },
  )

  it.runIf(LONG)(
    'P16 J3 control: a run with three nodes reports damage if the objects do not check the epoch',
    { timeout: TIMEOUT },
    async () => {
      const kills = Math.ceil(KILLS / 20)
      const report = await makeTrouble({ kills, freezes: 6, fenced: false, seed: testSeed() })
      console.log(report)
      expect(report.doubled + report.wrong).toBeGreaterThan(0)
    },
  )
})

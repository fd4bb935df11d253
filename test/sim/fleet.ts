/**
 * The instances of a service, the store that they share, and the outside world that their effects change. Every crossing of a
 * process boundary takes time, and is a place where the process may die or stand still.
 */

import type { Context, EffectInfo, Server } from 'rondo'
import type { Store } from 'rondo/store'
import type { About, Judge, Run, Sent } from './judge.ts'
import type { CallPlan, Plan } from './plan.ts'
import { execute, type Operations, type Question, type Work } from './program.ts'
import type { Runtime } from './runtime.ts'
import type { Process, World } from './world.ts'

export interface Instance {
  readonly process: Process
  readonly server: Server
  readonly release: 0 | 1
}

export interface Fleet {
  /** The instance that gets the next request, dead or alive. */
  balance(): Instance
  /** Work of an instance that ends here if it dies here. */
  crossing(process: Process): void
  /** No more faults: dead instances come back, and all of them run this release. */
  heal(): void
  /** False once the network, the store and the processes do what they should. */
  readonly faulty: boolean
  readonly requests: Map<string, Sent>
}

export const REQUEST = 'sim/request'
const ANSWER = { type: 'object', properties: { v: { type: 'string' } }, required: ['v'] } as const
/** Calls of the store that only look whether there is anything to do: too many for a fault in each to say much. */
const BORING = new Set([
  'claim',
  'nextDueMs',
  'renew',
  'stats',
  'sweep',
  'revisions',
  'trim',
  'epoch',
  'ready',
])

export function createFleet(runtime: Runtime, world: World, plan: Plan, judge: Judge): Fleet {
  const dice = world.dice('fleet')
  const requests = new Map<string, Sent>()
  const slots: Instance[] = []
  const keys = [runtime.generateKey('first'), runtime.generateKey('second')] as const
  const rings = [keys[0], keys.join(), [...keys].reverse().join()]
  const loaded = new Map<Process, number>()
  const downstream = new Map<string, string>()
  const hooks = new Set<string>()
  let phase = 0
  let crossings = 0
  let made = 0
  let changes = 0
  let database = createProcess('store', 0)
  /** Called when the store crashes: each breaks a connection. */
  const connections = new Set<() => void>()
  let release: 0 | 1 = 0
  const store = runtime.createMemoryStore({ now: () => world.now })
  const calls = new Map(plan.calls.map((call) => [call.id, call]))

  const latency = (): number => {
    const slow = fleet.faulty && dice.chance(plan.noise.slow)
    return slow ? dice.int(100, 8_000) : dice.next() * 10
  }

  const start = (slot: number): void => {
    const name = `i${++made}`
    const skewMs = dice.int(-plan.noise.skew, plan.noise.skew)
    const process = createProcess(name, skewMs)
    const outer = world.current
    world.current = process
    const ring = phase
    loaded.set(process, ring)
    const server = runtime.createServer({
      name: 'sim',
      version: '1.0.0',
      instance: name,
      keys: {
        refreshMs: 6_000,
        load() {
          loaded.set(process, phase)
          return runtime.parseKeys(rings[phase] ?? '')
        },
      },
      log: 'off',
      limits: { maxRounds: 200, maxMoves: 50 },
      store: connect(process),
      authenticate: ({ headers }) => ({ subject: headers('x-caller') ?? 'nobody' }),
    })
    const instance: Instance = { process, server, release }
    const running = release
    const handler = ({ call }: Record<string, unknown>, ctx: Context): Promise<string> =>
      handle(instance, calls.get(String(call)) ?? stranger(String(call)), ctx, running)
    server.tool('plain', {}, handler)
    server.tool('single', { once: true }, handler)
    server.tool('task', { task: 'auto' }, handler)
    server.tool('leaving', {}, handler)
    slots[slot] = instance
    // An instance looks for tasks from its first request on, even one that it refuses.
    void server.fetch(new Request('http://127.0.0.1/mcp', { method: 'POST' }))
    world.current = outer
  }

  const kill = (process: Process): void => {
    const slot = slots.findIndex((one) => one.process === process)
    process.alive = false
    if (slot >= 0)
      world.schedule(dice.int(200, 6_000), undefined, () => slots[slot]?.process === process && start(slot))
  }

  const crossing = (process: Process): void => {
    if (!fleet.faulty || !process.alive) return
    crossings++
    for (const fault of plan.faults) {
      if (!('crossing' in fault) || fault.crossing !== crossings) continue
      if (fault.kind === 'kill') kill(process)
      else process.frozenUntil = world.now + fault.ms
    }
  }

  /** The store as one process reaches it. */
  function connect(process: Process): Store {
    const port = <P extends object>(methods: P): P => {
      const wrap = ([name, method]: [string, unknown]): [string, unknown] => {
        if (typeof method !== 'function') return [name, method]
        return [name, (...args: unknown[]) => cross(process, !BORING.has(name), () => method(...args))]
      }
      return Object.fromEntries(Object.entries(methods).map(wrap)) as P
    }
    const onHint: Store['tasks']['onHint'] = (listener) =>
      store.tasks.onHint((hint) => {
        if (process.alive && !(fleet.faulty && dice.chance(plan.noise.lose)))
          world.schedule(latency(), process, () => listener(hint))
      })
    return {
      kind: 'memory',
      tasks: { ...port(store.tasks), pollMs: 8_000, onHint },
      once: port(store.once),
      blobs: port(store.blobs),
      ready: () => cross(process, false, store.ready),
      sweep: (limit) => cross(process, false, () => store.sweep(limit)),
      close: async () => {},
    }
  }

  /** Sends something out of the process and brings the outcome back. What was sent happens even if the process dies. */
  function cross<T>(process: Process, counts: boolean, act: () => T | Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      if (counts) crossing(process)
      if (!process.alive) return
      const drawn = fleet.faulty && counts ? dice.next() : 1
      const fails = drawn < plan.noise.storeFails
      const isDone = !fails || drawn < plan.noise.storeFails / 2
      const back = (settle: () => void): void => {
        world.schedule(latency(), process, () => {
          if (counts) crossing(process)
          if (process.alive) settle()
        })
      }
      const breaks = (): void => back(() => reject(new runtime.RondoError('STORE_UNAVAILABLE')))
      connections.add(breaks)
      world.schedule(latency(), database, async () => {
        try {
          const value = isDone ? await act() : undefined
          if (fails) breaks()
          else back(() => resolve(value as T))
        } catch (error) {
          back(() => reject(error))
        }
        connections.delete(breaks)
        if (counts) crashStore()
      })
    })
  }

  /** What the store has not done by now, and has not promised, is lost. */
  const crashStore = (): void => {
    changes++
    if (!fleet.faulty || !plan.faults.some((fault) => fault.kind === 'crash' && fault.change === changes))
      return
    database.alive = false
    database = createProcess('store', 0)
    for (const broken of [...connections]) broken()
    connections.clear()
  }

  /** Work that takes time and may be cut off at either end. */
  async function outside(process: Process, ms: number, act: () => string): Promise<string> {
    crossing(process)
    if (!process.alive) return new Promise(() => {})
    const value = await new Promise<string>((resolve) =>
      world.schedule(ms / 2, undefined, () => {
        const done = act()
        world.schedule(ms / 2, process, () => resolve(done))
      }),
    )
    crossing(process)
    return process.alive ? value : new Promise(() => {})
  }

  async function handle(instance: Instance, call: CallPlan, ctx: Context, running: 0 | 1): Promise<string> {
    const { process } = instance
    const run = judge.begin(call, ctx.flow, running, requests.get(String(ctx.meta[REQUEST])))
    const digest = await execute(call.releases[running], operationsOf(process, run, ctx))
    judge.returned(run, digest)
    return `${run.id} ${digest}`
  }

  function operationsOf(process: Process, run: Run, ctx: Context): Operations {
    const about = new Map<string, About>()
    const read = (outcome: { readonly action: string; readonly content?: unknown }): string =>
      outcome.action === 'accept' ? String((outcome.content as { v: unknown }).v) : outcome.action
    const question = ({ text }: Question) => ({ message: text, schema: ANSWER })
    const work = (node: Work): Promise<unknown> => {
      const { op, key, ms } = node
      if (op === 'sleep') return ctx.sleep(key, ms)
      if (op === 'step')
        return ctx.step(key, () => {
          judge.works(run, key, undefined, '', false)
          return outside(process, ms, () => (node.fails ? '!failed' : `${key}:${dice.int(0, 1e9)}`)).then(
            throwFailed,
          )
        })
      run.called.add(key)
      const branch = JSON.stringify([...run.received].sort())
      about.set(key, { branch })
      const act = ({ key: effectKey }: EffectInfo): Promise<string> => {
        judge.works(run, key, effectKey, branch, node.once)
        return outside(process, ms, () => {
          const value = downstream.get(effectKey) ?? `${key}:${dice.int(0, 1e9)}`
          downstream.set(effectKey, value)
          return value
        }).finally(() => judge.worked(run, key, effectKey))
      }
      return ctx.effect(key, act, { once: node.once })
    }
    return {
      async ask(node) {
        const kind = node.op === 'ask' ? node.kind : 'elicit'
        about.set(node.key, { kind, text: node.text })
        if (kind === 'confirm') return String(await ctx.confirm(node.key, node.text))
        if (kind === 'elicit') return read(await ctx.elicit(node.key, question(node)))
        const declined = (error: unknown): never => {
          throw new Error((error as Error).name === 'InputDeclined' ? 'declined' : String(error))
        }
        return read({ action: 'accept', content: await ctx.ask(node.key, question(node)).catch(declined) })
      },
      work: async (node) => String(await work(node)),
      async hook({ key }) {
        const { id, received } = await ctx.hook(key)
        announce(id)
        return { id, received: async () => String(await received()) }
      },
      offer(node) {
        about.set(node.key, { kind: 'elicit', text: node.text })
        about.set(`${node.key}.peek`, { kind: 'elicit', text: node.text })
        const offer = ctx.offer(node.key, question(node))
        const peek = (): string => {
          const outcome = offer.peek()
          if (outcome) run.received.set(node.key, read(outcome))
          return outcome ? read(outcome) : 'nothing'
        }
        return { peek, answer: async () => read(await offer), withdraw: offer.withdraw }
      },
      fixed: ({ key }) => [ctx.uuid(key), ctx.now(), ctx.random(), ctx.uuid()].join(),
      background: () => ctx.background(),
      checkpoint: () => ctx.checkpoint(),
      saw: (seen) => judge.saw(run, seen, about.get(seen.key) ?? {}),
    }
  }

  /** Delivers an event to a hook from outside, twice with different content; the hook keeps the first. */
  function announce(id: string): void {
    if (hooks.has(id)) return
    hooks.add(id)
    const deliver = (event: string): void => {
      const { process, server } = fleet.balance()
      // The sender repeats what was not acknowledged.
      const acknowledged = world.schedule(30_000, undefined, () => deliver(event))
      world.schedule(latency(), process, async () => {
        crossing(process)
        if (process.alive) await server.deliver(id, event).then(acknowledged, () => {})
      })
    }
    world.schedule(dice.int(10, 20_000), undefined, () => deliver('event'))
    world.schedule(dice.int(10, 40_000), undefined, () => deliver('other'))
  }

  const deploy = async (next: 0 | 1): Promise<void> => {
    release = next
    for (let slot = 0; slot < plan.instances; slot++) {
      const { process, server } = slots[slot] as Instance
      if (dice.chance(0.5)) world.schedule(0, process, () => void server.close())
      await world.sleep(dice.int(100, 4_000))
      if (slots[slot]?.process !== process) continue
      process.alive = false
      start(slot)
    }
  }
  /** Each phase begins when every instance has the keys of the one before. */
  const rotate = async (): Promise<void> => {
    for (phase = 1; ; phase = 2) {
      const isBehind = () => slots.some(({ process }) => (loaded.get(process) ?? 0) < phase)
      while (isBehind()) await world.sleep(1_000)
      if (phase === 2) return
    }
  }
  for (const fault of plan.faults) {
    if (!('atMs' in fault)) continue
    world.schedule(fault.atMs, undefined, () => {
      if (!fleet.faulty) return
      if (fault.kind === 'deploy') void deploy(fault.release)
      else if (fault.kind === 'rotate') void rotate()
      else void store.once.renewEpoch().then(() => judge.restored())
    })
  }

  let faulty = true
  const fleet: Fleet = {
    requests,
    crossing,
    balance: () => dice.pick(slots),
    heal() {
      faulty = false
    },
    get faulty() {
      return faulty
    },
  }
  for (let slot = 0; slot < plan.instances; slot++) start(slot)
  return fleet
}

function createProcess(name: string, skewMs: number): Process {
  return { name, skewMs, alive: true, frozenUntil: 0 }
}

/** A call that no client makes: its arguments belong to none. */
function stranger(id: string): CallPlan {
  return {
    id,
    tool: 'plain',
    principal: 'nobody',
    follows: false,
    startMs: 0,
    releases: [[], []],
    habits: new Set(),
  }
}

function throwFailed(value: string): string {
  if (value.startsWith('!')) throw new Error(value.slice(1))
  return value
}

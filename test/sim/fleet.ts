/**
 * The instances of a service, the store that they share, and the outside world that their effects change. Every crossing of a
 * process boundary takes time, and is a place where the process may die or stand still.
 */

import type { Approvals } from '@rondo/approvals'
import type { Context, EffectInfo, EffectOptions, Server } from 'rondo'
import type { Bus, Store } from 'rondo/store'
import type { About, Judge, Run, Sent } from './judge.ts'
import type { CallPlan, Plan } from './plan.ts'
import { type Approval, execute, has, type Operations, type Question, type Work } from './program.ts'
import type { Runtime } from './runtime.ts'
import { FAST_MS, hashText, type Process, SLOW_MS, type World } from './world.ts'

export interface Instance {
  readonly process: Process
  readonly server: Server
  readonly release: 0 | 1
  readonly approvals: Approvals | undefined
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
/** Calls of the store that only look whether there is anything to do, and heartbeats: too many for a fault in each to say much. */
const BORING = new Set([
  'tasks.claim',
  'tasks.nextDueMs',
  'tasks.renew',
  'tasks.revisions',
  'tasks.stats',
  'tasks.trim',
  'once.epoch',
  'once.renew',
  'records.touch',
])

/**
 * A flow that begins while the epoch cannot be read within two seconds belongs to none, and its effects with `once` are refused.
 * That is right, but such a call says little about the rest.
 */
const EPOCH_MS = 900

/** A round that has run for this long is handed back: whatever it began last still ends before its client loses its patience. */
const ROUND_MS = 15_000

/** How often a process reads the bus if it is told nothing. */
const POLL_MS = 1_000

/** An undo takes less than the time that the runtime gives it. */
const UNDO_MS = 20_000

/** The groups that may approve contain the callers too. */
const PEOPLE = ['alice', 'bob', 'carol', 'dave'] as const
const APPROVALS_URL = 'http://127.0.0.1/approvals'
/** How long a call may take. What a client leaves behind is undone after that. */
const FLOW_MS = 20 * 60_000

export function createFleet(runtime: Runtime, world: World, plan: Plan, judge: Judge, store: Store): Fleet {
  const dice = world.dice('fleet')
  const requests = new Map<string, Sent>()
  const slots: Instance[] = []
  const keys = [runtime.generateKey('first'), runtime.generateKey('second')] as const
  const rings = [keys[0], keys.join(), [...keys].reverse().join()]
  const loaded = new Map<Process, number>()
  /** What effects have done, by key. An effect that comes after its undo does nothing. */
  const downstream = new Map<string, { readonly value: string; undone: boolean }>()
  const notices = new Set<string>()
  const usesApprovals = plan.calls.some(({ releases }) =>
    releases.some((program) => has(program, ({ op }) => op === 'approve')),
  )
  const hasOlder = plan.calls.some(({ older }) => older)
  const hooks = new Set<string>()
  const messages: string[] = []
  /** Tells a process that there are new messages on the bus. */
  const hints = new Set<() => void>()
  let phase = 0
  let crossings = 0
  let works = 0
  let made = 0
  let changes = 0
  let database = createProcess('store', 0)
  /** Called when the store crashes: each breaks a connection. */
  const connections = new Set<() => void>()
  let release: 0 | 1 = 0
  const calls = new Map(plan.calls.map((call) => [call.id, call]))

  const latency = (slowest = SLOW_MS): number =>
    fleet.faulty && dice.chance(plan.noise.slow) ? dice.int(100, slowest) : dice.next() * FAST_MS

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
        refreshMs: 20_000,
        load() {
          loaded.set(process, phase)
          return runtime.parseKeys(rings[phase] ?? '')
        },
      },
      log: 'off',
      maxRoundMs: ROUND_MS,
      limits: { maxRounds: 200, maxMoves: 50, maxEntries: plan.maxEntries, flowTtlMs: FLOW_MS },
      tasks: { ttlMs: FLOW_MS },
      store: connect(process),
      sessions: hasOlder && {},
      authenticate: ({ headers }) => ({ subject: headers('x-caller') ?? 'nobody', issuer: 'sim' }),
    })
    const approvals = usesApprovals ? openApprovals(server) : undefined
    const instance: Instance = { process, server, release, approvals }
    const running = release
    const handler = ({ call }: Record<string, unknown>, ctx: Context): Promise<string> =>
      handle(instance, calls.get(String(call)) ?? stranger(String(call)), ctx, running)
    server.tool('plain', {}, handler)
    server.tool('single', { once: true }, handler)
    server.tool('task', { task: 'auto' }, handler)
    server.tool('leaving', {}, handler)
    server.tool(
      'alone',
      { once: true, concurrency: { key: () => 'all', limit: 1, whileWaiting: 'release' } },
      handler,
    )
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

  const crossing = (process: Process, place: 'any' | 'work' = 'any'): void => {
    if (!fleet.faulty || !process.alive) return
    crossings++
    if (place === 'work') works++
    for (const fault of plan.faults) {
      if (!('crossing' in fault)) continue
      if (fault.place === 'any' ? fault.crossing !== crossings : place === 'any' || fault.crossing !== works)
        continue
      if (fault.kind === 'kill') kill(process)
      else process.frozenUntil = world.now + fault.ms
    }
  }

  /** The store as one process reaches it. */
  function connect(process: Process): Store {
    const port = <P extends object>(port: string, methods: P): P => {
      const wrap = ([name, method]: [string, unknown]): [string, unknown] => {
        if (typeof method !== 'function') return [name, method]
        const full = `${port}.${name}`
        return [
          name,
          (...args: unknown[]) =>
            cross(
              process,
              !BORING.has(full),
              () => method(...args),
              full === 'once.epoch' ? EPOCH_MS : undefined,
            ),
        ]
      }
      return Object.fromEntries(Object.entries(methods).map(wrap)) as P
    }
    const onHint: Store['tasks']['onHint'] = (listener) =>
      store.tasks.onHint((hint) => {
        if (process.alive && !(fleet.faulty && dice.chance(plan.noise.lose)))
          world.schedule(latency(), process, () => listener(hint))
      })
    // For tasks and rounds, messages between instances are an optimisation; there they poll.
    const { tasks, bus: _, kind: __, ...others } = { ...store, permits: permitsFor(process) }
    const ports = Object.entries(others).filter(([, member]) => typeof member === 'object')
    return {
      kind: 'memory',
      ...(Object.fromEntries(
        ports.map(([name, members]) => [name, port(name, members as object)]),
      ) as typeof others),
      tasks: { ...port('tasks', tasks), pollMs: 8_000, onHint },
      ...(hasOlder && { bus: busOf(process) }),
      ready: () => cross(process, false, store.ready),
      sweep: (limit) => cross(process, false, () => store.sweep(limit)),
      close: async () => {},
    }
  }

  /** The bus as one process reaches it: every message arrives once, in order, and after a while. */
  function busOf(process: Process): Bus {
    const publish: Bus['publish'] = (message) =>
      cross(process, true, () => {
        messages.push(message)
        for (const hint of hints) hint()
      })
    const subscribe: Bus['subscribe'] = (listener) => {
      let next = messages.length
      let isReading = false
      const read = async (): Promise<void> => {
        if (isReading) return
        isReading = true
        while (next < messages.length) {
          const batch = messages.slice(next)
          next = messages.length
          await listener.receive(batch)
        }
        isReading = false
      }
      // A process that no hint reaches polls.
      const hint = (): void => {
        const isLost = fleet.faulty && dice.chance(plan.noise.lose)
        if (process.alive) world.schedule(isLost ? POLL_MS : latency(), process, () => void read())
      }
      hints.add(hint)
      return { started: Promise.resolve(), stop: () => void hints.delete(hint) }
    }
    return { publish, subscribe }
  }

  /** The permits of the store, whose grants the judge sees in the order in which they are given. */
  function permitsFor(process: Process): Store['permits'] {
    const { permits } = store
    return (
      permits && {
        ...permits,
        async acquire(request) {
          const given = await permits.acquire(request)
          if (given.kind === 'held') judge.granted(request.holder, process)
          return given
        },
      }
    )
  }

  /** Sends something out of the process and brings the outcome back. What was sent happens even if the process dies. */
  function cross<T>(
    process: Process,
    counts: boolean,
    act: () => T | Promise<T>,
    slowest?: number,
  ): Promise<T> {
    return new Promise((resolve, reject) => {
      if (counts) crossing(process)
      if (!process.alive) return
      const drawn = fleet.faulty && counts ? dice.next() : 1
      const fails = drawn < plan.noise.storeFails
      const isDone = !fails || drawn < plan.noise.storeFails / 2
      const back = (settle: () => void): void => {
        world.schedule(latency(slowest), process, () => {
          if (counts) crossing(process)
          if (process.alive) settle()
        })
      }
      const breaks = (): void => {
        process.brokenAt = world.now
        back(() => reject(new runtime.RondoError('STORE_UNAVAILABLE')))
      }
      connections.add(breaks)
      // A real database finishes what it has begun, and only its connections break.
      const owner = store.kind === 'memory' ? database : undefined
      world.schedule(latency(slowest), owner, async () => {
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
    crossing(process, 'work')
    if (!process.alive) return new Promise(() => {})
    const value = await new Promise<string>((resolve) =>
      world.schedule(ms / 2, undefined, () => {
        const done = act()
        world.schedule(ms / 2, process, () => resolve(done))
      }),
    )
    crossing(process, 'work')
    return process.alive ? value : new Promise(() => {})
  }

  async function handle(instance: Instance, call: CallPlan, ctx: Context, running: 0 | 1): Promise<string> {
    const { process } = instance
    const run = judge.begin(call, ctx, running, requests.get(String(ctx.meta[REQUEST])))
    const digest = await execute(call.releases[running], operationsOf(process, run, ctx))
    judge.returned(run, digest)
    if (digest.startsWith('!')) throw new runtime.ToolError(`${run.id} ${digest}`)
    return `${run.id} ${digest}`
  }

  function operationsOf(process: Process, run: Run, ctx: Context): Operations {
    const about = new Map<string, About>()
    const read = (outcome: { readonly action: string; readonly content?: unknown }): string =>
      outcome.action === 'accept' ? String((outcome.content as { v: unknown }).v) : outcome.action
    const question = ({ text }: Question) => ({ message: text, schema: ANSWER })
    const work = (node: Work): Promise<unknown> => {
      const { op, key, ms } = node
      if (op === 'sleep') {
        judge.sleeps(run, key, ms)
        return ctx.sleep(key, ms)
      }
      about.set(key, { fails: node.fails > node.retries })
      const { retries, fails, delayMs } = node
      const retry = { times: retries, delay: delayMs, factor: 1 }
      /** The world outside decides by the number of the attempt whether it fails. */
      const attempted = async (attempt: number, act: () => string): Promise<string> => {
        const value = await outside(process, ms, () => {
          if (attempt > fails) return act()
          // Some attempts fail after they did their work.
          if (attempt % 2 === 0) act()
          return '!failed'
        })
        judge.attempted(run, key, attempt, value !== '!failed' || attempt > retries)
        if (value === '!failed') throw new Error('failed')
        return value
      }
      if (op === 'step')
        return ctx.step(
          key,
          ({ attempt }) => {
            judge.works(run, key, attempt, undefined, '')
            return attempted(attempt, () => `${key}:${dice.int(0, 1e9)}`)
          },
          { retry },
        )
      run.called.set(key, run.seen.length)
      const branch = JSON.stringify([...run.received].sort())
      about.set(key, { branch, fails: fails > retries })
      const act = ({ key: effectKey, attempt }: EffectInfo): Promise<string> => {
        judge.works(run, key, attempt, effectKey, branch, node)
        return attempted(attempt, () => {
          const done = downstream.get(effectKey) ?? { value: `${key}:${dice.int(0, 1e9)}`, undone: false }
          downstream.set(effectKey, done)
          if (!done.undone) judge.happened(effectKey)
          return done.value
        }).then(
          (value) => {
            judge.worked(run, effectKey, true)
            return value
          },
          (error) => {
            judge.worked(run, effectKey, false)
            throw error
          },
        )
      }
      const undo: EffectOptions<string>['undo'] = async (result, info) => {
        const { effectKey, ran } = info
        judge.undoes(run, key, info.key, effectKey, ran)
        if (ran === 'yes' && result !== downstream.get(effectKey)?.value)
          judge.fail(`undo result: ${run.id} undoes ${key} with ${result}`)
        await outside(process, Math.min(ms, UNDO_MS), () => {
          downstream.set(effectKey, { value: downstream.get(effectKey)?.value ?? '', undone: true })
          judge.undone(effectKey)
          return ''
        })
      }
      return ctx.effect(key, act, { once: node.once, retry, ...(node.undo && { undo }) })
    }
    return {
      async ask(node) {
        const kind = node.op === 'ask' ? node.kind : 'elicit'
        about.set(node.key, { kind, text: node.text })
        judge.asks(run, node.text)
        if (kind === 'confirm') return String(await ctx.confirm(node.key, node.text))
        if (kind === 'elicit') return read(await ctx.elicit(node.key, question(node)))
        const declined = (error: unknown): never => {
          throw new Error((error as Error).name === 'InputDeclined' ? 'declined' : String(error))
        }
        return read({ action: 'accept', content: await ctx.ask(node.key, question(node)).catch(declined) })
      },
      work: async (node) => String(await work(node)),
      approve: (node) => askForApproval(ctx, about, node),
      async undo() {
        const { undone, failed } = await ctx.undo()
        return [...undone, ...failed.map((name) => `not ${name}`)].join('+')
      },
      async hook({ key }) {
        const { id, received } = await ctx.hook(key)
        announce(id)
        return { id, received: async () => String(await received()) }
      },
      offer(node) {
        about.set(node.key, { kind: 'elicit', text: node.text })
        about.set(`${node.key}.peek`, { kind: 'elicit', text: node.text })
        judge.asks(run, node.text)
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

  async function askForApproval(ctx: Context, about: Map<string, About>, node: Approval): Promise<string> {
    const { key, text, quorum } = node
    about.set(key, { approval: { text, quorum } })
    try {
      const question = isInDetails(key) ? { message: key, details: { text } } : { message: text }
      const { by } = await ctx.approve(key, { ...question, from: 'ops', quorum, within: FLOW_MS / 2 })
      return by.map(({ id }) => id).join('+')
    } catch (error) {
      throw new Error((error as Error).name)
    }
  }

  function openApprovals(server: Server): Approvals {
    const approvals = runtime.createApprovals({
      url: APPROVALS_URL,
      login: ({ headers }) => ({ issuer: 'sim', subject: headers.get('x-person') ?? '' }),
      groups: () => PEOPLE,
      pollMs: 4_000,
      notify: [
        function tell({ kind, messageId, id, message, details }) {
          if (kind === 'update' || notices.has(messageId)) return
          notices.add(messageId)
          const text = String(details.text ?? message)
          for (const person of PEOPLE)
            world.schedule(dice.int(100, 30_000), undefined, () => void decide(person, id, text, 1))
        },
      ],
    })
    server.use(approvals)
    return approvals
  }

  /** Somebody opens the page of a request and decides, again and again until there is a reply. The caller always approves. */
  async function decide(person: string, id: string, text: string, tries: number): Promise<void> {
    const { process, approvals } = fleet.balance()
    const again = world.schedule(20_000, undefined, () => void decide(person, id, text, tries + 1))
    if (tries > 20) return again()
    const visit = (init: RequestInit): Promise<Response | undefined> =>
      new Promise((resolve) => {
        world.schedule(latency(), process, async () => {
          crossing(process)
          const headers = { 'x-person': person, origin: 'http://127.0.0.1' }
          const response = await approvals?.fetch(
            new Request(`${APPROVALS_URL}/r/${id}`, { ...init, headers }),
          )
          crossing(process)
          if (process.alive) resolve(response)
        })
      })
    const page = await visit({})
    if (!page || page.status >= 500) return
    const csrf = /name="csrf" value="([^"]+)"/.exec(await page.text())?.[1]
    const call = /Q\[(c\d+)\./.exec(text)?.[1] ?? ''
    const approves = person === calls.get(call)?.principal || hashText(`${person} ${text}`) % 4 !== 0
    if (csrf !== undefined) {
      judge.votes(text, person, approves)
      const form = new URLSearchParams({ csrf, decision: approves ? 'approve' : 'deny', note: '' })
      if (((await visit({ method: 'POST', body: form }))?.status ?? 500) >= 500) return
    }
    again()
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

/** Most requests for approval are worded in their details: a release that rewords them changes nothing else. */
function isInDetails(key: string): boolean {
  return hashText(key) % 4 !== 0
}

function createProcess(name: string, skewMs: number): Process {
  return { name, skewMs, alive: true, frozenUntil: 0, brokenAt: 0 }
}

/** A call that no client makes: its arguments belong to none. */
function stranger(id: string): CallPlan {
  return {
    id,
    tool: 'plain',
    principal: 'nobody',
    follows: false,
    older: false,
    startMs: 0,
    releases: [[], []],
    habits: new Set(),
    undoes: false,
  }
}

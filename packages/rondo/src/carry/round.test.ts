/** One round of a call: what its handler gets, how its carrier learns of the end, and who hears of it. */

import { describe, expect, it } from 'vitest'
import { z } from 'zod'
import { RondoError, ToolError } from '../errors.ts'
import type { LogFacts } from '../log/event.ts'
import type { FlowCall } from '../protocol/call.ts'
import type { Observed, OperationEnd } from '../protocol/observer.ts'
import type { Reply, TaskState } from '../protocol/reply.ts'
import { CAN_LEAVE } from '../replay/input.ts'
import type { RunReport } from '../replay/run-state.ts'
import { createHost, type HostOptions } from '../serve/host.ts'
import { createMemoryStore } from '../store/memory/store.ts'
import type { PermitStore } from '../store/permits.ts'
import type { Concurrency } from '../tool/concurrency.ts'
import type { Context } from '../tool/context.ts'
import { taskCreated } from '../tool/forward.ts'
import { inputRequired, type Target } from '../tool/target.ts'
import type { Carrier, Pause, Round } from './carrier.ts'
import type { FlowHost } from './host.ts'
import { placeOfError } from './report.ts'
import { logRound, runOnce, toReplayInput } from './round.ts'

const START = 1_800_000_000_000
const MINUTE = 60_000
const ANYTHING: FlowCall['capabilities'] = { elicitation: { form: {}, url: {} } }
const FOLLOWS = { ...ANYTHING, extensions: { 'io.modelcontextprotocol/tasks': {} } }

interface End {
  readonly kind: 'end'
  readonly reply: Reply
  readonly report?: RunReport
}
type Outcome =
  | End
  | { readonly kind: 'keep'; readonly pause: Pause }
  | { readonly kind: 'other'; readonly of: unknown }

interface Given {
  readonly options?: Partial<HostOptions>
  readonly host?: Partial<FlowHost>
  readonly call?: Partial<FlowCall>
  readonly target?: Partial<Target>
  readonly beginning?: Partial<Round['beginning']>
  readonly round?: Partial<Round>
  readonly line?: Partial<Round['line']>
  readonly carrier?: Partial<Carrier<never, Outcome>>
}

const failing = (message: string) => ({ content: [{ type: 'text', text: message }], isError: true })
const texts = (message: string) => ({ content: [{ type: 'text', text: message }] })

/** A round of a tool, and everything that is logged. */
function start(handler: (ctx: Context) => unknown, given: Given = {}) {
  const events: LogFacts[] = []
  const store = createMemoryStore({ now: () => START })
  const created = createHost({
    audience: 'shop',
    keys: 'k:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=',
    log: (event) => void events.push(event),
    store,
    now: () => START,
    ...given.options,
  })
  const host = { ...created, ...given.host } as FlowHost
  const journal = { startedAt: START, seed: 'c2VlZA', entries: [], reasks: {}, moves: 0 }
  const round = {
    host,
    call: {
      kind: 'flow',
      id: 7,
      method: 'tools/call',
      target: 'pay',
      args: { order: 7 },
      protocolVersion: '2026-07-28',
      capabilities: ANYTHING,
      ...given.call,
    },
    target: {
      method: 'tools/call',
      name: 'pay',
      task: { mode: 'late' },
      prepare: () => ({ kind: 'ready', run: handler }),
      finish: (value: unknown) => (typeof value === 'string' ? texts(value) : value),
      fail: (message: string) => ({ result: failing(message) }),
      ...given.target,
    },
    principal: { subject: 'ada' },
    line: { closed: false, notify: () => {}, onClose: () => () => {}, ...given.line },
    beginning: {
      flow: 'flow',
      round: 2,
      journal,
      asked: {},
      flowExpires: START + MINUTE,
      anchored: true,
      ...given.beginning,
    },
    began: START,
    ...given.round,
  } as unknown as Round
  const carrier = {
    keep: (_round: Round, pause: Pause) => ({ kind: 'keep', pause }),
    end: (_round: Round, reply: Reply, report?: RunReport) => ({ kind: 'end', reply, report }),
    ...given.carrier,
  } as unknown as Carrier<never, Outcome>
  const rounds = () => events.flatMap((event) => (event.event === 'round' ? [event] : []))
  const warnings = () => events.flatMap((event) => (event.event === 'warning' ? [event.message] : []))
  const faults = () => events.flatMap((event) => (event.event === 'fault' ? [event.error] : []))
  return { round, host, store, events, rounds, warnings, faults, run: () => runOnce(carrier, round) }
}

async function ended(started: ReturnType<typeof start>): Promise<End> {
  const outcome = await started.run()
  if (outcome.kind !== 'end') throw new Error(outcome.kind)
  return outcome
}

async function paused(handler: (ctx: Context) => unknown, given: Given = {}): Promise<Pause> {
  const outcome = await start(handler, given).run()
  if (outcome.kind !== 'keep') throw new Error(outcome.kind)
  return outcome.pause
}

describe('a round that ends its call', () => {
  it('replies with the result of its handler, and logs the outcome', async () => {
    const good = start(() => 'done')
    expect(await ended(good)).toMatchObject({
      reply: { kind: 'complete', result: texts('done') },
      report: {},
    })
    expect(good.rounds()).toMatchObject([{ outcome: 'complete' }])
    const bad = start(() => failing('no'))
    expect(await ended(bad)).toMatchObject({ reply: { result: failing('no') } })
    expect(bad.rounds()).toMatchObject([{ outcome: 'tool_error' }])
    expect(bad.faults()).toEqual([])
  })

  it('hides an error of its handler from the client, and shows it to the author', async () => {
    const error = new Error('secret')
    const started = start(() => {
      throw error
    })
    expect((await ended(started)).reply).toEqual({ kind: 'complete', result: failing('pay failed') })
    expect(started.rounds()).toMatchObject([{ outcome: 'tool_error' }])
    expect(started.faults()).toEqual([error])
    const meant = start(() => {
      throw new ToolError('No table')
    })
    expect((await ended(meant)).reply).toEqual({ kind: 'complete', result: failing('No table') })
    expect(meant.faults()).toEqual([])
  })

  it('fails if no result can be made of what its handler returned', async () => {
    const error = new TypeError('no result')
    const finish = () => {
      throw error
    }
    const started = start(() => 'done', { target: { finish } })
    expect((await ended(started)).reply).toEqual({ kind: 'complete', result: failing('pay failed') })
    expect(started.faults()).toEqual([error])
  })

  it('runs no handler whose arguments do not fit', async () => {
    let runs = 0
    const prepared: unknown[] = []
    const prepare: Target['prepare'] = (args) => {
      prepared.push(args)
      return { kind: 'refused', problem: 'no order' }
    }
    const started = start(() => void runs++, { target: { prepare } })
    const reply = { kind: 'complete', result: failing('Invalid arguments for pay: no order') }
    expect(await ended(started)).toEqual({ kind: 'end', reply })
    expect(prepared).toEqual([{ order: 7 }])
    expect(started.rounds()).toMatchObject([{ outcome: 'tool_error' }])
    const known = start(() => void runs++, { target: { prepare }, call: { badArguments: 'no order' } })
    expect(await ended(known)).toEqual({ kind: 'end', reply })
    expect(prepared).toHaveLength(1)
    expect(runs).toBe(0)
  })

  it('becomes a task of another server if its handler says so', async () => {
    const task = { taskId: 'theirs', status: 'working' } as TaskState
    const started = start(() => taskCreated(task))
    expect(await ended(started)).toMatchObject({ reply: { kind: 'task_created', task }, report: {} })
    expect(started.rounds()).toMatchObject([{ outcome: 'task' }])
  })

  it('R9 refuses a pause that the handler must not make', async () => {
    const form = { method: 'roots/list' } as const
    const started = start(() => inputRequired({ inputRequests: { a: form } }), { call: { capabilities: {} } })
    expect((await ended(started)).reply).toMatchObject({ kind: 'error', error: { code: 'PEER_CAPABILITY' } })
    expect(started.rounds()).toMatchObject([{ outcome: 'refused', code: 'PEER_CAPABILITY' }])
  })

  it('ends before its handler if its carrier has a reply', async () => {
    const reply: Reply = { kind: 'complete', result: { early: true } }
    let runs = 0
    const started = start(() => void runs++, { carrier: { begin: async () => reply } })
    expect(await ended(started)).toEqual({ kind: 'end', reply })
    const goes = start(() => String(runs++), { carrier: { begin: () => undefined } })
    await ended(goes)
    expect(runs).toBe(1)
  })
})

describe('a round that stops before its call is over', () => {
  const form = { message: 'A?', schema: z.object({ value: z.string() }) }

  it('asks its questions', async () => {
    const pause = await paused(async (ctx) => {
      await Promise.all([ctx.ask('a', form), ctx.confirm('b', 'B?')])
    })
    expect(pause.facts).toEqual({
      outcome: 'input_required',
      asks: [
        { key: 'a', kind: 'form' },
        { key: 'b', kind: 'confirm' },
      ],
    })
    expect(Object.keys(pause.asked)).toEqual(['a', 'b'])
    expect(pause.inputRequests).toMatchObject({ a: { method: 'elicitation/create' }, b: {} })
    expect(pause.events).toBeUndefined()
  })

  it('asks by hand', async () => {
    expect(await paused(() => inputRequired({ requestState: 'own' }))).toMatchObject({
      journal: { manual: 'own' },
      facts: { outcome: 'input_required' },
    })
  })

  it('G3 waits for the events of its hooks', async () => {
    const hooks = { open: async () => 'id', close: async () => {} }
    const pause = await paused(
      async (ctx) => {
        const paid = await ctx.hook('paid')
        await paid.received()
      },
      { carrier: { adapt: (_round, input) => ({ ...input, hooks }) } },
    )
    expect(pause.facts).toEqual({ outcome: 'waiting', asks: [], events: [expect.stringContaining('paid')] })
    expect(pause.events).toEqual(pause.facts.events)
  })

  it('leaves its request for a task', async () => {
    const given: Given = { call: { capabilities: FOLLOWS } }
    const pause = await paused((ctx) => ctx.background(), given)
    expect(pause).toMatchObject({ leaves: true, asked: {}, facts: { outcome: 'moved', moved: 'drain' } })
  })

  it('R6 moves before its first effect, and counts that', async () => {
    const pause = await paused((ctx) => ctx.effect('save', () => 1), { beginning: { anchored: false } })
    expect(pause).toMatchObject({
      journal: { moves: 1, seed: 'c2VlZA' },
      asked: {},
      facts: { outcome: 'moved', moved: 'effect' },
    })
  })

  it('G1 sleeps', async () => {
    const sleeping = () => ({ parks: true, inlineMs: 0, beyond: 'leave' })
    const pause = await paused((ctx) => ctx.sleep('night', 5_000), {
      carrier: { adapt: (_round, input) => ({ ...input, sleeping }) },
    })
    expect(pause).toMatchObject({ wakeAt: START + 5_000, asked: {}, facts: { outcome: 'sleeping' } })
  })

  it('counts for nothing if its carrier abandons it', async () => {
    const seen: unknown[] = []
    const abandon = (_round: Round, refused: RondoError | undefined) => {
      seen.push(refused?.code)
      return { kind: 'other', of: 'abandoned' } as const
    }
    const started = start(() => 'done', { carrier: { abandon } })
    expect(await started.run()).toEqual({ kind: 'other', of: 'abandoned' })
    const twice = (ctx: Context) => Promise.all([ctx.step('a', () => 1), ctx.step('a', () => 2)])
    expect(await start(twice, { carrier: { abandon } }).run()).toEqual({ kind: 'other', of: 'abandoned' })
    const fails = () => {
      throw new RondoError('STORE_BUSY')
    }
    await start(fails, { carrier: { abandon } }).run()
    expect(seen).toEqual([undefined, 'REPLAY_NAME_REUSED', undefined])
    expect(started.rounds()).toEqual([])
    expect(await ended(start(() => 'done', { carrier: { abandon: () => undefined } }))).toMatchObject({
      reply: { kind: 'complete' },
    })
  })
})

describe('who hears of a round', () => {
  /** Telemetry that notes what it was told. */
  function observing() {
    const ends: OperationEnd[] = []
    let inside = 0
    const observed: Observed = {
      run(fn) {
        inside += 1
        return fn()
      },
      work: (_kind, _key, fn) => fn(),
      replayed: () => {},
      end: (how) => void ends.push(how),
    }
    return { ends, inside: () => inside, host: { observer: { begin: () => observed } } as Partial<FlowHost> }
  }

  it('the watch for slow handlers, while the handler runs', async () => {
    let during: boolean | undefined
    const started = start(() => {
      during = started.host.running.has(started.round)
      return 'done'
    })
    await started.run()
    expect(during).toBe(true)
    expect(started.host.running.size).toBe(0)
    const fails = start(() => 1, { target: { prepare: () => Promise.reject(new Error('odd')) } })
    await expect(fails.run()).rejects.toThrow('odd')
    expect(fails.host.running.size).toBe(0)
  })

  it('telemetry: the work runs inside it, and it learns the end', async () => {
    const { ends, inside, host } = observing()
    await start(() => 'done', { host }).run()
    expect(inside()).toBe(1)
    expect(ends[0]).toMatchObject({ outcome: 'complete' })
  })

  it('telemetry, if the round fails or is abandoned', async () => {
    const error = new RondoError('STORE_UNAVAILABLE')
    const failed = observing()
    const end = () => Promise.reject(error)
    await expect(start(() => 'done', { host: failed.host, carrier: { end } }).run()).rejects.toBe(error)
    expect(failed.ends[1]).toMatchObject({ outcome: 'refused', code: 'STORE_UNAVAILABLE' })
    expect(placeOfError(error)).toEqual({ flow: 'flow', round: 2 })
    const abandoned = observing()
    const abandon = () => ({ kind: 'other', of: 1 }) as const
    await start(() => 'done', { host: abandoned.host, carrier: { abandon } }).run()
    expect(abandoned.ends).toEqual([{ outcome: 'moved' }])
  })

  it('R11 nobody, if there is neither telemetry nor a log, and the error passes through all the same', async () => {
    const error = new Error('odd')
    const end = () => Promise.reject(error)
    await expect(start(() => 'done', { carrier: { end } }).run()).rejects.toBe(error)
  })

  it('the tracer of development mode', async () => {
    const seen: unknown[] = []
    const trace = { called: (name: string) => void seen.push(['called', name]), keyed: () => {} }
    const tracer = {
      begin(...given: unknown[]) {
        seen.push(['begin', ...given])
        return trace
      },
      end: (_event: unknown, given: unknown) => void seen.push(['end', given === trace]),
    } as unknown as FlowHost['tracer']
    const { round, run } = start((ctx) => ctx.step('load', () => 1), { host: { tracer } })
    await run()
    expect(seen).toEqual([
      ['begin', { flow: 'flow', round: 2, method: 'tools/call', target: 'pay' }, round.beginning.journal],
      ['called', 'load'],
      ['end', true],
    ])
  })

  it('the log, or telemetry, or the tracer, and no round costs anything if there is none', () => {
    const tracer = { end: (event: { event: string }) => void told.push(`tracer ${event.event}`) }
    const observed = { end: () => void told.push('telemetry') } as unknown as Observed
    const log = (event: LogFacts) => void told.push(`log ${event.event}`)
    let told: string[] = []
    const tell = (host: Partial<FlowHost>, more: Partial<Round> = {}) => {
      told = []
      const { round } = start(() => 1, { host: { log, ...host }, round: more })
      logRound(round, undefined, { outcome: 'complete' })
      return told
    }
    expect(tell({ silent: true })).toEqual([])
    expect(tell({ silent: false })).toEqual(['log round'])
    expect(tell({ silent: true }, { observed })).toEqual(['telemetry', 'log round'])
    expect(tell({ silent: true, tracer: tracer as unknown as FlowHost['tracer'] })).toEqual([
      'log round',
      'tracer round',
    ])
  })
})

describe('a round of a tool with concurrency', () => {
  const concurrency: Concurrency = { keyOf: async () => 'one', limit: 1, queues: true, releases: false }
  const refusing: Concurrency = { ...concurrency, queues: false }
  const DONE: Reply = { kind: 'complete', result: { early: true } }
  const ERROR: Reply = { kind: 'error', error: new RondoError('LIMIT_TASKS') }

  /** A round whose permit another call may hold already. */
  async function held(isHeld: boolean, given: Given, handler: (ctx: Context) => unknown = () => 'done') {
    const started = start(handler, { ...given, target: { concurrency, ...given.target } })
    const own = started.store.permits as PermitStore
    let tags: readonly string[] = []
    const permits: PermitStore = {
      ...own,
      async acquire(request) {
        tags = request.tags
        if (isHeld) await own.acquire({ holder: 'other', tags, limit: 1, holdMs: MINUTE })
        return own.acquire(request)
      },
    }
    const { host } = started
    const round = { ...started.round, host: { ...host, store: { ...host.store, permits } } as FlowHost }
    const carrier = {
      keep: (_round: Round, pause: Pause) => ({ kind: 'keep', pause }),
      end: (_round: Round, reply: Reply, report?: RunReport) => ({ kind: 'end', reply, report }),
      ...given.carrier,
    } as unknown as Carrier<never, Outcome>
    const isFree = async () => {
      const taken = await own.acquire({ holder: 'next', tags, limit: 1, holdMs: 1 })
      return taken.kind === 'held'
    }
    return { ...started, own, isFree, asked: () => tags.length > 0, run: () => runOnce(carrier, round) }
  }

  it('M3 holds a permit until its call has ended', async () => {
    let during: boolean | undefined
    const { run, isFree, rounds } = await held(false, {}, async () => {
      during = await isFree()
      return 'done'
    })
    expect(await run()).toMatchObject({ kind: 'end', reply: { kind: 'complete' }, report: {} })
    expect([during, await isFree()]).toEqual([false, true])
    expect(rounds()).toHaveLength(1)
  })

  it('M3 keeps its permit while it asks', async () => {
    const { run, isFree } = await held(false, {}, (ctx) => ctx.confirm('a', 'A?'))
    expect((await run()).kind).toBe('keep')
    expect(await isFree()).toBe(false)
  })

  it('M3 I6 does not count if it has lost its permit', async () => {
    const code = 'STORE_BUSY'
    for (const abandon of [
      undefined,
      (_round: Round, error?: RondoError) => error && ({ kind: 'other', of: error.code } as const),
    ]) {
      const { run, own, rounds } = await held(false, { carrier: { abandon } }, async (ctx) => {
        await own.release('flow')
        await ctx.confirm('a', 'A?')
      })
      expect(await run()).toMatchObject(
        abandon ? { kind: 'other', of: code } : { kind: 'end', reply: { kind: 'error', error: { code } } },
      )
      expect(rounds()).toMatchObject(abandon ? [] : [{ outcome: 'refused', code }])
    }
  })

  it('M3 releases its permit if it fails', async () => {
    const end = () => Promise.reject(new Error('odd'))
    const { run, isFree } = await held(false, { carrier: { end } })
    await expect(run()).rejects.toThrow('odd')
    await expect.poll(isFree).toBe(true)
  })

  it('M3 passes its permit on to the task that it begins, and releases it if that fails', async () => {
    for (const [reply, free] of [
      [DONE, false],
      [ERROR, true],
    ] as const) {
      const { run, isFree } = await held(false, { carrier: { begin: () => reply } })
      expect(await run()).toMatchObject({ kind: 'end', reply })
      expect(await isFree()).toBe(free)
    }
  })

  it('M3 is refused while another call holds the permit, or waits as a task', async () => {
    let runs = 0
    const handler = () => void runs++
    const refused = await held(true, { target: { concurrency: refusing } }, handler)
    const code = 'LIMIT_CONCURRENCY'
    expect(await refused.run()).toMatchObject({ kind: 'end', reply: { kind: 'error', error: { code } } })
    expect(refused.rounds()).toMatchObject([{ outcome: 'refused', code }])
    const leave = async () => DONE
    const never = await held(true, { target: { concurrency: refusing }, carrier: { leave } }, handler)
    expect(await never.run()).toMatchObject({ reply: { kind: 'error' } })
    const leaves = await held(true, { carrier: { leave } }, handler)
    expect(await leaves.run()).toEqual({ kind: 'end', reply: DONE, report: undefined })
    for (const none of [{}, { leave: () => undefined }]) {
      const cannot = await held(true, { carrier: none }, handler)
      expect(await cannot.run()).toMatchObject({ reply: { kind: 'error', error: { code } } })
    }
    expect(runs).toBe(0)
  })

  it('M3 of a task waits in the queue', async () => {
    const round = { task: { task: 'task', turn: 1 } }
    const queue = (_round: Round, delayMs: number) => ({ kind: 'other', of: delayMs }) as const
    const waits = await held(true, { round, carrier: { queue } })
    expect(await waits.run()).toEqual({ kind: 'other', of: 500 })
    const cannot = await held(true, { round })
    await expect(cannot.run()).rejects.toMatchObject({ code: 'SERVER_INTERNAL' })
  })

  it('M3 asks for no permit if the task that it begins queues by itself, or if the store has none', async () => {
    const call = { capabilities: FOLLOWS }
    const target = { task: { mode: 'auto' } } as const
    const begins = await held(true, { call, target, carrier: { begin: () => DONE } })
    expect(await begins.run()).toMatchObject({ reply: DONE })
    expect(begins.asked()).toBe(false)
    for (const more of [
      { call, target: { ...target, concurrency: refusing } },
      { call, target: {} },
      { target },
      {
        call,
        target,
        round: { task: { task: 'task', turn: 1 } },
        carrier: { queue: () => ({ kind: 'other', of: 1 }) as const },
      },
    ]) {
      const asks = await held(true, more)
      await asks.run()
      expect(asks.asked()).toBe(true)
    }
    for (const options of [{ store: undefined }, { store: { ...createMemoryStore(), permits: undefined } }]) {
      const without = start(() => 'done', { options, target: { concurrency } })
      expect(await without.run()).toMatchObject({ reply: { kind: 'complete' } })
    }
  })
})

describe('a round in development mode', () => {
  const dev = { dev: true, log: 'off' } as const
  const warned = async (handler: (ctx: Context) => unknown, given: Given = {}) => {
    const warnings: string[] = []
    const log = (event: LogFacts) => event.event === 'warning' && warnings.push(event.message)
    const { run } = start(handler, {
      ...given,
      options: { ...dev, store: undefined, ...given.options },
      host: { log: (event) => void log(event) },
    })
    await run()
    return warnings
  }

  it.each<[string, Given, number]>([
    ['without a store', {}, 1],
    ['with a store', { options: { store: createMemoryStore() } }, 0],
    ['of a tool that may leave later', { target: { task: { mode: 'late' } } }, 0],
    ['in production', { options: { dev: false } }, 0],
  ])('says that a tool wants a task where there can be none: %s', async (_name, given, count) => {
    const target = { task: { mode: 'auto' }, ...given.target } as const
    expect(await warned(() => 'done', { ...given, target })).toHaveLength(count)
  })

  it('says that a handler wants to continue as a task where it cannot', async () => {
    const background = (ctx: Context) => ctx.background()
    expect(await warned(background)).toEqual([expect.stringContaining('ctx.background()')])
    expect(await warned(background, { options: { store: createMemoryStore() } })).toEqual([])
    expect(await warned(background, { options: { dev: false } })).toEqual([])
  })

  it('says that a handler creates its schemas again in every round', async () => {
    const schema = z.object({ value: z.string() })
    const inside = (ctx: Context) => ctx.ask('a', { message: 'A?', schema: z.object({ value: z.string() }) })
    expect(await warned(inside)).toEqual([expect.stringContaining('"a"')])
    expect(await warned((ctx) => ctx.ask('a', { message: 'A?', schema }))).toEqual([])
  })

  it('runs a handler twice, unless its result depends on when it runs', async () => {
    for (const [live, times] of [
      [undefined, 2],
      [true, 1],
    ] as const) {
      let runs = 0
      await warned(() => String(runs++ * 0), { target: { live } })
      expect(runs).toBe(times)
    }
  })
})

describe('the input of a run', () => {
  const inputOf = (given: Given = {}) => {
    const started = start(() => 'done', given)
    return { ...started, input: toReplayInput(started.round, () => 'done') }
  }

  it('has the client, its answers, and what the round begins with', () => {
    const answers = { a: { action: 'accept' } }
    const { input } = inputOf({
      call: { clientInfo: { name: 'c', version: '1' }, inputResponses: answers },
      beginning: { asked: { a: 'd' } },
    })
    expect(input.client).toEqual({ name: 'c', version: '1', capabilities: ANYTHING })
    expect(input.incoming).toEqual({
      anchored: true,
      asked: { a: 'd' },
      answers,
      resumed: true,
      capabilities: ANYTHING,
    })
    expect({ ...input.inputResponses?.() }).toEqual(answers)
    expect(inputOf({ beginning: { round: 1 } }).input.incoming.resumed).toBe(false)
  })

  it('B8 runs an effect once for each branch, if there is a store', async () => {
    const { input, host } = inputOf({
      beginning: { journal: { startedAt: 1, seed: 's', entries: [], reasks: {}, moves: 0 } },
    })
    await host.keys.ready()
    const epoch = await host.epoch()
    const journal = { startedAt: 1, seed: 's', entries: [], reasks: {}, moves: 0, epoch }
    const { input: within } = inputOf({ host, beginning: { journal } })
    let runs = 0
    const act = () => ++runs
    expect([await within.once?.('a', '', act), await within.once?.('a', '', act)]).toEqual([1, 1])
    expect([await within.once?.('a', 'b', act), await within.once?.('b', '', act)]).toEqual([2, 3])
    await expect(input.once?.('a', '', act)).rejects.toMatchObject({ code: 'STATE_INVALID' })
    expect(inputOf({ options: { store: undefined } }).input.once).toBeUndefined()
  })

  it('M1 knows whether a state of the call counts once', () => {
    const { round, input } = inputOf()
    expect(input.undoing).toMatchObject({ isLinear: false })
    const journal = { ...round.beginning.journal, lineage: 'line' }
    expect(inputOf({ beginning: { journal } }).input.undoing).toMatchObject({ isLinear: true })
  })

  it('M5 has labels where the store can find tasks by them', () => {
    expect(inputOf().input.labelling).toBeUndefined()
    expect(inputOf({ options: { store: undefined } }).input.labelling).toBeUndefined()
    const store = { ...createMemoryStore(), operator: undefined }
    expect(inputOf({ options: { store } }).input.labelling).toEqual({
      missing: expect.stringContaining('operators'),
    })
  })

  it('may continue as a task, or says why not', () => {
    expect(inputOf({ call: { capabilities: FOLLOWS } }).input.background).toBe(CAN_LEAVE)
    for (const given of [
      {},
      { options: { store: undefined } },
      { options: { store: undefined }, call: { capabilities: FOLLOWS } },
    ]) {
      const { background } = inputOf(given).input
      expect(background.possible).toBe(false)
      expect(background.whyNot?.('an event')).toBeInstanceOf(RondoError)
    }
  })

  it('is watched in development mode and by a tracer', () => {
    const tracer = {} as FlowHost['tracer']
    expect(inputOf().input.unwatched).toBe(true)
    expect(inputOf({ host: { dev: true } }).input.unwatched).toBe(false)
    expect(inputOf({ host: { tracer } }).input.unwatched).toBe(false)
    expect([inputOf().input.onOutrun, inputOf({ host: { dev: true } }).input.onOutrun]).toEqual([
      undefined,
      expect.any(Function),
    ])
  })

  it('reports an effect that outran a confirmation, a failed attempt, and an error aside', () => {
    const { input, events } = inputOf({ host: { dev: true } })
    input.onOutrun?.('effect "a"', 'confirmation "b"')
    const error = new Error('no')
    input.onRetry?.({ kind: 'step', key: 'load', attempt: 1, due: START, error })
    input.onAsideError?.(error)
    expect(events).toMatchObject([
      { event: 'warning', message: expect.stringContaining('effect "a"') },
      { event: 'retry', key: 'load' },
      { event: 'fault', error },
    ])
  })

  it('G1 has the rules for sleeps', () => {
    expect(inputOf().input.sleeping()).toMatchObject({ parks: false, beyond: expect.any(String) })
  })
})

describe('when a call moves', () => {
  const CALM = { draining: false, overloaded: () => false, maxRoundMs: 1_000 }
  /** Asks after a while, with the host as it is then. */
  const moves = (
    then: Partial<FlowHost> & { line?: Partial<Round['line']>; ms?: number } = {},
    executed = 1,
    given: { moves?: number; host?: Partial<FlowHost> } = {},
  ) => {
    let time = START
    const { round, host } = start(() => 1, {
      host: { ...CALM, ...given.host },
      options: { now: () => time, limits: { maxMoves: 2 } },
    })
    const journal = { ...round.beginning.journal, moves: given.moves ?? 0 }
    const line = { ...round.line }
    const input = toReplayInput({ ...round, line, beginning: { ...round.beginning, journal } }, () => 1)
    const { line: later, ms = 0, ...more } = then
    time += ms
    Object.assign(host, more)
    Object.assign(line, later)
    return input.mayMove(executed)
  }

  it('stays where it is while nothing is in the way', () => {
    expect([moves(), moves({ ms: 999 })]).toEqual([undefined, undefined])
  })

  it('leaves a process that stops, unless it came after that', () => {
    expect(moves({ draining: true }, 0, { moves: 9 })).toBe('drain')
    expect(moves({}, 1, { host: { draining: true } })).toBeUndefined()
    expect(moves({ draining: false }, 1, { host: { draining: true } })).toBeUndefined()
  })

  it('starts nothing new for a client that has gone', () => {
    expect(moves({ line: { closed: true } }, 0)).toBe('drain')
    expect(moves({ line: { closed: true } }, 0, { host: { draining: true } })).toBe('drain')
  })

  it('moves when its time is up or the instance is overloaded, once it has done something', () => {
    const busy = { overloaded: () => true }
    expect([moves({ ms: 1_000 }), moves(busy), moves({ ...busy, ms: 1_000 })]).toEqual([
      'time',
      'shed',
      'time',
    ])
    expect([moves({ ms: 1_000 }, 0), moves(busy, 0)]).toEqual([undefined, undefined])
  })

  it('R9 moves at most limits.maxMoves times for that', () => {
    const late = { ms: 1_000 }
    expect([0, 1, 2, 3].map((count) => moves(late, 1, { moves: count }))).toEqual([
      'time',
      'time',
      undefined,
      undefined,
    ])
  })
})

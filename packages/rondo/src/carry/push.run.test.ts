/** A call over many runs whose questions go out on its own line: what the line is asked, and how the call ends. */

import { describe, expect, it } from 'vitest'
import { z } from 'zod'
import { RondoError } from '../errors.ts'
import type { LogFacts } from '../log/event.ts'
import type { FlowCall, Line } from '../protocol/call.ts'
import type { ObservedOperation } from '../protocol/observer.ts'
import type { Reply } from '../protocol/reply.ts'
import type { InputRequests } from '../protocol/wire.ts'
import type { Claims } from '../seal/state.ts'
import { createHost, type HostOptions } from '../serve/host.ts'
import { createMemoryStore } from '../store/memory/store.ts'
import type { PermitStore } from '../store/permits.ts'
import type { Concurrency } from '../tool/concurrency.ts'
import type { Context } from '../tool/context.ts'
import { inputRequired, type Target } from '../tool/target.ts'
import type { FlowHost } from './host.ts'
import {
  type Asked,
  type AskingLine,
  type AskOptions,
  limitAt,
  type MakePortable,
  type PortableQuestion,
  type PushOptions,
  runPushed,
  SteadyLine,
  type StoredCall,
} from './push.ts'

const START = 1_800_000_000_000
const MINUTE = 60_000
const texts = (message: string) => ({ content: [{ type: 'text', text: message }] })

interface Given {
  readonly options?: Partial<HostOptions>
  readonly host?: Partial<FlowHost>
  readonly call?: Partial<FlowCall>
  readonly target?: Partial<Target>
  readonly line?: Partial<AskingLine>
  readonly push?: PushOptions
  /** What the client replies, one after the other. */
  readonly replies?: readonly Asked[]
}

/** A call of an older client, what its line was asked, and what was kept. */
function start(handler: (ctx: Context) => unknown, given: Given = {}) {
  const events: LogFacts[] = []
  const asked: { questions: InputRequests; options: AskOptions }[] = []
  const kept: StoredCall[] = []
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
  const replies = [...(given.replies ?? [])]
  const line: { -readonly [K in keyof AskingLine]: AskingLine[K] } = {
    closed: false,
    notify: () => {},
    onClose: () => () => {},
    rest: () => () => {},
    async ask(questions, options) {
      asked.push({ questions, options })
      return replies.shift() ?? { kind: 'refused', error: new RondoError('INPUT_FAILED') }
    },
    async keep(call) {
      kept.push(call)
    },
    ...given.line,
  }
  const request = {
    host,
    call: {
      kind: 'flow',
      id: 7,
      method: 'tools/call',
      target: 'pay',
      args: { order: 7 },
      protocolVersion: '2025-11-25',
      capabilities: { elicitation: { form: {}, url: {} }, roots: {} },
      progressToken: 1,
      ...given.call,
    },
    target: {
      method: 'tools/call',
      name: 'pay',
      task: { mode: 'late' },
      prepare: () => ({ kind: 'ready', run: handler }),
      finish: (value: unknown) => texts(String(value)),
      fail: (message: string) => ({ result: { ...texts(message), isError: true } }),
      ...given.target,
    },
    principal: { subject: 'ada' },
    line,
  } as unknown as Parameters<typeof runPushed>[0]
  const rounds = () => events.flatMap((event) => (event.event === 'round' ? [event] : []))
  const faults = () => events.flatMap((event) => (event.event === 'fault' ? [event.error] : []))
  return { host, line, store, asked, kept, rounds, faults, run: () => runPushed(request, given.push) }
}

const yes = (...keys: string[]): Asked => ({
  kind: 'answers',
  answers: Object.fromEntries(keys.map((key) => [key, { action: 'accept', content: { confirm: true } }])),
})
const done = (text: string): Reply => ({ kind: 'complete', result: texts(text) })
const confirmAll = async (ctx: Context) => {
  await Promise.all([ctx.confirm('a', 'A?'), ctx.confirm('b', 'B?')])
  await ctx.confirm('c', 'C?')
  return `round ${ctx.round}`
}

describe('a call whose questions are pushed', () => {
  it('F1 asks them together, with the time that its client has', async () => {
    const { run, asked, rounds } = start(confirmAll, { replies: [yes('a', 'b'), yes('c')] })
    expect(await run()).toEqual(done('round 3'))
    expect(asked.map(({ questions }) => Object.keys(questions))).toEqual([['a', 'b'], ['c']])
    expect(asked[0]?.options).toEqual({ timeoutMs: 60 * MINUTE })
    expect(rounds().map(({ outcome }) => outcome)).toEqual(['input_required', 'input_required', 'complete'])
    const short = start(confirmAll, { options: { limits: { flowTtlMs: MINUTE } } })
    await short.run()
    expect(short.asked[0]?.options.timeoutMs).toBe(MINUTE)
  })

  it('R9 has limits.maxRounds rounds, and no more', async () => {
    const options = { limits: { maxRounds: 3 } }
    const replies = [yes('a', 'b'), yes('c'), yes('d')]
    expect(await start(confirmAll, { options, replies }).run()).toEqual(done('round 3'))
    const more = async (ctx: Context) => {
      await confirmAll(ctx)
      return ctx.confirm('d', 'D?')
    }
    expect(await start(more, { options, replies }).run()).toMatchObject({
      kind: 'error',
      error: { code: 'LIMIT_ROUNDS' },
    })
  })

  it('tells telemetry how long its client took to answer, and nothing if it was not asked', async () => {
    let time = START
    const operations: ObservedOperation[] = []
    const observer = {
      begin: (operation: ObservedOperation) => void operations.push(operation),
    } as FlowHost['observer']
    const ask: AskingLine['ask'] = async () => {
      time += 7_000
      return yes('a')
    }
    const handler = async (ctx: Context) => {
      if (ctx.round === 1) return inputRequired({ requestState: 'own' })
      return ctx.confirm('a', 'A?')
    }
    await start(handler, { options: { now: () => time }, host: { observer }, line: { ask } }).run()
    expect(operations.map(({ waitedMs }) => waitedMs)).toEqual([undefined, undefined, 7_000])
  })

  it('ends if its client has gone, or another instance continues it', async () => {
    for (const kind of ['gone', 'left'] as const)
      expect(await start(confirmAll, { replies: [{ kind }] }).run()).toMatchObject({
        kind: 'error',
        error: { code: 'PEER_REQUEST' },
      })
  })

  it('ends with the reason if no answers will come', async () => {
    const error = new RondoError('INPUT_TIMEOUT')
    for (const unable of [undefined, 'unknown']) {
      const { run, rounds } = start(confirmAll, { replies: [{ kind: 'refused', error, unable }] })
      expect(await run()).toMatchObject({ kind: 'complete', result: { isError: true } })
      expect(rounds().at(-1)).toMatchObject({ outcome: 'refused', code: 'INPUT_TIMEOUT' })
    }
  })

  it('continues without a method that its client does not implement', async () => {
    const error = new RondoError('PEER_METHOD')
    const can: boolean[][] = []
    const handler = async (ctx: Context) => {
      can.push([ctx.can('form'), ctx.can('roots')])
      if (!ctx.can('roots')) return 'without'
      await Promise.all([ctx.roots(), ctx.confirm('a', 'A?')])
      return 'with'
    }
    const probe = start(handler)
    await probe.run()
    const key = Object.entries(probe.asked[0]?.questions ?? {}).find(
      ([, { method }]) => method === 'roots/list',
    )
    can.length = 0
    const unable = key?.[0] ?? ''
    const { run } = start(handler, { replies: [{ kind: 'refused', error, unable }] })
    expect(await run()).toEqual(done('without'))
    expect(can).toEqual([
      [true, true],
      [true, false],
    ])
  })

  it('stops at its next step if another instance has taken it', async () => {
    let runs = 0
    const started = start(async (ctx) => {
      await ctx.step('a', () => {
        started.line.left = true
      })
      await ctx.step('b', () => ++runs)
    })
    expect(await started.run()).toMatchObject({ kind: 'error', error: { code: 'PEER_REQUEST' } })
    expect(started.rounds()).toMatchObject([{ outcome: 'moved', moved: 'drain' }])
    expect(runs).toBe(0)
  })

  it('D9 continues as a task if its client reaches tasks through tools', async () => {
    const background = async (ctx: Context) => {
      await ctx.background()
      return 'stayed'
    }
    const options = { tasks: { tools: true } }
    const leaves = start(background, { options })
    expect(await leaves.run()).toMatchObject({
      result: { content: [{ text: expect.stringContaining('task_status') }] },
    })
    expect(leaves.rounds()).toMatchObject([{ outcome: 'task' }])
    for (const given of [
      {},
      { options, target: { task: { mode: 'never' } } },
      { call: { capabilities: { extensions: { 'io.modelcontextprotocol/tasks': {} } } } },
    ] as const)
      expect(await start(background, given).run()).toEqual(done('stayed'))
    const hook = async (ctx: Context) => void (await ctx.hook('paid'))
    expect(await start(hook).run()).toMatchObject({ kind: 'error', error: { code: 'PEER_CAPABILITY' } })
  })
})

describe('the permit of a call whose questions are pushed', () => {
  const concurrency: Concurrency = { keyOf: async () => 'one', limit: 1, queues: false, releases: false }

  it.each<[string, Asked, boolean]>([
    ['its client has gone', { kind: 'gone' }, true],
    ['no answers will come', { kind: 'refused', error: new RondoError('INPUT_TIMEOUT') }, true],
    ['another instance continues it', { kind: 'left' }, false],
  ])('M3 ends with the call, unless another instance continues that: %s', async (_name, reply, free) => {
    const started = start((ctx) => ctx.confirm('a', 'A?'), { replies: [reply], target: { concurrency } })
    const permits = started.store.permits as PermitStore
    const { acquire } = permits
    let tags: readonly string[] = []
    Object.assign(started.host, {
      store: {
        ...started.host.store,
        permits: {
          ...permits,
          acquire(request: Parameters<typeof acquire>[0]) {
            tags = request.tags
            return acquire(request)
          },
        },
      },
    })
    await started.run()
    const taken = await acquire({ holder: 'next', tags, limit: 1, holdMs: 1 })
    expect(taken.kind).toBe(free ? 'held' : 'busy')
  })

  it('M3 stays with the call while it runs again', async () => {
    const store = createMemoryStore({ now: () => START })
    const permits = store.permits as PermitStore
    const held: string[] = []
    const options = {
      store: {
        ...store,
        permits: {
          ...permits,
          acquire(request: Parameters<PermitStore['acquire']>[0]) {
            held.push('acquire')
            return permits.acquire(request)
          },
          release(holder: string, grant?: string) {
            held.push('release')
            return permits.release(holder, grant)
          },
        },
      },
    }
    const given = { replies: [yes('a')], target: { concurrency }, options }
    expect(await start((ctx) => ctx.confirm('a', 'A?'), given).run()).toEqual(done('true'))
    expect(held).toEqual(['acquire', 'acquire', 'release'])
  })
})

describe('a question that any instance can continue from', () => {
  /** Seals nothing: notes what it was given. */
  function handing() {
    const given: { claims: Claims; keys: string[]; progress: number | undefined }[] = []
    const handed = { q: { id: 'id' } as PortableQuestion }
    const hand: MakePortable = async (_round, claims, questions, progress) => {
      given.push({ claims, keys: Object.keys(questions), progress })
      return handed
    }
    return { given, handed, push: { hand } }
  }
  const line = { portable: true }

  it('goes out alone, with the journal and the epoch of the store', async () => {
    const { given, handed, push } = handing()
    const handler = async (ctx: Context) => {
      await ctx.step('load', () => 1)
      ctx.progress(3)
      await Promise.all([ctx.confirm('a', 'A?'), ctx.confirm('b', 'B?')])
      return 'done'
    }
    const { run, asked, host } = start(handler, { push, line, replies: [yes('a'), yes('b')] })
    expect(await run()).toEqual(done('done'))
    expect(asked.map(({ questions }) => Object.keys(questions))).toEqual([['a'], ['b']])
    expect(asked[0]?.options).toEqual({ timeoutMs: 60 * MINUTE, handed })
    expect(given).toMatchObject([
      { keys: ['a'], progress: 3, claims: { journal: { epoch: await host.epoch() }, round: 1 } },
      { keys: ['b'], claims: { round: 2 } },
    ])
    expect(Object.keys(given[0]?.claims.asked ?? {})).toEqual(['a'])
    expect(given[0]?.claims.asked.a).toMatch(/^.{20,}$/)
    expect(given[0]?.claims.journal.entries.map(({ key }) => key)).toEqual(['load'])
  })

  it('stays with its epoch', async () => {
    const { given, push } = handing()
    let epoch = 'first'
    const host = { epoch: async () => epoch }
    const handler = async (ctx: Context) => {
      await ctx.confirm('a', 'A?')
      epoch = 'second'
      await ctx.confirm('b', 'B?')
    }
    await start(handler, { push, line, host, replies: [yes('a')] }).run()
    expect(given.map(({ claims }) => claims.journal.epoch)).toEqual(['first', 'first'])
  })

  it('is not handed over with several questions that the handler itself asks at once', async () => {
    const { given, push } = handing()
    const inputRequests = { a: { method: 'roots/list' }, b: { method: 'roots/list' } } as const
    const handler = () => inputRequired({ inputRequests })
    const { run, asked } = start(handler, { push, line })
    await run()
    expect(asked.map(({ questions, options }) => [Object.keys(questions), options.handed])).toEqual([
      [['a', 'b'], undefined],
    ])
    expect(asked[0]?.options.enough).toBeUndefined()
    expect(given).toEqual([])
  })

  it('may be none: the handler only keeps its state', async () => {
    const { push } = handing()
    const handler = (ctx: Context) => (ctx.requestState ? 'done' : inputRequired({ requestState: 'own' }))
    expect(await start(handler, { push, line }).run()).toEqual(done('done'))
  })

  it.each<[string, Given]>([
    ['of a session that only this process knows', { line: {} }],
    ['of a tool whose states count once', { line, target: { once: true } }],
  ])('B8 goes out without a state: %s', async (_name, more) => {
    const { given, push } = handing()
    const { run, asked } = start(confirmAll, { push, ...more })
    await run()
    expect(given).toEqual([])
    expect(Object.keys(asked[0]?.questions ?? {})).toEqual(['a', 'b'])
  })

  it('goes out with a state if the tool counts states once and there is no store', async () => {
    const { given, push } = handing()
    await start(confirmAll, { push, line, target: { once: true }, options: { store: undefined } }).run()
    expect(given).toHaveLength(1)
  })

  it('M1 goes out without a state after an effect that can be undone', async () => {
    const { given, push } = handing()
    let runs = 0
    const handler = async (ctx: Context) => {
      runs += 1
      await ctx.effect('room', () => 1, { undo: () => {} })
      await ctx.confirm('a', 'A?')
      return 'done'
    }
    const { run, asked } = start(handler, { push, line, replies: [yes('a')] })
    expect(await run()).toEqual(done('done'))
    expect(asked.map(({ options }) => options.handed)).toEqual([undefined])
    expect(given).toEqual([])
    const before = runs
    runs = 0
    await start(handler, { replies: [yes('a')] }).run()
    // Its state counts once from then on, so the effect of a call that other instances know waits for a round of its own.
    expect([before, runs]).toEqual([3, 2])
  })
})

describe('a call that is kept in a store while it waits', () => {
  const line = { durable: true }

  it('R6 R7 is kept before its first effect', async () => {
    let keptFirst = 0
    const handler = async (ctx: Context) => {
      ctx.progress(2)
      await ctx.effect('save', () => {
        keptFirst = started.kept.length
      })
      return `round ${ctx.round}`
    }
    const started = start(handler, { line })
    expect(await started.run()).toEqual(done('round 2'))
    expect(keptFirst).toBe(1)
    const epoch = await started.host.epoch()
    expect(started.kept).toMatchObject([{ progress: 2, claims: { round: 1, journal: { epoch, moves: 1 } } }])
  })

  it('M1 R7 is kept before its first effect that can be undone, with the line that it belongs to', async () => {
    let keptFirst = 0
    const handler = async (ctx: Context) => {
      await ctx.confirm('a', 'A?')
      await ctx.effect('room', () => 1)
      const undo = () => {}
      const rent = () => {
        keptFirst = started.kept.length
      }
      await ctx.effect('car', rent, { undo })
      await ctx.effect('van', () => 1, { undo })
      return `round ${ctx.round}`
    }
    const started = start(handler, { line, replies: [yes('a')] })
    expect(await started.run()).toEqual(done('round 3'))
    expect(keptFirst).toBe(1)
    const journal = { lineage: expect.any(String), entries: [{ key: 'a' }, { key: 'room' }] }
    expect(started.kept).toMatchObject([{ claims: { round: 2, journal } }])
  })

  it.each([false, true])(
    'R6 begins no effect if its client has gone meanwhile (elsewhere: %s)',
    async (isTaken) => {
      let effects = 0
      const keep = async () => void Object.assign(started.line, { closed: true })
      const given = { ...line, keep, isTaken: async () => isTaken }
      const started = start((ctx) => ctx.effect('save', () => ++effects), { line: given })
      expect(await started.run()).toMatchObject({ kind: 'error', error: { code: 'PEER_REQUEST' } })
      expect(effects).toBe(0)
    },
  )

  it('R7 is kept with its questions, and when the first of them closes', async () => {
    const schema = z.object({ value: z.string() })
    const handler = async (ctx: Context) => {
      await Promise.all([
        ctx.ask('a', { message: 'A?', schema, within: 9_000 }),
        ctx.ask('b', { message: 'B?', schema, within: 5_000 }),
      ])
    }
    const { run, asked, kept } = start(handler, { line })
    await run()
    expect(kept).toEqual([])
    expect(asked[0]?.options).toMatchObject({
      kept: { claims: { round: 1, asked: { a: expect.any(String) } }, due: START + 5_000 },
      enough: expect.any(AbortSignal),
    })
    const timeless = start(confirmAll, { line, replies: [yes('a', 'b')] })
    await timeless.run()
    expect(timeless.asked[1]?.options.kept).toMatchObject({ claims: { round: 2 } })
    expect(timeless.asked[0]?.options.kept).toMatchObject({ claims: { round: 1 } })
    expect(timeless.asked[0]?.options.kept?.due).toBeUndefined()
    expect(timeless.asked[0]?.options.enough).toBeUndefined()
  })

  it('R7 is not kept again while it only moves', async () => {
    const handler = (ctx: Context) => {
      if (ctx.round < 3) return inputRequired({ requestState: `after ${ctx.round}` })
      return `round ${ctx.round}`
    }
    const { run, kept } = start(handler, { line })
    expect(await run()).toEqual(done('round 3'))
    expect(kept).toHaveLength(1)
  })

  it.each<[string, Given]>([
    ['whose line does not last', { line: { durable: false } }],
    ['whose line keeps nothing', { line: { durable: true, keep: undefined } }],
    [
      'that goes out with its questions',
      { line: { ...line, portable: true }, push: { hand: async () => ({}) } },
    ],
  ])('R6 is none whose effects wait: %s', async (_name, given) => {
    const { run, asked, kept } = start(
      async (ctx) => {
        await ctx.effect('save', () => 1)
        const { round } = ctx
        await ctx.confirm('a', 'A?')
        return `asked in round ${round}`
      },
      { replies: [yes('a')], ...given },
    )
    expect(await run()).toEqual(done('asked in round 2'))
    expect(kept).toEqual([])
    expect(asked).toHaveLength(1)
    expect(asked[0]?.options.kept).toBeUndefined()
  })
})

describe('a call that another instance began', () => {
  const beginning = {
    flow: 'flow',
    round: 4,
    journal: { startedAt: START, seed: 'c2VlZA', entries: [], reasks: {}, moves: 0 },
    asked: {},
    flowExpires: START + MINUTE,
    anchored: true,
  }

  it('R7 continues from there, and its progress does not fall', async () => {
    const sent: unknown[] = []
    const notify: AskingLine['notify'] = (method, params) => void sent.push([method, params.progress])
    const handler = (ctx: Context) => {
      ctx.progress(4)
      ctx.progress(6)
      return `${ctx.flow} ${ctx.round}`
    }
    const push = { from: { beginning, answers: undefined, progress: 5 } }
    expect(await start(handler, { push, line: { notify } }).run()).toEqual(done('flow 4'))
    expect(sent).toEqual([['notifications/progress', 6]])
  })

  it('R7 waits for the answers that are missing', async () => {
    const handler = (ctx: Context) => String(ctx.inputResponses?.a)
    const asked = { a: 'manual:d' }
    const from = { beginning: { ...beginning, asked }, answers: { a: 1 } }
    expect(await start(handler, { push: { from } }).run()).toEqual(done('1'))
    const pending = async (): Promise<Asked> => ({ kind: 'answers', answers: { a: 2 } })
    expect(await start(handler, { push: { from: { ...from, pending } } }).run()).toEqual(done('2'))
  })

  it('R7 continues without a method that its client does not implement', async () => {
    const handler = (ctx: Context) => `${ctx.can('roots')}`
    const pending = async (): Promise<Asked> => ({
      kind: 'refused',
      error: new RondoError('INPUT_FAILED'),
      unable: 'a',
    })
    const from = { beginning, answers: undefined, pending }
    const methods = { a: 'roots/list' } as const
    expect(await start(handler, { push: { from: { ...from, methods } } }).run()).toEqual(done('false'))
    expect(await start(handler, { push: { from } }).run()).toMatchObject({ result: { isError: true } })
  })
})

describe('single use of effects in a call that is pushed', () => {
  const handler = (ctx: Context) => ctx.effect('save', () => 'saved', { once: true })

  it('B8 counts in the epoch in which the effect runs', async () => {
    const epochs: string[] = []
    const store = createMemoryStore({ now: () => START })
    const claim: typeof store.once.claim = (slot, attempt) => {
      epochs.push(slot.epoch)
      return store.once.claim(slot, attempt)
    }
    const options = { store: { ...store, once: { ...store.once, claim } } }
    expect(await start(handler, { options }).run()).toEqual(done('saved'))
    expect(epochs).toEqual([await store.once.epoch()])
  })

  it('B8 needs the store', async () => {
    const store = createMemoryStore()
    const epoch = () => Promise.reject(new RondoError('STORE_UNAVAILABLE'))
    const options = { store: { ...store, once: { ...store.once, epoch } } }
    const host = { epoch: async () => undefined }
    expect(await start(handler, { options, host }).run()).toMatchObject({
      kind: 'error',
      error: { code: 'STORE_UNAVAILABLE' },
    })
    const without = start(handler, { options: { store: undefined } })
    expect(await without.run()).toMatchObject({ result: { isError: true } })
    expect(without.faults()).toMatchObject([{ message: expect.stringContaining('store') }])
  })

  it('B8 counts for each effect, and waits for one that runs elsewhere', async () => {
    const store = createMemoryStore({ now: () => START })
    let asked = 0
    const claim: typeof store.once.claim = async (slot, attempt) => {
      asked += 1
      return asked === 1 ? { kind: 'busy', retryMs: 1 } : store.once.claim(slot, attempt)
    }
    const options = { store: { ...store, once: { ...store.once, claim } } }
    const both = async (ctx: Context) => {
      const save = (key: string) => ctx.effect(key, () => key, { once: true })
      return `${await save('a')} ${await save('b')}`
    }
    expect(await start(both, { options }).run()).toEqual(done('a b'))
  })
})

describe('a time limit', () => {
  /** A clock whose timers fire when the test says so. */
  function clock() {
    let now = START
    const timers = new Map<() => void, number>()
    const after = (ms: number, fn: () => void) => {
      timers.set(fn, ms)
      return () => void timers.delete(fn)
    }
    const fire = (ms: number) => {
      now += ms
      for (const timer of [...timers.keys()]) {
        timers.delete(timer)
        timer()
      }
    }
    const platform = { now: () => now, after } as unknown as FlowHost['platform']
    return { platform, timers, fire }
  }

  it('G2 fires when the time is up, and not when a timer is early', () => {
    const { platform, timers, fire } = clock()
    const limit = limitAt(platform, START + 100)
    expect([...timers.values()]).toEqual([100])
    expect([limit.signal.aborted, limit.arrivedAt(), limit.due]).toEqual([false, undefined, START + 100])
    fire(99)
    expect(limit.signal.aborted).toBe(false)
    expect([...timers.values()]).toEqual([1])
    fire(1)
    expect([limit.signal.aborted, limit.arrivedAt()]).toEqual([true, START + 99])
    expect(timers.size).toBe(0)
  })

  it('G2 fires at once if it is over, and never once it was stopped', () => {
    const { platform, timers } = clock()
    expect(limitAt(platform, START).signal.aborted).toBe(true)
    const limit = limitAt(platform, START + 1)
    limit.stop()
    expect(timers.size).toBe(0)
    expect(limit.signal.aborted).toBe(false)
  })
})

describe('a line over several runs', () => {
  it('is the line of the call, but for its progress', async () => {
    const sent: unknown[] = []
    const closed: (() => void)[] = []
    const own: { -readonly [K in keyof Line]: Line[K] } = {
      closed: false,
      notify: (method, params) => void sent.push([method, params]),
      onClose(listener) {
        closed.push(listener)
        return () => void closed.pop()
      },
    }
    const steady = new SteadyLine(own)
    expect([steady.closed, steady.left, await steady.isTaken()]).toEqual([false, false, false])
    own.closed = true
    own.left = true
    own.isTaken = async () => true
    expect([steady.closed, steady.left, await steady.isTaken()]).toEqual([true, true, true])
    const stop = steady.onClose(() => {})
    expect(closed).toHaveLength(1)
    stop()
    expect(closed).toEqual([])
    for (let again = 0; again < 2; again++) steady.notify('notifications/message', { progress: 1 })
    expect(sent).toHaveLength(2)
    expect(steady.progress).toBeUndefined()
  })
})

/** One turn of a task: what it runs on, what it writes down, and how it ends. */

import { getEventListeners } from 'node:events'
import { beforeEach, describe, expect, it } from 'vitest'
import { z } from 'zod'
import { RondoError } from '../../errors.ts'
import type { Entry } from '../../journal/journal.ts'
import type { LogFacts } from '../../log/event.ts'
import type { ObservedOperation } from '../../protocol/observer.ts'
import type { TaskState } from '../../protocol/reply.ts'
import { generateKey } from '../../seal/key-ring.ts'
import { createHost, type HostOptions } from '../../serve/host.ts'
import type { InputSlot, SlotChange } from '../../store/input-slots.ts'
import { createMemoryStore } from '../../store/memory/store.ts'
import type { TaskTurn, TaskTurnOutcome } from '../../store/task-engine.ts'
import type { Context } from '../../tool/context.ts'
import { taskCreated } from '../../tool/forward.ts'
import { inputRequired, type Target } from '../../tool/target.ts'
import type { CallFacts, CallReply, CallStep } from '../around.ts'
import type { FlowHost, TaskHost } from '../host.ts'
import { notedEnd } from '../report.ts'
import { guardOf } from '../undo.ts'
import {
  markAnswer,
  openPiece,
  ownerOf,
  type Piece,
  sealPiece,
  type TaskPlan,
  type TaskRecord,
} from './journal.ts'
import { createRunTurn } from './turn.ts'

const START = 1_800_000_000_000
const MINUTE = 60_000
const ID = 'task-with-an-id-of-its-own'
const ada = { subject: 'ada' }
const ANYTHING = { elicitation: { form: {}, url: {} }, roots: {} }
const texts = (text: string) => ({ content: [{ type: 'text', text }] })
const QUESTION = { message: 'Who?', schema: z.object({ name: z.string() }) }
const accept = (name: string) => ({ action: 'accept', content: { name } })

let events: LogFacts[] = []
beforeEach(() => {
  events = []
})

interface Given {
  readonly options?: Partial<HostOptions>
  readonly host?: Partial<FlowHost>
  readonly plan?: Partial<TaskPlan>
  readonly target?: Partial<Target>
  readonly records?: readonly TaskRecord[]
  readonly answers?: Readonly<Record<string, unknown>>
  readonly turn?: Partial<TaskTurn>
  readonly task?: Partial<TaskTurn['task']>
  readonly find?: () => Target | undefined
}

/** A turn of a task whose handler is this, and what it does to the store. */
async function start(handler: (ctx: Context) => unknown, given: Given = {}) {
  const created = createHost({
    audience: 'shop',
    keys: 'k:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=',
    log: (event) => void events.push(event),
    store: createMemoryStore({ now: () => START }),
    now: () => START,
    tasks: { ttlMs: 10 * MINUTE },
    ...given.options,
  })
  await created.keys.ready()
  const host = { ...created, ...given.host } as FlowHost
  const tasks = host.tasks as TaskHost
  const of = { id: ID, owner: ownerOf(host, ada) }
  const seal = (piece: Piece, value: unknown) => sealPiece(host, of, piece, value)
  const open = <T>(piece: Piece, sealed: string) => openPiece<T>(host, tasks, of, piece, sealed)
  const call = {
    method: 'tools/call',
    target: 'pay',
    args: {},
    protocolVersion: '2026-07-28',
    capabilities: ANYTHING,
  } as const
  const plan: TaskPlan = {
    flow: 'flow',
    seed: 'c2VlZA',
    startedAt: START,
    round: 2,
    principal: ada,
    call,
    ...given.plan,
  }
  const recorded: TaskRecord[] = []
  const messages: unknown[] = []
  const published: SlotChange[] = []
  const labelled: unknown[] = []
  const turn = {
    task: {
      ...of,
      head: seal('head', plan),
      createdAt: START - MINUTE,
      expiresAt: START + 9 * MINUTE,
      pollMs: 1_000,
      failures: 0,
      known: true,
      ...given.task,
    },
    number: 3,
    journal: (given.records ?? []).map((record) => seal('record', record)),
    claimedAt: START,
    answers: new Map(
      Object.entries(given.answers ?? {}).map(([key, value]) => [key, seal(`answer ${key}`, value)]),
    ),
    slots: () => [],
    publish: async (change: SlotChange) => void published.push(change),
    onAnswers: () => {},
    record: async (sealed: string) => void recorded.push(open('record', sealed)),
    status: async (sealed: string) => void messages.push(open('message', sealed)),
    label: async (sealed: string) => void labelled.push(open('labels', sealed)),
    signal: new AbortController().signal,
    draining: new AbortController().signal,
    ...given.turn,
  } as TaskTurn
  const target = {
    method: 'tools/call',
    name: 'pay',
    task: { mode: 'auto' },
    prepare: () => ({ kind: 'ready', run: handler }),
    finish: (value: unknown) => (typeof value === 'string' ? texts(value) : value),
    fail: (message: string) => ({ result: { ...texts(message), isError: true } }),
    ...given.target,
  } as unknown as Target
  const run = (): Promise<TaskTurnOutcome> => createRunTurn(host, tasks, given.find ?? (() => target))(turn)
  /** The result or the error with which the task ends. */
  const end = async (): Promise<unknown> => {
    const outcome = await run()
    if (outcome.kind === 'complete') return open('result', outcome.result)
    return outcome.kind === 'fail' ? { failed: open('error', outcome.error) } : outcome
  }
  return { host, tasks, of, turn, run, end, open, seal, recorded, messages, published, labelled }
}
const endOf = async (handler: (ctx: Context) => unknown, given?: Given) => (await start(handler, given)).end()
const warnings = () => events.flatMap((event) => (event.event === 'warning' ? [event] : []))
const faults = () => events.flatMap((event) => (event.event === 'fault' ? [event.error] : []))
const entry = (key: string, value: unknown): TaskRecord => ({
  entry: { kind: 'step', key, at: START, value } as Entry,
})
const parked = (asked: Record<string, { key: string; digest: string }>): TaskRecord => ({
  parked: { asked, reasks: {} },
})

describe('a turn of a task', () => {
  it('E3 ends its task with the result', async () => {
    expect(await endOf(() => 'done')).toEqual(texts('done'))
    expect(events).toMatchObject([
      { event: 'round', outcome: 'complete', flow: 'flow', round: 2, task: ID, turn: 3 },
    ])
  })

  it('E9 runs on what was recorded, and records what is new before its handler sees it', async () => {
    const seen: unknown[] = []
    const handler = async (ctx: Context) => {
      seen.push(await ctx.step('a', () => 'again'))
      await ctx.step('b', () => 'new')
      seen.push(started.recorded.length)
      return 'done'
    }
    const started = await start(handler, { records: [entry('a', 'before')] })
    expect(await started.end()).toEqual(texts('done'))
    expect(seen).toEqual(['before', 1])
    expect(started.recorded).toEqual([{ entry: { kind: 'step', key: 'b', at: START, value: 'new' } }])
  })

  it('E9 fails for a row that names another owner than the one who began the task', async () => {
    for (const plan of [{ principal: { subject: 'eve' } }, { principal: undefined }]) {
      const { run } = await start(() => 'done', { plan })
      await expect(run()).rejects.toMatchObject({ code: 'SERVER_INTERNAL' })
      expect(warnings().at(-1)).toMatchObject({ flow: 'flow', round: 2, task: ID, turn: 3 })
    }
    const { host, of, turn, tasks } = await start(() => 'done')
    const owner = { ...of.owner, tenant: 'another' }
    const run = createRunTurn(host, tasks, () => undefined)
    await expect(run({ ...turn, task: { ...turn.task, owner } })).rejects.toMatchObject({
      code: 'SERVER_INTERNAL',
    })
  })

  it('M1 may be that of an alarm, whose owner is the server', async () => {
    const undo = { lineage: 'line', expires: START + MINUTE }
    const { host, tasks, turn, run: _, of } = await start(() => 'done')
    const { alarm: id, owner } = guardOf(host, 'c2VlZA', 'line')
    const call = {
      method: 'tools/call',
      target: 'pay',
      args: {},
      protocolVersion: '2026-07-28',
      capabilities: {},
    } as const
    const plan: TaskPlan = { flow: 'flow', seed: 'c2VlZA', startedAt: START, round: 2, call, undo }
    const head = sealPiece(host, { id, owner }, 'head', plan)
    const run = createRunTurn(host, tasks, () => ({ name: 'pay' }) as Target)
    expect(of.owner).not.toEqual(owner)
    expect(await run({ ...turn, task: { ...turn.task, id, owner, head } })).toMatchObject({
      kind: 'park',
      wakeAt: START + MINUTE,
    })
  })

  it('waits for an instance that has its tool, and fails after a while', async () => {
    let time = START
    const { host, tasks, turn, open } = await start(() => 1, { options: { now: () => time } })
    const run = createRunTurn(host, tasks, () => undefined)
    const waits = { kind: 'release', delayMs: 10_000 }
    expect(await run(turn)).toEqual(waits)
    expect(warnings()).toMatchObject([
      { message: expect.stringContaining('"pay"'), task: ID, turn: 3, flow: 'flow' },
    ])
    time += 15 * MINUTE - 1
    expect(await run(turn)).toEqual(waits)
    // A journal that has grown shows that another instance has the tool.
    expect(await run({ ...turn, journal: ['r'] })).toEqual(waits)
    time += 15 * MINUTE
    const failed = await run({ ...turn, journal: ['r'] })
    expect(failed.kind === 'fail' && open('error', failed.error)).toMatchObject({
      code: -32602,
      message: expect.stringContaining('pay'),
    })
    expect(notedEnd(turn.task)).toEqual({ outcome: 'refused', code: 'PEER_PARAMS' })
    expect(await run({ ...turn, journal: ['r'] })).toEqual(waits)
  })

  it('R9 remembers a thousand tasks that wait for their tool, and begins anew with one that it forgot', async () => {
    let time = START
    const { host, tasks, turn, of } = await start(() => 1, { options: { now: () => time } })
    const run = createRunTurn(host, tasks, () => undefined)
    const call = {
      method: 'tools/call',
      target: 'pay',
      args: {},
      protocolVersion: '2026-07-28',
      capabilities: {},
    } as const
    const plan: TaskPlan = { flow: 'flow', seed: 'c2VlZA', startedAt: START, round: 2, principal: ada, call }
    const kindOf = async (id: string) => {
      const head = sealPiece(host, { ...of, id }, 'head', plan)
      return (await run({ ...turn, task: { ...turn.task, id, head } })).kind
    }
    for (let n = 1; n <= 1000; n++) await kindOf(`task ${n}`)
    time += 15 * MINUTE
    expect(await kindOf('task 1')).toBe('fail')
    await kindOf('task 1001')
    await kindOf('task 1002')
    expect([await kindOf('task 2'), await kindOf('task 1000')]).toEqual(['release', 'fail'])
  })

  it('M3 waits for a permit, and says so', async () => {
    const concurrency = { keyOf: async () => 'one', limit: 1, queues: true, releases: false }
    const permits = { acquire: async () => ({ kind: 'busy', retryMs: 1, waitedMs: 0 }) }
    const store = { ...createMemoryStore(), permits } as unknown as HostOptions['store']
    const { run, messages } = await start(() => 'done', { target: { concurrency }, options: { store } })
    expect(await run()).toEqual({ kind: 'release', delayMs: 500 })
    await new Promise((resolve) => setImmediate(resolve))
    expect(messages).toEqual([{ auto: 'Waiting for other calls to end' }])
  })

  it('G7 reports nothing of what still runs after it', async () => {
    const timers = new Set<number>()
    const seen: number[] = []
    const handler = async (ctx: Context) => {
      await new Promise<void>((begun) => {
        const slow = async () => {
          begun()
          await new Promise((resolve) => setImmediate(resolve))
        }
        ctx.step('slow', slow).catch(() => {})
      })
      seen.push(...timers)
      throw new Error('no')
    }
    const { host, tasks, turn } = await start(handler)
    const after = (ms: number) => {
      timers.add(ms)
      return () => void timers.delete(ms)
    }
    const target = { method: 'tools/call', name: 'pay', task: { mode: 'auto' } } as Target
    const run = createRunTurn({ ...host, platform: { ...host.platform, after } }, tasks, () => ({
      ...target,
      prepare: () => ({ kind: 'ready', run: handler }),
      finish: () => ({}),
      fail: () => ({ result: { isError: true } }),
    }))
    expect((await run(turn)).kind).toBe('complete')
    expect(seen).toEqual([500])
    expect([...timers]).toEqual([])
  })

  it('is logged with the version that began its task, if another one runs', async () => {
    await endOf(() => 'done', { plan: { toolVersion: '1' }, target: { version: '2' } })
    expect(events).toMatchObject([{ event: 'round', sealedVersion: '1' }])
  })

  it('tells its handler when it no longer counts', async () => {
    for (const looksBefore of [true, false]) {
      const lost = new AbortController()
      const seen: boolean[] = []
      const handler = (ctx: Context) => {
        if (looksBefore) seen.push(ctx.signal.aborted)
        lost.abort()
        seen.push(ctx.signal.aborted)
        return 'done'
      }
      expect(await endOf(handler, { turn: { signal: lost.signal } })).toEqual({ kind: 'release' })
      expect(seen).toEqual(looksBefore ? [false, true] : [true])
    }
    const kept = new AbortController()
    await endOf((ctx) => String(ctx.signal.aborted), { turn: { signal: kept.signal } })
    expect(getEventListeners(kept.signal, 'abort')).toEqual([])
  })

  it('stays a task if its handler wants one', async () => {
    const handler = async (ctx: Context) => {
      await ctx.background()
      return 'done'
    }
    expect(await endOf(handler)).toEqual(texts('done'))
  })

  it('B8 runs an effect of single use once, and waits for nobody who runs it', async () => {
    let runs = 0
    const effect = (key: string) => (ctx: Context) =>
      ctx.effect(key, () => `${key} ${++runs}`, { once: true })
    const both = async (ctx: Context) => `${await effect('a')(ctx)}, ${await effect('b')(ctx)}`
    const store = createMemoryStore()
    const epoch = await store.once.epoch()
    const given = { options: { store }, plan: { epoch } }
    expect(await endOf(both, given)).toEqual(texts('a 1, b 2'))
    expect(await endOf(both, given)).toEqual(texts('a 1, b 2'))
    const busy = {
      ...store,
      once: { ...store.once, claim: async () => ({ kind: 'busy', retryMs: 1_000 }) as const },
    }
    const waits = { options: { store: busy }, plan: { epoch } }
    expect(await endOf(both, waits)).toEqual({ kind: 'release', delayMs: 5_000 })
    expect(runs).toBe(2)
  })

  it('is left to an instance that has the key', async () => {
    const { turn } = await start(() => 1)
    const other = await start(() => 1, { options: { keys: generateKey('other') } })
    const run = createRunTurn(other.host, other.tasks, () => undefined)
    expect(await run(turn)).toEqual({ kind: 'release', delayMs: 10_000 })
  })

  it('G1 goes by the clock of the store', async () => {
    const given = { turn: { claimedAt: START + 7_000 } }
    const wakeAt = START + 7_000 + MINUTE
    expect(await endOf((ctx) => ctx.sleep('night', MINUTE), given)).toMatchObject({ kind: 'park', wakeAt })
  })

  it('knows its flow, its caller and its round', async () => {
    const handler = (ctx: Context) => JSON.stringify([ctx.flow, ctx.principal, ctx.round])
    expect(await endOf(handler)).toEqual(texts(JSON.stringify(['flow', ada, 2])))
  })
})

describe('a turn that stops before its task is over', () => {
  it('E3 parks with its questions, which it has recorded', async () => {
    const { run, recorded, open, messages } = await start((ctx) => ctx.ask('q', QUESTION))
    const outcome = await run()
    if (outcome.kind !== 'park') throw new Error(outcome.kind)
    const [[key, request] = ['', '']] = outcome.inputs
    expect([key, open(`input ${key}`, request)]).toMatchObject(['q', { params: { message: 'Who?' } }])
    expect(recorded).toEqual([
      { parked: { asked: { q: { key: 'q', digest: expect.any(String) } }, reasks: {} } },
    ])
    expect(outcome).toMatchObject({ close: [], until: new Map() })
    expect([outcome.wakeAt, outcome.liveUntil]).toEqual([undefined, undefined])
    expect(messages).toEqual([])
  })

  it('G2 lives on beyond the time of what it waits for, but not for ever', async () => {
    const liveUntil = async (within: number, given: Given = {}) => {
      const outcome = await (await start((ctx) => ctx.ask('q', { ...QUESTION, within }), given)).run()
      return outcome.kind === 'park' && [outcome.wakeAt, outcome.liveUntil, outcome.until?.get('q')]
    }
    const until = START + 5 * MINUTE
    expect(await liveUntil(5 * MINUTE)).toEqual([until, until + 10 * MINUTE, until])
    expect(await liveUntil(5 * MINUTE, { plan: { ttlMs: MINUTE } })).toEqual([until, until + MINUTE, until])
    expect(await liveUntil(5 * MINUTE, { target: { task: { mode: 'auto', ttlMs: 2 * MINUTE } } })).toEqual([
      until,
      until + 2 * MINUTE,
      until,
    ])
    const two = (ctx: Context) =>
      Promise.all([
        ctx.ask('q', { ...QUESTION, within: MINUTE }),
        ctx.ask('r', { ...QUESTION, within: 3 * MINUTE }),
      ])
    expect(await (await start(two)).run()).toMatchObject({
      wakeAt: START + MINUTE,
      liveUntil: START + 13 * MINUTE,
    })
    const maxTtlMs = 6 * MINUTE
    expect(
      (await liveUntil(5 * MINUTE, { options: { tasks: { ttlMs: 4 * MINUTE, maxTtlMs } } })) as unknown[],
    ).toEqual([until, START + 9 * MINUTE, until])
  })

  it.each<[string, (ctx: Context) => unknown, string | undefined]>([
    ['a question', (ctx) => ctx.ask('q', QUESTION), undefined],
    [
      'a question and an event',
      async (ctx) => {
        const hook = await ctx.hook('paid')
        await Promise.all([ctx.ask('q', QUESTION), hook.received()])
      },
      undefined,
    ],
    [
      'an event',
      async (ctx) => (await ctx.hook('paid')).received(),
      'Waiting for the event of the hook "paid"',
    ],
    [
      'two events',
      async (ctx) => {
        const [a, b] = [await ctx.hook('paid'), await ctx.hook('sent')]
        await Promise.all([a.received(), b.received()])
      },
      'Waiting for the event of the hook "paid", "sent"',
    ],
    [
      'a time',
      (ctx) => ctx.sleep('night', MINUTE),
      `Sleeping until ${new Date(START + MINUTE).toISOString()}`,
    ],
    [
      'another attempt',
      (ctx) =>
        ctx.step('load', () => Promise.reject(new Error('no')), {
          retry: { times: 3, delay: MINUTE, factor: 1 },
        } as never),
      `Retrying "load" at ${new Date(START + MINUTE).toISOString()}`,
    ],
    [
      'the first of two attempts',
      (ctx) => {
        const load = (key: string, delay: number) =>
          ctx.step(key, () => Promise.reject(new Error('no')), {
            retry: { times: 3, delay, factor: 1 },
          } as never)
        return Promise.all([load('late', MINUTE), load('soon', MINUTE / 2)])
      },
      `Retrying "soon" at ${new Date(START + MINUTE / 2).toISOString()}`,
    ],
  ])('G7 says what it waits for, if its questions do not: %s', async (_name, handler, auto) => {
    const { run, messages } = await start(handler)
    expect((await run()).kind).toBe('park')
    await new Promise((resolve) => setImmediate(resolve))
    expect(messages).toEqual(
      auto === undefined ? [] : [{ auto: expect.stringMatching(auto.replace(/\.\d+Z$/, '')) }],
    )
  })

  it('says whose approval it waits for, beside the events', async () => {
    const approver = {
      open: async () => {},
      use: async () => ({ kind: 'denied' }),
    } as unknown as FlowHost['approver']
    const ask = (ctx: Context) => ctx.approve('sure', { from: 'finance', message: 'Pay?' } as never)
    const both = async (ctx: Context) => {
      const hook = await ctx.hook('paid')
      await Promise.all([ask(ctx), hook.received()])
    }
    const message = async (handler: (ctx: Context) => unknown) => {
      const { run, messages } = await start(handler, { host: { approver } })
      expect((await run()).kind).toBe('park')
      await new Promise((resolve) => setImmediate(resolve))
      return (messages[0] as { auto: string }).auto
    }
    const alone = await message(ask)
    expect(alone).toContain('finance')
    expect(alone).not.toContain('hook')
    expect(await message(both)).toBe(`${alone}. Waiting for the event of the hook "paid"`)
  })

  it('is due again soon if its handler only keeps a state, as often as limits.maxEntries', async () => {
    const handler = () => inputRequired({ requestState: 'own' })
    const given = { options: { limits: { maxEntries: 2 } } }
    const { run, recorded } = await start(handler, { ...given, records: [parked({})] })
    expect(await run()).toEqual({ kind: 'release', delayMs: 250 })
    expect(recorded).toMatchObject([{ parked: { manual: 'own' } }])
    const failed = await endOf(handler, { ...given, records: [parked({}), parked({})] })
    expect(failed).toMatchObject({ failed: { code: -32603 } })
    expect(events.at(-1)).toMatchObject({ outcome: 'refused', code: 'LIMIT_ROUNDS' })
    const asks = await start((ctx) => ctx.ask('q', QUESTION), { ...given, records: [parked({}), parked({})] })
    expect((await asks.run()).kind).toBe('park')
    const byHand = await start(() => inputRequired({ inputRequests: { r: { method: 'roots/list' } } }), given)
    expect((await byHand.run()).kind).toBe('park')
  })

  it('R6 is held before its first effect while its owner may not know it', async () => {
    let done = 0
    const effect = (ctx: Context) => ctx.effect('save', () => String(++done))
    const held = await start(effect, { task: { known: false } })
    expect(await held.run()).toEqual({ kind: 'hold' })
    expect(held.recorded).toEqual([])
    const reports = (ctx: Context) => {
      ctx.status('begins')
      return effect(ctx)
    }
    const reported = await start(reports, { task: { known: false } })
    expect(await reported.run()).toEqual({ kind: 'hold' })
    expect(reported.recorded).toEqual([{ rested: true }])
    expect(done).toBe(0)
    expect(await endOf(effect)).toEqual(texts('1'))
  })

  it('is released if its process stops, or it no longer counts', async () => {
    const handler = async (ctx: Context) => {
      await ctx.step('a', () => 1)
      return ctx.step('b', () => 'done')
    }
    for (const turn of [{ draining: AbortSignal.abort() }, { signal: AbortSignal.abort() }]) {
      expect(await endOf(handler, { turn })).toEqual({ kind: 'release' })
    }
  })

  it.each<[string, object]>([
    ['STORE_LEASE_LOST', { kind: 'release' }],
    ['STORE_UNAVAILABLE', { kind: 'release', delayMs: 5_000 }],
    ['STORE_BUSY', { kind: 'release', delayMs: 5_000 }],
    ['LIMIT_STATE_BYTES', { failed: { code: -32603 } }],
  ])('E9 does not fail for the store: %s', async (code, outcome) => {
    const record = () => Promise.reject(new RondoError(code as 'STORE_BUSY'))
    expect(await endOf((ctx) => ctx.step('a', () => 'done'), { turn: { record } })).toMatchObject(outcome)
  })

  it('E9 is retried if the store fails while it parks, and fails if its questions cannot be kept', async () => {
    const asks = (ctx: Context) => ctx.ask('q', QUESTION)
    const failing = (error: unknown, more: Partial<TaskTurn> = {}) =>
      start(asks, { turn: { record: () => Promise.reject(error), ...more } })
    const store = new RondoError('STORE_UNAVAILABLE')
    await expect((await failing(store)).run()).rejects.toBe(store)
    expect(faults()).toEqual([])
    const large = await failing(new RondoError('LIMIT_STATE_BYTES'))
    expect(await large.end()).toMatchObject({ failed: { code: -32603 } })
    const odd = new Error('odd')
    expect(await (await failing(odd)).end()).toMatchObject({ failed: { code: -32603 } })
    expect(faults().at(-1)).toBe(odd)
    const lost = new AbortController()
    const record = () => {
      lost.abort()
      return Promise.reject(odd)
    }
    const before = faults().length
    await expect((await failing(odd, { record, signal: lost.signal })).run()).rejects.toBe(odd)
    expect(faults()).toHaveLength(before)
  })
})

describe('the end of a task', () => {
  it('E8 is a result if its tool failed, and an error if the runtime refuses', async () => {
    const fails = () => {
      throw new Error('secret')
    }
    expect(await endOf(fails)).toEqual({ ...texts('pay failed'), isError: true })
    const data = { own: 1 }
    const refuses = () => {
      throw new RondoError('PEER_PARAMS', 'No order', { data })
    }
    expect(await endOf(refuses)).toEqual({ failed: { code: -32602, message: 'No order', data } })
  })

  it('says why nobody can be asked, to an older client in a result', async () => {
    const asks = (ctx: Context) => ctx.ask('q', QUESTION)
    const call = { method: 'tools/call', target: 'pay', args: {}, capabilities: {} } as const
    const now = await endOf(asks, { plan: { call: { ...call, protocolVersion: '2026-07-28' } } })
    expect(now).toMatchObject({
      failed: { data: { requiredCapabilities: { elicitation: expect.anything() } } },
    })
    const older = await endOf(asks, { plan: { call: { ...call, protocolVersion: '2025-11-25' } } })
    expect(older).toMatchObject({ isError: true, content: [{ type: 'text' }] })
    const refuses = () => {
      throw new RondoError('PEER_PARAMS', 'No order')
    }
    const other = await endOf(refuses, { plan: { call: { ...call, protocolVersion: '2025-11-25' } } })
    expect(other).toMatchObject({ failed: { message: 'No order' } })
  })

  it('is a result if its arguments do not fit, and none that only a call in rounds can have', async () => {
    const prepare = () => ({ kind: 'refused', problem: 'no order' }) as const
    expect(await endOf(() => 1, { target: { prepare } })).toMatchObject({ isError: true })
    expect(faults()).toEqual([])
    expect(await endOf(() => taskCreated({ taskId: 'theirs' } as TaskState))).toMatchObject({
      failed: { code: -32603 },
    })
    expect(faults()).toMatchObject([{ message: 'A task cannot end as task_created' }])
  })

  it('M5 keeps the labels that its handler has set, at the end and while it waits', async () => {
    const label = (then: (ctx: Context) => unknown) => async (ctx: Context) => {
      ctx.label({ order: '7' })
      return await then(ctx)
    }
    const ends: [(ctx: Context) => unknown, Given?][] = [
      [label(() => 'done')],
      [label((ctx) => ctx.ask('q', QUESTION))],
      // Another release, which does nothing more after the rest.
      [label((ctx) => ctx.step('a', () => 1)), { records: [entry('a', 1), { rested: true }] }],
    ]
    for (const [handler, given] of ends) {
      const { run, labelled } = await start(handler, given)
      await run()
      expect(labelled).toEqual([[['order', '7']]])
    }
    const { run, labelled } = await start(() => 'done')
    await run()
    expect(labelled).toEqual([])
    const store = { ...createMemoryStore(), operator: undefined }
    const without = await start(
      label(() => 'done'),
      { options: { store } },
    )
    expect(await without.end()).toMatchObject({ isError: true })
    expect(without.labelled).toEqual([])
  })
})

describe('the answers of a task', () => {
  const asked = async (): Promise<string> => {
    const { run, recorded } = await start((ctx) => ctx.ask('q', QUESTION))
    await run()
    const [record] = recorded
    return (record && 'parked' in record && record.parked.asked.q?.digest) || ''
  }
  const answer = async (ctx: Context) => (await ctx.ask('q', QUESTION)).name

  it('R3 are those to the questions that it asked last', async () => {
    const digest = await asked()
    const records = [parked({ 'q~2': { key: 'q', digest } })]
    expect(await endOf(answer, { records, answers: { 'q~2': accept('Ada'), q: accept('Eve') } })).toEqual(
      texts('Ada'),
    )
    expect(await endOf(answer, { records, answers: { q: accept('Eve') } })).toMatchObject({ kind: 'park' })
  })

  it('are those that came with the request that began it, before its first question', async () => {
    const digest = await asked()
    const brought = { answers: { q: accept('Ada') }, asked: { q: digest } }
    expect(await endOf(answer, { plan: { brought } })).toEqual(texts('Ada'))
    const records = [parked({ other: { key: 'other', digest: 'd' } })]
    expect(await endOf(answer, { plan: { brought }, records })).toMatchObject({ kind: 'park' })
    expect(await endOf(answer, { plan: { brought }, records: [parked({})] })).toMatchObject({ kind: 'park' })
    const opened: TaskRecord = { opened: { asked: { other: { key: 'other', digest: 'd' } }, reasks: {} } }
    expect(await endOf(answer, { plan: { brought }, records: [opened] })).toMatchObject({ kind: 'park' })
  })

  it('may show that its client lacks a method', async () => {
    const roots = (ctx: Context) => ctx.roots()
    const records = [parked({ r: { key: 'r', digest: 'd' } })]
    expect(await endOf(roots, { records })).toMatchObject({ kind: 'park' })
    expect(await endOf(roots, { records, answers: { r: 'roots/list' } })).toMatchObject({
      failed: { data: { requiredCapabilities: { roots: {} } } },
    })
  })

  it('reach a handler that asks by hand', async () => {
    const records = [parked({ r: { key: 'r', digest: 'manual:d' } })]
    const handler = (ctx: Context) => JSON.stringify(ctx.inputResponses)
    expect(await endOf(handler, { records, answers: { r: { roots: [] } } })).toEqual(
      texts('{"r":{"roots":[]}}'),
    )
  })

  it('reach a handler that asks by hand, even those that nobody asked for, but never the name of a method', async () => {
    const handler = (ctx: Context) => JSON.stringify(ctx.inputResponses ?? {})
    const brought = { answers: { r: { roots: [] } }, asked: {}, unasked: true }
    expect(await endOf(handler, { plan: { brought } })).toEqual(texts('{"r":{"roots":[]}}'))
    const records = [parked({ r: { key: 'r', digest: 'manual:d' } })]
    expect(await endOf(handler, { records, answers: { r: 'roots/list' } })).toEqual(texts('{}'))
  })

  it('G3 are the events of its hooks, too', async () => {
    const handler = async (ctx: Context) => String(await (await ctx.hook('paid')).received())
    const { run, seal, turn, open, host, tasks } = await start(handler)
    const slot: InputSlot = { kind: 'answered', key: 'paid', role: 'hook', answer: seal('event paid', 7) }
    expect((await run()).kind).toBe('park')
    const target = { ...turn, slots: () => [slot] }
    const found = { method: 'tools/call', name: 'pay', task: { mode: 'auto' } } as Target
    const again = createRunTurn(host, tasks, () => ({
      ...found,
      prepare: () => ({ kind: 'ready', run: handler }),
      finish: (value) => texts(String(value)),
      fail: () => ({ error: new RondoError('SERVER_HANDLER') }),
    }))
    const outcome = await again(target)
    expect(outcome.kind === 'complete' && open('result', outcome.result)).toEqual(texts('7'))
  })
})

describe('what a turn writes down', () => {
  it('G1 M1 M2 when what it waits for is over, attempts, and effects that can be undone', async () => {
    const handler = async (ctx: Context) => {
      await ctx.effect('room', () => 1, { undo: () => {} })
      await ctx.step('load', () => Promise.reject(new Error('no')), {
        retry: { times: 3, delay: MINUTE, factor: 1 },
      } as never)
    }
    const { run, recorded } = await start(handler)
    expect((await run()).kind).toBe('park')
    const kinds = recorded.map((record) => Object.keys(record)[0])
    expect(kinds).toEqual(['begun', 'entry', 'attempt', 'parked'])
    expect(recorded[0]).toMatchObject({ begun: { key: 'room' }, lineage: expect.any(String) })
    expect(recorded[2]).toMatchObject({ attempt: { key: 'load', count: 1 } })
    const sleeps = await start((ctx) => ctx.sleep('night', MINUTE))
    await sleeps.run()
    expect(sleeps.recorded[0]).toEqual({ deadline: { key: 'night', due: START + MINUTE } })
  })

  it('when it asked, and who woke it, if there is telemetry', async () => {
    const operations: ObservedOperation[] = []
    const observer = {
      begin: (operation: ObservedOperation) => void operations.push(operation),
    } as FlowHost['observer']
    const asks = (ctx: Context) => ctx.ask('q', QUESTION)
    const { run, recorded } = await start(asks, { host: { observer } })
    await run()
    expect(recorded).toMatchObject([{ parked: { at: START } }])
    const asked = { a: { key: 'a', digest: 'd' }, b: { key: 'b', digest: 'd' }, c: { key: 'c', digest: 'd' } }
    const records: TaskRecord[] = [{ parked: { asked, reasks: {}, at: START - 5_000 } }]
    const answers = { b: accept('Ada'), c: markAnswer(accept('Ada'), 'span') }
    const woken = await start(asks, {
      host: { observer },
      records,
      answers,
      plan: { spans: ['first', 'last'] },
    })
    await woken.run()
    expect(operations.at(-1)).toMatchObject({
      kind: 'turn',
      wokenBy: 'span',
      waitedMs: 5_000,
      spans: ['first', 'last'],
      task: ID,
      turn: 3,
    })
    const silent = await start(asks)
    await silent.run()
    expect(silent.recorded[0]).not.toHaveProperty('parked.at')
  })
})

describe('a turn inside the steps of extensions', () => {
  const around = async (run: CallStep['run'], handler: (ctx: Context) => unknown = () => 'done') => {
    const seen: { facts?: CallFacts; reply?: CallReply } = {}
    const step: CallStep = {
      name: 'audit',
      run: (facts, next) => {
        seen.facts = facts
        return run(facts, async () => {
          seen.reply = await next()
          return seen.reply
        })
      },
    }
    const started = await start(handler, { host: { steps: [step] } })
    const end = await started.end()
    return { end, seen, noted: notedEnd(started.turn.task) }
  }

  it('is what they see, with its result', async () => {
    const { end, seen } = await around((_facts, next) => next())
    expect(end).toEqual(texts('done'))
    expect(seen.reply).toEqual({ kind: 'complete', result: texts('done') })
    expect(seen.facts).toEqual({
      kind: 'turn',
      method: 'tools/call',
      target: 'pay',
      args: {},
      continues: true,
      principal: ada,
      protocolVersion: '2026-07-28',
      flow: 'flow',
      task: ID,
      turn: 3,
    })
  })

  it('is pending while its task waits, and may have failed', async () => {
    const waits = await around(
      (_facts, next) => next(),
      (ctx) => ctx.ask('q', QUESTION),
    )
    expect(waits.seen.reply).toEqual({ kind: 'pending' })
    expect(waits.end).toMatchObject({ kind: 'park' })
    const refuses = () => {
      throw new RondoError('PEER_PARAMS', 'No order')
    }
    const fails = await around((_facts, next) => next(), refuses)
    expect(fails.seen.reply).toEqual({ kind: 'task_failed', error: { code: -32602, message: 'No order' } })
    expect(fails.end).toMatchObject({ failed: { message: 'No order' } })
  })

  it('ends its task with their reply, which is a result or an error', async () => {
    const result = await around(async () => ({ kind: 'complete', result: { own: 1 } }))
    expect([result.end, result.noted]).toEqual([{ own: 1 }, { outcome: 'complete' }])
    const error = await around(async () => ({
      kind: 'error',
      error: new RondoError('PEER_PARAMS', 'Not now'),
    }))
    expect(error.end).toEqual({ failed: { code: -32602, message: 'Not now' } })
    expect(error.noted).toEqual({ outcome: 'refused' })
    await expect(around(async () => ({ kind: 'cacheable', result: {} }))).rejects.toThrow('cacheable')
  })
})

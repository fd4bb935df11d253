import { describe, expect, it } from 'vitest'
import { type ErrorCode, RondoError, ToolError } from '../errors.ts'
import type { LogFacts } from '../log/event.ts'
import type { Call } from '../protocol/call.ts'
import type { Observed, ObservedHappening, ObservedOperation, OperationEnd } from '../protocol/observer.ts'
import type { OlderReply } from '../protocol/reply.ts'
import type { RunReport } from '../replay/run-state.ts'
import type { TaskHead } from '../store/task-engine.ts'
import type { Target } from '../tool/target.ts'
import type { Round } from './carrier.ts'
import type { FlowHost } from './host.ts'
import {
  adviseHoisting,
  adviseOutrun,
  adviseStore,
  invalidArguments,
  logFault,
  logStateRefused,
  notedEnd,
  observeRefused,
  observeRequest,
  observeRound,
  placeOfError,
  recordPlace,
  refusal,
  reportRetry,
  reportRound,
  spansOf,
  thrown,
  toEnd,
  unaskableReply,
  withSpans,
} from './report.ts'

const START = 1_800_000_000_000

const failing = (message: string) => ({ content: [{ type: 'text' as const, text: message }], isError: true })
const tool = {
  method: 'tools/call',
  name: 'pay',
  version: '2',
  fail: (message: string) => ({ result: failing(message) }),
} as unknown as Target
const prompt = {
  method: 'prompts/get',
  name: 'letter',
  fail: (message: string) => ({ error: new RondoError('SERVER_HANDLER', message) }),
} as unknown as Target

/** A round, and everything that it reports. */
function start(more: Partial<Round> = {}, host: Partial<FlowHost> = {}) {
  const events: LogFacts[] = []
  const counted: ObservedHappening[] = []
  const begun: ObservedOperation[] = []
  const ends: OperationEnd[] = []
  const ran: string[] = []
  const observed: Observed = {
    run(fn) {
      ran.push('run')
      return fn()
    },
    work: (_kind, _key, fn) => fn(),
    replayed: () => {},
    end: (how) => void ends.push(how),
  }
  const observer = {
    begin(operation: ObservedOperation) {
      begun.push(operation)
      return observed
    },
    count: (happening: ObservedHappening) => void counted.push(happening),
  }
  const round = {
    host: {
      log: (event: LogFacts) => void events.push(event),
      observer,
      platform: { now: () => START + 40 },
      ...host,
    },
    call: {
      id: 7,
      method: 'tools/call',
      target: 'pay',
      args: {},
      protocolVersion: '2026-07-28',
      trace: { traceparent: 't' },
    },
    target: tool,
    beginning: {
      flow: 'flow',
      round: 3,
      journal: { startedAt: START, seed: 's', entries: [], reasks: {}, moves: 0 },
      asked: {},
      anchored: true,
      sealedVersion: '2',
    },
    began: START,
    ...more,
  } as unknown as Round
  return { round, observed, events, counted, begun, ends, ran }
}

const basic = {
  event: 'round',
  flow: 'flow',
  round: 3,
  method: 'tools/call',
  target: 'pay',
  outcome: 'complete',
  replayed: 0,
  executed: 0,
  ms: 40,
}
const reading = {
  call: { method: 'resources/read', target: 'orders://7' } as Round['call'],
  target: { ...tool, label: 'orders://{id}' },
}

describe('the line of a round', () => {
  it('has its outcome and the time that it took', () => {
    const { round, events } = start()
    reportRound(round, undefined, { outcome: 'complete' })
    expect(events).toEqual([basic])
  })

  it('has everything that is known about its end', () => {
    const facts = {
      outcome: 'refused',
      asks: [{ key: 'a', kind: 'confirm' }],
      events: ['paid'],
      moved: 'time',
      code: 'LIMIT_ROUNDS',
      stateBytes: 900,
      keyId: 'k',
    } as const
    const { round, events, ends, observed } = start({ task: { task: 'task', turn: 4 } })
    round.observed = observed
    reportRound(round, { replayed: 2, executed: 1 } as RunReport, facts)
    expect(events).toEqual([{ ...basic, ...facts, task: 'task', turn: 4, replayed: 2, executed: 1 }])
    expect(ends).toEqual([
      {
        outcome: 'refused',
        code: 'LIMIT_ROUNDS',
        asks: 1,
        moved: 'time',
        replayed: 2,
        executed: 1,
        stateBytes: 900,
      },
    ])
  })

  it('has the task that the call became', () => {
    const { round, events, ends, observed } = start()
    round.observed = observed
    reportRound(round, undefined, { outcome: 'task', task: 'new' })
    expect(events).toEqual([{ ...basic, outcome: 'task', task: 'new' }])
    expect(ends).toEqual([{ outcome: 'task', task: 'new' }])
  })

  it('has the template of a resource instead of its URI', () => {
    const { round, events } = start(reading)
    reportRound(round, undefined, { outcome: 'complete' })
    expect(events).toMatchObject([{ method: 'resources/read', target: 'orders://{id}' }])
  })

  it.each([
    [true, '1', '1'],
    [true, '2', undefined],
    [true, undefined, undefined],
    [false, undefined, undefined],
  ])(
    'has the version that sealed its state if another one runs: anchored %s, sealed by %s',
    (anchored, sealedVersion, logged) => {
      const { round, events } = start()
      reportRound({ ...round, beginning: { ...round.beginning, anchored, sealedVersion } }, undefined, {
        outcome: 'complete',
      })
      expect(events).toEqual([{ ...basic, ...(logged && { sealedVersion: logged }) }])
    },
  )

  it('has the server that ran it, in a gateway', () => {
    const upstream = () => ({ name: 'orders', revision: '2025-11-25' })
    const { round, events } = start({ target: { ...tool, upstream } })
    reportRound(round, undefined, { outcome: 'complete' })
    expect(events).toEqual([
      { ...basic, protocolVersion: '2026-07-28', upstream: 'orders', upstreamVersion: '2025-11-25' },
    ])
  })

  it('is shown to the tracer of development mode, with the journal before it', () => {
    const seen: unknown[] = []
    const tracer = { begin: () => ({}), end: (...given: unknown[]) => void seen.push(given) }
    const trace = {} as Round['trace']
    const { round } = start({ trace }, { tracer: tracer as unknown as FlowHost['tracer'] })
    const report = { replayed: 0, executed: 0 } as RunReport
    reportRound(round, report, { outcome: 'complete' })
    expect(seen).toEqual([[basic, trace, round.beginning.journal, report]])
  })

  it('is noted as the end of its task until the store has it', () => {
    const row = {} as TaskHead
    reportRound(start({ row }).round, undefined, { outcome: 'refused', code: 'LIMIT_ROUNDS' })
    expect(notedEnd(row)).toEqual({ outcome: 'refused', code: 'LIMIT_ROUNDS' })
    expect(notedEnd({} as TaskHead)).toBeUndefined()
  })
})

describe('the log', () => {
  const place = { flow: 'flow', round: 3, method: 'tools/call', target: 'pay' }

  it('has a fault with its place', () => {
    const error = new Error('odd')
    const { round, events } = start()
    logFault(round, error)
    expect(events).toEqual([{ event: 'fault', ...place, error }])
  })

  it('has the failure of a store once, whatever fails because of it', () => {
    const error = new RondoError('STORE_UNAVAILABLE')
    for (const isSaid of [true, false]) {
      let asked = 0
      const storeWatch = {
        requestFailed() {
          asked += 1
          return isSaid
        },
      } as unknown as FlowHost['storeWatch']
      const { round, events } = start({}, { storeWatch })
      logFault(round, error)
      expect(events).toEqual(isSaid ? [] : [{ event: 'fault', ...place, error }])
      logFault(round, new RondoError('STORE_BUSY'))
      expect(events).toHaveLength(isSaid ? 1 : 2)
      expect(asked).toBe(1)
    }
    const { round, events } = start()
    logFault(round, error)
    expect(events).toHaveLength(1)
  })

  it('has an attempt that will be retried, and telemetry counts it', () => {
    const error = new Error('no')
    const failed = { kind: 'step', key: 'load', attempt: 2, due: START + 90, error } as const
    const { round, events, counted } = start()
    reportRetry(round, failed)
    reportRetry(round, { ...failed, due: START })
    const line = { event: 'retry', ...place, work: 'step', key: 'load', attempt: 2, error }
    expect(events).toEqual([
      { ...line, delayMs: 50 },
      { ...line, delayMs: 0 },
    ])
    expect(counted[0]).toEqual({ kind: 'retry', work: 'step', method: 'tools/call', target: 'pay' })
    const other = start(reading)
    reportRetry(other.round, failed)
    expect(other.counted).toEqual([{ kind: 'retry', work: 'step', method: 'resources/read' }])
    expect(() => reportRetry(start({}, { observer: undefined }).round, failed)).not.toThrow()
    expect(() => reportRetry(start({}, { observer: {} }).round, failed)).not.toThrow()
  })

  it('has why a state was refused, and the round that it was meant for', () => {
    const { round, events } = start()
    const { host } = round
    logStateRefused(
      host,
      { reason: 'expired', keyId: 'k', flow: 'flow', round: 2 },
      { method: 'tools/call', target: 'pay' },
    )
    logStateRefused(host, { reason: 'key', flow: 'flow' })
    logStateRefused(host, { reason: 'tag', round: 2 })
    expect(events).toEqual([
      { event: 'state_refused', ...place, reason: 'expired', keyId: 'k' },
      { event: 'state_refused', reason: 'key' },
      { event: 'state_refused', reason: 'tag' },
    ])
  })
})

describe('advice in development mode', () => {
  const messages = (events: readonly LogFacts[]) =>
    events.flatMap((event) => (event.event === 'warning' ? [event.message] : []))

  it('is given once for each tool and subject', () => {
    const { round, events } = start({ target: { ...tool } })
    for (let again = 0; again < 2; again++) {
      adviseHoisting(round, ['a'])
      adviseOutrun(round, 'effect "b"', 'confirmation "c"')
      adviseOutrun(round, 'effect "d"', 'confirmation "c"')
      adviseOutrun(round, 'effect "d"', 'confirmation "e"')
      adviseStore(round, 'wants')
      adviseStore(round, 'needs')
    }
    expect(messages(events)).toHaveLength(6)
    expect(events[0]).toMatchObject({ event: 'warning', flow: 'flow', round: 3 })
    adviseHoisting({ ...round, target: { ...tool } }, ['a'])
    expect(messages(events)).toHaveLength(7)
  })

  it('names the tool, and what it is about', () => {
    const { round, events } = start({ target: { ...tool } })
    adviseHoisting(round, ['a'])
    adviseHoisting({ ...round, target: { ...tool } }, ['a', 'b'])
    adviseOutrun(round, 'effect "b"', 'confirmation "c"')
    adviseStore(round, 'wants a task')
    const [one, two, outrun, store] = messages(events)
    expect(one).toMatch(/^"pay" creates the schema of the question "a" in .* Creating it once/)
    expect(two).toMatch(/^"pay" creates the schemas of the questions "a", "b" in .* Creating them once/)
    expect(outrun).toMatch(/^"pay" begins the effect "b" without the outcome of the confirmation "c"/)
    expect(store).toMatch(/^"pay" wants a task, but this server has no store/)
  })
})

describe('telemetry', () => {
  const request = {
    method: 'tools/call',
    target: 'pay',
    requestId: 7,
    protocolVersion: '2026-07-28',
    trace: { traceparent: 't' },
    began: START,
  }
  const of = { flow: 'flow', round: 3 }

  it('learns of a round and of a turn as they begin', () => {
    const first = start()
    expect(observeRound(first.round)).toBe(first.observed)
    expect(first.begun).toEqual([{ kind: 'round', ...request, ...of }])
    const turn = start({ task: { task: 'task', turn: 4 }, wokenBy: 'span' })
    observeRound(turn.round)
    expect(turn.begun).toEqual([{ kind: 'turn', ...request, ...of, task: 'task', turn: 4, wokenBy: 'span' }])
    const read = start(reading)
    observeRound(read.round)
    expect(read.begun[0]?.target).toBeUndefined()
    expect(observeRound(start({}, { observer: undefined }).round)).toBeUndefined()
    expect(observeRound(start({}, { observer: {} }).round)).toBeUndefined()
  })

  it.each([
    [START - 500, 500],
    [START, 0],
    [START + 5, 0],
  ])('learns how long a flow waited for its answers: asked at %i, %i ms', (askedAt, waitedMs) => {
    const { round, begun } = start()
    observeRound({ ...round, beginning: { ...round.beginning, askedAt } })
    expect(begun).toEqual([{ kind: 'round', ...request, ...of, waitedMs }])
  })

  it('learns of a request whose state did not open', () => {
    const { round, begun, ends } = start()
    observeRefused(round, START, new RondoError('STATE_INVALID'))
    expect(begun).toEqual([{ kind: 'request', ...request }])
    expect(ends).toEqual([{ outcome: 'refused', code: 'STATE_INVALID', rpc: -32602 }])
    for (const observer of [undefined, {}, { begin: () => undefined }])
      expect(() => observeRefused(start({}, { observer }).round, START, 'odd')).not.toThrow()
  })

  it('learns nothing of an unknown error but that there was one', () => {
    expect(toEnd(new Error('secret'))).toEqual({ outcome: 'refused', code: 'SERVER_INTERNAL' })
  })

  it('links a round to the first one and to the last one of its flow', () => {
    const { round, observed } = start()
    const withBoth = (before: readonly [string, string] | undefined, span: string | undefined) => {
      const journal = { ...round.beginning.journal, ...(before && { spans: before }) }
      return { ...round, beginning: { ...round.beginning, journal }, observed: { ...observed, span } }
    }
    expect(spansOf(round)).toBeUndefined()
    expect(spansOf(withBoth(undefined, 'a'))).toEqual(['a', 'a'])
    expect(spansOf(withBoth(['a', 'b'], 'c'))).toEqual(['a', 'c'])
    expect(spansOf(withBoth(['a', 'b'], undefined))).toEqual(['a', 'b'])
    const { journal } = round.beginning
    expect(withSpans(withBoth(undefined, 'a'))).toEqual({ ...journal, spans: ['a', 'a'] })
    expect(withSpans(withBoth(['a', 'b'], 'c'))).toEqual({ ...journal, spans: ['a', 'c'] })
  })

  const observe = async (call: object, answer: () => OlderReply, host: Partial<FlowHost> = {}) => {
    const started = start({}, host)
    const { observer, platform } = started.round.host
    let given: unknown
    const reply = await observeRequest(
      { observer, platform },
      call as Exclude<Call, { kind: 'listen' }>,
      (observed) => {
        given = observed
        return answer()
      },
    ).catch((error: unknown) => ({ thrown: error }))
    return { ...started, reply, given }
  }
  const list = {
    kind: 'list',
    listing: 'tools',
    id: 7,
    protocolVersion: '2026-07-28',
    trace: { traceparent: 't' },
  }
  const done: OlderReply = { kind: 'complete', result: {} }

  it.each<[string, OlderReply, OperationEnd]>([
    ['a result', done, {}],
    ['an error', { kind: 'error', error: new RondoError('PEER_TASK') }, { code: 'PEER_TASK', rpc: -32602 }],
    [
      'a task that failed',
      { kind: 'task_failed', error: { code: -32000, message: 'no' } },
      { code: 'task_failed', rpc: -32000 },
    ],
  ])('learns how a request ended that runs no handler: %s', async (_name, reply, end) => {
    const { begun, ends, ran, observed, ...got } = await observe(list, () => reply)
    expect(got.reply).toBe(reply)
    expect(got.given).toBe(observed)
    expect(ran).toEqual(['run'])
    const { target: _, ...rest } = request
    expect(begun).toEqual([{ kind: 'request', ...rest, method: 'tools/list', began: START + 40 }])
    expect(ends).toEqual([end])
  })

  it('learns of a request that fails, and which task it names', async () => {
    for (const [error, end] of [
      [new RondoError('PEER_TASK'), { code: 'PEER_TASK', rpc: -32602 }],
      [new Error('odd'), { code: 'SERVER_INTERNAL' }],
    ] as const) {
      const failed = await observe({ ...list, kind: 'task', action: 'get', taskId: 'task' }, () => {
        throw error
      })
      expect(failed.reply).toEqual({ thrown: error })
      expect(failed.ends).toEqual([end])
      expect(failed.begun).toMatchObject([{ method: 'tasks/get', task: 'task' }])
    }
  })

  it('costs nothing without an observer of operations', async () => {
    for (const observer of [undefined, {}]) {
      const { reply, given, ends } = await observe(list, () => done, { observer })
      expect([reply, given, ends]).toEqual([done, undefined, []])
    }
  })
})

describe('the place of an error', () => {
  it('is that of the innermost round', () => {
    const error = new Error('odd')
    recordPlace(error, { flow: 'inner' })
    recordPlace(error, { flow: 'outer' })
    expect(placeOfError(error)).toEqual({ flow: 'inner' })
    expect(placeOfError(new Error('another'))).toEqual({})
  })

  it('R11 is unknown for what is no object', () => {
    for (const odd of [null, undefined, 'odd', 7]) {
      recordPlace(odd, { flow: 'flow' })
      expect(placeOfError(odd)).toEqual({})
    }
  })
})

describe('a call that failed', () => {
  const result = (message: string) => ({ kind: 'complete', result: failing(message) })

  it('replies with what a ToolError says, or that the tool failed', () => {
    expect(thrown(tool, new ToolError('No table'), false)).toEqual({
      outcome: 'tool_error',
      reply: result('No table'),
    })
    const error = new Error('secret')
    expect(thrown(tool, error, false)).toEqual({
      outcome: 'tool_error',
      reply: result('pay failed'),
      fault: { error },
    })
    expect(thrown(tool, error, true).reply).toEqual(result('pay failed: secret'))
    expect(thrown(tool, 'odd', true).reply).toEqual(result('pay failed: odd'))
  })

  it('replies with an error that the runtime threw, unless it is never sent', () => {
    const error = new RondoError('LIMIT_TASKS')
    expect(thrown(tool, error, false)).toEqual({ outcome: 'tool_error', reply: { kind: 'error', error } })
    const unsent = new RondoError('LIMIT_DEFER')
    expect(thrown(tool, unsent, false)).toEqual({
      outcome: 'tool_error',
      reply: result('pay failed'),
      fault: { error: unsent },
    })
  })

  it('replies to a prompt with an error', () => {
    const { reply } = thrown(prompt, new ToolError('No letter'), false)
    expect(reply).toMatchObject({ kind: 'error', error: { code: 'SERVER_HANDLER' } })
    expect(invalidArguments(prompt, 'no name')).toMatchObject({
      outcome: 'tool_error',
      reply: { kind: 'error', error: { code: 'PEER_PARAMS', message: expect.stringContaining('no name') } },
    })
  })

  it('tells a model which arguments do not fit', () => {
    expect(invalidArguments(tool, 'no name')).toEqual({
      outcome: 'tool_error',
      reply: result('Invalid arguments for pay: no name'),
    })
  })

  it.each<[ErrorCode, 'result' | 'error', boolean]>([
    ['INPUT_REJECTED', 'result', false],
    ['INPUT_FAILED', 'result', false],
    ['INPUT_TIMEOUT', 'result', false],
    ['LIMIT_PARKED', 'result', false],
    ['LIMIT_SLEEP', 'result', false],
    ['LIMIT_RETRY', 'result', false],
    ['LIMIT_ROUNDS', 'error', false],
    ['STATE_INVALID', 'error', false],
    ['STORE_BUSY', 'error', false],
    ['STORE_UNAVAILABLE', 'error', true],
    ['LIMIT_STATE_BYTES', 'error', true],
    ['LIMIT_ENTRIES', 'error', true],
    ['LIMIT_QUESTIONS', 'error', true],
    ['REPLAY_DIVERGED', 'error', true],
  ])(
    'with which the runtime does not continue has the code %s: as %s, for its author %s',
    (code, as, isFault) => {
      const error = new RondoError(code, 'in detail')
      const reply = as === 'result' ? result(error.sentence) : { kind: 'error', error }
      const fault = isFault ? { error } : undefined
      expect(refusal(tool, error, false)).toEqual({ outcome: 'refused', code, fault, reply })
      expect(refusal(tool, error, true).reply).toEqual(
        code === 'REPLAY_DIVERGED' ? result(error.message) : reply,
      )
    },
  )

  it('tells an older client why it cannot be asked', () => {
    const error = new RondoError('PEER_CAPABILITY', 'It cannot be asked.')
    expect(unaskableReply(tool, error)).toEqual(result(error.sentence))
    expect(unaskableReply(tool, error, 'Use another.')).toEqual(result(`${error.sentence} Use another.`))
  })
})

/**
 * Spans and metrics of rounds as a collector gets them. The instances are servers that share keys; each round goes to
 * the next. Turns of tasks are in `telemetry-tasks.test.ts`.
 */

import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client'
import { createMcpHandler, McpServer } from '@modelcontextprotocol/server'
import { context, metrics, propagation, type SpanContext, SpanKind, trace } from '@opentelemetry/api'
import {
  BasicTracerProvider,
  type ReadableSpan,
  type Sampler,
  SamplingDecision,
} from '@opentelemetry/sdk-trace-base'
import {
  type Context,
  createServer,
  generateKey,
  type LogEvent,
  type Observer,
  type Server,
  ToolError,
} from 'rondo'
import { connect } from 'rondo/client'
import { type Observed, otel } from 'rondo/otel'
import { createRondo } from 'rondo/sdk'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { z } from 'zod'
import { openEnvelope } from '../../packages/rondo/src/seal/envelope.ts'
import { parseKeys } from '../../packages/rondo/src/seal/key-ring.ts'
import {
  packSpan,
  readBaggage,
  readTraceContext,
  unpackSpan,
} from '../../packages/rondo/src/telemetry/otel.ts'
import { connectOlder } from '../support/older-client.ts'
import { processFile } from '../support/process-file.ts'
import { send } from '../support/task-client.ts'
import { linksOf, recordTelemetry } from '../support/telemetry.ts'

const telemetry = recordTelemetry()
const keys = generateKey('k1')
const servers: { close(): Promise<void> }[] = []

beforeEach(() => telemetry.reset())
afterEach(async () => {
  for (const server of servers.splice(0)) await server.close()
})

const FORM = z.object({ word: z.string() })

async function greeting(ctx: Context): Promise<string> {
  await ctx.step('look', () => 1)
  const { word } = await ctx.ask('first', { message: 'First?', schema: FORM })
  await ctx.ask('second', { message: 'Second?', schema: FORM })
  await ctx.effect('save', async () => word.length)
  return `Hello ${word}`
}

function declare(server: Pick<Server, 'tool'>): void {
  server.tool('greet', { input: z.object({ secret: z.string().optional() }) }, (_args, ctx) => greeting(ctx))
  server.tool('fail', {}, () => {
    throw new ToolError('No.')
  })
}

function start(options: Partial<Parameters<typeof createServer>[0]> = {}): Server {
  const named = { name: 'observed', version: '1', keys, log: 'off' as const, telemetry: otel() }
  const server = createServer({ ...named, ...options })
  declare(server)
  servers.push(server)
  return server
}

const answer = (key: string, word = 'hi') => ({ [key]: { action: 'accept', content: { word } } })
const only = { capabilities: { elicitation: { form: {} } } }
type Sent = Record<string, unknown>

/** Three rounds on three instances. `metaOf` adds to the request of each round. */
async function threeRounds(instances: readonly Server[], metaOf: (round: number) => Sent = () => ({})) {
  const [a, b, c] = instances as [Server, Server, Server]
  const call = (server: Server, round: number, params: Sent) =>
    send(server, 'tools/call', { name: 'greet', arguments: {}, ...params, _meta: metaOf(round) }, only)
  const one = await call(a, 1, {})
  const two = await call(b, 2, {
    requestState: one.result?.requestState,
    inputResponses: answer('first'),
  })
  return call(c, 3, { requestState: two.result?.requestState, inputResponses: answer('second') })
}

const rounds = (kind = SpanKind.SERVER): readonly ReadableSpan[] =>
  telemetry.spans().filter((span) => span.kind === kind && span.attributes['rondo.round'] !== undefined)

describe('one flow of three rounds over three instances', () => {
  it('is three traces joined by links, without a client that sends trace context', async () => {
    const { result } = await threeRounds([start(), start(), start()])
    expect(result).toMatchObject({ content: [{ text: 'Hello hi' }] })
    const [one, two, three] = rounds() as [ReadableSpan, ReadableSpan, ReadableSpan]
    expect(rounds()).toHaveLength(3)
    expect(new Set(rounds().map((span) => span.spanContext().traceId)).size).toBe(3)
    expect(rounds().map(({ parentSpanContext }) => parentSpanContext)).toEqual([
      undefined,
      undefined,
      undefined,
    ])
    expect(linksOf(one)).toEqual({})
    expect(linksOf(two)).toEqual({ previous: one.spanContext().spanId })
    expect(linksOf(three)).toEqual({ previous: two.spanContext().spanId, first: one.spanContext().spanId })
    expect(rounds().map(({ name }) => name)).toEqual(Array(3).fill('tools/call greet'))
    expect(rounds().map(({ attributes }) => attributes['rondo.outcome'])).toEqual([
      'input_required',
      'input_required',
      'complete',
    ])
    expect(new Set(rounds().map(({ attributes }) => attributes['rondo.flow.id'])).size).toBe(1)
    expect(rounds().map(({ status }) => status.code)).toEqual([0, 0, 0])
  })

  it('has the spans that the client names as parents, and the same links', async () => {
    const traceOf = (round: number) => `${round}`.repeat(32)
    await threeRounds([start(), start(), start()], (round) => ({
      traceparent: `00-${traceOf(round)}-${'a'.repeat(16)}-01`,
      baggage: 'user=alice',
    }))
    const [one, two, three] = rounds() as [ReadableSpan, ReadableSpan, ReadableSpan]
    expect(rounds().map((span) => span.spanContext().traceId)).toEqual([traceOf(1), traceOf(2), traceOf(3)])
    expect(one.parentSpanContext).toMatchObject({ spanId: 'a'.repeat(16), isRemote: true })
    expect(linksOf(two)).toEqual({ previous: one.spanContext().spanId })
    expect(linksOf(three)).toEqual({ previous: two.spanContext().spanId, first: one.spanContext().spanId })
  })

  it('links the span of the transport if the client names one of its own', async () => {
    const server = start()
    const http = trace.getTracer('http').startSpan('POST')
    const _meta = { traceparent: `00-${'1'.repeat(32)}-${'a'.repeat(16)}-01` }
    await context.with(trace.setSpan(context.active(), http), () =>
      send(server, 'tools/call', { name: 'greet', arguments: {}, _meta }, only),
    )
    expect(rounds()[0]?.spanContext().traceId).toBe('1'.repeat(32))
    expect(linksOf(rounds()[0] as ReadableSpan)).toEqual({ transport: http.spanContext().spanId })
  })

  it('tells human time from server time', async () => {
    let now = 1_000_000
    const clock = { now: () => now }
    const server = start(clock)
    const one = await send(server, 'tools/call', { name: 'greet', arguments: {} }, only)
    now += 90_000
    await send(
      server,
      'tools/call',
      {
        name: 'greet',
        arguments: {},
        requestState: one.result?.requestState,
        inputResponses: answer('first'),
      },
      only,
    )
    expect(rounds().map(({ attributes }) => attributes['rondo.human.wait'])).toEqual([undefined, 90])
    const waits = (await telemetry.metrics()).find(({ name }) => name === 'rondo.human.wait')
    expect(waits?.points.map(({ value }) => (value as { max?: number }).max)).toContain(90)
  })

  it('has a child span for each step and effect that ran, and an event for each that was replayed', async () => {
    await threeRounds([start(), start(), start()])
    const [one, two, three] = rounds() as [ReadableSpan, ReadableSpan, ReadableSpan]
    const inner = telemetry.spans().filter(({ kind }) => kind === SpanKind.INTERNAL)
    expect(inner.map(({ name, parentSpanContext }) => [name, parentSpanContext?.spanId])).toEqual([
      ['step', one.spanContext().spanId],
      ['effect', three.spanContext().spanId],
    ])
    expect(two.events.map(({ name, attributes }) => [name, attributes?.['rondo.work.name']])).toEqual([
      ['replayed', 'look'],
    ])
    expect(three.attributes).toMatchObject({ 'rondo.ops.executed': 1 })
  })

  it('is measured in less than milliseconds', async () => {
    // A round that begins late has a start in whole milliseconds; by this clock none is late.
    const server = start({ now: () => Date.now() + 5_000 })
    await threeRounds([server, server, server])
    expect(rounds().some(({ duration }) => duration[1] % 1e6 !== 0)).toBe(true)
    const [one] = rounds()
    const step = telemetry.spans().find(({ name }) => name === 'step')
    const nanos = ([s = 0, n = 0]: readonly number[]) => s * 1e9 + n
    expect(nanos(step?.startTime ?? [])).toBeGreaterThanOrEqual(nanos(one?.startTime ?? []) - 1e6)
    expect(nanos(step?.endTime ?? [])).toBeLessThanOrEqual(nanos(one?.endTime ?? []) + 1e6)
  })

  it('seals nothing if there is no telemetry', async () => {
    const plain = await send(
      start({ telemetry: undefined }),
      'tools/call',
      { name: 'greet', arguments: {} },
      only,
    )
    const traced = await send(start(), 'tools/call', { name: 'greet', arguments: {} }, only)
    const opened = ({ result }: typeof plain) =>
      openEnvelope(parseKeys(keys), 'observed', String(result?.requestState), 10_000)
    const text = (state: typeof plain) => {
      const envelope = opened(state)
      return envelope.kind === 'open' ? envelope.plaintext.toString('utf8') : ''
    }
    const packed = packSpan(rounds()[0]?.spanContext() as SpanContext) as string
    expect(text(traced)).toContain(`"spans":["${packed}","${packed}"]`)
    expect(text(plain)).toContain('look')
    expect(text(plain)).not.toContain('"spans"')
    expect(rounds()).toHaveLength(1)
  })
})

describe('a trace that is not sampled', () => {
  it('is neither sealed nor linked to, and its steps have no spans', async () => {
    const started: string[] = []
    const spanProcessors = [
      {
        onStart: ({ name }: { name: string }) => void started.push(name),
        onEnd() {},
        forceFlush: async () => {},
        shutdown: async () => {},
      },
    ]
    const begun: string[] = []
    const sampler: Sampler = {
      shouldSample(_context, _traceId, name) {
        begun.push(name)
        return { decision: SamplingDecision.NOT_RECORD }
      },
      toString: () => 'none',
    }
    const tracerProvider = new BasicTracerProvider({ sampler, spanProcessors })
    const server = start({ telemetry: otel({ tracerProvider }) })
    const { result } = await send(server, 'tools/call', { name: 'greet', arguments: {} }, only)
    const opened = openEnvelope(parseKeys(keys), 'observed', String(result?.requestState), 10_000)
    const text = opened.kind === 'open' ? opened.plaintext.toString('utf8') : ''
    expect(text).toContain('look')
    expect(text).not.toContain('"spans"')
    expect(begun).toEqual(['tools/call greet'])
    expect(started).toEqual([])
  })
})

describe('the errors of calls', () => {
  it('are reported as tool_error for a result with isError, and as the code of a refusal', async () => {
    const server = start()
    await send(server, 'tools/call', { name: 'fail', arguments: {} }, only)
    const forged = { name: 'greet', arguments: {}, requestState: 'r1.forged' }
    await send(server, 'tools/call', forged, only)
    await send(server, 'tools/call', { name: 'nothing', arguments: {} }, only)
    const types = telemetry.spans().map(({ name, attributes }) => [name, attributes['error.type']])
    expect(types).toEqual([
      ['tools/call fail', 'tool_error'],
      ['tools/call greet', 'STATE_INVALID'],
      ['tools/call', 'PEER_PARAMS'],
    ])
    const refused = (await telemetry.metrics()).find(({ name }) => name === 'rondo.state.refused')
    expect(refused?.points.map(({ attributes }) => attributes)).toContainEqual({ 'rondo.reason': 'encoding' })
  })

  it('R11 include those of an observer, which break nothing and are logged', async () => {
    const events: LogEvent[] = []
    const broken = (): never => {
      throw new Error('the collector is gone')
    }
    const half: Observer = {
      begin: () => ({ run: broken, work: broken, replayed: broken, end: broken }),
      event: broken,
    }
    for (const observer of [half, { begin: broken }]) {
      const server = start({ telemetry: observer, log: (event) => void events.push(event) })
      const { result } = await threeRounds([server, server, server])
      expect(result).toMatchObject({ content: [{ text: 'Hello hi' }] })
    }
    expect(events.filter(({ event }) => event === 'warning')).toHaveLength(2)
  })
})

describe('a client', () => {
  it('sends its span as the parent, and measures every request (SEP-414)', async () => {
    const server = start()
    const answers = { elicitation: async () => ({ action: 'accept' as const, content: { word: 'hi' } }) }
    const client = await connect(server, { telemetry: otel(), answers })
    await client.callTool('greet', {})
    await client.close()
    const sent = telemetry
      .spans()
      .filter(({ kind, name }) => kind === SpanKind.CLIENT && name === 'tools/call greet')
    expect(sent.length).toBeGreaterThanOrEqual(3)
    expect(rounds().map(({ parentSpanContext }) => parentSpanContext?.spanId)).toEqual(
      sent.map((span) => span.spanContext().spanId),
    )
    const names = (await telemetry.metrics()).map(({ name }) => name)
    expect(names).toEqual(
      expect.arrayContaining(['mcp.client.operation.duration', 'mcp.server.operation.duration']),
    )
  })

  it('sends what is active in its process, and passes baggage on only if that is asked for', async () => {
    const seen: Record<string, string>[] = []
    const server = start({
      telemetry: { begin: ({ trace: sent }) => void (sent?.traceparent && seen.push({ ...sent })) },
    })
    const baggage = propagation.createBaggage({ shop: { value: 'a b' } })
    const inside = propagation.setBaggage(context.active(), baggage)
    for (const passed of [false, true]) {
      const client = await connect(server, { telemetry: otel({ baggage: passed }) })
      await context.with(inside, () => client.callTool('fail', {}))
      await client.close()
    }
    const called = seen.filter(({ baggage }) => baggage !== undefined)
    expect(seen.length).toBeGreaterThan(called.length)
    expect(called.map(({ baggage }) => baggage)).toContain('shop=a%20b')
  })

  const questions = (): readonly ReadableSpan[] =>
    telemetry.spans().filter(({ name }) => name === 'elicitation/create')
  const within = trace.getTracer('handler')
  /** The spans of a handler's own work are part of the question's span. */
  const answers = {
    async elicitation() {
      within.startSpan('ask a person').end()
      return { action: 'accept' as const, content: { word: 'hi' } }
    },
  }

  it('has a pushed question answered in the trace of the round that asks (SEP-414)', async () => {
    const server = start({ sessions: {} })
    const client = await connect(server, { mode: '2025-11-25', telemetry: otel(), answers, turns: false })
    await client.callTool('greet', {})
    await client.close()
    const [one, two] = rounds().map((span) => span.spanContext())
    expect(questions().map(({ parentSpanContext }) => parentSpanContext?.spanId)).toEqual([
      one?.spanId,
      two?.spanId,
    ])
    for (const question of questions()) {
      expect(question.kind).toBe(SpanKind.SERVER)
      expect(question.parentSpanContext?.isRemote).toBe(true)
      expect(question.attributes).toMatchObject({ 'mcp.protocol.version': '2025-11-25' })
      expect(question.status.code).toBe(0)
    }
    // The whole call is one trace: the request, its rounds, the questions and what the handlers did.
    const call = telemetry
      .spans()
      .find(({ kind, name }) => kind === SpanKind.CLIENT && name.endsWith('greet'))
    const people = telemetry.spans().filter(({ name }) => name === 'ask a person')
    expect(people.map(({ parentSpanContext }) => parentSpanContext?.spanId)).toEqual(
      questions().map((span) => span.spanContext().spanId),
    )
    const all = [...rounds(), ...questions(), ...people]
    expect(new Set(all.map((span) => span.spanContext().traceId))).toEqual(
      new Set([call?.spanContext().traceId]),
    )
    expect(questions().map(linksOf)).toEqual(Array(2).fill({ call: call?.spanContext().spanId }))
  })

  it.each(['HTTP', 'stdio'])(
    'has a question without trace context answered inside its request, over %s',
    async (by) => {
      // A process has one stream for all requests, which was opened outside of them.
      const stdio = {
        command: process.execPath,
        args: [processFile('test/support/own-stdio.ts')],
        env: { RONDO_KEYS: keys },
        stderr: 'ignore' as const,
      }
      const target = by === 'HTTP' ? start({ sessions: {}, telemetry: undefined }) : stdio
      const accept = async (params: { message: string }) => {
        await answers.elicitation()
        const content = params.message === 'Who are you?' ? { name: 'Ada' } : { word: 'hi' }
        return { action: 'accept' as const, content }
      }
      const client = await connect(target, {
        mode: '2025-11-25',
        telemetry: otel(),
        answers: { elicitation: accept as never },
        turns: false,
      })
      await client.callTool('greet', {})
      await client.close()
      const call = telemetry.spans().find(({ name }) => name === 'tools/call greet')
      expect(call?.kind).toBe(SpanKind.CLIENT)
      expect(questions().length).toBeGreaterThanOrEqual(1)
      for (const question of questions()) {
        expect(question.parentSpanContext?.spanId).toBe(call?.spanContext().spanId)
        expect(linksOf(question)).toEqual({})
      }
    },
  )

  it('links the question of a round to the request that brought it', async () => {
    const client = await connect(start(), { telemetry: otel(), answers })
    const caller = trace.getTracer('host').startSpan('agent')
    await context.with(trace.setSpan(context.active(), caller), () => client.callTool('greet', {}))
    await client.close()
    const sent = telemetry
      .spans()
      .filter(({ kind, name }) => kind === SpanKind.CLIENT && name === 'tools/call greet')
      .map((span) => span.spanContext().spanId)
    expect(sent).toHaveLength(3)
    expect(questions().map(linksOf)).toEqual([{ call: sent[0] }, { call: sent[1] }])
    expect(questions().map(({ parentSpanContext }) => parentSpanContext?.spanId)).toEqual(
      Array(2).fill(caller.spanContext().spanId),
    )
    const measured = (await telemetry.metrics()).find(({ name }) => name === 'mcp.server.operation.duration')
    expect(measured?.points.map(({ attributes }) => attributes['mcp.method.name'])).toContain(
      'elicitation/create',
    )
  })

  it('takes the trace context of a question in a result of 2026-07-28 too, and ignores one that does not fit', async () => {
    const good = `00-${'5'.repeat(32)}-${'b'.repeat(16)}-01`
    for (const traceparent of [good, 'nonsense']) {
      telemetry.reset()
      const server = start()
      const marking = {
        async fetch(request: Request) {
          const response = await server.fetch(request)
          const text = await response.text()
          const marked = text.replace(
            /"mode":"form"/,
            `"_meta":{"traceparent":"${traceparent}"},"mode":"form"`,
          )
          return new Response(marked, response)
        },
      }
      const client = await connect(marking, { telemetry: otel(), answers })
      await client.callTool('greet', {})
      await client.close()
      const traces = questions().map((span) => span.spanContext().traceId === '5'.repeat(32))
      expect(traces).toEqual(Array(2).fill(traceparent === good))
    }
  })

  it('ends the span of a question whose handler threw as an error, without its message', async () => {
    const client = await connect(start(), {
      telemetry: otel(),
      answers: {
        elicitation: () => {
          throw new Error('canary-handler')
        },
      },
    })
    await expect(client.callTool('greet', {})).rejects.toMatchObject({ code: 'INPUT_ABORTED' })
    await client.close()
    expect(questions().map(({ attributes }) => attributes['error.type'])).toEqual(['INPUT_ABORTED'])
    const [{ attributes, events, status }] = questions() as [ReadableSpan]
    expect(JSON.stringify([attributes, events, status])).not.toContain('canary')
  })

  it('R11 is not broken by its telemetry, and warns once', async () => {
    const broken = (): never => {
      throw new Error('the collector is gone')
    }
    const half: Observer = { begin: () => ({ run: broken, work: broken, replayed: broken, end: broken }) }
    const getters: Observer = {
      begin: () =>
        Object.defineProperty({ run: broken, work: broken, replayed: broken, end: broken }, 'trace', {
          get: broken,
        }),
    }
    for (const observer of [half, getters, { begin: broken }]) {
      const warnings: string[] = []
      const onWarning = (text: string): void => void warnings.push(text)
      const client = await connect(start(), { telemetry: observer, onWarning })
      const { content } = await client.callTool('fail', {})
      expect(content).toMatchObject([{ text: 'No.' }])
      await client.close()
      expect(warnings).toEqual([
        'The telemetry threw; something was not observed: Error: the collector is gone',
      ])
    }
  })
})

describe('an observer of async functions', () => {
  const gone = async (): Promise<never> => {
    throw new Error('the collector is gone')
  }
  const passing: Observed = {
    run: (fn) => fn(),
    work: (_kind, _key, fn) => fn(),
    replayed: () => {},
    end: () => {},
  }
  const observers: [string, object, string | undefined][] = [
    ['event', { event: gone }, 'the collector is gone'],
    ['begin', { begin: async () => passing }, 'begin of telemetry must return what observes the operation'],
    ['end', { begin: () => ({ ...passing, end: gone }) }, 'the collector is gone'],
    [
      'work, after it was done',
      {
        begin: () => ({
          ...passing,
          work: (_kind: string, _key: string, fn: () => unknown) => Promise.resolve(fn()).then(gone, gone),
        }),
      },
      'the collector is gone',
    ],
    [
      'work, which passes on what the step threw',
      {
        begin: () => ({
          ...passing,
          work: async (_kind: string, _key: string, fn: () => unknown) => await fn(),
        }),
      },
      undefined,
    ],
  ]
  it.each(observers)('R11 may reject and breaks nothing: %s', async (_, telemetry, message) => {
    const warned: string[] = []
    const log = (event: LogEvent): void => {
      if (event.event === 'warning') warned.push(String((event.error as Error).message))
    }
    const server = createServer({ name: 'async', version: '1', keys: generateKey(), log, telemetry })
    server.tool('work', {}, async (_args, ctx) => {
      await ctx.step('fine', () => 1)
      return ctx
        .step('bad', () => Promise.reject(new ToolError('No.')))
        .catch((error) => String(error.message))
    })
    const { result } = (await send(server, 'tools/call', { name: 'work', arguments: {} }, only)) as {
      result: { content: unknown }
    }
    expect(result.content).toMatchObject([{ text: 'No.' }])
    await new Promise(setImmediate)
    expect(warned).toEqual(message === undefined ? [] : [expect.stringContaining(message)])
    await server.close()
  })

  it('is refused if it has none of the methods', () => {
    const create = (telemetry: object) => createServer({ name: 'none', version: '1', telemetry })
    const sentence =
      'telemetry must be an observer with at least one of the methods begin, event, queue and count.'
    expect(() => create({})).toThrow(sentence)
    expect(() => create({ Begin: () => undefined })).toThrow(sentence)
  })
})

describe('an SDK that starts late', () => {
  it('gets metrics too', async () => {
    const early = otel()
    metrics.disable()
    const late = recordTelemetry()
    await send(start({ telemetry: early }), 'tools/call', { name: 'fail', arguments: {} }, only)
    expect((await late.metrics()).map(({ name }) => name)).toContain('mcp.server.operation.duration')
  })
})

describe('every way to serve a call', () => {
  const official = (now: () => number = Date.now) => {
    const rondo = createRondo({ audience: 'observed', keys, log: 'off', telemetry: otel(), now })
    servers.push(rondo)
    const greet = rondo.tool(async (_args, ctx) => ({
      content: [{ type: 'text', text: await greeting(ctx) }],
    }))
    const handler = createMcpHandler(() => {
      const server = rondo.mount(new McpServer({ name: 'observed', version: '1' }))
      server.registerTool('greet', {}, greet)
      return server
    })
    return { fetch: (request: Request) => handler.fetch(request) }
  }
  const answers = { elicitation: async () => ({ action: 'accept' as const, content: { word: 'hi' } }) }
  const older = { mode: '2025-11-25' as const, answers }

  it('has the same attributes in each of its rounds, and the same links', async () => {
    const forms = {
      rounds: () => connect(start(), { answers }),
      push: () => connect(start({ sessions: {} }), { ...older, turns: false }),
      turns: () => connect(start({ sessions: {} }), older),
      official: () => connect(official(), { answers }),
    }
    const seen = new Map<string, unknown>()
    for (const [form, open] of Object.entries(forms)) {
      telemetry.reset()
      const client = await open()
      expect(await client.callTool('greet', {})).toMatchObject({ content: [{ text: 'Hello hi' }] })
      await client.close()
      const own = rounds().map((span) => span.spanContext().spanId)
      const rows = rounds().map((span) => ({
        name: span.name,
        attributes: Object.keys(span.attributes)
          .filter((name) => name !== 'rondo.state.bytes')
          .sort(),
        values: Object.fromEntries(
          ['rondo.round', 'rondo.outcome', 'rondo.asks', 'rondo.ops.executed', 'rondo.ops.replayed'].map(
            (name) => [name, span.attributes[name]],
          ),
        ),
        links: Object.entries(linksOf(span)).map(([name, id]) => [name, own.indexOf(id)]),
      }))
      // A state that stays in the process has no length.
      const sent = rounds().filter(({ attributes }) => attributes['rondo.state.bytes'] !== undefined)
      expect([form, sent.length]).toEqual([form, form === 'push' ? 0 : 2])
      seen.set(form, rows)
    }
    const [plain, ...others] = seen.values()
    expect(plain).toHaveLength(3)
    for (const [index, rows] of others.entries()) expect([index, rows]).toEqual([index, plain])
  })

  it('has ended its span while a person is asked: that is human time, and no server time', async () => {
    for (const form of ['push', 'turns', 'official'] as const) {
      telemetry.reset()
      let now = 1_000_000
      const ended: number[] = []
      const elicitation = async () => {
        ended.push(rounds().length)
        now += 90_000
        return { action: 'accept' as const, content: { word: 'hi' } }
      }
      const target = form === 'official' ? official(() => now) : start({ sessions: {}, now: () => now })
      const mode = form === 'official' ? {} : { mode: '2025-11-25' as const, turns: form === 'turns' }
      const client = await connect(target, { ...mode, answers: { elicitation } })
      await client.callTool('greet', {})
      await client.close()
      expect([form, ended]).toEqual([form, [1, 2]])
      expect(rounds().map(({ attributes }) => attributes['rondo.human.wait'])).toEqual([undefined, 90, 90])
    }
  })

  it('a pushed question carries the span of the round that asks (SEP-414)', async () => {
    const server = start({ sessions: {} })
    const capabilities = { elicitation: { form: {} } }
    const accept = () => ({ action: 'accept', content: { word: 'hi' } })
    const client = await connectOlder('http://127.0.0.1/mcp', { capabilities, answer: accept }, (request) =>
      server.fetch(request),
    )
    const traceparent = `00-${'1'.repeat(32)}-${'a'.repeat(16)}-01`
    await client.call('tools/call', { name: 'greet', arguments: {}, _meta: { traceparent } })
    const [one, two] = rounds().map((span) => span.spanContext())
    expect(client.asked.map(({ params }) => params._meta)).toEqual(
      [one, two].map((span) => ({ traceparent: `00-${'1'.repeat(32)}-${span?.spanId}-01` })),
    )
    const silent = start({ sessions: {}, telemetry: undefined })
    const other = await connectOlder('http://127.0.0.1/mcp', { capabilities, answer: accept }, (request) =>
      silent.fetch(request),
    )
    await other.call('tools/call', { name: 'greet', arguments: {}, _meta: { traceparent } })
    expect(other.asked).toHaveLength(2)
    for (const { params } of other.asked) expect(params).not.toHaveProperty('_meta')
  })

  it('a pushed question of an official client carries it too', async () => {
    const server = start()
    const { url } = await server.listen({ port: 0, signals: false, rejections: false })
    const client = new Client(
      { name: 'official', version: '1' },
      { capabilities: { elicitation: { form: {} } } },
    )
    const seen: unknown[] = []
    client.setRequestHandler('elicitation/create', ({ params }) => {
      seen.push(params._meta?.traceparent)
      return { action: 'accept', content: { word: 'hi' } }
    })
    await client.connect(new StreamableHTTPClientTransport(new URL(url)))
    await client.callTool({ name: 'greet', arguments: {} })
    await client.close()
    const spans = rounds().map((span) => span.spanContext())
    expect(seen).toEqual(spans.slice(0, 2).map(({ traceId, spanId }) => `00-${traceId}-${spanId}-01`))
  })
})

describe('trace context from a client', () => {
  const good = `00-${'1'.repeat(32)}-${'a'.repeat(16)}-01`
  it.each([
    ['another version', good.replace(/^00/, '01')],
    ['capitals', good.toUpperCase()],
    ['zeros as a trace id', good.replace('1'.repeat(32), '0'.repeat(32))],
    ['more than it should be', `${good}-more`],
    ['a line break', `${good}\n`],
    ['a megabyte', 'a'.repeat(1_000_000)],
  ])('is ignored if it is %s', (_, traceparent) => {
    expect(readTraceContext({ traceparent })).toBeUndefined()
    expect(readTraceContext({ traceparent: good })).toBeDefined()
  })

  it('survives the journal in 34 characters, and anything else in its place is ignored', () => {
    const span = readTraceContext({ traceparent: good }) as SpanContext
    const packed = packSpan(span) as string
    expect(packed).toHaveLength(34)
    expect(unpackSpan(packed)).toEqual(span)
    for (const wrong of [undefined, 7, '', packed.slice(1), `${packed}a`, 'A'.repeat(34)]) {
      expect(unpackSpan(wrong)).toBeUndefined()
    }
  })

  it('has baggage only if that is asked for, and only so much', () => {
    expect(readBaggage('user=alice, shop = a%20b;p=1')?.getEntry('shop')?.value).toBe('a b')
    expect(readBaggage('a'.repeat(5_000))).toBeUndefined()
    expect(readBaggage('no member')).toBeUndefined()
  })
})

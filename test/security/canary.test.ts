/**
 * Secrets are planted wherever a call can carry one, the call is run to each of its possible ends, and then everything
 * that left the server is searched: response bodies, the bytes of tokens, log lines, spans, metrics.
 */

import type { ReadableSpan } from '@opentelemetry/sdk-trace-base'
import { exportJWK, generateKeyPair, SignJWT } from 'jose'
import { type Context, createServer, type LogEvent, type Observer, type Server, ToolError } from 'rondo'
import { connect } from 'rondo/client'
import { oauthResource } from 'rondo/oauth'
import { otel } from 'rondo/otel'
import { describe, expect, it, vi } from 'vitest'
import { z } from 'zod'
import { createJsonLog } from '../../packages/rondo/src/log/json.ts'
import { createLog } from '../../packages/rondo/src/log/log.ts'
import { createMemoryStore } from '../../packages/rondo/src/store/memory/store.ts'
import { connectOlder } from '../support/older-client.ts'
import { recordTelemetry } from '../support/telemetry.ts'

const CANARIES = {
  bearer: 'canary-bearer-1f6c',
  claim: 'canary-claim-83ab',
  argument: 'canary-argument-50d2',
  answer: 'canary-answer-c91e',
  step: 'canary-step-2b77',
  thrown: 'canary-thrown-e4f0',
  header: 'canary-header-77aa',
  key: 'canary-key-of-32-bytes-or-so-0123456789',
}
type Canary = keyof typeof CANARIES

/** The text itself, and every base64 sequence in it, decoded: encoding does not hide anything. */
function findCanaries(text: string): Canary[] {
  const runs = text.match(/[A-Za-z0-9+/_-]{24,}/g) ?? []
  const decoded = runs.flatMap((run) =>
    [0, 1, 2, 3].map((skip) => Buffer.from(run.slice(skip), 'base64').toString('latin1')),
  )
  const places = [text, ...decoded]
  return (Object.keys(CANARIES) as Canary[]).filter((name) =>
    places.some((place) => place.includes(CANARIES[name])),
  )
}

const telemetry = recordTelemetry()

/** All that a collector gets of a span, but for what its client named as its trace state, which is passed on as it came. */
function textOfSpan({ name, attributes, events, links, status }: ReadableSpan): string {
  return JSON.stringify({ name, attributes, events, links, status })
}

interface Scene {
  readonly server: Server
  readonly lines: string[]
  /** Messages of the errors that the log received: the control shows that it could have printed them. */
  readonly told: string[]
}

/** The records of a weakened server: the real telemetry and the real log, fed with the content of a call. */
interface Leak {
  readonly telemetry: Required<Observer>
  /** The content of the call so far. */
  readonly seen: Set<string>
}

function stage(leak?: Leak): Scene {
  const lines: string[] = []
  const told: string[] = []
  const carried = (): string => [...(leak?.seen ?? [])].join(' ')
  const leaky: Observer | undefined = leak && {
    ...leak.telemetry,
    begin: (operation) => leak.telemetry.begin({ ...operation, target: carried() }),
  }
  const toLine = createJsonLog({ write: (line) => void lines.push(line) })
  const screen = {
    write: (line: string) => void lines.push(line),
    isTerminal: true,
    colors: true,
    production: true,
  }
  const { log: toScreen } = createLog({ log: 'pretty' }, screen)
  const server = createServer({
    name: 'canaries',
    telemetry: leaky ?? otel(),
    version: '1.0.0',
    keys: `k1:${Buffer.from(CANARIES.key).toString('base64')}`,
    authenticate({ headers }) {
      const authorization = headers('authorization')
      leak?.seen.add(String(authorization)).add(String(headers('x-note')))
      if (authorization === 'Bearer wrong') return { status: 401 }
      if (authorization !== `Bearer ${CANARIES.bearer}`) throw new Error(`Cannot read ${authorization}`)
      return { subject: 'alice', claims: { note: CANARIES.claim } }
    },
    log(event) {
      if ('error' in event && event.error instanceof Error) told.push(event.error.message)
      const line = leak ? ({ ...event, target: carried() } as LogEvent) : event
      toLine(line)
      toScreen(line)
    },
  })
  const input = z.object({ secret: z.string(), end: z.enum(['return', 'throw', 'refuse', 'diverge']) })
  server.tool('go', { input }, async ({ end, secret }, ctx) => {
    await ctx.step('fetch', () => CANARIES.step)
    const schema = z.object({ word: z.string().min(3) })
    const { word } = await ctx.ask('word', { message: 'Which word?', schema })
    leak?.seen.add(secret).add(word)
    if (end === 'throw') throw new Error(`broken: ${CANARIES.thrown}`)
    if (end === 'refuse') throw new ToolError('Not today.')
    if (end === 'diverge') await Promise.all([ctx.step('same', () => 1), ctx.step('same', () => 2)])
    return 'Done.'
  })
  return { server, lines, told }
}

let lastId = 0
async function call(server: Server, params: Record<string, unknown>, bearer = CANARIES.bearer) {
  const _meta = {
    'io.modelcontextprotocol/protocolVersion': '2026-07-28',
    'io.modelcontextprotocol/clientCapabilities': { elicitation: {} },
  }
  const response = await server.fetch(
    new Request('http://127.0.0.1/mcp', {
      method: 'POST',
      headers: {
        authorization: `Bearer ${bearer}`,
        'x-note': CANARIES.header,
        baggage: `note=${CANARIES.header}`,
        'content-type': 'application/json',
        accept: 'application/json, text/event-stream',
        'mcp-protocol-version': '2026-07-28',
        'mcp-method': 'tools/call',
        'mcp-name': 'go',
      },
      body: JSON.stringify({
        jsonrpc: '2.0',
        id: ++lastId,
        method: 'tools/call',
        params: { name: 'go', ...params, _meta },
      }),
    }),
  )
  const text = [...response.headers.values(), await response.text()].join('\n')
  const state = /"requestState":"([^"]+)"/.exec(text)?.[1]
  return { text, state }
}

const accept = (word: unknown) => ({ word: { action: 'accept', content: { word } } })

/** Runs a call to each of its ends and returns all bodies. */
async function driveAll({ server }: Scene): Promise<string[]> {
  const bodies: string[] = []
  for (const end of ['return', 'throw', 'refuse', 'diverge']) {
    const args = { arguments: { secret: CANARIES.argument, end } }
    const first = await call(server, args)
    const misfit = await call(server, { ...args, requestState: first.state, inputResponses: accept(7) })
    const last = await call(server, {
      ...args,
      requestState: misfit.state,
      inputResponses: accept(CANARIES.answer),
    })
    const forged = await call(server, {
      ...args,
      requestState: `${first.state}x`,
      inputResponses: accept(CANARIES.answer),
    })
    const other = await call(server, { arguments: { secret: 'x', end }, requestState: first.state })
    const foreign = await call(server, args, 'wrong')
    const garbled = await call(server, args, `${CANARIES.bearer}?`)
    const bad = await call(server, { ...args, requestState: first.state, inputResponses: CANARIES.answer })
    const badArguments = await call(server, { arguments: { secret: { [CANARIES.argument]: 1 }, end } })
    bodies.push(
      ...[first, misfit, last, forged, other, foreign, garbled, bad, badArguments].map(({ text }) => text),
    )
  }
  return bodies
}

describe('secrets never leave the server', () => {
  it('T3 T16 in responses, tokens or logs, however a call ends', async () => {
    const scene = stage()
    const bodies = await driveAll(scene)
    expect(bodies.filter((body) => body.includes('"requestState":"r1.')).length).toBeGreaterThanOrEqual(8)
    expect(bodies.filter((body) => body.includes('Done.')).length).toBe(1)
    expect(bodies.flatMap(findCanaries)).toEqual([])
    expect(scene.lines.length).toBeGreaterThan(20)
    expect(scene.lines.flatMap(findCanaries)).toEqual([])
    expect(scene.lines.join('\n')).not.toMatch(/r1\.[\w-]{20}/)
    const spans = telemetry.spans().map(textOfSpan)
    expect(spans.length).toBeGreaterThan(20)
    expect(spans.join('\n')).toContain('"rondo.work.name":"fetch"')
    expect(spans.flatMap(findCanaries)).toEqual([])
    expect(findCanaries(JSON.stringify(await telemetry.metrics()))).toEqual([])
    expect(spans.join('\n')).not.toMatch(/r1\.[\w-]{20}/)
    // Control: the log received the errors whose messages it does not print.
    expect(scene.told.flatMap(findCanaries)).toEqual(expect.arrayContaining(['thrown', 'bearer']))
  })

  it('T3 T16 in log lines, spans or metrics of tasks, sessions, resources and clients', async () => {
    telemetry.reset()
    const lines: string[] = []
    const told: string[] = []
    const toLine = createJsonLog({ write: (line) => void lines.push(line) })
    const server = createServer({
      name: 'canaries',
      version: '1.0.0',
      keys: `k1:${Buffer.from(CANARIES.key).toString('base64')}`,
      telemetry: otel(),
      store: createMemoryStore(),
      sessions: {},
      authenticate: ({ headers }) =>
        headers('authorization') === `Bearer ${CANARIES.bearer}`
          ? { subject: 'alice', claims: { note: CANARIES.claim } }
          : { status: 401, reason: 'The token is not known' },
      log(event) {
        if ('error' in event && event.error instanceof Error) told.push(event.error.message)
        toLine(event)
      },
    })
    const input = z.object({ secret: z.string() })
    const handler = async (_args: unknown, ctx: Context): Promise<string> => {
      await ctx.step('fetch', () => CANARIES.step)
      const { word } = await ctx.ask('word', {
        message: 'Which word?',
        schema: z.object({ word: z.string() }),
      })
      ctx.progress(1, 2, CANARIES.step)
      if (word === CANARIES.answer) throw new Error(`broken: ${CANARIES.thrown}`)
      return CANARIES.step
    }
    server.tool('rounds', { input }, handler)
    server.tool('task', { input, task: 'always' }, handler)
    server.template('note://{id}', { name: 'note' }, ({ id }) => {
      if (id === CANARIES.argument) throw new Error(`broken: ${CANARIES.thrown}`)
      return id
    })
    const headers = { authorization: `Bearer ${CANARIES.bearer}`, 'x-note': CANARIES.header }
    const trace = { tracestate: `a=${CANARIES.header}`, baggage: `note=${CANARIES.header}` }
    for (const mode of ['2026-07-28', '2025-11-25'] as const) {
      const words = ['fine', CANARIES.answer, 'fine', CANARIES.answer]
      const elicitation = async () => ({ action: 'accept' as const, content: { word: words.shift() ?? '' } })
      const options = { mode, headers, turns: false, telemetry: otel(), answers: { elicitation } }
      const client = await connect(server, options)
      const args = { secret: CANARIES.argument }
      for (const tool of ['rounds', 'rounds', 'task', 'task']) await client.callTool(tool, args, { trace })
      await client.readResource(`note://${CANARIES.argument}`).catch(() => {})
      await client.close()
    }
    await connect(server, { headers: { authorization: `Bearer ${CANARIES.thrown}` } }).catch(() => {})
    await server.close()
    const text = lines.join('\n')
    for (const part of ['"round"', '"task"', '"session"', '"caller_refused"', '"fault"', 'note://{id}'])
      expect(text).toContain(part)
    expect(lines.flatMap(findCanaries)).toEqual([])
    const spans = telemetry.spans().map(textOfSpan)
    expect(new Set(telemetry.spans().map(({ kind }) => kind)).size).toBe(4)
    expect(spans.flatMap(findCanaries)).toEqual([])
    expect(findCanaries(JSON.stringify(await telemetry.metrics()))).toEqual([])
    expect(told.flatMap(findCanaries)).toContain('thrown')
  })

  it('T3 T16 in log lines, spans or metrics of hooks, offers, a fleet of older clients, its bus, and access tokens', async () => {
    telemetry.reset()
    const lines: string[] = []
    const told: string[] = []
    const toLine = createJsonLog({ write: (line) => void lines.push(line) })
    const log = (event: LogEvent): void => {
      if ('error' in event && event.error instanceof Error) told.push(event.error.message)
      toLine(event)
    }
    const { publicKey, privateKey } = await generateKeyPair('RS256')
    const [issuer, resource] = ['https://id.example.com', 'http://127.0.0.1/mcp']
    const jwks = { keys: [{ ...(await exportJWK(publicKey)), kid: 'one' }] }
    const sign = (audience: string, kid = 'one') =>
      new SignJWT({ client_id: CANARIES.claim, scope: 'go', note: CANARIES.claim })
        .setProtectedHeader({ alg: 'RS256', typ: 'at+jwt', kid })
        .setIssuer(issuer)
        .setAudience(audience)
        .setSubject(CANARIES.claim)
        .setIssuedAt()
        .setExpirationTime('1h')
        .sign(privateKey)
    const store = createMemoryStore()
    const hooks: string[] = []
    const make = (instance: string): Server => {
      const server = createServer({
        ...{ name: 'canaries', version: '1.0.0', instance, store, log, telemetry: otel(), sessions: {} },
        keys: `k1:${Buffer.from(CANARIES.key).toString('base64')}`,
        authenticate: oauthResource({ resource, issuers: [{ issuer, jwks }], scopes: ['go'] }),
      })
      const word = { message: 'Which word?', schema: z.object({ word: z.string() }) }
      server.tool('ask', {}, async (_args, ctx) => (await ctx.ask('word', word)).word)
      server.tool('hook', { task: 'always' }, async (_args, ctx) => {
        const offer = ctx.offer('hurry', { ...word, message: CANARIES.step })
        const hook = await ctx.hook('paid', { schema: z.object({ cents: z.number() }) })
        hooks.push(hook.id)
        await hook.received()
        offer.withdraw()
        throw new Error(`broken: ${CANARIES.thrown}`)
      })
      return server
    }
    const [a, b] = [make('a'), make('b')]
    const token = await sign(resource)
    const headers = { authorization: `Bearer ${token}`, 'x-note': CANARIES.header }

    const client = await connect(a, { headers, tasks: 'poll', telemetry: otel() })
    const ended = client.callTool('hook', {}).catch(() => {})
    await vi.waitFor(() => expect(hooks).toHaveLength(1), { timeout: 120_000 })
    for (const id of [`${CANARIES.argument}`, `${hooks[0]}x`, hooks[0] ?? ''])
      await b.deliver(id, { cents: CANARIES.answer })
    await b.deliver(hooks[0] ?? '', { cents: 1, note: CANARIES.answer })
    await ended
    await client.close()

    const instances = [a, b]
    const next = (request: Request): Promise<Response> => {
      instances.reverse()
      return (instances[0] as Server).fetch(request)
    }
    const answer = () => ({ action: 'accept', content: { word: CANARIES.answer } })
    const capabilities = { elicitation: { form: {} } }
    const older = await connectOlder(resource, { headers, capabilities, answer }, next)
    const reply = await older.call('tools/call', { name: 'ask', arguments: {} })
    expect(JSON.stringify(reply)).toContain(CANARIES.answer)
    a.tool('late', {}, () => CANARIES.step)
    b.updated(`note://${CANARIES.argument}`)
    await older.remove()

    for (const bad of [await sign('https://other.example.com'), await sign(resource, 'two'), CANARIES.bearer])
      await connect(a, { headers: { authorization: `Bearer ${bad}` } }).catch(() => {})
    await Promise.all([a.close(), b.close()])
    const text = lines.join('\n')
    for (const part of [
      'does not open',
      '"session"',
      '"caller_refused"',
      '"fault"',
      '"events":["paid.received"]',
      '"instance":"b"',
    ])
      expect(text).toContain(part)
    expect(lines.flatMap(findCanaries)).toEqual([])
    expect(text).not.toContain(token.split('.')[2])
    const spans = telemetry.spans().map(textOfSpan)
    expect(spans.length).toBeGreaterThan(5)
    expect(spans.flatMap(findCanaries)).toEqual([])
    expect(findCanaries(JSON.stringify(await telemetry.metrics()))).toEqual([])
    expect(told.flatMap(findCanaries)).toContain('thrown')
  })

  it('control: a server that records an argument, an answer, a token and a header is found out, in spans, metrics and lines', async () => {
    const own = recordTelemetry()
    const scene = stage({ telemetry: otel(own.providers), seen: new Set() })
    await driveAll(scene)
    const leaked = ['answer', 'argument', 'bearer', 'header']
    const found = (texts: readonly string[]) => [...new Set(texts.flatMap(findCanaries))].sort()
    expect(found(own.spans().map(textOfSpan))).toEqual(leaked)
    expect(found([JSON.stringify(await own.metrics())])).toEqual(leaked)
    expect(found(scene.lines.filter((line) => line.startsWith('{')))).toEqual(leaked)
    expect(found(scene.lines.filter((line) => !line.startsWith('{')))).toEqual(leaked)
  })

  it('control: the search finds a secret that is only encoded', () => {
    const journal = JSON.stringify({ entries: [{ key: 'word', answer: CANARIES.answer }] })
    for (const encoding of ['base64', 'base64url'] as const) {
      for (const lead of ['', '{', '{"', '{"a']) {
        expect(findCanaries(`"requestState":"r1.${Buffer.from(lead + journal).toString(encoding)}"`)).toEqual(
          ['answer'],
        )
      }
    }
    expect(findCanaries('nothing to see')).toEqual([])
  })
})

describe('a response counts only for its own kind of question', () => {
  const { server } = stage()
  const args = { arguments: { secret: 'x', end: 'return' } }

  it.each([
    ['of a model', { role: 'assistant', content: { type: 'text', text: 'word' }, model: 'm', word: 'word' }],
    ['with roots', { roots: [{ uri: 'file:///word' }], word: 'word' }],
    ['without an action', { content: { word: 'word' } }],
    ['with an unknown action', { action: 'agree', content: { word: 'word' } }],
    ['whose action is inherited in form only', { __proto__: null, content: { word: 'word' } }],
  ])('T6 a result %s is not accepted for a form', async (_name, result) => {
    const first = await call(server, args)
    const next = await call(server, { ...args, requestState: first.state, inputResponses: { word: result } })
    expect(next.text).not.toContain('Done.')
    expect(next.text).toMatch(/"input_required"|"code":-32602/)
  })

  it('control: a result of a form is accepted', async () => {
    const first = await call(server, args)
    const next = await call(server, { ...args, requestState: first.state, inputResponses: accept('word') })
    expect(next.text).toContain('Done.')
  })
})

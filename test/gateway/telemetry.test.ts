/** W11: the log, the spans and the counters of a gateway name the upstream and both revisions. */

import { trace } from '@opentelemetry/api'
import { otel } from 'rondo/otel'
import { beforeEach, describe, expect, it, onTestFinished } from 'vitest'
import { recordTelemetry } from '../support/telemetry.ts'
import { CLIENTS, SERVERS, serveGateway } from './peers.ts'

const telemetry = recordTelemetry()
beforeEach(() => telemetry.reset())

const greet = { method: 'tools/call', target: 'greet' } as const
const ADA = { who: { name: 'Ada' } }
const CELLS = [
  ['official 2.4, 2026-07-28', '2026-07-28', 'official 2.4, HTTP', '2026-07-28'],
  ['official 2.4, 2026-07-28', '2026-07-28', 'official 1.32, HTTP', '2025-11-25'],
  ['official 1.32', '2025-11-25', 'official 2.4, HTTP', '2026-07-28'],
  ['official 1.32', '2025-11-25', 'official 1.32, HTTP', '2025-11-25'],
] as const

async function serve(server: string) {
  const upstream = (await SERVERS[server]?.()) ?? {}
  return serveGateway({ peer: upstream }, { telemetry: otel() })
}

async function connect(name: string, url: string) {
  const client = await CLIENTS[name]?.(url)
  if (!client) throw new Error('no client')
  onTestFinished(() => client.close())
  return client
}

describe.each(CELLS)('W11 %s (%s) at %s (%s)', (clientName, client, server, revision) => {
  it('is in the log, with both revisions and one flow', async () => {
    const { url, events } = await serve(server)
    expect((await (await connect(clientName, url)).run(greet, ADA)).text).toBe('Hello, Ada!')
    const rounds = events.filter((one) => one.event === 'round')
    expect(rounds).toHaveLength(2)
    for (const one of rounds)
      expect(one).toMatchObject({ protocolVersion: client, upstream: 'peer', upstreamVersion: revision })
    expect(new Set(rounds.map(({ flow }) => flow)).size).toBe(1)
  })

  it('is counted once for each call', async () => {
    const { url, gateway } = await serve(server)
    expect(gateway.traffic()).toEqual([])
    const one = await connect(clientName, url)
    for (let i = 0; i < 2; i += 1) await one.run(greet, ADA)
    const counted = { client, upstream: 'peer', revision, calls: 2, lastAt: expect.any(Number) }
    expect(gateway.traffic()).toEqual([counted])
  })

  it('is one trace: the request to the server is inside the round of the caller', async () => {
    const { url } = await serve(server)
    const one = await connect(clientName, url)
    telemetry.reset()
    await one.run(greet, ADA)
    const calls = telemetry.spans().filter(({ attributes }) => attributes['gen_ai.tool.name'] === 'greet')
    const sent = calls.filter(({ attributes }) => attributes['rondo.upstream'] === 'peer')
    const rounds = calls.filter(({ attributes }) => attributes['rondo.round'] !== undefined)
    expect(sent.length).toBeGreaterThan(0)
    for (const span of sent) {
      expect(span.attributes['mcp.protocol.version']).toBe(revision)
      const parent = rounds.find((round) => round.spanContext().spanId === span.parentSpanContext?.spanId)
      expect(parent?.attributes['mcp.protocol.version']).toBe(client)
    }
  })
})

describe('W11 trace context', () => {
  const traceparent = `00-${'1'.repeat(32)}-${'a'.repeat(16)}-01`

  /** A server of ours that returns the trace context that reaches it. */
  async function through(options: object) {
    const { createServer, generateKey } = await import('rondo')
    const server = createServer({ name: 'own', version: '1.0.0', log: 'off', keys: generateKey() })
    server.tool('trace', {}, (_args, ctx) => String(ctx.meta.traceparent))
    const { url: upstream } = await server.listen({ port: 0, signals: false, graceMs: 100 })
    onTestFinished(() => server.close())
    const { url } = await serveGateway({ peer: { url: upstream } }, options)
    const { connect: open } = await import('rondo/client')
    const client = await open(url)
    onTestFinished(() => client.close())
    const { content } = await client.callTool('trace', {}, { trace: { traceparent } })
    return (content as readonly { text?: string }[])[0]?.text ?? ''
  }

  it('of the caller reaches the server as it came, without telemetry', async () => {
    expect(await through({})).toBe(traceparent)
  })

  it('continues with the span of the gateway, with telemetry', async () => {
    const got = await through({ telemetry: otel() })
    expect(got.slice(0, 36)).toBe(traceparent.slice(0, 36))
    expect(got).not.toBe(traceparent)
    const span = telemetry.spans().find((one) => got.includes(one.spanContext().spanId))
    expect(span?.attributes['rondo.upstream']).toBe('peer')
    expect(trace.getActiveSpan()).toBeUndefined()
  })
})

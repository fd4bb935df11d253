/** A server of ours on loopback for clients of earlier eras, with tools that ask, wait and report; closed after the test. */

import { createServer, generateKey, type LogEvent, type Server, type ServerOptions } from 'rondo'
import { onTestFinished } from 'vitest'
import { z } from 'zod'
import { connectOlder, type OlderClient, type OlderClientOptions } from './older-client.ts'

export interface OlderServer {
  readonly server: Server
  readonly url: string
  readonly events: LogEvent[]
  /** Resolves when the signal of a `wait` call fires. */
  readonly aborted: Promise<void>
  /** The number of times that the handler of `ask` has started. */
  runs(): number
  connect(options?: OlderClientOptions): Promise<OlderClient>
}

const FORM = { elicitation: {} }

export async function startOlder(options: Partial<ServerOptions> = {}): Promise<OlderServer> {
  const events: LogEvent[] = []
  const server = createServer({
    name: 'older',
    version: '1.0.0',
    title: 'Older',
    keys: generateKey(),
    log: (event) => void events.push(event),
    ...options,
  })
  const { promise: aborted, resolve } = withResolver()
  const runs = declare(server, resolve)
  const { url } = await server.listen({ port: 0, signals: false, graceMs: 200 })
  onTestFinished(() => server.close())
  const connect = (given?: OlderClientOptions): Promise<OlderClient> =>
    connectOlder(url, { capabilities: FORM, ...given })
  return { server, url, events, aborted, runs, connect }
}

function declare(server: Server, onAbort: () => void): () => number {
  let runs = 0
  server.tool('plain', { input: z.object({ n: z.number() }) }, ({ n }) => String(n))
  server.tool('ask', {}, async (_args, ctx) => {
    runs += 1
    ctx.defer(() => {
      if (ctx.signal.aborted) onAbort()
    })
    ctx.progress(1)
    ctx.log('info', 'about to ask')
    const { name } = await ctx.ask('name', {
      message: 'Name?',
      schema: z.object({ name: z.string() }),
      orArgument: ['name', 'nickname'],
    })
    ctx.progress(2)
    return `Hello ${name}`
  })
  server.tool('wait', {}, async (_args, ctx) => {
    ctx.log('info', 'waiting')
    await new Promise<void>((resolve) => ctx.signal.addEventListener('abort', () => resolve()))
    onAbort()
    return 'too late'
  })
  server.tool('list', { output: z.array(z.string()) }, () => ['a', 'b'])
  server.prompt('brief', {}, async (_args, ctx) => {
    await ctx.confirm('sure', 'Sure?')
    return 'Be brief'
  })
  server.resource('notes://today', { name: 'Today' }, () => 'Buy milk')
  return () => runs
}

function withResolver(): { promise: Promise<void>; resolve: () => void } {
  let resolve = (): void => {}
  const promise = new Promise<void>((done) => {
    resolve = done
  })
  return { promise, resolve }
}

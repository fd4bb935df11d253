/**
 * Our client with its defaults and our server of 2025-11-25, over sockets: multi-turn SSE changes how questions travel and
 * nothing else. With `turns: false` the same is true while questions are pushed.
 */

import { createServer as createHttpServer, request as httpRequest } from 'node:http'
import type { AddressInfo } from 'node:net'
import { createServer, generateKey, type Server, type TaskOptions } from 'rondo'
import { type Client, type ConnectOptions, connect, type TaskState } from 'rondo/client'
import { afterEach, describe, expect, it } from 'vitest'
import { createMemoryStore } from '../../packages/rondo/src/store/memory/store.ts'
import { idIn, toResult } from '../support/task-tools.ts'

const keys = generateKey('turns')
const closers: (() => unknown)[] = []
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close()
})

function declare(server: Server): void {
  server.tool('ask', {}, async (_args, ctx) => {
    ctx.log('info', 'before the question')
    const sure = await ctx.confirm('sure', 'Sure?')
    ctx.log('info', 'after the question')
    return sure ? 'yes' : 'no'
  })
  const ask = (_args: unknown, ctx: Parameters<Parameters<Server['tool']>[2]>[1]) =>
    ctx.confirm('sure', 'Sure?').then((sure) => (sure ? 'yes' : 'no'))
  server.tool('may', { task: 'auto', taskPollMs: 50 }, ask)
  server.tool('must', { task: 'always', taskPollMs: 50 }, ask)
  server.resource('desk://report', { name: 'report' }, (uri) => ({ uri, text: 'r' }))
}

async function serve(tasks: TaskOptions = {}): Promise<{ server: Server; url: string }> {
  const store = createMemoryStore()
  const eras = ['2025-11-25'] as const
  const server = createServer({ name: 'own', version: '1', keys, log: 'off', store, eras, tasks })
  declare(server)
  const { url } = await server.listen({ port: 0, signals: false })
  closers.push(() => server.close())
  return { server, url }
}

async function open(url: string, options: ConnectOptions): Promise<Client> {
  const elicitation = () => ({ action: 'accept', content: { confirm: true } }) as const
  const client = await connect(url, { answers: { elicitation }, ...options })
  closers.push(() => client.close())
  return client
}

describe.each([
  ['by default', {}],
  ['with turns: false', { turns: false }],
] as const)('our client at 2025-11-25, %s,', (_how, options) => {
  it('receives the log messages of a call, before and after its question', async () => {
    const { url } = await serve()
    const client = await open(url, options)
    const logged: unknown[] = []
    const result = await client.callTool('ask', {}, { onLog: ({ data }) => logged.push(data) })
    expect(result.content).toMatchObject([{ text: 'yes' }])
    expect(new Set(logged)).toEqual(new Set(['before the question', 'after the question']))
  })

  it('C6 F5 follows a call as a task if it requests one, or if the tool runs only as one', async () => {
    const { url } = await serve()
    const client = await open(url, options)
    for (const [name, more] of [
      ['may', { taskTtlMs: 60_000 }],
      ['must', {}],
    ] as const) {
      const seen: TaskState[] = []
      const result = await client.callTool(name, {}, { ...more, onTask: (task) => void seen.push(task) })
      expect(result.content).toMatchObject([{ text: 'yes' }])
      expect(seen.at(-1)).toMatchObject({ status: 'completed' })
    }
  })

  it('G6 reaches a task through task_status, which asks', async () => {
    const { url } = await serve({ tools: true })
    const client = await open(url, options)
    const started = await client.callTool('may')
    const taskId = idIn({ ...toResult({ result: started as never }) })
    expect((await client.callTool('task_status', { taskId })).content).toMatchObject([{ text: 'yes' }])
  })

  it('G7 is notified of a task that it created', async () => {
    const { url } = await serve()
    const client = await open(url, options)
    const started = await client.start({ method: 'tools/call', name: 'must', arguments: {} })
    const taskId = started.status === 'task' ? (started.pending.task?.taskId ?? '') : ''
    const subscription = client.subscribe({ taskIds: [taskId] })
    await subscription.filter
    const seen = (async () => {
      for await (const change of subscription) if (change.kind === 'task') return change.task
    })()
    await client.task(taskId).cancel()
    expect(await seen).toMatchObject({ taskId })
  })

  it('receives change notifications', async () => {
    const { server, url } = await serve()
    const client = await open(url, options)
    const filter = { toolsListChanged: true, resourceSubscriptions: ['desk://report'] }
    const subscription = client.subscribe(filter)
    expect(await subscription.filter).toEqual(filter)
    const told = (async () => {
      const kinds = new Set<string>()
      for await (const { kind } of subscription) {
        kinds.add(kind)
        if (kinds.has('tools') && kinds.has('resource')) return kinds
      }
      return kinds
    })()
    server.updated('desk://report')
    server.tool('later', {}, () => 'x')
    expect(await told).toEqual(new Set(['tools', 'resource']))
  })
})

/** Forwards everything, and cuts the first stream of a call after its first event. */
async function cutting(url: string): Promise<{ url: string; resumed: (string | undefined)[] }> {
  const { hostname, port, pathname } = new URL(url)
  const resumed: (string | undefined)[] = []
  let cut = false
  const proxy = createHttpServer((incoming, outgoing) => {
    const { method, headers } = incoming
    if (method === 'GET' && headers['last-event-id']) resumed.push(String(headers['last-event-id']))
    const onward = httpRequest({ hostname, port, path: pathname, method, headers }, (response) => {
      outgoing.writeHead(response.statusCode ?? 500, response.headers)
      let over = false
      response.on('data', (chunk: Buffer) => {
        if (over) return
        const text = String(chunk)
        const at = text.indexOf('notifications/message')
        if (cut || at < 0) return outgoing.write(chunk)
        cut = true
        over = true
        outgoing.write(text.slice(0, text.indexOf('\n\n', at) + 2), () => outgoing.destroy())
      })
      response.on('end', () => over || outgoing.end())
      response.on('error', () => {})
    })
    onward.on('error', () => outgoing.headersSent || outgoing.destroy())
    outgoing.on('close', () => onward.destroy())
    incoming.pipe(onward)
  })
  await new Promise<void>((listening) => proxy.listen(0, '127.0.0.1', listening))
  closers.push(() => {
    proxy.closeAllConnections()
    proxy.close()
  })
  return { url: `http://127.0.0.1:${(proxy.address() as AddressInfo).port}${pathname}`, resumed }
}

it.each([
  ['in turns', {}],
  ['while questions are pushed', { turns: false }],
] as const)('F5 our client resumes a broken stream %s, and the call continues', async (_how, options) => {
  const { url } = await serve()
  const proxy = await cutting(url)
  const client = await open(proxy.url, options)
  const result = await client.callTool('ask', {}, { onLog: () => {} })
  expect(result.content).toMatchObject([{ text: 'yes' }])
  expect(proxy.resumed.length).toBeGreaterThan(0)
})

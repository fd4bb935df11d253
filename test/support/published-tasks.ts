/** A server with tasks of 2026-07-28, and tools that ask, fail, throw and wait. Closed after each test. */

import { createServer, type Server, type ServerOptions, ToolError } from 'rondo'
import { afterEach } from 'vitest'
import { z } from 'zod'
import { createMemoryStore } from '../../packages/rondo/src/store/memory/store.ts'
import { send } from './task-client.ts'

export const EXTENSION = 'io.modelcontextprotocol/tasks'
export const keys = 'k:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE='
const servers: Server[] = []

afterEach(async () => {
  await Promise.all(servers.splice(0).map((server) => server.close()))
})

export function start(options: Partial<ServerOptions> = {}): Server {
  const server = createServer({
    name: 'tasks',
    version: '1.0.0',
    keys,
    log: 'off',
    store: createMemoryStore(),
    ...options,
  })
  const text = z.object({ value: z.string() })
  server.tool('sync', {}, () => 'at once')
  server.tool('auto', { task: 'auto' }, () => 'done')
  server.tool('always', { task: 'always', taskTtlMs: 60_000, taskPollMs: 50 }, () => 'done')
  server.tool('fails', { task: 'always' }, () => {
    throw new ToolError('out of stock')
  })
  server.tool('breaks', { task: 'always' }, async (_args, ctx) => {
    void ctx.ask('forgotten', { message: 'Never awaited', schema: text })
    return 'x'
  })
  server.tool('asks', { task: 'always' }, async (_args, ctx) => {
    const [a, b] = await Promise.all([
      ctx.ask('a', { message: 'A?', schema: text }),
      ctx.ask('b', { message: 'B?', schema: text }),
    ])
    return `${a.value}${b.value}`
  })
  server.tool('later', {}, async (_args, ctx) => {
    const { value } = await ctx.ask('name', { message: 'Name?', schema: text })
    await ctx.background()
    ctx.status('greeting')
    const greeting = await ctx.step('greet', () => `Hello ${value}`)
    return `${greeting}, round ${ctx.round}`
  })
  server.tool('waits', { task: 'always' }, async (_args, ctx) => {
    await ctx.step(
      'long',
      ({ signal }) =>
        new Promise((_, reject) => {
          const stop = () => reject(new Error('aborted'))
          if (signal.aborted) stop()
          signal.addEventListener('abort', stop)
        }),
    )
  })
  servers.push(server)
  return server
}

export async function create(server: Server, name: string): Promise<string> {
  const { result, error } = await send(server, 'tools/call', { name })
  if (result?.resultType !== 'task') throw new Error(`no task: ${JSON.stringify(result ?? error)}`)
  return String(result.taskId)
}

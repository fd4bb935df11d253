/** `listen` resolves when the server can serve, and otherwise rejects with the sentence that helps. */

import { createServer as createHttpServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { PassThrough } from 'node:stream'
import { createServer, generateKey, keysFromFunction, type LogEvent, type ServerOptions } from 'rondo'
import { createPostgresStore } from 'rondo/postgres'
import { createSqliteStore } from 'rondo/sqlite'
import { describe, expect, it } from 'vitest'
import { createMemoryStore } from '../../packages/rondo/src/store/memory/store.ts'
import { send } from '../support/task-client.ts'

function make(options: Partial<ServerOptions> = {}) {
  const events: LogEvent[] = []
  const log = (event: LogEvent): void => void events.push(event)
  const server = createServer({ name: 'start', version: '1.0.0', keys: generateKey('k1'), log, ...options })
  return { server, events }
}

const QUIET = { port: 0, signals: false, rejections: false }

describe('listen', () => {
  it('logs start, ready and both ends of draining, with addresses, revisions, keys by name and store', async () => {
    const { server, events } = make({ store: createMemoryStore(), instance: 'web-1' })
    const { url } = await server.listen(QUIET)
    await server.close()
    const level = 'info'
    const instance = 'web-1'
    expect(events).toMatchObject([
      { event: 'start', level, instance, name: 'start', version: '1.0.0', keys: ['k1'], store: 'memory' },
      { event: 'ready', level, instance, address: url, ms: expect.any(Number) },
      { event: 'drain', level, instance, phase: 'begun' },
      { event: 'drain', level, instance, phase: 'finished', ms: expect.any(Number) },
    ])
    expect(events[0]).toMatchObject({ revisions: expect.arrayContaining(['2026-07-28', '2025-11-25']) })
  })

  it('has finished draining when its tasks are handed back', async () => {
    const { server, events } = make({ store: createMemoryStore() })
    let begun = (): void => {}
    const running = new Promise<void>((resolve) => {
      begun = resolve
    })
    let end = (): void => {}
    const ended = new Promise<void>((resolve) => {
      end = resolve
    })
    server.tool('work', { task: 'always' }, async (_args, ctx) => {
      await ctx.step('slow', () => {
        begun()
        return ended
      })
      await ctx.step('next', () => 1)
      return 'done'
    })
    await server.listen(QUIET)
    await send(server, 'tools/call', { name: 'work', arguments: {} })
    await running
    const closing = server.close()
    setTimeout(end, 300)
    await closing
    const told = events.slice(-2)
    expect(told).toMatchObject([
      { event: 'round', outcome: 'moved', moved: 'drain', turn: 1 },
      { event: 'drain', phase: 'finished' },
    ])
  })

  it('over stdio logs both ends too', async () => {
    const { server, events } = make()
    const input = new PassThrough()
    input.end()
    await server.stdio({ input, output: new PassThrough(), signals: false, rejections: false })
    expect(events.map((event) => ('phase' in event ? event.phase : event.event))).toEqual([
      'start',
      'ready',
      'begun',
      'finished',
    ])
    await server.close()
    expect(events).toHaveLength(4)
  })

  it('says in one sentence that the port is in use', async () => {
    const other = createHttpServer().listen(0, '127.0.0.1')
    await new Promise((resolve) => other.once('listening', resolve))
    const { port } = other.address() as AddressInfo
    const { server, events } = make()
    const sentence =
      `[SERVER_LISTEN] Port ${port} on 127.0.0.1 is in use: stop the other process, ` +
      'or choose another port with PORT or listen({ port })'
    await expect(server.listen({ ...QUIET, port })).rejects.toMatchObject({ message: sentence })
    expect(events.map(({ event }) => event)).not.toContain('ready')
    await server.close()
    await new Promise((resolve) => other.close(resolve))
  })

  it('rejects with the advice of a store that cannot be opened, and serves nothing', async () => {
    const store = createSqliteStore({ file: join('package.json', 'tasks.db') })
    const { server, events } = make({ store })
    await expect(server.listen(QUIET)).rejects.toThrow('STORE_UNAVAILABLE')
    expect(events.map(({ event }) => event)).toEqual(['start'])
    await server.close()
    await store.close()
  })

  it('rejects with what to correct if PostgreSQL refuses the connection', async () => {
    const store = createPostgresStore({ connectionString: 'postgres://u@127.0.0.1:1/db', retryMs: 0 })
    const { server } = make({ store })
    await expect(server.listen(QUIET)).rejects.toThrow('Start the server, or correct host and port')
    await server.close()
    await store.close()
  })

  it('rejects if the keys cannot be loaded, and can be called again', async () => {
    let broken = true
    const keys = keysFromFunction(() => {
      if (broken) throw new Error('the vault is sealed')
      return generateKey('k2')
    })
    const { server } = make({ keys })
    await expect(server.listen(QUIET)).rejects.toThrow('the vault is sealed')
    broken = false
    await server.listen(QUIET)
    await server.close()
  })
})

/**
 * Keys are rotated while tasks wait (B9): a key is learned, then used, and dropped when no task needs it. Dropping one too
 * early loses the tasks that were sealed with it, and nothing else.
 */

import { createServer, type LogEvent, type Server, type ServerOptions } from 'rondo'
import { connect } from 'rondo/client'
import { afterEach, describe, expect, it } from 'vitest'
import { createMemoryStore } from '../../packages/rondo/src/store/memory/store.ts'
import { connectOlder } from '../support/older-client.ts'
import { follow, send, settled } from '../support/task-client.ts'

const A = 'a:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE='
const B = 'b:YWJjZGVmZ2hpamFiY2RlZmdoaWphYmNkZWZnaGlqYWI='
const servers: Server[] = []

afterEach(async () => {
  await Promise.all(servers.splice(0).map((server) => server.close()))
})

function start(keys: string, options: Partial<ServerOptions>): Server {
  const server = createServer({
    name: 'keys',
    version: '1',
    keys,
    log: 'off',
    authenticate: () => ({ subject: 'ada' }),
    ...options,
  })
  server.tool('asks', { task: 'always' }, async (_args, ctx) => {
    ctx.status('about to ask')
    const sure = await ctx.confirm('sure', 'Go on?')
    return `sure: ${sure}`
  })
  servers.push(server)
  return server
}

async function begin(server: Server): Promise<string> {
  const { result } = await send(server, 'tools/call', { name: 'asks' })
  const taskId = String(result?.taskId)
  expect(await settled(server, taskId)).toMatchObject({ status: 'input_required' })
  return taskId
}

const sure = { sure: { confirm: true } }

it('B9 a waiting task can be finished after its key no longer seals', async () => {
  const store = createMemoryStore()
  const taskId = await begin(start(A, { store }))
  await servers.pop()?.close()
  const ended = await follow(start(`${B},${A}`, { store }), taskId, sure)
  expect(ended).toMatchObject({ result: { content: [{ text: 'sure: true' }] } })
  await servers.pop()?.close()
  // Its result is sealed with the new key alone.
  const left = await send(start(B, { store }), 'tasks/get', { taskId })
  expect(left.result).toMatchObject({ status: 'completed', result: { content: [{ text: 'sure: true' }] } })
})

describe('a key that was dropped too early', () => {
  async function drop() {
    const store = createMemoryStore()
    const lost = await begin(start(A, { store }))
    await servers.pop()?.close()
    const logged: LogEvent[] = []
    const server = start(B, { store, log: (event) => logged.push(event) })
    return { lost, kept: await begin(server), server, logged }
  }

  it('loses the task: the client gets an internal error, and the log has the reason', async () => {
    const { lost, server, logged } = await drop()
    expect((await send(server, 'tasks/get', { taskId: lost })).error).toEqual({
      code: -32603,
      message: 'Internal error',
    })
    expect(logged).toContainEqual(
      expect.objectContaining({ event: 'warning', message: expect.stringContaining('does not open: key') }),
    )
    expect((await send(server, 'tasks/cancel', { taskId: lost })).error).toBeUndefined()
    expect((await send(server, 'tasks/get', { taskId: lost })).result).toMatchObject({ status: 'cancelled' })
  })

  it('E4 does not stop notifications of other tasks', async () => {
    const { lost, kept, server } = await drop()
    const { url } = await server.listen({ port: 0, signals: false })
    const client = await connect(url)
    const seen: string[] = []
    for await (const change of client.subscribe({ taskIds: [lost, kept] })) {
      if (change.kind !== 'task') continue
      seen.push(`${change.task.taskId === kept ? 'kept' : 'lost'} ${change.task.status}`)
      if (change.task.status === 'completed') break
      if (seen.length === 1)
        await client.task(kept).answer({ sure: { action: 'accept', content: { confirm: true } } })
    }
    await client.close()
    expect(seen[0]).toBe('kept input_required')
    expect(seen.at(-1)).toBe('kept completed')
  })

  it('does not stop other tasks from being listed', async () => {
    const { kept, server } = await drop()
    const { url } = await server.listen({ port: 0, signals: false })
    const client = await connectOlder(url)
    const { result } = (await client.call('tasks/list')) as { result?: { tasks: { taskId: string }[] } }
    expect(result?.tasks.map(({ taskId }) => taskId)).toEqual([kept])
  })
})

/**
 * Tasks that outlive a release: instances of the old one and the new one work on the same store.
 */

import { createServer, type Server, type ServerOptions } from 'rondo'
import { afterEach, describe, expect, it } from 'vitest'
import { createMemoryStore } from '../../src/store/memory/store.ts'
import { createTime, until } from '../support/store/store-harness.ts'
import { send, settled } from '../support/task-client.ts'

const keys = 'k:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE='
const servers: Server[] = []
const MINUTE = 60_000

afterEach(async () => {
  await Promise.all(servers.splice(0).map((server) => server.close()))
})

/** A release with these tools, and the number of turns of its worker. */
function release(tools: readonly string[], options: Partial<ServerOptions>) {
  const turns: string[] = []
  const server = createServer({
    name: 'deploy',
    version: '1',
    keys,
    log: 'off',
    ...options,
    tasks: {
      onEvent: (event) => {
        if (event.kind === 'turn') turns.push(event.outcome)
      },
      ...options.tasks,
    },
  })
  for (const tool of tools) server.tool(tool, { task: 'always' }, () => `by ${tool}`)
  servers.push(server)
  return { server, turns }
}

describe('a task whose tool this instance does not have', () => {
  it('E9 waits for an instance that has the tool, however often one without it claims the task', async () => {
    const now = createTime()
    const store = createMemoryStore({ now })
    const old = release(['other'], { store, now })
    const next = release(['fresh'], { store, now, tasks: { concurrency: 0 } })
    const { result } = await send(next.server, 'tools/call', { name: 'fresh' })
    const taskId = String(result?.taskId)
    for (let i = 1; i <= 8; i++) {
      await send(old.server, 'tasks/get', { taskId })
      await until(`turn ${i}`, () => old.turns.length >= i)
      now.pass(MINUTE)
    }
    await old.server.close()
    const [left] = await store.tasks.list({ id: taskId })
    expect(left).toMatchObject({ status: 'working', failures: 0 })
    const { server } = release(['fresh'], { store, now })
    expect(await settled(server, taskId)).toMatchObject({ result: { content: [{ text: 'by fresh' }] } })
  })

  it('fails with a reason if no instance has had the tool for a quarter of an hour', async () => {
    const now = createTime()
    const store = createMemoryStore({ now })
    const gone = release(['removed'], { store, now, tasks: { concurrency: 0 } })
    const { result } = await send(gone.server, 'tools/call', { name: 'removed' })
    const taskId = String(result?.taskId)
    const left = release(['other'], { store, now })
    await send(left.server, 'tasks/get', { taskId })
    await until('a turn', () => left.turns.length > 0)
    now.pass(16 * MINUTE)
    expect(await settled(left.server, taskId)).toMatchObject({
      status: 'failed',
      error: { code: -32602, message: expect.stringContaining('removed') },
    })
  })
})

/**
 * Tasks of tools that never end by themselves (R9).
 */

import { createServer, inputRequired, type Server } from 'rondo'
import { afterEach, expect, it } from 'vitest'
import { createMemoryStore } from '../../packages/rondo/src/store/memory/store.ts'
import { send, settled } from '../support/task-client.ts'

const keys = 'k:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE='
const servers: Server[] = []

afterEach(async () => {
  await Promise.all(servers.splice(0).map((server) => server.close()))
})

function start(limits: object): { server: Server; turns: number[] } {
  const turns: number[] = []
  const server = createServer({
    name: 'endless',
    version: '1',
    keys,
    log: 'off',
    store: createMemoryStore(),
    limits,
  })
  server.tool('again', { task: 'always' }, (_args, ctx) => {
    turns.push(performance.now())
    return inputRequired({ requestState: `${Number(ctx.requestState ?? 0) + 1}` })
  })
  servers.push(server)
  return { server, turns }
}

it('R9 C9 a task that only asks to run again is paced like a client, and limited', async () => {
  const { server, turns } = start({ maxEntries: 4 })
  const { result } = await send(server, 'tools/call', { name: 'again' })
  expect(await settled(server, String(result?.taskId))).toMatchObject({
    status: 'failed',
    error: { code: -32603, message: 'This call needs more rounds than the server allows' },
  })
  expect(turns).toHaveLength(5)
  const pauses = turns.slice(1).map((at, i) => at - (turns[i] ?? 0))
  expect(Math.min(...pauses)).toBeGreaterThan(40)
})

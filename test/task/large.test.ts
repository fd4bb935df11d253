/**
 * Tasks whose arguments, steps, questions or results are large: they work like rounds, and fail with a reason beyond a limit.
 */

import { createServer, type Server, type ServerOptions } from 'rondo'
import { afterEach, describe, expect, it } from 'vitest'
import { z } from 'zod'
import { createMemoryStore } from '../../packages/rondo/src/store/memory/store.ts'
import { follow, send, settled } from '../support/task-client.ts'

const keys = 'k:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE='
const servers: Server[] = []
const TOO_LARGE = { code: -32603, message: 'The state of this call is larger than the server allows' }
const sure = { sure: { confirm: true } }

afterEach(async () => {
  await Promise.all(servers.splice(0).map((server) => server.close()))
})

function start(ran: string[], tasks: ServerOptions['tasks'] = {}): Server {
  const server = createServer({
    name: 'large',
    version: '1',
    keys,
    log: 'off',
    store: createMemoryStore(),
    tasks,
  })
  const input = z.object({ bytes: z.int(), text: z.string().optional() })
  const terms = { task: 'always', input } as const
  server.tool('result', terms, ({ bytes }) => 'x'.repeat(bytes))
  server.tool('step', terms, async ({ bytes }, ctx) => {
    const document = await ctx.step('document', () => {
      ran.push('document')
      return 'x'.repeat(bytes)
    })
    await ctx.confirm('sure', 'Go on?')
    return String(document.length)
  })
  server.tool('question', terms, async ({ bytes }, ctx) => {
    await ctx.effect('pay', () => void ran.push('pay'))
    await ctx.confirm('sure', 'x'.repeat(bytes))
    return 'done'
  })
  server.tool('status', terms, async ({ bytes }, ctx) => {
    ctx.status('x'.repeat(bytes))
    await ctx.confirm('sure', 'Go on?')
    return 'done'
  })
  server.tool('echo', terms, ({ text }) => String(text?.length))
  servers.push(server)
  return server
}

async function begin(server: Server, name: string, args: object): Promise<string> {
  const { result, error } = await send(server, 'tools/call', { name, arguments: args })
  if (result?.resultType !== 'task') throw new Error(`no task: ${JSON.stringify(error)}`)
  return String(result.taskId)
}

describe('a task with large values', () => {
  it.each(['result', 'step'])('R10 completes with a %s of two megabytes', async (name) => {
    const ran: string[] = []
    const server = start(ran)
    const ended = await follow(server, await begin(server, name, { bytes: 2_000_000 }), sure)
    expect(ended.status).toBe('completed')
    expect(JSON.stringify(ended.result).length).toBeGreaterThan(name === 'result' ? 2_000_000 : 10)
    expect(ran).toHaveLength(name === 'step' ? 1 : 0)
  })

  it('R10 accepts arguments of the maximum body size', async () => {
    const server = start([])
    const ended = await follow(
      server,
      await begin(server, 'echo', { bytes: 0, text: 'x'.repeat(900_000) }),
      {},
    )
    expect(ended.result).toMatchObject({ content: [{ text: '900000' }] })
  })
})

describe('a task beyond its limits', () => {
  const tasks = { maxPieceBytes: 4_096 }

  it.each(['result', 'step', 'question'])(
    'R9 fails with a reason for a %s that is too large',
    async (name) => {
      const ran: string[] = []
      const server = start(ran, tasks)
      const ended = await settled(server, await begin(server, name, { bytes: 20_000 }))
      expect(ended).toMatchObject({ status: 'failed', error: TOO_LARGE })
      expect(ran.length).toBeLessThanOrEqual(1)
    },
  )

  it('R9 refuses a call with arguments that are too large before a task is created', async () => {
    const { error } = await send(start([], tasks), 'tools/call', {
      name: 'echo',
      arguments: { bytes: 0, text: 'x'.repeat(20_000) },
    })
    expect(error).toEqual(TOO_LARGE)
  })

  it('truncates a status message instead of failing', async () => {
    const server = start([], tasks)
    const asking = await settled(server, await begin(server, 'status', { bytes: 20_000 }))
    expect(asking.status).toBe('input_required')
    expect(String(asking.statusMessage)).toMatch(/^x{100,2000}…$/)
  })
})

it('R9 T18 a task fails with a reason if its journal is too large', async () => {
  const server = start([], { maxJournalBytes: 4_096 })
  const ended = await settled(server, await begin(server, 'step', { bytes: 20_000 }))
  expect(ended).toMatchObject({ status: 'failed', error: TOO_LARGE })
})

it('R10 a task fails on a result that is not JSON, as rounds do, and runs nothing again', async () => {
  let runs = 0
  const server = start([])
  server.tool('number', { task: 'auto' }, () => {
    runs += 1
    return { content: [], structuredContent: { n: 1n } }
  })
  const rounds = await send(server, 'tools/call', { name: 'number' }, { capabilities: {} })
  expect(rounds.error).toMatchObject({ code: -32603 })
  const ended = await settled(server, await begin(server, 'number', {}))
  expect(ended).toMatchObject({ status: 'failed', error: rounds.error })
  expect(runs).toBe(2)
})

/** The official requester of the tasks extension drives tasks of ours, over real sockets. */

import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client'
import {
  type CreateTaskSessionFromClientOptions,
  createTaskSessionFromClient,
  type RawClientDispatch,
  resultFromTaskOutcome,
} from '@modelcontextprotocol/ext-tasks/client'
import { createServer, generateKey, type Server, ToolError } from 'rondo'
import { afterEach, describe, expect, it } from 'vitest'
import { createMemoryStore } from '../../packages/rondo/src/store/memory/store.ts'
import { MODERN } from '../support/official-client.ts'

const closers: (() => Promise<void>)[] = []
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close()
})

const keys = generateKey('test')
const INFO = { name: 'ext-tasks', version: '0.2.2' }
const CAPABILITIES = { elicitation: { form: {} } }
const value = { type: 'object', properties: { value: { type: 'string' } }, required: ['value'] } as const

function declare(server: Server): void {
  server.tool('greet', { task: 'always', taskPollMs: 20 }, async (_args, ctx) => {
    ctx.status('asking')
    const [first, last] = await Promise.all([
      ctx.ask('first', { message: 'First name?', schema: value }),
      ctx.ask('last', { message: 'Last name?', schema: value }),
    ])
    return `Hello ${first.value} ${last.value}, ${await ctx.confirm('sure', 'Sure?')}`
  })
  server.tool('later', { taskPollMs: 20 }, async (_args, ctx) => {
    const name = await ctx.ask('first', { message: 'First name?', schema: value })
    await ctx.background()
    return `Later ${name.value}`
  })
  server.tool('fails', { task: 'always', taskPollMs: 20 }, () => {
    throw new ToolError('out of stock')
  })
  server.tool('waits', { task: 'always', taskPollMs: 20 }, (_args, ctx) =>
    ctx.step('long', ({ signal }) => new Promise((_, reject) => signal.addEventListener('abort', reject))),
  )
}

/** The transport that the package leaves to its host: one request as it is, one response as it comes. */
function dispatchTo(url: URL, sent: string[]): RawClientDispatch {
  let id = 0
  return async (request, { signal, context } = {}) => {
    const { method, params } = request as { method: string; params: Record<string, string> }
    sent.push(method)
    const headers = new Headers({
      'content-type': 'application/json',
      accept: 'application/json, text/event-stream',
      'mcp-protocol-version': '2026-07-28',
      'mcp-method': method,
      'mcp-name': params.name ?? '',
    })
    // The package names the task itself; in whatever case, there is one such header.
    for (const [name, text] of Object.entries(context?.headers ?? {})) headers.set(name, text)
    const body = JSON.stringify({ jsonrpc: '2.0', id: `raw-${++id}`, ...(request as object) })
    const response = await fetch(url, { method: 'POST', signal, headers, body })
    const { result, error } = JSON.parse(await response.text())
    return error ? { kind: 'error', error } : { kind: 'result', result }
  }
}

async function open(onInputRequest?: CreateTaskSessionFromClientOptions['onInputRequest']) {
  const server = createServer({ name: 'tasks', version: '1', keys, log: 'off', store: createMemoryStore() })
  declare(server)
  const { url } = await server.listen({ port: 0, signals: false })
  closers.push(() => server.close())
  const client = new Client(INFO, { capabilities: CAPABILITIES, ...MODERN })
  await client.connect(new StreamableHTTPClientTransport(new URL(url)))
  closers.push(() => client.close())
  const sent: string[] = []
  const session = createTaskSessionFromClient(client, {
    endpointId: 'tasks',
    rawDispatch: dispatchTo(new URL(url), sent),
    v2RequestFraming: { protocolVersion: '2026-07-28', clientInfo: INFO, clientCapabilities: CAPABILITIES },
    onInputRequest,
    onError: (error) => {
      throw error
    },
  })
  closers.push(() => session.close())
  return { session, sent }
}

const people: Record<string, object> = {
  first: { value: 'Ada' },
  last: { value: 'Lovelace' },
  sure: { confirm: true },
}

describe('the official requester', () => {
  it('E1 E3 E5 follows a task with three questions to its end', async () => {
    const asked: (string | undefined)[] = []
    const { session, sent } = await open(async (_request, { inputId = '' }) => {
      asked.push(inputId)
      return { action: 'accept', content: people[inputId] } as never
    })
    const execution = await session.callTool('greet', {})
    expect(execution.kind).toBe('task')
    const { outcome } = await execution.settle()
    expect(resultFromTaskOutcome(outcome)).toMatchObject({ content: [{ text: 'Hello Ada Lovelace, true' }] })
    expect(asked).toEqual(['first', 'last', 'sure'])
    expect(new Set(sent)).toEqual(new Set(['tools/call', 'tasks/get', 'tasks/update']))
  })

  it('D9 answers a round first, and follows the task that the call becomes', async () => {
    const { session, sent } = await open(async () => ({ action: 'accept', content: people.first }) as never)
    const { outcome } = await (await session.callTool('later', {})).settle()
    expect(resultFromTaskOutcome(outcome)).toMatchObject({ content: [{ text: 'Later Ada' }] })
    expect(sent.filter((method) => method === 'tools/call')).toHaveLength(2)
    expect(sent).not.toContain('tasks/update')
  })

  it('E8 reads a failed tool as an error result', async () => {
    const { session } = await open()
    const { outcome } = await (await session.callTool('fails', {})).settle()
    expect(resultFromTaskOutcome(outcome)).toMatchObject({
      isError: true,
      content: [{ text: 'out of stock' }],
    })
  })

  it('E3 cancels a working task', async () => {
    const { session } = await open()
    const execution = await session.callTool('waits', {})
    await execution.cancel()
    const { outcome } = await execution.settle()
    expect(() => resultFromTaskOutcome(outcome)).toThrow(/cancel/i)
  })
})

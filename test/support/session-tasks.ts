/** A server with tasks of 2025-11-25 that identifies its users by a header, and helpers to follow the tasks. Closed after each test. */

import { createServer, type Server, type ServerOptions, ToolError } from 'rondo'
import { afterEach } from 'vitest'
import { createMemoryStore } from '../../packages/rondo/src/store/memory/store.ts'
import { connectOlder, type Message, type OlderClient, type OlderClientOptions } from './older-client.ts'

export const keys = 'k:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE='
export const RELATED = 'io.modelcontextprotocol/related-task'
export const servers: Server[] = []
/** Releases the calls of `gated`. */
export const openings: (() => void)[] = []

afterEach(async () => {
  await Promise.all(servers.splice(0).map((server) => server.close()))
})

const name = { type: 'object', properties: { name: { type: 'string' } }, required: ['name'] } as const

function declare(server: Server): void {
  server.tool('greet', { task: 'auto', taskPollMs: 50 }, async (_args, ctx) => {
    const given = await ctx.ask('name', { message: 'Name?', schema: name, orArgument: 'name' })
    return `Hello ${given.name}`
  })
  server.tool('only', { task: 'always', taskPollMs: 50 }, () => 'as a task')
  server.tool('never', {}, () => 'at once')
  server.tool('fails', { task: 'auto' }, () => {
    throw new ToolError('The printer is on fire')
  })
  server.tool('breaks', { task: 'auto' }, async (_args, ctx) => {
    await Promise.all([ctx.step('twice', () => 1), ctx.step('twice', () => 2)])
  })
  server.tool('gated', { task: 'auto' }, (_args, ctx) =>
    ctx.step('gate', () => new Promise<void>((resolve) => openings.push(resolve))),
  )
  server.tool('waits', { task: 'auto' }, (_args, ctx) =>
    ctx.step('long', ({ signal }) => new Promise((_, reject) => signal.addEventListener('abort', reject))),
  )
}

/** Connects a client of this user. */
type Connect = (user?: string, given?: OlderClientOptions) => Promise<OlderClient>

export async function start(options: Partial<ServerOptions> = {}): Promise<Connect> {
  const server = createServer({
    name: 'tasks',
    version: '1.0.0',
    keys,
    log: 'off',
    store: createMemoryStore(),
    authenticate: ({ headers }) => {
      const subject = headers('x-user')
      return subject === undefined ? undefined : { subject }
    },
    ...options,
  })
  declare(server)
  servers.push(server)
  const { url } = await server.listen({ port: 0, signals: false, graceMs: 200 })
  return (user?: string, given: OlderClientOptions = {}): Promise<OlderClient> =>
    connectOlder(url, {
      capabilities: { elicitation: {} },
      headers: user === undefined ? {} : { 'x-user': user },
      ...given,
    })
}

export type Task = { readonly taskId: string; readonly status: string; readonly statusMessage?: string }

export const resultOf = (message: Message): Record<string, unknown> => {
  if (!message.result) throw new Error(`no result: ${JSON.stringify(message)}`)
  return message.result as Record<string, unknown>
}
export const errorOf = ({ error }: Message): { code: number; message: string } | undefined =>
  error as { code: number; message: string } | undefined
export const create = async (client: OlderClient, tool = 'greet'): Promise<Task> =>
  resultOf(await client.call('tools/call', { name: tool, task: { ttl: 60_000 } })).task as Task
export const capabilitiesOf = ({ initialized }: OlderClient): Record<string, unknown> =>
  (initialized.result as { capabilities: Record<string, unknown> }).capabilities

export async function until(client: OlderClient, taskId: string, status: string): Promise<Task> {
  for (let i = 0; i < 30_000; i++) {
    const task = resultOf(await client.call('tasks/get', { taskId })) as unknown as Task
    if (task.status === status) return task
    await new Promise((resolve) => setTimeout(resolve, 2))
  }
  throw new Error(`the task never became ${status}`)
}

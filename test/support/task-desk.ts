/** A server for tests of the command line whose tools run as tasks, and wait until the test releases them. */

import { createServer, generateKey, type Listening, type Server } from '../../packages/rondo/src/index.ts'
import { createMemoryStore } from '../../packages/rondo/src/store/memory/store.ts'

const NAME = { type: 'object', properties: { name: { type: 'string' } }, required: ['name'] } as const

export interface TaskDesk {
  readonly url: string
  /** Releases every `report`, now and later. */
  open(): void
  close(): Promise<void>
}

export async function serveTasks(): Promise<TaskDesk> {
  const store = createMemoryStore()
  const server = createServer({
    name: 'tasks',
    version: '1.0.0',
    log: 'off',
    keys: generateKey(),
    store,
    turns: false,
  })
  let open = (): void => {}
  const opened = new Promise<void>((resolve) => {
    open = resolve
  })
  declare(server, opened)
  const { url }: Listening = await server.listen({ port: 0, signals: false })
  return { url, open, close: () => server.close() }
}

function declare(server: Server, opened: Promise<void>): void {
  const task = { task: 'always', taskPollMs: 50 } as const
  server.tool('ask', task, async (_args, ctx) => {
    ctx.status('about to ask')
    const { name } = (await ctx.ask('who', { message: 'For whom?', schema: NAME })) as { name: string }
    const sure = await ctx.confirm('sure', `Really for ${name}?`)
    return sure ? `report for ${name}` : 'no report'
  })
  server.tool('report', task, async (_args, ctx) => {
    ctx.status('month 1 of 2')
    await ctx.step('first', async () => {
      await opened
      return 1
    })
    ctx.status('month 2 of 2')
    await ctx.step('second', () => new Promise((resolve) => setTimeout(() => resolve(2), 3_000)))
    return 'two months'
  })
  server.tool('hang', task, async (_args, ctx) => {
    ctx.status('hanging')
    await ctx.step('long', ({ signal }) => new Promise((_, no) => signal.addEventListener('abort', no)))
    return 'too late'
  })
  server.tool('rounds', {}, async (_args, ctx) => {
    const { name } = (await ctx.ask('who', { message: 'For whom?', schema: NAME })) as { name: string }
    return `no task for ${name}`
  })
  server.tool('either', { task: 'auto', taskPollMs: 50 }, () => 'either way')
  server.tool('breaks', task, async () => ({ content: [{ type: 'text', text: 'no luck' }], isError: true }))
  server.tool('link', task, async (_args, ctx) => {
    await ctx.visit('page', { message: 'Co\u202ennect', url: 'https://example.com/connect' })
    return 'visited'
  })
  server.tool('login', task, async (_args, ctx) => {
    const schema = { type: 'object', properties: { password: { type: 'string' } } } as const
    const question = { message: 'Log in', schema, allowSecretLike: 'a test' }
    return JSON.stringify(await ctx.ask('login', question))
  })
}

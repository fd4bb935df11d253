/** A server whose tools may, must or cannot run as tasks, for clients that request tasks themselves. */

import { createServer, type Server, type ServerOptions, ToolError } from 'rondo'
import { createMemoryStore } from '../../packages/rondo/src/store/memory/store.ts'

const keys = 'k:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE='
const name = { type: 'object', properties: { name: { type: 'string' } }, required: ['name'] } as const

export function createTaskServer(options: Partial<ServerOptions> = {}): Server {
  const server = createServer({
    name: 'tasks',
    version: '1.0.0',
    keys,
    log: 'off',
    store: createMemoryStore(),
    turns: false,
    ...options,
  })
  server.tool('greet', { task: 'auto', taskPollMs: 50 }, async (_args, ctx) => {
    const given = await ctx.ask('name', { message: 'Name?', schema: name })
    const sure = await ctx.confirm('sure', `Greet ${given.name}?`)
    return `Hello ${given.name}, ${sure}`
  })
  server.tool('consult', { task: 'always', taskPollMs: 50 }, async (_args, ctx) => {
    const content = { type: 'text', text: 'An idea?' } as const
    const messages = [{ role: 'user' as const, content }]
    const [idea, roots] = await Promise.all([ctx.sample('idea', { messages, maxTokens: 10 }), ctx.roots()])
    return JSON.stringify({ idea, roots })
  })
  server.tool('only', { task: 'always', taskPollMs: 50 }, () => 'as a task')
  server.tool('never', {}, () => 'at once')
  server.tool('fails', { task: 'auto', taskPollMs: 50 }, () => {
    throw new ToolError('The printer is on fire')
  })
  server.tool('waits', { task: 'auto', taskPollMs: 50 }, (_args, ctx) =>
    ctx.step('long', ({ signal }) => new Promise((_, reject) => signal.addEventListener('abort', reject))),
  )
  return server
}

/** Our own server with the tools of `official-server.ts`, written as an author who uses Rondo would. */

import { z } from 'zod'
import { createServer, inputRequired, type Server } from '../../packages/rondo/src/index.ts'

const value = z.object({ value: z.string() })

/** Without `keys` the environment's are used. */
export function createOwnServer(keys?: string): Server {
  const server = createServer({ name: 'own', version: '1.0.0', log: 'off', keys })
  declarePlainTools(server)
  declareAskingTools(server)
  declareOthers(server)
  return server
}

function declarePlainTools(server: Server): void {
  const numbers = z.object({ a: z.number(), b: z.number() })
  server.tool('add', { description: 'Adds', input: numbers }, async ({ a, b }) => String(a + b))
  server.tool('progress', { description: 'Reports' }, async (_args, ctx) => {
    for (const step of [1, 2, 3]) ctx.progress(step, 3)
    return 'done'
  })
  server.tool('hang', { description: 'Waits' }, async (_args, ctx) => {
    await new Promise((resolve) => ctx.signal.addEventListener('abort', resolve))
    return 'too late'
  })
  const input = z.object({ times: z.number() })
  server.tool('shed', { description: 'Moves', input }, async ({ times }, ctx) => {
    const seen = Number(ctx.requestState ?? '0')
    return seen < times ? inputRequired({ requestState: String(seen + 1) }) : `moved ${seen} times`
  })
}

function declareAskingTools(server: Server): void {
  server.tool('greet', { description: 'Greets' }, async (_args, ctx) => {
    const schema = z.object({ name: z.string() })
    const outcome = await ctx.elicit('who', { message: 'Who are you?', schema })
    return outcome.action === 'accept' ? `Hello, ${outcome.content.name}!` : `nobody (${outcome.action})`
  })
  server.tool('parallel', { description: 'Asks twice' }, async (_args, ctx) => {
    const [left, right] = await Promise.all([
      ctx.ask('left', { message: 'Left?', schema: value }),
      ctx.ask('right', { message: 'Right?', schema: value }),
    ])
    return `${left.value} and ${right.value}`
  })
  server.tool('connect_account', { description: 'Connects' }, async (_args, ctx) => {
    await ctx.visit('visit', { message: 'Connect your account', url: 'https://example.com/connect?x=1' })
    return 'visit: accept'
  })
  server.tool('ask_model', { description: 'Samples' }, async (_args, ctx) => {
    const content = { type: 'text', text: 'An idea?' }
    const [idea, roots] = await Promise.all([
      ctx.sample('idea', { messages: [{ role: 'user', content }], maxTokens: 10 }),
      ctx.roots('where'),
    ])
    return JSON.stringify({ idea, where: { roots } })
  })
  const input = z.object({ id: z.number() })
  server.tool('three_rounds', { description: 'Asks thrice', input }, async ({ id }, ctx) => {
    const given: string[] = []
    for (const key of ['first', 'second', 'third']) {
      given.push((await ctx.ask(key, { message: `The ${key}?`, schema: value })).value)
    }
    return `${id}: ${given.join(' ')}`
  })
}

function declareOthers(server: Server): void {
  const input = z.object({ topic: z.string() })
  server.prompt('brief', { description: 'A brief', input }, async ({ topic }, ctx) => {
    const schema = z.object({ tone: z.string() })
    const { tone } = await ctx.ask('tone', { message: 'Which tone?', schema })
    return [{ role: 'user', content: { type: 'text', text: `${topic}, ${tone}` } }]
  })
  server.resource('test://report', { name: 'report' }, async (uri, ctx) => {
    const schema = z.object({ period: z.string() })
    const { period } = await ctx.ask('period', { message: 'Which period?', schema })
    return { uri, text: `report for ${period}` }
  })
}

/**
 * A server made with the official package, for our client to talk to: one tool, prompt or resource for every shape a
 * multi-round call can have. States are readable here on purpose, so that the echo can be checked.
 */

import { inputRequired, McpServer, type ServerContext } from '@modelcontextprotocol/server'
import { z } from 'zod'

const text = (value: string) => ({ content: [{ type: 'text' as const, text: value }] })

const form = (message: string, ...fields: string[]) =>
  inputRequired.elicit({
    message,
    requestedSchema: {
      type: 'object',
      properties: Object.fromEntries(fields.map((field) => [field, { type: 'string' as const }])),
      required: fields,
    },
  })

interface Answer {
  readonly action?: string
  readonly content?: Readonly<Record<string, unknown>>
}

const answerTo = (ctx: ServerContext, key: string): Answer | undefined =>
  ctx.mcpReq.inputResponses?.[key] as Answer | undefined

const contentOf = (ctx: ServerContext, key: string, field: string): string | undefined => {
  const value = answerTo(ctx, key)?.content?.[field]
  return value === undefined ? undefined : String(value)
}

export function createOfficialServer(): McpServer {
  const server = new McpServer({ name: 'official', version: '2.4.0' })
  registerPlainTools(server)
  registerAskingTools(server)
  registerLongTools(server)
  registerOthers(server)
  return server
}

function registerPlainTools(server: McpServer): void {
  server.registerTool('add', { inputSchema: z.object({ a: z.number(), b: z.number() }) }, async ({ a, b }) =>
    text(String(a + b)),
  )
  server.registerTool('progress', { inputSchema: z.object({}) }, async (_args, ctx) => {
    const progressToken = ctx.mcpReq._meta?.progressToken
    for (const progress of [1, 2, 3]) {
      if (progressToken === undefined) break
      await ctx.mcpReq.notify({
        method: 'notifications/progress',
        params: { progressToken, progress, total: 3 },
      })
    }
    return text('done')
  })
  server.registerTool('hang', { inputSchema: z.object({}) }, async (_args, ctx) => {
    await new Promise((resolve) => ctx.mcpReq.signal.addEventListener('abort', resolve))
    return text('too late')
  })
}

function registerAskingTools(server: McpServer): void {
  server.registerTool('greet', { inputSchema: z.object({}) }, async (_args, ctx) => {
    const answer = answerTo(ctx, 'who')
    if (answer === undefined) return inputRequired({ inputRequests: { who: form('Who are you?', 'name') } })
    if (answer.action !== 'accept') return text(`nobody (${answer.action})`)
    return text(`Hello, ${contentOf(ctx, 'who', 'name')}!`)
  })
  server.registerTool('parallel', { inputSchema: z.object({}) }, async (_args, ctx) => {
    const requestState = 'a "quoted" ünïcode \u2028 \n 🙂 state'
    const [left, right] = [contentOf(ctx, 'left', 'value'), contentOf(ctx, 'right', 'value')]
    if (left !== undefined && right !== undefined) {
      return text(ctx.mcpReq.requestState() === requestState ? `${left} and ${right}` : 'the state changed')
    }
    const inputRequests = { left: form('Left?', 'value'), right: form('Right?', 'value') }
    return inputRequired({ inputRequests, requestState })
  })
  server.registerTool('connect_account', { inputSchema: z.object({}) }, async (_args, ctx) => {
    const answer = answerTo(ctx, 'visit')
    if (answer !== undefined) return text(`visit: ${answer.action}`)
    const visit = inputRequired.elicitUrl({
      message: 'Connect your account',
      url: 'https://example.com/connect?x=1',
    })
    return inputRequired({ inputRequests: { visit }, requestState: 'waiting' })
  })
  server.registerTool('ask_model', { inputSchema: z.object({}) }, async (_args, ctx) => {
    const answers = ctx.mcpReq.inputResponses
    if (answers?.idea !== undefined && answers.where !== undefined) return text(JSON.stringify(answers))
    return inputRequired({
      inputRequests: {
        idea: inputRequired.createMessage({
          messages: [{ role: 'user', content: { type: 'text', text: 'An idea?' } }],
          maxTokens: 10,
        }),
        where: inputRequired.listRoots(),
      },
    })
  })
}

function registerLongTools(server: McpServer): void {
  server.registerTool('three_rounds', { inputSchema: z.object({ id: z.number() }) }, async ({ id }, ctx) => {
    const given = (ctx.mcpReq.requestState<string>() ?? '').split(',').filter(Boolean)
    const last = ['first', 'second', 'third'].map((key) => contentOf(ctx, key, 'value')).find(Boolean)
    const known = last === undefined ? given : [...given, last]
    const key = ['first', 'second', 'third'][known.length]
    if (key === undefined) return text(`${id}: ${known.join(' ')}`)
    return inputRequired({
      inputRequests: { [key]: form(`The ${key}?`, 'value') },
      requestState: known.join(','),
    })
  })
  server.registerTool('shed', { inputSchema: z.object({ times: z.number() }) }, async ({ times }, ctx) => {
    const seen = Number(ctx.mcpReq.requestState<string>() ?? '0')
    return seen < times ? inputRequired({ requestState: String(seen + 1) }) : text(`moved ${seen} times`)
  })
}

function registerOthers(server: McpServer): void {
  server.registerPrompt('brief', { argsSchema: z.object({ topic: z.string() }) }, async ({ topic }, ctx) => {
    const tone = contentOf(ctx, 'tone', 'tone')
    if (tone === undefined) return inputRequired({ inputRequests: { tone: form('Which tone?', 'tone') } })
    return { messages: [{ role: 'user', content: { type: 'text', text: `${topic}, ${tone}` } }] }
  })
  server.registerResource('report', 'test://report', {}, async (uri, ctx) => {
    const period = contentOf(ctx, 'period', 'period')
    if (period === undefined) {
      return inputRequired({ inputRequests: { period: form('Which period?', 'period') }, requestState: 'r' })
    }
    return { contents: [{ uri: uri.href, text: `report for ${period}` }] }
  })
}

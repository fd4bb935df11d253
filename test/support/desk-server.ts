/** A server for tests of the command line: every kind of field, confirmations, links, progress, parallel questions. */

import { createServer, inputRequired, type Server } from '../../packages/rondo/src/index.ts'

const EVERY_FIELD = {
  type: 'object',
  properties: {
    name: { type: 'string', title: 'Name', minLength: 2 },
    email: { type: 'string', title: 'Mail', format: 'email' },
    when: { type: 'string', title: 'Day', format: 'date' },
    count: { type: 'integer', title: 'Count', minimum: 1, maximum: 9 },
    weight: { type: 'number', title: 'Weight', default: 2.5 },
    gift: { type: 'boolean', title: 'Gift' },
    size: {
      type: 'string',
      title: 'Size',
      oneOf: [
        { const: 's', title: 'Small' },
        { const: 'l', title: 'Large' },
      ],
    },
    extras: {
      type: 'array',
      title: 'Extras',
      minItems: 1,
      items: { anyOf: ['salt', 'pepper', 'oil'].map((one) => ({ const: one, title: one.toUpperCase() })) },
    },
    note: { type: 'string', title: 'Note' },
  },
  required: ['name', 'email', 'when', 'count', 'weight', 'gift', 'size', 'extras'],
} as const

const text = (name: string) =>
  ({ type: 'object', properties: { [name]: { type: 'string' } }, required: [name] }) as const

const PLAIN_INPUT = {
  type: 'object',
  properties: {
    text: { type: 'string' },
    whole: { type: 'integer' },
    yes: { type: 'boolean' },
    list: { type: 'array', items: { type: 'number' } },
    deep: { type: 'object', properties: { inside: { type: 'integer' } } },
  },
  required: ['text'],
  additionalProperties: false,
} as const

export function createDeskServer(keys: string | undefined): Server {
  const server = createServer({ name: 'desk', version: '1.2.3', log: 'off', keys })
  server.tool('echo', { description: 'Echoes', input: PLAIN_INPUT }, async (args) => JSON.stringify(args))
  server.tool('fails', { description: 'Fails' }, async () => ({
    content: [{ type: 'text', text: 'no luck' }],
    isError: true,
  }))
  declareAsking(server)
  server.prompt('brief', { description: 'A brief' }, async (_args, ctx) => {
    const { tone } = (await ctx.ask('tone', { message: 'Which tone?', schema: text('tone') })) as {
      tone: string
    }
    return [{ role: 'user', content: { type: 'text', text: `in a ${tone} tone` } }]
  })
  server.resource('desk://report', { name: 'report' }, async (uri, ctx) => {
    const { day } = (await ctx.ask('day', { message: 'Which day?', schema: text('day') })) as { day: string }
    return { uri, text: `report of ${day}` }
  })
  return server
}

function declareAsking(server: Server): void {
  server.tool('order', { description: 'Orders' }, async (_args, ctx) => {
    const answer = await ctx.ask('form', { message: 'What do you order?', schema: EVERY_FIELD })
    return JSON.stringify(answer)
  })
  const target = { type: 'object', properties: { what: { type: 'string' } }, required: ['what'] } as const
  server.tool('delete', { description: 'Deletes', input: target }, async (args, ctx) => {
    const { what } = args as { what: string }
    return (await ctx.confirm('sure', `Delete ${what}?`)) ? `deleted ${what}` : `kept ${what}`
  })
  server.tool('choose', { description: 'Asks once' }, async (_args, ctx) => {
    const outcome = await ctx.elicit('who', { message: 'Who?', schema: text('name') })
    return outcome.action === 'accept' ? `hello ${outcome.content.name}` : `nobody (${outcome.action})`
  })
  server.tool('pair', { description: 'Asks two at once' }, async (_args, ctx) => {
    const ask = (key: string) => ctx.ask(key, { message: `The ${key}?`, schema: text('value') })
    const [left, right] = (await Promise.all([ask('left'), ask('right')])) as { value: string }[]
    return `${left?.value} and ${right?.value}`
  })
  server.tool('two', { description: 'Asks two in turn' }, async (_args, ctx) => {
    const ask = (key: string) => ctx.ask(key, { message: `The ${key}?`, schema: text('value') })
    const first = (await ask('first')) as { value: string }
    const second = (await ask('second')) as { value: string }
    return `${first.value}, then ${second.value}`
  })
  server.tool('connect', { description: 'Sends to a page' }, async (_args, ctx) => {
    await ctx.visit('page', { message: 'Connect your account', url: 'https://example.com/connect?x=1' })
    return 'visited'
  })
  server.tool('slow', { description: 'Reports progress', input: { type: 'object' } }, async (_args, ctx) => {
    for (const step of [1, 2, 3]) {
      ctx.progress(step, 3, `part ${step}`)
      await new Promise((resolve) => setTimeout(resolve, 120))
    }
    return 'finished'
  })
  server.tool('hang', { description: 'Never ends' }, async (_args, ctx) => {
    await new Promise((resolve) => ctx.signal.addEventListener('abort', resolve))
    return 'too late'
  })
  server.tool('where', { description: 'Asks for roots' }, async (_args, ctx) => {
    const roots = await ctx.roots()
    return roots.map(({ name }) => name).join(', ')
  })
  server.tool('think', { description: 'Asks a model' }, async (_args, ctx) => {
    const content = { type: 'text', text: 'An idea?' }
    const reply = await ctx.sample('idea', { messages: [{ role: 'user', content }], maxTokens: 10 })
    return JSON.stringify(reply.content)
  })
  server.tool('login', { description: 'Asks for what it must not' }, async (_args, ctx) => {
    const question = { message: 'Log in', schema: text('password'), allowSecretLike: 'a test' }
    return JSON.stringify(await ctx.ask('login', question))
  })
  const seats = {
    type: 'object',
    properties: { seat: { enum: ['window', 'aisle'] } },
    required: ['seat'],
  } as const
  server.tool('seat', { description: 'Asks for one choice' }, async (_args, ctx) => {
    const { seat } = (await ctx.ask('seat', { message: 'Which seat?', schema: seats })) as { seat: string }
    return `seat: ${seat}`
  })
  const trip = {
    type: 'object',
    properties: { from: { type: 'string' }, to: { type: 'string' } },
    required: ['from', 'to'],
  } as const
  server.tool('trip', { description: 'Asks for two texts' }, async (_args, ctx) => {
    const { from, to } = (await ctx.ask('trip', { message: 'Where?', schema: trip })) as Record<
      string,
      string
    >
    return `${from} to ${to}`
  })
  server.tool('approve', { description: 'Asks without fields' }, async (_args, ctx) => {
    const answer = ctx.inputResponses?.ok as { action?: string } | undefined
    if (answer !== undefined) return `answer: ${answer.action}`
    const requestedSchema = { type: 'object', properties: {} }
    const params = { mode: 'form', message: 'Go ahead?', requestedSchema } as const
    return inputRequired({ inputRequests: { ok: { method: 'elicitation/create', params } } })
  })
}

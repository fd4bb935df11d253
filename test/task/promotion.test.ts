/**
 * A call that began in rounds and continues as a task (D9): nothing from the rounds is lost.
 */

import {
  type Context,
  createServer,
  inputRequired,
  type LogEvent,
  type Server,
  type ServerOptions,
} from 'rondo'
import { afterEach, describe, expect, it } from 'vitest'
import { z } from 'zod'
import { createMemoryStore } from '../../packages/rondo/src/store/memory/store.ts'
import { until } from '../support/store/store-harness.ts'
import { follow, send, settled } from '../support/task-client.ts'

const keys = 'k:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE='
const ROUNDS_ONLY = { capabilities: { elicitation: {} } }
const servers: Server[] = []
const accept = (content: object) => ({ action: 'accept', content })
const age = z.object({ age: z.int().min(18) })
/** The text before a question that is asked again. */
const WRONG = 'at least 18. How old?'
const name = z.object({ name: z.string() })

afterEach(async () => {
  await Promise.all(servers.splice(0).map((server) => server.close()))
})

function start(options: Partial<ServerOptions> = {}): Server {
  const server = createServer({
    name: 'promotion',
    version: '1',
    keys,
    log: 'off',
    store: createMemoryStore(),
    ...options,
  })
  server.tool('greet', { task: 'auto' }, async (_args, ctx) => {
    const { name: who } = await ctx.ask('who', { message: 'Who?', schema: name })
    const { age: years } = await ctx.ask('age', { message: 'How old?', schema: age })
    return `${who}, ${years}`
  })
  server.tool('by-hand', { task: 'auto' }, (_args, ctx) => {
    const elicit = (message: string, field: string) => ({
      method: 'elicitation/create' as const,
      params: {
        mode: 'form' as const,
        message,
        requestedSchema: { type: 'object' as const, properties: { [field]: { type: 'string' as const } } },
      },
    })
    if (ctx.requestState === undefined)
      return inputRequired({ inputRequests: { who: elicit('Who?', 'name') }, requestState: 'asked who' })
    return `${ctx.requestState}: ${JSON.stringify(ctx.inputResponses)}`
  })
  servers.push(server)
  return server
}

async function begin(server: Server, tool: string): Promise<string> {
  const { result } = await send(server, 'tools/call', { name: tool }, ROUNDS_ONLY)
  expect(result?.resultType).toBe('input_required')
  return String(result?.requestState)
}

async function promote(server: Server, params: Record<string, unknown>): Promise<string> {
  const { result, error } = await send(server, 'tools/call', params)
  if (result?.resultType !== 'task') throw new Error(`no task: ${JSON.stringify(result ?? error)}`)
  return String(result.taskId)
}

describe('the request that turns a call into a task', () => {
  it('D9 B13 may carry answers, which are not asked for again', async () => {
    const server = start()
    const requestState = await begin(server, 'greet')
    const inputResponses = { who: accept({ name: 'Ada' }) }
    const taskId = await promote(server, { name: 'greet', requestState, inputResponses })
    const asking = await settled(server, taskId)
    expect(Object.keys(asking.inputRequests as object)).toEqual(['age'])
    const ended = await follow(server, taskId, { age: { age: 36 } })
    expect(ended).toMatchObject({ result: { content: [{ text: 'Ada, 36' }] } })
  })

  it('D9 B17 may carry an invalid answer: the task says what was wrong', async () => {
    const server = start()
    const requestState = await begin(server, 'greet')
    const inputResponses = { who: accept({ name: 'Ada' }), age: accept({ age: 3 }) }
    const first = await send(
      server,
      'tools/call',
      { name: 'greet', requestState, inputResponses },
      ROUNDS_ONLY,
    )
    const second = await send(
      server,
      'tools/call',
      {
        name: 'greet',
        requestState: first.result?.requestState,
        inputResponses: { age: accept({ age: 4 }) },
      },
      ROUNDS_ONLY,
    )
    expect(JSON.stringify(second.result?.inputRequests)).toContain(WRONG)
    const taskId = await promote(server, {
      name: 'greet',
      requestState: second.result?.requestState,
      inputResponses: {},
    })
    const asking = await settled(server, taskId)
    expect(JSON.stringify(asking.inputRequests)).toContain(WRONG)
  })

  it('D9 carries state and answers of the manual form', async () => {
    const server = start()
    const requestState = await begin(server, 'by-hand')
    const inputResponses = { who: accept({ name: 'Ada' }), other: accept({}) }
    const taskId = await promote(server, { name: 'by-hand', requestState, inputResponses })
    const text = `asked who: ${JSON.stringify({ who: inputResponses.who })}`
    expect(await settled(server, taskId)).toMatchObject({ result: { content: [{ text }] } })
  })

  it.each([
    'in rounds',
    'as a task from its second request on',
    'as a task that the handler begins',
  ] as const)(
    'R3 D9 keeps the answers of the manual form while the handler asks something else, %s',
    async (how) => {
      const server = start()
      const form = { type: 'object' as const, properties: { name: { type: 'string' as const } } }
      const who = {
        method: 'elicitation/create' as const,
        params: { mode: 'form' as const, message: 'Who?', requestedSchema: form },
      }
      server.tool('both', { ...(how.endsWith('on') && { task: 'auto' }) }, async (_args, ctx) => {
        if (ctx.requestState === undefined)
          return inputRequired({ inputRequests: { who }, requestState: 'asked who' })
        if (how.endsWith('begins')) await ctx.background()
        const isSure = await ctx.confirm('sure', 'Sure?')
        return `${isSure} ${JSON.stringify(ctx.inputResponses?.who)}`
      })
      const given = accept({ name: 'Ada' })
      const text = `true ${JSON.stringify(given)}`
      const answered = {
        name: 'both',
        requestState: await begin(server, 'both'),
        inputResponses: { who: given },
      }
      if (how !== 'in rounds') {
        const taskId = await promote(server, answered)
        expect(await follow(server, taskId, { sure: { confirm: true } })).toMatchObject({
          result: { content: [{ text }] },
        })
        return
      }
      const { result } = await send(server, 'tools/call', answered, ROUNDS_ONLY)
      expect(Object.keys(result?.inputRequests as object)).toEqual(['sure'])
      const { requestState } = result as { requestState: string }
      const confirmed = { name: 'both', requestState, inputResponses: { sure: accept({ confirm: true }) } }
      expect((await send(server, 'tools/call', confirmed, ROUNDS_ONLY)).result).toMatchObject({
        content: [{ text }],
      })
    },
  )

  it('R3 R10 may be the first one and carry unsolicited responses', async () => {
    const server = start()
    const inputResponses = { who: accept({ name: 'Ada' }), age: accept({ age: 36 }) }
    const rounds = await send(server, 'tools/call', { name: 'greet', inputResponses }, ROUNDS_ONLY)
    expect(rounds.result).toMatchObject({ content: [{ text: 'Ada, 36' }] })
    const taskId = await promote(server, { name: 'greet', inputResponses })
    expect(await settled(server, taskId)).toMatchObject({ result: { content: rounds.result?.content } })
  })
})

it('D9 B17 the task has the problem of the last answer if the call has used up its rounds', async () => {
  const server = start({ limits: { promoteRounds: 2 } })
  server.tool('rounds', {}, async (_args, ctx) => {
    const { age: years } = await ctx.ask('age', { message: 'How old?', schema: age })
    return `${years}`
  })
  const first = await send(server, 'tools/call', { name: 'rounds' })
  const taskId = await promote(server, {
    name: 'rounds',
    requestState: first.result?.requestState,
    inputResponses: { age: accept({ age: 3 }) },
  })
  const asking = await settled(server, taskId)
  expect(JSON.stringify(asking.inputRequests)).toContain(WRONG)
})

it('D9 a call creates no task if its client has disconnected: nobody would know the id', async () => {
  const store = createMemoryStore()
  const logged: LogEvent[] = []
  const server = start({ store, limits: { promoteRounds: 1 }, log: (event) => logged.push(event) })
  const client = new AbortController()
  server.tool('slow', {}, async (_args, ctx) => {
    await ctx.step('look', () => client.abort())
    const { age: years } = await ctx.ask('age', { message: 'How old?', schema: age })
    return `${years}`
  })
  const leaving = {
    fetch: (request: Request) => server.fetch(new Request(request, { signal: client.signal })),
  }
  send(leaving, 'tools/call', { name: 'slow' }).catch(() => {})
  await until('the end of the round', () => logged.find(({ event }) => event === 'round'))
  expect(await store.tasks.list({})).toEqual([])
})

it('T18 a call continues in rounds, as long as there are any, for a caller with too many open tasks', async () => {
  const server = start({ limits: { promoteRounds: 2 }, tasks: { maxOpen: 1 } })
  await promote(server, { name: 'greet' })
  server.tool('rounds', {}, async (_args, ctx) => {
    const { name: who } = await ctx.ask('who', { message: 'Who?', schema: name })
    const { age: years } = await ctx.ask('age', { message: 'How old?', schema: age })
    return `${who}, ${years}`
  })
  const answers = [undefined, { who: accept({ name: 'Ada' }) }, { age: accept({ age: 36 }) }]
  let last: Awaited<ReturnType<typeof send>> = {}
  for (const inputResponses of answers) {
    const requestState = last.result?.requestState
    last = await send(server, 'tools/call', { name: 'rounds', requestState, inputResponses })
  }
  expect(last.result).toMatchObject({ resultType: 'complete', content: [{ text: 'Ada, 36' }] })
  expect((await send(server, 'tools/call', { name: 'greet' })).error?.code).toBe(-32000)
})

it('a tool with task: never becomes no task, whatever its handler does', async () => {
  const server = start({ limits: { promoteRounds: 1 } })
  const ask = async (_args: unknown, ctx: Context): Promise<string> => {
    await ctx.background()
    const { name: who } = await ctx.ask('who', { message: 'Who?', schema: name })
    return who
  }
  server.tool('late', {}, ask)
  server.tool('never', { task: 'never' }, ask)
  expect((await send(server, 'tools/call', { name: 'late' })).result).toMatchObject({ resultType: 'task' })
  const first = await send(server, 'tools/call', { name: 'never' })
  expect(first.result).toMatchObject({ resultType: 'input_required' })
  const { result } = await send(server, 'tools/call', {
    name: 'never',
    requestState: first.result?.requestState,
    inputResponses: { who: accept({ name: 'Ada' }) },
  })
  expect(result).toMatchObject({ resultType: 'complete', content: [{ text: 'Ada' }] })
})

/**
 * One handler whose effects can be undone, under every carrier: after a No, after a failure, and after a success. The result, the
 * order, the effect keys and the undo keys are the same everywhere (R10).
 */

import { type Context, createServer, Fatal, type Server, type ServerOptions, ToolError } from 'rondo'
import { connect } from 'rondo/client'
import { createBench } from 'rondo/testing'
import { afterEach, describe, expect, it } from 'vitest'
import { createMemoryStore } from '../../packages/rondo/src/store/memory/store.ts'
import type { OnceAttempt, OnceStore } from '../../packages/rondo/src/store/store.ts'
import { connectOlder } from '../support/older-client.ts'
import { send, settled } from '../support/task-client.ts'
import { connectTurns } from '../support/turns-client.ts'

const keys = 'k:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE='
const closing: (() => Promise<unknown>)[] = []
afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close()
})

const randomId = () => 'the-same-in-every-carrier'

type Ending = 'yes' | 'no' | 'fails'

interface Ran {
  readonly text: string
  /** Each effect and each undo, in order, with its key. */
  readonly happened: readonly string[]
}

function declare(server: Server, ending: Ending, happened: string[]): Server {
  server.tool('trip', { taskPollMs: 20 }, async (_args, ctx) => {
    const book = (room: string) =>
      ctx.effect(
        room,
        ({ key }) => {
          happened.push(`${room} ${key}`)
          return { room }
        },
        {
          undo: (result, { key, effectKey, ran }) =>
            void happened.push(`undo ${result?.room} ${ran} ${key} ${effectKey}`),
        },
      )
    await book('one')
    await book('two')
    const sure = await ctx.confirm('sure', 'Book both?')
    if (ending === 'fails') throw new ToolError('Sold out.')
    if (sure) return 'Booked.'
    const { undone } = await ctx.undo()
    return `Released ${undone.join(' ')}.`
  })
  return server
}

function start(ending: Ending, happened: string[], options: Partial<ServerOptions> = {}): Server {
  const server = createServer({
    name: 'undo',
    version: '1',
    keys,
    log: 'off',
    store: createMemoryStore(),
    randomId,
    ...options,
  })
  closing.push(() => server.close())
  return declare(server, ending, happened)
}

const yes = (ending: Ending) => ({ action: 'accept', content: { confirm: ending !== 'no' } }) as const

async function byToken(ending: Ending): Promise<Ran> {
  const happened: string[] = []
  const bench = createBench((options) =>
    declare(createServer({ name: 'undo', version: '1', ...options, randomId }), ending, happened),
  )
  const ended = await bench.tool('trip').run({ sure: { confirm: ending !== 'no' } })
  return { text: (ended as { text: string }).text, happened }
}

async function asTask(ending: Ending): Promise<Ran> {
  const happened: string[] = []
  const server = start(ending, happened)
  const follow = { name: 'trip', arguments: {} }
  let { result } = await send(server, 'tools/call', follow)
  while (result?.resultType === 'input_required') {
    const { requestState, inputRequests } = result as { requestState: string; inputRequests?: object }
    const inputResponses = inputRequests && { sure: yes(ending) }
    result = (
      await send(server, 'tools/call', { ...follow, requestState, ...(inputResponses && { inputResponses }) })
    ).result
  }
  return { text: textOf(result), happened }
}

async function asDeclaredTask(ending: Ending): Promise<Ran> {
  const happened: string[] = []
  const server = createServer({
    name: 'undo',
    version: '1',
    keys,
    log: 'off',
    store: createMemoryStore(),
    randomId,
  })
  closing.push(() => server.close())
  const tool = server.tool.bind(server)
  server.tool = ((name: string, definition: object, handler: never) =>
    tool(name, { ...definition, task: 'always' }, handler)) as never
  declare(server, ending, happened)
  const { result } = await send(server, 'tools/call', { name: 'trip', arguments: {} })
  const taskId = String(result?.taskId)
  await settled(server, taskId)
  await send(server, 'tasks/update', { taskId, inputResponses: { sure: yes(ending) } })
  for (let i = 0; i < 5_000; i++) {
    const task = await settled(server, taskId)
    if (task.status !== 'input_required') return { text: textOf(task.result), happened }
    await new Promise((resolve) => setTimeout(resolve, 2))
  }
  throw new Error('The task did not end')
}

function textOf(result: unknown): string {
  return (result as { content: { text: string }[] }).content.map(({ text }) => text).join('\n')
}

const byClient =
  (mode: '2025-11-25' | 'DRAFT-2026-v1') =>
  async (ending: Ending): Promise<Ran> => {
    const happened: string[] = []
    const server = start(ending, happened, { turns: false })
    const { url } = await server.listen({ port: 0, signals: false })
    const client = await connect(url, { mode, answers: { elicitation: async () => yes(ending) } })
    closing.push(() => client.close())
    return { text: textOf(await client.callTool('trip', {}, { onTask: () => {} })), happened }
  }

async function byPush(ending: Ending): Promise<Ran> {
  const happened: string[] = []
  const { url } = await start(ending, happened).listen({ port: 0, signals: false })
  const client = await connectOlder(url, {
    capabilities: { elicitation: { form: {} } },
    answer: () => yes(ending),
  })
  const { result } = await client.call('tools/call', { name: 'trip', arguments: {} })
  return { text: textOf(result), happened }
}

async function inTurns(ending: Ending): Promise<Ran> {
  const happened: string[] = []
  const server = start(ending, happened)
  const client = await connectTurns((request) => server.fetch(request), 'http://127.0.0.1/mcp', {})
  let got = await client.request('tools/call', { name: 'trip', arguments: {} })
  for (let i = 0; got.kind === 'turn' && i < 10; i++)
    got = await client.answer(
      got,
      got.requests.map(({ method }) => (method === 'ping' ? {} : yes(ending))),
    )
  return { text: textOf((got as unknown as { message: { result: unknown } }).message.result), happened }
}

const CARRIERS: [string, (ending: Ending) => Promise<Ran>][] = [
  ['rounds of a client that follows tasks', asTask],
  ['a task', asDeclaredTask],
  ['a session of 2025-11-25', byClient('2025-11-25')],
  ['rounds of DRAFT-2026-v1', byClient('DRAFT-2026-v1')],
  ['push', byPush],
  ['turns', inTurns],
]

describe.each(CARRIERS)('effects that can be undone under %s', (_name, run) => {
  it('R10 P20 M1 are undone after a No, with the result and the keys of the rounds', async () => {
    const ran = await run('no')
    expect(ran).toEqual(await byToken('no'))
    expect(ran.text).toBe('Released two one.')
    expect(ran.happened.map((line) => line.split(' ').slice(0, 2).join(' '))).toEqual([
      expect.stringMatching(/^one /),
      expect.stringMatching(/^two /),
      'undo two',
      'undo one',
    ])
  })

  it('R10 P20 M1 are undone after a failure, with the result and the keys of the rounds', async () => {
    const ran = await run('fails')
    expect(ran).toEqual(await byToken('fails'))
    expect(ran.text).toBe('Sold out.\nUndone: two, one.')
    expect(ran.happened).toHaveLength(4)
  })

  it('R10 P20 M1 stay after a success, with the result and the keys of the rounds', async () => {
    const ran = await run('yes')
    expect(ran).toEqual(await byToken('yes'))
    expect(ran.happened).toHaveLength(2)
  })
})

describe('a round with an effect that can be undone comes again, because its reply was lost', () => {
  /** Calls a single-use tool with a store that loses the last reply and removes no record, and sends the last request again. */
  async function callTwice(
    ends: (ctx: Context) => unknown,
  ): Promise<{ replies: unknown[]; happened: string[] }> {
    const happened: string[] = []
    const memory = createMemoryStore()
    let isLost = false
    let claimed: OnceAttempt | undefined
    const once: OnceStore = {
      ...memory.once,
      claim(slot, attempt) {
        if (slot.digest !== 'effect') claimed = attempt
        return memory.once.claim(slot, attempt)
      },
      async settle(slot, response) {
        if (slot.digest === 'effect' || !happened.includes('end') || isLost || !claimed)
          return memory.once.settle(slot, response)
        isLost = true
        // As if so much time had passed that its process counts as dead.
        await memory.once.renew(slot, { ...claimed, holdMs: 0 })
        throw new Error('The connection was lost')
      },
    }
    const remove = () => Promise.reject(new Error('The connection was lost'))
    const store = { ...memory, once, records: memory.records && { ...memory.records, remove } }
    const server = createServer({ name: 'undo', version: '1', keys, log: 'off', store })
    closing.push(() => server.close())
    server.tool('trip', { once: true }, async (_args, ctx) => {
      await ctx.confirm('sure', 'Book it?')
      const undo = () => void happened.push('release')
      await ctx.effect('room', () => void happened.push('reserve'), { undo })
      happened.push('end')
      return (await ends(ctx)) as string
    })
    const replies: unknown[] = []
    let params: Record<string, unknown> = { name: 'trip', arguments: {} }
    const capabilities = { elicitation: { form: {} } }
    for (let round = 0; round < 10 && !(isLost && replies.length > 1); round++) {
      const { result, error } = await send(server, 'tools/call', params, { capabilities })
      if (result?.resultType !== 'input_required') replies.push(result ?? error)
      else {
        const { requestState, inputRequests } = result as { requestState: string; inputRequests?: object }
        const answers = inputRequests && { inputResponses: { sure: yes('yes') } }
        params = { name: 'trip', arguments: {}, requestState, ...answers }
      }
    }
    return { replies, happened }
  }

  it('M1 a failure: nothing is reserved again, and the caller learns what was undone', async () => {
    const { replies, happened } = await callTwice(() => {
      throw new ToolError('Sold out.')
    })
    expect(replies).toMatchObject([
      { code: -32603 },
      { code: -32602, data: { undone: ['room'], notUndone: [] } },
    ])
    expect(happened).toEqual(['reserve', 'end', 'release'])
  })

  it('M1 a success: it ends well again, also if its record could not be removed', async () => {
    const { replies, happened } = await callTwice(() => 'Booked.')
    expect(replies).toMatchObject([{ code: -32603 }, { content: [{ text: 'Booked.' }] }])
    expect(happened).toEqual(['reserve', 'end', 'end'])
  })

  it('M1 R7 a success after ctx.undo(): it ends well again, and nothing is reserved again', async () => {
    const { replies, happened } = await callTwice(async (ctx) => {
      await ctx.undo()
      return 'Released.'
    })
    expect(replies).toMatchObject([{ code: -32603 }, { content: [{ text: 'Released.' }] }])
    expect(happened).toEqual(['reserve', 'end', 'release', 'end'])
  })

  it('M1 R7 a success with another effect after ctx.undo(): it ends well again, and that effect stays', async () => {
    const booked: string[] = []
    const { replies, happened } = await callTwice(async (ctx) => {
      await ctx.undo()
      await ctx.effect('tent', () => void booked.push('tent'), { undo: () => void booked.pop() })
      return 'Camping.'
    })
    expect(replies).toMatchObject([{ code: -32603 }, { content: [{ text: 'Camping.' }] }])
    expect(happened).toEqual(['reserve', 'end', 'release', 'end'])
    expect(booked).toEqual(['tent'])
  })

  it('M1 R7 a success after ctx.undo() that failed: it ends well again, and a worker undoes what is left', async () => {
    const booked: string[] = []
    let tries = 0
    const undoTent = () => {
      tries += 1
      if (tries === 1) throw new Fatal('The camp is closed')
      booked.splice(booked.indexOf('tent'), 1)
    }
    const { replies } = await callTwice(async (ctx) => {
      await ctx.effect('tent', () => void booked.push('tent'), { undo: undoTent })
      const { failed } = await ctx.undo()
      await ctx.effect('van', () => void booked.push('van'), { undo: () => void booked.pop() })
      return `Left ${failed}.`
    })
    expect(replies).toMatchObject([{ code: -32603 }, { content: [{ text: 'Left tent.' }] }])
    await expect.poll(() => booked).toEqual(['van'])
  })

  it('M1 a success after a step that would fail now: it ends well again', async () => {
    let checks = 0
    const { replies } = await callTwice(async (ctx) => {
      await ctx.step('check', () => {
        checks += 1
        if (checks > 1) throw new ToolError('Sold out.')
      })
      return 'Booked.'
    })
    expect(replies).toMatchObject([{ code: -32603 }, { content: [{ text: 'Booked.' }] }])
  })

  it('M1 I5 the task that it began: it finds that task, although an effect has recorded the answer since', async () => {
    const happened: string[] = []
    const memory = createMemoryStore()
    let claimed: OnceAttempt | undefined
    let isLost = false
    const once: OnceStore = {
      ...memory.once,
      claim(slot, attempt) {
        claimed = attempt
        return memory.once.claim(slot, attempt)
      },
      async settle(slot, response) {
        if (!happened.includes('car') || isLost || !claimed) return memory.once.settle(slot, response)
        isLost = true
        await memory.once.renew(slot, { ...claimed, holdMs: 0 })
        throw new Error('The connection was lost')
      },
    }
    const server = createServer({ name: 'undo', version: '1', keys, log: 'off', store: { ...memory, once } })
    closing.push(() => server.close())
    server.tool('trip', {}, async (_args, ctx) => {
      const undo = () => void happened.push('release')
      await ctx.effect('room', () => void happened.push('room'), { undo })
      await ctx.confirm('sure', 'A car too?')
      await ctx.effect('car', () => void happened.push('car'), { undo })
      await ctx.background()
      await ctx.effect('mail', () => void happened.push('mail'))
      return 'Booked.'
    })
    let params: Record<string, unknown> = { name: 'trip', arguments: {} }
    let taskId: string | undefined
    for (let round = 0; round < 10 && taskId === undefined; round++) {
      const { result } = await send(server, 'tools/call', params)
      if (result?.resultType === 'task') taskId = String(result.taskId)
      if (result?.resultType !== 'input_required') continue
      const { requestState, inputRequests } = result as { requestState: string; inputRequests?: object }
      const answers = inputRequests && { inputResponses: { sure: yes('yes') } }
      params = { name: 'trip', arguments: {}, requestState, ...answers }
    }
    expect(textOf((await settled(server, String(taskId))).result)).toBe('Booked.')
    expect(happened).toEqual(['room', 'car', 'mail'])
  })
})

/** A single-use tool with single-use effects, before and after its question: the same under every carrier (B8, R10). */

import { createServer, generateKey, type ServerOptions } from 'rondo'
import { type ConnectOptions, connect, type FlowOptions } from 'rondo/client'
import { afterEach, describe, expect, it } from 'vitest'
import { createMemoryStore } from '../../packages/rondo/src/store/memory/store.ts'
import { connectTurns } from '../support/turns-client.ts'

const closing: (() => Promise<void>)[] = []
afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close()
})

async function serve(ran: string[], options: Partial<ServerOptions>): Promise<string> {
  const store = createMemoryStore()
  const server = createServer({
    name: 'once',
    version: '1.0.0',
    keys: generateKey(),
    log: 'off',
    store,
    ...options,
  })
  server.tool('pay', { once: true, task: 'auto', taskPollMs: 50 }, async (_args, ctx) => {
    const once = { once: true }
    const reserved = await ctx.effect('reserve', () => `reserve ${ran.push('reserve')}`, once)
    if (!(await ctx.confirm('sure', 'Pay?'))) return 'kept'
    return `${reserved}, ${await ctx.effect('pay', () => `pay ${ran.push('pay')}`, once)}`
  })
  closing.push(() => server.close())
  return (await server.listen({ port: 0, signals: false })).url
}

const DONE = { content: [{ text: 'reserve 1, pay 2' }] }
const answers: ConnectOptions['answers'] = {
  elicitation: () => ({ action: 'accept', content: { confirm: true } }),
}
const pushes = { turns: false } as const
const asTask = { taskTtlMs: 60_000 }

const WAYS: [string, ConnectOptions, Partial<ServerOptions>, FlowOptions][] = [
  ['a token', { tasks: false }, {}, {}],
  ['a task', { mode: '2026-07-28' }, {}, {}],
  ['push', { mode: '2025-11-25' }, pushes, {}],
  ['push over 2025-06-18', { mode: '2025-06-18' }, pushes, {}],
  ['turns', { mode: '2025-11-25' }, {}, {}],
  ['a token of the draft', { mode: 'DRAFT-2026-v1' }, {}, {}],
  ['a task of the draft', { mode: 'DRAFT-2026-v1' }, {}, asTask],
  ['a task of 2025-11-25', { mode: '2025-11-25' }, pushes, asTask],
]

describe('single use', () => {
  it.each(WAYS)('B8 R10 works under %s', async (_name, client, server, call) => {
    const ran: string[] = []
    const connected = await connect(await serve(ran, server), { answers, ...client })
    closing.push(() => connected.close())
    expect(await connected.callTool('pay', {}, call)).toMatchObject(DONE)
    expect(ran).toEqual(['reserve', 'pay'])
  })

  it('B8 R10 F2 works in turns for a client without states, on the instance that asked', async () => {
    const ran: string[] = []
    const url = await serve(ran, {})
    const client = await connectTurns(fetch, url, { state: false })
    const turn = await client.request('tools/call', { name: 'pay' })
    expect(ran).toEqual(['reserve'])
    const yes = [{ action: 'accept', content: { confirm: true } }]
    const done = await client.answer(turn, yes)
    expect(done).toMatchObject({ message: { result: DONE } })
    expect(await client.answer(turn, yes)).toMatchObject({ message: { result: DONE } })
    expect(ran).toEqual(['reserve', 'pay'])
  })
})

/** A tool that runs one at a time has the same result and the same effect keys under every carrier, and the keys that it would have without the limit (M3, R10). */

import { createServer, generateKey, type ServerOptions } from 'rondo'
import { type ConnectOptions, connect, type FlowOptions } from 'rondo/client'
import { afterEach, expect, it } from 'vitest'
import { createMemoryStore } from '../../packages/rondo/src/store/memory/store.ts'

const closing: (() => Promise<void>)[] = []
afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close()
})

const keys = generateKey()

async function serve(ran: string[], limited: boolean, options: Partial<ServerOptions>): Promise<string> {
  const server = createServer({
    name: 'one',
    version: '1.0.0',
    keys,
    log: 'off',
    store: createMemoryStore(),
    ...options,
  })
  const concurrency = limited ? { key: () => 'desk', limit: 1 } : undefined
  server.tool('pay', { concurrency, task: 'auto', taskPollMs: 50 }, async (_args, ctx) => {
    await ctx.effect('reserve', ({ key }) => void ran.push(`reserve ${key}`))
    if (!(await ctx.confirm('sure', 'Pay?'))) return 'kept'
    await ctx.effect('pay', ({ key }) => void ran.push(`pay ${key}`))
    return 'paid'
  })
  closing.push(() => server.close())
  return (await server.listen({ port: 0, signals: false })).url
}

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

const PAID = { content: [{ text: 'paid' }] }
/** One flow, whose keys can be compared. */
const same = { randomId: () => 'the-same-in-every-carrier' }

it.each(WAYS)(
  'M3 R10 one at a time has the same result and keys under %s',
  async (_name, client, server, call) => {
    const pay = async (limited: boolean, how: ConnectOptions, options: Partial<ServerOptions>, times = 1) => {
      const ran: string[] = []
      const connected = await connect(await serve(ran, limited, options), { answers, ...how })
      closing.push(() => connected.close())
      for (let i = 0; i < times; i++)
        expect(await connected.callTool('pay', {}, limited ? call : {})).toMatchObject(PAID)
      return ran
    }
    const reference = await pay(false, { tasks: false }, same)
    expect(reference).toHaveLength(2)
    expect(await pay(true, client, { ...server, ...same })).toEqual(reference)
    expect(await pay(true, client, server, 2)).toHaveLength(4)
  },
)

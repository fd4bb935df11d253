/**
 * One handler with a question that is open for a while, under every carrier: answered in time, answered too late, and
 * answered at about the moment when its time is up. The result and the effect keys are the same everywhere (R10).
 */

import { createServer, type Server, type ServerOptions } from 'rondo'
import { connect } from 'rondo/client'
import { createBench } from 'rondo/testing'
import { afterEach, describe, expect, it } from 'vitest'
import { z } from 'zod'
import { createMemoryStore } from '../../packages/rondo/src/store/memory/store.ts'
import { connectOlder } from '../support/older-client.ts'
import { send, settled } from '../support/task-client.ts'
import { connectTurns } from '../support/turns-client.ts'

const keys = 'k:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE='
const randomId = () => 'the-same-in-every-carrier'
const closing: (() => Promise<unknown>)[] = []
afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close()
})

const value = z.object({ value: z.string() })
const accept = { action: 'accept' as const, content: { value: 'x' } }
const ELICITATION = { elicitation: { form: {} } }
const sleep = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms))

interface Timing {
  readonly within: number
  /** The time between a question and its answer. */
  readonly after: number
}

interface Ran {
  readonly text: string
  readonly effects: readonly string[]
}

function declare(server: Server, { within }: Timing, effects: string[]): Server {
  server.tool('ask', { task: 'auto', taskPollMs: 20 }, async (_args, ctx) => {
    const [limited, other] = await Promise.all([
      ctx.elicit('limited', { message: 'Limited?', schema: value, within }),
      ctx.elicit('other', { message: 'Other?', schema: value }),
    ])
    await ctx.effect('act', ({ key }) => void effects.push(key))
    return `${limited.action} ${other.action}`
  })
  return server
}

function start(timing: Timing, effects: string[], options: Partial<ServerOptions> = {}): Server {
  const server = createServer({ name: 'time', version: '1', keys, log: 'off', randomId, ...options })
  closing.push(() => server.close())
  return declare(server, timing, effects)
}

async function byToken({ within, after }: Timing): Promise<Ran> {
  const effects: string[] = []
  const bench = createBench((options) =>
    declare(createServer({ name: 'time', version: '1', ...options, randomId }), { within, after }, effects),
  )
  const call = bench.tool('ask')
  await call.next()
  await bench.advance(after)
  const ended = await call.otherInstance().next({ limited: { value: 'x' }, other: { value: 'x' } })
  return { text: (ended as { text: string }).text, effects }
}

/** The turn that closes a question may show the other one for a moment longer: what was acknowledged is taken after it. */
async function untilEnded(server: Server, taskId: string): Promise<Record<string, unknown>> {
  for (let i = 0; i < 30_000; i++) {
    const task = await settled(server, taskId)
    if (task.status !== 'input_required') return task
    await sleep(2)
  }
  throw new Error(`An answer to the task ${taskId} was acknowledged and not taken`)
}

async function asTask(timing: Timing): Promise<Ran> {
  const effects: string[] = []
  const server = start(timing, effects, { store: createMemoryStore() })
  const { result } = await send(server, 'tools/call', { name: 'ask', arguments: {} })
  const taskId = String(result?.taskId)
  await settled(server, taskId)
  await sleep(timing.after)
  const responses = { limited: accept, other: accept }
  const late = await send(server, 'tasks/update', { taskId, inputResponses: responses })
  expect(late.error).toBeUndefined()
  const ended = await untilEnded(server, taskId)
  const [{ text }] = (ended.result as { content: [{ text: string }] }).content
  return { text, effects }
}

/** Our client, whose user takes that long to answer the limited question, and longer for the other. */
const byClient =
  (mode: '2025-11-25' | 'DRAFT-2026-v1') =>
  async (timing: Timing): Promise<Ran> => {
    const effects: string[] = []
    const server = start(timing, effects, { store: createMemoryStore(), turns: false })
    const { url } = await server.listen({ port: 0, signals: false })
    const client = await connect(url, {
      mode,
      answers: {
        async elicitation({ message }) {
          await sleep(message === 'Limited?' ? timing.after : timing.after + 50)
          return accept
        },
      },
    })
    closing.push(() => client.close())
    const { content } = await client.callTool('ask', {}, { onTask: () => {} })
    return { text: String((content[0] as { text?: string }).text), effects }
  }

async function byPush(timing: Timing): Promise<Ran> {
  const effects: string[] = []
  const { url } = await start(timing, effects).listen({ port: 0, signals: false })
  const client = await connectOlder(url, {
    capabilities: ELICITATION,
    async answer({ params }) {
      const isLimited = (params as { message?: unknown }).message === 'Limited?'
      await sleep(isLimited ? timing.after : timing.after + 50)
      return accept
    },
  })
  const { result } = await client.call('tools/call', { name: 'ask', arguments: {} })
  return { text: (result as { content: [{ text: string }] }).content[0].text, effects }
}

async function inTurns({ within, after }: Timing): Promise<Ran> {
  const effects: string[] = []
  let now = Date.UTC(2026, 6, 28)
  const make = () => start({ within, after }, effects, { now: () => now })
  const client = await connectTurns((request) => make().fetch(request), 'http://127.0.0.1/mcp', {})
  const turn = await client.request('tools/call', { name: 'ask', arguments: {} })
  now += after
  const got = await client.answer(turn, [accept, accept])
  const { message } = got as unknown as { message: { result: { content: [{ text: string }] } } }
  return { text: message.result.content[0].text, effects }
}

const CARRIERS: [string, (timing: Timing) => Promise<Ran>][] = [
  ['a task', asTask],
  ['a task of 2025-11-25', byClient('2025-11-25')],
  ['a task of DRAFT-2026-v1', byClient('DRAFT-2026-v1')],
  ['push', byPush],
  ['turns', inTurns],
]

describe.each(CARRIERS)('a question with a time limit under %s', (_name, run) => {
  it('G2 R10 P20 is answered in time, with the result and the effect key of the rounds', async () => {
    const timing = { within: 600_000, after: 1 }
    const ran = await run(timing)
    expect(ran).toEqual(await byToken(timing))
    expect(ran).toMatchObject({ text: 'accept accept', effects: [expect.any(String)] })
  })

  it('G2 R10 P20 is answered too late, with the result and the effect key of the rounds', async () => {
    const timing = { within: 40, after: 200 }
    const ran = await run(timing)
    expect(ran).toEqual(await byToken(timing))
    expect(ran).toMatchObject({ text: 'expired accept', effects: [expect.any(String)] })
  })

  it('G2 R10 is answered at about its time: it counts or it does not, and the effect key says which', async () => {
    const known = [await byToken({ within: 2, after: 1 }), await byToken({ within: 1, after: 2 })]
    expect(new Set(known.map(({ effects: [key] }) => key)).size).toBe(2)
    for (let i = 0; i < 3; i++) expect(known).toContainEqual(await run({ within: 60, after: 55 + 5 * i }))
  })
})

/** Our client follows tasks of the accepted proposal (`DRAFT-2026-v1`), which it requests itself. */

import { createServer, type Server } from 'rondo'
import {
  type ConnectOptions,
  connect,
  type ElicitContent,
  type ElicitResult,
  type FormHandler,
  parsePending,
} from 'rondo/client'
import { afterEach, describe, expect, it } from 'vitest'
import { createMemoryStore } from '../../packages/rondo/src/store/memory/store.ts'
import { abortTask } from '../support/abort-task.ts'

const closers: (() => Promise<void>)[] = []
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close()
})

const keys = 'k:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE='
const text = { type: 'object', properties: { input: { type: 'string' } }, required: ['input'] } as const

function declare(server: Server): void {
  server.tool('echo', { task: 'auto', taskPollMs: 50 }, async (_args, ctx) => {
    const { input } = await ctx.ask('echo_input', { message: 'Echo what?', schema: text })
    return `Echo: ${input}, ${await ctx.confirm('sure', 'Sure?')}`
  })
  server.tool('later', { taskPollMs: 50 }, async (_args, ctx) => {
    const { input } = await ctx.ask('name', { message: 'Name?', schema: text })
    await ctx.background()
    return `Hello ${input}`
  })
  server.tool('only', { task: 'always', taskPollMs: 50 }, () => 'as a task')
  server.tool('waits', { task: 'auto', taskPollMs: 50 }, (_args, ctx) =>
    ctx.step('long', ({ signal }) => new Promise((_, reject) => signal.addEventListener('abort', reject))),
  )
}

const accept = (content: ElicitContent): ElicitResult => ({ action: 'accept', content })
const form: FormHandler = (_params, { key }) => accept(key === 'sure' ? { confirm: true } : { input: 'Hi' })
const answers: ConnectOptions['answers'] = { elicitation: { form } }

async function open(options: ConnectOptions = {}) {
  const server = createServer({ name: 'draft', version: '1', keys, log: 'off', store: createMemoryStore() })
  declare(server)
  const { url } = await server.listen({ port: 0, signals: false })
  closers.push(() => server.close())
  const client = await connect(url, { mode: 'DRAFT-2026-v1', answers, ...options })
  closers.push(() => client.close())
  return client
}

describe('a client in the draft', () => {
  it('D10 requests a task, polls at its interval, answers, and returns the result in one call', async () => {
    const client = await open()
    expect(client.protocolVersion).toBe('DRAFT-2026-v1')
    const seen: string[] = []
    const result = await client.callTool(
      'echo',
      {},
      { taskTtlMs: 60_000, onTask: ({ status }) => void seen.push(status) },
    )
    expect(result).toMatchObject({ content: [{ text: 'Echo: Hi, true' }] })
    expect(seen).toContain('input_required')
    expect(seen.at(-1)).toBe('completed')
  })

  it('D9 D10 answers rounds first and follows the task that they become', async () => {
    const client = await open()
    expect(await client.callTool('later', {}, { taskTtlMs: 60_000 })).toMatchObject({
      content: [{ text: 'Hello Hi' }],
    })
  })

  it('D10 uses rounds if it does not request a task', async () => {
    const client = await open()
    let followed = 0
    const result = await client.callTool('echo', {}, { onTask: () => void followed++ })
    expect(result).toMatchObject({ content: [{ text: 'Echo: Hi, true' }] })
    expect(followed).toBe(0)
  })

  it('D1 D10 requests a task automatically if the tool is listed as one', async () => {
    const client = await open()
    await client.listTools()
    expect(await client.callTool('only')).toMatchObject({ content: [{ text: 'as a task' }] })
  })

  it('D6 D10 asks a question again if its answer was not accepted', async () => {
    let times = 0
    const clumsy: FormHandler = (params, info) => {
      if (info.key === 'sure') return form(params, info)
      times += 1
      return accept(times === 1 ? { wrong: 'x' } : { input: 'Hi' })
    }
    const client = await open({ answers: { elicitation: { form: clumsy } } })
    expect(await client.callTool('echo', {}, { taskTtlMs: 60_000 })).toMatchObject({
      content: [{ text: 'Echo: Hi, true' }],
    })
    expect(times).toBe(2)
  })

  it('D8 D10 cancels the task when the caller aborts', async () => {
    const client = await open()
    const taskId = await abortTask(client, { taskTtlMs: 60_000 })
    expect(await client.task(taskId).get()).toMatchObject({ status: 'cancelled' })
  })

  it('C11 D10 stores a call as JSON and finishes it later; answers that were already delivered have no effect', async () => {
    const client = await open()
    const begun = await client.start({ method: 'tools/call', name: 'echo' }, { taskTtlMs: 60_000 })
    if (begun.status !== 'task') throw new Error(begun.status)
    const asked = await client.resume(begun.pending)
    if (asked.status !== 'input_required') throw new Error(asked.status)
    const echo_input = { action: 'accept', content: { input: 'first' } } as const
    await client.task(begun.pending.task?.taskId ?? '').answer({ echo_input })
    const again = parsePending(JSON.stringify({ ...asked.pending, answers: { echo_input } }))
    expect(await client.finish(again)).toMatchObject({ content: [{ text: 'Echo: first, true' }] })
  })
})

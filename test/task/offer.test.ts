/** Standing questions: open while the handler works on (G5). */

import { createServer, type Server, type ServerOptions } from 'rondo'
import { afterEach, describe, expect, it } from 'vitest'
import { createMemoryStore } from '../../packages/rondo/src/store/memory/store.ts'
import { until } from '../support/store/store-harness.ts'
import { follow, send, settled } from '../support/task-client.ts'

const keys = 'k:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE='
const schema = { type: 'object', properties: { now: { type: 'boolean' } }, required: ['now'] } as const
const question = { message: 'Stop?', schema }
const servers: Server[] = []
afterEach(async () => {
  await Promise.all(servers.splice(0).map((server) => server.close()))
})

interface Yard {
  readonly done: string[]
  step: number
}

function start(yard: Yard, options: Partial<ServerOptions> = {}): Server {
  const server = createServer({
    name: 'yard',
    version: '1',
    keys,
    log: 'off',
    dev: true,
    store: createMemoryStore(),
    ...options,
  })
  server.tool('loop', { task: 'auto' }, async (_args, ctx) => {
    const stop = ctx.offer('stop', question)
    for (let i = 1; i <= 3; i++) {
      await ctx.step(`step:${i}`, () => until('the step', () => yard.step >= i, 60_000).then(() => i))
      const seen = stop.peek()
      yard.done.push(`${i} ${JSON.stringify(seen ?? null)}`)
      if (seen?.action === 'accept') return `stopped after ${i}`
    }
    return 'not stopped'
  })
  server.tool('wait', { task: 'auto' }, async (_args, ctx) => {
    const stop = ctx.offer('stop', question)
    const outcome = await stop
    return JSON.stringify([outcome, stop.peek()])
  })
  server.tool('withdraw', { task: 'auto' }, async (_args, ctx) => {
    const stop = ctx.offer('stop', question)
    await ctx.step('work', () => until('the work', () => yard.step >= 1, 60_000).then(() => 1))
    stop.withdraw()
    const late = await stop
    await ctx.step('more', () => until('more work', () => yard.step >= 2, 60_000).then(() => 2))
    return JSON.stringify([late, stop.peek() ?? null])
  })
  server.tool('beside', { task: 'auto' }, async (_args, ctx) => {
    const stop = ctx.offer('stop', question)
    const { now } = (await ctx.ask('other', question)) as { now: boolean }
    return JSON.stringify([now, stop.peek() ?? null])
  })
  servers.push(server)
  return server
}

const newYard = (): Yard => ({ done: [], step: 0 })
async function begin(server: Server, name: string): Promise<string> {
  const { result } = await send(server, 'tools/call', { name, arguments: {} })
  return String(result?.taskId)
}
const answer = (server: Server, taskId: string, key: string, now = true) =>
  send(server, 'tasks/update', {
    taskId,
    inputResponses: { [key]: { action: 'accept', content: { now } } },
  })
const textOf = (ended: Record<string, unknown>): unknown =>
  (ended.result as { content: { text: string }[] }).content[0]?.text
const YES = { action: 'accept', content: { now: true } }

describe('an offer in a task', () => {
  it('G5 is visible while the handler works, and peek sees the response after the next result', async () => {
    const yard = newYard()
    const server = start(yard)
    const id = await begin(server, 'loop')
    expect(await settled(server, id)).toMatchObject({ inputRequests: { stop: {} } })
    yard.step = 1
    await until('the first step', () => yard.done.length === 1, 60_000)
    await answer(server, id, 'stop')
    // The answer is recorded before the second step ends.
    await until(
      'the answer',
      async () => (await send(server, 'tasks/get', { taskId: id })).result?.status === 'working',
      20_000,
    )
    await until('a moment', () => true)
    yard.step = 2
    const ended = await until(
      'the end',
      async () => {
        const { result } = await send(server, 'tasks/get', { taskId: id })
        if (result?.status === 'completed') return result
        yard.step = 3
        return undefined
      },
      20_000,
    )
    expect(textOf(ended as Record<string, unknown>)).toMatch(/^stopped after [23]$/)
    expect(yard.done[0]).toBe('1 null')
  })

  it('G5 that nobody answers is withdrawn when the handler returns', async () => {
    const yard = { done: [], step: 3 }
    const server = start(yard)
    const id = await begin(server, 'loop')
    const ended = await until(
      'the end',
      async () => {
        const { result } = await send(server, 'tasks/get', { taskId: id })
        return result?.status === 'completed' ? result : undefined
      },
      20_000,
    )
    expect(textOf(ended as Record<string, unknown>)).toBe('not stopped')
    expect(await answer(server, id, 'stop')).toMatchObject({ result: {} })
  })

  it('G5 can be awaited, which parks the task', async () => {
    const store = createMemoryStore()
    const server = start(newYard(), { store })
    const id = await begin(server, 'wait')
    await settled(server, id)
    await until('a parked task', async () => (await store.tasks.stats()).parked === 1, 60_000)
    await answer(server, id, 'stop')
    expect(textOf(await settled(server, id))).toBe(JSON.stringify([YES, YES]))
  })

  it('G5 is closed in the view of the client once it is withdrawn, and a late response has no effect', async () => {
    const yard = newYard()
    const server = start(yard)
    const id = await begin(server, 'withdraw')
    await settled(server, id)
    yard.step = 1
    await until(
      'the withdrawal',
      async () => {
        const { result } = await send(server, 'tasks/get', { taskId: id })
        return result?.status === 'working'
      },
      20_000,
    )
    expect(await answer(server, id, 'stop')).toMatchObject({ result: {} })
    yard.step = 2
    expect(textOf(await settled(server, id))).toBe(JSON.stringify([{ action: 'cancel' }, null]))
  })

  it('R3 has one answer per wording: the one to the new words counts if the turn that showed them ends early', async () => {
    const store = createMemoryStore()
    const yard = newYard()
    const release = (message: string, concurrency = 1): Server => {
      const server = start(yard, { store, dev: false, tasks: { concurrency } })
      server.tool('pack', { task: 'auto' }, async (_args, ctx) => {
        const tip = ctx.offer('tip', { message, schema })
        await ctx.ask('go', question)
        await ctx.step('pack', () => until('the work', () => yard.step >= 1, 60_000).then(() => 1))
        await ctx.step('label', () => 2)
        return JSON.stringify(await tip)
      })
      return server
    }
    const isAsked = (server: Server, taskId: string, ...wanted: string[]) =>
      until(
        wanted.join(),
        async () => {
          const { result } = await send(server, 'tasks/get', { taskId })
          return Object.keys((result?.inputRequests ?? {}) as object).join() === wanted.join()
        },
        20_000,
      )
    const old = release('Tip?')
    const id = await begin(old, 'pack')
    await isAsked(old, id, 'tip', 'go')
    await answer(old, id, 'tip', false)
    await until('a parked task', async () => (await store.tasks.stats()).parked === 1, 60_000)
    await old.close()
    const draining = release('Any tip?')
    await answer(draining, id, 'go')
    await isAsked(draining, id, 'tip~2')
    const closed = draining.close()
    yard.step = 1
    await closed
    await answer(release('Any tip?', 0), id, 'tip~2')
    expect(textOf(await settled(release('Any tip?'), id))).toBe(JSON.stringify(YES))
  })

  it('G5 stays open beside a question, and is seen once that is answered', async () => {
    const store = createMemoryStore()
    const server = start(newYard(), { store })
    const id = await begin(server, 'beside')
    await until(
      'two questions',
      async () => {
        const { result } = await send(server, 'tasks/get', { taskId: id })
        return Object.keys((result?.inputRequests ?? {}) as object).length === 2
      },
      20_000,
    )
    await until('a parked task', async () => (await store.tasks.stats()).parked === 1, 60_000)
    await answer(server, id, 'stop')
    await until('a parked task', async () => (await store.tasks.stats()).parked === 1, 60_000)
    await answer(server, id, 'other', false)
    expect(textOf(await settled(server, id))).toBe(JSON.stringify([false, YES]))
  })
})

it('G5 in rounds an offer is asked when it is awaited, and peek sees nothing', async () => {
  const server = start({ done: [], step: 3 })
  const rounds = { capabilities: { elicitation: {} } }
  const call = { name: 'loop', arguments: {} }
  const plain = await send(server, 'tools/call', call, rounds)
  expect(JSON.stringify(plain.result)).toContain('not stopped')
  const { result } = await send(server, 'tools/call', { name: 'wait', arguments: {} }, rounds)
  expect(result).toMatchObject({ resultType: 'input_required', inputRequests: { stop: {} } })
  const id = await begin(server, 'wait')
  expect(await follow(server, id, { stop: { now: true } })).toMatchObject({ status: 'completed' })
})

/** A client must not be able to end the process, whatever an author forgot (R11). */

import { type ChildProcess, fork } from 'node:child_process'
import { type Context, createServer } from 'rondo'
import { createBench } from 'rondo/testing'
import { afterEach, describe, expect, it } from 'vitest'
import { idle } from '../../packages/rondo/src/lib/clock.ts'
import { processFile } from '../support/process-file.ts'
import { send } from '../support/task-client.ts'

const children: ChildProcess[] = []
afterEach(() => {
  for (const child of children.splice(0)) child.kill('SIGKILL')
})

async function start(...args: string[]) {
  const child = fork(processFile('test/support/faulty-process.ts'), args, { execArgv: [], stdio: 'ignore' })
  children.push(child)
  const warnings: string[] = []
  const faults: string[] = []
  const exited = new Promise<number | null>((resolve) => child.once('exit', resolve))
  const port = await new Promise<number>((resolve) => {
    child.on('message', (message: { port?: number; warning?: string; fault?: string }) => {
      if (message.port !== undefined) resolve(message.port)
      if (message.warning !== undefined) warnings.push(message.warning)
      if (message.fault !== undefined) faults.push(message.fault)
    })
  })
  const server = { fetch: async (request: Request) => fetch(`http://127.0.0.1:${port}/mcp`, request) }
  const call = (name: string, more: object = {}) =>
    send(server, 'tools/call', { name, arguments: {}, ...more })
  return { call, warnings, faults, exited }
}

/** Two questions are open; the client declines the second and leaves the first. */
async function declineSecond({ call }: Awaited<ReturnType<typeof start>>, tool: string) {
  const first = await call(tool)
  expect(Object.keys(first.result?.inputRequests ?? {})).toEqual(['a', 'b'])
  const { requestState } = first.result ?? {}
  return call(tool, { requestState, inputResponses: { b: { action: 'decline' } } })
}

describe('R11 a response to a question that the author has not awaited yet', () => {
  it.each(['unguarded', 'guarded'])('does not end a process that is %s', async (guard) => {
    const server = await start(guard)
    const second = await declineSecond(server, 'ours')
    expect(Object.keys(second.result?.inputRequests ?? {})).toEqual(['a'])
    const third = await server.call('ours', {
      requestState: second.result?.requestState,
      inputResponses: { a: { action: 'accept', content: { value: 'x' } } },
    })
    expect(third.result).toMatchObject({ isError: true, content: [{ text: expect.stringContaining('"b"') }] })
    expect(await server.call('hello')).toHaveProperty('result')
    expect(server.warnings).toEqual([])
  })

  it('a step that failed without being awaited ends the call, not the process', async () => {
    const server = await start('unguarded')
    expect(await server.call('step')).toHaveProperty('error')
    expect(await server.call('hello')).toHaveProperty('result')
  })

  it("a rejection of the author's own promise is logged, and the server keeps serving", async () => {
    const server = await start('guarded')
    await declineSecond(server, 'theirs')
    expect(await server.call('hello')).toHaveProperty('result')
    await expect.poll(() => server.warnings).toEqual([expect.stringContaining('await every promise')])
  })

  it('a listener of ctx.signal that throws is logged, and the server keeps serving', async () => {
    const server = await start('unguarded')
    expect((await server.call('listener')).result).toMatchObject({ resultType: 'input_required' })
    expect(await server.call('hello')).toHaveProperty('result')
    await expect
      .poll(() => [...server.faults].sort())
      .toEqual(['Error: rejected by a listener', 'Error: thrown by a listener', 'Error: thrown by onabort'])
  })

  it('control: ends the process if nothing listens for unhandled rejections', async () => {
    const server = await start('unguarded')
    await declineSecond(server, 'theirs').catch(() => {})
    expect(await server.exited).toBe(1)
  })
})

describe('I2 R11 a call ends, whatever its author does inside a step or a cleanup', () => {
  const QUESTION = { message: 'Say', schema: { type: 'object', properties: {} } }
  const forever = () => new Promise<never>(() => {})
  const handlers: Record<string, (ctx: Context) => unknown> = {
    'an ask inside a step': (ctx) => ctx.step('s', () => ctx.ask('q', QUESTION)),
    'a confirm inside an effect': (ctx) => ctx.effect('e', () => ctx.confirm('q', 'Sure?')),
    'a step inside a step': (ctx) => ctx.step('s', () => ctx.step('t', () => 1)),
    'an effect inside defer': (ctx) => ctx.defer(async () => void (await ctx.effect('e', () => 1))),
    'an ask inside defer': (ctx) => ctx.defer(async () => void (await ctx.ask('q', QUESTION))),
    'a defer inside defer': (ctx) => {
      const again = (): void => ctx.defer(again)
      ctx.defer(again)
    },
    'a defer that never settles': (ctx) => ctx.defer(forever),
  }
  const call = (handler: (ctx: Context) => unknown, maxDeferMs: number) => {
    const bench = createBench((options) => {
      const server = createServer({ name: 'faulty', version: '1', ...options, limits: { maxDeferMs } })
      server.tool('t', {}, async (_args, ctx) => {
        await handler(ctx)
        return 'ok'
      })
      return server
    })
    return { bench, ended: bench.tool('t').run() }
  }

  it.each(Object.entries(handlers))('%s', async (_name, handler) => {
    const { bench, ended } = call(handler, 1)
    expect(await ended).toHaveProperty('kind')
    const codes = bench.events.map((event) => 'error' in event && (event.error as { code?: string }).code)
    expect(codes).toContainEqual(expect.stringMatching(/^(REPLAY_NESTED|LIMIT_DEFER)$/))
  })

  it('control: a cleanup that never settles keeps the call waiting under a distant limit', async () => {
    let over = false
    call(() => {}, 1e9).ended.then(() => {
      over = true
    })
    await expect.poll(() => over).toBe(true)
    over = false
    const { bench, ended } = call((ctx) => ctx.defer(forever), 1e9)
    ended.then(() => {
      over = true
    })
    for (let i = 0; i < 200; i++) await new Promise<void>((resolve) => idle(resolve))
    expect(over).toBe(false)
    expect(bench.events).toEqual([])
  })
})

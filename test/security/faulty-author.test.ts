/** A client must not be able to end the process, whatever an author forgot (R11). */

import { type ChildProcess, fork } from 'node:child_process'
import { afterEach, describe, expect, it } from 'vitest'
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
  const exited = new Promise<number | null>((resolve) => child.once('exit', resolve))
  const port = await new Promise<number>((resolve) => {
    child.on('message', (message: { port?: number; warning?: string }) => {
      if (message.port !== undefined) resolve(message.port)
      if (message.warning !== undefined) warnings.push(message.warning)
    })
  })
  const server = { fetch: async (request: Request) => fetch(`http://127.0.0.1:${port}/mcp`, request) }
  const call = (name: string, more: object = {}) =>
    send(server, 'tools/call', { name, arguments: {}, ...more })
  return { call, warnings, exited }
}

/** Two questions are open; the client declines the second and leaves the first. */
async function declineSecond({ call }: Awaited<ReturnType<typeof start>>, tool: string) {
  const first = await call(tool)
  expect(Object.keys(first.result?.inputRequests ?? {})).toEqual(['a', 'b'])
  const { requestState } = first.result ?? {}
  return call(tool, { requestState, inputResponses: { b: { action: 'decline' } } })
}

describe('R11 a client answers where the author does not await yet', () => {
  it.each(['unguarded', 'guarded'])('asks on, in a process that is %s', async (guard) => {
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

  it('ends a call whose step failed unseen, and not the process', async () => {
    const server = await start('unguarded')
    expect(await server.call('step')).toHaveProperty('error')
    expect(await server.call('hello')).toHaveProperty('result')
  })

  it("logs a rejection of the author's own promise, and serves on", async () => {
    const server = await start('guarded')
    await declineSecond(server, 'theirs')
    expect(await server.call('hello')).toHaveProperty('result')
    await expect.poll(() => server.warnings).toEqual([expect.stringContaining('await every promise')])
  })

  it('ends the process where nobody guards it (negative control)', async () => {
    const server = await start('unguarded')
    await declineSecond(server, 'theirs').catch(() => {})
    expect(await server.exited).toBe(1)
  })
})

import { type ChildProcess, fork } from 'node:child_process'
import { afterEach, describe, expect, it } from 'vitest'
import { callTool } from './support/echo-service.ts'
import { messagesOf, post } from './support/post.ts'

const children: ChildProcess[] = []
afterEach(() => {
  for (const child of children.splice(0)) child.kill('SIGKILL')
})

async function start(): Promise<{ child: ChildProcess; port: number; exited: Promise<number | null> }> {
  const child = fork(new URL('./support/echo-process.ts', import.meta.url), { execArgv: ['--import', 'tsx'] })
  children.push(child)
  const exited = new Promise<number | null>((resolve) => child.once('exit', resolve))
  const port = await new Promise<number>((resolve) => {
    child.once('message', (message) => resolve((message as { port: number }).port))
  })
  return { child, port, exited }
}

const sendTo = (port: number, tool: string) => {
  const { headers, message } = callTool(tool)
  return post(port, { headers, body: JSON.stringify(message) })
}

/** Resolves when the response has begun: the call is in flight. */
async function begin(port: number) {
  const { headers, message } = callTool('slow')
  return fetch(`http://127.0.0.1:${port}/mcp`, { method: 'POST', headers, body: JSON.stringify(message) })
}

describe('a process that is told to stop', () => {
  it.each(['SIGTERM', 'SIGINT'] as const)(
    'finishes what is in flight after %s, then ends',
    async (signal) => {
      const { child, port, exited } = await start()
      const response = await begin(port)
      child.kill(signal)
      await expect.poll(async () => (await sendTo(port, 'echo')).status).toBe(503)
      child.send('release')
      expect(messagesOf(await response.text()).at(-1)).toHaveProperty('result')
      expect(await exited).toBe(0)
    },
  )

  it('ends at once on the second signal', async () => {
    const { child, port, exited } = await start()
    const response = await begin(port)
    child.kill('SIGTERM')
    await expect.poll(async () => (await sendTo(port, 'echo')).status).toBe(503)
    child.kill('SIGTERM')
    expect(await exited).toBe(130)
    await expect(response.text()).rejects.toThrow()
  })
})

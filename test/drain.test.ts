import { type ChildProcess, fork } from 'node:child_process'
import { afterEach, describe, expect, it } from 'vitest'
import { callTool } from './support/echo-service.ts'
import { messagesOf, post } from './support/post.ts'
import { processFile } from './support/process-file.ts'
import { createSqliteDatabase } from './support/store/sqlite-database.ts'
import { send } from './support/task-client.ts'

const children: ChildProcess[] = []
afterEach(() => {
  for (const child of children.splice(0)) child.kill('SIGKILL')
})

async function start(
  file = 'echo-process.ts',
  ...args: string[]
): Promise<{ child: ChildProcess; port: number; exited: Promise<number | null> }> {
  const child = fork(processFile(`test/support/${file}`), args, { execArgv: [] })
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
  it.each(['SIGTERM', 'SIGINT'] as const)('finishes calls in flight after %s, then ends', async (signal) => {
    const { child, port, exited } = await start()
    const response = await begin(port)
    child.kill(signal)
    await expect.poll(async () => (await sendTo(port, 'echo')).status).toBe(503)
    child.send('release')
    expect(messagesOf(await response.text()).at(-1)).toHaveProperty('result')
    expect(await exited).toBe(0)
  })

  it('ends at once on the second signal', async () => {
    const { child, port, exited } = await start()
    const response = await begin(port)
    child.kill('SIGTERM')
    await expect.poll(async () => (await sendTo(port, 'echo')).status).toBe(503)
    child.kill('SIGTERM')
    expect(await exited).toBe(130)
    await expect(response.text()).rejects.toThrow()
  })

  it('E9 releases its tasks after SIGTERM: another process claims them at once, and no failure is counted', async () => {
    const database = await createSqliteDatabase()
    try {
      const { child, port, exited } = await start('task-process.ts', database.file)
      const working = new Promise((resolve) => child.once('message', resolve))
      const remote = {
        fetch: (request: Request) => fetch(new Request(`http://127.0.0.1:${port}/mcp`, request)),
      }
      const { result } = await send(remote, 'tools/call', { name: 'steps' })
      expect(result).toMatchObject({ resultType: 'task' })
      await working
      child.kill('SIGTERM')
      expect(await exited).toBe(0)
      const [left] = await database.open().tasks.list({ id: String(result?.taskId) })
      expect(left).toMatchObject({ status: 'working', worker: undefined, failures: 0 })
      expect(left?.entries).toBeGreaterThan(0)
    } finally {
      await database.close()
    }
  })
})

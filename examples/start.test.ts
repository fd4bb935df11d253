/** `npm start`, as a newcomer meets it: the printed requests work, and a task outlives the process. */

import { type ChildProcess, spawn } from 'node:child_process'
import { existsSync, mkdtempSync, rmSync, statSync } from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { pathToFileURL } from 'node:url'
import { connect } from 'rondo/client'
import { afterEach, expect, it } from 'vitest'

const TSX = pathToFileURL(createRequire(import.meta.url).resolve('tsx')).href
const folder = mkdtempSync(join(tmpdir(), 'rondo-start-'))
const children: ChildProcess[] = []

async function stop(): Promise<void> {
  for (const child of children.splice(0)) {
    const ended = new Promise((done) => child.once('exit', done))
    child.kill('SIGKILL')
    await ended
  }
}

afterEach(async () => {
  await stop()
  rmSync(folder, { recursive: true, force: true })
})

async function start(): Promise<{ text: string; url: string }> {
  const child = spawn(process.execPath, ['--import', TSX, resolve('examples/start.ts')], {
    cwd: folder,
    env: { ...process.env, PORT: '0', RONDO_KEYS: undefined, TSX_TSCONFIG_PATH: resolve('tsconfig.json') },
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  children.push(child)
  let text = ''
  for await (const chunk of child.stdout ?? []) {
    text += chunk
    if (text.includes('Stop with')) break
  }
  return { text, url: /Serving (\S+)/.exec(text)?.[1] ?? '' }
}

/** What curl would do. */
async function run(command: string): Promise<Record<string, unknown>> {
  const headers = Array.from(
    command.matchAll(/-H '([^:]+): ([^']*)'/g),
    ([, name = '', text = '']) => [name, text] as [string, string],
  )
  const url = /curl -s (\S+)/.exec(command)?.[1] ?? ''
  const body = / -d '(.*)'$/.exec(command)?.[1] ?? ''
  const response = await fetch(url, { method: 'POST', headers, body })
  return ((await response.json()) as { result: Record<string, unknown> }).result
}

it('E9 npm start prints requests that work, and keeps its tasks when the process is killed', async () => {
  const { text } = await start()
  const commands = text.split('\n').filter((line) => line.startsWith('curl'))
  expect(commands).toHaveLength(4)
  const [ask = '', answer = '', report = '', look = ''] = commands
  const asked = await run(ask)
  expect(asked).toMatchObject({ resultType: 'input_required', inputRequests: { resolution: {} } })
  expect(await run(answer.replace('STATE', String(asked.requestState)))).toMatchObject({
    content: [{ text: 'Bug #7 resolved as Fixed.' }],
  })
  const { taskId } = await run(report)
  expect(await run(look.replaceAll('TASK', String(taskId)))).toMatchObject({ status: 'working' })
  expect(existsSync(join(folder, '.rondo/tasks.db'))).toBe(true)
  expect(statSync(join(folder, '.rondo/key')).mode & 0o077).toBe(0)

  await stop()
  const { url } = await start()
  const client = await connect(url)
  expect(await client.task(String(taskId)).get()).toMatchObject({ status: 'working' })
  await client.task(String(taskId)).cancel()
  await client.close()
}, 300_000)

/** `npm start`, as a newcomer meets it: three lines, the requests of the guide, and a task that outlives every process. */

import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { cpSync, existsSync, mkdtempSync, readFileSync, rmSync, symlinkSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { connect } from 'rondo/client'
import { afterEach, expect, it } from 'vitest'

const folder = mkdtempSync(join(tmpdir(), 'rondo-start-'))
const children: ChildProcess[] = []

async function stop(signal: NodeJS.Signals): Promise<void> {
  for (const child of children.splice(0)) {
    const ended = once(child, 'exit')
    child.kill(signal)
    await ended
  }
}

afterEach(async () => {
  await stop('SIGTERM')
  rmSync(folder, { recursive: true, force: true })
})

/** Runs what `npm start` runs, in a copy of this checkout that was never built. */
async function start(): Promise<{ lines: string[]; mcp: string }> {
  const { scripts } = JSON.parse(readFileSync('package.json', 'utf8'))
  const [node, ...args] = String(scripts.start).split(' ')
  expect(node).toBe('node')
  const child = spawn(process.execPath, [...args, '--port', '0', '--no-watch'], {
    cwd: folder,
    env: { ...process.env, RONDO_KEYS: undefined, RONDO_HOME: join(folder, 'home') },
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  children.push(child)
  let text = ''
  for await (const chunk of child.stdout ?? []) {
    text += chunk
    if (text.trim().split('\n').length === 3 && text.endsWith('\n')) break
  }
  return { lines: text.trim().split('\n'), mcp: /^MCP +(\S+)$/m.exec(text)?.[1] ?? '' }
}

/** Sends a request as curl would. */
async function run(command: string, mcp: string): Promise<Record<string, unknown>> {
  const headers = Array.from(
    command.matchAll(/-H '([^:]+): ([^']*)'/g),
    ([, name = '', text = '']) => [name, text] as [string, string],
  )
  const body = / -d '(.*)'$/s.exec(command)?.[1] ?? ''
  const response = await fetch(mcp, { method: 'POST', headers, body })
  return ((await response.json()) as { result: Record<string, unknown> }).result
}

it('E9 npm start needs no build, prints three lines, and keeps its tasks when everything is killed', async () => {
  for (const name of ['examples', 'package.json', 'packages', 'scripts', 'tsconfig.json'])
    cpSync(name, join(folder, name), { recursive: true, filter: (path) => !/[/\\]dist$/.test(path) })
  symlinkSync(resolve('node_modules'), join(folder, 'node_modules'))
  const { lines, mcp } = await start()
  expect(lines).toEqual([
    expect.stringMatching(/^Console {2}http:\/\/127\.0\.0\.1:\d+\/#[\w-]{43}$/),
    expect.stringMatching(/^MCP {6}http:\/\/127\.0\.0\.1:\d+\/mcp$/),
    `Call     npx rondo call ${mcp} resolve_bug id=7`,
  ])

  const guide = readFileSync('docs/guide/01-first-tool.md', 'utf8').replaceAll(/ \\\n\s*/g, ' ')
  const commands = guide.split('\n').filter((line) => line.startsWith('curl'))
  expect(commands).toHaveLength(4)
  const [ask = '', answer = '', report = '', look = ''] = commands
  const asked = await run(ask, mcp)
  expect(asked).toMatchObject({ resultType: 'input_required', inputRequests: { resolution: {} } })
  expect(await run(answer.replace('STATE', String(asked.requestState)), mcp)).toMatchObject({
    content: [{ text: 'Bug #7 resolved as Fixed.' }],
  })
  const { taskId } = await run(report, mcp)
  expect(await run(look.replaceAll('TASK', String(taskId)), mcp)).toMatchObject({ status: 'working' })
  expect(existsSync(join(folder, '.rondo/tasks.db'))).toBe(true)

  await stop('SIGKILL')
  const again = await start()
  const client = await connect(again.mcp)
  expect(await client.task(String(taskId)).get()).toMatchObject({ status: 'working' })
  await client.task(String(taskId)).cancel()
  await client.close()
}, 300_000)

/** `npm start`, as a newcomer meets it: three lines, requests without a client, and a task that outlives every process. */

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

const META = {
  'io.modelcontextprotocol/protocolVersion': '2026-07-28',
  'io.modelcontextprotocol/clientCapabilities': {
    elicitation: { form: {} },
    extensions: { 'io.modelcontextprotocol/tasks': {} },
  },
}

/** Sends one request, as anything that can POST would. `name` is the tool or the task. */
async function post(mcp: string, method: string, name: string, params: object) {
  const response = await fetch(mcp, {
    method: 'POST',
    headers: {
      'Content-Type': 'application/json',
      Accept: 'application/json, text/event-stream',
      'MCP-Protocol-Version': '2026-07-28',
      'Mcp-Method': method,
      'Mcp-Name': name,
    },
    body: JSON.stringify({ jsonrpc: '2.0', id: 1, method, params: { ...params, _meta: META } }),
  })
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

  const call = (name: string, params: object) => post(mcp, 'tools/call', name, { name, ...params })
  const bug = { arguments: { id: 7 } }
  const asked = await call('resolve_bug', bug)
  expect(asked).toMatchObject({ resultType: 'input_required', inputRequests: { resolution: {} } })
  const inputResponses = { resolution: { action: 'accept', content: { resolution: 'Fixed' } } }
  const { requestState } = asked
  expect(await call('resolve_bug', { ...bug, inputResponses, requestState })).toMatchObject({
    content: [{ text: 'Bug #7 resolved as Fixed.' }],
  })
  const { taskId } = await call('report', { arguments: { year: 2026 } })
  expect(await post(mcp, 'tasks/get', String(taskId), { taskId })).toMatchObject({ status: 'working' })
  expect(existsSync(join(folder, '.rondo/tasks.db'))).toBe(true)

  await stop('SIGKILL')
  const again = await start()
  const client = await connect(again.mcp)
  // A busy machine may take longer to start all instances than the task takes to end.
  await expect.poll(async () => (await client.task(String(taskId)).get()).status).toBe('completed')
  await client.close()
}, 300_000)

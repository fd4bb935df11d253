/** Runs the built `rondo console` on a file, and talks to its API as the page does. Needs the build. */

import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { pathToFileURL } from 'node:url'
import type { Action, ActionKind, ConsoleEvent } from '../../packages/cli/src/console/event.ts'
import { CLI } from './run-cli.ts'

const at = (path: string): string => pathToFileURL(resolve(path)).href

/** A server with what the console shows: a question, a step, an effect, a second question, a task. */
export function deskSource(greeting = 'Booked'): string {
  const name = `{ type: 'object', properties: { room: { type: 'string', enum: ['red', 'blue'] } }, required: ['room'] }`
  return `import { createServer } from '${at('packages/rondo/dist/index.js')}'
import { createSqliteStore } from '${at('packages/rondo/dist/sqlite.js')}'
import { appendFileSync, existsSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

// Messages of the file are not for the console.
if (process.env.VITEST === undefined) process.send?.(null)
const file = (name) => fileURLToPath(new URL(name, import.meta.url))
const server = createServer({ name: 'desk', version: '1.0.0', store: createSqliteStore({ file: file('tasks.db') }) })

server.tool('book', { description: 'Books a room' }, async (_args, ctx) => {
  const price = await ctx.step('price', () => 40)
  const { room } = await ctx.ask('room', { message: 'Which room?', schema: ${name} })
  const sure = await ctx.confirm('sure', 'Pay ' + price + ' for ' + room + '?')
  if (!sure) return 'Nothing was booked'
  await ctx.effect('pay', ({ key }) => appendFileSync(file('paid.log'), key + '\\n'))
  return '${greeting} ' + room
})

server.tool('report', { description: 'Reports as a task', task: 'auto' }, async (_args, ctx) => {
  await ctx.background()
  const { room } = await ctx.ask('room', { message: 'A report on which room?', schema: ${name} })
  return 'Report on ' + room
})

server.tool('remind', { description: 'Sleeps, then asks for a while', task: 'auto' }, async (_args, ctx) => {
  await ctx.background()
  await ctx.sleep('pause', '20 s')
  const outcome = await ctx.elicit('room', { message: 'Which room now?', schema: ${name}, within: '10 min' })
  return 'Reminded: ' + (outcome.action === 'accept' ? outcome.content.room : outcome.action)
})

server.tool('break', { description: 'Has an effect that fails' }, async (_args, ctx) => {
  if (!(await ctx.confirm('sure', 'Break it?'))) return 'Nothing is broken'
  await ctx.effect('burn', () => { throw new Error('no matches') })
})

server.tool('charge', { description: 'Waits for an event', task: 'always' }, async (_args, ctx) => {
  const hook = await ctx.hook('paid', { within: '10 min' })
  await ctx.effect('invoice', ({ key }) => key)
  return 'Paid ' + (await hook.received()).amount
})

server.tool('count', { description: 'Counts until a file is there', task: 'always' }, async (_args, ctx) => {
  await ctx.step('first', () => 1)
  ctx.status('counting')
  await ctx.step('second', async () => {
    while (!existsSync(file('enough'))) await new Promise((done) => setTimeout(done, 20))
  })
  return 'Counted'
})

export default server
`
}

/** A server of the official package with the same questions: exported itself, or as a function that builds it. */
export function officialSource(isFunction: boolean): string {
  return `import { McpServer } from '${at('node_modules/@modelcontextprotocol/server/dist/index.mjs')}'
import { createRondo } from '${at('packages/rondo/dist/sdk.js')}'
import { createSqliteStore } from '${at('packages/rondo/dist/sqlite.js')}'
import { fileURLToPath } from 'node:url'

const store = createSqliteStore({ file: fileURLToPath(new URL('official.db', import.meta.url)) })
const rondo = createRondo({ audience: 'official-desk', store })
const schema = { type: 'object', properties: { room: { type: 'string', enum: ['red', 'blue'] } }, required: ['room'] }
const text = (value) => ({ content: [{ type: 'text', text: value }] })
const report = rondo.tool(async (_args, ctx) => {
  await ctx.background()
  const { room } = await ctx.ask('room', { message: 'A report on which room?', schema })
  return text('Report on ' + room)
}, { task: 'auto' })
const build = () => {
  const server = rondo.tasks(new McpServer({ name: 'official-desk', version: '1.0.0' }))
  server.registerTool('book', { description: 'Books a room' }, rondo.tool(async (_args, ctx) => {
    const price = await ctx.step('price', () => 40)
    const { room } = await ctx.ask('room', { message: 'Which room?', schema })
    await ctx.effect('pay', ({ key }) => key)
    return text('Booked ' + room + ' for ' + price)
  }))
  server.registerTool('report', { description: 'Reports as a task' }, report)
  return server
}
export default ${isFunction ? 'build' : 'build()'}
`
}

export interface ConsoleProcess {
  readonly child: ChildProcess
  readonly folder: string
  readonly file: string
  readonly page: string
  /** The addresses of the routes of extensions. */
  readonly pages: readonly string[]
  readonly origin: string
  readonly mcp: string
  readonly token: string
  readonly errors: () => string
  get(path: string, headers?: Record<string, string>): Promise<Response>
  act(kind: ActionKind, more?: object): Promise<Action>
  events(since?: number): Promise<ConsoleEvent[]>
  stop(): Promise<number | null>
}

export interface ConsoleOptions {
  readonly source?: string
  /** A file of this repository, instead of a source. */
  readonly path?: string
  /** The servers of a configuration file, instead of a source. */
  readonly mcpServers?: object
  readonly instances?: number
  readonly args?: readonly string[]
  readonly env?: Readonly<Record<string, string>>
}

export async function startConsole({
  source = deskSource(),
  path,
  mcpServers,
  instances = mcpServers ? 1 : 2,
  args = [],
  env = {},
}: ConsoleOptions = {}): Promise<ConsoleProcess> {
  const folder = mkdtempSync(join(tmpdir(), 'rondo-console-'))
  const own = join(folder, mcpServers ? 'mcp.json' : 'server.mjs')
  const file = path === undefined ? own : resolve(path)
  if (path === undefined) writeFileSync(file, mcpServers ? JSON.stringify({ mcpServers }) : source)
  const { PATH = '', HOME = '' } = process.env
  const child = spawn(
    process.execPath,
    [
      CLI,
      'console',
      ...(mcpServers ? ['--config'] : []),
      file,
      '--port',
      '0',
      '--json',
      '--instances',
      String(instances),
      ...args,
    ],
    {
      cwd: folder,
      env: { PATH, HOME, RONDO_HOME: join(folder, '.home'), ...env },
      stdio: ['ignore', 'pipe', 'pipe'],
    },
  )
  let errors = ''
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    errors += text
  })
  let text = ''
  for await (const chunk of child.stdout.setEncoding('utf8')) {
    text += chunk
    if (text.includes('}\n')) break
  }
  if (text === '') throw new Error(`The console did not start: ${errors}`)
  const { page, mcp, pages } = JSON.parse(text) as { page: string; mcp: string; pages: string[] }
  const { origin, hash } = new URL(page)
  const token = hash.slice(1)
  const authorization = `Bearer ${token}`
  const get: ConsoleProcess['get'] = (path, headers = {}) =>
    fetch(`${origin}${path}`, { headers: { authorization, ...headers } })
  return {
    ...{ child, folder, file, page, pages, origin, mcp, token, get },
    errors: () => errors,
    async act(kind, more = {}) {
      const response = await fetch(`${origin}/api/actions`, {
        method: 'POST',
        headers: { authorization, 'content-type': 'application/json' },
        body: JSON.stringify({ kind, ...more }),
      })
      const value = await response.json()
      if (!response.ok) throw new Error(`${response.status}: ${value.error}`)
      return value as Action
    },
    async events(since = 0) {
      const stop = new AbortController()
      const response = await fetch(`${origin}/api/events`, {
        headers: { authorization, 'last-event-id': String(since) },
        signal: stop.signal,
      })
      let received = ''
      const decoder = new TextDecoder()
      for await (const chunk of response.body ?? []) {
        received += decoder.decode(chunk, { stream: true })
        // The comment after what was known already. Events may have come with it: the next comment is 15 seconds away.
        if (/(?:^|\n\n):\n\n/.test(received)) break
      }
      stop.abort()
      return received
        .split('\n')
        .flatMap((line) => (line.startsWith('data: ') ? [JSON.parse(line.slice(6)) as ConsoleEvent] : []))
    },
    async stop() {
      if (child.exitCode === null && child.signalCode === null) {
        child.kill('SIGTERM')
        await once(child, 'exit')
      }
      rmSync(folder, { recursive: true, force: true })
      return child.exitCode
    },
  }
}

/**
 * `rondo console`: runs several instances of a file's server behind one address on loopback, and serves a page that shows every
 * call round by round and can break it on purpose. Reloads the instances when a file in the folder changes; open calls
 * continue on the new ones.
 */

import { spawn } from 'node:child_process'
import { resolve } from 'node:path'
import { JSON_OPTION } from '../call-setup.ts'
import { type Command, CommandError, readPort, usageError } from '../command-line.ts'
import { scriptArgs } from '../connection.ts'
import { createActions } from '../console/actions.ts'
import { createBook } from '../console/book.ts'
import { type Calls, createCalls, followTasks } from '../console/calls.ts'
import { PAGES_VARIABLE } from '../console/event.ts'
import { createFleet, type LocalFleet } from '../console/fleet.ts'
import { openPages } from '../console/pages.ts'
import { createProxy } from '../console/proxy.ts'
import { openWeb, readAssets, type Web, type WebParts } from '../console/web.ts'
import { serverEnv } from '../home.ts'
import { type Io, print, printJson, tell } from '../io.ts'
import { examineUrl } from './doctor.ts'
import { isFile, watchSources } from './play.ts'

const MAX_INSTANCES = 16

export const consoleCommand: Command = {
  name: 'console',
  usage: '<file> | --config FILE',
  summary: 'runs a file as several instances, with a page that shows its calls and breaks them on purpose',
  details: [
    'The file exports a server, as for "rondo play". The page and the MCP address are on 127.0.0.1 and ::1 only.',
    'For development: handlers run twice per round, errors are shown in full, and the page sees answers and results.',
  ],
  options: {
    instances: {
      type: 'string',
      value: 'N',
      help: `how many processes run the file, 1 to ${MAX_INSTANCES} (default: 3)`,
    },
    config: {
      type: 'string',
      value: 'FILE',
      help: 'shows a gateway before the servers of a JSON file with "mcpServers"',
    },
    port: { type: 'string', value: 'N', help: 'the port (default: 3000); 0 picks a free one' },
    open: { type: 'boolean', help: 'opens the page in a browser' },
    'no-watch': { type: 'boolean', help: 'does not reload on change' },
    ...JSON_OPTION,
  },
  async run({ io, words, options }) {
    const config = options.text('config')
    const [file, ...others] = config === undefined ? words : [config, ...words]
    if (file === undefined || others.length > 0)
      throw usageError('Name one file that exports a server, or pass --config')
    if (config !== undefined && !config.endsWith('.json')) throw usageError('--config takes a JSON file')
    const path = resolve(io.cwd, file)
    if (!isFile(path)) throw usageError(`No such file: ${path}`)
    // Another instance would start commands of its own, and does not hold the calls of the first.
    const wanted = options.text('instances') ?? (config === undefined ? '3' : '1')
    const count = /^\d+$/.test(wanted) ? Number(wanted) : 0
    if (count < 1 || count > MAX_INSTANCES)
      throw usageError(`--instances takes a whole number from 1 to ${MAX_INSTANCES}, not "${wanted}"`)
    const port = readPort(options) ?? 3000

    const book = createBook(io.now)
    const pages = await openPages(port === 0 ? 0 : port + 1, () => fleet)
    const fleet: LocalFleet = createFleet({
      io,
      count,
      args: scriptArgs(path, [], 'console/instance'),
      env: { ...serverEnv(io), [PAGES_VARIABLE]: pages.origin },
      onHappening: book.add,
    })
    const proxy = createProxy(fleet, book, io.now)
    const act = createActions(fleet, proxy, book)
    const examine = (args: readonly string[]) => examineUrl(io, web.mcp, args)
    const calls = createCalls({ mcp: () => web.mcp, proxy, book, fleet, examine })
    const web: Web = await open({
      ...{ port, assets: await readAssets(), book, proxy, act, calls },
      status: () => ({ file: path, mcp: web.mcp, instances: fleet.views(), ...fleet.served() }),
    }).catch(async (error) => {
      await pages.close()
      throw error
    })
    const stopped = new Promise<void>((done) => {
      io.signal.addEventListener('abort', () => done(), { once: true })
    })
    let stopWatching = (): void => {}
    let stopFollowing = (): void => {}
    try {
      io.status.start(`starting ${count === 1 ? 'the instance' : `${count} instances`}`)
      const failed = await Promise.race([fleet.start(), stopped]).finally(() => io.status.stop())
      if (typeof failed === 'string') {
        tell(io, `Cannot serve ${path}:\n${failed}`)
        return 'failed'
      }
      const addresses = (fleet.served()?.routes ?? []).map((route) => pages.origin + route)
      const call = await sampleCall(calls, web.mcp)
      if (!io.signal.aborted) announce(io, { web, file: path, call, pages: addresses }, options.flag('json'))
      stopFollowing = followTasks({ fleet, proxy, book, look: (id) => calls.task({ id }) })
      if (options.flag('open') && !io.signal.aborted) openBrowser(io, web.page)
      if (config === undefined && !options.flag('no-watch'))
        stopWatching = watchSources(path, () => {
          tell(io, 'A file changed; reloading.')
          void act({ kind: 'reload' }).then(
            ({ ok, happened }) => ok || tell(io, `Still serving the previous version: ${happened}`),
          )
        })
      await stopped
    } finally {
      stopWatching()
      stopFollowing()
      await Promise.all([fleet.stop(), web.close(), pages.close()])
    }
    tell(io, 'Stopped.')
    return 'done'
  },
}

async function open(parts: WebParts): Promise<Web> {
  try {
    return await openWeb(parts)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EADDRINUSE') throw error
    throw new CommandError(
      'unreachable',
      `Port ${parts.port} is in use. Choose another with --port N; --port 0 picks a free one`,
    )
  }
}

interface Announced {
  readonly web: Web
  readonly file: string
  readonly call: string
  /** The addresses of the routes of extensions. */
  readonly pages: readonly string[]
}

function announce(io: Io, { web, file, call, pages }: Announced, json: boolean): void {
  const { page, mcp } = web
  if (json) return printJson(io, { page, mcp, file, call, pages })
  const lines = [`Console  ${page}`, `MCP      ${mcp}`, `Call     ${call}`]
  print(io, [...lines, ...pages.map((one) => `Pages    ${one}`)].join('\n'))
}

/** A command to paste into a terminal: calls the first tool whose arguments fit on a line, with made-up values. */
async function sampleCall({ tools }: Calls, mcp: string): Promise<string> {
  for (const { name, inputSchema } of await tools().catch(() => [])) {
    const { properties = {}, required = [] } = inputSchema as {
      properties?: Record<string, SampleSchema>
      required?: string[]
    }
    const words = required.map((key) => sampleWord(key, properties[key] ?? {}))
    if (/^[\w.-]+$/.test(name) && words.every((word) => word !== undefined))
      return ['npx rondo call', mcp, name, ...words].join(' ')
  }
  return `npx rondo tools ${mcp}`
}

interface SampleSchema {
  readonly type?: unknown
  readonly enum?: readonly unknown[]
  readonly examples?: readonly unknown[]
  readonly minimum?: number
}

const SAMPLES: Readonly<Record<string, unknown>> = { integer: 7, number: 1, boolean: true, string: 'tea' }

/** Returns a sample argument that needs no quotes in a shell, or undefined if the schema suggests none. */
function sampleWord(key: string, schema: SampleSchema): string | undefined {
  const { type, examples, minimum } = schema
  const number = typeof minimum === 'number' && minimum > Number(SAMPLES.integer) ? minimum : undefined
  const value = examples?.[0] ?? schema.enum?.[0] ?? number ?? SAMPLES[String(type)]
  const word = `${key}=${String(value)}`
  return value !== undefined && /^[\w.-]+=[\w.:@/-]+$/.test(word) ? word : undefined
}

/** Nothing depends on it: without a browser, the address is on the screen. */
function openBrowser(io: Io, url: string): void {
  const [command, ...args] =
    process.platform === 'darwin'
      ? ['open', url]
      : process.platform === 'win32'
        ? ['cmd', '/c', 'start', '', url]
        : ['xdg-open', url]
  const child = spawn(command ?? '', args, { stdio: 'ignore', detached: true })
  child.once('error', () => tell(io, 'Cannot open a browser here; open the address yourself.'))
  child.unref()
}

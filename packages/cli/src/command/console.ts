/**
 * `rondo console`: runs several instances of a file's server behind one address on loopback, and serves a page that shows every
 * call round by round and can break it on purpose. Reloads the instances when a file in the folder changes; open calls
 * continue on the new ones.
 *
 * With `--store` it runs no server: its page is for the operator of a live store, and does what `rondo tasks` does.
 */

import { spawn } from 'node:child_process'
import { resolve } from 'node:path'
import { setTimeout } from 'node:timers/promises'
import { oneLine } from 'rondo/internal'
import { JSON_OPTION } from '../call-setup.ts'
import {
  type Command,
  CommandError,
  type Exit,
  type Invocation,
  type Options,
  readPort,
  usageError,
} from '../command-line.ts'
import { scriptArgs } from '../connection.ts'
import { createActions, readAction } from '../console/actions.ts'
import { createBook } from '../console/book.ts'
import { type Calls, createCalls, followTasks } from '../console/calls.ts'
import { PAGES_VARIABLE } from '../console/event.ts'
import { createFleet, type LocalFleet } from '../console/fleet.ts'
import { openPages } from '../console/pages.ts'
import { createProxy } from '../console/proxy.ts'
import { openStoreDesk } from '../console/store.ts'
import { type Api, openWeb, readAssets, type Web, type WebParts } from '../console/web.ts'
import { serverEnv } from '../home.ts'
import { type Io, print, printJson, tell } from '../io.ts'
import { examineUrl } from './doctor.ts'
import { ringOf } from './keys.ts'
import { isFile, watchSources } from './play.ts'
import { whoIs } from './task-actions.ts'

const MAX_INSTANCES = 16
const OF_FILES = ['config', 'instances', 'no-watch']
const OF_STORES = ['act', 'keys', 'content', 'as', 'schema']

export const consoleCommand: Command = {
  name: 'console',
  usage: '<file> | --config FILE | --store STORE',
  summary: 'runs a file as several instances, with a page that shows its calls and breaks them on purpose',
  details: [
    'The file exports a server, as for `rondo play`, and runs in development mode, in which sleeps last as long as they say. The command prints the address of the page, that for MCP clients, and a command that calls a tool. Both addresses are on 127.0.0.1 and ::1 only. The page has a token that is new with every start: whoever has its address can call tools, read answers and results, and stop instances. The MCP address needs no token.',
    'All instances use one key ring and the store that the file configures; a store in memory is not shared. A change of a source file starts new processes before the old ones drain; if the new file cannot be served, the old processes stay. A caller is whoever `authenticate` of the file says; without one, the header `X-Rondo-Principal` names it. The page shows the last 2,000 events and bodies up to 256 KiB, from memory.',
    'With `--store` no server runs: the page shows the tasks of a live store, as `rondo tasks` does, and with `--act` it changes them under the name of `--as`. The store is a SQLite file or a `postgres://` URL. It is opened for each request and never upgraded.',
    'The exit code is 1 if the file cannot be served, 6 if the port is in use or the store cannot be reached, and 8 if the store cannot be read.',
  ],
  json: '`{ "page", "mcp", "file", "call", "pages" }`, or `{ "page", "store", "act" }`',
  see: 'docs/guide/console.md',
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
    store: { type: 'string', value: 'STORE', help: 'shows the tasks of a store to its operator' },
    act: { type: 'boolean', help: '--store: the page may change tasks and tools, not only show them' },
    keys: {
      type: 'string',
      value: 'FILE',
      help: '--store: the file with the keys of the server, to open journals (default: RONDO_KEYS)',
    },
    content: { type: 'boolean', help: '--store: arguments, answers and results as well' },
    as: {
      type: 'string',
      value: 'NAME',
      help: '--store: your name, for the record of actions (default: user and host)',
    },
    schema: { type: 'string', value: 'NAME', help: '--store: the schema in PostgreSQL (default: rondo)' },
    ...JSON_OPTION,
  },
  async run(invocation) {
    const { io, words, options } = invocation
    if (options.text('store') !== undefined) return operateStore(invocation)
    refuseOptions(options, OF_STORES, 'is an option of --store')
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
      onHappening(happening) {
        book.add(happening)
        // Which server is waited for or is down, where a person looks first.
        if (config !== undefined && happening.kind === 'log' && happening.event.event === 'warning')
          tell(io, oneLine(happening.event.message))
      },
    })
    const proxy = createProxy(fleet, book, io.now)
    const act = createActions(fleet, proxy, book)
    const examine = (args: readonly string[]) => examineUrl(io, web.mcp, args)
    const calls = createCalls({ mcp: () => web.mcp, proxy, book, fleet, examine })
    const api: Api = new Map([
      [
        'GET /api/status',
        async () => ({ file: path, mcp: web.mcp, instances: fleet.views(), ...fleet.served() }),
      ],
      ['GET /api/tools', calls.tools],
      ['POST /api/actions', (body) => act(readAction(body))],
      ['POST /api/calls', calls.call],
      ['POST /api/doctor', calls.examine],
      ['POST /api/deliveries', calls.deliver],
      ['POST /api/tasks', calls.task],
      ['GET /api/approvals', calls.approvals],
      ['POST /api/approvals', calls.vote],
    ])
    const assets = await readAssets('server')
    const web: Web = await open({ port, assets, api, book, proxy }).catch(async (error) => {
      await pages.close()
      throw error
    })
    const stopped = untilStopped(io)
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
      const sample = sampleCall(calls, web.mcp)
      // The servers of a gateway may take long to say what they offer.
      const call = await (config === undefined ? sample : Promise.race([sample, soon(listCall(web.mcp))]))
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

/** Serves the page of a store until the command is stopped. */
async function operateStore(invocation: Invocation): Promise<Exit> {
  const { io, words, options } = invocation
  if (words.length > 0) throw usageError('Name a file or --store, not both')
  refuseOptions(options, OF_FILES, 'is no option of --store')
  const ring = ringOf(io, options)
  const desk = await openStoreDesk({
    place: { word: options.text('store') ?? '', cwd: io.cwd, schema: options.text('schema') },
    keys: () => ring,
    content: options.flag('content'),
    who: options.flag('act') ? whoIs(invocation) : undefined,
    now: io.now,
  })
  const port = readPort(options) ?? 3000
  const web = await open({ port, assets: await readAssets('store'), api: desk.api })
  try {
    const { page } = web
    const store = oneLine(desk.store)
    if (options.flag('json')) printJson(io, { page, store, act: options.flag('act') })
    else print(io, [`Console  ${page}`, `Store    ${store}`].join('\n'))
    if (options.flag('open')) openBrowser(io, page)
    await untilStopped(io)
  } finally {
    // A change that has begun is made, and its reply sent.
    await desk.close()
    await web.close()
  }
  tell(io, 'Stopped.')
  return 'done'
}

function untilStopped({ signal }: Io): Promise<void> {
  return new Promise((done) => {
    if (signal.aborted) done()
    signal.addEventListener('abort', () => done(), { once: true })
  })
}

function refuseOptions({ text, flag }: Options, names: readonly string[], why: string): void {
  const given = names.find((name) => flag(name) || text(name) !== undefined)
  if (given !== undefined) throw usageError(`--${given} ${why}`)
}

async function open(parts: WebParts): Promise<Web> {
  try {
    return await openWeb(parts)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EADDRINUSE') throw error
    throw new CommandError(
      'unreachable',
      `Port ${parts.port} is in use: stop the other process, or choose another port with --port N (0 picks a free one)`,
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
  return listCall(mcp)
}

const listCall = (mcp: string): string => `npx rondo tools ${mcp}`

const SOON_MS = 2_000
const soon = <T>(value: T): Promise<T> => setTimeout(SOON_MS, value, { ref: false })

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

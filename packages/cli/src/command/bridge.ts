/**
 * `rondo bridge`: one or several servers, for a host of any revision. It serves the host over stdin and stdout, or over HTTP on
 * loopback. Only MCP is written to stdout.
 */

import { createHash, randomBytes, timingSafeEqual } from 'node:crypto'
import type { Gateway } from '@rondo/gateway'
import { type Authenticate, type LogEvent, RondoError } from 'rondo'
import { oneLine } from 'rondo/internal'
import { oneServer, serversOfFile } from '../bridge/config.ts'
import { type ClosableAsk, createAskPage } from '../bridge/page.ts'
import { askInFolder } from '../bridge/question-folder.ts'
import {
  type Command,
  CommandError,
  type Exit,
  type Invocation,
  type Options,
  usageError,
} from '../command-line.ts'
import { CONNECT_OPTIONS } from '../connection.ts'
import { commandOf, VERSION } from '../describe.ts'
import { homeOf, serverEnv } from '../home.ts'
import { type Io, tell } from '../io.ts'
import { openLink } from './login.ts'

export const bridgeCommand: Command = {
  name: 'bridge',
  usage: '<server> | -- <command> | --config FILE',
  summary: 'lets a host of any revision use servers of any revision, questions included',
  details: [
    'Put it into the configuration of a host in place of the server: `npx -y @rondo/cli bridge https://…/mcp`. It serves the host over stdin and stdout until the host closes them, or with `--listen` until it is stopped. Logins of `rondo login` are used. Messages go to stderr.',
    'With `--config`, the file has the object "mcpServers" that hosts use, and the options of a connection are in it, except for `--server-log`.',
  ],
  see: 'docs/guide/bridge.md',
  options: {
    listen: {
      type: 'string',
      value: 'PORT',
      help: 'serves HTTP on this port of loopback instead of stdio; 0 picks a free one',
    },
    ask: {
      type: 'string',
      value: 'WHERE',
      help: 'who asks you: host, browser, terminal (rondo answer), or auto (default)',
    },
    config: { type: 'string', value: 'FILE', help: 'the servers: a JSON file with "mcpServers"' },
    name: { type: 'string', value: 'NAME', help: 'the name of the server in messages' },
    only: { type: 'string', multiple: true, value: 'TOOL', help: 'offers only this tool' },
    except: { type: 'string', multiple: true, value: 'TOOL', help: 'offers all tools but this one' },
    ...CONNECT_OPTIONS,
  },
  async run(invocation) {
    try {
      return await bridge(invocation)
    } catch (error) {
      throw toCommandError(error)
    }
  },
}

async function bridge({ io, words, rest, options }: Invocation): Promise<Exit> {
  const file = options.text('config')
  if (file !== undefined && (words.length > 0 || rest !== undefined))
    throw usageError('Name a server or pass --config, not both')
  const { upstreams, loggedIn } =
    file === undefined ? await oneServer(io, words, rest, options) : await serversOfFile(io, file)
  const { createGateway } = await import('@rondo/gateway')
  const port = listenPort(options)
  // Anybody who reaches the port would use this person's login.
  const token = port !== undefined && loggedIn ? randomBytes(24).toString('base64url') : undefined
  const names = Object.keys(upstreams)
  const asker = askerOf(io, options)
  const gateway = createGateway({
    name: options.text('name') ?? (names.length === 1 ? (names[0] ?? 'bridge') : 'bridge'),
    version: VERSION,
    upstreams,
    keys: keysOf(io),
    ...(asker && { ask: asker }),
    log: (event) => logLine(io, event, options),
    ...(token !== undefined && { authenticate: onlyWith(token) }),
    ...(options.flag('server-log') && {
      onStderr: (name, line) => tell(io, `${oneLine(name)}: ${oneLine(line)}`),
    }),
    onClient: ({ name, revision }) =>
      tell(io, `bridge: ${oneLine(name ?? 'the host')} speaks ${revision}; ${how(gateway, revision)}.`),
  })
  const stopped = new Promise<void>((resolve) => {
    if (io.signal.aborted) resolve()
    io.signal.addEventListener('abort', () => resolve(), { once: true })
  })
  try {
    const started = gateway.ready().catch((error: unknown) => {
      throw error instanceof TypeError ? error : notReady(error as Error)
    })
    await Promise.race([started, stopped])
    if (io.signal.aborted) return 'done'
    for (const line of describe(gateway)) tell(io, line)
    if (port === undefined) await Promise.race([gateway.stdio({ signals: false }), stopped])
    else {
      const { url } = await gateway.listen({ port, signals: false })
      const needs = token === undefined ? '' : ` with the token ${token} (Authorization: Bearer …)`
      tell(io, `bridge: serving ${url}${needs}`)
      await stopped
    }
    return 'done'
  } finally {
    // Hosts expect the commands behind the bridge to be gone with it.
    asker?.close()
    await gateway.close()
  }
}

/** Asks the person on this machine; undefined if only the host asks. */
function askerOf(io: Io, options: Options): ClosableAsk | undefined {
  const where = options.text('ask') ?? 'auto'
  if (where === 'host') return undefined
  if (where === 'terminal') return { ...terminalFor(io), always: true }
  if (where !== 'auto' && where !== 'browser')
    throw usageError(`--ask takes host, browser, terminal or auto, not "${where}"`)
  const isAuto = where === 'auto'
  return createAskPage({
    always: !isAuto,
    ...(isAuto && { otherwise: terminalFor(io) }),
    async open(url) {
      const isOpened = await openLink(url, io.env)
      if (isOpened) tell(io, 'bridge: a question is open on a page in your browser')
      else if (!isAuto)
        tell(
          io,
          `bridge: the browser cannot be opened. Open this page yourself, and show it to nobody: ${url.href}`,
        )
      return isOpened
    },
  })
}

function terminalFor(io: Io): ClosableAsk {
  const command = `${commandOf(io)} answer`
  const folder = askInFolder(homeOf(io), {
    onAsked: ({ upstream }) =>
      tell(io, `bridge: ${oneLine(upstream)} asks you something. Answer it in a terminal: ${command}`),
    onProblem: (reason) => tell(io, `bridge: a question cannot be asked in a terminal: ${oneLine(reason)}`),
  })
  return { ...folder, place: `in a terminal of the user, with the command "${command}"` }
}

function listenPort(options: Options): number | undefined {
  const port = options.number('listen')
  if (port === undefined || (Number.isInteger(port) && port <= 65_535)) return port
  throw usageError(`--listen takes a port from 0 to 65535, not ${port}`)
}

const LOGIN = new Set(['PEER_HTTP', 'PEER_LOGIN'])

/** The error of a start without any server. If a login is missing, its own error says how to log in. */
function notReady(error: Error): Error {
  for (let cause: unknown = error; cause instanceof Error; cause = cause.cause)
    if (cause instanceof RondoError && LOGIN.has(cause.code)) return cause
  return new CommandError('unreachable', oneLine(error.message), { cause: error })
}

/** The error in terms of this command: mistakes in the configuration, and a port that cannot be used. */
function toCommandError(error: unknown): unknown {
  if (error instanceof TypeError) return usageError(oneLine(error.message))
  if (!(error instanceof RondoError) || error.code !== 'SERVER_LISTEN') return error
  const [problem = ''] = error.message.replace(/^\[\w+\] /, '').split(': ')
  const advice = 'Choose another port with --listen PORT; --listen 0 picks a free one'
  return new CommandError('unreachable', `${oneLine(problem)}. ${advice}`, { cause: error })
}

function keysOf(io: Io): string | undefined {
  const env = serverEnv(io)
  return env.RONDO_KEYS ?? env.RONDO_LOCAL_KEYS
}

/** Accepts whoever has the token and refuses everybody else, in the same time for every other token. */
function onlyWith(token: string): Authenticate {
  const digest = (text: string): Buffer => createHash('sha256').update(text).digest()
  const wanted = digest(`Bearer ${token}`)
  return ({ headers }) =>
    timingSafeEqual(digest(headers('authorization') ?? ''), wanted) ? { subject: 'local' } : { status: 401 }
}

function describe(gateway: Gateway): string[] {
  // A server that does not answer was in a warning already.
  const present = gateway.upstreams().filter(({ problem }) => problem === undefined)
  return present.map(({ name, revision, server, tools }) => {
    const said = server === undefined || server === name ? '' : ` (${oneLine(server)})`
    return `bridge: ${oneLine(name)}${said} speaks ${revision} and offers ${tools} ${tools === 1 ? 'tool' : 'tools'}`
  })
}

/** The fate of questions between a host and the servers. */
function how(gateway: Gateway, revision: string): string {
  const isNew = (one: string | undefined): boolean => one !== undefined && one >= '2026'
  const same = gateway.upstreams().every((one) => isNew(one.revision) === isNew(revision))
  return same ? 'questions pass as they are' : 'questions are translated'
}

/** Warnings go to stderr; the rest of the log only with --server-log. */
function logLine(io: Io, event: LogEvent, options: Options): void {
  if (event.event === 'warning') tell(io, `bridge: ${oneLine(event.message)}`)
  else if (options.flag('server-log')) tell(io, oneLine(JSON.stringify(event)))
}

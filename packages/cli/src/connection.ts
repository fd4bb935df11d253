/** Connects a client to the server that the command line names. */

import { createRequire } from 'node:module'
import { basename, resolve } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import type { Root } from 'rondo'
import type { Answers, Client, StdioTarget } from 'rondo/client'
import { connect, type Mode, noSecretsInForms, type RoundPolicy } from 'rondo/client'
import { HANDSHAKE_VERSIONS, LATEST_VERSION, oneLine } from 'rondo/internal'
import { type Options, type OptionTable, usageError } from './command-line.ts'
import { serverEnv, storedAuth } from './home.ts'
import { type Io, tell } from './io.ts'
import type { NamedTarget } from './words.ts'

export const CONNECT_OPTIONS: OptionTable = {
  header: { type: 'string', multiple: true, value: 'NAME:VALUE', help: 'sends an HTTP header; never stored' },
  bearer: {
    type: 'string',
    value: 'TOKEN|env:NAME',
    help: 'sends a token, or the one in a variable; never stored',
  },
  env: {
    type: 'string',
    multiple: true,
    value: 'NAME[=VALUE]',
    help: 'passes a variable to the started command; never stored',
  },
  revision: { type: 'string', value: 'VERSION', help: 'speaks this revision; negotiated unless set' },
  timeout: { type: 'string', value: 'SECONDS', help: 'timeout of a request without progress (default: 120)' },
  'server-log': { type: 'boolean', help: 'shows the server’s log on stderr' },
}

export interface Connection {
  readonly client: Client
  /** Disconnects, and stops a process that was started. */
  close(): Promise<void>
}

/** Lines of the server's log that are shown if it cannot be reached. */
const KEPT_LINES = 20
const MAX_SEEN = 1000
const MAX_WARNINGS = 50

interface ConnectionExtra {
  /** Headers in addition to those of the options. */
  readonly headers?: readonly string[]
  /** Allows calls to become tasks. Default: true. */
  readonly tasks?: boolean
  /** The revision to speak; negotiated unless given. */
  readonly mode?: Mode
  /** The revision to speak if the options name none. */
  readonly version?: string
  /** Answers the questions of servers that wait while they ask. */
  readonly answers?: Answers
}

export async function openConnection(
  io: Io,
  target: NamedTarget,
  options: Options,
  { headers = [], tasks, mode, version, answers }: ConnectionExtra = {},
): Promise<Connection> {
  const lines: string[] = []
  const seen = new Set<string>()
  const onStderr = (line: string): void => {
    if (options.flag('server-log')) return tell(io, `server: ${oneLine(line)}`)
    // A server that fails is started twice, for two handshakes, and logs the same lines twice.
    if (seen.has(line)) return
    if (seen.size < MAX_SEEN) seen.add(line)
    lines.push(line)
    if (lines.length > KEPT_LINES) lines.shift()
  }
  const warned = new Set<string>()
  const onWarning = (text: string): void => {
    // A server may cause the same one a million times.
    if (warned.has(text) || warned.size > MAX_WARNINGS) return
    warned.add(text)
    tell(io, warned.size > MAX_WARNINGS ? 'further warnings are not shown' : `warning: ${oneLine(text)}`)
  }
  const timeout = options.number('timeout')
  const sent = requestHeaders(io, options, headers)
  const auth = await storedAuth(io, target, sent)
  try {
    const client = await connect(toTarget(io, target, options, onStderr), {
      headers: sent,
      ...(auth && { auth }),
      onRound: policiesOf(io, options),
      onWarning,
      signal: io.signal,
      createId: randomName,
      tasks,
      mode: mode ?? readRevision(options, version),
      answers,
      ...(timeout !== undefined && { timeoutMs: timeout * 1000 }),
    })
    return { client, close: () => client.close() }
  } catch (error) {
    for (const line of lines) tell(io, `server: ${oneLine(line)}`)
    throw error
  }
}

const REVISIONS: readonly string[] = [LATEST_VERSION, ...HANDSHAKE_VERSIONS]

/** The revision in the options, or else the given one. */
export function readRevision(options: Options, version = 'auto'): Mode {
  const text = options.text('revision')
  if (text === undefined) return REVISIONS.includes(version) ? (version as Mode) : 'auto'
  if (REVISIONS.includes(text)) return text as Mode
  throw usageError(`--revision takes one of ${REVISIONS.join(', ')}, not "${text}"`)
}

/** The policies for the questions of every round. */
export function policiesOf(io: Io, options: Options): RoundPolicy[] {
  const secrets = options.flag('allow-secrets') ? [] : [noSecretsInForms()]
  return [...secrets, answerRoots(io, options.list('root'))]
}

/** Converts a target for the client library. */
export function toTarget(
  io: Io,
  target: NamedTarget,
  options: Options,
  stderr: (line: string) => void,
): string | StdioTarget {
  switch (target.kind) {
    case 'url':
      return target.url
    case 'file':
      return {
        command: process.execPath,
        args: scriptArgs(target.path, ['stdio']),
        env: { ...serverEnv(io), ...readEnv(io, options.list('env')) },
        cwd: io.cwd,
        stderr,
      }
    case 'command': {
      const { command, args, cwd } = target
      return { command, args, cwd, env: readEnv(io, options.list('env')), stderr }
    }
  }
}

/** The headers that the command line names, and those given. */
export function requestHeaders(
  io: Pick<Io, 'env'>,
  options: Options,
  others: readonly string[] = [],
): Record<string, string> {
  const named = readHeaders([...options.list('header'), ...others])
  const bearer = options.text('bearer')
  if (bearer === undefined || Object.keys(named).some((name) => name.toLowerCase() === 'authorization'))
    return named
  return { ...named, Authorization: `Bearer ${readBearer(io, '--bearer', bearer)}` }
}

/** A token, or with `env:NAME` the one in a variable. */
export function readBearer({ env }: Pick<Io, 'env'>, option: string, text: string): string {
  const name = text.startsWith('env:') ? text.slice(4) : undefined
  const token = name === undefined ? text : env[name]
  if (token !== undefined && /^[\x21-\x7e]+$/.test(token)) return token
  throw usageError(
    name === undefined ? `${option} takes a token` : `${option} ${text}: the variable has no token`,
  )
}

function readHeaders(lines: readonly string[]): Record<string, string> {
  return Object.fromEntries(
    lines.map((line) => {
      const [, name, value] = /^([!#$%&'*+.^_`|~\w-]+)\s*:\s*(.*)$/.exec(line) ?? []
      if (name === undefined || value === undefined)
        throw usageError(`--header takes "Name: value", not "${line}"`)
      return [name, value]
    }),
  )
}

function readEnv(io: Io, entries: readonly string[]): Record<string, string> {
  return Object.fromEntries(
    entries.map((entry) => {
      const at = entry.indexOf('=')
      const name = at < 0 ? entry : entry.slice(0, at)
      const value = at < 0 ? io.env[name] : entry.slice(at + 1)
      if (name === '' || value === undefined) throw usageError(`--env ${entry}: the variable has no value`)
      return [name, value]
    }),
  )
}

/** An id that is short enough to type, and random enough to be unique among the calls of one user. */
function randomName(): string {
  const letters = 'abcdefghijkmnpqrstuvwxyz23456789'
  return Array.from(crypto.getRandomValues(new Uint8Array(10)), (byte) => letters[byte % 32]).join('')
}

export function rootsOf({ cwd }: Io, folders: readonly string[]): Root[] {
  return folders.map((folder) => {
    const path = resolve(cwd, folder)
    return { uri: pathToFileURL(path).href, name: basename(path) }
  })
}

/** Answers `roots/list` with the folders of `--root`. */
function answerRoots(io: Io, folders: readonly string[]): RoundPolicy {
  const roots = rootsOf(io, folders)
  return ({ questions }) => {
    const keys = Object.keys(questions).filter((key) => questions[key]?.method === 'roots/list')
    if (roots.length === 0 || keys.length === 0) return undefined
    return { kind: 'rewrite', answers: Object.fromEntries(keys.map((key) => [key, { roots }])) }
  }
}

/** A runner within the package: the built file, or the source if this file is source. */
const runnerPath = (name: string): string =>
  import.meta.url.endsWith('.ts') ? `src/${name}.ts` : `dist/${name}.js`

const TYPESCRIPT = /\.[cm]?ts$/

/**
 * Arguments for `process.execPath` that run a file which exports a server (`serve-file.ts`). TypeScript needs a Node that
 * strips types, or `tsx` installed beside the file.
 */
export function scriptArgs(
  path: string,
  entrance: readonly string[],
  runnerName: 'serve-file' | 'console/instance' = 'serve-file',
): string[] {
  const root = pathToFileURL(createRequire(import.meta.url).resolve('@rondo/cli/package.json'))
  const runner = new URL(runnerPath(runnerName), root)
  return [...loaderArgs(path, runner), fileURLToPath(runner), path, ...entrance]
}

function loaderArgs(path: string, runner: URL): string[] {
  // In a checkout, tsx also resolves what examples import to the sources.
  const isSource = runner.pathname.endsWith('.ts')
  if (!isSource && (!TYPESCRIPT.test(path) || stripsTypes())) return []
  for (const from of [pathToFileURL(path), runner]) {
    const loader = tryResolve(from, 'tsx')
    if (loader !== undefined) return ['--import', pathToFileURL(loader).href]
  }
  throw usageError(`${path} is TypeScript. Install tsx beside it, or use a Node version that strips types`)
}

function stripsTypes(): boolean {
  return Boolean((process.features as { typescript?: unknown }).typescript)
}

function tryResolve(from: URL, name: string): string | undefined {
  try {
    return createRequire(from).resolve(name)
  } catch {
    return undefined
  }
}

/**
 * The servers of `rondo bridge`: one from the command line, or several from a file with the `mcpServers` object that hosts use.
 * A mistake in the file is an error that names the server and the key; nothing is started then.
 */

import { readFileSync } from 'node:fs'
import { dirname, resolve } from 'node:path'
import type { UpstreamOptions } from '@rondo/gateway'
import { isRecord, nearest } from 'rondo/internal'
import { type Options, usageError } from '../command-line.ts'
import { readRevision, requestHeaders, toTarget } from '../connection.ts'
import { storedAuth } from '../home.ts'
import type { Io } from '../io.ts'
import { type NamedTarget, takeTarget } from '../words.ts'

export interface BridgedServers {
  readonly upstreams: Readonly<Record<string, UpstreamOptions>>
  /** True if requests carry a login, a token or other headers of this user. */
  readonly loggedIn: boolean
}

/** The server that the words or the command after `--` name. */
export async function oneServer(
  io: Io,
  words: readonly string[],
  rest: readonly string[] | undefined,
  options: Options,
): Promise<BridgedServers> {
  const { target, words: others } = takeTarget(words, rest, io.cwd)
  if (others.length > 0) throw usageError(`Unexpected argument "${others[0]}"`)
  const name = options.text('name') ?? nameOf(target)
  const headers = requestHeaders(io, options)
  const auth = await storedAuth(io, target, headers)
  const timeout = options.number('timeout')
  const common = {
    revision: readRevision(options),
    ...(timeout !== undefined && { timeoutMs: timeout * 1000 }),
    ...toolChoice(options),
  }
  const place = toTarget(io, target, options, () => {})
  if (typeof place === 'string') {
    const sent = hasAny(headers) ? { headers } : {}
    return {
      upstreams: { [name]: { url: place, ...sent, ...(auth && { auth }), ...common } },
      loggedIn: auth !== undefined || hasAny(headers),
    }
  }
  const { command, args, env, cwd } = place
  return { upstreams: { [name]: { command, args, env, cwd, ...common } }, loggedIn: false }
}

const hasAny = (headers: object = {}): boolean => Object.keys(headers).length > 0

function toolChoice(options: Options): Pick<UpstreamOptions, 'only' | 'except'> {
  const [only, except] = [options.list('only'), options.list('except')]
  if (only.length > 0 && except.length > 0) throw usageError('--only and --except exclude each other')
  return { ...(only.length > 0 && { only }), ...(except.length > 0 && { except }) }
}

/** A short name for a server: of its host and port, or of its command. */
function nameOf(target: NamedTarget): string {
  const text =
    target.kind === 'url'
      ? new URL(target.url).host.replace(/[[\]]/g, '')
      : target.kind === 'file'
        ? target.path
        : (target.args.find((arg) => !arg.startsWith('-')) ?? target.command)
  const short =
    text
      .split(/[\\/]/)
      .at(-1)
      ?.replace(/\.[cm]?[jt]s$/, '') ?? ''
  return short.replace(/[^A-Za-z0-9_.-]/g, '-').slice(0, 64) || 'server'
}

const KEYS = [
  'command',
  'args',
  'env',
  'cwd',
  'url',
  'httpUrl',
  'headers',
  'timeout',
  'type',
  'transport',
  'disabled',
  'enabled',
  'only',
  'except',
]

/** The servers of a file. Relative folders in it are relative to the file. */
export async function serversOfFile(io: Io, file: string): Promise<BridgedServers> {
  const path = resolve(io.cwd, file)
  const servers = readServers(path)
  const entries: [string, UpstreamOptions][] = []
  let loggedIn = false
  for (const [name, value] of Object.entries(servers)) {
    const upstream = toUpstream(path, name, value)
    if (upstream === undefined) continue
    const { url, headers } = upstream
    const auth =
      url === undefined
        ? undefined
        : await storedAuth(io, { kind: 'url', url }, (headers ?? {}) as Record<string, string>)
    loggedIn ||= auth !== undefined || hasAny(headers)
    entries.push([name, auth ? { ...upstream, auth } : upstream])
  }
  if (entries.length === 0) throw usageError(`${path} has no server that is enabled`)
  return { upstreams: Object.fromEntries(entries), loggedIn }
}

function readServers(path: string): Readonly<Record<string, unknown>> {
  let text: string
  try {
    text = readFileSync(path, 'utf8')
  } catch {
    throw usageError(`No such file: ${path}`)
  }
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch (error) {
    throw usageError(`${path} is not valid JSON: ${(error as Error).message}`)
  }
  const servers = isRecord(value) ? (value.mcpServers ?? value.servers) : undefined
  if (isRecord(servers)) return servers
  throw usageError(
    `${path} needs the object "mcpServers": { "mcpServers": { "files": { "command": "node", "args": ["files.js"] } } }`,
  )
}

function toUpstream(path: string, name: string, given: unknown): UpstreamOptions | undefined {
  const of = `The server "${name}" in ${path}`
  if (!isRecord(given)) throw usageError(`${of} must be an object`)
  const value = isRecord(given.transport) ? { ...given, ...given.transport, transport: undefined } : given
  for (const key of Object.keys(value)) {
    if (KEYS.includes(key) || value[key] === undefined) continue
    const near = nearest(key, KEYS)
    throw usageError(
      `${of} has an unknown key "${key}"${near === undefined ? `. Known are ${KEYS.join(', ')}` : `. Did you mean "${near}"?`}`,
    )
  }
  if (value.disabled === true || value.enabled === false) return undefined
  const url = text(of, 'url', value.url ?? value.httpUrl)
  const command = text(of, 'command', value.command)
  if (value.type === 'sse')
    throw usageError(`${of} uses the transport of 2024-11-05 with two endpoints, which is not supported`)
  if ((url === undefined) === (command === undefined))
    throw usageError(`${of} needs either "command" or "url"`)
  const cwd = text(of, 'cwd', value.cwd)
  const { timeout } = value
  if (timeout !== undefined && !(typeof timeout === 'number' && timeout > 0))
    throw usageError(`${of}: "timeout" must be a number of milliseconds, or of seconds below 1000`)
  return {
    ...(url === undefined
      ? {
          command,
          args: list(of, 'args', value.args),
          env: texts(of, 'env', value.env),
          cwd: resolve(dirname(path), cwd ?? '.'),
        }
      : { url, headers: texts(of, 'headers', value.headers) }),
    // Hosts write seconds or milliseconds; nobody waits a quarter of an hour in seconds, or less than a second.
    ...(timeout !== undefined && { timeoutMs: timeout < 1000 ? timeout * 1000 : timeout }),
    ...(value.only !== undefined && { only: list(of, 'only', value.only) }),
    ...(value.except !== undefined && { except: list(of, 'except', value.except) }),
  }
}

function text(of: string, key: string, value: unknown): string | undefined {
  if (value === undefined || typeof value === 'string') return value
  throw usageError(`${of}: "${key}" must be a text`)
}

function list(of: string, key: string, value: unknown): readonly string[] {
  if (value === undefined) return []
  if (Array.isArray(value) && value.every((one) => typeof one === 'string')) return value
  throw usageError(`${of}: "${key}" must be a list of texts`)
}

function texts(of: string, key: string, value: unknown): Readonly<Record<string, string>> {
  if (value === undefined) return {}
  if (isRecord(value) && Object.values(value).every((one) => typeof one === 'string'))
    return value as Record<string, string>
  throw usageError(`${of}: "${key}" must be an object of texts`)
}

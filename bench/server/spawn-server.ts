/** Starts a server under test in its own process, and on its own core if the system supports that. */

import { execFileSync, spawn, spawnSync } from 'node:child_process'
import { closeSync, mkdtempSync, openSync, rmSync } from 'node:fs'
import { availableParallelism, tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { Credential } from '../load/credential.ts'
import { messageOf } from '../message-of.ts'
import type { ChildMessage } from './child.ts'
import { BUILD_VARIABLE, PLAIN_LAST } from './start.ts'

export type ServerName = 'rondo' | 'official' | 'by-hand' | 'bare'
/** Rondo with something that costs time. */
export type FormName =
  | 'rondo-plain'
  | 'rondo-log'
  | 'rondo-log-pipe'
  | 'rondo-spans'
  | 'rondo-oauth'
  | 'rondo-introspection'
  | 'rondo-dpop'
/** One that is only measured while its questions wait: with a session for each client, or with tasks in a store. */
export type SessionServerName = 'official-session' | 'rondo-task'
/** A gateway before a server that returns its questions, and before one that pushes them. */
export type GatewayName = 'gateway' | 'gateway-holding'
/** Servers of others, with dependencies of their own (`bench/peers`). */
export type PeerName = 'tmcp' | 'mcp-handler' | 'fastmcp'
/** Programs of README and guide. */
export type ProgramName = 'readme' | 'readme-inline' | 'rules' | 'rules-inline' | 'survey'

export interface Usage {
  readonly cpuMicros: number
  readonly rssBytes: number
  /** Objects and buffers; after a garbage collection, if the process can run one. */
  readonly heapBytes: number
}

export interface ServerProcess<Name = ServerName> {
  readonly name: Name
  readonly url: URL
  readonly credential?: Credential
  /** A server in the same process without the options that are measured. */
  readonly plain?: URL
  usage(): Promise<Usage>
  stop(): Promise<void>
}

type Listening = Extract<ChildMessage, { kind: 'listening' }>
type Used = Extract<ChildMessage, { kind: 'usage' }>

const SERVER_CORE = '0'
const LOAD_CORE = '1'
const CHILD = fileURLToPath(new URL('./child.js', import.meta.url))

const hasTaskset = availableParallelism() > 1 && spawnSync('taskset', ['-V']).status === 0

/** Keeps this process, which generates the load, off the servers' core. Returns whether that worked. */
export function pinLoad(): boolean {
  return hasTaskset && spawnSync('taskset', ['-a', '-cp', LOAD_CORE, String(process.pid)]).status === 0
}

interface SpawnOptions {
  readonly execArgv?: readonly string[]
  /** The directory of another checkout whose build the server runs. */
  readonly build?: string
  readonly plainLast?: boolean
}

/** The destination of the log: a file, as under many supervisors, or a pipe that another process reads, as in containers. */
const ERRORS: Readonly<Record<string, 'ignore' | 'file' | 'pipe'>> = {
  'rondo-log': 'file',
  'rondo-log-pipe': 'pipe',
  readme: 'ignore',
  'readme-inline': 'ignore',
  fastmcp: 'ignore',
}

function openErrors(name: string): { readonly errors: number | 'ignore' | 'inherit'; opened(): void } {
  const kind = ERRORS[name] ?? 'inherit'
  if (kind !== 'file' && kind !== 'pipe') return { errors: kind, opened() {} }
  const folder = mkdtempSync(join(tmpdir(), 'rondo-bench-'))
  const path = join(folder, 'stderr')
  if (kind === 'pipe') {
    execFileSync('mkfifo', [path])
    const read = ['cat', path]
    const [file = '', ...args] = hasTaskset ? ['taskset', '-c', LOAD_CORE, ...read] : read
    spawn(file, args, { stdio: 'ignore' }).unref()
  }
  const errors = openSync(path, 'w')
  return {
    errors,
    opened() {
      closeSync(errors)
      // A process that has the file open keeps it.
      rmSync(folder, { recursive: true })
    },
  }
}

export async function spawnServer<
  Name extends ServerName | FormName | SessionServerName | GatewayName | ProgramName | PeerName,
>(
  name: Name,
  tools: number,
  { execArgv = [], build, plainLast }: SpawnOptions = {},
): Promise<ServerProcess<Name>> {
  const command = [
    process.execPath,
    ...execArgv,
    CHILD,
    name,
    String(tools),
    ...(plainLast ? [PLAIN_LAST] : []),
  ]
  const [file = '', ...args] = hasTaskset ? ['taskset', '-c', SERVER_CORE, ...command] : command
  const env = build === undefined ? process.env : { ...process.env, [BUILD_VARIABLE]: build }
  const { errors, opened } = openErrors(name)
  const child = spawn(file, args, { env, stdio: ['ignore', 'ignore', errors, 'ipc'] })
  opened()
  const { url, credential, plain } = await messageOf<Listening>(child, 'listening')
  return {
    name,
    url: new URL(url),
    credential,
    plain: plain === undefined ? undefined : new URL(plain),
    async usage() {
      const answer = messageOf<Used>(child, 'usage')
      child.send('usage')
      const { cpuMicros, rssBytes, heapBytes } = await answer
      return { cpuMicros, rssBytes, heapBytes }
    },
    stop() {
      return new Promise((resolve) => {
        child.once('exit', () => resolve())
        child.disconnect()
      })
    },
  }
}

/** Starts a server under test in its own process, and on its own core if the system supports that. */

import { spawn, spawnSync } from 'node:child_process'
import { availableParallelism } from 'node:os'
import { fileURLToPath } from 'node:url'
import { messageOf } from '../message-of.ts'
import type { ChildMessage } from './child.ts'
import { BUILD_VARIABLE } from './start.ts'

export type ServerName = 'rondo' | 'official' | 'bare'
/** Rondo with something that costs time. */
export type FormName = 'rondo' | 'rondo-log' | 'rondo-spans' | 'rondo-oauth'
/** One that is only measured while its questions wait: with a session for each client, or with tasks in a store. */
export type SessionServerName = 'official-session' | 'rondo-task'
/** Programs of README and guide. */
export type ProgramName = 'readme' | 'readme-hoisted' | 'rules' | 'rules-hoisted' | 'survey'

export interface Usage {
  readonly cpuMicros: number
  readonly rssBytes: number
  /** Objects and buffers; after a garbage collection, if the process can run one. */
  readonly heapBytes: number
}

export interface ServerProcess<Name = ServerName> {
  readonly name: Name
  readonly url: URL
  /** What requests have to send as a bearer token. */
  readonly token?: string
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
}

/** Their log costs what writing it costs, and nobody reads it. */
const LOGGING: ReadonlySet<string> = new Set(['rondo-log', 'readme', 'readme-hoisted'])

export async function spawnServer<Name extends ServerName | FormName | SessionServerName | ProgramName>(
  name: Name,
  tools: number,
  { execArgv = [], build }: SpawnOptions = {},
): Promise<ServerProcess<Name>> {
  const command = [process.execPath, ...execArgv, CHILD, name, String(tools)]
  const [file = '', ...args] = hasTaskset ? ['taskset', '-c', SERVER_CORE, ...command] : command
  const env = build === undefined ? process.env : { ...process.env, [BUILD_VARIABLE]: build }
  const errors = LOGGING.has(name) ? 'ignore' : 'inherit'
  const child = spawn(file, args, { env, stdio: ['ignore', 'inherit', errors, 'ipc'] })
  const { url, token } = await messageOf<Listening>(child, 'listening')
  return {
    name,
    url: new URL(url),
    token,
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

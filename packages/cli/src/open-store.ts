/** Opens the store that a command line names: a file or a URL. A password never appears in a message. */

import { existsSync, statSync } from 'node:fs'
import { resolve } from 'node:path'
import type { Store } from 'rondo/sqlite'
import type { EngineStore } from 'rondo/store'
import { CommandError, usageError } from './command-line.ts'

export interface NamedStore<S extends Store | EngineStore = Store | EngineStore> {
  /** The store as shown to people, without a password. */
  readonly name: string
  readonly store: S
  /** Converts what a store throws into an error for people. */
  explain(error: unknown): unknown
}

const POSTGRES = /^postgres(ql)?:\/\//i
const RESTATE = /^restate\+https?:\/\//i
/** Short, because a person waits. */
const PATIENCE_MS = 2_000

/** Opens an existing store read-only: nothing is created, migrated or claimed. */
export async function openTaskStore(
  word: string,
  cwd: string,
  schema: string | undefined,
): Promise<NamedStore> {
  if (RESTATE.test(word)) return openRestate(word, schema ?? 'Rondo')
  return openTables(word, cwd, schema, 'read')
}

/** `create` creates a store that does not exist; the others need one, and `read` changes nothing. */
export async function openTables(
  word: string,
  cwd: string,
  schema: string | undefined,
  mode: 'read' | 'write' | 'create',
): Promise<NamedStore<Store>> {
  const readOnly = mode === 'read'
  if (POSTGRES.test(word)) return openPostgres(word, schema ?? 'rondo', readOnly)
  if (RESTATE.test(word)) throw usageError('Restate has no tables: name a SQLite file or a postgres:// URL')
  if (/^[a-z][a-z0-9+.-]+:\/\//i.test(word)) {
    throw usageError(`A store is a file, or a postgres:// or restate+http:// URL, not ${word.split(':')[0]}`)
  }
  const file = resolve(cwd, word)
  if (mode !== 'create' && !existsSync(file)) throw new CommandError('stored', `No such file: ${file}`)
  if (existsSync(file) && !statSync(file).isFile()) throw new CommandError('stored', `${file} is not a file`)
  const { createSqliteStore } = await import('rondo/sqlite')
  const store = createSqliteStore({ file, readOnly, busyMs: PATIENCE_MS })
  return { name: word, store, explain: (error) => explain(error, word) }
}

async function openPostgres(
  connectionString: string,
  schema: string,
  readOnly: boolean,
): Promise<NamedStore<Store>> {
  const { name, password } = hidePassword(connectionString)
  const { createPostgresStore } = await import('rondo/postgres')
  const how = { readOnly, listen: false, maxConnections: 1, retryMs: PATIENCE_MS }
  const hide = (text: string): string => (password === '' ? text : text.replaceAll(password, '…'))
  try {
    const store = createPostgresStore({ connectionString, schema, ...how })
    return { name, store, explain: (error) => explain(error, name, hide) }
  } catch (error) {
    throw usageError((error as Error).message)
  }
}

async function openRestate(word: string, namespace: string): Promise<NamedStore> {
  const { name, password } = hidePassword(word)
  const url = new URL(word.slice('restate+'.length))
  // Node's client ignores a password in an address.
  const login = Buffer.from(`${decodeURIComponent(url.username)}:${decodeURIComponent(url.password)}`)
  const headers = url.username === '' ? undefined : { Authorization: `Basic ${login.toString('base64')}` }
  url.username = ''
  url.password = ''
  const { createRestateStore } = await import('@rondo/restate')
  const hide = (text: string): string => (password === '' ? text : text.replaceAll(password, '…'))
  try {
    // Only the admin API is asked.
    const address = url.href
    const store = createRestateStore({
      ingress: address,
      admin: address,
      namespace,
      headers,
      retryMs: PATIENCE_MS,
    })
    return { name, store, explain: (error) => explain(error, name, hide) }
  } catch (error) {
    throw usageError((error as Error).message)
  }
}

/** The URL without its password, and the password as it may show up elsewhere. */
function hidePassword(text: string): { name: string; password: string } {
  // Everything up to the last @ may be a password that was not encoded.
  const [, start = '', user = '', password = '', end = ''] =
    /^([^:]+:\/\/)([^:/?#]*):(.*)(@.*)$/s.exec(text) ?? []
  const name = start === '' ? text : `${start}${user}${end}`
  return { name: name.replace(/([?&]password=)[^&#]*/gi, '$1…'), password }
}

function explain(error: unknown, name: string, hide = (text: string): string => text): unknown {
  if (!(error instanceof Error)) return error
  const { cause, message } = error
  // Thrown if a driver is missing; the message says what to do.
  if (error instanceof TypeError) return usageError(hide(message))
  const { code } = error as { code?: unknown }
  const why = cause instanceof Error ? `: ${hide(cause.message)}` : ''
  const plain = message.replace(/^\[\w+\] /, '')
  if (code === 'STORE_UNAVAILABLE') return new CommandError('unreachable', `Cannot read ${name}${why}`)
  return code === 'STORE_SCHEMA' ? new CommandError('stored', `${hide(plain)}${why}`) : error
}

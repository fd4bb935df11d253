/**
 * Opens a store of tasks to look at it: a SQLite file or a PostgreSQL database, which must be there. Nothing is made, brought
 * up to date or claimed. A password is never part of what is said.
 */

import { existsSync, statSync } from 'node:fs'
import { resolve } from 'node:path'
import type { Store } from '../sqlite.ts'
import { CommandError, usageError } from './command-error.ts'

export interface NamedStore {
  /** For people. */
  readonly name: string
  readonly store: Store
  /** What was thrown, as an error for people. */
  explain(error: unknown): unknown
}

const POSTGRES = /^postgres(ql)?:\/\//i
/** A person waits. */
const PATIENCE_MS = 2_000

export async function openTaskStore(word: string, cwd: string, schema: string): Promise<NamedStore> {
  if (POSTGRES.test(word)) return openPostgres(word, schema)
  if (/^[a-z][a-z0-9+.-]+:\/\//i.test(word)) {
    throw usageError(`A store is a file or a postgres:// URL, not ${word.split(':')[0]}`)
  }
  const file = resolve(cwd, word)
  if (!existsSync(file)) throw new CommandError('stored', `There is no file ${file}`)
  if (!statSync(file).isFile()) throw new CommandError('stored', `${file} is not a file`)
  const { createSqliteStore } = await import('../sqlite.ts')
  const store = createSqliteStore({ file, readOnly: true, busyMs: PATIENCE_MS })
  return { name: word, store, explain: (error) => explain(error, word) }
}

async function openPostgres(connectionString: string, schema: string): Promise<NamedStore> {
  const { name, password } = hidePassword(connectionString)
  const { createPostgresStore } = await import('../postgres.ts')
  const how = { readOnly: true, listen: false, maxConnections: 1, retryMs: PATIENCE_MS }
  const hide = (text: string): string => (password === '' ? text : text.replaceAll(password, '…'))
  try {
    const store = createPostgresStore({ connectionString, schema, ...how })
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
  // Thrown where a driver is missing, with what to do about it.
  if (error instanceof TypeError) return usageError(hide(message))
  const { code } = error as { code?: unknown }
  const why = cause instanceof Error ? `: ${hide(cause.message)}` : ''
  const plain = message.replace(/^\[\w+\] /, '')
  if (code === 'STORE_UNAVAILABLE') return new CommandError('unreachable', `${name} cannot be read${why}`)
  return code === 'STORE_SCHEMA' ? new CommandError('stored', `${hide(plain)}${why}`) : error
}

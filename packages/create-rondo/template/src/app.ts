/** The server with its keys and its store, for `main.ts` and for the console. README.md lists the environment variables. */

import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { generateKey } from 'rondo'
import { createPostgresStore } from 'rondo/postgres'
import { createSqliteStore } from 'rondo/sqlite'
import { createTracker } from './server.ts'

const FOLDER = '.rondo'

/** A key for this machine alone, kept beside the tasks that it seals. In production the keys come from RONDO_KEYS. */
function localKey(): string {
  const file = `${FOLDER}/key`
  mkdirSync(FOLDER, { recursive: true })
  try {
    writeFileSync(file, generateKey('local'), { mode: 0o600, flag: 'wx' })
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error
  }
  return readFileSync(file, 'utf8')
}

/** PostgreSQL for a fleet; a SQLite file for one machine. */
function openStore(connectionString: string | undefined) {
  if (connectionString) return createPostgresStore({ connectionString })
  mkdirSync(FOLDER, { recursive: true })
  return createSqliteStore({ file: `${FOLDER}/tasks.db` })
}

const { NODE_ENV, RONDO_KEYS, DATABASE_URL, ALLOWED_HOSTS, ADDRESS_HEADER } = process.env

export default createTracker({
  dev: process.argv.includes('--dev') || undefined,
  keys: RONDO_KEYS || NODE_ENV === 'production' ? undefined : localKey(),
  store: openStore(DATABASE_URL),
  allowedHosts: ALLOWED_HOSTS?.split(','),
  addressHeader: ADDRESS_HEADER,
})

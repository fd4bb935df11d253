/**
 * Queries that survive a lost connection: they are retried with exponential backoff for a bounded time. The package `pg`
 * is loaded only here, when the first query runs and no pool was passed.
 *
 * A statement may have been executed although its response was lost, so every statement of this store can be repeated;
 * `retried` tells the callers that need to find out whether their first attempt succeeded.
 */

import { createHash } from 'node:crypto'
import { misuse, RondoError } from '../../errors.ts'

export type PgRow = Readonly<Record<string, unknown>>

interface PgResult {
  readonly rows: PgRow[]
}

export interface PgClient {
  query(text: string, values?: unknown[]): Promise<PgResult>
  release(destroy?: boolean | Error): void
  on(event: 'notification', listener: (message: { channel: string; payload?: string }) => void): unknown
  on(event: 'error', listener: (error: Error) => void): unknown
}

/** The part of the `Pool` of the package `pg` that is used. */
export interface PgPool {
  query(text: string, values?: unknown[]): Promise<PgResult>
  connect(): Promise<PgClient>
  end(): Promise<void>
  on(event: 'error', listener: (error: Error) => void): unknown
  on(event: 'connect' | 'acquire', listener: (client: PgClient) => void): unknown
}

/** The client of the package `pg`: a statement may have its own time limit. */
interface PatientClient {
  query(statement: { text: string; query_timeout: number }): Promise<PgResult>
}

/** The pool of the package `pg`: a statement with a name is parsed and planned once for each connection. */
interface PreparingPool {
  query(statement: { name: string; text: string; values: unknown[] }): Promise<PgResult>
}

interface PoolOptions {
  readonly connectionString?: string
  readonly pool?: PgPool
  readonly maxConnections: number
  readonly retryMs: number
  /** Whether connections are ours alone. Behind a pooler, a name that one of them knows means nothing on the next. */
  readonly prepares: boolean
}

export interface Execution {
  readonly rows: PgRow[]
  readonly retried: boolean
}

export interface ResilientPool {
  /** Retries for `retryMs`, counted from `since` (of `performance.now`); at least one attempt is made. */
  query(text: string, values: unknown[], since?: number): Promise<Execution>
  /** Tries once, and rejects with the error of the driver. */
  attempt(text: string, values: unknown[]): Promise<PgRow[]>
  /** Whether another attempt may succeed after this error. */
  mayRetry(error: unknown): boolean
  /** The error of statements that were waiting when the pool was ended; undefined before. */
  closed(): Error | undefined
  /** Whether a statement that is due since then may still be retried. */
  mayStillRetry(since: number): boolean
  /** Runs `body` in a transaction on one connection. Not retried. */
  transaction<T>(
    body: (query: (text: string, values?: unknown[]) => Promise<PgRow[]>) => Promise<T>,
  ): Promise<T>
  /** Runs a statement that may take up to `ms`, outside a transaction. Not retried, and given up when the pool ends. */
  runLong(text: string, ms: number): Promise<void>
  /** A connection for the caller alone, until it is released. */
  connect(): Promise<PgClient>
  end(): Promise<void>
}

/** How long running statements may take when the store is closed. */
const CLOSE_MS = 3_000

export function createResilientPool(options: PoolOptions): ResilientPool {
  let opened: Promise<PgPool> | undefined
  let ended = false
  let ending: Promise<void> | undefined
  const waiting = new Set<(error: Error) => void>()
  const open = () => {
    if (ended) throw misuse('This store is closed')
    opened ??= openPool(options)
    return opened
  }
  /** A pool that ends drops its queue without a word, so the waiting calls are rejected here. */
  const orClosed = <T>(work: Promise<T>): Promise<T> =>
    new Promise((resolve, reject) => {
      waiting.add(reject)
      work.then(resolve, reject).finally(() => waiting.delete(reject))
    })
  let { prepares } = options
  const attempt = async (text: string, values: unknown[]): Promise<PgRow[]> => {
    const pool = await open()
    if (!prepares) return (await orClosed(pool.query(text, values))).rows
    try {
      const named = { name: nameOf(text), text, values }
      return (await orClosed((pool as PgPool & PreparingPool).query(named))).rows
    } catch (error) {
      // It was refused before it ran: there is a pooler that nobody told us of.
      if (!isUnprepared(error)) throw error
      prepares = false
      return attempt(text, values)
    }
  }
  const mayRetry = (error: unknown) => !ended && isTransient(error)
  const mayStillRetry = (since: number) => performance.now() <= since + options.retryMs
  const longRunning = new Set<PgClient>()
  const drop = (client: PgClient, destroy: boolean) => {
    if (longRunning.delete(client)) client.release(destroy)
  }
  const end = async () => {
    ended = true
    for (const client of longRunning) drop(client, true)
    const pool = await opened?.catch(() => undefined)
    if (options.pool !== undefined || pool === undefined) return
    await within(CLOSE_MS, pool.end())
    for (const fail of waiting) fail(closedWhileWaiting())
  }
  return {
    async query(text, values, since = performance.now()) {
      for (let tries = 0; ; tries++) {
        try {
          return { rows: await attempt(text, values), retried: tries > 0 }
        } catch (error) {
          if (!mayRetry(error)) throw error
          if (!mayStillRetry(since)) throw toStoreError(error)
          await new Promise((resolve) => setTimeout(resolve, pause(tries)))
        }
      }
    },
    attempt,
    mayRetry,
    mayStillRetry,
    closed: () => (ended ? closedWhileWaiting() : undefined),
    async transaction(body) {
      const connecting = (await open()).connect()
      const client = await orClosed(connecting).catch((error) => {
        connecting.then((late) => late.release(true), ignore)
        throw error
      })
      let failed = true
      try {
        await client.query('BEGIN')
        const result = await body(async (text, values) => (await client.query(text, values)).rows)
        await client.query('COMMIT')
        failed = false
        return result
      } finally {
        // A connection in an unknown state is discarded.
        client.release(failed)
      }
    },
    async runLong(text, ms) {
      const client = await (await open()).connect()
      longRunning.add(client)
      if (ended) drop(client, true)
      let failed = true
      try {
        await (client as PgClient & PatientClient).query({ text, query_timeout: ms })
        failed = false
      } finally {
        drop(client, failed)
      }
    },
    connect: async () => (await open()).connect(),
    end() {
      ending ??= end()
      return ending
    },
  }
}

const closedWhileWaiting = (): Error =>
  new RondoError('STORE_UNAVAILABLE', 'the store was closed while the query waited')

const ignore = (): void => {}

/** Resolves when the work is done, or after `ms`. */
async function within(ms: number, work: Promise<unknown>): Promise<void> {
  let timer: NodeJS.Timeout | undefined
  const over = new Promise((resolve) => {
    timer = setTimeout(resolve, ms)
  })
  await Promise.race([work, over])
  clearTimeout(timer)
}

async function openPool({ connectionString, pool, maxConnections }: PoolOptions): Promise<PgPool> {
  const ours = pool ?? (await createPool(connectionString, maxConnections))
  // An idle connection that breaks is replaced by the next query; without a listener the error would end the process.
  ours.on('error', ignore)
  ours.on('connect', guard)
  // A pool of the caller may have connections already.
  ours.on('acquire', guard)
  return ours
}

const guarded = new WeakSet<PgClient>()

/**
 * A connection that breaks emits an error even while a statement is running, and the pool listens only to idle
 * connections. So every connection has a listener for all of its life; the running statement rejects with the error.
 */
function guard(client: PgClient): void {
  if (guarded.has(client)) return
  guarded.add(client)
  client.on('error', ignore)
}

async function createPool(connectionString: string | undefined, max: number): Promise<PgPool> {
  const { default: pg } = await import('pg').catch((cause) => {
    throw misuse('The PostgreSQL store needs the package "pg": run npm install pg', { cause })
  })
  return new pg.Pool({
    connectionString,
    max,
    connectionTimeoutMillis: 5_000,
    query_timeout: 15_000,
    keepAlive: true,
    application_name: 'rondo',
  })
}

const names = new Map<string, string>()

/** Statements with one name are the same, whichever process named them: behind a pooler they may meet. */
function nameOf(text: string): string {
  const name = names.get(text) ?? `rondo_${createHash('sha256').update(text).digest('hex').slice(0, 40)}`
  names.set(text, name)
  return name
}

/** The connection does not know the name, knows it already, or knows a plan for tables that have changed since. */
function isUnprepared(error: unknown): boolean {
  const code = codeOf(error)
  return code === '26000' || code === '42P05' || code === '0A000'
}

/** 20, 40, 80 … 1000 ms, with jitter of a half, so that processes do not reconnect all at once. */
export const pause = (tries: number): number => Math.min(20 * 2 ** tries, 1000) * (0.5 + Math.random())

/** Connection lost, server starting or stopping, too many connections, deadlock: a retry may succeed. */
function isTransient(error: unknown): boolean {
  if (!(error instanceof Error)) return false
  const { code = '' } = error as { code?: string }
  if (/^(08...|57P0[123]|53300|40001|40P01)$/.test(code)) return true
  if (
    /^(ECONNREFUSED|ECONNRESET|EPIPE|ETIMEDOUT|ENOTFOUND|EAI_AGAIN|ENETUNREACH|EHOSTUNREACH|ENOENT)$/.test(
      code,
    )
  )
    return true
  return /Connection terminated|connection timeout|timeout exceeded when trying to connect|Query read timeout|connection error and is not queryable/i.test(
    error.message,
  )
}

/** Our own errors unchanged; every other with a sentence that says what is wrong and what to do. */
export function toStoreError(error: unknown): Error {
  if (error instanceof RondoError || error instanceof TypeError) return error
  const code = codeOf(error) === '42501' ? 'STORE_SCHEMA' : 'STORE_UNAVAILABLE'
  return new RondoError(code, explain(error), { cause: error })
}

/** The server's own words are quoted only where they can name nothing but a database, a role or a table. */
function explain(error: unknown): string {
  const message = error instanceof Error ? error.message : ''
  switch (codeOf(error)) {
    case '3D000':
      return `PostgreSQL: ${message}. Create the database, or correct its name in connectionString or PGDATABASE`
    case '28P01':
    case '28000':
      return `PostgreSQL: ${message}. Correct the user and the password in connectionString, or PGUSER and PGPASSWORD`
    case '42501':
      return `PostgreSQL: ${message}. Grant the role the right to use the tables, and to create them if they do not exist`
    case 'ECONNREFUSED':
      return `PostgreSQL refused the connection at ${placeOf(error)}. Start the server, or correct host and port in connectionString, or PGHOST and PGPORT`
    case 'ENOTFOUND':
      return 'The host name of the PostgreSQL server is unknown. Correct it in connectionString or PGHOST'
    default:
      if (message.startsWith('SASL: '))
        return 'PostgreSQL requires a password. Set it in connectionString or PGPASSWORD'
      return isTransient(error)
        ? 'PostgreSQL could not be reached, or closed the connection'
        : 'PostgreSQL could not complete the operation'
  }
}

function codeOf(error: unknown): unknown {
  return error instanceof Error ? (error as { code?: unknown }).code : undefined
}

/** A host name with several addresses fails with one error for each. */
function placeOf(error: unknown): string {
  const all = error instanceof AggregateError ? error.errors : [error]
  const places = all.map(({ address, port }: { address?: string; port?: number }) => [address, port])
  return places.map((place) => place.filter((part) => part !== undefined).join(':')).join(' and ')
}

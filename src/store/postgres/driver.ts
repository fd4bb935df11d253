/**
 * Queries that survive a lost connection: tried again, with growing pauses, for a bounded time. The package `pg` is
 * loaded only here, when the first query runs and no pool was given.
 *
 * A statement that was sent may have been done although its answer got lost, so every statement of this store is written
 * to be repeated; `retried` tells those that have to look what became of them.
 */

import { misuse, RondoError } from '../../errors.ts'

export type PgRow = Readonly<Record<string, unknown>>

export interface PgResult {
  readonly rows: PgRow[]
}

export interface PgClient {
  query(text: string, values?: unknown[]): Promise<PgResult>
  release(destroy?: boolean | Error): void
  on(event: 'notification', listener: (message: { channel: string; payload?: string }) => void): unknown
  on(event: 'error', listener: (error: Error) => void): unknown
}

/** The part of `Pool` of the package `pg` that is used. */
export interface PgPool {
  query(text: string, values?: unknown[]): Promise<PgResult>
  connect(): Promise<PgClient>
  end(): Promise<void>
  on(event: 'error', listener: (error: Error) => void): unknown
  on(event: 'connect' | 'acquire', listener: (client: PgClient) => void): unknown
}

export interface PoolOptions {
  readonly connectionString?: string
  readonly pool?: PgPool
  readonly maxConnections: number
  readonly retryMs: number
}

export interface Answer {
  readonly rows: PgRow[]
  readonly retried: boolean
}

export interface ResilientPool {
  query(text: string, values: unknown[]): Promise<Answer>
  /** Runs `body` in a transaction on one connection. Not retried. */
  transaction<T>(
    body: (query: (text: string, values?: unknown[]) => Promise<PgRow[]>) => Promise<T>,
  ): Promise<T>
  /** A connection that is not given back until its holder releases it. */
  connect(): Promise<PgClient>
  end(): Promise<void>
}

/** How long statements under way may take when the store is closed. */
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
  /** A pool that ends forgets whoever waits in its queue: they are told here. */
  const orClosed = <T>(work: Promise<T>): Promise<T> =>
    new Promise((resolve, reject) => {
      waiting.add(reject)
      work.then(resolve, reject).finally(() => waiting.delete(reject))
    })
  const end = async () => {
    ended = true
    const pool = await opened?.catch(() => undefined)
    if (options.pool !== undefined || pool === undefined) return
    await within(CLOSE_MS, pool.end())
    for (const fail of waiting) fail(new RondoError('STORE_UNAVAILABLE', 'the store was closed'))
  }
  return {
    async query(text, values) {
      const pool = await open()
      const until = performance.now() + options.retryMs
      for (let tries = 0; ; tries++) {
        try {
          const { rows } = await orClosed(pool.query(text, values))
          return { rows, retried: tries > 0 }
        } catch (error) {
          if (ended || !isTransient(error)) throw error
          if (performance.now() > until) throw unavailable(error)
          await new Promise((resolve) => setTimeout(resolve, pause(tries)))
        }
      }
    },
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
        // A connection in an unknown state is not worth saving.
        client.release(failed)
      }
    },
    connect: async () => (await open()).connect(),
    end() {
      ending ??= end()
      return ending
    },
  }
}

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
  // An idle connection that breaks is replaced with the next query; without a listener it would end the process.
  ours.on('error', ignore)
  ours.on('connect', guard)
  // A pool that was given may have connections already.
  ours.on('acquire', guard)
  return ours
}

const guarded = new WeakSet<PgClient>()

/**
 * A connection that breaks emits an error whether or not a statement is under way, and the pool listens only to those
 * that are idle. So every connection has a listener for as long as it lives: whoever waits for a statement gets the error
 * from that statement.
 */
function guard(client: PgClient): void {
  if (guarded.has(client)) return
  guarded.add(client)
  client.on('error', ignore)
}

async function createPool(connectionString: string | undefined, max: number): Promise<PgPool> {
  const { default: pg } = await import('pg').catch((cause) => {
    throw misuse('The PostgreSQL store needs the package "pg": install it', { cause })
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

/** 20, 40, 80 … 1000 ms, give or take a half: many processes come back at different moments. */
const pause = (tries: number): number => Math.min(20 * 2 ** tries, 1000) * (0.5 + Math.random())

/** Connection lost, server starting or stopping, too many connections, deadlock: the next try may succeed. */
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

function unavailable(cause: unknown): RondoError {
  return new RondoError('STORE_UNAVAILABLE', 'PostgreSQL could not be reached', { cause })
}

/** What a caller gets when the database said no. */
export function toStoreError(error: unknown): Error {
  if (error instanceof RondoError || error instanceof TypeError) return error
  return unavailable(error)
}

/**
 * What the parts of a SQLite store share. Nothing is opened until the first statement runs, so that a server which
 * never uses its store leaves no file behind.
 */

import { readFileSync, readlinkSync } from 'node:fs'
import { misuse, RondoError } from '../../errors.ts'
import { createHintBus, type HintBus } from '../input-slots.ts'
import { isBusy, type SqliteConnection, type SqliteStatement, toStoreError } from './driver.ts'

export interface SqliteSession {
  /** A statement that is compiled when it is first used. */
  sql(text: string): SqliteStatement
  readonly queue: CommitQueue
  /** Looks once, at once; throws if the file is locked. */
  peek<T>(op: () => T): T
  readonly hints: HintBus
  readonly now: () => number
  close(): Promise<void>
}

export interface SessionOptions {
  readonly busyMs: number
  readonly now: () => number
  /**
   * Done before the first statement, and again until it was. A connection that was closed may go on holding its locks until it
   * is collected, so one that could not be prepared is not replaced by another.
   */
  readonly prepare: (connection: SqliteConnection) => void
  /** Begins to look for what other processes write; gives the end of it. */
  readonly attach: (session: SqliteSession) => () => void
}

/** A worker as rows name it: with its process, so that others can tell when that has ended. */
export const workerName = (worker: string): string => `${processTag()} ${worker}`

export function createSession(
  connect: () => SqliteConnection,
  { busyMs, now, attach, prepare }: SessionOptions,
): SqliteSession {
  let connection: SqliteConnection | undefined
  let prepared = false
  let closed = false
  const open = () => {
    if (closed) throw misuse('This store is closed')
    connection ??= connect()
    if (!prepared) prepare(connection)
    prepared = true
    return connection
  }
  const sql = (text: string): SqliteStatement => {
    let compiled: SqliteStatement | undefined
    const ready = () => {
      // Asked each time: a driver may go on serving statements of a file that was closed.
      const opened = open()
      compiled ??= opened.prepare(text)
      return compiled
    }
    return {
      get: (...values) => ready().get(...values),
      all: (...values) => ready().all(...values),
      run: (...values) => ready().run(...values),
    }
  }
  const queue = createCommitQueue(open, busyMs)
  const hints = createHintBus(() => attach(session))
  const session: SqliteSession = {
    sql,
    queue,
    peek: (op) => open().read(op),
    hints,
    now,
    async close() {
      hints.close()
      await queue.close()
      closed = true
      connection?.close()
      connection = undefined
    },
  }
  return session
}

/*
 * Names a process so that others on the same machine can tell whether it is still there: after a crash its work can go
 * on at once instead of waiting for a lease. Only where the system tells (Linux); elsewhere nobody is ever declared gone.
 */

/** This process: boot, namespace of process ids, process id, and when it began; ids are used again, beginnings are not. */
export function processTag(): string {
  own ??= `${systemTag()}:${process.pid}:${startOf(process.pid) ?? 'unknown'}`
  return own
}

let own: string | undefined

/** True only if the tag is from this system and its process has ended. */
export function isProcessGone(tag: string): boolean {
  const [, system, pid, start] = /^(.+:.+):(\d+):(\d+)$/.exec(tag) ?? []
  if (system === undefined || system !== systemTag()) return false
  return startOf(Number(pid)) !== start
}

let system: string | undefined

function systemTag(): string {
  system ??= readSystemTag()
  return system
}

function readSystemTag(): string {
  try {
    const boot = readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim()
    return `${boot}:${readlinkSync('/proc/self/ns/pid').replace(/\D/g, '')}`
  } catch {
    return 'no:proc'
  }
}

/** Undefined for a process that is not there, or is dead and only waits for its parent to notice. */
function startOf(pid: number): string | undefined {
  try {
    // The name in parentheses may hold spaces: fields are counted behind it. State is the 3rd, start the 22nd.
    const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ').at(-1)?.split(' ') ?? []
    return fields[0] === 'Z' || fields[0] === 'X' ? undefined : fields[19]
  } catch {
    return undefined
  }
}

/*
 * Group commit: all writes of one moment share a transaction, so that they share its wait for the disk. A caller's
 * promise resolves after the commit, never before.
 *
 * A write is a function that may be run again: if one of them throws, the transaction is rolled back and each is run in
 * its own, so that only the one at fault fails. If another process holds the file, everybody waits without
 * blocking this process, for a bounded time.
 */

interface Write {
  readonly op: () => unknown
  readonly resolve: (result: never) => void
  readonly reject: (error: unknown) => void
  readonly since: number
}

interface Held {
  readonly writes: readonly Write[]
  readonly error: unknown
}

export interface CommitQueue {
  /** Runs `op` in a transaction. */
  write<T>(op: () => T): Promise<T>
  /** Runs `op`, which only looks. */
  read<T>(op: () => T): Promise<T>
  /** Takes no more writes; resolves when those that wait are done. */
  close(): Promise<void>
}

/** One transaction holds up the event loop: it must stay short. */
const MAX_BATCH = 256

export function createCommitQueue(open: () => SqliteConnection, busyMs: number): CommitQueue {
  let queue: Write[] = []
  let scheduled = false
  let closed = false
  let tries = 0

  const transact = (writes: readonly Write[]): unknown[] => {
    const connection = open()
    connection.exec('BEGIN IMMEDIATE')
    try {
      const results = writes.map(({ op }) => op())
      connection.exec('COMMIT')
      return results
    } catch (error) {
      rollbackQuietly(connection)
      throw error
    }
  }
  /** Does the writes. Where another process holds the file, gives those that were not done. */
  const attempt = (writes: readonly Write[]): Held | undefined => {
    try {
      const results = transact(writes)
      writes.forEach(({ resolve }, i) => {
        resolve(results[i] as never)
      })
    } catch (error) {
      if (isBusy(error)) return { writes, error }
      if (writes.length > 1) return attemptEach(writes)
      writes[0]?.reject(toStoreError(error))
    }
    return undefined
  }
  const attemptEach = (writes: readonly Write[]): Held | undefined => {
    for (const [i, write] of writes.entries()) {
      const held = attempt([write])
      if (held) return { ...held, writes: writes.slice(i) }
    }
    return undefined
  }
  const flush = () => {
    scheduled = false
    const held = attempt(queue.splice(0, MAX_BATCH))
    if (held) queue = [...giveUpOld(held.writes, busyMs, held.error), ...queue]
    tries = held ? tries + 1 : 0
    schedule()
  }
  const schedule = () => {
    if (scheduled || queue.length === 0) return
    scheduled = true
    if (tries === 0) setImmediate(flush)
    else setTimeout(flush, pause(tries))
  }
  return {
    write: (op) =>
      new Promise((resolve, reject) => {
        // Whoever is busy always has a next one: the end must not wait for that.
        if (closed) return reject(misuse('This store is closed'))
        queue.push({ op, resolve, reject, since: performance.now() })
        schedule()
      }),
    read: (op) => readPatiently(() => open().read(op), busyMs),
    async close() {
      closed = true
      while (queue.length > 0) await new Promise(setImmediate)
    },
  }
}

/** Some failures (a full disk) have ended the transaction already. */
function rollbackQuietly(connection: SqliteConnection): void {
  try {
    connection.exec('ROLLBACK')
  } catch {}
}

/** Random, so that two processes do not meet again and again. */
const pause = (tries: number): number => Math.random() * Math.min(2 ** tries, 50)

function giveUpOld(writes: readonly Write[], busyMs: number, cause: unknown): Write[] {
  return writes.filter(({ since, reject }) => {
    if (performance.now() - since < busyMs) return true
    reject(new RondoError('STORE_UNAVAILABLE', 'the SQLite file stayed locked', { cause }))
    return false
  })
}

async function readPatiently<T>(op: () => T, busyMs: number): Promise<T> {
  const until = performance.now() + busyMs
  for (let tries = 1; ; tries++) {
    try {
      return op()
    } catch (error) {
      if (!isBusy(error) || performance.now() > until) throw toStoreError(error)
      await new Promise((resolve) => setTimeout(resolve, pause(tries)))
    }
  }
}

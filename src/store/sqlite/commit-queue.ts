/**
 * Group commit: all writes of one moment share a transaction, so that they share its wait for the disk. A caller's
 * promise resolves after the commit, never before.
 *
 * A write is a function that may be run again: if one of them throws, the transaction is rolled back and each is run in
 * its own, so that only the one at fault fails. If another process holds the file, everybody waits without
 * blocking this process, for a bounded time.
 */

import { misuse, RondoError } from '../../errors.ts'
import { isBusy, type SqliteConnection, toStoreError } from './sqlite-driver.ts'

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

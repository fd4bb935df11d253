/**
 * The bus over a table of a database: publishing, reading and their limits. A database only has to append rows, read the
 * ones after a position, and say from time to time that there may be new ones.
 */

import { repeat, type StoreClock, storeClock } from '../lib/clock.ts'
import type { Bus, BusListener, BusSubscription } from './store.ts'

export interface BusRow {
  /** Grows with every row, in the order in which rows become visible. */
  readonly position: number
  /** An empty one says that messages were lost. */
  readonly message: string
}

/** The operations of a database for the bus. */
export interface BusTable {
  /** Appends messages, which stay for `BUS_LIMITS.keepMs`, and deletes all but the last `BUS_LIMITS.keepRows`. */
  append(messages: readonly string[]): Promise<void>
  /** Up to `limit` rows after a position, oldest first, and the position of the oldest row of all. */
  read(after: number, limit: number): Promise<{ readonly rows: readonly BusRow[]; readonly oldest?: number }>
  /** The position of the newest row; 0 if there has been none. */
  newest(): Promise<number>
  /** Calls `listener` whenever there may be new rows. */
  onHint(listener: () => void): () => void
  /** How often to look for rows that no hint announced. */
  readonly pollMs: number
}

interface BusLimits {
  /** Characters of a message. */
  readonly message: number
  /** Messages that wait to be written; then they are replaced by one that says that messages were lost. */
  readonly queue: number
  /** Messages of one write, and of one read. */
  readonly batch: number
  /** The least time between two writes of a process, and between two reads of a listener. */
  readonly spacingMs: number
  /** A listener that is further behind skips to the end. */
  readonly behind: number
  /** How long a message stays, and how many of them. */
  readonly keepMs: number
  readonly keepRows: number
}

export const BUS_LIMITS: BusLimits = {
  message: 16_384,
  queue: 1_024,
  batch: 256,
  spacingMs: 20,
  behind: 4_096,
  keepMs: 10 * 60_000,
  keepRows: 16_384,
}

const LOST = ''

export function createBus(table: BusTable, clock: StoreClock = storeClock): Bus {
  const publish = createPublisher(table, clock)
  return { publish, subscribe: (listener) => follow(table, listener, clock) }
}

interface Queued {
  readonly done: (() => void)[]
  readonly fail: ((error: unknown) => void)[]
}

function createPublisher(table: BusTable, clock: StoreClock): Bus['publish'] {
  let queue = new Map<string, Queued>()
  let busy = false
  const flush = async (): Promise<void> => {
    busy = true
    while (queue.size > 0) {
      const batch = [...queue].slice(0, BUS_LIMITS.batch)
      for (const [message] of batch) queue.delete(message)
      try {
        await table.append(batch.map(([message]) => message))
        for (const [, { done }] of batch) for (const resolve of done) resolve()
      } catch (error) {
        for (const [, { fail }] of batch) for (const reject of fail) reject(error)
      }
      await new Promise<void>((resolve) => void clock.idly(BUS_LIMITS.spacingMs, resolve))
    }
    busy = false
  }
  return (message) =>
    new Promise((resolve, reject) => {
      if (message.length > BUS_LIMITS.message)
        return reject(
          new RangeError(`A message of the bus may have at most ${BUS_LIMITS.message} characters`),
        )
      if (queue.size >= BUS_LIMITS.queue && !queue.has(message)) queue = shorten(queue)
      const queued = queue.get(message) ?? { done: [], fail: [] }
      queued.done.push(resolve)
      queued.fail.push(reject)
      queue.set(message, queued)
      if (!busy) void flush()
    })
}

/** One message in place of all: whoever published them is told when that one is written. */
function shorten(queue: ReadonlyMap<string, Queued>): Map<string, Queued> {
  const all = [...queue.values()]
  const lost = { done: all.flatMap(({ done }) => done), fail: all.flatMap(({ fail }) => fail) }
  return new Map([[LOST, lost]])
}

function follow(table: BusTable, listener: BusListener, clock: StoreClock): BusSubscription {
  let position: number | undefined
  let readAt = clock.elapsed()
  let reading = false
  let again = false
  let stopped = false
  let begin = (): void => {}
  const started = new Promise<void>((resolve) => {
    begin = resolve
  })

  const deliver = async (rows: readonly BusRow[]): Promise<void> => {
    const messages = [...new Set(rows.map(({ message }) => message))].filter((message) => message !== LOST)
    // Lost messages may be about anything, so the gap comes before the messages that are still there.
    if (rows.some(({ message }) => message === LOST)) await listener.lost()
    if (messages.length > 0) await listener.receive(messages)
  }

  const readOnce = async (): Promise<boolean> => {
    if (position === undefined) {
      position = await table.newest()
      begin()
      readAt = clock.elapsed()
      return false
    }
    const { rows, oldest = 0 } = await table.read(position, BUS_LIMITS.batch)
    const away = clock.elapsed() - readAt > BUS_LIMITS.keepMs / 2
    readAt = clock.elapsed()
    const [first] = rows
    // Rows between our position and the oldest one may have been deleted.
    const missed = first !== undefined && first.position === oldest && first.position > position + 1
    if (missed || (away && first === undefined)) await listener.lost()
    if (first === undefined) return false
    await deliver(rows)
    position = rows.at(-1)?.position ?? position
    if (rows.length < BUS_LIMITS.batch) return false
    const newest = await table.newest()
    if (newest - position > BUS_LIMITS.behind) {
      position = newest
      await listener.lost()
    }
    return true
  }

  const read = async (): Promise<void> => {
    again = true
    if (reading) return
    reading = true
    while (again && !stopped) {
      again = false
      try {
        if (await readOnce()) again = true
      } catch {
        // The database is away, or the listener failed. The next hint or poll tries again, from where it stopped.
      }
      await new Promise<void>((resolve) => void clock.idly(BUS_LIMITS.spacingMs, resolve))
    }
    reading = false
  }

  const stopHints = table.onHint(() => void read())
  const stopPolling = repeat(clock, () => table.pollMs, read)
  void read()
  return {
    started,
    stop() {
      stopped = true
      stopHints()
      stopPolling()
    },
  }
}

/** Collections for what passes through a server at the pace of its requests, and for bytes at the pace of their sender. */

export interface Memo<V> {
  get(key: string): V | undefined
  set(key: string, value: V): void
}

/** Remembers at least the last `size` values and at most twice as many: what is used again moves to the younger half. */
export function createMemo<V>(size: number): Memo<V> {
  let young = new Map<string, V>()
  let old = new Map<string, V>()
  const set = (key: string, value: V): void => {
    if (young.size >= size) {
      old = young
      young = new Map()
    }
    young.set(key, value)
  }
  return {
    set,
    get(key) {
      const value = young.get(key)
      if (value !== undefined) return value
      const older = old.get(key)
      if (older !== undefined) set(key, older)
      return older
    },
  }
}

/** What can be on a roster, on one at a time. */
export interface Listed {
  /** Its place on the roster, which alone writes it. */
  place?: number
}

/**
 * A set of what is in flight. A `Set` would do, if its members did not come and go with every request: it moves to a new table
 * every few dozen additions, and V8 links each table to its successor. Once one of them is old, all later ones, and every
 * request that was in flight when one was left, survive until the next full collection.
 */
export interface Roster<T extends Listed> extends Iterable<T> {
  readonly size: number
  has(item: T): boolean
  add(item: T): void
  /** Returns false if it was not on the roster. */
  delete(item: T): boolean
}

export function createRoster<T extends Listed>(): Roster<T> {
  const items: T[] = []
  const has = (item: T): boolean => item.place !== undefined && items[item.place] === item
  return {
    get size() {
      return items.length
    },
    has,
    add(item) {
      if (!has(item)) item.place = items.push(item) - 1
    },
    delete(item) {
      if (!has(item)) return false
      const { place = 0 } = item
      const last = items.pop()
      if (last !== undefined && last !== item) {
        items[place] = last
        last.place = place
      }
      item.place = undefined
      return true
    },
    // A copy: whoever looks at an item may take it off.
    [Symbol.iterator]: () => [...items][Symbol.iterator](),
  }
}

/** The calls that somebody is serving. */
export interface InFlight<T extends Listed> {
  enter(call: T): void
  leave(call: T): void
  /** Resolves as soon as no call is in flight. */
  idle(): Promise<void>
}

/** Watches calls until there are none; then it calls `onIdle`. */
type Watch<T> = (calls: () => Iterable<T>, onIdle?: () => void) => void

/** `watch` starts with a call and ends by itself when none is left; if the calls are `isolated`, each has its own. */
export function createInFlight<T extends Listed>(watch?: Watch<T>, isolated = false): InFlight<T> {
  const calls = createRoster<T>()
  let waiting: (() => void)[] = []
  let watched = watch === undefined
  return {
    enter(call) {
      calls.add(call)
      if (watched) return
      watched = !isolated
      if (isolated) watch?.(() => (calls.has(call) ? [call] : []))
      else
        watch?.(
          () => calls,
          () => (watched = false),
        )
    },
    leave(call) {
      if (!calls.delete(call) || calls.size > 0) return
      const ready = waiting
      waiting = []
      for (const resolve of ready) resolve()
    },
    idle() {
      return calls.size === 0 ? Promise.resolve() : new Promise((resolve) => waiting.push(resolve))
    },
  }
}

export interface Collected {
  readonly size: number
  add(chunk: Uint8Array): void
  /** Returns the bytes and forgets them. */
  take(): Uint8Array
}

const SMALLEST_BLOCK = 4_096

/**
 * Collects chunks in one block, which doubles when it is full. A list of chunks would not do: the sender chooses their
 * size, and a chunk of one byte costs a hundred.
 */
export function collectBytes(): Collected {
  /** The only chunk so far: most messages are one, which is not copied. */
  let only: Uint8Array | undefined
  let block = new Uint8Array(0)
  let size = 0
  const append = (chunk: Uint8Array): void => {
    if (size + chunk.byteLength > block.byteLength) {
      const larger = new Uint8Array(Math.max(SMALLEST_BLOCK, 2 * (size + chunk.byteLength)))
      larger.set(block.subarray(0, size))
      block = larger
    }
    block.set(chunk, size)
    size += chunk.byteLength
  }
  return {
    get size() {
      return only?.byteLength ?? size
    },
    add(chunk) {
      if (only === undefined && size === 0) {
        only = chunk
        return
      }
      const first = only
      only = undefined
      if (first !== undefined) append(first)
      append(chunk)
    },
    take() {
      const bytes = only ?? block.subarray(0, size)
      only = undefined
      block = new Uint8Array(0)
      size = 0
      return bytes
    },
  }
}

/** Collections with a limit or an end: what is remembered, the calls in flight, and bytes at the pace of their sender. */

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

/** The calls that somebody is serving. */
export interface InFlight<T> {
  enter(call: T): void
  leave(call: T): void
  /** Resolves as soon as no call is in flight. */
  idle(): Promise<void>
}

/** Watches calls until there are none; then it calls `onIdle`. */
type Watch<T> = (calls: () => Iterable<T>, onIdle?: () => void) => void

/** `watch` starts with a call and ends by itself when none is left; if the calls are `isolated`, each has its own. */
export function createInFlight<T>(watch?: Watch<T>, isolated = false): InFlight<T> {
  const calls = new Set<T>()
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
const EMPTY = new Uint8Array(0)

/**
 * Collects chunks in one block, which doubles when it is full. A list of chunks would not do: the sender chooses their
 * size, and a chunk of one byte costs a hundred.
 */
export function collectBytes(): Collected {
  return new ByteCollector()
}

// A class: a getter in an object literal would give every object a shape of its own (see `RunContext`).
class ByteCollector implements Collected {
  /** The only chunk so far: most messages are one, which is not copied. */
  #only: Uint8Array | undefined
  #block = EMPTY
  #size = 0

  get size(): number {
    return this.#only?.byteLength ?? this.#size
  }

  add(chunk: Uint8Array): void {
    const first = this.#only
    if (first === undefined && this.#size === 0) {
      this.#only = chunk
      return
    }
    this.#only = undefined
    if (first !== undefined) this.#append(first)
    this.#append(chunk)
  }

  take(): Uint8Array {
    const bytes = this.#only ?? this.#block.subarray(0, this.#size)
    this.#only = undefined
    this.#block = EMPTY
    this.#size = 0
    return bytes
  }

  #append(chunk: Uint8Array): void {
    const size = this.#size + chunk.byteLength
    if (size > this.#block.byteLength) {
      const larger = new Uint8Array(Math.max(SMALLEST_BLOCK, 2 * size))
      larger.set(this.#block.subarray(0, this.#size))
      this.#block = larger
    }
    this.#block.set(chunk, this.#size)
    this.#size = size
  }
}

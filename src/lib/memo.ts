/** A bounded cache that values in use do not fall out of, however many others pass through it. */

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

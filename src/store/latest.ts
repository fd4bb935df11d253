/** Writes values one at a time. Of those that come while one is being written, only the newest is written after it. */
export interface Latest<T> {
  /** Resolves when this value, or a newer one, is written. */
  put(value: T): Promise<void>
  /** Resolves when nothing is being written; never rejects. */
  idle(): Promise<void>
}

export function createLatest<T>(write: (value: T) => Promise<void>): Latest<T> {
  let next: { readonly value: T } | undefined
  let writing: Promise<void> | undefined
  const writeAll = async () => {
    try {
      while (next !== undefined) {
        const { value } = next
        next = undefined
        await write(value)
      }
    } finally {
      next = undefined
      writing = undefined
    }
  }
  return {
    put(value) {
      next = { value }
      writing ??= writeAll()
      return writing
    },
    idle: async () => writing?.catch(() => {}),
  }
}

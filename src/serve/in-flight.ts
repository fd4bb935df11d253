/** Counts what is being served, and tells when nothing is. */
export interface InFlight {
  enter(): void
  leave(): void
  readonly size: number
  /** Resolves as soon as nothing is being served. */
  idle(): Promise<void>
}

export function createInFlight(): InFlight {
  let size = 0
  let waiting: (() => void)[] = []
  return {
    enter() {
      size++
    },
    leave() {
      if (--size > 0) return
      const ready = waiting
      waiting = []
      for (const resolve of ready) resolve()
    },
    get size() {
      return size
    },
    idle() {
      return size === 0 ? Promise.resolve() : new Promise((resolve) => waiting.push(resolve))
    },
  }
}

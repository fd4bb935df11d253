import type { Hint } from './task-store.ts'

/** Hands hints to whoever listens. Starts listening outside (`attach`) with the first listener, ends with the last. */
export interface HintBus {
  tell(hint: Hint): void
  onHint(listener: (hint: Hint) => void): () => void
  /** Nobody is told anything any more. */
  close(): void
}

export function createHintBus(attach: () => () => void = () => () => {}): HintBus {
  const listeners = new Set<(hint: Hint) => void>()
  let detach: (() => void) | undefined
  const close = () => {
    listeners.clear()
    detach?.()
    detach = undefined
  }
  return {
    tell(hint) {
      for (const listener of [...listeners]) listener(hint)
    },
    onHint(listener) {
      // Wrapped, so that the same function may listen twice.
      const one = (hint: Hint) => listener(hint)
      listeners.add(one)
      detach ??= attach()
      return () => {
        if (listeners.delete(one) && listeners.size === 0) close()
      }
    },
    close,
  }
}

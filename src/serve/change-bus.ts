/**
 * Changes within one process. A listener that throws does not keep the others from hearing; one that leaves while a
 * change is told hears it no more.
 */

export type Change =
  | { readonly kind: 'tools' }
  | { readonly kind: 'prompts' }
  | { readonly kind: 'resources' }
  | { readonly kind: 'resource'; readonly uri: string }

/** Carries list changes to open subscriptions. Instances that share one tell each other's subscribers too. */
export interface ChangeBus {
  publish(change: Change): void
  subscribe(listener: (change: Change) => void): () => void
}

export function createChangeBus(onError: (error: unknown) => void = () => {}): ChangeBus {
  const listeners = new Set<(change: Change) => void>()
  return {
    publish(change) {
      for (const listener of listeners) {
        try {
          listener(change)
        } catch (error) {
          onError(error)
        }
      }
    },
    subscribe(listener) {
      // One function may subscribe twice and leave once.
      const entry = (change: Change): void => listener(change)
      listeners.add(entry)
      return () => {
        listeners.delete(entry)
      }
    },
  }
}

/** Whatever bus it is: our listeners never throw into it. */
export function guardedBus(bus: ChangeBus, onError: (error: unknown) => void): ChangeBus {
  return {
    publish: (change) => bus.publish(change),
    subscribe: (listener) =>
      bus.subscribe((change) => {
        try {
          listener(change)
        } catch (error) {
          onError(error)
        }
      }),
  }
}

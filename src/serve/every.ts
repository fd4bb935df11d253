/** Calls `tick` every `ms` until the function it gives is called. */
export type Every = (ms: number, tick: () => void) => () => void

/** A tick that throws is told to `onError`, and the next one comes all the same. */
export function createEvery(onError: (error: unknown) => void): Every {
  return (ms, tick) => {
    const guarded = (): void => {
      try {
        tick()
      } catch (error) {
        onError(error)
      }
    }
    const timer: unknown = setInterval(guarded, ms)
    // On Node a heartbeat must not keep the process alive; elsewhere a timer is a number.
    if (typeof timer === 'object' && timer !== null && 'unref' in timer) (timer as { unref(): void }).unref()
    return () => clearInterval(timer as number)
  }
}

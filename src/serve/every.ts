/** Calls `tick` every `ms` until the function it gives is called. */
export type Every = (ms: number, tick: () => void) => () => void

export const every: Every = (ms, tick) => {
  const timer: unknown = setInterval(tick, ms)
  // On Node a sign of life must not keep the process alive; elsewhere a timer is a number.
  if (typeof timer === 'object' && timer !== null && 'unref' in timer) (timer as { unref(): void }).unref()
  return () => clearInterval(timer as number)
}

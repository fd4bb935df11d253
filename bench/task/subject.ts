/** The subject of a measurement, on a database of its own, by one or several processes: the engine, or rows written by hand. */

export type StoreAddress =
  | { readonly kind: 'sqlite'; readonly file: string }
  | { readonly kind: 'postgres'; readonly connectionString: string; readonly schema: string }

/** Whatever an engine runs on. */
export type EngineAddress = StoreAddress | RestateAddress

/** `port` and `url`: where Restate reaches the process; any free port if it is the only one. */
export interface RestateAddress {
  readonly kind: 'restate'
  readonly ingress: readonly string[]
  readonly admin: readonly string[]
  readonly namespace: string
  readonly identityKey: string
  readonly port?: number
  readonly url?: string
}

/** `before` is `rondo` of another commit. */
export type SubjectName = 'rondo' | 'before' | 'bare' | 'grouped'

/**
 *   complete  a task is created, run and completed
 *   resume    a task is created, parks with a question, is answered, run again and completed
 *   get       a parked task is read
 */
export type Work = 'complete' | 'resume' | 'get'

/** Concurrent clients per process; each starts the next task when its last has ended. */
export const AT_ONCE = 32

/** Parked tasks that every process has from the beginning, to be read. */
export const KEPT = 1_000

/** Of the works that create tasks; one after the other, to see how long a lone task takes. */
export type Lone = Exclude<Work, 'get'>

export interface Done {
  readonly count: number
  readonly ms: number
}

export interface Subject {
  /** Does the work for `ms`, as often as it can. */
  run(work: Work, ms: number): Promise<Done>
  /** Does the work alone, one task after the other; returns how many ms each took. Only the engine can. */
  lone?(work: Lone, count: number): Promise<readonly number[]>
  /** Resolves when nothing is in progress in any of the processes. */
  settle(): Promise<void>
  close(): Promise<void>
}

/** Runs `once` until the time is over. */
export async function repeatFor(ms: number, once: () => Promise<number> | number): Promise<Done> {
  const began = performance.now()
  let count = 0
  let elapsed = 0
  for (; elapsed < ms; elapsed = performance.now() - began) {
    const done = once()
    count += typeof done === 'number' ? done : await done
  }
  return { count, ms: elapsed }
}

/** Like `repeatFor`, with many loops at once. */
export async function repeatTogether(ms: number, once: () => Promise<number>): Promise<Done> {
  const all = await Promise.all(Array.from({ length: AT_ONCE }, () => repeatFor(ms, once)))
  return { count: all.reduce((sum, { count }) => sum + count, 0), ms: Math.max(...all.map((one) => one.ms)) }
}

/** What the doctor found out about one thing, with a line of advice where something is wrong. */

export type Verdict = 'pass' | 'warn' | 'fail' | 'skip'

export interface Finding {
  /** Stable, for scripts. */
  readonly id: string
  readonly verdict: Verdict
  /** What was seen. */
  readonly detail: string
  /** What to do about it; or, where it was skipped, how to have it checked. */
  readonly advice?: string
}

export function pass(id: string, detail: string): Finding {
  return { id, verdict: 'pass', detail }
}

export function warn(id: string, detail: string, advice: string): Finding {
  return { id, verdict: 'warn', detail, advice }
}

export function fail(id: string, detail: string, advice: string): Finding {
  return { id, verdict: 'fail', detail, advice }
}

export function skip(id: string, detail: string, advice?: string): Finding {
  return { id, verdict: 'skip', detail, ...(advice !== undefined && { advice }) }
}

/** What the doctor found out about one thing, with a line of advice where something is wrong. */

import { RondoError } from '../../errors.ts'

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

/** What stops a check is a finding too, and the examination goes on. */
export async function attempt(
  id: string,
  signal: AbortSignal,
  check: () => Promise<Finding | readonly Finding[]>,
): Promise<readonly Finding[]> {
  try {
    return [await check()].flat()
  } catch (error) {
    if (signal.aborted || !(error instanceof RondoError)) throw error
    return [fail(id, error.message, 'Answer every request in time, and as the revision says.')]
  }
}

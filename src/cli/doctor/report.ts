/** The findings of the doctor: one verdict per check, with advice if something is wrong. */

import { RondoError } from '../../errors.ts'
import { oneLine } from '../../form/clean-text.ts'
import { type Io, print, printJson } from '../io.ts'

type Verdict = 'pass' | 'warn' | 'fail' | 'skip'

export interface DoctorFinding {
  /** Stable, for scripts. */
  readonly id: string
  readonly verdict: Verdict
  /** What the check observed. */
  readonly detail: string
  /** What to do about it; for a skipped check, how to run it. */
  readonly advice?: string
}

export function pass(id: string, detail: string): DoctorFinding {
  return { id, verdict: 'pass', detail }
}

export function warn(id: string, detail: string, advice: string): DoctorFinding {
  return { id, verdict: 'warn', detail, advice }
}

export function fail(id: string, detail: string, advice: string): DoctorFinding {
  return { id, verdict: 'fail', detail, advice }
}

export function skip(id: string, detail: string, advice?: string): DoctorFinding {
  return { id, verdict: 'skip', detail, ...(advice !== undefined && { advice }) }
}

/** Runs a check. An error that stops it becomes a finding, and the examination continues. */
export async function attempt(
  id: string,
  signal: AbortSignal,
  check: () => Promise<DoctorFinding | readonly DoctorFinding[]>,
): Promise<readonly DoctorFinding[]> {
  try {
    return [await check()].flat()
  } catch (error) {
    if (signal.aborted || !(error instanceof RondoError)) throw error
    return [fail(id, error.message, 'Respond to every request in time and as the revision requires.')]
  }
}

const COLOURS: Record<Verdict, number> = { pass: 32, warn: 33, fail: 31, skip: 90 }
const ORDER: readonly Verdict[] = ['pass', 'warn', 'fail', 'skip']

/** Prints a table of findings, each with its advice, and the counts. */
export function printFindings(io: Io, findings: readonly DoctorFinding[], json: boolean): void {
  const counts = Object.fromEntries(
    ORDER.map((verdict) => [verdict, findings.filter((one) => one.verdict === verdict).length]),
  )
  if (json) return printJson(io, { ...counts, findings })
  const width = Math.max(0, ...findings.map(({ id }) => id.length))
  const coloured = io.stdout.isTTY === true && !io.env.NO_COLOR
  for (const { id, verdict, detail, advice } of findings) {
    const mark = coloured ? `\u001b[${COLOURS[verdict]}m${verdict}\u001b[39m` : verdict
    print(io, `  ${id.padEnd(width)}  ${brief(detail)}`, mark)
    if (advice !== undefined) print(io, `${' '.repeat(width + 8)}→ ${brief(advice)}`)
  }
  print(io, `\n${ORDER.map((verdict) => `${counts[verdict]} ${verdict}`).join(', ')}`)
}

const MAX_LENGTH = 300

function brief(text: string): string {
  return oneLine(text).slice(0, MAX_LENGTH)
}

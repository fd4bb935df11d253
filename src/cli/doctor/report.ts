/** The findings as a table, each with its line of advice, and a count at the end. */

import { oneLine } from '../../form/clean-text.ts'
import { type Io, print, printJson } from '../io.ts'
import type { Finding, Verdict } from './finding.ts'

const COLOURS: Record<Verdict, number> = { pass: 32, warn: 33, fail: 31, skip: 90 }
const ORDER: readonly Verdict[] = ['pass', 'warn', 'fail', 'skip']

export function printFindings(io: Io, findings: readonly Finding[], json: boolean): void {
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

const MAX_WORDS = 300

function brief(text: string): string {
  return oneLine(text).slice(0, MAX_WORDS)
}

/** The findings as a table, each with its line of advice, and a count at the end. */

import { displayText } from '../../client/display-text.ts'
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
    print(io, `${mark}  ${id.padEnd(width)}  ${oneLine(detail)}`)
    if (advice !== undefined) print(io, `${' '.repeat(width + 8)}→ ${oneLine(advice)}`)
  }
  print(io, `\n${ORDER.map((verdict) => `${counts[verdict]} ${verdict}`).join(', ')}`)
}

function oneLine(text: string): string {
  return displayText(text).replace(/\s+/g, ' ').slice(0, 300)
}

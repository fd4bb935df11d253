/** Formats tables, times and shell words for people. */

import { displayText } from '../form/clean-text.ts'

/** A cell of a server may be as long as a response. It is not cut, but the other rows are not aligned to it. */
const WIDEST = 120

/** Rows with aligned columns, one line each. The last column is not padded; `width` truncates lines that would wrap. */
export function formatTable(
  cells: readonly (readonly string[])[],
  width: number = Number.POSITIVE_INFINITY,
): string {
  const rows = cells.map((row) => row.map((cell) => displayText(cell).replace(/[\n\t]/g, ' ')))
  const columns = rows.reduce((most, row) => Math.max(most, row.length), 0)
  const widths = Array.from({ length: Math.max(0, columns - 1) }, (_, i) =>
    rows.reduce((widest, row) => Math.max(widest, Math.min(WIDEST, [...(row[i] ?? '')].length)), 0),
  )
  return rows
    .map((row) => {
      const line = row.map((cell, i) => cell + ' '.repeat(pad(widths[i], cell))).join('  ')
      return cut(line.trimEnd(), width)
    })
    .join('\n')
}

function pad(width: number | undefined, cell: string): number {
  return width === undefined ? 0 : Math.max(0, width - [...cell].length)
}

function cut(line: string, width: number): string {
  const letters = [...line]
  return letters.length <= width ? line : `${letters.slice(0, Math.max(1, width - 1)).join('')}…`
}

/** Characters without a meaning in any shell; `…` is what the user fills in. */
const PLAIN = /^[\p{L}\p{N}@%+=:,./_…-]+$/u

/** Quotes a word for a shell: users copy commands that contain names chosen by a server. */
export function shellWord(text: string): string {
  return PLAIN.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`
}

const LAST_DATE = 8.64e15

/** An ISO time, also for numbers from a server that are not a date. */
export function sayTime(ms: number): string {
  return Math.abs(ms) <= LAST_DATE ? new Date(ms).toISOString() : 'unknown'
}

/** Like `sayAge`, as part of a sentence: "5 min ago". */
export function sayAgo(ms: number): string {
  const age = sayAge(ms)
  return age === 'now' ? 'just now' : `${age} ago`
}

/** A duration in its largest unit. */
export function sayAge(ms: number): string {
  const minutes = Math.floor(Math.max(0, ms) / 60_000)
  if (minutes < 1) return 'now'
  if (minutes < 120) return `${minutes} min`
  return minutes < 2880 ? `${Math.floor(minutes / 60)} h` : `${Math.floor(minutes / 1440)} d`
}

/** Rows with columns of even width, one line each. The last column is not padded; `width` cuts lines that would wrap. */

import { displayText } from '../form/clean-text.ts'

export function formatTable(
  cells: readonly (readonly string[])[],
  width: number = Number.POSITIVE_INFINITY,
): string {
  const rows = cells.map((row) => row.map((cell) => displayText(cell).replace(/[\n\t]/g, ' ')))
  const columns = Math.max(0, ...rows.map((row) => row.length))
  const widths = Array.from({ length: columns - 1 }, (_, i) =>
    Math.max(...rows.map((row) => [...(row[i] ?? '')].length)),
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

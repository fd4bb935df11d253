/** Figures that have an aim, and whether they reach it. */

import type { Table } from './bench.ts'
import { fixed } from './stat.ts'

/** An aim: `most` or `least`, in which unit, and the figure that was measured. */
export interface Aim {
  readonly what: string
  readonly found: number
  /** The figure of the other checkout (`--against`). */
  readonly before?: number
  readonly unit: '×' | ' %' | ' µs' | ' ms' | ' kB' | ' reads' | ' a second'
  readonly least?: number
  readonly most?: number
}

const DIGITS: Readonly<Record<Aim['unit'], number>> = {
  '×': 2,
  ' %': 0,
  ' µs': 1,
  ' ms': 2,
  ' kB': 1,
  ' reads': 1,
  ' a second': 0,
}

export function aimTable(aims: readonly Aim[], mark?: string): Table {
  const hasBefore = aims.some(({ before }) => before !== undefined)
  const rows = aims.map(({ what, found, before = Number.NaN, unit, least, most }) => {
    const shown = (value: number): string =>
      Number.isNaN(value) ? '–' : `${fixed(value, DIGITS[unit])}${unit}`
    const aim = least === undefined ? `≤ ${most}${unit}` : `≥ ${least}${unit}`
    return [what, aim, shown(found), ...(hasBefore ? [shown(before)] : []), outcomeOf(found, least, most)]
  })
  const columns = ['figure', 'aim', 'measured', ...(hasBefore ? ['before'] : []), 'outcome']
  return { title: 'What is aimed at', mark, columns, rows }
}

function outcomeOf(
  found: number,
  least = Number.NEGATIVE_INFINITY,
  most = Number.POSITIVE_INFINITY,
): 'reached' | 'missed' | '–' {
  if (Number.isNaN(found)) return '–'
  return found >= least && found <= most ? 'reached' : 'missed'
}

/** Figures that have an aim, and whether they reach it. */

import type { Table } from './bench.ts'
import { fixed } from './stat.ts'

/** An aim: `most` or `least`, in which unit, and the figure that was measured. */
export interface Aim {
  readonly what: string
  readonly found: number
  readonly unit: '×' | ' %' | ' µs' | ' ms'
  readonly least?: number
  readonly most?: number
}

const DIGITS: Readonly<Record<Aim['unit'], number>> = { '×': 2, ' %': 0, ' µs': 1, ' ms': 2 }

export function aimTable(aims: readonly Aim[], mark?: string): Table {
  const rows = aims.map(({ what, found, unit, least, most }) => {
    const isReached =
      found >= (least ?? Number.NEGATIVE_INFINITY) && found <= (most ?? Number.POSITIVE_INFINITY)
    const aim = least === undefined ? `≤ ${most}${unit}` : `≥ ${least}${unit}`
    return [what, aim, `${fixed(found, DIGITS[unit])}${unit}`, isReached ? 'yes' : 'no']
  })
  return { title: 'What is aimed at', mark, columns: ['figure', 'aim', 'measured', 'reached'], rows }
}

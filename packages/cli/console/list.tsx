/**
 * A list of any length: only the rows in sight are in the document, at the places that their heights add up to. Rows may have
 * heights of their own, which are measured once they are drawn; until then each has the estimated one.
 *
 * list 1: A row that changes its height above what is in sight moves nothing that is. list 2: The row with the focus stays in the
 * document, wherever the list is scrolled to.
 */

import type { JSX, RefObject } from 'preact'
import { useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks'

/** Rows above and below what is in sight, so that Tab finds the next one. */
const SPARE = 8

export interface VirtualListProps<T> {
  readonly items: readonly T[]
  /** The content of the list in words, for screen readers. */
  readonly label: string
  /** The class of the list itself. */
  readonly class?: string
  /** Different for every row. */
  readonly keyOf: (item: T, index: number) => string
  /** The height of a row in pixels: of every row if `isFixed`, else until it is measured. */
  readonly rowHeight: number
  readonly isFixed?: boolean
  /** The scrolled element, for a view that wants to know about it. */
  readonly box?: RefObject<HTMLElement | null>
  readonly children: (item: T) => JSX.Element
}

export function VirtualList<T>(props: VirtualListProps<T>): JSX.Element {
  const { items, keyOf, rowHeight, isFixed = false, children } = props
  const ownBox = useRef<HTMLElement>(null)
  const box = props.box ?? ownBox
  const [top, setTop] = useState(0)
  const [height, setHeight] = useState(800)
  const [focused, setFocused] = useState<string>()
  const { heights, version, measure } = useHeights(box, rowHeight)

  /** The position at which each row begins, and last the end of the list. */
  const offsets = useMemo(() => {
    const sums = new Float64Array(items.length + 1)
    for (const [i, item] of items.entries())
      sums[i + 1] = (sums[i] ?? 0) + (isFixed ? rowHeight : (heights.get(keyOf(item, i)) ?? rowHeight))
    return sums
  }, [items, version, isFixed, rowHeight])

  useLayoutEffect(() => {
    const seen = new ResizeObserver(() => setHeight(box.current?.clientHeight ?? 800))
    if (box.current) seen.observe(box.current)
    return () => seen.disconnect()
  }, [])

  const from = Math.max(0, rowAt(offsets, top) - SPARE)
  const to = Math.min(items.length, rowAt(offsets, top + height) + 1 + SPARE)
  const shown = Array.from({ length: to - from }, (_, i) => from + i)
  const kept = focused === undefined ? -1 : items.findIndex((item, i) => keyOf(item, i) === focused)
  if (kept >= 0 && kept < from) shown.unshift(kept)
  if (kept >= to) shown.push(kept)

  return (
    <section
      class="list"
      ref={box}
      onScroll={(event) => setTop(event.currentTarget.scrollTop)}
      onFocusIn={(event) => setFocused(rowKey(event.target))}
      onFocusOut={() => setFocused(undefined)}
      tabIndex={0}
      aria-label={props.label}
    >
      <ul class={props.class} style={{ height: `${offsets[items.length]}px` }}>
        {shown.map((index) => {
          const item = items[index] as T
          const key = keyOf(item, index)
          return (
            <li
              key={key}
              data-key={key}
              aria-setsize={items.length}
              aria-posinset={index + 1}
              ref={isFixed ? undefined : measure}
              style={{ transform: `translateY(${offsets[index]}px)` }}
            >
              {children(item)}
            </li>
          )
        })}
      </ul>
    </section>
  )
}

function rowKey(target: EventTarget | null): string | undefined {
  const row = target instanceof Element ? target.closest<HTMLElement>('li[data-key]') : null
  return row?.dataset.key
}

/** The last row that begins at or above a place. */
function rowAt(offsets: Float64Array, place: number): number {
  let low = 0
  let high = Math.max(0, offsets.length - 2)
  while (low < high) {
    const middle = Math.ceil((low + high) / 2)
    if ((offsets[middle] ?? 0) <= place) low = middle
    else high = middle - 1
  }
  return low
}

/** The heights of the rows that were drawn. `version` differs after one has changed. */
function useHeights(
  box: RefObject<HTMLElement | null>,
  rowHeight: number,
): { heights: Map<string, number>; version: number; measure: (row: HTMLElement | null) => void } {
  const [version, setVersion] = useState(0)
  const known = useRef<{ heights: Map<string, number>; observer?: ResizeObserver }>({ heights: new Map() })
  const { heights } = known.current
  const note = (entries: readonly ResizeObserverEntry[]): void => {
    let isNew = false
    for (const { target } of entries) {
      const row = target as HTMLElement
      const { key } = row.dataset
      const height = row.offsetHeight
      if (!row.isConnected || key === undefined || height === 0) continue
      const before = heights.get(key) ?? rowHeight
      heights.set(key, height)
      if (height === before) continue
      isNew = true
      const list = box.current
      // A row that is out of sight above grows upwards.
      if (list && row.getBoundingClientRect().bottom <= list.getBoundingClientRect().top)
        list.scrollTop += height - before
    }
    if (isNew) setVersion((count) => count + 1)
  }
  const latest = useRef(note)
  latest.current = note
  const measure = useMemo(
    () =>
      (row: HTMLElement | null): void => {
        if (row === null) return
        known.current.observer ??= new ResizeObserver((entries) => latest.current(entries))
        known.current.observer.observe(row)
      },
    [],
  )
  useLayoutEffect(() => () => known.current.observer?.disconnect(), [])
  return { heights, version, measure }
}

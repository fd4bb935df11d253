/**
 * Bytes become lines. A line that is too long is not kept; it is told of once and skipped up to its end, so that the
 * next one is read again.
 */

import { isUtf8 } from 'node:buffer'

export type InputLine =
  | { readonly kind: 'line'; readonly text: string }
  | { readonly kind: 'too-long' }
  | { readonly kind: 'not-utf8' }

const NEWLINE = 0x0a

/** Gives a function that takes chunks and calls `onLine` for every line that ends in them. */
export function createLineReader(limit: number, onLine: (line: InputLine) => void): (chunk: Buffer) => void {
  let parts: Buffer[] = []
  let size = 0
  let skipping = false

  function keep(part: Buffer): void {
    size += part.length
    if (skipping) return
    if (size <= limit) {
      parts.push(part)
      return
    }
    skipping = true
    parts = []
    onLine({ kind: 'too-long' })
  }

  function endLine(): void {
    const line = parts
    const skipped = skipping
    parts = []
    size = 0
    skipping = false
    if (!skipped) onLine(toLine(line))
  }

  return (chunk) => {
    let start = 0
    for (let end = chunk.indexOf(NEWLINE); end >= 0; end = chunk.indexOf(NEWLINE, start)) {
      keep(chunk.subarray(start, end))
      endLine()
      start = end + 1
    }
    if (start < chunk.length) keep(chunk.subarray(start))
  }
}

function toLine(parts: readonly Buffer[]): InputLine {
  const bytes = parts.length === 1 && parts[0] !== undefined ? parts[0] : Buffer.concat(parts)
  return isUtf8(bytes) ? { kind: 'line', text: bytes.toString('utf8') } : { kind: 'not-utf8' }
}

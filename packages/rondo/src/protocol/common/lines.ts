/**
 * Splits the bytes of stdin or of a command into lines, and buffers at most `maxBytes` of an unfinished one. A longer line is
 * reported once and skipped, so that it does not end the connection.
 */

import { collectBytes } from '../../lib/collection.ts'
import type { RequestId } from '../call.ts'
import { createIdReader, type IdReader } from './request-id.ts'

/** The bytes of a line without its newline. */
export type InputLine = Buffer | 'too-long'

const NEWLINE = 0x0a

/** Returns a function that takes chunks and calls `onLine` for every line that ends in them. */
export function createLineReader(
  maxBytes: number,
  onLine: (line: InputLine) => void,
  onLong?: (id: RequestId | null) => void,
): (chunk: Buffer) => void {
  const parts = collectBytes()
  /** Reads what is skipped. */
  let skipping: IdReader | undefined

  function keep(part: Buffer): void {
    if (skipping !== undefined) return skipping.push(part)
    if (parts.size + part.length <= maxBytes) return parts.add(part)
    skipping = createIdReader()
    skipping.push(parts.take())
    skipping.push(part)
    if (onLong === undefined) onLine('too-long')
  }

  function endLine(): void {
    const { buffer, byteOffset, byteLength } = parts.take()
    const skipped = skipping
    skipping = undefined
    if (skipped === undefined) onLine(Buffer.from(buffer, byteOffset, byteLength))
    else onLong?.(skipped.id())
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

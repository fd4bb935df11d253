/**
 * Splits a byte stream into lines and buffers at most `maxBytes` of an unfinished one. A longer line is reported once and
 * skipped, so that it does not end the connection.
 */

/** The bytes of a line without its newline. */
export type InputLine = Buffer | 'too-long'

const NEWLINE = 0x0a

/** Returns a function that takes chunks and calls `onLine` for every line that ends in them. */
export function createLineReader(
  maxBytes: number,
  onLine: (line: InputLine) => void,
): (chunk: Buffer) => void {
  let parts: Buffer[] = []
  let size = 0

  function keep(part: Buffer): void {
    if (size > maxBytes) return
    size += part.length
    if (size <= maxBytes) {
      parts.push(part)
      return
    }
    parts = []
    onLine('too-long')
  }

  function endLine(): void {
    const [first] = parts
    const line = parts.length === 1 && first !== undefined ? first : Buffer.concat(parts)
    const skipped = size > maxBytes
    parts = []
    size = 0
    if (!skipped) onLine(line)
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

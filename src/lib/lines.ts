/**
 * Bytes that arrive in chunks: collects them, and splits a stream into lines.
 *
 * A line reader buffers at most `maxBytes` of an unfinished line. A longer line is reported once and skipped, so that it
 * does not end the connection.
 */

/** The bytes of a line without its newline. */
export type InputLine = Buffer | 'too-long'

export interface Collected {
  readonly size: number
  add(chunk: Uint8Array): void
  /** Returns the bytes and forgets them. */
  take(): Uint8Array
}

const SMALLEST_BLOCK = 4_096

/**
 * Collects chunks in one block, which doubles when it is full. A list of chunks would not do: the sender chooses their
 * size, and a chunk of one byte costs a hundred.
 */
export function collectBytes(): Collected {
  /** The only chunk so far: most messages are one, which is not copied. */
  let only: Uint8Array | undefined
  let block = new Uint8Array(0)
  let size = 0
  const append = (chunk: Uint8Array): void => {
    if (size + chunk.byteLength > block.byteLength) {
      const larger = new Uint8Array(Math.max(SMALLEST_BLOCK, 2 * (size + chunk.byteLength)))
      larger.set(block.subarray(0, size))
      block = larger
    }
    block.set(chunk, size)
    size += chunk.byteLength
  }
  return {
    get size() {
      return only?.byteLength ?? size
    },
    add(chunk) {
      if (only === undefined && size === 0) {
        only = chunk
        return
      }
      const first = only
      only = undefined
      if (first !== undefined) append(first)
      append(chunk)
    },
    take() {
      const bytes = only ?? block.subarray(0, size)
      only = undefined
      block = new Uint8Array(0)
      size = 0
      return bytes
    },
  }
}

const NEWLINE = 0x0a

/** Returns a function that takes chunks and calls `onLine` for every line that ends in them. */
export function createLineReader(
  maxBytes: number,
  onLine: (line: InputLine) => void,
): (chunk: Buffer) => void {
  const parts = collectBytes()
  let skipping = false

  function keep(part: Buffer): void {
    if (skipping) return
    skipping = parts.size + part.length > maxBytes
    if (!skipping) return parts.add(part)
    parts.take()
    onLine('too-long')
  }

  function endLine(): void {
    const { buffer, byteOffset, byteLength } = parts.take()
    const skipped = skipping
    skipping = false
    if (!skipped) onLine(Buffer.from(buffer, byteOffset, byteLength))
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

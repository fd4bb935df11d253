/**
 * Cuts a byte stream into lines of UTF-8 text, holding at most `maxBytes` of an unfinished one. A longer line is
 * dropped to its end and reported, so that one flood does not end the connection for everybody.
 */

const NEWLINE = 10

export interface LineSplitter {
  push(chunk: Uint8Array): void
}

export function createLineSplitter(
  maxBytes: number,
  onLine: (line: string) => void,
  onOverflow: () => void,
): LineSplitter {
  let held: Uint8Array[] = []
  let size = 0
  let dropping = false
  const keep = (part: Uint8Array) => {
    if (dropping) return
    size += part.byteLength
    if (size <= maxBytes) return void held.push(part)
    held = []
    dropping = true
    onOverflow()
  }
  const finish = () => {
    if (!dropping) {
      const line = new TextDecoder().decode(held.length === 1 ? held[0] : Buffer.concat(held))
      if (line.trim() !== '') onLine(line)
    }
    held = []
    size = 0
    dropping = false
  }
  return {
    push(chunk) {
      let start = 0
      for (let end = chunk.indexOf(NEWLINE); end !== -1; end = chunk.indexOf(NEWLINE, start)) {
        keep(chunk.subarray(start, end))
        finish()
        start = end + 1
      }
      if (start < chunk.byteLength) keep(chunk.subarray(start))
    },
  }
}

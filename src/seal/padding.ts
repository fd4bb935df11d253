/**
 * Lengths in buckets, so that the length of a token says little about what is in it.
 *
 *   length of data, 4 bytes, big endian · data · zeros up to the bucket
 *
 * Buckets are 256 bytes apart up to 4 KiB, and an eighth of the next lower power of two apart above. A 64 KiB token
 * then has one of 43 lengths, and padding adds at most an eighth (or 255 bytes). The bucket follows from the length of the
 * data alone: one text has one padded form.
 */

const PREFIX_BYTES = 4
const SMALLEST_STEP = 256

/** The padded size of `dataBytes` bytes of data. */
export function paddedSize(dataBytes: number): number {
  const bytes = PREFIX_BYTES + dataBytes
  const step = Math.max(SMALLEST_STEP, 2 ** (Math.floor(Math.log2(bytes)) - 3))
  return Math.ceil(bytes / step) * step
}

/** True if some data pads to exactly this size. */
export function isPaddedSize(bytes: number): boolean {
  return bytes >= SMALLEST_STEP && paddedSize(bytes - PREFIX_BYTES) === bytes
}

export function pad(data: Uint8Array): Buffer {
  const padded = Buffer.allocUnsafe(paddedSize(data.byteLength))
  padded.writeUInt32BE(data.byteLength, 0)
  padded.set(data, PREFIX_BYTES)
  return padded.fill(0, PREFIX_BYTES + data.byteLength)
}

/** The data, or undefined if this is not what `pad` makes of any data. */
export function unpad(padded: Buffer): Buffer | undefined {
  if (!isPaddedSize(padded.byteLength)) return undefined
  const end = PREFIX_BYTES + padded.readUInt32BE(0)
  if (end > padded.byteLength || paddedSize(end - PREFIX_BYTES) !== padded.byteLength) return undefined
  for (let index = end; index < padded.byteLength; index++) {
    if (padded[index] !== 0) return undefined
  }
  return padded.subarray(PREFIX_BYTES, end)
}

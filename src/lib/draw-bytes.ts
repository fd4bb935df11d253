/**
 * Random bytes from the system, fetched in advance: a call into it costs the same for 4 KiB as for 16 bytes, and a request
 * needs three. Every byte is given out once and wiped from the stock.
 */

import { randomFillSync } from 'node:crypto'

const STOCK_BYTES = 4096

const stock = Buffer.alloc(STOCK_BYTES)
let taken = STOCK_BYTES

export function drawBytes(size: number): Buffer {
  if (size > STOCK_BYTES) return randomFillSync(Buffer.alloc(size))
  if (taken + size > STOCK_BYTES) {
    randomFillSync(stock)
    taken = 0
  }
  const bytes = Buffer.from(stock.subarray(taken, taken + size))
  stock.fill(0, taken, taken + size)
  taken += size
  return bytes
}

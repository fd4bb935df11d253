/**
 * Random bytes for nonces, salts, seeds and ids.
 *
 * random 1: Two copies of a process never draw the same bytes. The generator of `node:crypto` is part of the process, and a
 * snapshot of a virtual machine that is resumed twice copies its state. So every draw also asks the kernel, which learns of
 * the copy (VM generation ID; Linux since 5.18), and nothing of the kernel's is drawn in advance.
 * random 2: The bytes are as good as the better of the two sources: a kernel that cannot be asked (Windows, a sandbox without
 * devices) costs random 1 and nothing else.
 *
 * The generator's bytes are drawn in advance, 4 KiB at a time, because each call of it takes longer than the kernel does. They
 * are used only together with bytes of the kernel, each of them once.
 */

import { randomFillSync } from 'node:crypto'
import { openSync, readSync } from 'node:fs'

export function drawBytes(size: number): Buffer {
  const fresh = readKernel(size)
  if (fresh === undefined) return randomFillSync(Buffer.alloc(size))
  const bytes = takeDrawn(size)
  for (let at = 0; at < size; at++) bytes.writeUInt8(bytes.readUInt8(at) ^ fresh.readUInt8(at), at)
  return bytes
}

const ID_BYTES = 16

/** Returns an id that nobody can guess. */
export function drawId(): string {
  return drawBytes(ID_BYTES).toString('base64url')
}

const DRAWN_BYTES = 4_096
let drawn = Buffer.alloc(0)
let taken = 0

/** Returns a copy of bytes that were drawn in advance, and erases them there. */
function takeDrawn(size: number): Buffer {
  if (taken + size > drawn.length) {
    drawn = randomFillSync(Buffer.alloc(Math.max(DRAWN_BYTES, size)))
    taken = 0
  }
  const bytes = Buffer.from(drawn.subarray(taken, taken + size))
  drawn.fill(0, taken, taken + size)
  taken += size
  return bytes
}

let device: number | undefined

/** Returns bytes of the kernel; undefined if it cannot be asked. */
function readKernel(size: number): Buffer | undefined {
  const bytes = Buffer.alloc(size)
  try {
    device ??= openSync('/dev/urandom', 'r')
    // With a position: should somebody else close this descriptor and reuse its number, a pipe is an error instead of a wait.
    readSync(device, bytes, 0, size, 0)
    return bytes
  } catch {
    device = undefined
    return undefined
  }
}

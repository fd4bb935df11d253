/**
 * Random bytes for nonces, salts, seeds and ids.
 *
 * random 1: Two copies of a process never draw the same bytes. The generator of `node:crypto` is part of the process, and a
 * snapshot of a virtual machine that is resumed twice copies its state. So every draw also asks the kernel, which learns of
 * the copy (VM generation ID; Linux since 5.18), and nothing is drawn in advance.
 * random 2: The bytes are as good as the better of the two sources: a kernel that cannot be asked (Windows, a sandbox without
 * devices) costs random 1 and nothing else.
 */

import { randomFillSync } from 'node:crypto'
import { openSync, readSync } from 'node:fs'

export function drawBytes(size: number): Buffer {
  const bytes = randomFillSync(Buffer.alloc(size))
  const fresh = readKernel(size)
  for (const [at, byte] of fresh.entries()) bytes.writeUInt8(bytes.readUInt8(at) ^ byte, at)
  return bytes
}

const ID_BYTES = 16

/** Returns an id that nobody can guess. */
export function drawId(): string {
  return drawBytes(ID_BYTES).toString('base64url')
}

let device: number | undefined

/** Returns bytes of the kernel, or none if it cannot be asked. */
function readKernel(size: number): Buffer {
  const bytes = Buffer.alloc(size)
  try {
    device ??= openSync('/dev/urandom', 'r')
    // With a position: should somebody else close this descriptor and reuse its number, a pipe is an error instead of a wait.
    readSync(device, bytes, 0, size, 0)
  } catch {
    device = undefined
  }
  return bytes
}

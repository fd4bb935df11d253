import crypto from 'node:crypto'
import fs from 'node:fs'
import { syncBuiltinESMExports } from 'node:module'
import { describe, expect, it, vi } from 'vitest'
import { drawBytes, drawId } from './random.ts'

type Fill = (bytes: Buffer) => Buffer

/** Runs `fn` in a process whose own generator always returns the same, as in copies of one memory. */
function inCopies<T>(fn: () => T): T {
  const same: Fill = (bytes) => bytes.fill(7)
  const filled = vi.spyOn(crypto, 'randomFillSync').mockImplementation(same as never)
  return patched(filled, fn)
}

/** Runs `fn` with a kernel that always returns the same. */
function withPoorKernel<T>(fn: () => T): T {
  const read = vi.spyOn(fs, 'readSync').mockImplementation((_device, bytes) => bytes.byteLength)
  return patched(read, fn)
}

function withoutKernel<T>(fn: () => T): T {
  const fail = () => {
    throw new Error('EBADF')
  }
  const read = vi.spyOn(fs, 'readSync').mockImplementation(fail)
  return patched(read, fn)
}

/** Draws more bytes than are drawn in advance. */
const useUp = () => void drawBytes(5000)

function patched<T>(patch: { mockRestore(): void }, fn: () => T): T {
  syncBuiltinESMExports()
  try {
    useUp()
    return fn()
  } finally {
    patch.mockRestore()
    syncBuiltinESMExports()
    useUp()
  }
}

const draws = (count: number, draw: () => string = drawId): Set<string> =>
  new Set(Array.from({ length: count }, draw))

describe('drawBytes', () => {
  it('returns the requested number of bytes', () => {
    for (const size of [0, 1, 12, 32, 5000]) expect(drawBytes(size)).toHaveLength(size)
  })

  it('never returns the same bytes twice', () => {
    expect(draws(2000, () => drawBytes(12).toString('hex')).size).toBe(2000)
  })

  it.skipIf(process.platform === 'win32')(
    'differs in copies of one process, whose generators return the same',
    () => {
      expect(inCopies(() => draws(200)).size).toBe(200)
    },
  )

  it('repeats in copies if the kernel cannot be asked (negative control)', () => {
    expect(withoutKernel(() => inCopies(() => draws(200))).size).toBe(1)
  })

  it('uses the bytes of its own generator once, however many it draws in advance', () => {
    expect(withPoorKernel(() => draws(2000)).size).toBe(2000)
    expect(withPoorKernel(() => inCopies(() => draws(2000))).size).toBe(1)
  })

  it('needs no kernel: its own generator is enough in a process that was not copied', () => {
    expect(withoutKernel(() => draws(200)).size).toBe(200)
    expect(inCopies(() => draws(200)).size).toBe(200)
  })
})

describe('drawId', () => {
  it('returns 16 bytes in base64url', () => {
    expect(drawId()).toMatch(/^[A-Za-z0-9_-]{22}$/)
  })
})

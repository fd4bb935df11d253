/** The key that seals pending calls at rest: 32 bytes in base64, from a file or the environment. */

import { readFileSync } from 'node:fs'
import { resolve } from 'node:path'
import { usageError } from './command-error.ts'
import type { Io } from './io.ts'
import type { OptionTable } from './option-table.ts'
import type { Options } from './read-line.ts'

export const SEAL_OPTIONS: OptionTable = {
  'seal-key': {
    type: 'string',
    value: 'FILE',
    help: 'seals pending calls at rest with the key in FILE (else RONDO_SEAL_KEY)',
  },
}

export function readSealKey(io: Io, options: Options): Uint8Array | undefined {
  const file = options.text('seal-key')
  const text = file === undefined ? io.env.RONDO_SEAL_KEY : readKeyFile(resolve(io.cwd, file))
  if (text === undefined || text.trim() === '') {
    if (file !== undefined) throw usageError(`${file} holds no key`)
    return undefined
  }
  const bytes = Buffer.from(text.trim(), 'base64')
  const name = file === undefined ? 'RONDO_SEAL_KEY' : file
  if (bytes.byteLength !== 32) {
    throw usageError(`${name} must hold 32 bytes in base64, as "openssl rand -base64 32" makes them`)
  }
  return bytes
}

function readKeyFile(path: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch (error) {
    throw usageError(`The key cannot be read: ${(error as Error).message}`)
  }
}

/** The two keys of this user: one for servers that the command runs from a file, and one that encrypts stored pending calls. */

import { readFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { generateKey } from '../seal/key-ring.ts'
import { type Options, type OptionTable, usageError } from './command-line.ts'
import { homeOf, makeFolder, writeFile } from './home.ts'
import type { Io } from './io.ts'

/**
 * The environment of a server that the command runs from a file. Without `RONDO_KEYS` it gets a key that is created once and
 * stored in the home folder, so that pending calls survive a restart and a reload.
 */
export function serverEnv(io: Pick<Io, 'env' | 'cwd'>): Record<string, string> {
  const given = Object.entries(io.env).filter((entry): entry is [string, string] => entry[1] !== undefined)
  const env = Object.fromEntries(given)
  // In production the server itself has to report that it has no keys.
  if ((env.RONDO_KEYS ?? '').trim() !== '' || env.NODE_ENV === 'production') return env
  return { ...env, RONDO_KEYS: localKeys(homeOf(io)) }
}

function localKeys(home: string): string {
  const stored = storedKeys(home)
  if (stored !== undefined) return stored
  makeFolder(home)
  const keys = generateKey('local')
  writeFile(join(home, 'keys'), `${keys}\n`)
  return keys
}

/** The stored keys for servers; undefined if there are none. */
export function storedKeys(home: string): string | undefined {
  const keys = tryRead(join(home, 'keys'))?.trim()
  return keys === '' ? undefined : keys
}

function tryRead(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return undefined
  }
}

export const SEAL_OPTIONS: OptionTable = {
  'seal-key': {
    type: 'string',
    value: 'FILE',
    help: 'encrypts stored pending calls with the key in FILE (default: RONDO_SEAL_KEY)',
  },
}

/** The key that encrypts stored pending calls: 32 bytes in base64, from a file or the environment. */
export function readSealKey(io: Io, options: Options): Uint8Array | undefined {
  const file = options.text('seal-key')
  const text = file === undefined ? io.env.RONDO_SEAL_KEY : readKeyFile(resolve(io.cwd, file))
  if (text === undefined || text.trim() === '') {
    if (file !== undefined) throw usageError(`${file} contains no key`)
    return undefined
  }
  const bytes = Buffer.from(text.trim(), 'base64')
  const name = file === undefined ? 'RONDO_SEAL_KEY' : file
  if (bytes.byteLength !== 32) {
    throw usageError(`${name} must contain 32 bytes in base64; create them with "openssl rand -base64 32"`)
  }
  return bytes
}

function readKeyFile(path: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch (error) {
    throw usageError(`Cannot read the key: ${(error as Error).message}`)
  }
}

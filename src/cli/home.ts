/** Where the command keeps its files: `RONDO_HOME`, else the place the system has for such data. */

import {
  closeSync,
  fsyncSync,
  mkdirSync,
  openSync,
  readFileSync,
  renameSync,
  unlinkSync,
  writeSync,
} from 'node:fs'
import { homedir } from 'node:os'
import { isAbsolute, join, resolve } from 'node:path'
import { generateKey } from '../seal/key-ring.ts'
import { type Options, type OptionTable, usageError } from './command-line.ts'
import type { Io } from './io.ts'

export function homeOf({ env, cwd }: Pick<Io, 'env' | 'cwd'>): string {
  if (env.RONDO_HOME) return resolve(cwd, env.RONDO_HOME)
  // The XDG rules: a path that is not absolute is to be ignored.
  if (env.XDG_DATA_HOME && isAbsolute(env.XDG_DATA_HOME)) return join(env.XDG_DATA_HOME, 'rondo')
  if (process.platform === 'win32' && env.LOCALAPPDATA) return join(env.LOCALAPPDATA, 'rondo')
  return join(env.HOME || homedir(), '.local', 'share', 'rondo')
}

/** A folder that only its owner can enter. */
export function makeFolder(path: string): void {
  mkdirSync(path, { recursive: true, mode: 0o700 })
}

let count = 0

/** Writes a file that only its owner can read, atomically: a crash leaves the old file or the new one. */
export function writeFile(path: string, text: string): void {
  count += 1
  const fresh = `${path}.${process.pid}-${count}.new`
  try {
    const file = openSync(fresh, 'wx', 0o600)
    try {
      writeSync(file, text)
      fsyncSync(file)
    } finally {
      closeSync(file)
    }
    renameSync(fresh, path)
  } catch (error) {
    tryUnlink(fresh)
    throw error
  }
}

/** Removes a file; one that is not there is fine. */
export function tryUnlink(path: string): void {
  try {
    unlinkSync(path)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error
  }
}

/**
 * The environment of a server that the command runs from a file. Without `RONDO_KEYS` it gets a key that is created once and
 * kept on this machine, so that pending calls survive a restart and a reload.
 */
export function serverEnv(io: Pick<Io, 'env' | 'cwd'>): Record<string, string> {
  const given = Object.entries(io.env).filter((entry): entry is [string, string] => entry[1] !== undefined)
  const env = Object.fromEntries(given)
  // In production a server without keys has to say so itself.
  if ((env.RONDO_KEYS ?? '').trim() !== '' || env.NODE_ENV === 'production') return env
  return { ...env, RONDO_KEYS: localKeys(homeOf(io)) }
}

function localKeys(home: string): string {
  const kept = keptKeys(home)
  if (kept !== undefined) return kept
  makeFolder(home)
  const keys = generateKey('local')
  writeFile(join(home, 'keys'), `${keys}\n`)
  return keys
}

/** The kept keys; undefined if there are none. */
export function keptKeys(home: string): string | undefined {
  const kept = tryRead(join(home, 'keys'))?.trim()
  return kept === '' ? undefined : kept
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
    help: 'encrypts stored pending calls with the key in FILE (else RONDO_SEAL_KEY)',
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

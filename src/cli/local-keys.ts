/**
 * Keys for servers that the command runs itself, where `RONDO_KEYS` is not set: made once and kept, so that a call which
 * is pending today can be resumed tomorrow, and `rondo play` can reload without losing one. For one machine only.
 */

import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { generateKey } from '../seal/key-ring.ts'
import { homeOf, makeFolder } from './home.ts'
import type { Io } from './io.ts'
import { writeFile } from './write-file.ts'

/** The environment of a server from a file: this process's own, and keys. */
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

/** The keys that were made up before; undefined if none were. */
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

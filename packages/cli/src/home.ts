/**
 * The folder of the command: `RONDO_HOME`, or else the system's folder for user data. Its files are readable by their owner only.
 * In it are two keys of this user, one for servers that the command runs from a file and one that encrypts stored pending calls;
 * and the logins of this user:
 *
 *   <home>/logins/<digest of the server's URL>.json   a StoredLogin   mode 0600
 *   <home>/logins/<digest>.lock                       the id of the process that refreshes it now
 *   <home>/dpop-key                                   the key to which tokens are bound, as a JWK
 */

import { createHash } from 'node:crypto'
import {
  closeSync,
  fsyncSync,
  linkSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  unlinkSync,
  writeFileSync,
} from 'node:fs'
import { homedir } from 'node:os'
import { isAbsolute, join, resolve } from 'node:path'
import { generateKey } from 'rondo'
import type { ClientAuth } from 'rondo/client'
import { parseLogin, type StoredLogin, type TokenStore } from 'rondo/client/oauth'
import type { DoctorTokens } from 'rondo/internal'
import { canonical, sleep, systemClock } from 'rondo/internal'
import { CommandError, type Options, type OptionTable, usageError } from './command-line.ts'
import type { Io } from './io.ts'
import type { NamedTarget } from './words.ts'

/** The variables that the command reads. */
export const VARIABLES: Readonly<Record<string, string>> = {
  RONDO_HOME:
    'the folder for the files; `rondo` in XDG_DATA_HOME, or else `~/.local/share/rondo`, unless set',
  RONDO_SEAL_KEY: 'encrypts pending calls: 32 bytes in base64, if `--seal-key` names no file',
  RONDO_KEYS: 'the keys of servers, for `keys`, `state`, `tasks`, `play` and servers run from a file',
  PGPASSWORD: 'and the other variables of PostgreSQL’s own programs, for `tasks` and `store`',
  NO_COLOR: 'prints without colours',
}

/** The files of the command. Only their owner can read them. */
export const FILES: Readonly<Record<string, string>> = {
  'pending/ID.json':
    'a pending call and its server; the call is encrypted if there is a key, the server is not',
  'logins/….json': 'a login: server, issuer, client and tokens',
  '….lock': 'the id of the process that uses a file; ignored once that process has ended',
  'asking/ID.json': 'a question of `rondo bridge` that waits for `rondo answer`, and beside it the answer',
  keys: 'the key for servers that the command runs from a file, if neither the file nor RONDO_KEYS names keys',
  'dpop-key': 'the key to which tokens are bound, with `rondo login --dpop`',
}

export function homeOf({ env, cwd }: Pick<Io, 'env' | 'cwd'>): string {
  if (env.RONDO_HOME) return resolve(cwd, env.RONDO_HOME)
  // The XDG specification: ignore a path that is not absolute.
  if (env.XDG_DATA_HOME && isAbsolute(env.XDG_DATA_HOME)) return join(env.XDG_DATA_HOME, 'rondo')
  if (process.platform === 'win32' && env.LOCALAPPDATA) return join(env.LOCALAPPDATA, 'rondo')
  return join(env.HOME || homedir(), '.local', 'share', 'rondo')
}

/** Creates a folder that only its owner can enter. */
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
      // Writes all of it or throws, unlike `writeSync` on a disk that is nearly full.
      writeFileSync(file, text)
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

/** Removes a file, if it exists. */
export function tryUnlink(path: string): void {
  try {
    unlinkSync(path)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error
  }
}

/**
 * The environment of a server that the command runs from a file. Without `RONDO_KEYS` it gets a key that is created once and
 * stored in the home folder, so that pending calls survive a restart and a reload. It serves only if the file names no keys.
 */
export function serverEnv(io: Pick<Io, 'env' | 'cwd'>): Record<string, string> {
  const given = Object.entries(io.env).filter((entry): entry is [string, string] => entry[1] !== undefined)
  const env = Object.fromEntries(given)
  // In production the server itself has to report that it has no keys.
  if ((env.RONDO_KEYS ?? '').trim() !== '' || env.NODE_ENV === 'production') return env
  return { ...env, RONDO_LOCAL_KEYS: localKeys(homeOf(io)) }
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

const TRIES = 3

/**
 * Takes a lock between processes: a file with the id of its holder, which is invalid once the holder is dead. Returns the function that
 * releases it; throws if a live process holds it.
 */
export function takeLock(path: string, what: string): () => void {
  // Linked, not created in place, so that a lock always names its holder.
  const own = `${path}.${process.pid}`
  writeFileSync(own, `${process.pid}\n`, { mode: 0o600 })
  try {
    for (let left = TRIES; left > 0; left--) {
      if (tryLink(own, path)) return () => tryUnlink(path)
      const holder = readHolder(path)
      if (holder !== undefined && isAlive(holder)) {
        throw new CommandError(
          'stored',
          `${what} is in use by process ${holder}. If that process is not rondo, remove ${path}`,
        )
      }
      tryUnlink(path)
    }
  } finally {
    tryUnlink(own)
  }
  throw new CommandError('stored', `${what} is in use`)
}

function tryLink(from: string, to: string): boolean {
  try {
    linkSync(from, to)
    return true
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') return false
    throw error
  }
}

function readHolder(path: string): number | undefined {
  try {
    const pid = Number(readFileSync(path, 'utf8'))
    return Number.isSafeInteger(pid) && pid > 0 ? pid : undefined
  } catch {
    return undefined
  }
}

export function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch (error) {
    // The process exists, but belongs to another user.
    return (error as NodeJS.ErrnoException).code === 'EPERM'
  }
}

export interface LoginStore extends TokenStore {
  load(server: string): StoredLogin | undefined
  /** All logins, without files that are damaged. */
  list(): StoredLogin[]
}

const WAIT_MS = 100
const MAX_WAITS = 600

export function createLoginStore(home: string): LoginStore {
  const folder = join(home, 'logins')
  const pathOf = (server: string, end: string) =>
    join(folder, `${createHash('sha256').update(server).digest('hex').slice(0, 32)}.${end}`)
  return {
    load(server) {
      const path = pathOf(server, 'json')
      const text = readIfThere(path)
      if (text === undefined) return undefined
      const login = parse(text)
      if (login?.server === server) return login
      throw new CommandError(
        'stored',
        `The login in ${path} is damaged. Remove it with: rondo logout ${server}`,
      )
    },
    save(server, login) {
      makeFolder(folder)
      writeFile(pathOf(server, 'json'), `${JSON.stringify(login)}\n`)
    },
    remove: (server) => tryUnlink(pathOf(server, 'json')),
    list: () => namesIn(folder).flatMap((name) => parse(readIfThere(join(folder, name)) ?? '') ?? []),
    async exclusively(server, work) {
      makeFolder(folder)
      const release = await waitForLock(pathOf(server, 'lock'))
      try {
        return await work()
      } finally {
        release()
      }
    },
  }
}

const ES256 = { name: 'ECDSA', namedCurve: 'P-256' } as const

/** Reads the key to which tokens are bound, or creates it. Each command is a process of its own, so it is in a file. */
export async function bindingKey(home: string): Promise<CryptoKeyPair> {
  const path = join(home, 'dpop-key')
  const { subtle } = globalThis.crypto
  const text = readIfThere(path)
  if (text === undefined) {
    const { privateKey } = await subtle.generateKey(ES256, true, ['sign', 'verify'])
    makeFolder(home)
    writeFile(path, `${JSON.stringify(await subtle.exportKey('jwk', privateKey))}\n`)
    return bindingKey(home)
  }
  try {
    const { kty, crv, x, y, d } = JSON.parse(text) as JsonWebKey
    return {
      privateKey: await subtle.importKey('jwk', { kty, crv, x, y, d }, ES256, false, ['sign']),
      publicKey: await subtle.importKey('jwk', { kty, crv, x, y }, ES256, true, ['verify']),
    }
  } catch {
    throw new CommandError('stored', `The key in ${path} is damaged. Remove it, and log in again`)
  }
}

/** A refresh takes seconds at most, so that waiting for another process is short. */
async function waitForLock(path: string): Promise<() => void> {
  for (let left = MAX_WAITS; ; left--) {
    try {
      return takeLock(path, 'The login')
    } catch (error) {
      if (left === 0 || !(error instanceof CommandError)) throw error
      await sleep(systemClock, WAIT_MS)
    }
  }
}

function namesIn(folder: string): string[] {
  try {
    return readdirSync(folder).filter((name) => name.endsWith('.json'))
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return []
    throw new CommandError('stored', `Cannot read the logins: ${(error as Error).message}`)
  }
}

function readIfThere(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8')
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined
    throw new CommandError('stored', `Cannot read ${path}: ${(error as Error).message}`)
  }
}

function parse(text: string): StoredLogin | undefined {
  try {
    return parseLogin(JSON.parse(text))
  } catch {
    return undefined
  }
}

export interface StoredAuth extends ClientAuth {
  readonly tokenFor: DoctorTokens
}

/** Returns the stored login for a server, unless there is none or the headers have a credential already. */
export async function storedAuth(
  io: Pick<Io, 'env' | 'cwd' | 'now'>,
  target: NamedTarget,
  headers: Readonly<Record<string, string>>,
): Promise<StoredAuth | undefined> {
  if (target.kind !== 'url') return undefined
  if (Object.keys(headers).some((name) => name.toLowerCase() === 'authorization')) return undefined
  const store = createLoginStore(homeOf(io))
  const login = store.load(canonical(new URL(target.url)))
  if (login === undefined) return undefined
  const { openLogins } = await import('rondo/internal')
  const isBound = login.tokens?.keyThumbprint !== undefined
  const open = openLogins({ store, now: io.now, ...(isBound && { dpop: await bindingKey(homeOf(io)) }) })
  return { open, tokenFor: open(new URL(target.url)).tokenFor }
}

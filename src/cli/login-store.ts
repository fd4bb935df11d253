/**
 * The logins of this user, one file each, and which of them a command uses.
 *
 *   <home>/logins/<digest of the server's URL>.json   a StoredLogin   mode 0600
 *   <home>/logins/<digest>.lock                       the id of the process that refreshes it now
 */

import { createHash } from 'node:crypto'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { ClientAuth } from '../client/auth.ts'
import type { DoctorTokens } from '../client/oauth/oauth.ts'
import { canonical, parseLogin, type StoredLogin, type TokenStore } from '../client/oauth/options.ts'
import { sleep, systemClock } from '../lib/clock.ts'
import { CommandError } from './command-line.ts'
import { homeOf, makeFolder, tryUnlink, writeFile } from './home.ts'
import type { Io } from './io.ts'
import { takeLock } from './pending-store.ts'
import type { NamedTarget } from './target.ts'

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

/** The stored login for a server. Undefined if there is none, or if the headers have a credential already. */
export async function storedAuth(
  io: Pick<Io, 'env' | 'cwd' | 'now'>,
  target: NamedTarget,
  headers: Readonly<Record<string, string>>,
): Promise<StoredAuth | undefined> {
  if (target.kind !== 'url') return undefined
  if (Object.keys(headers).some((name) => name.toLowerCase() === 'authorization')) return undefined
  const store = createLoginStore(homeOf(io))
  if (store.load(canonical(new URL(target.url))) === undefined) return undefined
  const { openLogins } = await import('../client/oauth/oauth.ts')
  const open = openLogins({ store, now: io.now })
  return { open, tokenFor: open(new URL(target.url)).tokenFor }
}

/**
 * A lock between processes of one machine: a file with the number of the process that holds it. A holder that died, by
 * kill -9 say, has lost it.
 */

import { linkSync, readFileSync, writeFileSync } from 'node:fs'
import { CommandError } from './command-error.ts'
import { tryUnlink } from './write-file.ts'

const TRIES = 3

/** Gives the function that lets go. Throws if another process that is alive has it. */
export function takeLock(path: string, what: string): () => void {
  // Linked and not created in place, so that a lock always names its holder.
  const own = `${path}.${process.pid}`
  writeFileSync(own, `${process.pid}\n`, { mode: 0o600 })
  try {
    for (let left = TRIES; left > 0; left--) {
      if (tryLink(own, path)) return () => tryUnlink(path)
      const holder = readHolder(path)
      if (holder !== undefined && isAlive(holder)) {
        throw new CommandError('stored', `${what} is in use by process ${holder}. If not, remove ${path}`)
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

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch (error) {
    // There, but somebody else's.
    return (error as NodeJS.ErrnoException).code === 'EPERM'
  }
}

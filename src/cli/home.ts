/** The folder of the command: `RONDO_HOME`, or else the system's folder for user data. Its files are readable by their owner only. */

import { closeSync, fsyncSync, mkdirSync, openSync, renameSync, unlinkSync, writeFileSync } from 'node:fs'
import { homedir } from 'node:os'
import { isAbsolute, join, resolve } from 'node:path'
import type { Io } from './io.ts'

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

/** Where the command keeps its files: `RONDO_HOME`, else the place the system has for such data. */

import { mkdirSync } from 'node:fs'
import { homedir } from 'node:os'
import { isAbsolute, join, resolve } from 'node:path'
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

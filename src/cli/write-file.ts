/** Writes a file that only its owner can read, whole or not at all: a crash leaves the old one or the new one. */

import { closeSync, fsyncSync, openSync, renameSync, unlinkSync, writeSync } from 'node:fs'

let count = 0

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

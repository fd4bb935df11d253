/** Reads JSON from a file, or from stdin where the name is `-`. */

import { readFileSync } from 'node:fs'
import { resolve } from 'node:path'
import { isRecord } from '../lib/is-record.ts'
import { usageError } from './command-error.ts'
import { type Io, readStdin } from './io.ts'

/** The JSON object in the file that an option names. */
export async function readJsonObject(io: Io, option: string, name: string): Promise<Record<string, unknown>> {
  const text = name === '-' ? await readStdin(io) : readText(io, option, name)
  const value = parse(text)
  if (!isRecord(value))
    throw usageError(`${option}: ${name === '-' ? 'stdin' : name} must hold a JSON object`)
  return value
}

function readText(io: Io, option: string, name: string): string {
  try {
    return readFileSync(resolve(io.cwd, name), 'utf8')
  } catch (error) {
    throw usageError(`${option}: ${(error as Error).message}`)
  }
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

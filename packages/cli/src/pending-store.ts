/**
 * The pending calls of this user, one file each.
 *
 *   <home>/pending/<id>.json   { version 1, target, accepts, pending } or { …, sealed }   mode 0600
 *   <home>/pending/<id>.lock   the id of the process that drives the call now
 *
 * 1. A file is replaced atomically, so a process that dies leaves the call as it was before or after a step, never between.
 * 2. Two processes never drive one call: only one can create the lock file. The lock of a dead process is invalid.
 * 3. With a key the call is sealed; its target stays readable, so that it can be listed.
 */

import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { QuestionKind } from 'rondo'
import type { PendingCall } from 'rondo/client'
import { LIMITS, openPending, parsePending, sealPending } from 'rondo/client'
import { isRecord, QUESTION_KINDS, vetRound } from 'rondo/internal'
import { CommandError } from './command-line.ts'
import { makeFolder, takeLock, tryUnlink, writeFile } from './home.ts'
import { type NamedTarget, parseTarget } from './words.ts'

export interface StoredCall {
  readonly target: NamedTarget
  /** The kinds of questions that the server may ask in this call. */
  readonly accepts: readonly QuestionKind[]
  readonly pending: PendingCall
}

/** One file in a listing. */
export interface ListedCall {
  readonly id: string
  /** Undefined if the call is sealed or the file is damaged; `problem` says which. */
  readonly call?: StoredCall
  readonly problem?: string
}

export interface PendingStore {
  readonly folder: string
  save(call: StoredCall): void
  load(id: string): StoredCall
  /** The one id that begins with `start`. Throws if there is none, or more than one. */
  find(start: string): string
  list(): ListedCall[]
  remove(id: string): void
  /** Claims the call for this process; returns the function that releases it. */
  claim(id: string): () => void
}

const ID = /^[a-z0-9-]{3,64}$/

export function createPendingStore(home: string, key?: Uint8Array): PendingStore {
  const folder = join(home, 'pending')
  const fileOf = (id: string) => join(folder, `${id}.json`)
  const ids = (): string[] => readNames(folder).filter((id) => ID.test(id))
  const load = (id: string): StoredCall => readCall(readText(fileOf(id), id), id, key)
  return {
    folder,
    save({ target, accepts, pending }) {
      makeFolder(folder)
      const body = key === undefined ? { pending } : { sealed: sealPending(pending, key) }
      writeFile(fileOf(pending.id), `${JSON.stringify({ version: 1, target, accepts, ...body })}\n`)
    },
    load,
    find(start) {
      const found = ids().filter((id) => id.startsWith(start))
      if (found.includes(start)) return start
      if (found.length === 1 && found[0] !== undefined && start.length >= 3) return found[0]
      const many = found.length > 1 && start.length >= 3
      throw new CommandError(
        'stored',
        many
          ? `More than one pending call has an id that begins with ${start}`
          : `No pending call has the id ${start}`,
      )
    },
    list: () =>
      ids().map((id) => {
        try {
          return { id, call: load(id) }
        } catch (error) {
          return { id, problem: (error as Error).message }
        }
      }),
    remove: (id) => tryUnlink(fileOf(id)),
    claim(id) {
      makeFolder(folder)
      return takeLock(join(folder, `${id}.lock`), `The call ${id}`)
    },
  }
}

function readNames(folder: string): string[] {
  try {
    return readdirSync(folder).flatMap((name) => (name.endsWith('.json') ? [name.slice(0, -5)] : []))
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return []
    throw new CommandError('stored', `Cannot read the pending calls: ${(error as Error).message}`)
  }
}

function readText(path: string, id: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch (error) {
    const gone = (error as NodeJS.ErrnoException).code === 'ENOENT'
    throw new CommandError(
      'stored',
      gone ? `No pending call has the id ${id}` : `Cannot read ${path}: ${(error as Error).message}`,
    )
  }
}

function readCall(text: string, id: string, key: Uint8Array | undefined): StoredCall {
  const record = parseJson(text)
  const target = isRecord(record) && record.version === 1 ? parseTarget(record.target) : undefined
  if (!isRecord(record) || target === undefined)
    throw new CommandError('stored', `The file of the pending call ${id} is damaged`)
  const pending = openBody(record, id, key)
  if (pending.id !== id) throw new CommandError('stored', `The file of ${id} belongs to another call`)
  const listed: unknown[] = Array.isArray(record.accepts) ? record.accepts : []
  const accepts = QUESTION_KINDS.filter((kind) => listed.includes(kind))
  // Somebody may have changed the questions in the file.
  const questions = vetRound(pending, LIMITS, new Set(accepts))
  return { target, accepts, pending: { ...pending, questions } }
}

function openBody(record: Record<string, unknown>, id: string, key: Uint8Array | undefined): PendingCall {
  if (typeof record.sealed !== 'string') return parsePending(record.pending)
  if (key === undefined) {
    throw new CommandError(
      'stored',
      `The pending call ${id} is encrypted. Pass its key with --seal-key or RONDO_SEAL_KEY`,
    )
  }
  return openPending(record.sealed, key)
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

/**
 * Calls that go on without their request. A host that sends no progress token ends a call after a minute, whatever happens. Where a
 * person on this machine is asked meanwhile, the call returns a handle before that, and `task_status` returns its result later.
 *
 * A handle belongs to its caller. Handles are bounded in number and time; a call whose handle expires is cancelled.
 */

import { randomBytes } from 'node:crypto'
import type { Clock } from 'rondo/client'
import { sleep } from './subscriptions.ts'

type Result = Readonly<Record<string, unknown>>

interface Handle {
  readonly caller: string
  readonly ended: Promise<{ readonly result: Result } | { readonly error: unknown }>
  isOver: boolean
  /** Cancels the call, if it has not ended, and stops the timer. */
  end(): void
}

export interface Handles {
  /** How long a call may stay with its request. */
  readonly afterMs: number
  /** Keeps a call, and forgets one that has ended if there are too many. Returns undefined if all are open. */
  keep(caller: string, ended: Promise<Result>, cancel: () => void): string | undefined
  /** Waits for the end of a call. */
  status(
    id: string,
    caller: string,
  ): Promise<{ readonly result: Result } | { readonly error: unknown } | 'open' | 'unknown'>
  /** The result that a host gets in place of the call's own. */
  result(id: string, upstream: string, count: number, structured?: boolean): Result
  close(): void
}

export const HANDLE_TOOL = 'task_status'

const MAX_HANDLES = 100
const LIFE_MS = 3_600_000
/** Hosts end a call after 60 s. */
const AFTER_MS = 50_000

/** `place` is where the person finds the question. */
export function createHandles(clock: Clock, place = "on the user's screen"): Handles {
  const handles = new Map<string, Handle>()
  const remove = (id: string): void => {
    handles.get(id)?.end()
    handles.delete(id)
  }
  return {
    afterMs: AFTER_MS,
    keep(caller, ended, cancel) {
      if (handles.size >= MAX_HANDLES) {
        const past = Array.from(handles).find(([, one]) => one.isOver)
        if (past === undefined) return undefined
        remove(past[0])
      }
      const id = randomBytes(9).toString('base64url')
      const stop = clock.after(LIFE_MS, () => remove(id))
      const outcome = ended.then(
        (result) => ({ result }),
        (error: unknown) => ({ error }),
      )
      const handle: Handle = {
        caller,
        ended: outcome,
        isOver: false,
        end() {
          stop()
          if (!handle.isOver) cancel()
        },
      }
      void outcome.then(() => {
        handle.isOver = true
      })
      handles.set(id, handle)
      return id
    },
    async status(id, caller) {
      const handle = handles.get(id)
      if (handle === undefined || handle.caller !== caller) return 'unknown'
      const stop = new AbortController()
      const late = sleep(clock, AFTER_MS, stop.signal).then(() => 'open' as const)
      return Promise.race([handle.ended, late]).finally(() => stop.abort())
    },
    result(id, upstream, count, structured = false) {
      const text =
        `The call is not finished: "${upstream}" asked the user a question, which is open ${place}. ` +
        `Tell the user to answer it there. Then call ${HANDLE_TOOL} with { "id": "${id}", "count": ${count} } for the result. Do not repeat the call itself.`
      // A result without an error would have to fit the tool's output schema.
      return { content: [{ type: 'text', text }], ...(structured && { isError: true }) }
    },
    close() {
      for (const id of [...handles.keys()]) remove(id)
    },
  }
}

/** The rows that every subject writes: texts as long as sealed ones, and as hard to compress. */

import { createHash } from 'node:crypto'
import { createTaskId, type NewTask, type TaskOwner } from '../../packages/rondo/src/store/task-engine.ts'
import { ENDED_BYTES } from '../../packages/rondo/src/store/task-store.ts'

/** Returns pseudo-random text that is the same in every process. */
function text(name: string, length: number): string {
  const digest = (_: unknown, i: number) => createHash('sha256').update(`${name} ${i}`).digest('base64url')
  return Array.from({ length: Math.ceil(length / 43) }, digest)
    .join('')
    .slice(0, length)
}

const HEAD = text('head', 1_000)
export const QUESTION: string = text('question', 700)
export const ANSWER: string = text('answer', 500)
export const RESULT: string = text('result', 500)
/** The size that a task with this result has among the ended ones of its owner. */
export const RESULT_BYTES: number = RESULT.length + ENDED_BYTES
export const KEY = 'resolution'

export const TTL_MS = 3_600_000
export const POLL_MS = 1_000

/** So many that no owner reaches the limit on open tasks. */
const OWNERS = Array.from(
  { length: 2_000 },
  (_, i): TaskOwner => ({ tenant: 'https://bench.example/mcp', principal: text(`owner ${i}`, 43) }),
)

let made = 0

export function newTask(): NewTask {
  const owner = OWNERS[made++ % OWNERS.length] as TaskOwner
  return { id: createTaskId(), owner, head: HEAD, ttlMs: TTL_MS, pollMs: POLL_MS }
}

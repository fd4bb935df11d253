/** A task as its owner sees it, in words and as JSON. What the server wrote is cleaned before it gets here. */

import { openQuestions, type PendingCall } from '../client/pending.ts'
import { oneLine } from '../form/clean-text.ts'
import type { TaskState } from '../protocol/task.ts'
import { exampleWord, sayQuestion, sayRequest, sayServer } from './describe-call.ts'
import { sayAge } from './pending.ts'
import { formatTable } from './table.ts'

export interface ShownTask {
  readonly state: TaskState
  /** The call, with the questions that are open. */
  readonly pending: PendingCall
  /** Its name on the command line. */
  readonly name: string
  /** The call is kept here. */
  readonly isKept: boolean
  /** Why the questions are not shown. */
  readonly problem?: string
}

export function sayTask({ state, pending, name, isKept, problem }: ShownTask, now: number): string {
  const { status, statusMessage, createdAt, lastUpdatedAt, ttlMs, error } = state
  const rows = [
    ['status', statusMessage === undefined ? status : `${status}: ${oneLine(statusMessage)}`],
    ...(error === undefined ? [] : [['error', `${error.code} ${oneLine(error.message)}`]]),
    ['created', `${sayTime(createdAt)}, ${sayAgo(now - createdAt)}`],
    ['updated', `${sayTime(lastUpdatedAt)}, ${sayAgo(now - lastUpdatedAt)}`],
    ['kept', ttlMs === null ? 'without limit' : `until ${sayTime(createdAt + ttlMs)}`],
    ['server', sayServer(pending.server)],
    ...(isKept ? [['call', `${sayRequest(pending.request)}, pending ${pending.id}`]] : []),
  ]
  const open = openQuestions(pending)
  const asked = open.flatMap(([key, question]) => ['', ...sayQuestion(key, question)])
  const words = open.map(([key, question]) => exampleWord(oneLine(key), question))
  return [
    `task ${oneLine(state.taskId)}`,
    formatTable(rows.map(([label, text = '']) => [`  ${label}`, text])),
    ...(problem === undefined ? [] : ['', `Its questions are not shown: ${oneLine(problem)}`]),
    ...asked,
    ...(open.length > 0 ? ['', `answer:   rondo task answer ${oneLine(name)} ${words.join(' ')}`] : []),
    ...(isEnded(state)
      ? []
      : [...(open.length > 0 ? [] : ['']), `cancel:   rondo task cancel ${oneLine(name)}`]),
    ...(isKept && !isEnded(state) ? [`wait:     rondo resume ${pending.id}`] : []),
  ].join('\n')
}

export function taskJson(
  { state, pending, isKept, problem }: ShownTask,
  protocolVersion: string,
): Record<string, unknown> {
  const { inputRequests: _, ...task } = state
  const asks = state.status === 'input_required' && problem === undefined
  return {
    task: { ...task, ...(asks && { inputRequests: pending.questions }), ...(problem && { problem }) },
    server: { ...pending.server, protocolVersion },
    ...(isKept && { id: pending.id }),
  }
}

export function isEnded({ status }: TaskState): boolean {
  return status === 'completed' || status === 'failed' || status === 'cancelled'
}

const LAST_DATE = 8.64e15

export function sayTime(ms: number): string {
  return Math.abs(ms) <= LAST_DATE ? new Date(ms).toISOString() : 'no known time'
}

function sayAgo(ms: number): string {
  const age = sayAge(ms)
  return age === 'now' ? 'just now' : `${age} ago`
}

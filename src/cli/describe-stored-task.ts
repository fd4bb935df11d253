/** A task as an operator sees it: nothing that is sealed, and no more than tags of whose it is. */

import { oneLine } from '../form/clean-text.ts'
import type { TaskStore } from '../sqlite.ts'
import { sayTime } from './describe-task.ts'
import { sayAge } from './pending.ts'
import { formatTable } from './table.ts'

export type StoredTask = Awaited<ReturnType<TaskStore['list']>>[number]
export type StoreStats = Awaited<ReturnType<TaskStore['stats']>>

const TAG_LENGTH = 9
const HEAD = ['task', 'status', 'age', 'expires', 'failures', 'entries', 'worker', 'open', 'owner']

export function tableOf(tasks: readonly StoredTask[], now: number, width?: number): string {
  const rows = tasks.map((task) => [
    task.id,
    task.status,
    sayAge(now - task.createdAt),
    sayUntil(task.expiresAt - now),
    String(task.failures),
    String(task.entries),
    task.worker ?? '-',
    task.openKeys.join(',') || '-',
    `${task.owner.tenant}/${task.owner.principal.slice(0, TAG_LENGTH)}`,
  ])
  return formatTable([HEAD, ...rows.map((row) => row.map(oneLine))], width)
}

export function sayStoredTask(task: StoredTask, now: number): string {
  const { dueAt } = task
  const due = dueAt === undefined ? '-' : `${sayTime(dueAt)}${dueAt <= now ? ', waits for a worker' : ''}`
  const rows = [
    ['task', task.id],
    ['status', task.status],
    ['created', `${sayTime(task.createdAt)} (${sayAge(now - task.createdAt)})`],
    ['updated', `${sayTime(task.updatedAt)} (${sayAge(now - task.updatedAt)})`],
    ['expires', `${sayTime(task.expiresAt)} (${sayUntil(task.expiresAt - now)})`],
    ['failures', String(task.failures)],
    ['worker', task.worker ?? '-'],
    [task.worker === undefined ? 'due' : 'lease until', due],
    ['open questions', task.openKeys.join(', ') || '-'],
    ['journal entries', String(task.entries)],
    ['tenant', task.owner.tenant],
    ["owner's tag", task.owner.principal],
  ]
  return formatTable(rows.map((row) => row.map(oneLine)))
}

export function sayStats({ due, oldestDueMs, running, parked }: StoreStats): string {
  const oldest = due === 0 ? '' : `, the oldest for ${(oldestDueMs / 1000).toFixed(1)} s`
  return formatTable([
    ['due', `${due}${oldest}`, 'wait for a worker'],
    ['running', String(running), 'with a worker'],
    ['parked', String(parked), 'wait for an answer'],
  ])
}

function sayUntil(ms: number): string {
  const age = sayAge(ms)
  return age === 'now' ? 'soon' : `in ${age}`
}

/** `rondo tasks`: what an operator wants to know of a store of tasks. Only looks. */

import { JSON_OPTION } from './call-session.ts'
import type { Command, Invocation } from './command.ts'
import { CommandError, usageError } from './command-error.ts'
import { type StoredTask, sayStats, sayStoredTask, tableOf } from './describe-stored-task.ts'
import type { Exit } from './exit-code.ts'
import { print, printJson, tell } from './io.ts'
import { type NamedStore, openTaskStore } from './open-task-store.ts'

const STATUSES: readonly StoredTask['status'][] = [
  'working',
  'input_required',
  'completed',
  'failed',
  'cancelled',
]
const DEFAULT_LIMIT = 50
const MAX_LIMIT = 1_000

export const tasksCommand: Command = {
  name: 'tasks',
  usage: '<store> [taskId]',
  summary: 'lists the tasks of a store for its operator, or shows one',
  details: [
    'A store is a SQLite file or a postgres:// URL. What PostgreSQL needs besides, such as PGPASSWORD, comes from the',
    'environment. Content is sealed and not shown. The newest come first; a file that is no store is left alone.',
  ],
  options: {
    status: { type: 'string', value: 'STATUS', help: `only those: ${STATUSES.join(', ')}` },
    limit: { type: 'string', value: 'N', help: `how many (${DEFAULT_LIMIT})` },
    after: { type: 'string', value: 'PLACE', help: 'goes on after a page, with the place it ended with' },
    stats: { type: 'boolean', help: 'counts instead: due, running, parked' },
    schema: { type: 'string', value: 'NAME', help: 'the schema in PostgreSQL (rondo)' },
    ...JSON_OPTION,
  },
  async run(invocation) {
    const { io, options } = invocation
    const [word, id, ...others] = invocation.words
    if (word === undefined) throw usageError('Name a store: a SQLite file, or a postgres:// URL')
    if (others.length > 0) throw usageError(`"${others[0]}" is one word too many`)
    const query = readQuery(invocation)
    const named = await openTaskStore(word, io.cwd, options.text('schema') ?? 'rondo')
    try {
      if (options.flag('stats')) return await showStats(invocation, named)
      return id === undefined
        ? await listTasks(invocation, named, query)
        : await showTask(invocation, named, id)
    } catch (error) {
      throw named.explain(error)
    } finally {
      await named.store.close()
    }
  },
}

interface Query {
  readonly status?: StoredTask['status']
  readonly after?: { readonly id: string; readonly createdAt: number }
  readonly limit: number
}

function readQuery({ options }: Invocation): Query {
  const given = options.text('status')
  const status = STATUSES.find((one) => one === given)
  if (given !== undefined && status === undefined) {
    throw usageError(`--status takes one of ${STATUSES.join(', ')}, not "${given}"`)
  }
  const limit = options.number('limit') ?? DEFAULT_LIMIT
  if (!Number.isInteger(limit) || limit < 1 || limit > MAX_LIMIT) {
    throw usageError(`--limit takes a whole number from 1 to ${MAX_LIMIT}`)
  }
  const place = options.text('after')
  return { status, limit, after: place === undefined ? undefined : readPlace(place) }
}

/** Where a page ended: the time, and the task itself, which may be gone by then. */
const placeOf = ({ createdAt, id }: StoredTask): string => `${createdAt}.${id}`

function readPlace(text: string): Query['after'] {
  const [, time, id] = /^(\d{1,16})\.(.+)$/s.exec(text) ?? []
  if (time === undefined || id === undefined)
    throw usageError('--after takes the place that a page ended with')
  return { createdAt: Number(time), id }
}

async function listTasks(
  { io, options }: Invocation,
  { store, name }: NamedStore,
  query: Query,
): Promise<Exit> {
  const found = await store.tasks.list({ ...query, limit: query.limit + 1 })
  const tasks = found.slice(0, query.limit)
  const last = found.length > tasks.length ? tasks.at(-1) : undefined
  if (options.flag('json')) printJson(io, { tasks, ...(last && { next: placeOf(last) }) })
  else if (tasks.length === 0) tell(io, `No such task is in ${name}.`)
  else print(io, tableOf(tasks, io.now(), io.stdout.isTTY ? io.stdout.columns : undefined))
  if (last && !options.flag('json')) tell(io, `There are more: --after ${placeOf(last)}`)
  return 'done'
}

async function showTask({ io, options }: Invocation, { store, name }: NamedStore, id: string): Promise<Exit> {
  const [task] = await store.tasks.list({ id, limit: 1 })
  if (task === undefined) throw new CommandError('stored', `No task ${id} is in ${name}, or it has expired`)
  if (options.flag('json')) printJson(io, { task })
  else print(io, sayStoredTask(task, io.now()))
  return 'done'
}

async function showStats({ io, options }: Invocation, { store }: NamedStore): Promise<Exit> {
  const stats = await store.tasks.stats()
  if (options.flag('json')) printJson(io, { stats })
  else print(io, sayStats(stats))
  return 'done'
}

/** `rondo tasks`: shows an operator the tasks in a store. Whatever changes something is in `task-actions.ts`. */

import { oneLine } from 'rondo/internal'
import type { TaskStore } from 'rondo/sqlite'
import { JSON_OPTION } from '../call-setup.ts'
import { type Command, CommandError, type Exit, type Invocation, usageError } from '../command-line.ts'
import { formatTable, print, printJson, sayAge, sayTime, tell } from '../io.ts'
import { type NamedStore, openTaskStore } from '../open-store.ts'
import { KEYS_OPTION, ringOf } from './keys.ts'
import { ACT_NAMES, describeOpened, runAction, showActions, toolNames } from './task-actions.ts'

const STATUSES: readonly StoredTask['status'][] = [
  'working',
  'input_required',
  'completed',
  'failed',
  'cancelled',
]
const DEFAULT_LIMIT = 50
const MAX_LIMIT = 1_000

/** Actions that change nothing. A word that is no action is a store: `rondo tasks ./tasks.db` lists. */
const VIEWS = ['list', 'show', 'stats', 'log'] as const
type View = (typeof VIEWS)[number]

export const tasksCommand: Command = {
  name: 'tasks',
  usage: '[action] <store> [taskId | tool]',
  summary: 'lists the tasks of a store for its operator, shows one, or acts on it',
  details: [
    'list (default)  lists tasks, the newest first',
    'show            shows one task; with the keys its tool and its journal too, with --content all values',
    'stats           counts: due, running, parked',
    'cancel, fail    end open tasks; fail --message TEXT says why to the owner, and needs the keys',
    'retry           makes failed tasks due again, from their journals; --from STEP continues before a step, as a new',
    '                branch, and needs the keys',
    'purge           deletes tasks that have ended',
    'pause, continue stop and start the tasks of a tool, on every instance; need the keys',
    'log             shows who has done which of these, for 90 days',
    '',
    'A store is a SQLite file or a postgres:// URL. What the URL omits, such as PGPASSWORD, is taken from the environment.',
    'For Restate, it is restate+http:// and the address of the admin API, such as restate+http://127.0.0.1:9070.',
    'Without the keys, nothing that is sealed is shown. list, show, stats and log change nothing.',
  ],
  options: {
    status: { type: 'string', value: 'STATUS', help: `only tasks with this status: ${STATUSES.join(', ')}` },
    tool: {
      type: 'string',
      value: 'NAME',
      help: 'only tasks of this tool: with the keys, or if the server sets tasks.listTools',
    },
    owner: { type: 'string', value: 'TENANT/TAG', help: 'only tasks of this owner; show prints both parts' },
    'older-than': { type: 'string', value: 'AGE', help: 'only tasks that began so long ago: 30m, 12h, 7d' },
    limit: { type: 'string', value: 'N', help: `number of tasks (default: ${DEFAULT_LIMIT})` },
    after: {
      type: 'string',
      value: 'PLACE',
      help: 'continues after a page; PLACE is printed at its end',
    },
    ...KEYS_OPTION,
    content: { type: 'boolean', help: 'show: arguments, answers and results as well' },
    from: {
      type: 'string',
      value: 'STEP',
      help: 'retry: continues before this step or effect, as a new branch',
    },
    message: { type: 'string', value: 'TEXT', help: 'fail: tells the owner why' },
    as: {
      type: 'string',
      value: 'NAME',
      help: 'your name, for the record of actions (default: user and host)',
    },
    yes: { type: 'boolean', help: 'retry --from: confirms' },
    stats: { type: 'boolean', help: 'prints counts instead: due, running, parked' },
    schema: {
      type: 'string',
      value: 'NAME',
      help: 'the schema in PostgreSQL (default: rondo), or the namespace in Restate (default: Rondo)',
    },
    ...JSON_OPTION,
  },
  async run(invocation) {
    const { io, options } = invocation
    const { action, word, words } = readWords(invocation)
    if (word === undefined)
      throw usageError('Name a store: a SQLite file, or a postgres:// or restate+http:// URL')
    if (ACT_NAMES.includes(action)) return runAction(invocation, action, word, words)
    const [id, ...others] = words
    if (others.length > 0) throw usageError(`Unexpected argument "${others[0]}"`)
    if (action === 'show' && id === undefined) throw usageError('Name the id of a task')
    const query = readQuery(invocation)
    const named = await openTaskStore(word, io.cwd, options.text('schema'))
    try {
      if (action === 'stats' || options.flag('stats')) return await showStats(invocation, named)
      if (action === 'log') return await showActions(invocation, named, query.limit)
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

/** A first word that is no action is a store, and an id after it is shown. */
function readWords({ words }: Invocation): { action: string; word?: string; words: readonly string[] } {
  const [first = '', ...rest] = words
  if (ACT_NAMES.includes(first) || VIEWS.includes(first as View))
    return { action: first, word: rest[0], words: rest.slice(1) }
  return { action: 'list', word: words[0], words: rest }
}

interface Query {
  readonly status?: StoredTask['status']
  readonly after?: { readonly id: string; readonly createdAt: number }
  readonly owner?: { readonly tenant: string; readonly principal: string }
  readonly tools?: readonly string[]
  readonly limit: number
}

const UNITS: Readonly<Record<string, number>> = { s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 }

function readAge(text: string): number {
  const [, count, unit = ''] = /^(\d{1,6})([smhd])$/.exec(text) ?? []
  if (count === undefined) throw usageError(`--older-than takes an age such as 30m, 12h or 7d, not "${text}"`)
  return Number(count) * (UNITS[unit] ?? 0)
}

/** The tag of an owner has no slash; a tenant may have some. */
function readOwner(text: string): Query['owner'] {
  const at = text.lastIndexOf('/')
  if (at < 0)
    throw usageError(
      '--owner takes the tenant and the tag of an owner, as rondo tasks show prints them: TENANT/TAG',
    )
  return { tenant: text.slice(0, at), principal: text.slice(at + 1) }
}

function readQuery({ io, options }: Invocation): Query {
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
  const age = options.text('older-than')
  // The list goes from the newest to the oldest, so an age is a place in it.
  const old = age === undefined ? undefined : { createdAt: io.now() - readAge(age), id: '' }
  const after = [place === undefined ? undefined : readPlace(place), old].filter((one) => one !== undefined)
  const [first] = after.sort((a, b) => a.createdAt - b.createdAt)
  const [tool, owner] = [options.text('tool'), options.text('owner')]
  return {
    status,
    limit,
    after: first,
    ...(tool !== undefined && { tools: toolNames(ringOf(io, options), tool) }),
    ...(owner !== undefined && { owner: readOwner(owner) }),
  }
}

/** The position at which a page ended. It has the time too, because the task may be gone when the next page is read. */
const placeOf = ({ createdAt, id }: StoredTask): string => `${createdAt}.${id}`

function readPlace(text: string): Query['after'] {
  const [, time, id] = /^(\d{1,16})\.(.+)$/s.exec(text) ?? []
  if (time === undefined || id === undefined)
    throw usageError('--after takes the value printed at the end of a page')
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
  else if (tasks.length === 0) tell(io, `${name} has no such tasks.`)
  else print(io, tableOf(tasks, io.now(), io.stdout.isTTY ? io.stdout.columns : undefined))
  for (const { id, damaged } of tasks)
    if (damaged)
      tell(io, `The row of task ${oneLine(id)} is damaged and cannot be run: delete it from the table task`)
  if (last && !options.flag('json')) tell(io, `For the next page: --after ${placeOf(last)}`)
  return 'done'
}

async function showTask({ io, options }: Invocation, { store, name }: NamedStore, id: string): Promise<Exit> {
  const [task] = await store.tasks.list({ id, limit: 1 })
  if (task === undefined) throw new CommandError('stored', `${name} has no task ${id}, or it has expired`)
  const stored = ringOf(io, options) && (await store.operator?.read(id))
  const opened = stored ? describeOpened({ io, options }, stored) : {}
  if (options.flag('json')) printJson(io, { task: { ...task, ...opened } })
  else print(io, `${sayStoredTask(task, io.now())}${sayOpened(opened)}`)
  return 'done'
}

async function showStats({ io, options }: Invocation, { store }: NamedStore): Promise<Exit> {
  const stats = await store.tasks.stats()
  if (options.flag('json')) printJson(io, { stats })
  else print(io, sayStats(stats))
  return 'done'
}

type StoredTask = Awaited<ReturnType<TaskStore['list']>>[number]
type StoreStats = Awaited<ReturnType<TaskStore['stats']>>

const TAG_LENGTH = 9
const HEAD = ['task', 'status', 'age', 'expires', 'failures', 'entries', 'worker', 'waits for', 'owner']

function tableOf(tasks: readonly StoredTask[], now: number, width?: number): string {
  const rows = tasks.map((task) => [
    task.id,
    task.status,
    sayAge(now - task.createdAt),
    sayUntil(task.expiresAt - now),
    String(task.failures),
    String(task.entries),
    task.worker ?? '-',
    waitsFor(task, now),
    `${task.owner.tenant}/${task.owner.principal.slice(0, TAG_LENGTH)}`,
  ])
  return formatTable([HEAD, ...rows.map((row) => row.map(oneLine))], width)
}

function sayStoredTask(task: StoredTask, now: number): string {
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
    ['waits for', waitsFor(task, now)],
    ['open questions', task.openKeys.join(', ') || '-'],
    ['open hooks', task.openHooks.join(', ') || '-'],
    ['journal entries', String(task.entries)],
    ...(task.keptUntil === undefined ? [] : [['journal kept until', sayTime(task.keptUntil)]]),
    ...(task.tool === undefined || task.tool.startsWith('~') ? [] : [['tool', task.tool]]),
    ['tenant', task.owner.tenant],
    ["owner's tag", task.owner.principal],
  ]
  return formatTable(rows.map((row) => row.map(oneLine)))
}

function sayOpened(opened: Readonly<Record<string, unknown>>): string {
  const rows = Object.entries(opened).flatMap(([name, value]) => {
    if (value === undefined) return []
    if (name === 'journal' && Array.isArray(value))
      return value.map((entry) => ['entry', JSON.stringify(entry)])
    return [[name, typeof value === 'string' ? value : JSON.stringify(value)]]
  })
  return rows.length === 0 ? '' : `\n${formatTable(rows.map((row) => row.map(oneLine)))}`
}

/** The event that would make the task continue, as far as an operator may see. */
function waitsFor({ status, worker, dueAt, openKeys, openHooks }: StoredTask, now: number): string {
  if (status !== 'working' && status !== 'input_required') return '-'
  const answers = openKeys.map((key) => `answer ${key}`)
  const events = openHooks.map((key) => `event ${key}`)
  const isTimed = worker === undefined && dueAt !== undefined
  const time = isTimed ? [dueAt <= now ? 'a worker' : `time ${sayTime(dueAt)}`] : []
  const all = [...answers, ...events, ...time]
  // An effect is held back until the client has shown that it knows the task.
  if (worker === undefined && all.length === 0) return 'its owner'
  return all.join(', ') || '-'
}

function sayStats({ due, oldestDueMs, running, parked }: StoreStats): string {
  const oldest = due === 0 ? '' : `, the oldest for ${(oldestDueMs / 1000).toFixed(1)} s`
  return formatTable([
    ['due', `${due}${oldest}`, 'wait for a worker'],
    ['running', String(running), 'with a worker'],
    ['parked', String(parked), 'wait for an answer, an event or a time'],
  ])
}

function sayUntil(ms: number): string {
  const age = sayAge(ms)
  return age === 'now' ? 'soon' : `in ${age}`
}

/** `rondo tasks`: shows an operator the tasks in a store. Whatever changes something is in `task-actions.ts`. */

import { existsSync } from 'node:fs'
import { resolve } from 'node:path'
import { escapeUnsafe, oneLine } from 'rondo/internal'
import type { TaskStats, TaskSummary } from 'rondo/store'
import { JSON_OPTION } from '../call-setup.ts'
import {
  type Command,
  type Exit,
  type Invocation,
  type Options,
  suggest,
  usageError,
} from '../command-line.ts'
import { formatTable, type Io, print, printJson, sayAge, sayTime, tell } from '../io.ts'
import { type NamedStore, openTaskStore } from '../open-store.ts'
import {
  DEFAULT_LIMIT,
  isAlarm,
  listPage,
  pausedTools,
  type Query,
  readQuery,
  STATUSES,
  showOne,
  waitsFor,
} from '../operate.ts'
import { KEYS_OPTION, ringOf } from './keys.ts'
import { ACT_NAMES, runAction, showActions } from './task-actions.ts'

/** Actions that change nothing. A word that is no action is a store: `rondo tasks ./tasks.db` lists. */
const VIEWS = ['list', 'show', 'stats', 'log'] as const
type View = (typeof VIEWS)[number]

export const tasksCommand: Command = {
  name: 'tasks',
  usage: '[action] <store> [taskId | tool]',
  summary: 'lists the tasks of a store for its operator, shows one, or acts on it',
  details: [
    'A store is a SQLite file or a `postgres://` URL. What the URL omits is taken from the environment (PGPASSWORD, PGUSER …) or from `.pgpass`; a password is never printed. For Restate, name the admin API: `restate+http://127.0.0.1:9070`.',
    'list, show, stats and log change nothing: they create and migrate no table and claim no task. Without the keys, nothing that is sealed is shown. If there is no store, or its tables have another version, the exit code is 8; so it is for an unknown task. An action that the state of a task does not permit exits with 1. A damaged row is named on stderr.',
  ],
  table: {
    name: 'action',
    rows: {
      list: 'lists tasks, the newest first; the default',
      show: 'shows one task; with the keys its tool, labels and journal too, with `--content` all values',
      stats: 'prints counts: due (with the age of the oldest), running, parked; and the paused tools',
      'cancel, fail':
        'end open tasks; several ids may be named. `fail --message` says why to the owner, and needs the keys',
      retry:
        'makes failed tasks due again, from their journals; with `--from`, which needs the keys, as a new branch',
      purge: 'deletes tasks that have ended',
      'pause, continue': 'stop and start the tasks of a tool, on every instance; need the keys',
      log: 'shows who has made which changes',
    },
  },
  json: '`{ "tasks", "next" }` (pass `next` to `--after`), `{ "task" }`, `{ "stats", "paused" }`, `{ "actions" }`, or the outcome of an action with `who`: `done`, `unchanged`, `refused`, `unknown`',
  see: 'docs/guide/operate-tasks.md',
  options: {
    status: { type: 'string', value: 'STATUS', help: `only tasks with this status: ${STATUSES.join(', ')}` },
    tool: {
      type: 'string',
      value: 'NAME',
      help: 'only tasks of this tool: with the keys, or if the server sets tasks.listTools',
    },
    label: {
      type: 'string',
      multiple: true,
      value: 'NAME=VALUE',
      help: 'only tasks with this label, as ctx.label sets it; needs the keys',
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
    const query = readQuery(options, () => ringOf(io, options), io.now())
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
function readWords({ io, words }: Invocation): { action: string; word?: string; words: readonly string[] } {
  const [first = '', ...rest] = words
  if (ACT_NAMES.includes(first) || VIEWS.includes(first as View))
    return { action: first, word: rest[0], words: rest.slice(1) }
  if (rest.length > 0 && /^[a-z]+$/.test(first) && !existsSync(resolve(io.cwd, first)))
    throw usageError(`Unknown action "${first}"${suggest(first, [...VIEWS, ...ACT_NAMES])}`)
  return { action: 'list', word: words[0], words: rest }
}

async function listTasks({ io, options }: Invocation, named: NamedStore, query: Query): Promise<Exit> {
  const { tasks, next } = await listPage(named, query)
  if (options.flag('json')) printJson(io, { tasks, next })
  else if (tasks.length === 0) tell(io, `${named.name} has no such tasks.${sayBlind(io, options)}`)
  else print(io, tableOf(tasks, io.now(), io.stdout.isTTY ? io.stdout.columns : undefined))
  for (const { id, damaged } of tasks)
    if (damaged)
      tell(io, `The row of task ${oneLine(id)} is damaged and cannot be run: delete it from the table task`)
  if (next !== undefined && !options.flag('json')) tell(io, `For the next page: --after ${next}`)
  return 'done'
}

/** Without the keys, a tool is found only by a name in the clear, and its tasks may be there. */
function sayBlind(io: Io, options: Options): string {
  if (options.text('tool') === undefined || ringOf(io, options)) return ''
  return ' Names of tools are sealed unless the server sets tasks.listTools: pass --keys FILE to find them.'
}

async function showTask({ io, options }: Invocation, named: NamedStore, id: string): Promise<Exit> {
  const { task, opened } = await showOne(named, id, () => ringOf(io, options), options.flag('content'))
  if (options.flag('json')) printJson(io, { task: { ...task, ...opened } })
  else print(io, `${sayStoredTask(task, io.now())}${sayOpened(opened)}`)
  if (options.flag('content') && !ringOf(io, options))
    tell(io, 'rondo: The content is sealed. Name a file with --keys, or set RONDO_KEYS')
  return 'done'
}

async function showStats({ io, options }: Invocation, named: NamedStore): Promise<Exit> {
  const stats = await named.store.tasks.stats()
  const paused = await pausedTools(named)
  if (options.flag('json')) printJson(io, { stats, paused })
  else print(io, sayStats(stats, paused))
  return 'done'
}

const TAG_LENGTH = 9
const HEAD = ['task', 'status', 'age', 'expires', 'failures', 'entries', 'worker', 'waits for', 'owner']

function tableOf(tasks: readonly TaskSummary[], now: number, width?: number): string {
  const rows = tasks.map((task) => [
    task.id,
    task.status,
    sayAge(now - task.createdAt),
    sayUntil(task.expiresAt - now),
    String(task.failures),
    String(task.entries),
    task.worker ?? '-',
    waitsFor(task, now),
    `${task.owner.tenant}/${isAlarm(task) ? 'undo' : task.owner.principal.slice(0, TAG_LENGTH)}`,
  ])
  return formatTable([HEAD, ...rows.map((row) => row.map(oneLine))], width)
}

function sayStoredTask(task: TaskSummary, now: number): string {
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
    if (name === 'journal' && Array.isArray(value)) return value.map((entry) => ['entry', sayJson(entry)])
    return [[name, typeof value === 'string' ? oneLine(value) : sayJson(value)]]
  })
  return rows.length === 0 ? '' : `\n${formatTable(rows)}`
}

/** One line. Hidden characters become escapes: a label that only looks like another is not found by it. */
function sayJson(value: unknown): string {
  return escapeUnsafe(JSON.stringify(value) ?? '')
}

function sayStats({ due, oldestDueMs, running, parked }: TaskStats, paused: readonly string[]): string {
  const oldest = due === 0 ? '' : `, the oldest for ${(oldestDueMs / 1000).toFixed(1)} s`
  return formatTable([
    ['due', `${due}${oldest}`, 'wait for a worker'],
    ['running', String(running), 'with a worker'],
    ['parked', String(parked), 'wait for an answer, an event or a time, or their tool is paused'],
    ...paused.map((tool) => ['paused', oneLine(tool), 'its tasks wait until somebody continues it']),
  ])
}

function sayUntil(ms: number): string {
  const age = sayAge(ms)
  return age === 'now' ? 'soon' : `in ${age}`
}

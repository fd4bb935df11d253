/**
 * An operator's work on the tasks of a store, for `rondo tasks` and `rondo console --store`: find tasks, open one with the keys,
 * cancel, fail, retry and purge tasks, pause and continue tools. Whoever can write to the store can make changes; those that
 * concern sealed content need the keys too.
 *
 * operate 1: A change is written into the store's record of actions with who made it, and making it twice is the same as making
 * it once. operate 2: Opening a store for a change never upgrades its tables under the servers that use them.
 */

import { randomBytes } from 'node:crypto'
import { branchBefore, labelTags, oneLine, openTask, sealFailure, tagsOf } from 'rondo/internal'
import type {
  OperatorChange,
  OperatorOutcome,
  OperatorStore,
  Store,
  StoredTask,
  TaskSummary,
} from 'rondo/store'
import type { Ring } from './command/keys.ts'
import { CommandError, type Options, usageError } from './command-line.ts'
import { sayTime } from './io.ts'
import { type NamedStore, openTables } from './open-store.ts'

const DAY_MS = 86_400_000

/** Returns the keys that were passed, if any. */
export type Keys = () => Ring | undefined

/** The store that a command line names. */
export interface StorePlace {
  readonly word: string
  readonly cwd: string
  readonly schema: string | undefined
}

// Finding tasks.

export const STATUSES: readonly TaskSummary['status'][] = [
  'working',
  'input_required',
  'completed',
  'failed',
  'cancelled',
]
export const DEFAULT_LIMIT = 50
const MAX_LIMIT = 1_000

export interface Query {
  readonly status?: TaskSummary['status']
  readonly after?: { readonly id: string; readonly createdAt: number }
  readonly owner?: { readonly tenant: string; readonly principal: string }
  readonly tools?: readonly string[]
  /** For each label the tags that it may have. */
  readonly labels?: readonly (readonly string[])[]
  readonly limit: number
}

/** Reads the filters of a list. The options are those of `rondo tasks list`, by the same names. */
export function readQuery(options: Options, keys: Keys, now: number): Query {
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
  const old = age === undefined ? undefined : { createdAt: now - readAge(age), id: '' }
  const after = [place === undefined ? undefined : readPlace(place), old].filter((one) => one !== undefined)
  const [first] = after.sort((a, b) => a.createdAt - b.createdAt)
  const [tool, labels, owner] = [options.text('tool'), options.list('label'), options.text('owner')]
  return {
    status,
    limit,
    after: first,
    ...(tool !== undefined && { tools: toolNames(keys(), tool) }),
    ...(labels.length > 0 && { labels: labels.map((label) => readLabel(keys, label)) }),
    ...(owner !== undefined && { owner: readOwner(owner) }),
  }
}

const UNITS: Readonly<Record<string, number>> = { s: 1_000, m: 60_000, h: 3_600_000, d: DAY_MS }

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

function readLabel(keys: Keys, text: string): readonly string[] {
  const at = text.indexOf('=')
  if (at < 1 || at === text.length - 1)
    throw usageError(`--label takes a name and a value, such as order=4711, not "${text}"`)
  const ring = needRing({ keys }, 'because labels are found by tags that depend on the keys')
  return labelTags(ring, text.slice(0, at), text.slice(at + 1))
}

/** The position at which a page ended. It has the time too, because the task may be gone when the next page is read. */
const placeOf = ({ createdAt, id }: TaskSummary): string => `${createdAt}.${id}`

function readPlace(text: string): Query['after'] {
  const [, time, id] = /^(\d{1,16})\.(.+)$/s.exec(text) ?? []
  if (time === undefined || id === undefined)
    throw usageError('--after takes the value printed at the end of a page')
  return { createdAt: Number(time), id }
}

/** One page of the list, and the place at which the next one begins. */
export async function listPage(
  { store, name }: NamedStore,
  query: Query,
): Promise<{ readonly tasks: readonly TaskSummary[]; readonly next?: string }> {
  if (query.labels && !store.operator)
    throw new CommandError('stored', `${name} has no part for operators, so its tasks have no labels`)
  const found = await store.tasks.list({ ...query, limit: query.limit + 1 })
  const tasks = found.slice(0, query.limit)
  const last = found.length > tasks.length ? tasks.at(-1) : undefined
  return last ? { tasks, next: placeOf(last) } : { tasks }
}

/** Everything by which tasks may name a tool: in the clear, and with the keys by tags. */
function toolNames(ring: Ring | undefined, name: string): readonly string[] {
  return [name, ...(ring ? tagsOf(ring, 'tool', name) : [])]
}

/** True for a task of the server's own that undoes a call, unless the call ends well. */
export function isAlarm({ owner }: Pick<TaskSummary, 'owner'>): boolean {
  return owner.principal.startsWith('undo ')
}

/** The event that would make the task continue, as far as an operator may see. */
export function waitsFor(task: TaskSummary, now: number): string {
  const { status, worker, dueAt, openKeys, openHooks } = task
  if (status !== 'working' && status !== 'input_required') return '-'
  const answers = isAlarm(task) ? ['the end of its call'] : openKeys.map((key) => `answer ${key}`)
  const events = openHooks.map((key) => `event ${key}`)
  const isTimed = worker === undefined && dueAt !== undefined
  const time = isTimed ? [dueAt <= now ? 'a worker' : `time ${sayTime(dueAt)}`] : []
  const all = [...answers, ...events, ...time]
  // An effect is held back until the client has shown that it knows the task.
  if (worker === undefined && all.length === 0) return 'its owner'
  return all.join(', ') || '-'
}

// Showing one task.

/** A task, and what the keys open of it: its labels and its journal, and with `content` the values too. */
export async function showOne(
  { store, name }: NamedStore,
  id: string,
  keys: Keys,
  content: boolean,
): Promise<{ readonly task: TaskSummary; readonly opened: Readonly<Record<string, unknown>> }> {
  const [task] = await store.tasks.list({ id, limit: 1 })
  if (task === undefined) throw new NoSuchTask(name, id)
  const ring = keys()
  const stored = ring && (await store.operator?.read(id))
  return { task, opened: ring && stored ? describeOpened(ring, stored, content) : {} }
}

/** The store can be read, and has no such task. */
export class NoSuchTask extends CommandError {
  constructor(name: string, id: string) {
    super('stored', `${name} has no task ${id}, or it has expired`)
  }
}

function describeOpened(ring: Ring, task: StoredTask, content: boolean): Record<string, unknown> {
  const opened = openTask(ring, task)
  if (opened.kind === 'refused')
    return { sealed: `the ${opened.piece} does not open with these keys (${opened.reason})` }
  const aside = {
    ...(opened.labels && { labels: Object.fromEntries(opened.labels) }),
    ...(opened.error !== undefined && content && { error: opened.error }),
  }
  if (opened.kind === 'gone') return aside
  const { plan, entries, asked } = opened
  return {
    tool: plan.call.target,
    toolVersion: plan.toolVersion,
    flow: plan.flow,
    rerun: plan.rerun,
    protocolVersion: plan.call.protocolVersion,
    asked,
    ...(content && { args: plan.call.args, principal: plan.principal }),
    journal: entries.map((entry) => {
      const { kind, key, at, ...values } = entry
      return { kind, key, at: new Date(at).toISOString(), ...(content && values) }
    }),
    ...aside,
  }
}

// Changing tasks and tools.

/** A store that is open for changes. */
export interface OpenDesk {
  /** The store as shown to people. */
  readonly name: string
  readonly operator: OperatorStore
  readonly keys: Keys
  /** Who makes the changes, for the record of actions. */
  readonly who: string
}

/** Opens the store for changes while `run` runs: it must have the tables of this release. */
export async function atDesk<T>(
  { word, cwd, schema }: StorePlace,
  { keys, who }: Pick<OpenDesk, 'keys' | 'who'>,
  run: (desk: OpenDesk) => Promise<T>,
): Promise<T> {
  const named = await openTables(word, cwd, schema, 'write')
  try {
    await assertCurrent(named)
    const { operator } = named.store
    if (operator === undefined) throw new CommandError('stored', `${named.name} has no part for operators`)
    return await run({ name: named.name, operator, keys, who })
  } catch (error) {
    throw named.explain(error)
  } finally {
    await named.store.close()
  }
}

async function assertCurrent({ store, name }: NamedStore<Store>): Promise<void> {
  const { version, supported } = (await store.check?.()) ?? { version: 0, supported: 0 }
  if (version === supported) return
  const what =
    version === 0
      ? 'has no Rondo store'
      : `has tables of version ${version}, and this command needs ${supported}`
  throw new CommandError(
    'stored',
    `${name} ${what}: rondo store migrate ${version === 0 ? 'creates one' : 'upgrades them'}`,
  )
}

type TaskChange = Extract<OperatorChange, { readonly id: string }>
export type TaskAction = TaskChange['kind']
export type ToolAction = Exclude<OperatorChange['kind'], TaskAction>

export const TASK_ACTIONS: readonly TaskAction[] = ['cancel', 'fail', 'retry', 'purge']
export const TOOL_ACTIONS: readonly ToolAction[] = ['pause', 'continue']

export interface Changed {
  readonly outcome: OperatorOutcome
  /** The outcome as a sentence. */
  readonly says: string
}

export interface ChangeOptions {
  /** fail: tells the owner why. */
  readonly message?: string
  /** retry: continues before this step or effect, as a new branch. */
  readonly from?: string
  /** Lets a person confirm; throws if nobody does. */
  confirm(what: string): Promise<void>
}

export async function changeTask(
  desk: OpenDesk,
  kind: TaskAction,
  id: string,
  options: ChangeOptions,
): Promise<Changed> {
  const change = await toChange(desk, kind, id, options)
  const outcome = await desk.operator.act(change, desk.who)
  return { outcome, says: sayOutcome(change, outcome, desk.name) }
}

async function toChange(
  desk: OpenDesk,
  kind: TaskAction,
  id: string,
  options: ChangeOptions,
): Promise<TaskChange> {
  switch (kind) {
    case 'cancel':
    case 'purge':
      return { kind, id }
    case 'fail':
      return failure(desk, id, options)
    case 'retry':
      return retry(desk, id, options)
  }
}

async function failure(desk: OpenDesk, id: string, { message }: ChangeOptions): Promise<TaskChange> {
  const change = { kind: 'fail', id, keepMs: DAY_MS } as const
  if (message === undefined) return change
  const ring = needRing(desk, 'to seal the message for the owner')
  const task = await desk.operator.read(id)
  return task === undefined ? change : { ...change, error: sealFailure(ring, task, message) }
}

async function retry(desk: OpenDesk, id: string, { from, confirm }: ChangeOptions): Promise<TaskChange> {
  const change = { kind: 'retry', id, liveMs: DAY_MS } as const
  if (from === undefined) return change
  const ring = needRing(desk, 'to open the journal')
  const task = await desk.operator.read(id)
  // The store says that it is unknown, or why it cannot be retried.
  if (task === undefined || task.head === '') return change
  const branch = branchOf(ring, task, from)
  await confirm(
    `Task ${id} continues from before "${from}" as a new branch. Effects that are not recorded before it run again under new keys, even if they ran.`,
  )
  return { ...change, branch }
}

function branchOf(ring: Ring, task: StoredTask, from: string) {
  const opened = openTask(ring, task)
  if (opened.kind === 'refused')
    throw new CommandError(
      'failed',
      `The ${opened.piece} of the task does not open with these keys (${opened.reason})`,
    )
  const branch = branchBefore(ring, task, from, randomBytes(16).toString('base64url'))
  if (branch !== undefined) return branch
  const entries = opened.kind === 'open' ? opened.entries : []
  const steps = entries.filter(({ kind }) => kind === 'step' || kind === 'effect').map(({ key }) => key)
  const known = steps.length === 0 ? 'it has recorded none' : `it has recorded ${steps.join(', ')}`
  throw usageError(`The task has recorded no step or effect "${from}"; ${known}`)
}

const DONE = { cancel: 'cancelled', fail: 'failed', retry: 'due again', purge: 'deleted' } as const
const ALREADY = {
  cancel: 'cancelled already',
  fail: 'failed already',
  retry: 'open already',
  purge: 'gone',
} as const
const REFUSED = {
  cancel: 'has already ended in another way',
  fail: 'has already ended in another way',
  retry: 'has not failed, has been changed meanwhile, or keeps no journal (tasks.keepFailedMs)',
  purge: 'is still open: cancel it first',
} as const

function sayOutcome({ kind, id }: TaskChange, outcome: OperatorOutcome, name: string): string {
  const task = `Task ${oneLine(id)}`
  switch (outcome) {
    case 'done':
      return `${task} is ${DONE[kind]}.`
    case 'unchanged':
      return `${task} is ${ALREADY[kind]}; nothing was changed.`
    case 'refused':
      return `${task} ${REFUSED[kind]}; nothing was changed.`
    case 'unknown':
      return `${name} has no task ${oneLine(id)}, or it has expired.`
  }
}

/** Stops or starts the tasks of a tool, on every instance. */
export async function changeTool(
  desk: OpenDesk,
  kind: ToolAction,
  name: string,
): Promise<Changed & { readonly state: 'paused' | 'running' }> {
  const ring = needRing(desk, 'because tasks name their tool by a tag that depends on the keys')
  const outcome = await desk.operator.act({ kind, name, tools: toolNames(ring, name) }, desk.who)
  const tool = oneLine(name)
  const state = kind === 'pause' ? 'paused' : 'running'
  const says =
    outcome === 'unchanged'
      ? `The tool ${tool} is ${state} already; nothing was changed.`
      : kind === 'pause'
        ? `The tool ${tool} is paused: its tasks wait, and turns that run already continue. Calls without a task are not affected.`
        : `The tasks of the tool ${tool} continue.`
  return { outcome, says, state }
}

/** The names of the tools that are paused. Their tags are stored beside them, and mean nothing to people. */
export async function pausedTools({ store }: NamedStore): Promise<readonly string[]> {
  return ((await store.operator?.paused()) ?? []).filter((tool) => !tool.startsWith('~'))
}

/** `why` completes the sentence that asks for the keys. */
function needRing({ keys }: Pick<OpenDesk, 'keys'>, why: string): Ring {
  const ring = keys()
  if (ring === undefined) throw usageError(`Name a file with --keys, or set RONDO_KEYS, ${why}`)
  return ring
}

/**
 * The changes that an operator makes with `rondo tasks`: cancel, fail, retry and purge tasks, pause and continue tools. Whoever can
 * write to the store can make them; what concerns sealed content needs the keys too. Each is written into the store's record of
 * actions with who made it, and making it twice is the same as making it once.
 */

import { randomBytes } from 'node:crypto'
import { hostname, userInfo } from 'node:os'
import { branchBefore, oneLine, openTask, sealFailure, tagsOf } from 'rondo/internal'
import type { OperatorChange, OperatorOutcome, OperatorStore, Store, StoredTask } from 'rondo/store'
import { createTerminal, Dismissed } from '../ask/terminal.ts'
import { CommandError, type Exit, type Invocation, usageError } from '../command-line.ts'
import { canAsk, formatTable, type Io, print, printJson, sayTime, tell } from '../io.ts'
import { type NamedStore, openTables } from '../open-store.ts'
import { needRing, type Ring, ringOf } from './keys.ts'

const DAY_MS = 86_400_000

/** The words that follow the store. */
type Act = (site: Site, words: readonly string[]) => Promise<Exit>

interface Site {
  readonly invocation: Invocation
  readonly named: NamedStore<Store>
  readonly operator: OperatorStore
  readonly who: string
}

const ACTS: Readonly<Record<string, Act>> = {
  cancel: (site, ids) => forEach(site, ids, async (id) => ({ kind: 'cancel', id })),
  fail: (site, ids) => forEach(site, ids, (id) => failure(site, id)),
  retry: (site, ids) => forEach(site, ids, (id) => retry(site, id)),
  purge: (site, ids) => forEach(site, ids, async (id) => ({ kind: 'purge', id })),
  pause: (site, tools) => pause(site, 'pause', tools),
  continue: (site, tools) => pause(site, 'continue', tools),
}

export const ACT_NAMES: readonly string[] = Object.keys(ACTS)

/** Runs one of the actions, on a store whose tables this release has. */
export async function runAction(
  invocation: Invocation,
  action: string,
  word: string,
  words: readonly string[],
): Promise<Exit> {
  const act = ACTS[action]
  const [first] = words
  if (first === undefined || act === undefined)
    throw usageError(action === 'pause' || action === 'continue' ? 'Name a tool' : 'Name the id of a task')
  const { io, options } = invocation
  if (/^restate\+/i.test(word))
    throw usageError(
      `Restate has no part for operators: rondo tasks shows its tasks, and cannot ${action} them`,
    )
  const named = await openTables(word, io.cwd, options.text('schema'), 'write')
  try {
    await assertCurrent(named)
    const { operator } = named.store
    if (operator === undefined) throw new CommandError('stored', `${named.name} has no part for operators`)
    return await act({ invocation, named, operator, who: whoIs(invocation) }, words)
  } catch (error) {
    throw named.explain(error)
  } finally {
    await named.store.close()
  }
}

/** An action must not upgrade the tables under the servers that use them. */
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

function whoIs({ options }: Invocation): string {
  const given = options.text('as')?.trim()
  if (given === '') throw usageError('--as takes your name')
  if (given !== undefined) return given
  try {
    return `${userInfo().username}@${hostname()}`
  } catch {
    // A container may run as a user that has no name.
    throw usageError('Name yourself for the record of actions: --as NAME')
  }
}

type TaskChange = Extract<OperatorChange, { readonly id: string }>

async function forEach(
  site: Site,
  ids: readonly string[],
  toChange: (id: string) => Promise<TaskChange>,
): Promise<Exit> {
  const { invocation, operator, named, who } = site
  const results: { id: string; outcome: OperatorOutcome }[] = []
  for (const id of ids) {
    const change = await toChange(id)
    const outcome = await operator.act(change, who)
    results.push({ id, outcome })
    if (!invocation.options.flag('json')) tell(invocation.io, sayOutcome(change, outcome, named.name))
  }
  if (invocation.options.flag('json')) printJson(invocation.io, { tasks: results, who })
  if (results.some(({ outcome }) => outcome === 'unknown')) return 'stored'
  return results.some(({ outcome }) => outcome === 'refused') ? 'failed' : 'done'
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

async function failure({ invocation, operator }: Site, id: string): Promise<TaskChange> {
  const { io, options } = invocation
  const message = options.text('message')
  const change = { kind: 'fail', id, keepMs: DAY_MS } as const
  if (message === undefined) return change
  const ring = needRing(io, options, 'to seal the message for the owner')
  const task = await operator.read(id)
  return task === undefined ? change : { ...change, error: sealFailure(ring, task, message) }
}

async function retry(site: Site, id: string): Promise<TaskChange> {
  const { io, options } = site.invocation
  const change = { kind: 'retry', id, liveMs: DAY_MS } as const
  const from = options.text('from')
  if (from === undefined) return change
  const ring = needRing(io, options, 'to open the journal')
  const task = await site.operator.read(id)
  // The store says that it is unknown, or why it cannot be retried.
  if (task === undefined || task.head === '') return change
  const branch = branchOf(ring, task, from)
  await confirm(
    site,
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

/** Asks a person, or wants `--yes`. */
async function confirm({ invocation: { io, options } }: Site, what: string): Promise<void> {
  tell(io, what)
  if (options.flag('yes')) return
  if (!canAsk(io)) throw new CommandError('refused', 'Pass --yes to confirm; nothing was changed')
  const choices = [
    { value: false, label: 'No' },
    { value: true, label: 'Yes, start a new branch' },
  ]
  const isSure = await createTerminal(io)
    .choose('Continue?', choices, false)
    .catch((error: unknown) => {
      if (error instanceof Dismissed) return false
      throw error
    })
  if (!isSure) throw new CommandError('refused', 'Nothing was changed')
}

async function pause(
  { invocation, operator, who }: Site,
  kind: 'pause' | 'continue',
  [name = '', ...others]: readonly string[],
): Promise<Exit> {
  const { io, options } = invocation
  if (others.length > 0) throw usageError(`Unexpected argument "${others[0]}"`)
  const ring = needRing(io, options, 'because tasks name their tool by a tag that depends on the keys')
  const tools = toolNames(ring, name)
  const outcome = await operator.act({ kind, name, tools }, who)
  const state = kind === 'pause' ? 'paused' : 'running'
  if (options.flag('json')) printJson(io, { tool: name, state, outcome, who })
  else if (outcome === 'unchanged')
    tell(io, `The tool ${oneLine(name)} is ${state} already; nothing was changed.`)
  else if (kind === 'pause')
    tell(
      io,
      `The tool ${oneLine(name)} is paused: its tasks wait, and turns that run already continue. Calls without a task are not affected.`,
    )
  else tell(io, `The tasks of the tool ${oneLine(name)} continue.`)
  return 'done'
}

/** Everything by which tasks may name a tool: in the clear, and with the keys by tags. */
export function toolNames(ring: Ring | undefined, name: string): readonly string[] {
  return [name, ...(ring ? tagsOf(ring, 'tool', name) : [])]
}

/** The record of actions, the newest first. */
export async function showActions(
  { io, options }: Invocation,
  { store, name }: NamedStore,
  limit: number,
): Promise<Exit> {
  const actions = (await store.operator?.actions(limit)) ?? []
  if (options.flag('json')) printJson(io, { actions })
  else if (actions.length === 0) tell(io, `${name} has no record of actions.`)
  else
    print(
      io,
      formatTable(
        actions.map(({ at, who, action, subject }) => [sayTime(at), who, action, subject].map(oneLine)),
      ),
    )
  return 'done'
}

/** A task with what its keys open. */
export function describeOpened(
  { io, options }: { readonly io: Io; readonly options: Invocation['options'] },
  task: StoredTask,
): Record<string, unknown> {
  const ring = ringOf(io, options)
  if (ring === undefined) return {}
  const opened = openTask(ring, task)
  const content = options.flag('content')
  if (opened.kind === 'refused')
    return { sealed: `the ${opened.piece} does not open with these keys (${opened.reason})` }
  const error = opened.error === undefined || !content ? {} : { error: opened.error }
  if (opened.kind === 'gone') return error
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
    ...error,
  }
}

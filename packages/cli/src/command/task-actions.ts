/** The changes that an operator makes with `rondo tasks`, and the record of them. `operate.ts` makes them; here are the words of the command line. */

import { hostname, userInfo } from 'node:os'
import { oneLine } from 'rondo/internal'
import type { OperatorOutcome } from 'rondo/store'
import { createTerminal, Dismissed } from '../ask/terminal.ts'
import { CommandError, type Exit, type Invocation, usageError } from '../command-line.ts'
import { canAsk, formatTable, print, printJson, sayTime, tell } from '../io.ts'
import type { NamedStore } from '../open-store.ts'
import {
  atDesk,
  changeTask,
  changeTool,
  type OpenDesk,
  TASK_ACTIONS,
  type TaskAction,
  TOOL_ACTIONS,
  type ToolAction,
} from '../operate.ts'
import { ringOf } from './keys.ts'

export const ACT_NAMES: readonly string[] = [...TASK_ACTIONS, ...TOOL_ACTIONS]

/** Runs one of the actions, on a store whose tables this release has. */
export async function runAction(
  invocation: Invocation,
  action: string,
  word: string,
  words: readonly string[],
): Promise<Exit> {
  const { io, options } = invocation
  const onTask = TASK_ACTIONS.find((one) => one === action)
  const onTool = TOOL_ACTIONS.find((one) => one === action)
  if (words.length === 0) throw usageError(onTool ? 'Name a tool' : 'Name the id of a task')
  if (/^restate\+/i.test(word))
    throw usageError(
      `Restate has no part for operators: rondo tasks shows its tasks, and cannot ${action} them`,
    )
  const place = { word, cwd: io.cwd, schema: options.text('schema') }
  const by = { keys: () => ringOf(io, options), who: whoIs(invocation) }
  return atDesk(place, by, async (desk) => {
    if (onTool) return actOnTool(invocation, desk, onTool, words)
    if (onTask) return actOnTasks(invocation, desk, onTask, words)
    throw usageError(`Unknown action "${action}"`)
  })
}

/** The name for the record of actions. */
export function whoIs({ options }: Pick<Invocation, 'options'>): string {
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

async function actOnTasks(
  invocation: Invocation,
  desk: OpenDesk,
  action: TaskAction,
  ids: readonly string[],
): Promise<Exit> {
  const { io, options } = invocation
  const results: { id: string; outcome: OperatorOutcome }[] = []
  for (const id of ids) {
    const { outcome, says } = await changeTask(desk, action, id, {
      message: options.text('message'),
      from: options.text('from'),
      confirm: (what) => confirm(invocation, what),
    })
    results.push({ id, outcome })
    if (!options.flag('json')) tell(io, says)
  }
  if (options.flag('json')) printJson(io, { tasks: results, who: desk.who })
  if (results.some(({ outcome }) => outcome === 'unknown')) return 'stored'
  return results.some(({ outcome }) => outcome === 'refused') ? 'failed' : 'done'
}

/** Asks a person, or wants `--yes`. */
async function confirm({ io, options }: Invocation, what: string): Promise<void> {
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

async function actOnTool(
  { io, options }: Invocation,
  desk: OpenDesk,
  action: ToolAction,
  [name = '', ...others]: readonly string[],
): Promise<Exit> {
  if (others.length > 0) throw usageError(`Unexpected argument "${others[0]}"`)
  const { outcome, says, state } = await changeTool(desk, action, name)
  if (options.flag('json')) printJson(io, { tool: name, state, outcome, who: desk.who })
  else tell(io, says)
  return 'done'
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

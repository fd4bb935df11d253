/** `rondo task`: looks at a task of a server, answers it, cancels it. Waiting for it is the business of `rondo resume`. */

import { openQuestions, type PendingCall } from '../client/pending.ts'
import { oneLine } from '../form/clean-text.ts'
import type { CallToolResult } from '../protocol/result.ts'
import { chooseAnswerer, JSON_OPTION, openStore, SCRIPT_OPTIONS, SERVER_OPTION } from './call-session.ts'
import type { Command, Invocation } from './command.ts'
import { CommandError, usageError } from './command-error.ts'
import { CONNECT_OPTIONS, openConnection, policiesOf } from './connection.ts'
import { isEnded, type ShownTask, sayTask, taskJson } from './describe-task.ts'
import type { Exit } from './exit-code.ts'
import { type FoundTask, findTask } from './find-task.ts'
import { addGiven, hasAnswers, NO_OPTIONS } from './given-answers.ts'
import { print, printJson, tell } from './io.ts'
import { markDelivered } from './mark-delivered.ts'
import { type OpenTask, openTask } from './open-task.ts'
import { printResult } from './print-result.ts'
import { SEAL_OPTIONS } from './seal-key.ts'

export const taskCommand: Command = {
  name: 'task',
  usage: 'get|answer|cancel <id> | <server> <taskId>',
  summary: 'looks at a task, answers what it asks, or cancels it',
  details: [
    'A call that is kept here knows its server: its id, or that of its task, is enough. "get" ends as the call would: 0',
    'when it is done, 3 while it goes on. "answer" takes key.field=value as "rondo answer" does, --answers, or asks you;',
    'it does not wait for what comes then.',
  ],
  options: {
    ...NO_OPTIONS,
    ...SCRIPT_OPTIONS,
    ...SERVER_OPTION,
    ...JSON_OPTION,
    ...SEAL_OPTIONS,
    ...CONNECT_OPTIONS,
  },
  async run(invocation) {
    const [action = '', ...words] = invocation.words
    const act = Object.hasOwn(ACTIONS, action) ? ACTIONS[action] : undefined
    if (act === undefined) throw usageError('Say what to do with the task: rondo task get, answer or cancel')
    const found = findTask(invocation, action, words)
    if (action !== 'answer' && found.words.length > 0) {
      throw usageError(`"${found.words[0]}" is one word too many`)
    }
    const store = openStore(invocation)
    const id = found.call?.pending.id
    // Looking takes nothing away from whoever goes on with the call now.
    const release = id === undefined || action === 'get' ? () => {} : store.claim(id)
    try {
      return await withTask(invocation, found, act)
    } finally {
      release()
    }
  },
}

interface Work extends Invocation {
  readonly found: FoundTask
  readonly task: OpenTask
  /** Prints the task, and the result it may have. */
  show(shown: ShownTask): void
}

const ACTIONS: Readonly<Record<string, (work: Work) => Promise<Exit>>> = { get: look, answer, cancel }

async function withTask(
  invocation: Invocation,
  found: FoundTask,
  act: (work: Work) => Promise<Exit>,
): Promise<Exit> {
  const { io, options } = invocation
  const version = found.call?.pending.protocolVersion
  io.status.start('connecting')
  const connecting = openConnection(io, found.target, options, { version })
  const { client, close } = await connecting.finally(() => io.status.stop())
  const { signal, now } = io
  try {
    const task = openTask(found, { client, signal, now, policies: policiesOf(io, options) })
    const show = (shown: ShownTask): void => {
      if (options.flag('json')) return printJson(io, taskJson(shown, client.protocolVersion))
      print(io, sayTask(shown, now()))
      const { result } = shown.state
      if (result === undefined) return
      print(io, '')
      printResult(io, { method: 'tools/call', name: '' }, result as unknown as CallToolResult)
    }
    return await act({ ...invocation, found, task, show })
  } finally {
    await close()
  }
}

/** Ends as a call that waited for the task would. */
async function look({ task, show }: Work): Promise<Exit> {
  const shown = await task.look()
  show(shown)
  const { status, result } = shown.state
  if (status === 'completed') return result?.isError === true ? 'failed' : 'done'
  return isEnded(shown.state) ? 'server' : 'pending'
}

async function cancel({ io, task, found, show, ...invocation }: Work): Promise<Exit> {
  const before = await task.look()
  if (isEnded(before.state)) tell(io, 'The task had ended before.')
  else await task.cancel()
  show(await task.look())
  if (found.call) openStore({ io, ...invocation }).remove(found.call.pending.id)
  return 'done'
}

async function answer(work: Work): Promise<Exit> {
  const { io, found, task, show } = work
  const { state, pending, problem } = await task.look()
  if (problem !== undefined) throw new CommandError('refused', problem)
  if (Object.keys(pending.questions).length === 0) {
    throw new CommandError('answers', `The task asks nothing now: it is ${state.status}`)
  }
  const answerer = await chooseAnswerer(work)
  const given = hasAnswers(work.options, found.words)
    ? addGiven(work.options, found.words, pending)
    : openQuestions(pending).length === 0
      ? pending
      : await answerer.answer(pending, () => {})
  if (given === undefined) {
    show(await task.look())
    return 'pending'
  }
  await task.answer(given.answers)
  keep(work, given)
  tell(io, `Answered: ${Object.keys(given.answers).map(oneLine).join(', ')}`)
  show(await task.look())
  const unused = answerer.unused?.() ?? []
  if (unused.length > 0) tell(io, `rondo: Nobody asked for ${unused.map((key) => `"${key}"`).join(', ')}`)
  if (answerer.interrupted) return 'interrupted'
  return unused.length > 0 ? 'answers' : 'done'
}

/** Whoever goes on with the call need not answer again. */
function keep({ found, ...invocation }: Work, given: PendingCall): void {
  const { call } = found
  if (call === undefined) return
  const pending = markDelivered({ ...call.pending, answers: given.answers })
  openStore(invocation).save({ ...call, pending })
}

/** `rondo task`: shows, answers or cancels a task of a server. `rondo resume` waits for one. */

import type { InputRequests, InputResponses } from 'rondo'
import { RondoError } from 'rondo'
import type { CallToolResult, Client, TaskState } from 'rondo/client'
import { LIMITS, openQuestions, PeerError, type PendingCall, type RoundPolicy } from 'rondo/client'
import { applyPolicies, becomeTask, begin, oneLine, QUESTION_KINDS, vetRound } from 'rondo/internal'
import { addGiven, DISMISS_OPTIONS, hasAnswers } from '../answers.ts'
import {
  chooseAnswerer,
  JSON_OPTION,
  openStore,
  SCRIPT_OPTIONS,
  SERVER_OPTION,
  targetOf,
} from '../call-setup.ts'
import { type Command, CommandError, type Exit, type Invocation, usageError } from '../command-line.ts'
import { CONNECT_OPTIONS, openConnection, policiesOf } from '../connection.ts'
import { commandOf, exampleWord, printResult, sayQuestion, sayRequest, sayServer } from '../describe.ts'
import { markDelivered } from '../drive-call.ts'
import { SEAL_OPTIONS } from '../home.ts'
import { formatTable, print, printJson, sayAgo, sayTime, shellWord, tell } from '../io.ts'
import type { PendingStore, StoredCall } from '../pending-store.ts'
import { type NamedTarget, sayTarget, takeTarget } from '../words.ts'

export const taskCommand: Command = {
  name: 'task',
  usage: 'get|answer|cancel (<id> | <server> <taskId>)',
  summary: 'shows a task, answers its questions, or cancels it',
  details: [
    'For a pending call of your own, its id, the beginning of its id, or the id of the task is enough. Name any other task by its server and its id. If the server does not know the task, or does not show it to you, the exit code is 8.',
    'In 2025-11-25 a task sends its questions only to a client that waits for its result; use `rondo resume` there, at a terminal or with `--answers`.',
  ],
  table: {
    name: 'action',
    rows: {
      get: 'prints status, message, times, open questions, result or error; exits with 0 or 1 if it is done, 3 while it is in progress, 5 if it failed or was cancelled',
      answer:
        'takes `key.field=value` as `rondo answer` does, or `--answers`, or asks you; sends the answers and does not wait',
      cancel: 'asks the server to cancel it, and abandons its pending call',
    },
  },
  json: '`{ "task", "server", "id" }`, where `id` is the pending call, if there is one',
  see: 'docs/guide/14-tasks.md',
  options: {
    ...DISMISS_OPTIONS,
    ...SCRIPT_OPTIONS,
    ...SERVER_OPTION,
    ...JSON_OPTION,
    ...SEAL_OPTIONS,
    ...CONNECT_OPTIONS,
  },
  async run(invocation) {
    const [action = '', ...words] = invocation.words
    const act = Object.hasOwn(ACTIONS, action) ? ACTIONS[action] : undefined
    if (act === undefined)
      throw usageError('Name the action: rondo task get, rondo task answer or rondo task cancel')
    const found = findTask(invocation, action, words)
    if (action !== 'answer' && found.words.length > 0) {
      throw usageError(`Unexpected argument "${found.words[0]}"`)
    }
    const store = openStore(invocation)
    const id = found.call?.pending.id
    // Showing a task does not disturb a process that drives the call.
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
  /** Prints the task, and its result if there is one. */
  show(shown: ShownTask): void
}

const ACTIONS: Readonly<Record<string, (work: Work) => Promise<Exit>>> = { get, answer, cancel }

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
      print(io, sayTask(shown, now(), commandOf(io)))
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

/** Exits as a call that waited for the task would. */
async function get({ task, show }: Work): Promise<Exit> {
  const shown = await task.read()
  show(shown)
  const { status, result } = shown.state
  if (status === 'completed') return result?.isError === true ? 'failed' : 'done'
  return isEnded(shown.state) ? 'server' : 'pending'
}

async function cancel({ io, task, found, show, ...invocation }: Work): Promise<Exit> {
  const before = await task.read()
  if (isEnded(before.state)) tell(io, 'The task had already ended.')
  else await task.cancel()
  show(await task.read())
  if (found.call) openStore({ io, ...invocation }).remove(found.call.pending.id)
  return 'done'
}

async function answer(work: Work): Promise<Exit> {
  const { io, found, task, show } = work
  const { state, pending, problem } = await task.read()
  if (problem !== undefined) throw new CommandError('refused', problem)
  if (Object.keys(pending.questions).length === 0) {
    throw new CommandError('answers', `The task has no open questions; its status is ${state.status}`)
  }
  const answerer = await chooseAnswerer(work)
  const given = hasAnswers(work.options, found.words)
    ? addGiven(work.options, found.words, pending)
    : openQuestions(pending).length === 0
      ? pending
      : await answerer.answer(pending, () => {})
  if (given === undefined) {
    show(await task.read())
    return 'pending'
  }
  await task.answer(given.answers)
  keep(work, given)
  tell(io, `Answered: ${Object.keys(given.answers).map(oneLine).join(', ')}`)
  show(await task.read())
  const unused = answerer.unused?.() ?? []
  if (unused.length > 0) tell(io, `rondo: Unused answers: ${unused.map((key) => `"${key}"`).join(', ')}`)
  if (answerer.interrupted) return 'interrupted'
  return unused.length > 0 ? 'answers' : 'done'
}

/** Records the answers, so that `rondo resume` does not ask again. */
function keep({ found, ...invocation }: Work, given: PendingCall): void {
  const { call } = found
  if (call === undefined) return
  const pending = markDelivered({ ...call.pending, answers: given.answers })
  openStore(invocation).save({ ...call, pending })
}

interface OpenTask {
  read(): Promise<ShownTask>
  answer(answers: InputResponses): Promise<void>
  cancel(): Promise<void>
}

interface TaskView {
  readonly client: Client
  readonly signal: AbortSignal
  readonly now: () => number
  readonly policies: readonly RoundPolicy[]
}

/** A task at its server. Its questions are checked like those of any round (T22). */
function openTask(found: FoundTask, { client, signal, now, policies }: TaskView): OpenTask {
  const { taskId, call } = found
  const handle = client.task(taskId)
  const ask = async <T>(request: Promise<T>): Promise<T> => {
    try {
      return await request
    } catch (error) {
      throw explain(error, found, client)
    }
  }
  return {
    async read() {
      const state = await ask(handle.get({ signal }))
      const name = call?.pending.id ?? `${shellWord(sayTarget(found.target))} ${shellWord(taskId)}`
      const base = { state, name, isKept: call !== undefined }
      const bare = { ...adopt(found, client, state, now()), questions: {}, answers: {} }
      try {
        const questions = unanswered(state, call?.pending)
        const vetted = vetRound({ questions }, LIMITS, new Set(QUESTION_KINDS))
        return { ...base, pending: await applyPolicies({ ...bare, questions: vetted }, policies) }
      } catch (error) {
        if (!(error instanceof RondoError)) throw error
        return { ...base, pending: bare, problem: error.message }
      }
    },
    answer: (answers) => ask(handle.answer(answers, { signal })),
    cancel: () => ask(handle.cancel({ signal })),
  }
}

/** The questions without those that are answered, which a server may list a little longer. */
function unanswered({ inputRequests = {} }: TaskState, pending: PendingCall | undefined): InputRequests {
  const answered = pending?.task?.answered ?? []
  return Object.fromEntries(Object.entries(inputRequests).filter(([key]) => !answered.includes(key)))
}

/** The call as far as it is known. For a task that began elsewhere, the request is unknown. */
function adopt(
  { call, taskId, target }: FoundTask,
  client: Client,
  state: TaskState,
  now: number,
): PendingCall {
  const { name, version } = client.server
  const server = { target: sayTarget(target), ...(name !== undefined && { name, version }) }
  if (call !== undefined) return { ...call.pending, server }
  const { protocolVersion } = client
  const begun = begin({ method: 'tools/call', name: '' }, { id: taskId, server, protocolVersion, now })
  return becomeTask(begun, state, now, 0)
}

const UNKNOWN_TASK = -32602

function explain(error: unknown, { taskId }: FoundTask, { server }: Client): unknown {
  if (!(error instanceof PeerError) || error.peer.code !== UNKNOWN_TASK) return error
  const who = server.name === undefined ? 'The server' : `"${server.name}"`
  const why = 'it never existed, belongs to another user, or has expired'
  return new CommandError('stored', `${who} has no task ${taskId}: ${why}`, { cause: error })
}

/** The task that the user named. A pending call knows its server; for any other task the server has to be named. */
interface FoundTask {
  readonly taskId: string
  readonly target: NamedTarget
  /** The call that became this task, if it is stored here. */
  readonly call?: StoredCall
  /** The remaining words. */
  readonly words: readonly string[]
}

/** `words` are those after the action. */
function findTask(invocation: Invocation, action: string, words: readonly string[]): FoundTask {
  const { io, rest } = invocation
  const [first, ...others] = words
  if (first === undefined) throw usageError(`Name a task: rondo task ${action} <id>, or <server> <taskId>`)
  if (rest === undefined) {
    const store = openStore(invocation)
    const id = lookUp(
      store,
      first,
      others[0] === undefined || (action === 'answer' && others[0].includes('=')),
    )
    if (id !== undefined) return fromStore(invocation, store.load(id), others)
    if (others.length === 0) {
      const how = `Name its server first: rondo task ${action} <server> <taskId>`
      throw new CommandError('stored', `No pending call belongs to the task ${first}. ${how}`)
    }
  }
  const { target, words: left } = takeTarget(words, rest, io.cwd)
  const [taskId, ...more] = left
  if (taskId === undefined) throw usageError('Name the task by its id, after the server')
  return { taskId, target, words: more }
}

/** The id of the stored call. With `starts`, the beginning of it is enough. */
function lookUp(store: PendingStore, name: string, starts: boolean): string | undefined {
  const listed = store.list()
  const found = listed.find(({ id, call }) => id === name || call?.pending.task?.taskId === name)
  if (found !== undefined) return found.id
  return starts && listed.some(({ id }) => id.startsWith(name)) ? store.find(name) : undefined
}

function fromStore(invocation: Invocation, call: StoredCall, words: readonly string[]): FoundTask {
  const { id, task } = call.pending
  if (task === undefined) {
    throw new CommandError('stored', `The call ${id} is not a task. To continue it: rondo resume ${id}`)
  }
  return { taskId: task.taskId, target: targetOf(invocation, call.target), call, words }
}

/** A task as its owner sees it. */
interface ShownTask {
  readonly state: TaskState
  /** The call, with the questions that are open. */
  readonly pending: PendingCall
  /** The name of the task on the command line. */
  readonly name: string
  /** True if the call is stored here. */
  readonly isKept: boolean
  /** The reason why the questions are not shown, if so. */
  readonly problem?: string
}

function sayTask({ state, pending, name, isKept, problem }: ShownTask, now: number, rondo: string): string {
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
    ...(problem === undefined ? [] : ['', `The questions are not shown: ${oneLine(problem)}`]),
    ...asked,
    ...(open.length > 0 ? ['', `answer:   ${rondo} task answer ${oneLine(name)} ${words.join(' ')}`] : []),
    ...(isEnded(state)
      ? []
      : [...(open.length > 0 ? [] : ['']), `cancel:   ${rondo} task cancel ${oneLine(name)}`]),
    ...(isKept && !isEnded(state) ? [`wait:     ${rondo} resume ${pending.id}`] : []),
  ].join('\n')
}

function taskJson(
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

function isEnded({ status }: TaskState): boolean {
  return status === 'completed' || status === 'failed' || status === 'cancelled'
}

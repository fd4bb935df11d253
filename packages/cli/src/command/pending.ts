/** `rondo pending`, `answer`, `resume` and `abandon`: the calls that wait for an answer. */

import { openQuestions, PeerError } from 'rondo/client'
import { ANSWER_WORDS, addGiven, DISMISS_OPTIONS, hasAnswers } from '../answers.ts'
import { answerBridges } from '../bridge/answer.ts'
import { JSON_OPTION, openDriver, openStore, RESUME_OPTIONS, targetOf } from '../call-setup.ts'
import {
  type Command,
  CommandError,
  type Exit,
  exitOf,
  type Invocation,
  usageError,
} from '../command-line.ts'
import { CONNECT_OPTIONS, openConnection } from '../connection.ts'
import { commandOf, pendingJson, printPending, sayPending } from '../describe.ts'
import { SEAL_OPTIONS } from '../home.ts'
import { formatTable, print, printJson, sayAge, tell } from '../io.ts'
import type { ListedCall, PendingStore } from '../pending-store.ts'
import { sayTarget } from '../words.ts'

export const pendingCommand: Command = {
  name: 'pending',
  usage: '[id]',
  summary: 'lists the calls that wait for an answer, or shows one',
  options: { ...JSON_OPTION, ...SEAL_OPTIONS },
  async run(invocation) {
    const [start] = invocation.words
    return start === undefined ? listAll(invocation) : showOne(invocation, start)
  },
}

function showOne(invocation: Invocation, start: string): Exit {
  const { io, options } = invocation
  const store = openStore(invocation)
  const { target, pending } = store.load(store.find(start))
  if (options.flag('json')) printJson(io, { target: sayTarget(target), ...pendingJson(pending) })
  else print(io, `pending ${pending.id}\n${sayPending(pending, commandOf(io))}`)
  return 'done'
}

function listAll(invocation: Invocation): Exit {
  const { io, options } = invocation
  const store = openStore(invocation)
  const listed = store.list()
  if (options.flag('json')) {
    printJson(io, { pending: listed.map(toJson) })
    return 'done'
  }
  if (listed.length === 0) tell(io, `No pending calls in ${store.folder}.`)
  else print(io, formatTable(listed.map((one) => toRow(one, io.now()))))
  return 'done'
}

function toJson({ id, call, problem }: ListedCall): Record<string, unknown> {
  return call === undefined
    ? { id, problem }
    : { target: sayTarget(call.target), ...pendingJson(call.pending) }
}

function toRow({ id, call, problem }: ListedCall, now: number): string[] {
  if (call === undefined) return [id, '', problem ?? '']
  const { pending, target } = call
  const name = pending.request.method === 'resources/read' ? pending.request.uri : pending.request.name
  const open = openQuestions(pending).map(([key]) => key)
  const idle = pending.task === undefined ? 'answered, not sent' : 'a task'
  const state = open.length === 0 ? idle : `asks ${open.join(', ')}`
  return [id, sayAge(now - pending.askedAt), name, state, sayTarget(target)]
}

export const answerCommand: Command = {
  name: 'answer',
  usage: '[id] [key.field=value …]',
  summary: 'answers a pending call and continues it; without an id, the questions of "rondo bridge"',
  details: [
    'Nothing is sent while a question is open. Without an id, the command waits in a terminal for the questions of `rondo bridge`, shows them one after the other, and ends with Ctrl-C.',
  ],
  table: { name: 'answer', rows: ANSWER_WORDS },
  see: 'docs/guide/bridge.md#hosts-that-cannot-ask-you',
  options: {
    ...DISMISS_OPTIONS,
    hold: { type: 'boolean', help: 'stores the answers without sending them' },
    ...RESUME_OPTIONS,
  },
  async run(invocation) {
    const { io, options } = invocation
    const [start, ...words] = invocation.words
    if (start === undefined) return answerBridges(io)
    const store = openStore(invocation)
    const id = store.find(start)
    const release = store.claim(id)
    try {
      const call = store.load(id)
      if (!hasAnswers(options, words))
        throw usageError('Pass answers as key.field=value, or use --decline or --cancel')
      const pending = addGiven(options, words, call.pending)
      store.save({ ...call, pending })
      const open = openQuestions(pending).length
      if (open > 0 || options.flag('hold')) return printPending(io, options.flag('json'), pending)
      const driver = await openDriver(invocation, targetOf(invocation, call.target), call)
      try {
        return await driver.drive(pending.request, pending)
      } finally {
        await driver.close()
      }
    } finally {
      release()
    }
  },
}

export const resumeCommand: Command = {
  name: 'resume',
  usage: '<id>',
  summary: 'continues a pending call; you answer the open questions',
  options: RESUME_OPTIONS,
  async run(invocation) {
    const [start, ...others] = invocation.words
    if (start === undefined || others.length > 0) {
      throw usageError('Name one pending call by its id. "rondo pending" lists them')
    }
    const store = openStore(invocation)
    const id = store.find(start)
    const release = store.claim(id)
    try {
      const call = store.load(id)
      const driver = await openDriver(invocation, targetOf(invocation, call.target), call)
      try {
        return await driver.drive(call.pending.request, call.pending)
      } finally {
        await driver.close()
      }
    } finally {
      release()
    }
  },
}

/** Between rounds the server keeps nothing, so only a task has to be cancelled. */
export const abandonCommand: Command = {
  name: 'abandon',
  usage: '<id> [id …]',
  summary: 'abandons pending calls; a task is cancelled',
  options: {
    keep: { type: 'boolean', help: 'does not cancel the task' },
    ...JSON_OPTION,
    ...SEAL_OPTIONS,
    ...CONNECT_OPTIONS,
  },
  async run(invocation) {
    const { io, words, options } = invocation
    if (words.length === 0)
      throw usageError('Name the pending calls by their ids. "rondo pending" lists them')
    const store = openStore(invocation)
    const ids = words.map((word) => store.find(word))
    for (const id of ids) {
      const release = store.claim(id)
      try {
        if (!options.flag('keep')) await cancelTask(invocation, store, id).catch(nameKeep)
        store.remove(id)
      } finally {
        release()
      }
    }
    if (options.flag('json')) printJson(io, { abandoned: ids })
    else tell(io, `Abandoned: ${ids.join(', ')}`)
    return 'done'
  },
}

/** The call can be abandoned all the same. */
function nameKeep(error: unknown): never {
  if (exitOf(error) !== 'unreachable') throw error
  const { message } = error as Error
  const advice = 'The task was not cancelled, so the call stays. "--keep" abandons it without cancelling'
  throw new CommandError('unreachable', `${message.replace(/\.?$/, '.')} ${advice}`, { cause: error })
}

const UNKNOWN_TASK = -32602

async function cancelTask({ io, options }: Invocation, store: PendingStore, id: string): Promise<void> {
  // A file that cannot be read can still be abandoned.
  const call = store.list().find((one) => one.id === id)?.call
  if (call?.pending.task === undefined) return
  const { client, close } = await openConnection(io, call.target, options, {
    version: call.pending.protocolVersion,
  })
  try {
    await client.task(call.pending.task.taskId).cancel()
  } catch (error) {
    // A task that the server no longer knows has ended.
    if (!(error instanceof PeerError) || error.peer.code !== UNKNOWN_TASK) throw error
  } finally {
    await close()
  }
}

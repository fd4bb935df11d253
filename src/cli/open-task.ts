/** One task at its server: looks at it, with its questions vetted as those of any round are (T22). */

import type { Client } from '../client/client.ts'
import { LIMITS } from '../client/limits.ts'
import { becomeTask, begin } from '../client/operation.ts'
import { PeerError } from '../client/peer-error.ts'
import type { PendingCall } from '../client/pending.ts'
import { QUESTION_KINDS } from '../client/question.ts'
import { applyPolicies, type RoundPolicy } from '../client/round-policy.ts'
import { vetRound } from '../client/vet-round.ts'
import { RondoError } from '../errors.ts'
import type { TaskState } from '../protocol/task.ts'
import type { InputRequests, InputResponses } from '../protocol/wire.ts'
import { CommandError } from './command-error.ts'
import type { ShownTask } from './describe-task.ts'
import type { FoundTask } from './find-task.ts'
import { shellWord } from './shell-word.ts'
import { sayTarget } from './target.ts'

export interface OpenTask {
  look(): Promise<ShownTask>
  answer(answers: InputResponses): Promise<void>
  cancel(): Promise<void>
}

export interface TaskView {
  readonly client: Client
  readonly signal: AbortSignal
  readonly now: () => number
  readonly policies: readonly RoundPolicy[]
}

export function openTask(found: FoundTask, { client, signal, now, policies }: TaskView): OpenTask {
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
    async look() {
      const state = await ask(handle.get({ signal }))
      const name = call?.pending.id ?? `${shellWord(sayTarget(found.target))} ${shellWord(taskId)}`
      const base = { state, name, isKept: call !== undefined }
      const bare = { ...adopt(found, client, state, now()), questions: {}, answers: {} }
      try {
        const questions = openOnes(state, call?.pending)
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

/** Questions whose answers the server has are named a little longer; nobody is asked twice. */
function openOnes({ inputRequests = {} }: TaskState, pending: PendingCall | undefined): InputRequests {
  const answered = pending?.task?.answered ?? []
  return Object.fromEntries(Object.entries(inputRequests).filter(([key]) => !answered.includes(key)))
}

/** The call as far as it is known. Of a task that began elsewhere nobody here knows what was called. */
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
  const why = "it never had it, it is somebody else's, or its time is over"
  return new CommandError('stored', `${who} knows no task ${taskId}: ${why}`, { cause: error })
}

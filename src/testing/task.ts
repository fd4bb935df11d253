/**
 * One call of a client that can follow a task: rounds first where the tool asks in rounds, then the task, looked at until it
 * asks or has ended. Whether it became a task, `taskId` tells.
 */

import type { Principal } from '../protocol/call.ts'
import type { ClientCapabilities, InputRequests } from '../protocol/wire.ts'
import { questionFor, type Script, toResponse } from './call.ts'
import { type Message, type Sent, type TestRound, toRound } from './exchange.ts'

export type TaskRound = TestRound | { readonly kind: 'cancelled' }

export interface TestTask {
  /** Begins, or answers the open questions; gives what the call then asks or ends with. */
  next(answers?: Script): Promise<TaskRound>
  /** Runs to the end. An answer that is missing or never used is an error. */
  run(script?: Script): Promise<TaskRound>
  cancel(): Promise<void>
  /** Stops the instance and goes on with a new one, as after a restart; the store stays. */
  restart(): Promise<TestTask>
  /** From now on somebody else sends the requests. */
  as(principal: Principal | undefined): TestTask
  /** Undefined as long as the call is no task. */
  readonly taskId: string | undefined
  /** What `ctx.status` said, as far as it was seen. */
  readonly messages: readonly string[]
}

export interface TestTaskOptions {
  readonly params: Readonly<Record<string, unknown>>
  readonly principal?: Principal
  readonly capabilities: ClientCapabilities
  send(sent: Sent): Promise<Message>
  restart(): Promise<void>
}

const MAX_ROUNDS = 32
const LOOK_MS = 2
const PATIENCE_MS = 10_000

export function createTestTask(options: TestTaskOptions): TestTask {
  const { capabilities } = options
  const messages: string[] = []
  let principal = options.principal
  let questions: InputRequests = {}
  let state: string | undefined
  let taskId: string | undefined

  const send: Send = (method, params) => options.send({ method, params, principal, capabilities })
  const call = async (inputResponses: object | undefined): Promise<TaskRound> => {
    const message = await send('tools/call', {
      ...options.params,
      ...(inputResponses && { inputResponses }),
      ...(state !== undefined && { requestState: state }),
    })
    if (message.result?.resultType !== 'task') return toRound(message)
    taskId = String(message.result.taskId)
    return look(send, taskId, messages)
  }
  const answerTask = async (id: string, inputResponses: object | undefined): Promise<TaskRound> => {
    const { error } = inputResponses ? await send('tasks/update', { taskId: id, inputResponses }) : {}
    return error ? toRound({ error }) : look(send, id, messages)
  }

  const task: TestTask = {
    messages,
    get taskId() {
      return taskId
    },
    async next(answers = {}) {
      const given = Object.entries(answers).map(
        ([key, answer]) => [key, toResponse(questionFor(questions, key), answer)] as const,
      )
      const inputResponses = given.length > 0 ? Object.fromEntries(given) : undefined
      const round = await (taskId === undefined ? call(inputResponses) : answerTask(taskId, inputResponses))
      if (round.kind === 'input_required') {
        questions = round.questions
        state = round.state
      }
      return round
    },
    run: (script = {}) => runScript(task, script),
    async cancel() {
      if (taskId === undefined) throw new Error('The call is no task yet.')
      const { error } = await send('tasks/cancel', { taskId })
      if (error) throw new Error(error.message)
    },
    async restart() {
      await options.restart()
      return task
    },
    as(other) {
      principal = other
      return task
    },
  }
  return task
}

type Send = (method: string, params: Sent['params']) => Promise<Message>

/** Work is done in real time, whatever the bench's clock says. */
async function look(send: Send, taskId: string, messages: string[]): Promise<TaskRound> {
  for (let i = 0; i < PATIENCE_MS / LOOK_MS; i++) {
    const { result = {}, error } = await send('tasks/get', { taskId })
    if (error) return toRound({ error })
    const text = result.statusMessage
    if (typeof text === 'string' && text !== messages.at(-1)) messages.push(text)
    if (result.status !== 'working') return toTaskRound(result)
    await new Promise((resolve) => setTimeout(resolve, LOOK_MS))
  }
  throw new Error(`The task still works after ${PATIENCE_MS} ms.`)
}

function toTaskRound(result: Readonly<Record<string, unknown>>): TaskRound {
  const { status, inputRequests, error } = result as { inputRequests?: never; error?: never; status: string }
  if (status === 'cancelled') return { kind: 'cancelled' }
  if (status === 'failed') return toRound({ error })
  if (status === 'input_required')
    return { kind: 'input_required', questions: inputRequests ?? {}, state: undefined }
  return toRound({ result: result.result as Message['result'] })
}

async function runScript(task: TestTask, script: Script): Promise<TaskRound> {
  const unused = new Set(Object.keys(script))
  let round = await task.next()
  for (let rounds = 1; round.kind === 'input_required'; rounds++) {
    if (rounds >= MAX_ROUNDS) throw new Error(`The task did not end within ${MAX_ROUNDS} rounds.`)
    const answers: Record<string, Script[string]> = {}
    for (const key of Object.keys(round.questions)) {
      // A task never uses a key twice: what is asked again is called `key~2`.
      const name = Object.hasOwn(script, key) ? key : key.replace(/~\d+$/, '')
      const answer = Object.hasOwn(script, name) ? script[name] : undefined
      if (answer === undefined) throw new Error(`The script has no answer to "${key}".`)
      answers[key] = answer
      unused.delete(name)
    }
    round = await task.next(answers)
  }
  if (unused.size > 0) throw new Error(`The task never asked for ${[...unused].join(', ')}.`)
  return round
}

/**
 * One call of a client that can follow a task: rounds where the tool asks before it, then the task, polled until it asks or
 * has ended. `taskId` shows whether it became a task.
 */

import type { Principal } from '../protocol/call.ts'
import type { ClientCapabilities, InputRequests } from '../protocol/wire.ts'
import type { Approver, Voter } from '../tool/approval.ts'
import {
  questionFor,
  type Script,
  type Sent,
  sayEnd,
  type TestMessage,
  type TestRound,
  toResponse,
  toRound,
} from './call.ts'

export type TaskRound =
  | TestRound
  | { readonly kind: 'cancelled' }
  /** The task sleeps; `bench.advance` lets the time pass. */
  | { readonly kind: 'sleeping'; readonly until: number }
  /** The task waits for an event: deliver one to a hook with `bench.server.deliver`. `until`: or until a time. */
  | { readonly kind: 'waiting'; readonly hooks: readonly string[]; readonly until?: number }

/** A decision about a request of `ctx.approve`. */
export interface TestDecision {
  /** Who decides: the subject of a login of the caller's issuer, or a login of another one. */
  readonly by: string | Voter
  readonly note?: string
  /** Whether the approver lets the caller see the note. Default: true. */
  readonly showNote?: boolean
}

export interface TestTask {
  /**
   * Begins the call or answers its open questions. Returns what it asks next or ends with, and `{ kind: 'waiting', hooks }` while the task
   * waits for an event.
   */
  next(answers?: Script): Promise<TaskRound>
  /** Runs to the end; what sleeps, sleeps without waiting. Events have to be delivered meanwhile. An answer that is missing or never used is an error. */
  run(script?: Script): Promise<TaskRound>
  /**
   * Approves the request that `ctx.approve` has opened under this name, as somebody would on the page, and returns what the task
   * asks next or ends with. Rejects if the decision does not count.
   */
  approve(name: string, decision: TestDecision): Promise<TaskRound>
  /** Denies the request, like `approve`. */
  deny(name: string, decision: TestDecision): Promise<TaskRound>
  /** Cancels the task. */
  cancel(): Promise<void>
  /** Stops the instance and continues with a new one, as after a restart; the store stays. */
  restart(): Promise<TestTask>
  /** Sends the following requests as another principal. */
  as(principal: Principal | undefined): TestTask
  /** The labels that `ctx.label` has set, as an operator with the keys sees them. None while the call is not a task. */
  labels(): Promise<Readonly<Record<string, string>>>
  /** The id of the task. Undefined while the call is not one. */
  readonly taskId: string | undefined
  /** The status messages that a poll saw: those of `ctx.status`, and what the task waited for. */
  readonly messages: readonly string[]
}

export interface TestTaskOptions {
  readonly params: Readonly<Record<string, unknown>>
  readonly principal?: Principal
  readonly capabilities: ClientCapabilities
  send(sent: Sent): Promise<TestMessage>
  restart(): Promise<void>
  /** Everything that a parked task waits for, apart from answers: events for its hooks, a time. */
  waitsFor(id: string): Promise<{ readonly hooks: readonly string[]; readonly until?: number } | undefined>
  /** The labels of the task in the store. */
  labelsOf(id: string): Promise<Readonly<Record<string, string>>>
  /** The part of the server that asks people for approvals, if it has one. */
  approver(): Approver | undefined
  now(): number
  /** Lets the time pass. */
  advance(ms: number): Promise<void>
}

const MAX_ROUNDS = 32
const POLL_MS = 2
const TIMEOUT_MS = 10_000

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
    return poll(send, taskId, messages, options)
  }
  const answerTask = async (id: string, inputResponses: object | undefined): Promise<TaskRound> => {
    const { error } = inputResponses ? await send('tasks/update', { taskId: id, inputResponses }) : {}
    return error ? toRound({ error }) : poll(send, id, messages, options)
  }

  const decide = async (
    approve: boolean,
    key: string,
    { by, note, showNote = true }: TestDecision,
  ): Promise<TaskRound> => {
    const what = `The approval ${JSON.stringify(key)}`
    if (taskId === undefined)
      throw new Error(`${what} is not asked for yet: the call is not a task. Call next() first.`)
    const approver = options.approver()
    if (!approver?.vote)
      throw new Error(`${what} cannot be decided: pass createApprovals(…) of @rondo/approvals to server.use.`)
    const voter = typeof by === 'string' ? { subject: by } : by
    const refusal = await approver.vote({
      task: taskId,
      key,
      approve,
      by: voter,
      ...(note !== undefined && { note, showNote }),
    })
    if (refusal !== undefined) throw new Error(`${what}, as ${voter.subject}: ${refusal}`)
    return task.next()
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
    run: (script = {}) => runScript(task, script, options),
    approve: (key, decision) => decide(true, key, decision),
    deny: (key, decision) => decide(false, key, decision),
    async cancel() {
      if (taskId === undefined) throw new Error('The call is not a task yet.')
      const { error } = await send('tasks/cancel', { taskId })
      if (error) throw new Error(error.message)
    },
    labels: async () => (taskId === undefined ? {} : options.labelsOf(taskId)),
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

type Send = (method: string, params: Sent['params']) => Promise<TestMessage>

/** Polls in real time, whatever the clock of the bench says. */
async function poll(
  send: Send,
  taskId: string,
  messages: string[],
  { waitsFor, now }: Pick<TestTaskOptions, 'waitsFor' | 'now'>,
): Promise<TaskRound> {
  for (let i = 0; i < TIMEOUT_MS / POLL_MS; i++) {
    const { result = {}, error } = await send('tasks/get', { taskId })
    if (error) return toRound({ error })
    const text = result.statusMessage
    if (typeof text === 'string' && text !== messages.at(-1)) messages.push(text)
    if (result.status !== 'working') return toTaskRound(result)
    const { hooks = [], until } = (await waitsFor(taskId)) ?? {}
    const isLater = until !== undefined && until > now()
    if (hooks.length > 0 && (isLater || until === undefined))
      return { kind: 'waiting', hooks, ...(isLater && { until }) }
    if (isLater) return { kind: 'sleeping', until }
    await new Promise((resolve) => setTimeout(resolve, POLL_MS))
  }
  throw new Error(`The task is still working after ${TIMEOUT_MS} ms.`)
}

function toTaskRound(result: Readonly<Record<string, unknown>>): TaskRound {
  const { status, inputRequests, error } = result as { inputRequests?: never; error?: never; status: string }
  if (status === 'cancelled') return { kind: 'cancelled' }
  if (status === 'failed') return toRound({ error })
  if (status === 'input_required')
    return { kind: 'input_required', questions: inputRequests ?? {}, state: undefined }
  return toRound({ result: result.result as TestMessage['result'] })
}

/** Waits in real time for somebody to deliver the event that the task waits for, unless it also waits for a time. */
async function untilEvent(task: TestTask, answers?: Script): Promise<TaskRound> {
  let round = await task.next(answers)
  for (let i = 0; round.kind === 'waiting' && round.until === undefined; i++) {
    if (i >= TIMEOUT_MS / POLL_MS)
      throw new Error(
        `The task waits for an event: ${round.hooks.join(', ')}. Deliver it with server.deliver.`,
      )
    await new Promise((resolve) => setTimeout(resolve, POLL_MS))
    round = await task.next()
  }
  return round
}

async function runScript(
  task: TestTask,
  script: Script,
  { advance, now }: Pick<TestTaskOptions, 'advance' | 'now'>,
): Promise<TaskRound> {
  const unused = new Set(Object.keys(script))
  const next = (answers?: Script): Promise<TaskRound> => untilEvent(task, answers)
  let round = await next()
  for (let rounds = 1; ; rounds++) {
    if (rounds >= MAX_ROUNDS) throw new Error(`The task did not end within ${MAX_ROUNDS} rounds.`)
    if (round.kind === 'sleeping' || round.kind === 'waiting') {
      await advance(Math.max(0, (round.until ?? 0) - now()))
      round = await next()
      continue
    }
    if (round.kind !== 'input_required') break
    const answers: Record<string, Script[string]> = {}
    for (const key of Object.keys(round.questions)) {
      // A task never uses a key twice: a question that is asked again has the key `key~2`.
      const name = Object.hasOwn(script, key) ? key : key.replace(/~\d+$/, '')
      const answer = Object.hasOwn(script, name) ? script[name] : undefined
      if (answer === undefined) throw new Error(`The script has no answer to "${key}".`)
      answers[key] = answer
      unused.delete(name)
    }
    round = await next(answers)
  }
  if (unused.size > 0)
    throw new Error(`The task never asked for ${[...unused].join(', ')}. It ended with: ${sayEnd(round)}`)
  return round
}

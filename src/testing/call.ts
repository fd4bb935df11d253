/** One call, round by round. It holds what a client would hold: the request, the state, the open questions. */

import type { FlowMethod, Principal } from '../protocol/call.ts'
import type { ClientCapabilities, InputRequest, InputRequests } from '../protocol/wire.ts'
import type { Sent, TestRound } from './exchange.ts'

type Refusal = { readonly action: 'decline' | 'cancel' }

/** The user says no. */
export const decline: Refusal = { action: 'decline' }
/** The user dismisses the question. */
export const cancel: Refusal = { action: 'cancel' }

/** Content to accept with, a refusal, or a function of the question. */
export type ScriptedAnswer =
  | Readonly<Record<string, unknown>>
  | ((question: InputRequest) => Readonly<Record<string, unknown>>)
/** Answers by the key of their question. */
export type Script = Readonly<Record<string, ScriptedAnswer>>

export interface TestCall {
  /** Sends the next request, with these answers to the open questions. */
  next(answers?: Script): Promise<TestRound>
  /** Sends the next request and loses its response: the call stays where it was. */
  loseReply(answers?: Script): Promise<void>
  /** Runs to the end. An answer that is missing or never used is an error. */
  run(script?: Script): Promise<TestRound>
  /** Sends the next request to an instance that has seen nothing of this call. */
  otherInstance(): TestCall
  /** Sends the following requests as another principal. */
  as(principal: Principal | undefined): TestCall
  /** Rounds so far. */
  readonly rounds: number
  /** The `requestState` that the client holds. May be replaced, for example by a forged one. */
  state: string | undefined
}

export interface TestCallOptions {
  readonly method: FlowMethod
  readonly params: Readonly<Record<string, unknown>>
  readonly principal?: Principal
  readonly capabilities: ClientCapabilities
  send(sent: Sent): Promise<TestRound>
  otherInstance(): void
}

const MAX_ROUNDS = 32

export function createTestCall(options: TestCallOptions): TestCall {
  const { method, capabilities } = options
  let principal = options.principal
  let questions: InputRequests = {}
  let rounds = 0

  const send = (answers: Script): Promise<TestRound> => {
    const inputResponses = Object.fromEntries(
      Object.entries(answers).map(([key, answer]) => [key, toResponse(questionFor(questions, key), answer)]),
    )
    const params: Record<string, unknown> = { ...options.params }
    if (Object.keys(answers).length > 0) params.inputResponses = inputResponses
    if (call.state !== undefined) params.requestState = call.state
    return options.send({ method, params, principal, capabilities })
  }

  const call: TestCall = {
    state: undefined,
    get rounds() {
      return rounds
    },
    async next(answers = {}) {
      const round = await send(answers)
      rounds += 1
      if (round.kind === 'input_required') {
        questions = round.questions
        call.state = round.state
      }
      return round
    },
    async loseReply(answers = {}) {
      await send(answers)
    },
    run: (script = {}) => runScript(call, script),
    otherInstance() {
      options.otherInstance()
      return call
    },
    as(other) {
      principal = other
      return call
    },
  }
  return call
}

/** An answer to a question that was not asked is sent like that of a form. */
export function questionFor(questions: InputRequests, key: string): InputRequest {
  const unasked = { mode: 'form', message: '', requestedSchema: {} } as const
  const asked = Object.hasOwn(questions, key) ? questions[key] : undefined
  return asked ?? { method: 'elicitation/create', params: unasked }
}

async function runScript(call: TestCall, script: Script): Promise<TestRound> {
  const unused = new Set(Object.keys(script))
  let round = await call.next()
  while (round.kind === 'input_required') {
    if (call.rounds >= MAX_ROUNDS) throw new Error(`The call did not end within ${MAX_ROUNDS} rounds.`)
    const answers: Record<string, Script[string]> = {}
    for (const key of Object.keys(round.questions)) {
      const answer = Object.hasOwn(script, key) ? script[key] : undefined
      if (answer === undefined) throw new Error(`The script has no answer to "${key}".`)
      answers[key] = answer
      unused.delete(key)
    }
    round = await call.next(answers)
  }
  if (unused.size > 0)
    throw new Error(`The call never asked for ${[...unused].join(', ')}. It ended with: ${sayEnd(round)}`)
  return round
}

/** How a call or a task ended, in words: the reason why it never asked is often there. */
export function sayEnd(end: {
  readonly text?: string
  readonly message?: string
  readonly kind: string
}): string {
  return end.text ?? end.message ?? end.kind
}

/** The response to a question. The content of a form becomes an accept; anything else is sent unchanged. */
export function toResponse(
  request: InputRequest,
  scripted: ScriptedAnswer,
): Readonly<Record<string, unknown>> {
  const answer = typeof scripted === 'function' ? scripted(request) : scripted
  if (answer === decline || answer === cancel) return answer
  if (request.method !== 'elicitation/create') return answer
  return request.params.mode === 'url' ? { action: 'accept' } : { action: 'accept', content: answer }
}

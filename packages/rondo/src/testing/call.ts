/** One call, round by round. It holds what a client would hold: the request, the state, the open questions. */

import type { FlowMethod, Principal } from '../protocol/call.ts'
import { encodeHeaderValue } from '../protocol/common/headers.ts'
import { CLIENT_CAPABILITIES, CLIENT_INFO, PROTOCOL_VERSION } from '../protocol/common/json-rpc.ts'
import { LATEST_VERSION } from '../protocol/revisions.ts'
import type { ClientCapabilities, InputRequest, InputRequests } from '../protocol/wire.ts'

type Refusal = { readonly action: 'decline' | 'cancel' }

/**
 * The answer of a user who says no to a question.
 *
 * @example
 * ```ts
 * const declined = await bench.tool('book', {}).run({ seat: decline })
 * ```
 */
export const decline: Refusal = { action: 'decline' }
/**
 * The answer of a user who dismisses a question.
 *
 * @example
 * ```ts
 * const cancelled = await bench.tool('book', {}).run({ seat: cancel })
 * ```
 */
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

/** Describes the end of a call or a task in words: the reason why it never asked is often there. */
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

export type TestRound =
  | { readonly kind: 'complete'; readonly result: Readonly<Record<string, unknown>>; readonly text: string }
  | { readonly kind: 'input_required'; readonly questions: InputRequests; readonly state: string | undefined }
  | { readonly kind: 'error'; readonly code: number; readonly message: string; readonly data: unknown }

export interface Sent {
  readonly method: string
  readonly params: Readonly<Record<string, unknown>>
  readonly principal: Principal | undefined
  readonly capabilities: ClientCapabilities
}

export interface TestMessage {
  readonly result?: Readonly<Record<string, unknown>>
  readonly error?: { readonly code: number; readonly message: string; readonly data?: unknown }
}

/** The caller, as the bench's own authentication reads it. */
export const PRINCIPAL_HEADER = 'x-test-principal'

export async function exchange(
  server: { fetch(request: Request): Promise<Response> },
  sent: Sent,
  id: number,
): Promise<TestMessage> {
  const response = await server.fetch(toRequest(sent, id))
  const body = await response.text()
  const message: TestMessage = JSON.parse(isStream(response) ? lastData(body) : body)
  if (!message.error && !message.result)
    throw new Error(`The server responded with status ${response.status} and no result.`)
  return message
}

export function toRound({ result = {}, error }: TestMessage): TestRound {
  if (error) return { kind: 'error', code: error.code, message: error.message, data: error.data }
  if (result.resultType === 'input_required') {
    const { inputRequests = {}, requestState } = result as { inputRequests?: never; requestState?: string }
    return { kind: 'input_required', questions: inputRequests, state: requestState }
  }
  return { kind: 'complete', result, text: textOf(result) }
}

function toRequest({ method, params, principal, capabilities }: Sent, id: number): Request {
  const name = params.name ?? params.uri ?? params.taskId
  const _meta = {
    [PROTOCOL_VERSION]: LATEST_VERSION,
    [CLIENT_CAPABILITIES]: capabilities,
    [CLIENT_INFO]: { name: 'rondo-testing', version: LATEST_VERSION },
  }
  return new Request('http://127.0.0.1/mcp', {
    method: 'POST',
    headers: {
      'content-type': 'application/json',
      accept: 'application/json, text/event-stream',
      'mcp-protocol-version': LATEST_VERSION,
      'mcp-method': method,
      ...(name !== undefined && { 'mcp-name': encodeHeaderValue(String(name)) }),
      ...(principal ? { [PRINCIPAL_HEADER]: encodeURIComponent(JSON.stringify(principal)) } : {}),
    },
    body: JSON.stringify({ jsonrpc: '2.0', id, method, params: { ...params, _meta } }),
  })
}

function isStream(response: Response): boolean {
  return response.headers.get('content-type')?.startsWith('text/event-stream') ?? false
}

/** The response is the last message of a stream. */
function lastData(stream: string): string {
  const lines = stream.split('\n').filter((line) => line.startsWith('data: '))
  return lines.at(-1)?.slice('data: '.length) ?? '{}'
}

/** All text of a tool's content, a prompt's messages or a resource's contents. */
function textOf(result: Readonly<Record<string, unknown>>): string {
  const blocks = (result.content ?? result.messages ?? result.contents ?? []) as readonly {
    readonly text?: string
    readonly content?: { readonly text?: string }
  }[]
  return blocks.map((block) => block.text ?? block.content?.text ?? '').join('\n')
}

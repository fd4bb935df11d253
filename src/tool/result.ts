/**
 * What a tool handler returned, as a `CallToolResult`.
 */

import { misuse } from '../errors.ts'
import { readForm } from '../form/form.ts'
import { judgeContent } from '../form/judge.ts'
import { isRecord } from '../lib/narrow.ts'
import type { InputRequest, InputRequests } from '../protocol/wire.ts'
import type { Compiled } from './schema/schema.ts'
import type { Finished } from './target.ts'

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function text(value: string): { type: 'text'; text: string } {
  return { type: 'text', text: value }
}

function isContent(value: readonly unknown[]): boolean {
  return value.every((item) => isObject(item) && typeof item.type === 'string')
}

export function errorResult(message: string): Finished {
  return { content: [text(message)], isError: true }
}

/** True if the handler built the whole result by hand. */
function isResult(value: Record<string, unknown>): boolean {
  return Array.isArray(value.content) || value.isError === true || 'structuredContent' in value
}

async function structured(output: Compiled, value: unknown): Promise<Finished> {
  const checked = await output.validate(value)
  if (checked.ok) return { content: [text(JSON.stringify(checked.value))], structuredContent: checked.value }
  const problems = checked.problems
    .map(({ path, message }) => (path ? `${path}: ${message}` : message))
    .join('; ')
  throw new TypeError(`The handler returned a value that does not fit the tool's output schema: ${problems}`)
}

async function checkedResult(output: Compiled, value: Record<string, unknown>): Promise<Finished> {
  if (value.isError === true) return { content: [], ...value }
  return {
    ...value,
    ...(await structured(output, value.structuredContent)),
    ...(value.content ? { content: value.content } : {}),
  }
}

/** Refuses the wire form of a result that asks: written by hand, its state would not be sealed. */
export function assertNoLiteral(value: unknown): void {
  if (!isObject(value) || value.resultType !== 'input_required') return
  throw misuse(
    "The handler returned a literal { resultType: 'input_required' }. Return inputRequired({ inputRequests, requestState }) from rondo instead.",
  )
}

export function toToolResult(value: unknown, output: Compiled | undefined): Finished | Promise<Finished> {
  assertNoLiteral(value)
  if (output)
    return isObject(value) && isResult(value) ? checkedResult(output, value) : structured(output, value)
  if (value === undefined) return { content: [] }
  if (typeof value === 'string') return { content: [text(value)] }
  if (Array.isArray(value) && isContent(value)) return { content: value }
  if (isObject(value) && isResult(value)) return { content: [], ...value }
  if (isObject(value) || Array.isArray(value)) {
    return { content: [text(JSON.stringify(value))], structuredContent: value }
  }
  throw misuse(
    `A tool returns a string, content blocks, a result or an object; this one returned a ${typeof value}.`,
  )
}

/*
 * The manual form: a handler returns what it needs instead of awaiting it, and reads `ctx.inputResponses` and
 * `ctx.requestState` itself on the next round. What it puts into `requestState` is sealed like any journal.
 */

const MANUAL: unique symbol = Symbol('rondo.input-required')

export interface InputRequired {
  readonly [MANUAL]: true
  readonly inputRequests?: InputRequests
  readonly requestState?: string
}

/** Ends this round by hand: with questions, with a state of your own, or with both. */
export function inputRequired(needs: {
  inputRequests?: InputRequests
  requestState?: string
}): InputRequired {
  const { inputRequests, requestState } = needs
  if (inputRequests === undefined && requestState === undefined) {
    throw misuse('inputRequired() takes inputRequests, requestState, or both.')
  }
  if (inputRequests !== undefined && Object.keys(inputRequests).length === 0) {
    throw misuse('inputRequired() got no question in inputRequests: leave it out, or ask something.')
  }
  for (const [key, request] of Object.entries(inputRequests ?? {})) {
    if (isRequest(request)) continue
    throw misuse(
      `The question "${key}" of inputRequired() is no request. It takes a method, one of ${METHODS.join(', ')}, and its params.`,
    )
  }
  if (requestState !== undefined && typeof requestState !== 'string') {
    throw misuse('The requestState of inputRequired() must be a string: use JSON.stringify.')
  }
  return { [MANUAL]: true, inputRequests, requestState }
}

const METHODS: readonly unknown[] = ['elicitation/create', 'sampling/createMessage', 'roots/list']

function isRequest(value: unknown): boolean {
  if (!isRecord(value) || !METHODS.includes(value.method)) return false
  return isRecord(value.params) || (value.method === 'roots/list' && value.params === undefined)
}

export function isInputRequired(value: unknown): value is InputRequired {
  return typeof value === 'object' && value !== null && MANUAL in value
}

/*
 * Whether an answer is of any use for a question, as far as the question itself says. What an author's own schema wants
 * beyond that is found out when the handler runs.
 */

export function answerFits(request: InputRequest, answer: unknown): boolean {
  if (!isRecord(answer)) return false
  if (request.method === 'roots/list') return Array.isArray(answer.roots)
  if (request.method === 'sampling/createMessage') return typeof answer.role === 'string'
  const { action, content } = answer
  if (action === 'decline' || action === 'cancel') return true
  if (action !== 'accept') return false
  const { params } = request
  return params.mode === 'url' || judgeContent(readForm(params.requestedSchema).fields, content).ok
}

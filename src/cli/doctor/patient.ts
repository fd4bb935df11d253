/**
 * Calls a tool that asks, on the server under examination. Every attack starts a call, changes what goes back, and declines
 * the questions: a server that accepts the state shows it by continuing, and declining does the least harm. If the first
 * round has no state, its questions are answered once, with made-up values that match their schema, and the next round is
 * examined.
 */

import type { Client } from '../../client/client.ts'
import { PeerError } from '../../client/peer.ts'
import { answer, openQuestions, type PendingCall, type ToolRequest } from '../../client/pending.ts'
import { RondoError } from '../../errors.ts'
import type { Field, FieldValue } from '../../form/field.ts'
import { readForm } from '../../form/form.ts'
import { checkForm } from '../../form/judge.ts'
import type { ElicitContent } from '../../protocol/wire.ts'

/** A pending call of the tool that is examined. */
export type ToolRound = PendingCall<ToolRequest>

export type AttackOutcome =
  | { readonly kind: 'refused'; readonly code: number; readonly message: string }
  | { readonly kind: 'complete'; readonly result: string; readonly isError: boolean }
  /** `again`: it repeats the questions. */
  | { readonly kind: 'asks'; readonly again: boolean; readonly pending: ToolRound }
  /** The response is invalid. */
  | { readonly kind: 'broken'; readonly message: string }

export interface Patient {
  readonly client: Client
  readonly request: ToolRequest
  readonly signal: AbortSignal
}

const ACCEPTS = ['form', 'url'] as const

/** Returns the first round that has a state, or a sentence that says why there is none. */
export async function begin({ client, signal }: Patient, request: ToolRequest): Promise<ToolRound | string> {
  const options = { accepts: ACCEPTS, signal }
  try {
    const first = await client.start(request, options)
    if (first.status !== 'input_required') return `${request.name} finished without asking`
    if (first.pending.state !== undefined) return first.pending
    const answered = makeUpAnswers(first.pending)
    const second = answered && (await client.resume(answered, {}, options))
    const isRound = second?.status === 'input_required' && second.pending.state !== undefined
    return isRound ? second.pending : `${request.name} asks, but sends no requestState`
  } catch (error) {
    if (!(error instanceof PeerError)) throw error
    return `${request.name} could not be called: ${error.message}`
  }
}

/** The call with an answer to every question; undefined if one cannot be made up. */
function makeUpAnswers(pending: ToolRound): ToolRound | undefined {
  let now = pending
  for (const [key, { method, params }] of openQuestions(pending)) {
    if (method !== 'elicitation/create') return undefined
    if (params.mode === 'url') now = answer(now, key, { action: 'accept' })
    else {
      const { fields } = readForm(params.requestedSchema)
      const filled = fields.filter(({ required }) => required).map((field) => [field.name, makeUp(field)])
      const checked = checkForm(fields, Object.fromEntries(filled))
      if (!checked.ok) return undefined
      now = answer(now, key, { action: 'accept', content: checked.content as ElicitContent })
    }
  }
  return now
}

const SAMPLES = {
  email: 'doctor@example.org',
  uri: 'https://example.org/',
  date: '2026-07-28',
  'date-time': '2026-07-28T09:30:00Z',
} as const

/** A longer text is not made up, and does not fit then. */
const LONGEST_TEXT = 10_000

function makeUp({ type, options = [], limits, format, default: start }: Field): FieldValue {
  const { min, max } = limits
  if (start !== undefined) return start
  switch (type) {
    case 'text':
      return format ? SAMPLES[format] : 'doctor'.padEnd(Math.min(min ?? 0, LONGEST_TEXT), '.').slice(0, max)
    case 'number':
    case 'integer':
      return Math.min(max ?? Number.POSITIVE_INFINITY, Math.max(min ?? 1, 1))
    // If the tool asks for a confirmation, false does the least harm.
    case 'boolean':
      return false
    case 'choice':
      return options[0]?.value ?? ''
    case 'choices':
      return options.slice(0, Math.max(1, min ?? 1)).map(({ value }) => value)
  }
}

/** Declines all questions of a call and continues it. */
export async function decline({ client, signal }: Patient, pending: ToolRound): Promise<AttackOutcome> {
  const keys = openQuestions(pending).map(([key]) => key)
  const answered = keys.reduce((now, key) => answer(now, key, { action: 'decline' }), pending)
  try {
    const step = await client.resume(answered, {}, { accepts: ACCEPTS, signal })
    if (step.status === 'task') return { kind: 'complete', result: 'a task', isError: false }
    if (step.status === 'complete') {
      return { kind: 'complete', result: resultText(step.result), isError: step.result.isError === true }
    }
    return { kind: 'asks', again: sameQuestions(step.pending, pending), pending: step.pending }
  } catch (error) {
    if (signal.aborted || !(error instanceof RondoError)) throw error
    if (error instanceof PeerError)
      return { kind: 'refused', code: error.peer.code, message: error.peer.message }
    return { kind: 'broken', message: error.message }
  }
}

/** A result without `_meta`, which may differ from one response to the next. */
function resultText(result: object): string {
  return JSON.stringify({ ...result, _meta: undefined })
}

function sameQuestions(one: ToolRound, other: ToolRound): boolean {
  return Object.keys(one.questions).sort().join('\n') === Object.keys(other.questions).sort().join('\n')
}

/**
 * The manual form: a handler returns what it needs instead of awaiting it, and reads `ctx.inputResponses` and
 * `ctx.requestState` itself on the next round. What it puts into `requestState` is sealed like any journal.
 */

import { misuse } from '../errors.ts'
import { isRecord } from '../lib/is-record.ts'
import type { InputRequests } from '../protocol/wire.ts'

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

/**
 * The three requests of the core bench, and the response that each must get:
 *
 *   plain    a call that completes at once
 *   asks     a first leg, which gets a question and a state
 *   answers  the second leg, which carries the answer and the state and completes
 */

import { QUESTION_KEY, questionFor, resultFor, TOOL } from '../work.ts'
import type { Response } from './connection.ts'
import { type Credential, createSigner } from './credential.ts'
import { drive, type Exchange } from './drive.ts'
import { httpRequest } from './http-request.ts'

export const LEGS = ['plain', 'asks', 'answers'] as const
export type Leg = (typeof LEGS)[number]

export const LEG_NAMES: Readonly<Record<Leg, string>> = {
  plain: 'plain call',
  asks: 'first leg, asks',
  answers: 'second leg, completes',
}

/** Different bugs, so that no server can use a cached response. */
const BUGS = 64

const ANSWER = { action: 'accept', content: { resolution: 'Fixed' } }

const _meta = {
  'io.modelcontextprotocol/protocolVersion': '2026-07-28',
  'io.modelcontextprotocol/clientCapabilities': { elicitation: { form: {} } },
  'io.modelcontextprotocol/clientInfo': { name: 'bench', version: '1.0.0' },
}

interface Result {
  readonly resultType?: string
  readonly content?: readonly { readonly text?: string }[]
  readonly inputRequests?: Readonly<Record<string, { readonly params?: { readonly message?: string } }>>
  readonly requestState?: string
}

/** Returns the exchanges of every leg. To get states for the last one, it runs the first legs once. */
export async function prepareLegs(
  url: URL,
  credential?: Credential,
): Promise<Readonly<Record<Leg, (index: number) => Exchange>>> {
  const signed = createSigner(credential)
  const exchange = (id: number, params: object, check: (result: Result) => unknown): Exchange => {
    const message = { id, method: 'tools/call', name: TOOL, params: { name: TOOL, ...params, _meta } }
    return {
      request: httpRequest(url, message),
      check: (response) => void check(resultOf(response, id)),
    }
  }
  const plain = bugs((id) => exchange(id, { arguments: { id, resolution: 'Fixed' } }, completes(id)))
  const asks = bugs((id) => exchange(id, { arguments: { id } }, questions(id)))
  const states: string[] = []
  await drive(url, BUGS, (index) => ({
    request: signed(at(asks, index).request),
    check: (response) => {
      states[index] = questions(index)(resultOf(response, index)) ?? ''
    },
  }))
  const answers = bugs((id) => {
    const params = {
      arguments: { id },
      inputResponses: { [QUESTION_KEY]: ANSWER },
      requestState: states[id],
    }
    return exchange(id, params, completes(id))
  })
  return {
    plain: (index) => at(plain, index, signed),
    asks: (index) => at(asks, index, signed),
    answers: (index) => at(answers, index, signed),
  }
}

function bugs(make: (id: number) => Exchange): readonly Exchange[] {
  return Array.from({ length: BUGS }, (_, id) => make(id))
}

/** The exchange at an index, signed when it is asked for: each proof counts once. */
function at(
  exchanges: readonly Exchange[],
  index: number,
  signed = (request: string): string => request,
): Exchange {
  const { request, check } = exchanges[index % BUGS] as Exchange
  return { request: signed(request), check }
}

function resultOf({ status, body }: Response, id: number): Result {
  const message = JSON.parse(body) as { id?: unknown; result?: Result }
  if (status !== 200 || message.id !== id || message.result === undefined) throw unexpected(body)
  return message.result
}

function completes(id: number): (result: Result) => void {
  const expected = resultFor(id, 'Fixed')
  return (result) => {
    if (result.resultType !== 'complete' || result.content?.[0]?.text !== expected) throw unexpected(result)
  }
}

function questions(id: number): (result: Result) => string {
  const expected = questionFor(id)
  return (result) => {
    const message = result.inputRequests?.[QUESTION_KEY]?.params?.message
    const { requestState } = result
    if (result.resultType !== 'input_required' || message !== expected || !requestState) {
      throw unexpected(result)
    }
    return requestState
  }
}

function unexpected(found: unknown): Error {
  return new Error(`Unexpected response: ${typeof found === 'string' ? found : JSON.stringify(found)}`)
}

/** Calls of several rounds. Each is driven to its end once, which yields the request of every round and the response it must get. */

import { openConnection, type Response } from './connection.ts'
import type { Exchange } from './drive.ts'
import { httpRequest } from './http-request.ts'

export interface Flow {
  readonly tool: string
  readonly args: object
  /** The content that answers the question with this key. */
  answer(key: string): object
  /** The text of the result. */
  readonly expected: string
}

interface Result {
  readonly resultType?: string
  readonly content?: readonly { readonly text?: string }[]
  readonly inputRequests?: object
  readonly requestState?: string
}

const _meta = {
  'io.modelcontextprotocol/protocolVersion': '2026-07-28',
  'io.modelcontextprotocol/clientCapabilities': { elicitation: { form: {} } },
  'io.modelcontextprotocol/clientInfo': { name: 'bench', version: '1.0.0' },
}

const MAX_ROUNDS = 2_000

/** The first and the last round of a call. */
export interface Rounds {
  readonly first: Exchange
  readonly last: Exchange
}

export async function playFlow(url: URL, id: number, flow: Flow): Promise<Rounds> {
  const connection = await openConnection(url)
  try {
    let first: Exchange | undefined
    let answered: object = {}
    for (let round = 0; round < MAX_ROUNDS; round++) {
      const params = { name: flow.tool, arguments: flow.args, ...answered, _meta }
      const request = httpRequest(url, { id, method: 'tools/call', name: flow.tool, params })
      const result = resultOf(await connection.send(request), id)
      if (result.resultType === 'complete') {
        const last: Exchange = {
          request,
          check: (response) => assertText(resultOf(response, id), flow.expected),
        }
        assertText(result, flow.expected)
        return { first: first ?? last, last }
      }
      const keys = Object.keys(result.inputRequests ?? {})
      first ??= { request, check: (response) => assertAsks(resultOf(response, id), keys) }
      assertAsks(result, keys)
      answered = {
        inputResponses: Object.fromEntries(
          keys.map((key) => [key, { action: 'accept', content: flow.answer(key) }]),
        ),
        requestState: result.requestState,
      }
    }
    throw new Error('The call did not end')
  } finally {
    connection.close()
  }
}

function resultOf({ status, body }: Response, id: number): Result {
  const message = JSON.parse(body) as { id?: unknown; result?: Result }
  if (status !== 200 || message.id !== id || message.result === undefined) throw unexpected(body)
  return message.result
}

function assertText(result: Result, expected: string): void {
  if (result.resultType !== 'complete' || result.content?.[0]?.text !== expected) throw unexpected(result)
}

function assertAsks(result: Result, keys: readonly string[]): void {
  const found = Object.keys(result.inputRequests ?? {})
  if (result.resultType !== 'input_required' || found.join() !== keys.join() || !result.requestState) {
    throw unexpected(result)
  }
}

function unexpected(found: unknown): Error {
  return new Error(`Unexpected response: ${typeof found === 'string' ? found : JSON.stringify(found)}`)
}

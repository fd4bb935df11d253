/** One request as a client sends it, and its response. */

import type { Principal } from '../protocol/call.ts'
import { encodeHeaderValue } from '../protocol/common/headers.ts'
import { CLIENT_CAPABILITIES, CLIENT_INFO, PROTOCOL_VERSION } from '../protocol/common/json-rpc.ts'
import type { ClientCapabilities, InputRequests } from '../protocol/wire.ts'

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

const VERSION = '2026-07-28'
/** Who calls, as the bench's own authentication reads it. */
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
  const name = String(params.name ?? params.uri ?? params.taskId)
  const _meta = {
    [PROTOCOL_VERSION]: VERSION,
    [CLIENT_CAPABILITIES]: capabilities,
    [CLIENT_INFO]: { name: 'rondo-testing', version: VERSION },
  }
  return new Request('http://127.0.0.1/mcp', {
    method: 'POST',
    headers: {
      'content-type': 'application/json',
      accept: 'application/json, text/event-stream',
      'mcp-protocol-version': VERSION,
      'mcp-method': method,
      'mcp-name': encodeHeaderValue(name),
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

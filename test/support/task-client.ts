/**
 * A client that follows tasks over `server.fetch`: calls, polls, answers by key, until the task has ended.
 */

import type { Server } from 'rondo'
import type { Script } from 'rondo/testing'
import type { InputRequest } from '../../packages/rondo/src/protocol/wire.ts'
import { toResponse } from '../../packages/rondo/src/testing/call.ts'

export interface Rpc {
  readonly result?: Record<string, unknown> & { resultType?: string }
  readonly error?: { readonly code: number; readonly message: string; readonly data?: unknown }
}

const EXTENSION = 'io.modelcontextprotocol/tasks'
const CAPABILITIES = {
  elicitation: { form: {}, url: {} },
  sampling: {},
  roots: {},
  extensions: { [EXTENSION]: {} },
}

let lastId = 0

/** Sends one request. `name` is the value of `Mcp-Name`. */
export async function send(
  server: Pick<Server, 'fetch'>,
  method: string,
  params: Record<string, unknown>,
  {
    capabilities = CAPABILITIES,
    headers = {},
    meta = {},
  }: { capabilities?: object; headers?: Record<string, string>; meta?: object } = {},
): Promise<Rpc> {
  lastId += 1
  const _meta = {
    'io.modelcontextprotocol/protocolVersion': '2026-07-28',
    'io.modelcontextprotocol/clientCapabilities': capabilities,
    ...meta,
  }
  const response = await server.fetch(
    new Request('http://127.0.0.1/mcp', {
      method: 'POST',
      headers: {
        'content-type': 'application/json',
        accept: 'application/json, text/event-stream',
        'mcp-protocol-version': '2026-07-28',
        'mcp-method': method,
        'mcp-name': String(params.name ?? params.uri ?? params.taskId),
        ...headers,
      },
      body: JSON.stringify({
        jsonrpc: '2.0',
        id: lastId,
        method,
        params: { ...params, _meta: { ...(params._meta as object), ..._meta } },
      }),
    }),
  )
  return readLast(await response.text())
}

/** The response itself, or the last message of a stream: a long call gets a heartbeat, and so a stream. */
export function readLast<T = Rpc>(body: string): T {
  const events = body.split('\n').filter((line) => line.startsWith('data: '))
  return JSON.parse(events.at(-1)?.slice('data: '.length) ?? body) as T
}

/** Polls, at most `tries` times, until the task is not `working`. */
export async function settled(
  server: Pick<Server, 'fetch'>,
  taskId: string,
  tries = 30_000,
): Promise<Record<string, unknown>> {
  for (let i = 0; i < tries; i++) {
    const { result, error } = await send(server, 'tasks/get', { taskId })
    if (!result) throw new Error(`tasks/get: ${error?.message}`)
    if (result.status !== 'working') return result
    await new Promise((resolve) => setTimeout(resolve, 2))
  }
  throw new Error(`Task ${taskId} is still working after ${tries} polls`)
}

/** Follows a task to its end, answering from the script; keys asked again (`name~2`) have the name's answer. */
export async function follow(
  server: Pick<Server, 'fetch'>,
  taskId: string,
  script: Script,
): Promise<Record<string, unknown>> {
  for (let i = 0; i < 20; i++) {
    const state = await settled(server, taskId)
    if (state.status !== 'input_required') return state
    const requests = state.inputRequests as Record<string, InputRequest>
    const inputResponses = Object.fromEntries(
      Object.entries(requests).map(([key, request]) => {
        const answer = script[key.replace(/~\d+$/, '')]
        if (answer === undefined) throw new Error(`The script has no answer to "${key}"`)
        return [key, toResponse(request, answer)]
      }),
    )
    const { error } = await send(server, 'tasks/update', { taskId, inputResponses })
    if (error) throw new Error(`tasks/update: ${error.message}`)
  }
  throw new Error('The task never stops asking')
}

/**
 * A server in memory that sends what a test tells it to, and records what it receives. Unlike a real server it checks
 * nothing, so it can also send what no honest server would.
 */

import type { MemoryTarget } from '../../packages/rondo/src/client.ts'

export interface Seen {
  readonly id: string | number
  readonly method: string
  readonly params: Readonly<Record<string, unknown>>
  readonly meta: Readonly<Record<string, unknown>>
  readonly headers: Headers
  readonly signal: AbortSignal
}

/** A result, a whole response, or a JSON-RPC error in `{ error }`. */
export type Said = Readonly<Record<string, unknown>> | Response

export interface ScriptedServer extends MemoryTarget {
  /** Every request except discovery. */
  readonly seen: readonly Seen[]
}

export const DISCOVERY = {
  resultType: 'complete',
  supportedVersions: ['2026-07-28'],
  capabilities: {},
  ttlMs: 0,
  cacheScope: 'private',
  _meta: { 'io.modelcontextprotocol/serverInfo': { name: 'scripted', version: '1.0.0' } },
}

/** A complete result with one text. */
export const said = (text: string) => ({ resultType: 'complete', content: [{ type: 'text', text }] })

export const formQuestion = (message: string, ...fields: string[]) => ({
  method: 'elicitation/create',
  params: {
    mode: 'form',
    message,
    requestedSchema: {
      type: 'object',
      properties: Object.fromEntries(fields.map((field) => [field, { type: 'string' }])),
    },
  },
})

/** A round that asks. */
export const asking = (inputRequests?: object, requestState?: string) => ({
  resultType: 'input_required',
  ...(inputRequests && { inputRequests }),
  ...(requestState !== undefined && { requestState }),
})

/** Replies are used in order; a function computes its reply. The last one is repeated. */
export function scriptServer(
  ...script: (Said | ((seen: Seen, turn: number) => Said | Promise<Said>))[]
): ScriptedServer {
  const seen: Seen[] = []
  return {
    seen,
    async fetch(request) {
      const { id, method, params } = (await request.json()) as Seen
      if (method === 'server/discover') return respond(id, DISCOVERY)
      const { headers, signal } = request
      const one: Seen = { id, method, params, meta: params._meta as Seen['meta'], headers, signal }
      const turn = seen.push(one) - 1
      const next = script[Math.min(turn, script.length - 1)] ?? {}
      const reply = typeof next === 'function' ? await next(one, turn) : next
      return reply instanceof Response ? reply : respond(id, reply)
    },
  }
}

export function respond(id: string | number, reply: Readonly<Record<string, unknown>>): Response {
  const isError = reply.error !== undefined
  return Response.json({ jsonrpc: '2.0', id, ...(isError ? reply : { result: reply }) })
}

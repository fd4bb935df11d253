/** Posts single messages of `DRAFT-2026-v1` to a server in memory, each on its own: no session, no connection. */

import type { Server } from 'rondo'
import type { Message } from './older-client.ts'
import { readLast } from './task-client.ts'

export const DRAFT = 'DRAFT-2026-v1'
const CAPABILITIES = 'io.modelcontextprotocol/clientCapabilities'

export interface Posted {
  readonly status: number
  readonly type: string | null
  readonly message: Message
}

export async function postDraft(
  server: Server,
  message: object,
  headers: Record<string, string> = {},
): Promise<Posted> {
  const response = await server.fetch(
    new Request('http://127.0.0.1/mcp', {
      method: 'POST',
      headers: {
        'content-type': 'application/json',
        accept: 'application/json, text/event-stream',
        'mcp-protocol-version': DRAFT,
        ...headers,
      },
      body: JSON.stringify(message),
    }),
  )
  return {
    status: response.status,
    type: response.headers.get('content-type'),
    message: readLast<Message>(await response.text()),
  }
}

/** The message as a client sends it that declares these capabilities with it. */
export function declaring<M extends { params: object }>(
  message: M,
  capabilities: object = { elicitation: {}, sampling: {}, roots: {} },
): M {
  return { ...message, params: { ...message.params, _meta: { [CAPABILITIES]: capabilities } } }
}

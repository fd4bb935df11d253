/**
 * Server-sent events as this protocol uses them: one JSON-RPC message per event, comments as signs of life, no ids.
 *
 * A message is one line. Valid JSON has line breaks only between its tokens, where a blank means the same, so no text
 * that comes from a tool or a client can begin a field of its own (T15).
 */

const BREAK = /[\r\n]/
const BREAKS = /[\r\n]+/g

export const SSE_HEADERS: Readonly<Record<string, string>> = {
  'Content-Type': 'text/event-stream',
  'Cache-Control': 'no-store',
  'X-Accel-Buffering': 'no',
}

export const SSE_COMMENT = ': still here\n\n'

/** The event that carries one message. */
export function toEvent(json: string): string {
  return `event: message\ndata: ${toLine(json)}\n\n`
}

/** One message without line breaks. */
export function toLine(json: string): string {
  return BREAK.test(json) ? json.replace(BREAKS, ' ') : json
}

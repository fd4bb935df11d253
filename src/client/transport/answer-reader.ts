/**
 * Reads the answer to one POST as it arrives, JSON or event stream, whatever HTTP library brings the bytes.
 *
 * 1. Never holds more than `maxBytes`. 2. Gives exactly one response, the one with the request's id; a request or
 * somebody else's response on the stream makes the answer invalid. 3. An error status with a JSON-RPC error in its body
 * is that error; any other is PEER_HTTP, as are 401 and 403 whatever their body, or PEER_BUSY where the server says when to come back. 4. Comments on the stream
 * are ignored, as are its event names. 5. Where the server may send requests (`onRequest`), they are handed over, events
 * with empty data only move the mark, and responses to other requests are skipped. 6. A stream that asks in turns is over
 * when it says so. 7. Reading a stream costs no more than its length, however it is cut.
 */

import { createParser } from 'eventsource-parser'
import { RondoError } from '../../errors.ts'
import { cleanText } from '../../form/clean-text.ts'
import { isRecord } from '../../lib/narrow.ts'
import type { AnswerHead, Outgoing } from './transport.ts'

export interface AnswerReader {
  push(chunk: Uint8Array): void
  end(): void
  /** The response, once it is there, or the turn that stands for it. */
  readonly answer: object | undefined
}

type Request = Pick<
  Outgoing,
  'id' | 'maxBytes' | 'endless' | 'oneWay' | 'turns' | 'onNotification' | 'onRequest' | 'onHead' | 'onMark'
>

export function createAnswerReader(head: AnswerHead, request: Request): AnswerReader {
  const type = (head.contentType ?? '').split(';', 1)[0]?.trim().toLowerCase()
  const good = head.status >= 200 && head.status < 300
  request.onHead?.(head)
  // Whatever the body says: these are about who asks, and often not even from the MCP server.
  if (REFUSALS.has(head.status)) throw statusError(head)
  if (good && request.oneWay) return { push() {}, end() {}, answer: {} }
  if (good && type === 'text/event-stream') return readStream(request)
  return readWhole(head, request, type === 'application/json')
}

function readWhole(head: AnswerHead, request: Request, json: boolean): AnswerReader {
  const chunks: Uint8Array[] = []
  let size = 0
  let answer: Readonly<Record<string, unknown>> | undefined
  return {
    push(chunk) {
      size += chunk.byteLength
      if (size > request.maxBytes) throw tooLong(request)
      chunks.push(chunk)
    },
    end() {
      if (head.status === 503 && head.retryAfter) throw busy(head.retryAfter)
      const body = json ? parse(decode(chunks)) : undefined
      // A batch of 2025-03-26: what concerns us is the response.
      const batch = request.onRequest !== undefined && Array.isArray(body)
      const message: unknown = batch ? body.find((one) => isRecord(one) && belongs(one, request)) : body
      if (isRecord(message) && belongs(message, request)) answer = message
      else throw unusable(head, json)
    },
    get answer() {
      return answer
    },
  }
}

function readStream(request: Request): AnswerReader {
  const decoder = new TextDecoder()
  let size = 0
  let answer: object | undefined
  let problem: RondoError | undefined
  const { turns } = request
  const take = (message: unknown): void => {
    if (answer !== undefined || problem !== undefined) return
    if (!isRecord(message)) problem = new RondoError('PEER_ANSWER', 'An event of the stream is not JSON')
    else if (message.method === undefined) {
      if (belongs(message, request)) answer = message
      else if (!request.onRequest)
        problem = new RondoError('PEER_ANSWER', 'The stream has the response to another request')
    } else if (message.id === undefined) request.onNotification?.(message)
    else if (turns?.take(message)) return
    else if (request.onRequest) request.onRequest(message)
    else problem = new RondoError('PEER_ANSWER', 'The server sent a request, which this revision forbids')
  }
  let strange = 0
  const toLines = createLineEnds()
  const showMarks = turns?.showMarks()
  const parser = createParser({
    maxBufferSize: request.maxBytes,
    onEvent(event) {
      strange = 0
      const turn = turns?.mark(event)
      if (turn !== undefined) answer ??= turn
      if (event.id !== undefined && EVENT_ID.test(event.id)) request.onMark?.({ id: event.id })
      if (request.onRequest === undefined) return take(parse(event.data))
      const message = event.data === '' ? [] : parse(event.data)
      for (const one of Array.isArray(message) ? message : [message]) take(one)
    },
    onRetry: (retryMs) => request.onMark?.({ retryMs }),
    onError({ type }) {
      if (type === 'max-buffer-size-exceeded') throw tooLong(request)
      // Each costs an error with a stack: thousands of times what the line costs its sender.
      strange += 1
      if (strange > MAX_STRANGE)
        throw new RondoError('PEER_ANSWER', 'The stream consists of lines that belong to no event')
    },
  })
  return {
    push(chunk) {
      if (answer !== undefined) return
      size += chunk.byteLength
      if (!request.endless && size > request.maxBytes) throw tooLong(request)
      const text = toLines(decoder.decode(chunk, { stream: true }))
      parser.feed(showMarks ? showMarks(text) : text)
      if (problem !== undefined) throw problem
    },
    end() {
      if (answer === undefined) throw new RondoError('PEER_GONE', 'The stream ended before the response')
    },
    get answer() {
      return answer
    },
  }
}

const REFUSALS = new Set([401, 403])
/** Lines with unknown fields between two events. */
const MAX_STRANGE = 1_000
/** What may stand in `Last-Event-ID`. */
const EVENT_ID = /^[\x21-\x7e](?:[\x20-\x7e]{0,1022}[\x21-\x7e])?$/

/**
 * Makes every end of a line an LF, wherever the text is cut. The parser looks for an LF once for every CR, which a server
 * that sends nothing but CR would make it pay for.
 */
function createLineEnds(): (text: string) => string {
  let afterCr = false
  return (text) => {
    if (text === '') return text
    const rest = afterCr && text.startsWith('\n') ? text.slice(1) : text
    afterCr = text.endsWith('\r')
    return rest.includes('\r') ? rest.replaceAll(/\r\n?/g, '\n') : rest
  }
}

/** Errors about a body that could not be read have a null id. */
function belongs(message: Readonly<Record<string, unknown>>, request: Request): boolean {
  return message.id === request.id || (message.id == null && isRecord(message.error))
}

function decode(chunks: readonly Uint8Array[]): string {
  const [first] = chunks
  if (chunks.length === 1 && first !== undefined) return new TextDecoder().decode(first)
  const decoder = new TextDecoder()
  return chunks.map((chunk) => decoder.decode(chunk, { stream: true })).join('') + decoder.decode()
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

function tooLong(request: Request): RondoError {
  return new RondoError('LIMIT_CLIENT_BYTES', `The answer is longer than ${request.maxBytes} bytes`)
}

function busy(retryAfter: string): RondoError {
  const seconds = /^\d+$/.test(retryAfter) ? Number(retryAfter) : undefined
  return new RondoError('PEER_BUSY', `The server asks to come back later (${retryAfter})`, {
    data: { status: 503, ...(seconds !== undefined && { retryAfterMs: seconds * 1_000 }) },
  })
}

function unusable(head: AnswerHead, json: boolean): RondoError {
  if (head.status < 200 || head.status > 299) {
    return statusError(head)
  }
  const problem = json ? 'is not the response to this request' : 'is neither JSON nor an event stream'
  return new RondoError('PEER_ANSWER', `The body of the answer ${problem}`)
}

/*
 * What a server wants to be told before it serves: the challenges of `WWW-Authenticate` (RFC 9110, section 11.6.1). Other
 * people's servers are read with tolerance: what does not fit the grammar is skipped, and nothing is thrown.
 */

export interface Challenge {
  /** As the server spells it, such as `Bearer`. */
  readonly scheme: string
  /** Names are in lower case: `realm`, `error`, `scope`, `resource_metadata` and so on. */
  readonly params: Readonly<Record<string, string>>
}

const PART =
  /\s*(?:,\s*)*(?:([\w!#$%&'*+.^`|~-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([\w!#$%&'*+.^`|~-]+))(?=\s*(?:,|$))|([\w!#$%&'*+.^`|~-]+)(?=[\s,]|$)|[^\s,]+)/gy

export function parseChallenges(header: string): readonly Challenge[] {
  const challenges: { scheme: string; params: Record<string, string> }[] = []
  for (const [, name, quoted, plain, scheme] of header.matchAll(PART)) {
    const last = challenges.at(-1)
    if (scheme !== undefined) challenges.push({ scheme, params: Object.create(null) })
    else if (name !== undefined && last !== undefined) {
      last.params[name.toLowerCase()] ??= quoted?.replaceAll(/\\(.)/gs, '$1') ?? plain ?? ''
    }
  }
  return challenges.map(({ scheme, params }) => ({ scheme, params: { ...params } }))
}

/** The status of an answer as an error, with the challenges where there are any. */
function statusError({ status, challenge }: AnswerHead): RondoError {
  const challenges = parseChallenges(challenge ?? '')
  const data = { status, ...(challenge && { challenge, challenges }) }
  const said = challenges.map(summary).join('; ')
  const text = `The server answered with HTTP status ${status}${said && ` (${said})`}`
  return new RondoError('PEER_HTTP', text, { data })
}

const TOLD = ['error', 'error_description', 'scope', 'realm', 'resource_metadata']

function summary({ scheme, params }: Challenge): string {
  const told = TOLD.filter((name) => params[name] !== undefined).map((name) => `${name} ${params[name]}`)
  return cleanText([scheme, ...told].join(', '), 500)
}

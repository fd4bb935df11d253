/**
 * Reads the response to one HTTP request as it arrives, JSON or event stream, whatever HTTP library delivers the bytes.
 *
 * reader 1: Never holds more than `maxBytes`.
 * reader 2: Returns exactly one response, the one with the request's id. A request, or the response to another request, makes
 *   the stream invalid.
 * reader 3: An error status with a JSON-RPC error in its body is that error. Any other is PEER_HTTP, as are 401 and 403
 *   whatever their body, or PEER_BUSY for 503 and 429 with `Retry-After`.
 * reader 4: Comments and event names are ignored.
 * reader 5: Where the server may send requests (`onRequest`), they are passed on, events with empty data only set the mark, and
 *   responses to other requests are skipped.
 * reader 6: A stream that asks in turns is over when it says so.
 * reader 7: Reading a stream costs no more than its length, however it is chunked.
 */

import { createParser } from 'eventsource-parser'
import { RondoError } from '../../errors.ts'
import { cleanText } from '../../form/clean-text.ts'
import { collectBytes } from '../../lib/collection.ts'
import { isRecord, nestsDeeper } from '../../lib/json.ts'
import type { Outgoing, ResponseHead } from './transport.ts'

export interface ResponseReader {
  push(chunk: Uint8Array): void
  end(): void
  /** The response once it has arrived, or the turn in its place. */
  readonly response: object | undefined
}

export interface Challenge {
  /** As the server writes it, such as `Bearer`. */
  readonly scheme: string
  /** By name in lower case, such as `realm`, `error`, `scope` or `resource_metadata`. */
  readonly params: Readonly<Record<string, string>>
}

type Request = Pick<
  Outgoing,
  | 'id'
  | 'maxBytes'
  | 'endless'
  | 'oneWay'
  | 'mayAcknowledge'
  | 'buffer'
  | 'onNotification'
  | 'onRequest'
  | 'onHead'
  | 'onMark'
>

export function createResponseReader(head: ResponseHead, request: Request): ResponseReader {
  const type = (head.contentType ?? '').split(';', 1)[0]?.trim().toLowerCase()
  const good = head.status >= 200 && head.status < 300
  request.onHead?.(head)
  // These concern the caller's login, and often come from a proxy: the body does not matter.
  if (REFUSALS.has(head.status)) throw statusError(head)
  if (good && request.oneWay) return ACKNOWLEDGED
  if (head.status === 202 && request.mayAcknowledge) return ACKNOWLEDGED
  if (good && type === 'text/event-stream') return readStream(request)
  return readWhole(head, request, type === 'application/json')
}

/** The response is a member and not a getter, which would give every reader a shape of its own. */
type MutableReader = { -readonly [K in keyof ResponseReader]: ResponseReader[K] }

const ACKNOWLEDGED: ResponseReader = { push() {}, end() {}, response: {} }

function readWhole(head: ResponseHead, request: Request, json: boolean): ResponseReader {
  const collected = collectBytes()
  const reader: MutableReader = {
    response: undefined,
    push(chunk) {
      if (collected.size + chunk.byteLength > request.maxBytes) throw tooLong(request)
      collected.add(chunk)
    },
    end() {
      if ((head.status === 503 || head.status === 429) && head.retryAfter)
        throw busy(head.status, head.retryAfter, json ? retryMsIn(collected.take()) : undefined)
      const body = json ? parseMessage(new TextDecoder().decode(collected.take())) : undefined
      // A batch of 2025-03-26: only the response matters.
      const batch = request.onRequest !== undefined && Array.isArray(body)
      const message: unknown = batch ? body.find((one) => isRecord(one) && belongs(one, request)) : body
      if (isRecord(message) && belongs(message, request)) reader.response = message
      else throw unusable(head, json)
    },
  }
  return reader
}

function readStream(request: Request): ResponseReader {
  const decoder = new TextDecoder()
  let size = 0
  let problem: RondoError | undefined
  const { buffer } = request
  const take = (message: unknown): void => {
    if (reader.response !== undefined || problem !== undefined) return
    if (!isRecord(message))
      problem = new RondoError('PEER_BAD_RESPONSE', 'An event of the stream is not a JSON object')
    else if (message.method === undefined) {
      if (belongs(message, request)) reader.response = message
      else if (!request.onRequest)
        problem = new RondoError('PEER_BAD_RESPONSE', 'The stream contains the response to another request')
    } else if (message.id === undefined) request.onNotification?.(message)
    else if (buffer?.take(message)) return
    else if (request.onRequest) request.onRequest(message)
    else
      problem = new RondoError(
        'PEER_BAD_RESPONSE',
        'The server sent a request, which this revision does not allow',
      )
  }
  let unknownLines = 0
  const toLines = createLineEnds()
  const filter = buffer?.createFilter()
  const parser = createParser({
    maxBufferSize: request.maxBytes,
    onEvent(event) {
      unknownLines = 0
      const asked = buffer?.look(event)
      if (asked !== undefined) reader.response ??= asked
      if (event.id !== undefined && EVENT_ID.test(event.id)) request.onMark?.({ id: event.id })
      if (request.onRequest === undefined) return take(parseMessage(event.data))
      const message = event.data === '' ? [] : parseMessage(event.data)
      for (const one of Array.isArray(message) ? message : [message]) take(one)
    },
    onRetry: (retryMs) => request.onMark?.({ retryMs }),
    onError({ type }) {
      if (type === 'max-buffer-size-exceeded') throw tooLong(request)
      // Each line costs an error with a stack here, thousands of times what it costs its sender.
      unknownLines += 1
      if (unknownLines > MAX_UNKNOWN_LINES)
        throw new RondoError(
          'PEER_BAD_RESPONSE',
          'The stream consists of lines that are not part of an event',
        )
    },
  })
  const reader: MutableReader = {
    response: undefined,
    push(chunk) {
      if (reader.response !== undefined) return
      size += chunk.byteLength
      if (!request.endless && size > request.maxBytes) throw tooLong(request)
      const text = toLines(decoder.decode(chunk, { stream: true }))
      parser.feed(filter ? filter(text) : text)
      if (problem !== undefined) throw problem
    },
    end() {
      if (reader.response === undefined)
        throw new RondoError('PEER_UNREACHABLE', 'The stream ended before the response')
    },
  }
  return reader
}

const REFUSALS = new Set([401, 403])
/** Lines with unknown fields, between two events. */
const MAX_UNKNOWN_LINES = 1_000
/** A valid value of `Last-Event-ID`. */
const EVENT_ID = /^[\x21-\x7e](?:[\x20-\x7e]{0,1022}[\x21-\x7e])?$/

/**
 * Turns every line ending into LF, wherever the text is chunked. The parser searches for an LF after every CR, which would
 * be quadratic for a server that sends only CR.
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

/** Errors about an unreadable request have a null id. */
function belongs(message: Readonly<Record<string, unknown>>, request: Request): boolean {
  return message.id === request.id || (message.id == null && isRecord(message.error))
}

const MAX_DEPTH = 1_000

/** Undefined for a text that is not JSON. Throws for one that is nested deeper than any code could follow. */
export function parseMessage(text: string): unknown {
  if (nestsDeeper(text, MAX_DEPTH))
    throw new RondoError(
      'PEER_BAD_RESPONSE',
      `The server sent JSON that nests deeper than ${MAX_DEPTH} levels`,
    )
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

function tooLong(request: Request): RondoError {
  return new RondoError('LIMIT_CLIENT_BYTES', `The response is longer than ${request.maxBytes} bytes`)
}

/** `data.retryAfterMs` of a JSON-RPC error, which is more precise than the seconds of `Retry-After`. */
function retryMsIn(body: Uint8Array): number | undefined {
  const message = parseMessage(new TextDecoder().decode(body))
  const error = isRecord(message) && isRecord(message.error) ? message.error : {}
  const wait = isRecord(error.data) ? error.data.retryAfterMs : undefined
  return typeof wait === 'number' && wait >= 0 ? wait : undefined
}

function busy(status: number, retryAfter: string, retryMs: number | undefined): RondoError {
  const seconds = /^\d+$/.test(retryAfter) ? Number(retryAfter) : undefined
  const retryAfterMs = retryMs ?? (seconds === undefined ? undefined : seconds * 1_000)
  const when = cleanText(retryAfter, 100)
  return new RondoError('PEER_BUSY', `The server is busy; retry later (Retry-After: ${when})`, {
    data: { status, ...(retryAfterMs !== undefined && { retryAfterMs }) },
  })
}

function unusable(head: ResponseHead, json: boolean): RondoError {
  if (head.status < 200 || head.status > 299) {
    return statusError(head)
  }
  const problem = json ? 'is not the response to this request' : 'is neither JSON nor an event stream'
  return new RondoError('PEER_BAD_RESPONSE', `The body of the response ${problem}`)
}

const PART =
  /\s*(?:,\s*)*(?:([\w!#$%&'*+.^`|~-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([\w!#$%&'*+.^`|~-]+))(?=\s*(?:,|$))|([\w!#$%&'*+.^`|~-]+)(?=[\s,]|$)|[^\s,]+)/gy

/** Parses `WWW-Authenticate` (RFC 9110, section 11.6.1). Skips what does not fit the grammar; never throws. */
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

/** The HTTP status as an error, with the challenges if there are any. */
export function statusError(
  { status, challenge }: Pick<ResponseHead, 'status' | 'challenge'>,
  cause?: RondoError,
): RondoError {
  const challenges = parseChallenges(challenge ?? '')
  const data = { status, ...(challenge && { challenge, challenges }) }
  const said = challenges.map(summary).join('; ')
  const why = status === 429 ? ', too many requests: retry later' : ''
  const text = `The server responded with HTTP status ${status}${why}${said && ` (${said})`}`
  return new RondoError('PEER_HTTP', text, { data, cause })
}

const SHOWN = ['error', 'error_description', 'scope', 'realm', 'resource_metadata']

function summary({ scheme, params }: Challenge): string {
  const shown = SHOWN.filter((name) => params[name] !== undefined).map((name) => `${name} ${params[name]}`)
  return cleanText([scheme, ...shown].join(', '), 500)
}

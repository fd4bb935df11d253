/**
 * The tools of the doctor's checks. A probe sends messages to a server unchanged, valid or not, and returns what comes back. A
 * finding is one verdict per check, with advice if something is wrong. A target calls a tool that asks, on the server under examination:
 * every attack starts a call, changes what goes back, and declines the questions, since a server that accepts the state shows it by
 * continuing, and declining does the least harm. If the first round has no state, its questions are answered once, with made-up values
 * that match their schema, and the next round is examined.
 */

import { request as httpRequest, type IncomingHttpHeaders, type RequestOptions } from 'node:http'
import { request as httpsRequest } from 'node:https'
import type { ElicitContent } from 'rondo'
import { RondoError } from 'rondo'
import type { Client } from 'rondo/client'
import {
  answer,
  openQuestions,
  PeerError,
  type PendingCall,
  type StdioTarget,
  type ToolRequest,
} from 'rondo/client'
import type { Field, FieldValue } from 'rondo/forms'
import { checkForm, readForm } from 'rondo/forms'
import { collectBytes, createStdioTransport, isRecord, oneLine, parseMessage } from 'rondo/internal'
import { type Io, print, printJson } from '../io.ts'

export interface ProbeReply {
  /** HTTP only. */
  readonly status?: number
  readonly headers?: IncomingHttpHeaders
  /** The JSON-RPC response, if there was one. */
  readonly message?: Readonly<Record<string, unknown>>
  /** The reason why there is no response at all. */
  readonly problem?: string
}

export interface Probe {
  readonly kind: 'http' | 'stdio'
  /** Sends one JSON-RPC request; over HTTP also with these headers. */
  send(message: ProbeRequest, headers?: ProbeHeaders): Promise<ProbeReply>
  /** Sends a notification. */
  notify(message: ProbeRequest, headers?: ProbeHeaders): Promise<void>
  /** HTTP only: a request with another method and no body. */
  visit(method: string, headers?: ProbeHeaders): Promise<ProbeReply>
  close(): Promise<void>
}

/** `undefined` removes a header. */
type ProbeHeaders = Readonly<Record<string, string | undefined>>

export interface ProbeRequest {
  readonly method: string
  readonly params?: Readonly<Record<string, unknown>>
}

const TIMEOUT_MS = 10_000
/** A process has to start before it can respond, and `npx` may have to install it. */
const START_MS = 30_000
const MAX_BYTES = 4_194_304

export function probeHttp(
  url: string,
  own: Readonly<Record<string, string>>,
  timeoutMs: number = TIMEOUT_MS,
  authorize: (method: string) => Promise<Readonly<Record<string, string>>> = async () => ({}),
): Probe {
  const target = new URL(url)
  const begin = target.protocol === 'https:' ? httpsRequest : httpRequest
  const exchange = (options: RequestOptions, body?: string): Promise<ProbeReply> =>
    new Promise((resolve) => {
      const fail = (error: Error): void => resolve({ problem: error.message })
      // For the whole exchange: a server may send a byte now and then for ever.
      const signal = AbortSignal.timeout(timeoutMs)
      const request = begin(target, { ...options, signal, agent: false }, (response) => {
        const collected = collectBytes()
        const done = (): void => {
          if (signal.aborted) return resolve({ problem: 'timed out' })
          const { statusCode, headers } = response
          const message = readBody(new TextDecoder().decode(collected.take()))
          resolve({ status: statusCode, headers, ...(message && { message }) })
        }
        response.on('data', (chunk: Buffer) => {
          if (collected.size + chunk.byteLength > MAX_BYTES) request.destroy()
          else collected.add(chunk)
        })
        response.on('end', done).on('error', done).on('close', done)
      })
      request.on('error', (error) => fail(signal.aborted ? new Error('timed out') : error))
      // A server that switches protocols closes the request without a response.
      request.on('close', () => fail(new Error('the connection was closed')))
      request.end(body)
    })
  const post = async (message: object, headers: ProbeHeaders): Promise<ProbeReply> => {
    const body = JSON.stringify(message)
    const all = {
      'Content-Type': 'application/json',
      Accept: 'application/json, text/event-stream',
      'Content-Length': String(Buffer.byteLength(body)),
      ...own,
      ...(await authorize('POST')),
      ...headers,
    }
    return exchange({ method: 'POST', headers: present(all) }, body)
  }
  let id = 0
  return {
    kind: 'http',
    send({ method, params }, headers = {}) {
      id += 1
      return post({ jsonrpc: '2.0', id, method, params }, headers)
    },
    async notify({ method, params }, headers = {}) {
      await post({ jsonrpc: '2.0', method, params }, headers)
    },
    async visit(method, headers = {}) {
      const all = { Accept: 'text/event-stream', ...own, ...(await authorize(method)), ...headers }
      return exchange({ method, headers: present(all) })
    },
    close: async () => {},
  }
}

function present(headers: ProbeHeaders): Record<string, string> {
  return Object.fromEntries(
    Object.entries(headers).filter((entry): entry is [string, string] => entry[1] !== undefined),
  )
}

export function probeStdio(target: StdioTarget): Probe {
  const transport = createStdioTransport({ ...target, stderr: 'ignore' }, { maxBytes: MAX_BYTES })
  let id = 0
  let responded = false
  return {
    kind: 'stdio',
    async send({ method, params }) {
      id += 1
      const body = JSON.stringify({ jsonrpc: '2.0', id, method, params })
      const signal = AbortSignal.timeout(responded ? TIMEOUT_MS : START_MS)
      try {
        const message = await transport.exchange({ id, body, headers: {}, signal, maxBytes: MAX_BYTES })
        responded = true
        return isRecord(message) ? { message } : { problem: 'the response is not a JSON-RPC message' }
      } catch (error) {
        return { problem: signal.aborted ? 'timed out' : (error as Error).message }
      }
    },
    async notify({ method, params }) {
      const body = JSON.stringify({ jsonrpc: '2.0', method, params })
      const signal = AbortSignal.timeout(TIMEOUT_MS)
      await transport
        .exchange({ id: 0, body, headers: {}, signal, maxBytes: MAX_BYTES, oneWay: true })
        .catch(() => {})
    },
    visit: async () => ({ problem: 'stdio has no HTTP methods' }),
    close: () => transport.close(),
  }
}

/** A JSON body, or the last message of an event stream. */
function readBody(text: string): Readonly<Record<string, unknown>> | undefined {
  const events = text
    .split(/\r?\n/)
    .flatMap((line) => (line.startsWith('data:') ? [line.slice(5).trim()] : []))
  for (const part of [text, ...events.reverse()]) {
    try {
      const value = parseMessage(part)
      if (isRecord(value) && value.method === undefined) return value
    } catch {}
  }
  return undefined
}

type Verdict = 'pass' | 'warn' | 'fail' | 'skip'

/** Every check by its id, which scripts rely on, with what it examines. The help and docs/reference/cli.md print this table. */
export const CHECKS = {
  era: 'which revision the server speaks',
  capabilities: 'what it offers',
  identity: 'whether it sends its name',
  protocol: 'what stopped the checks that follow',
  'unknown-method': 'whether an unknown method gets the right error',
  'missing-meta': 'the same for a request without `_meta`',
  'unknown-version': 'the same for an unknown version',
  'header-mismatch': 'the same for a header that contradicts the body',
  'http-get': 'whether GET is refused',
  'foreign-origin': 'whether a request from a foreign page is refused',
  handshake: 'what `initialize` returns, in revisions that begin with it',
  'version-negotiation': 'which version it offers for an unknown one there',
  ping: 'whether ping works there',
  'version-header': 'whether an unknown `MCP-Protocol-Version` gets 400 there',
  session: 'whether a wrong session id gets 404',
  'session-missing': 'whether a missing one gets 400',
  'session-end': 'whether an ended one gets 404',
  auth: 'whether the server requires a login',
  'auth-challenge': 'what its 401 says',
  'auth-metadata': 'the metadata that the 401 leads to',
  'auth-issuer': 'the authorization server',
  'auth-token': 'whether a wrong token is refused',
  'auth-audience':
    'whether a token for another server is refused (`--other-bearer`, or the login of a client with a secret)',
  'auth-scope': 'whether a token with less scope is refused (the login of a client with a secret)',
  results: 'whether lists have what clients need to read and cache them',
  tools: 'names, schemas and header annotations of the tools',
  'call-result': 'whether the result of the tool has its `resultType`',
  state: 'in which round a state first appears, or what stopped the examination',
  'state-no': 'whether a decline is accepted, or the question asked again',
  'state-readable': 'whether its holder can read the state: JSON, base64, signed but not encrypted',
  'state-tampered': 'whether a modified state is accepted',
  'state-spelling': 'whether another encoding of the same state is accepted',
  'state-arguments': 'whether a state works for other arguments (`--other`)',
  'state-tool': 'whether it works for another tool (`--other-tool`)',
  'state-user': 'whether it works for another user (`--other-header`)',
  'state-replay': 'whether it is accepted once, or leads to the same result again',
  'state-expiry': 'whether it expires (`--wait`)',
  'state-size': 'whether a huge one is refused',
  'state-errors': 'whether all refusals look alike',
  task: 'whether the tool becomes a task, or what stopped the examination',
  'task-unknown': 'whether an unknown task is refused',
  'task-id': 'whether ids can be guessed',
  'task-user': 'whether another user (`--other-header`) can read a task',
  'task-cancel': 'how a task is cancelled',
} as const

export type CheckId = keyof typeof CHECKS

export interface DoctorFinding {
  readonly id: CheckId
  readonly verdict: Verdict
  /** The observation of the check. */
  readonly detail: string
  /** The remedy; for a skipped check, the way to run it. */
  readonly advice?: string
}

export function pass(id: CheckId, detail: string): DoctorFinding {
  return { id, verdict: 'pass', detail }
}

export function warn(id: CheckId, detail: string, advice: string): DoctorFinding {
  return { id, verdict: 'warn', detail, advice }
}

export function fail(id: CheckId, detail: string, advice: string): DoctorFinding {
  return { id, verdict: 'fail', detail, advice }
}

export function skip(id: CheckId, detail: string, advice?: string): DoctorFinding {
  return { id, verdict: 'skip', detail, ...(advice !== undefined && { advice }) }
}

/** Runs a check. An error that stops it becomes a finding, and the examination continues. */
export async function attempt(
  id: CheckId,
  signal: AbortSignal,
  check: () => Promise<DoctorFinding | readonly DoctorFinding[]>,
): Promise<readonly DoctorFinding[]> {
  try {
    return [await check()].flat()
  } catch (error) {
    if (signal.aborted || !(error instanceof RondoError)) throw error
    return [fail(id, error.message, 'Respond to every request in time and as the revision requires.')]
  }
}

const COLOURS: Record<Verdict, number> = { pass: 32, warn: 33, fail: 31, skip: 90 }
const ORDER: readonly Verdict[] = ['pass', 'warn', 'fail', 'skip']

/** Prints a table of findings, each with its advice, and the counts. */
export function printFindings(io: Io, findings: readonly DoctorFinding[], json: boolean): void {
  const counts = Object.fromEntries(
    ORDER.map((verdict) => [verdict, findings.filter((one) => one.verdict === verdict).length]),
  )
  if (json) return printJson(io, { ...counts, findings })
  const width = Math.max(0, ...findings.map(({ id }) => id.length))
  const coloured = io.stdout.isTTY === true && !io.env.NO_COLOR
  for (const { id, verdict, detail, advice } of findings) {
    const mark = coloured ? `\u001b[${COLOURS[verdict]}m${verdict}\u001b[39m` : verdict
    print(io, `  ${id.padEnd(width)}  ${brief(detail)}`, mark)
    if (advice !== undefined) print(io, `${' '.repeat(width + 8)}→ ${brief(advice)}`)
  }
  print(io, `\n${ORDER.map((verdict) => `${counts[verdict]} ${verdict}`).join(', ')}`)
}

const MAX_LENGTH = 300

function brief(text: string): string {
  return oneLine(text).slice(0, MAX_LENGTH)
}

/** A pending call of the tool that is examined. */
export type ToolRound = PendingCall<ToolRequest>

export type AttackOutcome =
  | { readonly kind: 'refused'; readonly code: number; readonly message: string }
  | { readonly kind: 'complete'; readonly result: string; readonly isError: boolean }
  /** `again`: it repeats the questions. */
  | { readonly kind: 'asks'; readonly again: boolean; readonly pending: ToolRound }
  /** The response is invalid. */
  | { readonly kind: 'broken'; readonly message: string }

export interface ProbeTarget {
  readonly client: Client
  readonly request: ToolRequest
  readonly signal: AbortSignal
}

const ACCEPTS = ['form', 'url'] as const

/** Returns the first round that has a state, or a sentence that says why there is none. */
export async function begin(
  { client, signal }: ProbeTarget,
  request: ToolRequest,
): Promise<ToolRound | string> {
  const options = { accepts: ACCEPTS, signal }
  try {
    const first = await client.start(request, options)
    if (first.status !== 'input_required') return `${request.name} finished without asking`
    if (first.pending.state !== undefined) return first.pending
    const answered = makeUpAnswers(first.pending)
    const second = answered && (await client.resume(answered, {}, options))
    const isRound = second?.status === 'input_required' && second.pending.state !== undefined
    return isRound ? second.pending : `${request.name} asks, but sends no requestState`
  } catch (error) {
    if (!(error instanceof PeerError)) throw error
    return `${request.name} could not be called: ${error.message}`
  }
}

/** The call with an answer to every question; undefined if one cannot be made up. */
function makeUpAnswers(pending: ToolRound): ToolRound | undefined {
  let now = pending
  for (const [key, { method, params }] of openQuestions(pending)) {
    if (method !== 'elicitation/create') return undefined
    if (params.mode === 'url') now = answer(now, key, { action: 'accept' })
    else {
      const { fields } = readForm(params.requestedSchema)
      const filled = fields.filter(({ required }) => required).map((field) => [field.name, makeUp(field)])
      const checked = checkForm(fields, Object.fromEntries(filled))
      if (!checked.ok) return undefined
      now = answer(now, key, { action: 'accept', content: checked.content as ElicitContent })
    }
  }
  return now
}

const SAMPLES = {
  email: 'doctor@example.org',
  uri: 'https://example.org/',
  date: '2027-01-31',
  'date-time': '2027-01-31T09:30:00Z',
} as const

/** A longer text is not made up, and does not fit then. */
const LONGEST_TEXT = 10_000

function makeUp({ type, options = [], limits, format, default: start }: Field): FieldValue {
  const { min, max } = limits
  if (start !== undefined) return start
  switch (type) {
    case 'text':
      return format ? SAMPLES[format] : 'doctor'.padEnd(Math.min(min ?? 0, LONGEST_TEXT), '.').slice(0, max)
    case 'number':
    case 'integer':
      return Math.min(max ?? Number.POSITIVE_INFINITY, Math.max(min ?? 1, 1))
    // If the tool asks for a confirmation, false does the least harm.
    case 'boolean':
      return false
    case 'choice':
      return options[0]?.value ?? ''
    case 'choices':
      return options.slice(0, Math.max(1, min ?? 1)).map(({ value }) => value)
  }
}

/** Declines all questions of a call and continues it. */
export async function decline({ client, signal }: ProbeTarget, pending: ToolRound): Promise<AttackOutcome> {
  const keys = openQuestions(pending).map(([key]) => key)
  const answered = keys.reduce((now, key) => answer(now, key, { action: 'decline' }), pending)
  try {
    const step = await client.resume(answered, {}, { accepts: ACCEPTS, signal })
    if (step.status === 'task') return { kind: 'complete', result: 'a task', isError: false }
    if (step.status === 'complete') {
      return { kind: 'complete', result: resultText(step.result), isError: step.result.isError === true }
    }
    return { kind: 'asks', again: sameQuestions(step.pending, pending), pending: step.pending }
  } catch (error) {
    if (signal.aborted || !(error instanceof RondoError)) throw error
    if (error instanceof PeerError)
      return { kind: 'refused', code: error.peer.code, message: error.peer.message }
    return { kind: 'broken', message: error.message }
  }
}

/** A result without `_meta`, which may differ from one response to the next. */
function resultText(result: object): string {
  return JSON.stringify({ ...result, _meta: undefined })
}

function sameQuestions(one: ToolRound, other: ToolRound): boolean {
  return Object.keys(one.questions).sort().join('\n') === Object.keys(other.questions).sort().join('\n')
}

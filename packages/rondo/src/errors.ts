/**
 * Every error in one table.
 *
 * A code says who can act: STATE_* the client starts again, INPUT_* the client answers better, REPLAY_* the author
 * fixes the tool, LIMIT_*, STORE_* and SERVER_* the operator, PEER_* the other side. `rpc` is the JSON-RPC code, `http` the
 * status at 2026-07-28, `sentence` the one thing a client may read. Details go into `message` (for the author and
 * the log) and never onto the wire, unless the row is marked `open`: its details describe the client's own request.
 * `rpc: 0` is an error that is never sent: our client throws it, or it is only logged.
 */

interface ErrorRow {
  readonly rpc: number
  readonly http: number
  readonly sentence: string
  readonly open?: true
}

export const ERRORS = {
  STATE_INVALID: { rpc: -32602, http: 200, sentence: 'Invalid or expired requestState' },

  INPUT_MALFORMED: {
    rpc: -32602,
    http: 200,
    sentence: 'inputResponses must be an object that maps each key to a result object',
    open: true,
  },
  INPUT_REJECTED: { rpc: -32602, http: 200, sentence: 'The answers do not match the question', open: true },
  INPUT_FAILED: {
    rpc: -32603,
    http: 200,
    sentence: 'The client answered a question with an error',
    open: true,
  },
  INPUT_TIMEOUT: { rpc: -32603, http: 200, sentence: 'A question was not answered in time' },

  REPLAY_DIVERGED: {
    rpc: -32603,
    http: 200,
    sentence: 'This tool changed while the call was open. Start the call again',
  },
  REPLAY_NAME_REUSED: { rpc: -32603, http: 200, sentence: 'This tool is faulty and cannot finish the call' },
  REPLAY_KIND_CHANGED: {
    rpc: -32603,
    http: 200,
    sentence: 'This tool changed while the call was open. Start the call again',
  },
  REPLAY_QUESTION_CHANGES: {
    rpc: -32603,
    http: 200,
    sentence: 'This tool asks a different question on every round and cannot finish the call',
  },
  REPLAY_NOT_AWAITED: {
    rpc: -32603,
    http: 200,
    sentence: 'This tool is faulty and cannot finish the call',
  },
  REPLAY_NESTED: { rpc: -32603, http: 200, sentence: 'This tool is faulty and cannot finish the call' },
  REPLAY_NOT_JSON: { rpc: -32603, http: 200, sentence: 'This tool is faulty and cannot finish the call' },
  REPLAY_NO_TASK: {
    rpc: -32603,
    http: 200,
    sentence: 'This tool needs a task to finish the call, and the server cannot run it as one',
  },
  REPLAY_UNSTABLE: { rpc: -32603, http: 200, sentence: 'This tool does not replay the same way twice' },

  LIMIT_ROUNDS: { rpc: -32603, http: 200, sentence: 'This call needs more rounds than the server allows' },
  LIMIT_ENTRIES: { rpc: -32603, http: 200, sentence: 'This call takes more steps than the server allows' },
  LIMIT_QUESTIONS: {
    rpc: -32603,
    http: 200,
    sentence: 'This call asks more questions at once than the server allows',
  },
  LIMIT_STATE_BYTES: {
    rpc: -32603,
    http: 200,
    sentence: 'The state of this call is larger than the server allows',
  },
  LIMIT_SLEEP: {
    rpc: -32603,
    http: 200,
    sentence: 'This call sleeps longer than it can. Use a client that can follow tasks',
    open: true,
  },
  LIMIT_RETRY: {
    rpc: -32603,
    http: 200,
    sentence:
      'A part of this call failed and can be retried later than the call can wait. Call the tool again later',
    open: true,
  },
  LIMIT_DEFER: { rpc: 0, http: 0, sentence: 'A function passed to ctx.defer did not settle in time' },
  LIMIT_SUBSCRIPTIONS: { rpc: -32603, http: 200, sentence: 'Too many subscriptions are open' },
  LIMIT_TASKS: {
    rpc: -32000,
    http: 429,
    sentence: 'Too many tasks are open. Finish or cancel one, then try again',
  },
  LIMIT_SESSIONS: { rpc: -32000, http: 503, sentence: 'Too many sessions are open. Try again later' },
  LIMIT_PARKED: {
    rpc: -32000,
    http: 200,
    sentence: 'There is no room for another call that waits for an answer. Answer one, or try again later',
  },
  LIMIT_BODY: { rpc: -32000, http: 413, sentence: 'The request body is too large' },
  LIMIT_JSON: {
    rpc: -32600,
    http: 400,
    sentence: 'The JSON is nested too deeply or takes too much memory',
    open: true,
  },
  LIMIT_RATE: { rpc: -32000, http: 429, sentence: 'Too many calls. Try again later' },
  LIMIT_IN_FLIGHT: {
    rpc: -32000,
    http: 429,
    sentence: 'The server is working on too much at once. Try again later',
  },

  SERVER_NO_APPROVER: {
    rpc: -32603,
    http: 200,
    sentence: 'This tool needs an approval, and this server has nobody to ask',
  },

  STORE_UNAVAILABLE: {
    rpc: -32000,
    http: 503,
    sentence: 'The server cannot reach its store. Send the request again',
  },
  STORE_BUSY: {
    rpc: -32000,
    http: 503,
    sentence: 'The same request is being processed. Send it again later',
    open: true,
  },
  STORE_SCHEMA: { rpc: -32603, http: 200, sentence: 'Internal error' },
  STORE_LEASE_LOST: { rpc: -32603, http: 200, sentence: 'Internal error' },

  SERVER_DRAINING: {
    rpc: -32000,
    http: 503,
    sentence: 'This instance is shutting down. Send the request again',
  },
  SERVER_IDENTITY: {
    rpc: -32000,
    http: 503,
    sentence: 'Callers cannot be identified at the moment. Try again later',
  },
  SERVER_LISTEN: { rpc: 0, http: 0, sentence: 'The server cannot listen at its address' },
  SERVER_HANDLER: { rpc: -32603, http: 200, sentence: 'The handler failed', open: true },
  SERVER_INTERNAL: { rpc: -32603, http: 200, sentence: 'Internal error' },

  PEER_PARSE: { rpc: -32700, http: 400, sentence: 'The body is not valid JSON', open: true },
  PEER_REQUEST: { rpc: -32600, http: 400, sentence: 'The message is not a JSON-RPC request', open: true },
  PEER_METHOD: { rpc: -32601, http: 404, sentence: 'Method not found', open: true },
  PEER_META: { rpc: -32602, http: 400, sentence: 'params._meta lacks a required key', open: true },
  PEER_PARAMS: { rpc: -32602, http: 200, sentence: 'Invalid params', open: true },
  PEER_RESOURCE: { rpc: -32602, http: 200, sentence: 'Resource not found', open: true },
  PEER_TASK: { rpc: -32602, http: 200, sentence: 'Task not found', open: true },
  PEER_HEADER: { rpc: -32020, http: 400, sentence: 'A header does not match the body', open: true },
  PEER_CAPABILITY: { rpc: -32021, http: 400, sentence: 'The client lacks a required capability', open: true },
  PEER_VERSION: { rpc: -32022, http: 400, sentence: 'Unsupported protocol version', open: true },
  PEER_MEDIA_TYPE: { rpc: -32000, http: 415, sentence: 'Content-Type must be application/json', open: true },
  PEER_HTTP_METHOD: {
    rpc: -32000,
    http: 405,
    sentence: 'Method not allowed: this endpoint accepts only POST',
    open: true,
  },
  PEER_NO_SESSION: {
    rpc: -32000,
    http: 400,
    sentence: 'The Mcp-Session-Id header is missing: clients of this revision start with initialize',
  },
  PEER_SESSION: { rpc: -32001, http: 404, sentence: 'Session not found. Start again with initialize' },
  PEER_EVENT: {
    rpc: -32000,
    http: 400,
    sentence: 'There is nothing to resume after this Last-Event-ID',
    open: true,
  },
  PEER_OTHER_INSTANCE: {
    rpc: -32000,
    http: 421,
    sentence:
      'This response belongs to a question that another instance asked. The instances need a store that they share, or sticky routing by Mcp-Session-Id',
  },
  PEER_HOST: { rpc: -32000, http: 403, sentence: 'This Host is not allowed', open: true },
  PEER_ORIGIN: { rpc: -32000, http: 403, sentence: 'This Origin is not allowed', open: true },
  PEER_UNAUTHENTICATED: { rpc: -32000, http: 401, sentence: 'Authentication required' },
  PEER_FORBIDDEN: { rpc: -32000, http: 403, sentence: 'This caller may not do this' },
  PEER_SCOPE: { rpc: -32000, http: 403, sentence: 'The access token lacks a scope that this request needs' },

  PEER_ERROR: { rpc: 0, http: 0, sentence: 'The server returned an error' },
  PEER_BAD_RESPONSE: { rpc: 0, http: 0, sentence: 'The server sent an invalid response' },
  PEER_REVISION: { rpc: 0, http: 0, sentence: 'The server supports no revision that this client may use' },
  PEER_HTTP: { rpc: 0, http: 0, sentence: 'The server returned an unexpected HTTP status' },
  PEER_UNREACHABLE: { rpc: 0, http: 0, sentence: 'The server cannot be reached or the connection was lost' },
  PEER_BUSY: { rpc: 0, http: 0, sentence: 'The server is busy; retry later' },
  PEER_TASK_CANCELLED: { rpc: 0, http: 0, sentence: 'The task was cancelled' },
  PEER_LOGIN: { rpc: 0, http: 0, sentence: 'The server requires a login' },
  PEER_AUTHORIZATION: { rpc: 0, http: 0, sentence: 'The authorization server cannot be used' },
  PEER_LINK: { rpc: 0, http: 0, sentence: 'The server asks to open a URL that is not safe' },

  INPUT_NO_HANDLER: {
    rpc: 0,
    http: 0,
    sentence: 'The server asks for something that this client has no handler for',
  },
  INPUT_ABORTED: { rpc: 0, http: 0, sentence: 'A handler ended the call instead of answering' },
  INPUT_REFUSED: { rpc: 0, http: 0, sentence: 'A policy of this client refused the round' },
  INPUT_ANSWER: { rpc: 0, http: 0, sentence: 'The answer does not match its question' },
  INPUT_MISSING: { rpc: 0, http: 0, sentence: 'Some questions of this round have no answer yet' },
  INPUT_PENDING: { rpc: 0, http: 0, sentence: 'The pending call cannot be read or cannot be resumed here' },

  LIMIT_CLIENT_ROUNDS: {
    rpc: 0,
    http: 0,
    sentence: 'The server asks for more rounds than this client allows',
  },
  LIMIT_CLIENT_TIMEOUT: { rpc: 0, http: 0, sentence: 'The server took too long to respond' },
  LIMIT_CLIENT_DEADLINE: { rpc: 0, http: 0, sentence: 'The call took longer than its deadline' },
  LIMIT_CLIENT_BYTES: { rpc: 0, http: 0, sentence: 'The server sent more than this client accepts' },
  LIMIT_CLIENT_STATE: { rpc: 0, http: 0, sentence: 'requestState is larger than this client accepts' },
  LIMIT_CLIENT_QUESTIONS: {
    rpc: 0,
    http: 0,
    sentence: 'The server asks more questions at once than this client allows',
  },
  LIMIT_CLIENT_PAGES: { rpc: 0, http: 0, sentence: 'The list has more pages than this client reads' },
} as const

export type ErrorCode = keyof typeof ERRORS

export interface RondoErrorOptions {
  /** JSON-RPC `error.data`; sent to the client. */
  data?: unknown
  /** Headers of the response, where the error is a response of its own over HTTP. */
  headers?: Readonly<Record<string, string>>
  /** The real cause; for the log, never sent. */
  cause?: unknown
}

/**
 * A call cannot proceed. `code` is stable; `message` is for the author and the log.
 *
 * @example
 * ```ts
 * try {
 *   await client.callTool('book')
 * } catch (error) {
 *   if (error instanceof RondoError && error.code === 'PEER_UNREACHABLE') return 'Try again later.'
 *   throw error
 * }
 * ```
 */
export class RondoError extends Error {
  readonly code: ErrorCode
  // Members that are not given are not there: Node prints every one of an error that nobody catches.
  declare readonly data: unknown
  declare readonly headers: Readonly<Record<string, string>> | undefined

  constructor(code: ErrorCode, detail?: string, { cause, data, headers }: RondoErrorOptions = {}) {
    super(`[${code}] ${detail ?? ERRORS[code].sentence}`, cause === undefined ? undefined : { cause })
    this.name = 'RondoError'
    this.code = code
    if (data !== undefined) this.data = data
    if (headers !== undefined) this.headers = headers
  }

  /** The JSON-RPC error code; 0 for an error that is never sent. */
  get rpc(): number {
    return ERRORS[this.code].rpc
  }

  /** The HTTP status at 2026-07-28; 0 for an error that is never sent. */
  get http(): number {
    return ERRORS[this.code].http
  }

  /** The message that is sent to a client. */
  get sentence(): string {
    const row: ErrorRow = ERRORS[this.code]
    return (row.open && detailOf(this)) || row.sentence
  }
}

/** The message of an error without its code. */
export function detailOf({ code, message }: RondoError): string {
  return message.slice(code.length + 3)
}

/**
 * A JSON-RPC error with any code, message and data, such as one of another server that an extension or a handler passes on.
 * Everything in it is sent to the client.
 *
 * @example
 * ```ts
 * throw new JsonRpcError(-32050, 'The quota of this month is used up', { resetsOn: '2026-12-01' })
 * ```
 */
export class JsonRpcError extends RondoError {
  readonly #rpc: number

  constructor(rpc: number, message: string, data?: unknown) {
    super('PEER_ERROR', message, { data })
    this.#rpc = rpc
  }

  override get rpc(): number {
    return this.#rpc
  }

  override get http(): number {
    return 200
  }

  override get sentence(): string {
    return detailOf(this)
  }
}

/** Marks an error whose message we wrote: it quotes no user data, so it may be logged in full. */
const OURS = Symbol.for('rondo.misuse')

/** An author or operator uses Rondo wrongly. The message says what to do instead, and is logged in full. */
export function misuse(message: string, options?: { cause?: unknown }): TypeError {
  const error = Object.defineProperty(new TypeError(message, options), OURS, { value: true })
  // Deep enough to reach the author's line.
  const { stackTraceLimit } = Error
  Error.stackTraceLimit = 50
  Error.captureStackTrace?.(error, misuse)
  Error.stackTraceLimit = stackTraceLimit
  return error
}

/** A sentence with the option that was probably meant, or nothing. */
export function didYouMean(name: string, known: object): string {
  const names = Object.keys(known)
  const near = nearest(name, names) ?? names.find((one) => name.startsWith(one))
  return near === undefined ? '' : ` Did you mean "${near}"?`
}

/** The name that is most like this one, if any is. */
export function nearest(name: string, names: readonly string[]): string | undefined {
  const [best] = names
    .map((one) => ({ one, distance: distanceOf(name.toLowerCase(), one.toLowerCase()) }))
    .filter(({ distance }) => distance <= Math.max(1, Math.floor(name.length / 3)))
    .sort((a, b) => a.distance - b.distance)
  return best?.one
}

/** Edit distance with transpositions, over the first 64 characters. */
function distanceOf(from: string, to: string): number {
  const [a, b] = [from.slice(0, 64), to.slice(0, 64)]
  const rows: number[][] = [Array.from({ length: b.length + 1 }, (_, j) => j)]
  const at = (i: number, j: number): number => rows[i]?.[j] ?? 0
  for (let i = 1; i <= a.length; i++) {
    rows[i] = [i]
    for (let j = 1; j <= b.length; j++) {
      const change = at(i - 1, j - 1) + (a[i - 1] === b[j - 1] ? 0 : 1)
      const isSwap = i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]
      const swap = isSwap ? at(i - 2, j - 2) + 1 : change
      rows[i]?.push(Math.min(change, swap, at(i - 1, j) + 1, at(i, j - 1) + 1))
    }
  }
  return at(a.length, b.length)
}

/** True if we wrote the message of an error. */
export function isOurs(error: unknown): error is Error {
  return error instanceof RondoError || (error instanceof TypeError && OURS in error)
}

/** True if the store is unavailable or its tables do not match. */
export function isStoreFault(error: unknown): error is RondoError {
  return error instanceof RondoError && (error.code === 'STORE_UNAVAILABLE' || error.code === 'STORE_SCHEMA')
}

/**
 * A failure of the tool itself whose message is meant for the client: it becomes an `isError` result with this text.
 *
 * @example
 * ```ts
 * throw new ToolError('There is no table for 40 people.')
 * ```
 */
export class ToolError extends Error {
  constructor(message: string, options?: { cause?: unknown }) {
    super(message, options)
    this.name = 'ToolError'
  }
}

/**
 * Thrown in a step or an effect: retrying cannot help. The option `retry` is ignored, and the handler gets this error. Its message
 * stays on the server; throw a `ToolError`, which is final too, if the client should read it.
 *
 * @example
 * ```ts
 * if (response.status === 404) throw new Fatal('The account is gone')
 * ```
 */
export class Fatal extends Error {
  constructor(message: string, options?: { cause?: unknown }) {
    super(message, options)
    this.name = 'Fatal'
  }
}

/**
 * Thrown in a step or an effect with the option `retry`: the next attempt begins after this time, whatever `delay`, `factor` and
 * `maxDelay` say. Without `retry`, or when no attempt is left, it is an error like any other.
 *
 * @example
 * ```ts
 * if (response.status === 429) throw new RetryLater(`${response.headers.get('retry-after') ?? 60} s`)
 * ```
 */
export class RetryLater extends Error {
  /** Milliseconds, text such as `'90 s'`, or the time itself. */
  readonly after: number | string | Date
  constructor(
    after: number | string | Date,
    message = 'The other system asks to be called later',
    options?: { cause?: unknown },
  ) {
    super(message, options)
    this.name = 'RetryLater'
    this.after = after
  }
}

/**
 * The user said no to a question. Uncaught, it ends the call politely.
 *
 * @example
 * ```ts
 * if (error instanceof InputDeclined) return 'Nothing was booked.'
 * ```
 */
export class InputDeclined extends ToolError {
  readonly key: string
  constructor(key: string) {
    super(`The user declined to answer "${key}". Nothing more was done.`)
    this.name = 'InputDeclined'
    this.key = key
  }
}

/**
 * The event for a hook does not fit its schema. Uncaught, it ends the call politely.
 *
 * @example
 * ```ts
 * if (error instanceof EventRejected) return `The payment cannot be read: ${error.problem}`
 * ```
 */
export class EventRejected extends ToolError {
  readonly key: string
  /** The problem of the event. */
  readonly problem: string
  constructor(key: string, problem: string) {
    super(`The event for "${key}" does not have the expected form.`)
    this.name = 'EventRejected'
    this.key = key
    this.problem = problem
  }
}

/**
 * No event came for a hook within its time. Uncaught, it ends the call politely.
 *
 * @example
 * ```ts
 * if (error instanceof EventExpired) return 'Nobody paid in time.'
 * ```
 */
export class EventExpired extends ToolError {
  readonly key: string
  constructor(key: string) {
    super(`The event for "${key}" did not arrive in time. Nothing more was done.`)
    this.name = 'EventExpired'
    this.key = key
  }
}

/** Somebody who decided about a request for approval. */
interface DecidedBy {
  readonly id: string
  readonly name: string
  readonly note?: string
}

/**
 * Somebody denied a request for approval. Uncaught, it ends the call politely.
 *
 * @example
 * ```ts
 * if (error instanceof ApprovalDenied) return `${error.by[0]?.name} said no.`
 * ```
 */
export class ApprovalDenied extends ToolError {
  readonly key: string
  /** Who denied it. With `passNote`, each may have a note: text of a person, to be quoted and never followed. */
  readonly by: readonly DecidedBy[]
  constructor(key: string, by: readonly DecidedBy[]) {
    super(`The approval "${key}" was denied. What needed it was not executed.${quoteNotes(by)}`)
    this.name = 'ApprovalDenied'
    this.key = key
    this.by = by
  }
}

/** On one line and in quotes, so that no note looks like text of the server. */
function quoteNotes(by: readonly DecidedBy[]): string {
  const notes = by.flatMap(({ note }) => (note === undefined ? [] : [JSON.stringify(note.slice(0, 500))]))
  return notes.length === 0
    ? ''
    : ` The approver wrote, as a quotation and not as an instruction: ${notes.join(', ')}`
}

/**
 * Nobody decided about a request for approval in time. Uncaught, it ends the call politely.
 *
 * @example
 * ```ts
 * if (error instanceof ApprovalExpired) return 'Nobody decided in time.'
 * ```
 */
export class ApprovalExpired extends ToolError {
  readonly key: string
  constructor(key: string) {
    super(`The approval "${key}" was not given in time. What needed it was not executed.`)
    this.name = 'ApprovalExpired'
    this.key = key
  }
}

/**
 * The user dismissed a question without answering. Uncaught, it ends the call politely.
 *
 * @example
 * ```ts
 * if (error instanceof InputCancelled) return 'Ask again when you are ready.'
 * ```
 */
export class InputCancelled extends ToolError {
  readonly key: string
  constructor(key: string) {
    super(`The question "${key}" was dismissed without an answer. Nothing more was done.`)
    this.name = 'InputCancelled'
    this.key = key
  }
}

/**
 * Nobody answered a question within its time. Uncaught, it ends the call politely.
 *
 * @example
 * ```ts
 * if (error instanceof InputExpired) return 'Booked any seat.'
 * ```
 */
export class InputExpired extends ToolError {
  readonly key: string
  constructor(key: string) {
    super(`The question "${key}" was not answered in time. Nothing more was done.`)
    this.name = 'InputExpired'
    this.key = key
  }
}

/**
 * `otel()`: spans and metrics of a server or a client, with nothing but the API of OpenTelemetry. Without an SDK it records
 * nothing.
 *
 * span 1: One SERVER span for each round, whose parent is the span that the client named in this round. Rounds are joined by
 *         links: a host starts a new trace for a retry, and a span over somebody's lunch would tell nothing.
 * span 2: A turn of a task is a CONSUMER span and the root of a new trace, with links to the round that began the task and
 *         to the request whose answers woke it.
 * span 3: A client that has a question answered does so in a SERVER span, whose parent is the span that the server named with
 *         the question: in the terms of the conventions, the client is the receiver of this request.
 * span 4: A question is not an error. A result with `isError` is `error.type=tool_error`.
 * span 5: No argument, answer, result, token or header is recorded, and no message of an error.
 */

import {
  type Attributes,
  type Baggage,
  type Context,
  context,
  createTraceState,
  isSpanContextValid,
  type Link,
  type Meter,
  type MeterProvider,
  metrics,
  propagation,
  ROOT_CONTEXT,
  type Span,
  type SpanContext,
  SpanKind,
  SpanStatusCode,
  TraceFlags,
  type Tracer,
  type TracerProvider,
  trace,
} from '@opentelemetry/api'
import { defineOptions, flag, type OptionsOf, unchecked } from '../options.ts'
import type {
  Observed,
  ObservedHappening,
  ObservedOperation,
  ObservedQueue,
  Observer,
  OperationEnd,
} from '../protocol/observer.ts'

// Every name that `rondo/otel` uses. `docs/reference/telemetry.md` has tables of their comments.

/** From the semantic conventions for MCP (Development). */
export const CONVENTION = {
  /** The method. */
  method: 'mcp.method.name',
  /** The revision. */
  protocolVersion: 'mcp.protocol.version',
  /** Id of the request, if it is a short one. */
  requestId: 'jsonrpc.request.id',
  /** The tool. */
  tool: 'gen_ai.tool.name',
  /** The prompt. */
  prompt: 'gen_ai.prompt.name',
  /** `execute_tool` for a tool. */
  operation: 'gen_ai.operation.name',
  /**
   * `tool_error` for a result with `isError`, else the [error code](docs/reference/errors.md); of a step, the class of
   * what it threw.
   */
  errorType: 'error.type',
  /** The JSON-RPC code of an error. */
  statusCode: 'rpc.response.status_code',
  /** The HTTP status of a refusal. */
  httpStatus: 'http.response.status_code',
} as const

/** Our own. */
export const ATTRIBUTE = {
  /** Id of the call, as in the [log](docs/reference/log.md). */
  flow: 'rondo.flow.id',
  /** Number of the round. */
  round: 'rondo.round',
  /** As in the log. */
  outcome: 'rondo.outcome',
  /** Number of questions that were sent. */
  asks: 'rondo.asks',
  /** Operations whose results came from the journal. */
  replayed: 'rondo.ops.replayed',
  /** Operations that ran. */
  executed: 'rondo.ops.executed',
  /** Length of the state that was sent. */
  stateBytes: 'rondo.state.bytes',
  /** Why the call was handed back. */
  moved: 'rondo.moved',
  /** Id of the task. */
  task: 'rondo.task.id',
  /** The turn. */
  turn: 'rondo.task.turn',
  /** Seconds between the last question and this round: human time. The span itself is server time. */
  humanWait: 'rondo.human.wait',
  /** On a link: `previous`, `first`, `created`, `woken`, `transport`, or `call` from a question to its request. */
  link: 'rondo.link',
  /** `step`, `effect` or `undo`. */
  workKind: 'rondo.work.kind',
  /** Its name in the handler, which is no part of the span's name. */
  workName: 'rondo.work.name',
  /** The attempt, from 1; [retries](docs/guide/retries.md) have a span each. */
  attempt: 'rondo.work.attempt',
  /** Why a state was refused, as in the log; what interrupted a turn; what the store was asked for. */
  reason: 'rondo.reason',
  /** In a [gateway](docs/guide/gateway.md): the server to which a request goes. */
  upstream: 'rondo.upstream',
} as const

export const METRIC = {
  /**
   * In seconds: duration of a request on the server, by method, revision, tool or prompt, and error; on a client, of a question
   * (`elicitation/create` and others): human time.
   */
  server: 'mcp.server.operation.duration',
  /** In seconds: the same on the client. */
  client: 'mcp.client.operation.duration',
  /** Rounds of a flow that ended. */
  rounds: 'rondo.flow.rounds',
  /** In seconds: time between a question and its answer. */
  humanWait: 'rondo.human.wait',
  /** States that did not open, by `rondo.reason`. */
  refused: 'rondo.state.refused',
  /** Tasks that have not ended; every process that runs tasks reports the whole store. */
  tasksOpen: 'rondo.tasks.open',
  /** In seconds: how long the oldest task that is due has waited for a worker. */
  dueAge: 'rondo.tasks.due.age',
  /** Rounds whose handler runs now, by tool or prompt. */
  roundsActive: 'rondo.rounds.active',
  /**
   * Requests refused for the reasons of [`refused` and `caller_refused`](docs/reference/log.md) in the log,
   * by error code and status: every one, where the log sums up.
   */
  requestsRefused: 'rondo.requests.refused',
  /**
   * In seconds: time from the creation of a task to its end, by tool, `rondo.outcome` and error, once the store has the end;
   * `given_up` if too many turns threw or died.
   */
  taskDuration: 'rondo.task.duration',
  /** In seconds: duration of a turn, by tool, `rondo.outcome` and error. */
  turnDuration: 'rondo.task.turn.duration',
  /** Turns that run now, by tool: slots in use. */
  turnsActive: 'rondo.task.turns.active',
  /** Turns that a process may run at the same time (`tasks.concurrency`). */
  slots: 'rondo.task.slots',
  /**
   * Turns that ended otherwise, by tool and `rondo.reason`: `retried` (it threw), `lost` (cancelled, lease lost,
   * or the store failed), `taken_over` (its worker died).
   */
  interruptions: 'rondo.task.interruptions',
  /**
   * Failures of the store, by `rondo.reason`: what a worker did with it, or `request`, `round`, `turn` for an
   * operation that failed because of it.
   */
  storeErrors: 'rondo.store.errors',
  /** Attempts of steps and effects that failed and are retried, by tool and `rondo.work.kind`. */
  retries: 'rondo.work.retries',
} as const

export interface OtelOptions {
  /** Creates the tracer. Default: the global provider. */
  tracerProvider?: TracerProvider
  /** Creates the meter. Default: the global provider. */
  meterProvider?: MeterProvider
  /** Passes baggage on, which a server then takes from its clients. Default: `false`. */
  baggage?: boolean
  /** Records spans of `tasks/get`, which clients send all the time. These requests are measured in any case. Default: `false`. */
  polls?: boolean
}

const OPTIONS = defineOptions('otel', {
  tracerProvider: unchecked(),
  meterProvider: unchecked(),
  baggage: flag(false),
  polls: flag(false),
} satisfies OptionsOf<OtelOptions>)

const SCOPE = 'rondo'

/**
 * Returns telemetry for `createServer`, `createRondo` and `connect`.
 *
 * @example
 * ```ts
 * const server = createServer({ name: 'tables', version: '1.0.0', telemetry: otel() })
 * ```
 */
export function otel(options: OtelOptions = {}): Required<Observer> {
  OPTIONS.assert(options)
  let known: Tracer | undefined
  /** The one of the API finds an SDK that is started later by itself. */
  const tracer = (): Tracer => {
    known ??= (options.tracerProvider ?? trace).getTracer(SCOPE)
    return known
  }
  let made: Telemetry | undefined
  /** Made when it is first needed: until an SDK has started, the API has no instruments that would count. */
  const telemetry = (): Telemetry => {
    made ??= {
      instruments: createInstruments((options.meterProvider ?? metrics).getMeter(SCOPE)),
      tracer,
      baggage: options.baggage === true,
    }
    return made
  }
  const instruments = (): Instruments => telemetry().instruments
  return {
    event(event) {
      if (event.event !== 'state_refused') return
      const { reason } = event as { reason?: unknown }
      instruments().refused.add(1, { [ATTRIBUTE.reason]: toLabel(reason) })
    },
    queue: (queue) => instruments().queue(queue),
    count: (happening) => instruments().count(happening),
    begin(operation) {
      const span =
        isPoll(operation) && options.polls !== true ? undefined : start(tracer(), operation, options)
      return new ObservedSpan(operation, span, telemetry())
    },
  }
}

/** A reason that is a sentence of somebody's own function would be a label without bound. */
function toLabel(reason: unknown): string {
  return typeof reason === 'string' && /^[a-z-]{1,32}$/.test(reason) ? reason : 'other'
}

function isPoll({ method }: ObservedOperation): boolean {
  return method === 'tasks/get'
}

interface Started {
  readonly span: Span
  /** The context in which the operation runs. */
  readonly inside: Context
}

function start(tracer: Tracer, operation: ObservedOperation, options: OtelOptions): Started {
  const { parent, ambient } = parentOf(operation, options)
  const kind = operation.kind === 'client' ? SpanKind.CLIENT : kindOf(operation)
  const name = operation.target === undefined ? operation.method : `${operation.method} ${operation.target}`
  const links = linksOf(operation, ambient)
  const attributes = attributesOf(operation)
  const startTime = lateness(operation) > 0 ? operation.began : undefined
  const span = tracer.startSpan(name, { kind, links, attributes, startTime }, parent)
  return { span, inside: trace.setSpan(parent, span) }
}

/** A span with a start of its own is measured in whole milliseconds, so that is for what took some before. */
const LATE_MS = 2
/** Beyond this the clock of the server is not that of the machine. */
const TOO_LATE_MS = 60_000

/** The age of the operation in milliseconds: its state may have been in a store. */
function lateness({ began }: ObservedOperation): number {
  const late = Date.now() - began
  return late >= LATE_MS && late <= TOO_LATE_MS ? late : 0
}

function kindOf({ kind }: ObservedOperation): SpanKind {
  return kind === 'turn' ? SpanKind.CONSUMER : SpanKind.SERVER
}

/** `ambient` is the span of the HTTP server, which becomes a link if the client named a span of its own. */
function parentOf(
  { kind, trace: sent }: ObservedOperation,
  { baggage }: OtelOptions,
): { readonly parent: Context; readonly ambient?: SpanContext } {
  const active = context.active()
  if (kind === 'client') return { parent: active }
  if (kind === 'turn') return { parent: ROOT_CONTEXT }
  const claimed = sent && readTraceContext(sent)
  const carried = baggage ? readBaggage(sent?.baggage) : undefined
  if (!claimed) return { parent: carried ? propagation.setBaggage(active, carried) : active }
  const parent = trace.setSpanContext(active, claimed)
  return {
    parent: carried ? propagation.setBaggage(parent, carried) : parent,
    ambient: trace.getSpanContext(active),
  }
}

const NO_LINKS: Link[] = []

function linksOf({ kind, spans, wokenBy }: ObservedOperation, ambient: SpanContext | undefined): Link[] {
  if (spans === undefined && wokenBy === undefined && ambient === undefined) return NO_LINKS
  const [first, last] = spans ?? []
  const links: Link[] = []
  const add = (name: string, linked: SpanContext | undefined): void => {
    if (linked) links.push({ context: linked, attributes: { [ATTRIBUTE.link]: name } })
  }
  if (kind === 'question') {
    add('call', unpackSpan(last) ?? ambient)
    return links
  }
  add(kind === 'turn' ? 'created' : 'previous', unpackSpan(last))
  if (first !== last) add('first', unpackSpan(first))
  add('woken', unpackSpan(wokenBy))
  add('transport', ambient)
  return links
}

/** Adds what is called to the attributes of a span, or to the labels of a metric. */
function withTarget(
  attributes: Attributes,
  { method, target }: Pick<ObservedOperation, 'method' | 'target'>,
): Attributes {
  if (method === 'tools/call') attributes[CONVENTION.operation] = 'execute_tool'
  if (target !== undefined) attributes[method === 'tools/call' ? CONVENTION.tool : CONVENTION.prompt] = target
  return attributes
}

function attributesOf(operation: ObservedOperation): Attributes {
  const { kind, requestId, flow, round, task, turn, waitedMs } = operation
  const attributes: Attributes = {
    [CONVENTION.method]: operation.method,
    [CONVENTION.protocolVersion]: operation.protocolVersion,
  }
  withTarget(attributes, operation)
  if (operation.peer !== undefined) attributes[ATTRIBUTE.upstream] = operation.peer
  const id = kind === 'turn' || requestId === undefined ? undefined : shortId(requestId)
  if (id !== undefined) attributes[CONVENTION.requestId] = id
  if (flow !== undefined) attributes[ATTRIBUTE.flow] = flow
  if (round !== undefined) attributes[ATTRIBUTE.round] = round
  if (task !== undefined) attributes[ATTRIBUTE.task] = task
  if (turn !== undefined) attributes[ATTRIBUTE.turn] = turn
  if (waitedMs !== undefined) attributes[ATTRIBUTE.humanWait] = waitedMs / 1000
  return attributes
}

/** A client chooses its ids: one that is not a short token is not recorded. */
function shortId(id: string | number): string | undefined {
  const text = String(id)
  return /^[\w.:-]{1,64}$/.test(text) ? text : undefined
}

interface Telemetry {
  readonly instruments: Instruments
  readonly tracer: () => Tracer
  /** Whether baggage is passed on. */
  readonly baggage: boolean
}

/** A class, because one is created for every operation, and getters in an object literal would give each a shape of its own. */
class ObservedSpan implements Observed {
  readonly #operation: ObservedOperation
  readonly #telemetry: Telemetry
  readonly #span: Span | undefined
  readonly #own: SpanContext | undefined
  readonly #inside: Context
  readonly #began: number

  constructor(operation: ObservedOperation, started: Started | undefined, telemetry: Telemetry) {
    this.#operation = operation
    this.#telemetry = telemetry
    this.#span = started?.span
    this.#own = started?.span.spanContext()
    this.#inside = started?.inside ?? context.active()
    this.#began = performance.now() - lateness(operation)
    telemetry.instruments.active(operation, 1)
  }

  /** Nothing of a trace that is not sampled arrives anywhere: no links to it, no spans inside it. */
  get #sampled(): SpanContext | undefined {
    const own = this.#own
    return own !== undefined && (own.traceFlags & TraceFlags.SAMPLED) !== 0 ? own : undefined
  }

  get span(): string | undefined {
    const own = this.#sampled
    return own && packSpan(own)
  }

  get trace(): Record<string, string> {
    const sent = this.#own ?? trace.getSpanContext(this.#inside)
    return {
      ...(sent && isSpanContextValid(sent) && writeTraceContext(sent)),
      ...(this.#telemetry.baggage && writeBaggage(propagation.getBaggage(this.#inside))),
    }
  }

  run<T>(fn: () => T): T {
    return context.with(this.#inside, fn)
  }

  work(kind: string, key: string, fn: () => unknown, attempt: number): unknown {
    if (this.#span && !this.#sampled) return fn()
    const inside = this.#inside
    // Names of spans have to be few, and a key may contain an id: it is an attribute.
    const child = this.#telemetry.tracer().startSpan(
      kind,
      {
        kind: SpanKind.INTERNAL,
        attributes: { [ATTRIBUTE.attempt]: attempt, ...workOf(kind, key) },
      },
      inside,
    )
    return ending(child, () => context.with(trace.setSpan(inside, child), fn))
  }

  replayed(kind: string, key: string): void {
    this.#span?.addEvent('replayed', workOf(kind, key))
  }

  end(end: OperationEnd): void {
    const seconds = (performance.now() - this.#began) / 1000
    if (this.#span) endSpan(this.#span, end)
    this.#telemetry.instruments.active(this.#operation, -1)
    this.#telemetry.instruments.ended(this.#operation, end, seconds)
  }
}

function workOf(kind: string, key: string): Attributes {
  return { [ATTRIBUTE.workKind]: kind, [ATTRIBUTE.workName]: key }
}

/** Ends the span of a step when the step has settled, and returns what the step returned. */
function ending(span: Span, fn: () => unknown): unknown {
  const failed = (error: unknown): void => {
    const name = error instanceof Error ? error.constructor.name : typeof error
    span.setAttribute(CONVENTION.errorType, name)
    span.setStatus({ code: SpanStatusCode.ERROR })
    span.end()
  }
  try {
    const value = fn()
    Promise.resolve(value).then(() => span.end(), failed)
    return value
  } catch (error) {
    failed(error)
    throw error
  }
}

function errorType({ code, outcome }: Pick<OperationEnd, 'code' | 'outcome'>): string | undefined {
  return code ?? (outcome === 'tool_error' ? 'tool_error' : undefined)
}

function endSpan(span: Span, end: OperationEnd): void {
  if (span.isRecording()) {
    const type = errorType(end)
    span.setAttributes(endingOf(end, type))
    if (type !== undefined) span.setStatus({ code: SpanStatusCode.ERROR })
  }
  span.end()
}

function endingOf(end: OperationEnd, type: string | undefined): Attributes {
  const attributes: Attributes = {}
  if (end.outcome !== undefined) attributes[ATTRIBUTE.outcome] = end.outcome
  if (end.asks !== undefined) attributes[ATTRIBUTE.asks] = end.asks
  if (end.moved !== undefined) attributes[ATTRIBUTE.moved] = end.moved
  if (end.task !== undefined) attributes[ATTRIBUTE.task] = end.task
  if (end.replayed !== undefined) attributes[ATTRIBUTE.replayed] = end.replayed
  if (end.executed !== undefined) attributes[ATTRIBUTE.executed] = end.executed
  if (end.stateBytes !== undefined) attributes[ATTRIBUTE.stateBytes] = end.stateBytes
  if (type !== undefined) attributes[CONVENTION.errorType] = type
  if (end.rpc !== undefined) attributes[CONVENTION.statusCode] = String(end.rpc)
  return attributes
}

interface Instruments {
  readonly refused: { add(value: number, attributes: Attributes): void }
  queue(queue: ObservedQueue): void
  count(happening: ObservedHappening): void
  /** A handler begins or ends. */
  active(operation: ObservedOperation, change: 1 | -1): void
  ended(operation: ObservedOperation, end: OperationEnd, seconds: number): void
}

/** The conventions name these. */
const DURATION = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300]
const HUMAN = [1, 5, 15, 60, 300, 900, 3_600, 14_400, 86_400]
const TASK = [0.1, 1, 5, 15, 60, 300, 900, 3_600, 14_400, 86_400, 604_800]
const ROUNDS = [1, 2, 3, 4, 5, 6, 8, 10, 16, 32]

const FINAL = new Set(['complete', 'tool_error', 'refused'])

function createInstruments(meter: Meter): Instruments {
  const histogram = (name: string, unit: string, description: string, boundaries: number[]) =>
    meter.createHistogram(name, { unit, description, advice: { explicitBucketBoundaries: boundaries } })
  const server = histogram(METRIC.server, 's', 'Duration of a request on the server', DURATION)
  const client = histogram(METRIC.client, 's', 'Duration of a request on the client', DURATION)
  const rounds = histogram(METRIC.rounds, '{round}', 'Rounds of a flow that ended', ROUNDS)
  const humanWait = histogram(METRIC.humanWait, 's', 'Time between a question and its answer', HUMAN)
  const refused = meter.createCounter(METRIC.refused, {
    unit: '{state}',
    description: 'States that did not open',
  })
  const open = meter.createGauge(METRIC.tasksOpen, {
    unit: '{task}',
    description: 'Tasks that have not ended',
  })
  const dueAge = meter.createGauge(METRIC.dueAge, {
    unit: 's',
    description: 'How long the oldest task that is due has waited for a worker',
  })
  const counter = (name: string, unit: string, description: string) =>
    meter.createCounter(name, { unit, description })
  const updown = (name: string, unit: string, description: string) =>
    meter.createUpDownCounter(name, { unit, description })
  const turn = histogram(METRIC.turnDuration, 's', 'Duration of a turn of a task', DURATION)
  const task = histogram(METRIC.taskDuration, 's', 'Time from the creation of a task to its end', TASK)
  const roundsActive = updown(METRIC.roundsActive, '{round}', 'Rounds whose handler runs')
  const turnsActive = updown(METRIC.turnsActive, '{turn}', 'Turns of tasks that run: slots in use')
  const slots = meter.createGauge(METRIC.slots, { unit: '{turn}', description: 'Turns that may run at once' })
  const turnedAway = counter(METRIC.requestsRefused, '{request}', 'Requests refused before anything ran')
  const interruptions = counter(
    METRIC.interruptions,
    '{turn}',
    'Turns of tasks that did not end as they should',
  )
  const storeErrors = counter(METRIC.storeErrors, '{error}', 'Failures of the store')
  const retries = counter(
    METRIC.retries,
    '{attempt}',
    'Attempts of steps and effects that failed and are retried',
  )
  return {
    refused,
    queue({ due, running, parked, oldestDueMs, slots: most }) {
      open.record(due + running + parked)
      dueAge.record(oldestDueMs / 1000)
      slots.record(most)
    },
    count(happening) {
      if (happening.kind === 'store')
        return storeErrors.add(1, { [ATTRIBUTE.reason]: toLabel(happening.during) })
      if (happening.kind === 'refused') {
        const { code, status } = happening
        return turnedAway.add(1, { [CONVENTION.errorType]: code, [CONVENTION.httpStatus]: status })
      }
      if (happening.kind === 'retry')
        return retries.add(1, { ...withTarget({}, happening), [ATTRIBUTE.workKind]: happening.work })
      const labels = withTarget({}, { method: 'tools/call', target: happening.target })
      if (happening.kind === 'turn')
        return interruptions.add(1, { ...labels, [ATTRIBUTE.reason]: happening.trouble })
      const { outcome, ageMs } = happening
      const type = outcome === 'given_up' ? outcome : errorType(happening)
      if (type !== undefined) labels[CONVENTION.errorType] = type
      task.record(ageMs / 1000, { ...labels, [ATTRIBUTE.outcome]: outcome })
    },
    active(operation, change) {
      if (operation.kind === 'round') roundsActive.add(change, withTarget({}, operation))
      if (operation.kind === 'turn') turnsActive.add(change, withTarget({}, operation))
    },
    ended(operation, end, seconds) {
      const { kind, method, protocolVersion, round, waitedMs } = operation
      const type = errorType(end)
      const labels: Attributes = {
        [CONVENTION.method]: method,
        [CONVENTION.protocolVersion]: protocolVersion,
      }
      withTarget(labels, operation)
      if (operation.peer !== undefined) labels[ATTRIBUTE.upstream] = operation.peer
      if (type !== undefined) labels[CONVENTION.errorType] = type
      if (kind === 'client') client.record(seconds, labels)
      else if (kind !== 'turn') server.record(seconds, labels)
      else turn.record(seconds, { ...labels, [ATTRIBUTE.outcome]: end.outcome })
      if (end.code?.startsWith('STORE_')) storeErrors.add(1, { [ATTRIBUTE.reason]: kind })
      if (waitedMs !== undefined) humanWait.record(waitedMs / 1000, withTarget({}, operation))
      if (round !== undefined && end.outcome !== undefined && FINAL.has(end.outcome))
        rounds.record(round, withTarget({}, operation))
    },
  }
}

// Trace context on the wire and in the journal. What a client sends (SEP-414: `traceparent`, `tracestate` and `baggage` in
// `_meta`) is a claim: it is parsed strictly, its length is limited, and whatever does not fit is ignored.
// A span in the journal has 25 bytes, in base64url: trace id 16, span id 8, flags 1.

const TRACEPARENT = /^00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})$/
const MAX_TRACESTATE = 512
const MAX_BAGGAGE = 4_096
const MAX_BAGGAGE_ENTRIES = 32
const PACKED = /^[A-Za-z0-9_-]{34}$/

type Carried = Readonly<Record<string, string>>

export function readTraceContext({ traceparent = '', tracestate }: Carried): SpanContext | undefined {
  const [, traceId = '', spanId = '', flags = ''] = TRACEPARENT.exec(traceparent) ?? []
  const traceFlags = Number.parseInt(flags, 16) & 1
  const context: SpanContext = { traceId, spanId, traceFlags, isRemote: true }
  if (!isSpanContextValid(context)) return undefined
  if (tracestate === undefined || tracestate.length > MAX_TRACESTATE) return context
  return { ...context, traceState: createTraceState(tracestate) }
}

function writeTraceContext({ traceId, spanId, traceFlags, traceState }: SpanContext): Carried {
  const flags = (traceFlags & 1).toString(16).padStart(2, '0')
  const state = traceState?.serialize() ?? ''
  return { traceparent: `00-${traceId}-${spanId}-${flags}`, ...(state !== '' && { tracestate: state }) }
}

export function packSpan(context: SpanContext): string | undefined {
  if (!isSpanContextValid(context)) return undefined
  const { traceId, spanId, traceFlags } = context
  const flags = (traceFlags & 1).toString(16).padStart(2, '0')
  return Buffer.from(traceId + spanId + flags, 'hex').toString('base64url')
}

export function unpackSpan(packed: unknown): SpanContext | undefined {
  if (typeof packed !== 'string' || !PACKED.test(packed)) return undefined
  const hex = Buffer.from(packed, 'base64url').toString('hex')
  const traceFlags = Number.parseInt(hex.slice(48, 50), 16) & 1
  const context = { traceId: hex.slice(0, 32), spanId: hex.slice(32, 48), traceFlags, isRemote: true }
  return isSpanContextValid(context) ? context : undefined
}

const BAGGAGE_MEMBER =
  /^\s*([!#$%&'*+.^_`|~\w-]+)\s*=\s*([\x21\x23-\x2b\x2d-\x3a\x3c-\x5b\x5d-\x7e]*)\s*(?:;|$)/

export function readBaggage(text: string | undefined): Baggage | undefined {
  if (text === undefined || text.length > MAX_BAGGAGE) return undefined
  const members = text.split(',').slice(0, MAX_BAGGAGE_ENTRIES)
  const entries = members.flatMap((member) => {
    const [, name, value] = BAGGAGE_MEMBER.exec(member) ?? []
    return name === undefined || value === undefined ? [] : [[name, { value: decoded(value) }] as const]
  })
  return entries.length === 0 ? undefined : propagation.createBaggage(Object.fromEntries(entries))
}

function writeBaggage(baggage: Baggage | undefined): Carried {
  const members =
    baggage?.getAllEntries().map(([name, { value }]) => `${name}=${encodeURIComponent(value)}`) ?? []
  const text = members.slice(0, MAX_BAGGAGE_ENTRIES).join(',')
  return text === '' || text.length > MAX_BAGGAGE ? {} : { baggage: text }
}

function decoded(value: string): string {
  try {
    return decodeURIComponent(value)
  } catch {
    return value
  }
}

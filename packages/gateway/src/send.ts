/**
 * One step of a call at its upstream: a round, the continuation of a held call, or a task that is followed.
 *
 * Never twice: a round is sent once. Where its reply is lost, the caller reads that the call may have had effects.
 */

import { createHash } from 'node:crypto'
import { type Context, RondoError, ToolError } from 'rondo'
import {
  type Client,
  type DriveOptions,
  type DriveResult,
  type FlowRequest,
  type InputRequests,
  type InputResponses,
  type LogLevel,
  openQuestions,
  PeerError,
  type PendingCall,
  parsePending,
  type QuestionKind,
  type RoundResult,
  type RoundTask,
  type TaskState,
} from 'rondo/client'
import { UpstreamError } from 'rondo/forward'
import type { Handover } from './handover.ts'
import { type HeldCalls, HeldEnded, type HeldLine, type HeldStep } from './held.ts'
import type { SentRounds } from './sent.ts'
import type { UpstreamTasks } from './tasks.ts'
import {
  AWAY,
  type Connection,
  callerKey,
  hasRounds,
  reasonOf,
  type Upstream,
  UpstreamDown,
} from './upstream.ts'
import { toUpstreamError } from './vet.ts'

export type Result = Readonly<Record<string, unknown>>

export interface SendParts {
  readonly held: HeldCalls
  /** Names this process in the states of calls that it holds. */
  readonly instance: string
  /** Keeps rounds of pushed calls from being sent twice. Absent without a store. */
  readonly sent?: SentRounds
  /** Passes answers to the instance that holds a call. Absent without a store that instances share. */
  readonly handover?: Handover
  /** Follows tasks for clients that take rounds and did not declare tasks. */
  readonly followTasks: boolean
  /** Whether a worker runs the call, as a task of ours. */
  inTurn(): boolean
  /** Hands tasks of upstreams to callers that can follow them. */
  readonly tasks: UpstreamTasks
  onHeld(id: string): void
}

/** A call of one of the upstream's tools, prompts or resources. */
export interface Passed {
  readonly upstream: Upstream
  readonly request: FlowRequest
  readonly annotations: Readonly<Record<string, unknown>>
  /** The tool has an output schema, which a result without an error must fit. */
  readonly structured?: boolean
  /** The tool runs only as a task at an upstream that pushes its questions. */
  readonly isTask?: boolean
}

/** The content that is sealed between two rounds. */
export interface PassedState {
  readonly u: string
  /** The upstream's revision. */
  readonly r: string
  /** The upstream's state, byte for byte. */
  readonly s?: string
  /** The held call, and the process that holds it. */
  readonly h?: { readonly id: string; readonly at: string; readonly n: number }
  /** The upstream's task that the call has become, as plain JSON. */
  readonly t?: string
  /** Counts the turns of a task of ours that sent something. */
  readonly c?: number
  /** Answers that were given on this machine in the same round. */
  readonly l?: InputResponses
  /** The schemas of fields whose answers may come as text, by the key of their question. */
  readonly f?: Readonly<Record<string, Result>>
}

/** A caller's round, as far as its upstream is concerned. */
export interface Sending {
  readonly passing: SendParts
  readonly passed: Passed
  readonly ctx: Context
  /** The `_meta` that goes upstream. */
  readonly meta: Result
  readonly kinds: readonly QuestionKind[]
  /** The caller can follow a task. */
  readonly follows: boolean
  /** Fires when the client has gone; for a call that goes on without its request, when it is cancelled. */
  readonly signal: AbortSignal
  readonly line: HeldLine
}

/** A round with the state and the answers to send. */
interface Advance extends Sending {
  readonly state: PassedState | undefined
  readonly answers: InputResponses | undefined
  /** The steps that this run has sent before. */
  readonly steps: number
}

/** The end of a call, or its questions and the state that continues it. */
export type Step =
  | { readonly kind: 'result'; readonly result: Result }
  /** The upstream made the call a task, and the caller follows it. */
  | { readonly kind: 'task'; readonly task: TaskState }
  | { readonly kind: 'asks'; readonly questions: InputRequests; readonly state: PassedState }

/** Sends one round, or continues a held call. */
export async function advance(one: Advance): Promise<Step> {
  const { passing, passed, ctx, state, answers } = one
  const { upstream } = passed
  const { held } = passing
  try {
    if (state?.h) {
      const step = await held.resume(state.h.id, callerKey(ctx.principal), answers, one)
      return await toStep(one, await handedStep(one, state.h, step), state.r, state.h.at)
    }
    const connection = await upstream.connection(ctx.principal, one.kinds)
    if (state !== undefined && state.r !== connection.revision)
      throw changed(upstream, state.r, connection.revision)
    return await sendOnce(one, () => sendStep(one, connection))
  } catch (error) {
    throw toFailure(passed, error, one.signal)
  }
}

/**
 * Sends a step once, whichever instance runs it: a later round of a pushed call, and every turn of a task. What changes nothing may
 * be sent again.
 */
function sendOnce(one: Advance, send: () => Promise<Step>): Promise<Step> {
  const { passing, passed, ctx, steps } = one
  const { sent } = passing
  const { readOnlyHint, idempotentHint } = passed.annotations
  const isHarmless = readOnlyHint === true || idempotentHint === true
  const isResumed = passing.inTurn() || (!hasRounds(ctx.protocolVersion) && ctx.round > 1)
  if (sent === undefined || !isResumed || isHarmless) return send()
  // All turns of a task are one round.
  const given = passing.inTurn() ? `-${digest([ctx.requestState, ctx.inputResponses])}` : ''
  const round = `${ctx.round}-${steps}${given}`
  return sent.once(
    { flow: ctx.flow, round, upstream: passed.upstream.name, owner: callerKey(ctx.principal) },
    send,
  )
}

function digest(value: unknown): string {
  return createHash('sha256').update(JSON.stringify(value)).digest('base64url').slice(0, 22)
}

/** Ends what a call has begun at its upstream, because it may not go on. */
export async function endBegun(
  { held, handover }: SendParts,
  upstream: Upstream,
  { principal }: Context,
  { h, t }: PassedState,
): Promise<void> {
  if (h !== undefined && !held.cancel(h.id)) await handover?.end(h.id)
  const taskId = t === undefined ? undefined : parsePending(t).task?.taskId
  if (taskId === undefined) return
  const { client } = await upstream.anyConnection(principal, [])
  await client.task(taskId).cancel()
}

const UNSUPPORTED_VERSION = -32022

/** Sends a step in the revision of the connection, or in another one if the server was replaced. */
async function sendStep(one: Advance, connection: Connection, again = true): Promise<Step> {
  const { passed, ctx, state, kinds } = one
  try {
    if (!connection.rounds) return await hold(one, connection)
    return await (state?.t === undefined ? sendRound(one, connection) : followTask(one, connection))
  } catch (error) {
    lostConnection(passed.upstream, connection, error)
    // It has done nothing: the tool runs only as a task.
    if (needsTask(error) && connection.rounds && state === undefined && mayFollow(one))
      return followTask(one, connection)
    // It refuses the revision and so has done nothing: it was replaced by a server of another one.
    if (!(error instanceof PeerError && error.peer.code === UNSUPPORTED_VERSION)) throw error
    connection.drop()
    if (!again || state !== undefined) throw error
    return sendStep(one, await passed.upstream.connection(ctx.principal, kinds), false)
  }
}

async function sendRound(one: Advance, connection: Connection): Promise<Step> {
  const { passed, state, answers, kinds } = one
  const { upstream, request } = passed
  const sending = {
    ...linesOf(one)(one.line),
    accepts: kinds,
    apps: one.ctx.can('app'),
    signal: one.signal,
    tasks: true as const,
    ...(answers && { inputResponses: answers }),
    ...(state?.s !== undefined && { requestState: state.s }),
  }
  const { client } = connection
  const send = () =>
    one.follows ? client.round(request, sending) : client.round(request, { ...sending, tasks: false })
  const round: RoundResult | RoundTask = await connection.use(send, one.signal)
  if (round.resultType === 'task') return { kind: 'task', task: await handTask(one, connection, round.task) }
  if (round.resultType === 'complete') return { kind: 'result', result: round.result as unknown as Result }
  const { inputRequests: questions, requestState: s } = round
  return { kind: 'asks', questions, state: stateOf(upstream, connection, { s }) }
}

/** Hands a task to its caller. One that cannot be handed over is cancelled, because nobody could follow it. */
async function handTask({ passing, passed, ctx }: Advance, { client }: Connection, task: TaskState) {
  const { upstream, request } = passed
  try {
    return await passing.tasks.hand(upstream, request.method === 'tools/call' ? request.name : '', task, ctx)
  } catch (error) {
    await client
      .task(task.taskId)
      .cancel()
      .catch(() => {})
    throw error
  }
}

const TASKS = 'io.modelcontextprotocol/tasks'

function mayFollow({ passing, ctx, follows }: Advance): boolean {
  return !follows && (passing.followTasks || !hasRounds(ctx.protocolVersion))
}

function needsTask(error: unknown): boolean {
  if (!(error instanceof PeerError) || error.peer.code !== CAPABILITY) return false
  return JSON.stringify(error.peer.data ?? '').includes(TASKS)
}

/** Follows a task of the upstream for a caller that cannot: until it asks, or has ended. */
async function followTask(one: Advance, connection: Connection): Promise<Step> {
  const { passed, state, answers, kinds, signal } = one
  const { client } = connection
  const options = { ...linesOf(one)(one.line), accepts: kinds, apps: one.ctx.can('app'), signal }
  const drive = async (): Promise<DriveResult> => {
    const resume = (pending: PendingCall, given?: InputResponses): Promise<DriveResult> =>
      orCancel(client.resume(pending, given, options), client, pending, signal)
    let driven: DriveResult =
      state?.t === undefined
        ? await client.start(passed.request, options)
        : await resume(parsePending(state.t), answers)
    while (driven.status === 'task') driven = await resume(driven.pending)
    return driven
  }
  const driven = await connection.use(drive, signal)
  if (driven.status === 'complete') return { kind: 'result', result: driven.result as unknown as Result }
  const { pending } = driven
  const questions = Object.fromEntries(openQuestions(pending))
  return {
    kind: 'asks',
    questions,
    state: { ...stateOf(passed.upstream, connection, {}), t: JSON.stringify(pending) },
  }
}

function stateOf(
  { identity }: Upstream,
  { revision }: Connection,
  more: Pick<PassedState, 's' | 'h'>,
): PassedState {
  return {
    u: identity,
    r: revision,
    ...(more.s !== undefined && { s: more.s }),
    ...(more.h && { h: more.h }),
  }
}

/** Sends a call to an upstream that asks while it is open. */
async function hold(one: Advance, connection: Connection): Promise<Step> {
  const { passing, passed, ctx, kinds } = one
  const { upstream } = passed
  // A held call outlives the round, so what it captures must not.
  const toLine = linesOf(one)
  // Questions find their call by this object.
  const request = { ...passed.request }
  const step = await passing.held.begin(
    {
      upstream: upstream.name,
      caller: callerKey(ctx.principal),
      async send(take, line, signal) {
        upstream.takers.set(request, take)
        const sending = { ...toLine(line), accepts: kinds, signal }
        try {
          if (passed.isTask) return await connection.use(() => runTask(connection, request, sending), signal)
          const round = await connection.use(() => connection.client.round(request, sending), signal)
          if (round.resultType === 'complete') return round.result as unknown as Result
          throw new Error('the server returned a round in a revision that has none')
        } catch (error) {
          lostConnection(upstream, connection, error)
          throw error
        }
      },
    },
    { line: one.line, signal: one.signal },
  )
  return await toStep(one, step, connection.revision, passing.instance)
}

/** A task that fails with one of these goes on and can be followed again, or has ended. */
const FOLLOWABLE = new Set<unknown>([...AWAY, 'PEER_ERROR', 'PEER_TASK_CANCELLED'])

/**
 * Cancels the task of a call whose caller has gone, or that cannot go on: to abort the wait alone would let it run on. The call was
 * sent, so a server that cannot be reached any more must not look like one to which nothing was sent.
 */
function orCancel<T>(
  waiting: Promise<T>,
  client: Client,
  { task }: PendingCall,
  signal?: AbortSignal,
): Promise<T> {
  return waiting.catch((error: unknown) => {
    const isLost = error instanceof RondoError && !FOLLOWABLE.has(error.code)
    if (task && (signal?.aborted || isLost))
      client
        .task(task.taskId)
        .cancel()
        .catch(() => {})
    throw wasNotSent(error) ? new RondoError('PEER_UNREACHABLE', reasonOf(error)) : error
  })
}

/** Runs a tool that only runs as a task to its end; its questions are pushed while it is followed. */
async function runTask(
  { client }: Connection,
  request: FlowRequest,
  { accepts, ...options }: DriveOptions,
): Promise<Result> {
  const begun = await client.start(request, { accepts, ...options })
  if (begun.status === 'complete') return begun.result as unknown as Result
  const result = await orCancel(client.finish(begun.pending, options), client, begun.pending, options.signal)
  return result as unknown as Result
}

/** The step of a call that another instance holds, if instances share a store. */
async function handedStep(
  one: Advance,
  { id, at, n }: NonNullable<PassedState['h']>,
  step: HeldStep,
): Promise<HeldStep> {
  const { passing, ctx, answers = {}, signal } = one
  if (step.kind !== 'lost' || step.reason !== undefined || at === passing.instance) return step
  const handed = await passing.handover?.deliver(id, callerKey(ctx.principal), n, answers, signal)
  if (handed === undefined) return step
  if (handed.kind === 'failed') throw new HeldEnded(handed.message)
  return handed.step
}

async function toStep(
  { passing, passed, ctx }: Advance,
  step: HeldStep,
  revision: string,
  at: string,
): Promise<Step> {
  const { upstream } = passed
  if (step.kind === 'result') return step
  if (step.kind === 'asks') {
    if (at === passing.instance) {
      passing.onHeld(step.id)
      await passing.handover?.hold(step.id, callerKey(ctx.principal), step.step)
    }
    const h = { id: step.id, at, n: step.step }
    return { kind: 'asks', questions: step.questions, state: { u: upstream.identity, r: revision, h } }
  }
  throw new HeldEnded(
    step.reason ??
      `The call at "${upstream.name}" was lost: the process of the gateway that held it has ended. The call may have had effects there. It was not sent again.`,
  )
}

/** A process that has exited, or a connection that nobody can use, is replaced at the next call. */
function lostConnection({ options }: Upstream, connection: Connection, error: unknown): void {
  const code = error instanceof RondoError ? error.code : ''
  if (code === 'PEER_UNREACHABLE' && options.command !== undefined) connection.drop()
}

/** Returns the facts of a request, given the destination of its notifications. It keeps nothing else of the caller's round. */
function linesOf({ ctx, meta }: Advance) {
  const level = ctx.meta['io.modelcontextprotocol/logLevel']
  const logLevel = !hasRounds(ctx.protocolVersion) ? 'info' : (level as LogLevel | undefined)
  const isReported = ctx.meta.progressToken !== undefined
  return (line: HeldLine) => ({
    meta,
    ...(isReported && {
      onProgress: (one: { progress: number; total?: number; message?: string }) =>
        line.progress(one.progress, one.total, one.message),
    }),
    ...(logLevel !== undefined && {
      logLevel,
      onLog: (one: { level: LogLevel; data: unknown; logger?: string }) =>
        line.log(one.level, one.data, one.logger),
    }),
  })
}

function changed({ name }: Upstream, from: string, to: string): ToolError {
  return new ToolError(
    `"${name}" spoke ${from} when this call began and speaks ${to} now. Start the call again; what was begun may have had effects there.`,
  )
}

const RESOURCE_NOT_FOUND = -32002
const INVALID_PARAMS = -32602
const CAPABILITY = -32021

/** The error that the caller gets. */
function toFailure({ upstream: { name }, request }: Passed, error: unknown, signal: AbortSignal): unknown {
  if (error instanceof ToolError || error instanceof UpstreamError || signal.aborted) return error
  if (error instanceof UpstreamDown || error instanceof HeldEnded) return new ToolError(error.message)
  if (error instanceof PeerError) return toError(name, request, error)
  const code = error instanceof RondoError ? error.code : undefined
  const reason = reasonOf(error)
  if (wasNotSent(error)) return new ToolError(new UpstreamDown(name, reason, 0).message)
  if (code === 'INPUT_NO_HANDLER')
    return new ToolError(
      `"${name}" asked for something that this client did not declare, so the call was ended: ${reason}.`,
    )
  return new ToolError(
    `The call at "${name}" failed: ${reason}. It may have had effects there, and was not sent again.`,
    { cause: error },
  )
}

const NOT_SENT = new Set<unknown>(['ECONNREFUSED', 'ENOTFOUND', 'EAI_AGAIN', 'EHOSTUNREACH', 'ENETUNREACH'])

/** Whether the connection failed before a byte of the request left. */
function wasNotSent(error: unknown): boolean {
  for (let cause = error, depth = 0; cause instanceof Error && depth < 5; cause = cause.cause, depth += 1)
    if ('code' in cause && NOT_SENT.has(cause.code)) return true
  return false
}

/** An error of the upstream as the caller's revision says it. */
function toError(name: string, request: FlowRequest, { peer, message }: PeerError): unknown {
  const { code, data } = peer
  const isMiss = request.method === 'resources/read' && code === INVALID_PARAMS
  // Each revision has a code of its own for it.
  if (code === RESOURCE_NOT_FOUND || isMiss) return new RondoError('PEER_RESOURCE', undefined, { data })
  const about = `"${name}": ${message.replace(/^\[\w+\] /, '').replace(/ \(-?\d+\)$/, '')}`
  if (code === CAPABILITY) return new RondoError('PEER_CAPABILITY', about, { data })
  return toUpstreamError(peer)
}

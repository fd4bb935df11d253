/**
 * One round of a call on its way through the gateway.
 *
 * W2 The upstream's state is inside ours, which the runtime seals for the caller, the tool and the arguments; together with it are the
 *    upstream and its revision, so that it is never sent elsewhere.
 * W3 The upstream may ask what the caller can be asked, and nothing else.
 * W4 Questions are vetted before anybody sees them, and say which server asks.
 * W5 Of the caller's request, the arguments and those keys of `_meta` go upstream that the protocol does not give to each hop.
 * W7 Progress, log messages and cancellation pass in both directions.
 * W10 A loop of gateways ends, because each adds one to a count of hops.
 *
 * Never twice: a round is sent once. Where its reply is lost, the caller reads that the call may have had effects.
 */

import { type Context, type InputRequired, inputRequired, RondoError, ToolError } from 'rondo'
import {
  type Client,
  type Clock,
  type DriveOptions,
  type DriveResult,
  type FlowRequest,
  type InputRequest,
  type InputRequests,
  type InputResponse,
  type InputResponses,
  kindOf,
  type LogLevel,
  openQuestions,
  PeerError,
  type PendingCall,
  parsePending,
  type QuestionKind,
  type RoundPolicy,
} from 'rondo/client'
import { UpstreamError } from 'rondo/forward'
import { type AskLocally, isLocal } from './ask.ts'
import { CONFIRM_KEY, confirmMessage, type Decide, type DecideFacts, OWN_KEY } from './decide.ts'
import { type Handles, handleResult } from './handle.ts'
import type { Handover } from './handover.ts'
import { type HeldCalls, HeldEnded, type HeldLine, type HeldStep } from './held.ts'
import type { SentRounds } from './sent.ts'
import {
  type Connection,
  callerKey,
  hasRounds,
  KINDS,
  reasonOf,
  type Upstream,
  UpstreamDown,
} from './upstream.ts'

type Result = Readonly<Record<string, unknown>>

export interface Passing {
  readonly held: HeldCalls
  readonly decide?: Decide
  readonly ask?: AskLocally
  readonly policies: readonly RoundPolicy[]
  /** Whether the names of upstreams are shown in questions: there are several. */
  readonly labels: boolean
  /** Whether states that are too large for a token can be kept elsewhere. */
  readonly stored: boolean
  /** Names this process in the states of calls that it holds. */
  readonly instance: string
  readonly clock: Clock
  /** Keeps calls beyond the time that hosts give them. */
  readonly handles?: Handles
  /** Keeps rounds of pushed calls from being sent twice. Absent without a store. */
  readonly sent?: SentRounds
  /** Passes answers to the instance that holds a call. Absent without a store that instances share. */
  readonly handover?: Handover
  onHeld(id: string): void
  /** The call goes on without its request. */
  onDetached(): void
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
interface PassedState {
  readonly u: string
  /** The upstream's revision. */
  readonly r: string
  /** The upstream's state, byte for byte. */
  readonly s?: string
  /** The held call, and the process that holds it. */
  readonly h?: { readonly id: string; readonly at: string; readonly n: number }
  /** The upstream's task that the call has become, as plain JSON. */
  readonly t?: string
  /** Answers that were given on this machine in the same round. */
  readonly l?: InputResponses
}

const HOPS = 'rondo/hops'
const MAX_HOPS = 8
/** A state of this length still fits into a token, with its share of base64 and padding. */
const MAX_STATE = 40_960

/** Passes a round on, and returns the upstream's result, or its questions as a round of ours. */
export async function pass(passing: Passing, passed: Passed, ctx: Context): Promise<Result | InputRequired> {
  const meta = onward(passed.upstream, ctx.meta)
  await decideOn(passing, passed, ctx)
  const life = new AbortController()
  const end = (): void => life.abort(ctx.signal.reason)
  if (ctx.signal.aborted) end()
  ctx.signal.addEventListener('abort', end)
  const line = { isOpen: true }
  const state = openState(passed.upstream, ctx.requestState)
  const kinds = KINDS.filter((kind) => ctx.can(kind) || isLocal(passing.ask, kind, false))
  const asking = createAsking()
  const round: Round = {
    passing,
    passed,
    ctx,
    meta,
    kinds,
    signal: life.signal,
    line: lineTo(ctx, line),
    asking,
  }
  const running = drive(round, state)
  try {
    const { handles } = passing
    const isKept = handles !== undefined && passing.ask !== undefined && ctx.meta.progressToken === undefined
    const driven = isKept
      ? await inTime(round, handles, running, () => life.abort(new HeldEnded('The call was cancelled.')))
      : await running
    return driven.kind === 'result' ? driven.result : await toRound(round, driven)
  } finally {
    line.isOpen = false
    ctx.signal.removeEventListener('abort', end)
  }
}

/** A round of our caller on its way. */
interface Round {
  readonly passing: Passing
  readonly passed: Passed
  readonly ctx: Context
  readonly meta: Result
  readonly kinds: readonly QuestionKind[]
  /** Fires when the client has gone; for a call that goes on without its request, when it is cancelled. */
  readonly signal: AbortSignal
  readonly line: HeldLine
  readonly asking: Asking
}

/** Whether a person on this machine has been asked. */
interface Asking {
  readonly begun: Promise<void>
  begin(): void
}

function createAsking(): Asking {
  let begin = (): void => {}
  const begun = new Promise<void>((resolve) => {
    begin = resolve
  })
  return { begun, begin }
}

/** Notifications reach the client while its request is open, and nobody afterwards. */
function lineTo(ctx: Context, line: { readonly isOpen: boolean }): HeldLine {
  return {
    progress: (...args) => line.isOpen && ctx.progress(...args),
    log: (...args) => line.isOpen && ctx.log(...args),
  }
}

type Driven =
  | { readonly kind: 'result'; readonly result: Result }
  | { readonly kind: 'asks'; readonly questions: InputRequests; readonly state: PassedState }

/** Steps that a call may take while a person on this machine answers. */
const MAX_STEPS = 64

/** Sends rounds until the call ends, or until the client has to be asked. */
async function drive(round: Round, from: PassedState | undefined): Promise<Driven> {
  const { passing, passed, ctx } = round
  const { upstream } = passed
  let state = from
  let answers = foreign(ctx.inputResponses, state?.l)
  for (let steps = 0; steps < MAX_STEPS; steps += 1) {
    const step = await advance({ ...round, state, answers })
    if (step.kind === 'result') return { kind: 'result', result: withHint(passed, withoutHop(step.result)) }
    const { questions, answers: ofPolicy } = await vet(passing, passed, ctx, step)
    const local = Object.entries(questions).filter(([, one]) => asksHere(passing, ctx, one))
    const given = { ...ofPolicy, ...(local.length > 0 && (await askHere(round, local))) }
    const others = Object.entries(questions).filter(([key]) => !Object.hasOwn(given, key))
    const isAnswered = Object.keys(given).length > 0
    if (!isAnswered || others.length > 0) {
      const shown = others.map(([key, one]) => [key, labelled(passing, upstream, one)])
      return {
        kind: 'asks',
        questions: Object.fromEntries(shown),
        state: { ...step.state, ...(isAnswered && { l: given }) },
      }
    }
    answers = given
    state = step.state
  }
  throw new ToolError(
    `"${upstream.name}" does not stop asking, so the call was ended. It may have had effects there.`,
  )
}

/** Waits for a call, and returns a handle if a person is being asked when its host is about to give up. */
async function inTime(
  { passing, passed, ctx, asking }: Round,
  handles: Handles,
  running: Promise<Driven>,
  cancel: () => void,
): Promise<Driven> {
  const { name } = passed.upstream
  let stop = (): void => {}
  const timeUp = new Promise<void>((resolve) => {
    stop = passing.clock.after(handles.afterMs, resolve)
  })
  const late = Promise.all([timeUp, asking.begun]).then(() => undefined)
  const driven = await Promise.race([running, late]).finally(() => stop())
  if (driven !== undefined) return driven
  const result = running.then((one) => {
    if (one.kind === 'result') return one.result
    throw new ToolError(
      `"${name}" asks something that only this host could ask, and its call has ended. It may have had effects there.`,
    )
  })
  // A call that cannot be kept ends without a reader.
  result.catch(() => {})
  const id = handles.keep(callerKey(ctx.principal), result, cancel)
  if (id === undefined) {
    cancel()
    throw new ToolError(
      `Too many calls wait for an answer on this machine, so the call at "${name}" was ended. It may have had effects there.`,
    )
  }
  passing.onDetached()
  return { kind: 'result', result: handleResult(id, name, 1, passed.structured) }
}

async function toRound(
  { passing, passed, ctx }: Round,
  { questions, state }: Extract<Driven, { kind: 'asks' }>,
): Promise<InputRequired> {
  const { name } = passed.upstream
  const requestState = JSON.stringify(state)
  if (!passing.stored && requestState.length > MAX_STATE)
    throw new ToolError(
      `The state of "${name}" is ${state.s?.length} characters long, and the gateway can pass on ${MAX_STATE} without a store. Nobody was asked. Its operator can add a store.`,
    )
  if (Object.keys(questions).length > 0) return inputRequired({ inputRequests: questions, requestState })
  // Clients of rounds pause by themselves before they send a state back; for others the next run begins at once.
  if (!hasRounds(ctx.protocolVersion)) await pause(ctx.signal)
  return inputRequired({ requestState })
}

const PAUSE_MS = 250

function pause(signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, PAUSE_MS)
    signal.addEventListener('abort', () => {
      clearTimeout(timer)
      reject(signal.reason)
    })
  })
}

async function decideOn(
  { decide }: Passing,
  { upstream, request, annotations }: Passed,
  ctx: Context,
): Promise<void> {
  if (decide === undefined) return
  const facts: DecideFacts = {
    upstream: upstream.name,
    tool: request.method === 'resources/read' ? request.uri : request.name,
    method: request.method,
    arguments: request.method === 'resources/read' ? {} : (request.arguments ?? {}),
    annotations,
    ...(ctx.principal && { principal: ctx.principal }),
  }
  const decision = await decide(facts)
  if (decision === 'allow') return
  if (decision === 'confirm') {
    const message = confirmMessage(facts)
    if (message === undefined)
      throw new ToolError(
        `The arguments of ${facts.tool} are too long to be shown for confirmation. Nothing was sent to "${upstream.name}".`,
      )
    if (await ctx.confirm(CONFIRM_KEY, message)) return
    throw new ToolError(
      `The user did not confirm the call of ${facts.tool}. Nothing was sent to "${upstream.name}".`,
    )
  }
  if (decision === 'approve')
    throw new ToolError(`decide returned 'approve', which this gateway does not offer yet. Nothing was sent.`)
  const reason = typeof decision === 'object' && decision !== null ? `: ${decision.deny}` : ''
  throw new ToolError(
    `The operator of this gateway does not allow the call of ${facts.tool}${reason}. Nothing was sent.`,
  )
}

interface Advance extends Round {
  readonly state: PassedState | undefined
  readonly answers: InputResponses | undefined
}

type Step =
  | { readonly kind: 'result'; readonly result: Result }
  | { readonly kind: 'asks'; readonly questions: InputRequests; readonly state: PassedState }

/** Sends one round, or continues a held call. */
async function advance(one: Advance): Promise<Step> {
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
    if (!connection.rounds) return await hold(one, connection)
    if (state?.t !== undefined) return await sendOnce(one, () => followTask(one, connection))
    return await sendOnce(one, () => sendRound(one, connection))
  } catch (error) {
    throw toFailure(passed, error, one.signal, state?.h !== undefined)
  }
}

/** Sends a later round of a pushed call once, whichever instance runs it. What changes nothing may be sent again. */
function sendOnce({ passing, passed, ctx }: Advance, send: () => Promise<Step>): Promise<Step> {
  const { sent } = passing
  const { readOnlyHint, idempotentHint } = passed.annotations
  const isHarmless = readOnlyHint === true || idempotentHint === true
  if (sent === undefined || hasRounds(ctx.protocolVersion) || ctx.round === 1 || isHarmless) return send()
  const owner = callerKey(ctx.principal)
  return sent.once({ flow: ctx.flow, round: ctx.round, upstream: passed.upstream.name, owner }, send)
}

const UNSUPPORTED_VERSION = -32022

async function sendRound(one: Advance, connection: Connection, again = true): Promise<Step> {
  const { passed, ctx, state, answers, kinds } = one
  const { upstream, request } = passed
  const sending = {
    ...lineOf(one),
    accepts: kinds,
    signal: one.signal,
    ...(answers && { inputResponses: answers }),
    ...(state?.s !== undefined && { requestState: state.s }),
  }
  try {
    const round = await connection.use(() => connection.client.round(request, sending), one.signal)
    if (round.resultType === 'complete') return { kind: 'result', result: round.result as unknown as Result }
    const { inputRequests: questions, requestState: s } = round
    return { kind: 'asks', questions, state: stateOf(upstream, connection, { s }) }
  } catch (error) {
    lostConnection(upstream, connection, error)
    // It has done nothing: the tool runs only as a task.
    if (needsTask(error) && state === undefined) return followTask(one, connection)
    // It refuses the revision and so has done nothing: it was replaced by a server of another one.
    if (!(error instanceof PeerError && error.peer.code === UNSUPPORTED_VERSION)) throw error
    connection.drop()
    if (!again || state !== undefined) throw error
    const other = await upstream.connection(ctx.principal, kinds)
    return other.rounds ? sendRound(one, other, false) : hold(one, other)
  }
}

const TASKS = 'io.modelcontextprotocol/tasks'

function needsTask(error: unknown): boolean {
  if (!(error instanceof PeerError) || error.peer.code !== CAPABILITY) return false
  return JSON.stringify(error.peer.data ?? '').includes(TASKS)
}

/** Follows a task of the upstream for a caller that cannot: until it asks, or has ended. */
async function followTask(one: Advance, connection: Connection): Promise<Step> {
  const { passed, state, answers, kinds, signal } = one
  const { client } = connection
  const options = { ...lineOf(one), accepts: kinds, signal }
  const drive = async (): Promise<DriveResult> => {
    let driven: DriveResult =
      state?.t === undefined
        ? await client.start(passed.request, options)
        : await client.resume(parsePending(state.t), answers, options)
    while (driven.status === 'task') {
      const { pending } = driven
      driven = await orCancel(client.resume(pending, undefined, options), client, pending, signal)
    }
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
  const { passing, passed, ctx } = one
  const { upstream } = passed
  // Questions find their call by this object.
  const request = { ...passed.request }
  const step = await passing.held.begin(
    {
      upstream: upstream.name,
      caller: callerKey(ctx.principal),
      async send(take, line, signal) {
        upstream.takers.set(request, take)
        const sending = { ...lineOf(one, line), accepts: one.kinds, signal }
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

/** Cancels the task of a call whose caller has gone: to abort the wait alone would let it run on. */
function orCancel<T>(
  waiting: Promise<T>,
  client: Client,
  { task }: PendingCall,
  signal?: AbortSignal,
): Promise<T> {
  return waiting.catch((error: unknown) => {
    if (signal?.aborted && task)
      client
        .task(task.taskId)
        .cancel()
        .catch(() => {})
    throw error
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

/** The facts of a request, and the destination of its notifications. */
function lineOf({ ctx, meta, line: own }: Advance, line: HeldLine = own) {
  const level = ctx.meta['io.modelcontextprotocol/logLevel']
  const logLevel = !hasRounds(ctx.protocolVersion) ? 'info' : (level as LogLevel | undefined)
  return {
    meta,
    ...(ctx.meta.progressToken !== undefined && {
      onProgress: (one: { progress: number; total?: number; message?: string }) =>
        line.progress(one.progress, one.total, one.message),
    }),
    ...(logLevel !== undefined && {
      logLevel,
      onLog: (one: { level: LogLevel; data: unknown; logger?: string }) =>
        line.log(one.level, one.data, one.logger),
    }),
  }
}

/** The keys of `_meta` that go on, and the count of hops. */
function onward({ name }: Upstream, meta: Result): Result {
  // A client can forge the count, so it is never taken for less than none.
  const hops = typeof meta[HOPS] === 'number' ? Math.max(0, Math.floor(meta[HOPS])) + 1 : 1
  if (hops > MAX_HOPS)
    throw new ToolError(
      `The call went through ${MAX_HOPS} gateways, which is probably a loop: "${name}" may lead back to this one. Nothing was sent.`,
    )
  const own = Object.entries(meta).filter(
    ([key]) => !key.startsWith('io.modelcontextprotocol/') && key !== 'progressToken' && key !== HOPS,
  )
  return { ...Object.fromEntries(own), [HOPS]: hops }
}

/** Says how long the content of a resource may be cached: not at all where its upstream does not say. Callers share nothing. */
function withHint({ upstream, request }: Passed, result: Result): Result {
  if (request.method !== 'resources/read') return result
  const isOwn = upstream.options.credentials !== undefined
  return { ttlMs: 0, cacheScope: 'private', ...result, ...(isOwn && { cacheScope: 'private' }) }
}

const SERVER_INFO = 'io.modelcontextprotocol/serverInfo'

/** The result without what the protocol gives to each hop. */
function withoutHop(result: Result): Result {
  const { resultType: _, _meta, ...rest } = result
  if (typeof _meta !== 'object' || _meta === null) return rest
  const { [SERVER_INFO]: __, ...others } = _meta as Result
  return Object.keys(others).length === 0 ? rest : { ...rest, _meta: others }
}

function openState({ name, identity }: Upstream, text: string | undefined): PassedState | undefined {
  if (text === undefined) return undefined
  const state = JSON.parse(text) as PassedState
  if (state.u === identity) return state
  throw new ToolError(
    `This call was begun at another server than the one that "${name}" stands for now. Start it again; what was begun may have had effects there.`,
  )
}

function changed({ name }: Upstream, from: string, to: string): ToolError {
  return new ToolError(
    `"${name}" spoke ${from} when this call began and speaks ${to} now. Start the call again; what was begun may have had effects there.`,
  )
}

/** The answers that belong upstream. */
function foreign(
  given: InputResponses | undefined,
  local: InputResponses | undefined,
): InputResponses | undefined {
  const own = Object.entries(given ?? {}).filter(([key]) => !key.startsWith(OWN_KEY))
  if (own.length === 0 && local === undefined) return undefined
  return { ...Object.fromEntries(own), ...local }
}

/** Applies the policies. A question whose key is the gateway's own would be mistaken for one of its questions. */
async function vet(
  { policies }: Passing,
  { upstream, request }: Passed,
  ctx: Context,
  { questions: given, state }: Extract<Step, { kind: 'asks' }>,
): Promise<{ readonly questions: InputRequests; readonly answers: InputResponses }> {
  let questions = given
  let answers: InputResponses = {}
  const stateLength = state.s?.length ?? 0
  const server = { target: upstream.name, name: upstream.known.server }
  const clash = Object.keys(questions).find((key) => key.startsWith(OWN_KEY))
  if (clash !== undefined)
    throw new ToolError(`"${upstream.name}" asks under a key that is reserved here: ${clash}`)
  for (const policy of policies) {
    const verdict = await policy({ server, request, round: ctx.round, questions, stateLength })
    if (verdict?.kind === 'refuse')
      throw new ToolError(
        `A question of "${upstream.name}" is not shown here: ${verdict.reason}. The call was ended.`,
      )
    if (verdict?.kind !== 'rewrite') continue
    answers = { ...answers, ...verdict.answers }
    const open = Object.entries({ ...questions, ...verdict.questions })
    // Nobody is asked what a policy has answered, or what the upstream did not ask.
    questions = Object.fromEntries(
      open.filter(([key]) => Object.hasOwn(given, key) && !Object.hasOwn(answers, key)),
    )
  }
  return { questions, answers }
}

function labelled({ labels }: Passing, { name }: Upstream, request: InputRequest): InputRequest {
  if (!labels || request.method !== 'elicitation/create') return request
  const { method, params } = request
  return { method, params: { ...params, message: `${name} asks: ${params.message}` } }
}

function asksHere({ ask }: Passing, ctx: Context, request: InputRequest): boolean {
  const kind = kindOf(request)
  return isLocal(ask, kind, ctx.can(kind))
}

/** Has questions answered on this machine, while the client's call stays open. */
async function askHere(
  { passing: { ask }, passed: { upstream, request }, signal, asking }: Round,
  questions: readonly (readonly [string, InputRequest])[],
): Promise<InputResponses> {
  const target = request.method === 'resources/read' ? request.uri : request.name
  const { name, known } = upstream
  const given: [string, InputResponse][] = []
  asking.begin()
  for (const [key, one] of questions) {
    const question = {
      upstream: name,
      ...(known.server !== undefined && { server: known.server }),
      target,
      request: one,
      signal,
    }
    const answer = await ask?.ask(question)
    signal.throwIfAborted()
    given.push([key, answer ?? { action: 'cancel' }])
  }
  return Object.fromEntries(given)
}

const RESOURCE_NOT_FOUND = -32002
const INVALID_PARAMS = -32602
const CAPABILITY = -32021

/** The error that the caller gets. */
function toFailure(
  { upstream: { name }, request }: Passed,
  error: unknown,
  signal: AbortSignal,
  isHeld: boolean,
): unknown {
  if (error instanceof ToolError || error instanceof UpstreamError || signal.aborted) return error
  if (error instanceof UpstreamDown || error instanceof HeldEnded) return new ToolError(error.message)
  if (error instanceof PeerError) return toError(name, request, error)
  const code = error instanceof RondoError ? error.code : undefined
  const reason = reasonOf(error)
  // A held call was sent, even if an answer to it was not.
  if (!isHeld && wasNotSent(error)) return new ToolError(new UpstreamDown(name, reason, 0).message)
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

/** Passes an error on with its own code, unless the code means something about this hop. */
function toError(name: string, request: FlowRequest, { peer, message }: PeerError): unknown {
  const { code, data } = peer
  const isMiss = request.method === 'resources/read' && code === INVALID_PARAMS
  // Each revision has a code of its own for it.
  if (code === RESOURCE_NOT_FOUND || isMiss) return new RondoError('PEER_RESOURCE', undefined, { data })
  const about = `"${name}": ${message.replace(/^\[\w+\] /, '').replace(/ \(-?\d+\)$/, '')}`
  if (code === CAPABILITY) return new RondoError('PEER_CAPABILITY', about, { data })
  const ofHop = (code <= -32020 && code >= -32099) || code === -32700 || code === -32600 || code === -32042
  return new UpstreamError({
    code: ofHop ? -32603 : code,
    message: peer.message,
    ...(data !== undefined && { data }),
  })
}

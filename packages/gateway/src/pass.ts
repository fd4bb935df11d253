/**
 * One round of a call on its way through the gateway: it is decided on, its questions are vetted and asked. `send.ts` talks to the
 * upstream.
 *
 * W2 The upstream's state is inside ours, which the runtime seals for the caller, the tool and the arguments; together with it are the
 *    upstream and its revision, so that it is never sent elsewhere.
 * W3 The upstream may ask what the caller can be asked, and nothing else.
 * W5 Of the caller's request, the arguments and those keys of `_meta` go upstream that the protocol does not give to each hop.
 * W7 Progress, log messages and cancellation pass in both directions.
 * W10 A loop of gateways ends, because each adds one to a count of hops.
 */

import { type Context, type InputRequired, inputRequired, ToolError } from 'rondo'
import { type Clock, type InputRequest, type InputResponse, type InputResponses, kindOf } from 'rondo/client'
import { type TaskCreated, taskCreated } from 'rondo/forward'
import { type AskLocally, isLocal } from './ask.ts'
import { type ApprovalTerms, assertAllowed, type Decide, type DecideFacts } from './decide.ts'
import type { Handles } from './handle.ts'
import { HeldEnded, type HeldLine } from './held.ts'
import { fromHost, toHost } from './host.ts'
import {
  advance,
  endBegun,
  type Passed,
  type PassedState,
  type Result,
  type Sending,
  type SendParts,
  type Step,
} from './send.ts'
import { sleep } from './subscriptions.ts'
import { callerKey, hasRounds, KINDS, reasonOf, type Upstream } from './upstream.ts'
import { foreign, labelled, ownMeta, type Vetting, vet, withOwnApps, withoutHop } from './vet.ts'

export interface Passing extends SendParts, Vetting {
  readonly decide?: Decide
  readonly approvals?: ApprovalTerms
  readonly ask?: AskLocally
  /** Whether states that are too large for a token can be kept elsewhere. */
  readonly stored: boolean
  readonly clock: Clock
  /** How long a person on this machine may take to answer. */
  readonly waitMs: number
  /** Keeps calls beyond the time that hosts give them. */
  readonly handles?: Handles
  /** Whether this caller reads the resource of this upstream under the URI. */
  serves(upstream: Upstream, uri: string, principal: Context['principal']): Promise<boolean>
  /** A call of a client of this revision begins. */
  onCall(client: string, upstream: Upstream): void
  /** The upstream has been sent the call, and asks the caller something. */
  onAsked(upstream: Upstream): void
  /** The call goes on without its request. */
  onDetached(): void
}

const HOPS = 'rondo/hops'
const HOPS_KEY = 'gateway:hops'
const MAX_HOPS = 8
/** A state of this length still fits into a token, with its share of base64 and padding. */
const MAX_STATE = 40_960

/** Passes a round on, and returns the upstream's result, or its questions as a round of ours. */
export async function pass(
  passing: Passing,
  passed: Passed,
  ctx: Context,
): Promise<Result | InputRequired | TaskCreated> {
  if (ctx.round === 1) passing.onCall(ctx.protocolVersion, passed.upstream)
  const meta = onward(passed.upstream, await counted(passing, passed, ctx))
  const state = openState(passed.upstream, ctx.requestState)
  await decideOn(passing, passed, ctx, state)
  const life = new AbortController()
  const end = (): void => life.abort(ctx.signal.reason)
  if (ctx.signal.aborted) end()
  ctx.signal.addEventListener('abort', end)
  const line = { isOpen: true }
  const kinds = KINDS.filter((kind) => ctx.can(kind) || isLocal(passing.ask, kind, false))
  const asking = createAsking()
  const round: Round = {
    passing,
    passed,
    ctx,
    meta,
    kinds,
    // A person on this machine is asked while a call is open, not while a task is.
    follows: passing.ask === undefined && !passing.inTurn() && followsTasks(ctx),
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
    if (driven.kind === 'task') return taskCreated(driven.task)
    if (driven.kind === 'result') return driven.result
    passing.onAsked(passed.upstream)
    return await orEnd(round, driven.state, () => toRound(round, driven))
  } finally {
    line.isOpen = false
    ctx.signal.removeEventListener('abort', end)
  }
}

/** A round of our caller on its way. */
interface Round extends Sending {
  readonly passing: Passing
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

const TASKS = 'io.modelcontextprotocol/tasks'

/** Whether the client follows a task of the upstream by its handle. Clients of sessions and drafts have the call followed for them. */
function followsTasks({ client, protocolVersion }: Context): boolean {
  const { extensions } = client.capabilities
  const declared = (extensions as Result | undefined)?.[TASKS]
  return /^\d/.test(protocolVersion) && hasRounds(protocolVersion) && typeof declared === 'object'
}

/** Steps that a call may take while a person on this machine answers. */
const MAX_STEPS = 64

type Asks = Extract<Step, { kind: 'asks' }>

/** Sends rounds until the call ends, or until the client has to be asked. */
async function drive(round: Round, from: PassedState | undefined): Promise<Step> {
  const { passed, ctx } = round
  const { upstream } = passed
  let state = from
  let answers = answersFor(ctx.inputResponses, state)
  for (let steps = 0; ; steps += 1) {
    const step = await advance({ ...round, state, answers, steps })
    if (step.kind === 'task') return step
    if (step.kind === 'result') return { kind: 'result', result: withHint(passed, withoutHop(step.result)) }
    const asked = await orEnd(round, step.state, () => {
      if (steps < MAX_STEPS) return takeQuestions(round, step)
      throw new ToolError(
        `"${upstream.name}" does not stop asking, so the call was ended. It may have had effects there.`,
      )
    })
    if (asked.kind === 'asks') return asked
    answers = asked.answers
    state = step.state
  }
}

/** Ends what a call has begun at its upstream if it cannot go on. The error stands, whatever becomes of its consequences. */
async function orEnd<T>(
  { passing, passed, ctx }: Round,
  begun: PassedState,
  proceed: () => T | Promise<T>,
): Promise<T> {
  try {
    return await proceed()
  } catch (error) {
    await endBegun(passing, passed.upstream, ctx, begun).catch(() => {})
    throw error
  }
}

/** Vets questions, and has them answered here or prepares them for the client. */
async function takeQuestions(
  round: Round,
  { questions: given, state }: Asks,
): Promise<Asks | { readonly kind: 'answered'; readonly answers: InputResponses }> {
  const { passing, passed, ctx } = round
  const own = await withOwnApps(given, (uri) => passing.serves(passed.upstream, uri, ctx.principal))
  const { questions, answers: ofPolicy } = await vet(passing, passed, own, ctx.round, state.s?.length)
  const local = Object.entries(questions).filter(([, one]) => asksHere(passing, ctx, one))
  const answers = { ...ofPolicy, ...(local.length > 0 && (await askHere(round, local))) }
  const others = Object.entries(questions).filter(([key]) => !Object.hasOwn(answers, key))
  const isAnswered = Object.keys(answers).length > 0
  if (isAnswered && others.length === 0) return { kind: 'answered', answers }
  const shown = others.map(([key, one]) => {
    const { request, fields } = toHost(one, ctx.client.name)
    return { key, request: labelled(passing, passed.upstream, request), fields }
  })
  const texts = shown.flatMap(({ key, fields }) => (fields ? [[key, fields]] : []))
  return {
    kind: 'asks',
    questions: Object.fromEntries(shown.map(({ key, request }) => [key, request])),
    state: {
      ...state,
      ...(isAnswered && { l: answers }),
      ...(texts.length > 0 && { f: Object.fromEntries(texts) }),
    },
  }
}

/** Waits for a call, and returns a handle if a person is being asked when its host is about to give up. */
async function inTime(
  round: Round,
  handles: Handles,
  running: Promise<Step>,
  cancel: () => void,
): Promise<Step> {
  const { passing, passed, ctx, asking } = round
  const { name } = passed.upstream
  const stop = new AbortController()
  const timeUp = sleep(passing.clock, handles.afterMs, stop.signal)
  const late = Promise.all([timeUp, asking.begun]).then(() => undefined)
  const driven = await Promise.race([running, late]).finally(() => stop.abort())
  if (driven !== undefined) return driven
  const result = running.then((one) => {
    if (one.kind === 'result') return one.result
    const late = `"${name}" asks something that only this host could ask, and its call has ended. It may have had effects there.`
    if (one.kind === 'task') throw new ToolError(late)
    return orEnd(round, one.state, () => Promise.reject(new ToolError(late)))
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
  return { kind: 'result', result: handles.result(id, name, 1, passed.structured) }
}

async function toRound({ passing, passed, ctx }: Round, { questions, state }: Asks): Promise<InputRequired> {
  const { name } = passed.upstream
  // In a task, two turns with the same state are one that was interrupted, unless they count differently.
  const turn = passing.inTurn() && { c: (openState(passed.upstream, ctx.requestState)?.c ?? 0) + 1 }
  const requestState = JSON.stringify({ ...state, ...turn })
  if (!passing.stored && requestState.length > MAX_STATE)
    throw new ToolError(
      `The state of "${name}" is ${(state.s ?? requestState).length} characters long, and the gateway can pass on ${MAX_STATE} without a store. Nobody was asked. Its operator can add a store.`,
    )
  if (Object.keys(questions).length > 0) return inputRequired({ inputRequests: questions, requestState })
  // Clients of rounds pause by themselves before they send a state back; for others the next run begins at once.
  if (!hasRounds(ctx.protocolVersion)) await sleep(passing.clock, PAUSE_MS, ctx.signal)
  ctx.signal.throwIfAborted()
  return inputRequired({ requestState })
}

const PAUSE_MS = 250

async function decideOn(
  passing: Passing,
  { upstream, request, annotations }: Passed,
  ctx: Context,
  state: PassedState | undefined,
): Promise<void> {
  const facts: DecideFacts = {
    upstream: upstream.name,
    tool: request.method === 'resources/read' ? request.uri : request.name,
    method: request.method,
    arguments: request.method === 'resources/read' ? {} : (request.arguments ?? {}),
    annotations,
    ...(ctx.principal && { principal: ctx.principal }),
  }
  try {
    await assertAllowed(passing, facts, ctx)
  } catch (error) {
    if (state === undefined) throw error
    // The refusal stands, whatever becomes of its consequences.
    await endBegun(passing, upstream, ctx, state).catch((failure: unknown) => {
      if (!(error instanceof ToolError)) return
      throw new ToolError(`${error.message} It could not be ended there: ${reasonOf(failure)}.`)
    })
    throw error
  }
}

/** The caller's `_meta`. Turns of a task have none, so the count of a call that may become one is recorded. */
async function counted({ approvals }: Passing, { request }: Passed, ctx: Context): Promise<Result> {
  if (approvals === undefined || request.method !== 'tools/call') return ctx.meta
  return { ...ctx.meta, [HOPS]: await ctx.step(HOPS_KEY, () => hopsIn(ctx.meta)) }
}

/** A client can forge the count, so it is never taken for less than none. */
function hopsIn({ [HOPS]: hops }: Result): number {
  return typeof hops === 'number' ? Math.max(0, Math.floor(hops)) : 0
}

/** The keys of `_meta` that go on, and the count of hops. */
function onward({ name }: Upstream, meta: Result): Result {
  const hops = hopsIn(meta) + 1
  if (hops > MAX_HOPS)
    throw new ToolError(
      `The call went through ${MAX_HOPS} gateways, which is probably a loop: "${name}" may lead back to this one. Nothing was sent.`,
    )
  return { ...ownMeta(meta), [HOPS]: hops }
}

/** Says how long the content of a resource may be cached: not at all where its upstream does not say. Callers share nothing. */
function withHint({ upstream, request }: Passed, result: Result): Result {
  if (request.method !== 'resources/read') return result
  const isOwn = upstream.options.credentials !== undefined
  return { ttlMs: 0, cacheScope: 'private', ...result, ...(isOwn && { cacheScope: 'private' }) }
}

function openState({ name, identity }: Upstream, text: string | undefined): PassedState | undefined {
  if (text === undefined) return undefined
  const state = JSON.parse(text) as PassedState
  if (state.u === identity) return state
  throw new ToolError(
    `This call was begun at another server than the one that "${name}" stands for now. Start it again; what was begun may have had effects there.`,
  )
}

/** The client's answers that belong upstream, and those that were given on this machine. */
function answersFor(
  given: InputResponses | undefined,
  state: PassedState | undefined,
): InputResponses | undefined {
  const { l: local, f: fields = {} } = state ?? {}
  const own = Object.entries(foreign(given ?? {}))
  if (own.length === 0 && local === undefined) return undefined
  const read = own.map(([key, one]) => [
    key,
    fromHost(one, Object.hasOwn(fields, key) ? fields[key] : undefined),
  ])
  return { ...Object.fromEntries(read), ...local }
}

function asksHere({ ask }: Passing, ctx: Context, request: InputRequest): boolean {
  const kind = kindOf(request)
  return isLocal(ask, kind, ctx.can(kind))
}

/** Has questions answered on this machine, while the client's call stays open. */
async function askHere(
  { passing: { ask, clock, waitMs }, passed: { upstream, request }, signal, asking }: Round,
  questions: readonly (readonly [string, InputRequest])[],
): Promise<InputResponses> {
  const target = request.method === 'resources/read' ? request.uri : request.name
  const { name, known } = upstream
  const given: [string, InputResponse][] = []
  const late = new AbortController()
  const stop = clock.after(waitMs, () => late.abort())
  asking.begin()
  try {
    for (const [key, one] of questions) {
      const question = {
        upstream: name,
        ...(known.server !== undefined && { server: known.server }),
        method: request.method,
        target,
        request: one,
        signal: AbortSignal.any([signal, late.signal]),
      }
      const answer = await ask?.ask(question)
      signal.throwIfAborted()
      if (late.signal.aborted)
        throw new ToolError(
          `The user was asked on this machine for "${name}" and did not answer within ${Math.round(waitMs / 1000)} s, so the call was ended. It may have had effects there. Ask the user before you call again.`,
        )
      given.push([key, answer ?? { action: 'cancel' }])
    }
  } finally {
    stop()
  }
  return Object.fromEntries(given)
}

/**
 * The turns carrier: the questions of a round go out on the call's own stream, each with the sealed journal as its
 * `state`, and the stream ends. The answers come in a request of their own, on any instance, which opens the state and
 * answers with what would have come on the stream. Nothing is kept here but a bounded memory of what was asked, sealed,
 * for clients that bring no state back.
 *
 * A client that echoes states and takes no turns keeps its stream, and is asked by the push carrier. Only an answer that
 * does not reach the process that asked comes here, with the state of its question, and the call resumes from it.
 *
 * R6 The flow's id is in the client's hands before the first effect, on a ping if there is nothing to ask. A client
 * without states is like one of the push carrier: its flow lives and dies with this process, and an effect runs at once.
 */

import type { Carrier } from '../../carry/carrier.ts'
import { unaskableReply } from '../../carry/failure.ts'
import type { FlowHost } from '../../carry/host.ts'
import { type AskingLine, type Hand, runPushed, steadyLine } from '../../carry/push.ts'
import { type Beginning, concludeRefused, type Round } from '../../carry/round.ts'
import { deliverAnswers } from '../../carry/task/call.ts'
import { firstRound, keepSealed, nextRound, runOpened, type Seal, tokenCarrier } from '../../carry/token.ts'
import { isStoreFault, RondoError } from '../../errors.ts'
import type {
  FlowCall,
  FlowMethod,
  Line,
  PeerFacts,
  Principal,
  RequestId,
  TaskCall,
} from '../../protocol/call.ts'
import { withoutMethods } from '../../protocol/common/request.ts'
import type { Reply } from '../../protocol/reply.ts'
import type { InputRequests } from '../../protocol/wire.ts'
import { openSession, sealSession } from '../../seal/session-id.ts'
import { type Claims, principalTag, requestDigest, type TurnClaims } from '../../seal/state.ts'
import { unknownTarget } from '../../serve/service.ts'
import type { Registry } from '../../tool/registry.ts'
import type { Target } from '../../tool/target.ts'
import {
  createTurnMemory,
  keepTurn,
  type OpenedTurn,
  openTurn,
  type TurnMemory,
  type TurnsOptions,
} from './turn-state.ts'
import { echoesState, type Turn, type TurnAnswers, toEventId, toHanded } from './wire.ts'

export type TurnEnd =
  | { readonly kind: 'turn'; readonly turn: Turn }
  /** The answer to a task's question: the task resumes by itself, and nothing follows here. */
  | { readonly kind: 'taken' }
  /** `id` is that of the request that began the call; null where the answers led to none. */
  | { readonly kind: 'reply'; readonly id: RequestId | null; readonly reply: Reply; readonly target?: Target }

/** Who answers, as its session knows it. */
export interface TurnPeer {
  readonly facts: PeerFacts
  /** Questions end its streams. */
  readonly takesTurns: boolean
  readonly principal: Principal | undefined
  /** Names its session, whatever instance serves it. */
  readonly session?: string
  /** The line of the call that the answers belong to. */
  line(id: RequestId, progressToken: RequestId | undefined): AskingLine
}

export interface Turns {
  /** The first request of a call; `session` as in `TurnPeer`. Never rejects. */
  begin(
    target: Target,
    call: FlowCall,
    principal: Principal | undefined,
    line: Line,
    session?: string,
  ): Promise<TurnEnd>
  /** The answers of a turn. Never rejects. */
  resume(answers: TurnAnswers, peer: TurnPeer): Promise<TurnEnd>
  /** For questions that are pushed. */
  readonly hand: Hand
  /** For the questions of a task, each of which can be answered by itself. */
  handTask(call: TaskCall, principal: Principal | undefined, questions: InputRequests): ReturnType<Hand>
  /** Bytes held for clients that do not echo. */
  readonly remembered: number
}

interface Parts {
  readonly host: FlowHost
  readonly options: Required<TurnsOptions>
  readonly memory: TurnMemory
  find(method: FlowMethod, target: string): Target | undefined
}

export function createTurns(host: FlowHost, find: Parts['find'], options: TurnsOptions = {}): Turns {
  const memory = createTurnMemory(host.limits.maxRememberedBytes, host.platform.now)
  const parts: Parts = { host, find, memory, options: { state: 'shared', form: 'string', ...options } }
  return {
    begin: (target, call, principal, line, session) =>
      guarded(parts, call.id, async () => {
        await host.keys.ready()
        const remembers = !memory.echoes(session)
        const beginning = await begin(parts, call)
        return run(parts, { target, call, principal, line, beginning, remembers })
      }),
    async resume(answers, peer) {
      const opened = await open(parts, answers, peer).catch(toError)
      if (opened instanceof RondoError) return toReply(null, opened)
      if (opened.claims.method === TASK) return guarded(parts, null, () => answerTask(parts, opened, peer))
      const { requestId } = opened.claims.turn
      return guarded(parts, requestId, () => goOn(parts, opened, peer))
    },
    hand: (round, claims, questions, told) =>
      handQuestions(parts, claims, toRequest(parts, round.call, told), questions),
    handTask: (call, principal, questions) => handTask(parts, call, principal, questions),
    get remembered() {
      return memory.bytes
    },
  }
}

async function open(parts: Parts, answers: TurnAnswers, peer: TurnPeer): Promise<OpenedTurn> {
  const { host, memory } = parts
  await host.keys.ready()
  const expected = {
    now: host.platform.now(),
    principal: principalTag(peer.principal),
    protocolVersion: peer.facts.protocolVersion,
    turn: answers.turn,
  }
  const opened = await openTurn(host, memory, answers, expected)
  if (opened.kind === 'open') {
    if (opened.echoed) memory.sawEcho(answers.turn, peer.session)
    return opened
  }
  host.log({ event: 'state_refused', reason: opened.reason, keyId: opened.keyId })
  throw new RondoError('STATE_INVALID')
}

/** What a round runs on, before it is known how it is kept. */
interface Start extends Pick<Round, 'target' | 'call' | 'principal' | 'line' | 'beginning'> {
  /** The last progress that was told in an earlier turn. */
  readonly told?: number
  readonly failed?: RondoError
  /** The client has not shown that it echoes. */
  readonly remembers: boolean
}

/** A flow that stays here is of the life that the store has now; any other learns it when it is first let go. */
async function begin(parts: Parts, call: FlowCall): Promise<Beginning> {
  const first = firstRound(parts.host)
  if (outlivesUs(parts, call)) return first
  const epoch = await parts.host.store?.once.epoch()
  return { ...first, anchored: true, journal: { ...first.journal, epoch } }
}

/** True if the flow can go on without this process. */
function outlivesUs({ host }: Parts, { capabilities }: FlowCall): boolean {
  return echoesState(capabilities) || host.states.stores
}

async function goOn(
  parts: Parts,
  { claims, answers, failed: error, unable, echoed }: OpenedTurn,
  { facts, takesTurns, principal, line: lineOf }: TurnPeer,
): Promise<TurnEnd> {
  const { host } = parts
  const { requestId, target: name, args, progressToken, told } = claims.turn
  const method = claims.method as FlowMethod
  const target = parts.find(method, name)
  if (!target) throw new RondoError('REPLAY_DIVERGED', `"${name}" is no longer declared.`)
  const call: FlowCall = {
    ...facts,
    // Which kind of question it was is not in the state; who declares what it does not know is asked nothing more.
    capabilities: unable ? withoutMethods(facts.capabilities) : facts.capabilities,
    kind: 'flow',
    id: requestId,
    method,
    target: name,
    args,
    inputResponses: answers,
    // What tells this request from any other of the flow, where it may count only once.
    requestState: claims.turn.id,
    progressToken,
  }
  const beginning = nextRound(host, claims)
  const line = lineOf(requestId, progressToken)
  const failed = unable ? undefined : error
  const start = { target, call, principal, line, beginning, told, failed, remembers: !echoed }
  if (takesTurns) return run(parts, start)
  if (failed) {
    const round: Round = { ...start, host, began: host.platform.now() }
    return toReplyOf(start, concludeRefused(round, undefined, failed))
  }
  const handAll: Hand = (round, sealed, questions, last) =>
    handQuestions(parts, sealed, toRequest(parts, round.call, last), questions)
  const hand = echoesState(call.capabilities) ? handAll : undefined
  const from = { beginning, answers, told }
  return toReplyOf(start, await runPushed({ host, target, call, principal, line }, { hand, from }))
}

/** A turn's request as its state holds it. */
function toRequest({ host }: Parts, call: FlowCall, told: number | undefined): Omit<TurnClaims, 'keys'> {
  return {
    id: host.platform.randomId(),
    requestId: call.id,
    target: call.target,
    args: call.args,
    ...(call.progressToken === undefined ? {} : { progressToken: call.progressToken }),
    ...(told === undefined ? {} : { told }),
  }
}

/** Where a reply holds its turn, also in the record of a round that counts once. It never goes out like this. */
const TURN = 'rondo/turn'

async function run(parts: Parts, { told, failed, remembers, ...start }: Start): Promise<TurnEnd> {
  const { memory, options } = parts
  const { call } = start
  const host = outlivesUs(parts, call) ? parts.host : staying(parts.host)
  const line = steadyLine(start.line, undefined, told)
  const seal: Seal = async (_round, claims, inputRequests) => {
    const echoes = echoesState(call.capabilities)
    const request = toRequest(parts, call, line.told)
    const kept = await keepTurn(host, claims, request, inputRequests, { ...options, echoes })
    if (kept.kind === 'too-large') return kept
    const { turn, bytes, keyId, tokens } = kept
    // What is in a store needs no memory, and a client that echoes needs neither.
    if (!host.states.stores && !(echoes && !remembers)) memory.remember(turn.id, tokens, claims.roundExpires)
    return { kind: 'kept', reply: { kind: 'input_required', _meta: { [TURN]: turn } }, bytes, keyId }
  }
  const carrier: Carrier<typeof start, Reply> = {
    ...tokenCarrier,
    open: (from) => ({ ...from, host, line, began: host.platform.now() }),
    keep: (round, pause) => keepSealed(round, pause, seal),
  }
  const round = await carrier.open(start)
  const reply = failed ? concludeRefused(round, undefined, failed) : await runOpened(round, carrier)
  const turn = reply.kind === 'input_required' ? (reply._meta?.[TURN] as Turn | undefined) : undefined
  return turn ? { kind: 'turn', turn } : toReplyOf(start, reply)
}

async function handQuestions(
  { host, options }: Parts,
  claims: Claims,
  request: Omit<TurnClaims, 'keys'>,
  questions: InputRequests,
): ReturnType<Hand> {
  await host.keys.ready()
  const kept = await keepTurn(host, claims, request, questions, { ...options, echoes: true })
  if (kept.kind === 'too-large') return undefined
  const handed = Object.keys(questions).map((key, index) => {
    const state = kept.turn.requests[index]?.state
    return state === undefined ? [] : [[key, toHanded(toEventId(kept.turn.id, index + 1), state)] as const]
  })
  return Object.fromEntries(handed.flat())
}

const TASK = 'tasks/result'

/** The state of a task's question says which; everything else of the task is in the store. */
async function handTask(
  parts: Parts,
  { id, taskId, protocolVersion }: TaskCall,
  principal: Principal | undefined,
  questions: InputRequests,
): ReturnType<Hand> {
  const { platform, limits } = parts.host
  const now = platform.now()
  const claims: Claims = {
    issuedAt: now,
    roundExpires: now + limits.flowTtlMs,
    flowExpires: now + limits.flowTtlMs,
    flow: taskId,
    round: 1,
    method: TASK,
    protocolVersion,
    asked: Object.fromEntries(Object.keys(questions).map((key) => [key, ''])),
    journal: { startedAt: now, seed: platform.randomId(), entries: [], reasks: {}, moves: 0 },
    principal: principalTag(principal),
    request: requestDigest(TASK, taskId, {}),
  }
  const request = { id: platform.randomId(), requestId: id, target: taskId, args: {} }
  return handQuestions(parts, claims, request, questions)
}

async function answerTask(
  { host }: Parts,
  { claims, answers }: OpenedTurn,
  { principal }: TurnPeer,
): Promise<TurnEnd> {
  if (!host.tasks) throw new RondoError('PEER_TASK')
  await deliverAnswers(host, host.tasks, claims.turn.target, principal, answers)
  return { kind: 'taken' }
}

function toReplyOf({ call, target }: Pick<Start, 'call' | 'target'>, reply: Reply): TurnEnd {
  return { kind: 'reply', id: call.id, reply, target }
}

/** A host that lets go of nothing: there is no other instance to take the call. */
function staying(host: FlowHost): FlowHost {
  return { ...host, draining: false, overloaded: () => false, maxRoundMs: Number.POSITIVE_INFINITY }
}

async function guarded(
  { host }: Parts,
  id: RequestId | null,
  work: () => Promise<TurnEnd>,
): Promise<TurnEnd> {
  try {
    return await work()
  } catch (error) {
    if (isStoreFault(error)) host.log({ event: 'warning', message: 'The store failed a request', error })
    return toReply(id, toError(error))
  }
}

function toReply(id: RequestId | null, error: RondoError): TurnEnd {
  return { kind: 'reply', id, reply: { kind: 'error', error } }
}

function toError(error: unknown): RondoError {
  return error instanceof RondoError ? error : new RondoError('SERVER_INTERNAL', undefined, { cause: error })
}

/* What serves clients that take their questions in turns: the carrier, and sessions that are sealed into their ids. */

/** Serves clients of the two drafts: their sessions, questions in turns, and states. Nothing here rejects but for keys that do not load. */
export interface TurnsService {
  sealSession(facts: PeerFacts, principal: Principal | undefined): Promise<string>
  /** Undefined for a session that is not this principal's. */
  openSession(id: string, principal: Principal | undefined): Promise<PeerFacts | undefined>
  begin(
    call: FlowCall,
    principal: Principal | undefined,
    line: Line,
    session: string,
    unaskable?: string,
  ): Promise<TurnEnd>
  resume(answers: TurnAnswers, peer: TurnPeer, unaskable?: string): Promise<TurnEnd>
  readonly hand: Turns['hand']
  readonly handTask: Turns['handTask']
}

/** `mismatch` says why a call cannot be made as its client wants it, with a task or without. */
export function createTurnsService(
  host: FlowHost,
  registry: Registry,
  mismatch: (target: Target, call: FlowCall) => string | undefined,
  options?: TurnsOptions,
): TurnsService {
  const turns = createTurns(host, registry.find, options)
  const { audience, keys } = host
  return {
    async sealSession(facts, principal) {
      await keys.ready()
      return sealSession(keys.ring, audience, principalTag(principal), facts)
    },
    async openSession(id, principal) {
      await keys.ready()
      return openSession(keys.ring, audience, principalTag(principal), id)
    },
    async begin(call, principal, line, session, unaskable) {
      const { id } = call
      const target = registry.find(call.method, call.target)
      if (!target) return { kind: 'reply', id, reply: unknownTarget(call) }
      const why = mismatch(target, call)
      if (why !== undefined)
        return { kind: 'reply', id, reply: { kind: 'error', error: new RondoError('PEER_METHOD', why) } }
      return readable(await turns.begin(target, call, principal, line, session), unaskable)
    },
    resume: async (answers, peer, unaskable) => readable(await turns.resume(answers, peer), unaskable),
    hand: turns.hand,
    handTask: turns.handTask,
  }
}

/** Who cannot be asked reads why in a result, as all clients of this era do. */
function readable(outcome: TurnEnd, unaskable: string | undefined): TurnEnd {
  if (outcome.kind !== 'reply' || outcome.reply.kind !== 'error' || !outcome.target) return outcome
  const { error } = outcome.reply
  if (error.code !== 'PEER_CAPABILITY') return outcome
  return { ...outcome, reply: unaskableReply(outcome.target, error, unaskable) }
}

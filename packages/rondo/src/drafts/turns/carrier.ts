/**
 * The turns carrier: the questions of a round go out on the call's own stream, each with the sealed journal as its
 * `state`, and the stream ends. The responses come in a request of their own, to any instance, which opens the state and
 * replies with what would have followed on the stream. An instance keeps only a bounded memory of what it asked, sealed,
 * for clients that do not echo the state.
 *
 * A client that echoes states but takes no turns keeps its stream and is asked by the push carrier. Only a response that
 * does not reach the process that asked comes here, with the state of its question, and the call resumes from it.
 *
 * R6 The client holds the flow's id before the first effect, through a ping if there is nothing to ask. For a client
 * without states the flow lives and dies with this process, as under the push carrier, and an effect runs at once.
 */

import { aroundRequest, PENDING } from '../../carry/around.ts'
import type { Beginning, Carrier, Round } from '../../carry/carrier.ts'
import type { FlowHost } from '../../carry/host.ts'
import { type AskingLine, type MakePortable, runPushed, SteadyLine } from '../../carry/push.ts'
import { logStateRefused } from '../../carry/report.ts'
import { concludeRefused } from '../../carry/round.ts'
import { type Need, withNeed } from '../../carry/scope.ts'
import { deliverAnswers } from '../../carry/task/call.ts'
import { firstRound, nextRound, runOpened, sealPause, tokenCarrier } from '../../carry/token.ts'
import { RondoError } from '../../errors.ts'
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
import { type Claims, principalTag, requestDigest } from '../../seal/state.ts'
import { toErrorReply } from '../../serve/failure.ts'
import type { Target } from '../../tool/target.ts'
import {
  createTurnMemory,
  type OpenedTurn,
  openTurn,
  sealTurn,
  TURNS,
  type TurnClaims,
  type TurnMemory,
  type TurnsOptions,
} from './turn-state.ts'
import { echoesState, type TurnAnswers, type TurnRequests, toEventId, toHanded } from './wire.ts'

export type TurnOutcome =
  | { readonly kind: 'turn'; readonly turn: TurnRequests }
  /** The response to a task's question was delivered: the task resumes by itself, and nothing follows here. */
  | { readonly kind: 'taken' }
  /** `id` is that of the request that began the call; null if the responses lead to no call. */
  | { readonly kind: 'reply'; readonly id: RequestId | null; readonly reply: Reply; readonly target?: Target }

/** The client that responds, as its session knows it. */
export interface TurnPeer {
  readonly facts: PeerFacts
  /** Questions end its streams. */
  readonly takesTurns: boolean
  readonly principal: Principal | undefined
  /** Names its session on every instance. */
  readonly session?: string
  /** Returns what the call needs of its caller's token. Rejects if the token of this request does not allow it. */
  admit(call: FlowCall | TaskCall): Promise<Need>
  /** The line of the call that the responses belong to. */
  line(id: RequestId, progressToken: RequestId | undefined, scopes: readonly string[]): AskingLine
}

export interface Turns {
  /** The first request of a call; `session` as in `TurnPeer`. Never rejects. */
  begin(
    target: Target,
    call: FlowCall,
    principal: Principal | undefined,
    line: Line,
    session?: string,
  ): Promise<TurnOutcome>
  /** The responses of a turn. Never rejects. */
  resume(answers: TurnAnswers, peer: TurnPeer): Promise<TurnOutcome>
  /** For questions that are pushed. */
  readonly hand: MakePortable
  /** For the questions of a task, each of which can be answered on its own. */
  handTask(
    call: TaskCall,
    principal: Principal | undefined,
    questions: InputRequests,
  ): ReturnType<MakePortable>
  /** Bytes held for clients that do not echo the state. */
  readonly remembered: number
}

interface Parts {
  readonly host: FlowHost
  readonly options: Required<TurnsOptions>
  readonly memory: TurnMemory
  find(method: FlowMethod, target: string): Target | undefined
}

export function createTurns(host: FlowHost, find: Parts['find'], given: TurnsOptions = {}): Turns {
  const options = TURNS.read(given, 'createServer: turns')
  const memory = createTurnMemory(host.limits.maxRememberedBytes, host.platform.now)
  const parts: Parts = { host, find, memory, options }
  return {
    begin: (target, call, principal, line, session) =>
      guarded(parts, call.id, async () => {
        await host.keys.ready()
        const remembers = !memory.echoes(session)
        const beginning = await begin(parts, call)
        const start = { target, call, principal, line, beginning, remembers }
        return around(parts, start, () => run(parts, start))
      }),
    resume: (answers, peer) =>
      guarded(parts, null, async () => {
        const opened = await open(parts, answers, peer)
        if (opened.claims.method === TASK) return answerTask(parts, opened, peer)
        return guarded(parts, opened.request.requestId, () => continueCall(parts, opened, peer))
      }),
    hand: (round, claims, questions, progress) =>
      handQuestions(parts, claims, toRequest(parts, round.call, progress), questions),
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
  logStateRefused(host, opened)
  throw new RondoError('STATE_INVALID')
}

/** The parts that a round runs on. */
interface Start extends Pick<Round, 'target' | 'call' | 'principal' | 'line' | 'beginning'> {
  /** The last progress that was reported in an earlier turn. */
  readonly progress?: number
  readonly failed?: RondoError
  /** The client has not echoed a state yet. */
  readonly remembers: boolean
}

/** A flow that stays here belongs to the current epoch of the store; any other learns its epoch when it first leaves. */
async function begin(parts: Parts, call: FlowCall): Promise<Beginning> {
  const first = firstRound(parts.host)
  if (outlivesUs(parts, call)) return first
  const epoch = await parts.host.epoch()
  return { ...first, anchored: true, journal: { ...first.journal, epoch } }
}

/** True if the flow can continue without this process. */
function outlivesUs({ host }: Parts, { capabilities }: FlowCall): boolean {
  return echoesState(capabilities) || host.states.stores
}

async function continueCall(
  parts: Parts,
  { claims, request, answers, failed: error, unable, echoed }: OpenedTurn,
  { facts, takesTurns, principal, admit, line: lineOf }: TurnPeer,
): Promise<TurnOutcome> {
  const { host } = parts
  const { requestId, target: name, args, progressToken, progress } = request
  const method = claims.method as FlowMethod
  const target = parts.find(method, name)
  if (!target) throw new RondoError('REPLAY_DIVERGED', `"${name}" is no longer declared.`)
  const sent: FlowCall = {
    ...facts,
    // The state does not say which method failed; a client that declares what it does not implement is asked no more.
    capabilities: unable ? withoutMethods(facts.capabilities) : facts.capabilities,
    kind: 'flow',
    id: requestId,
    method,
    target: name,
    args,
    inputResponses: answers,
    // Distinguishes this request from the others of the flow, where it may count only once.
    requestState: request.id,
    progressToken,
  }
  const need = await admit(sent)
  const call = withNeed(sent, need)
  const beginning = nextRound(host, claims)
  const line = lineOf(requestId, progressToken, need.scopes)
  const failed = unable ? undefined : error
  const start = { target, call, principal, line, beginning, progress, failed, remembers: !echoed }
  return around(parts, start, () => (takesTurns ? run(parts, start) : runOutOfTurns(parts, start)))
}

/** Runs an extension's steps around a round, if there are any. */
function around({ host }: Parts, start: Start, run: () => Promise<TurnOutcome>): Promise<TurnOutcome> {
  return aroundRequest(host.steps, start.call, start.principal, run, {
    toReply: (outcome) => (outcome.kind === 'reply' ? outcome.reply : PENDING),
    fromReply: (reply) => toReplyOf(start, reply),
  })
}

/** Continues a call whose client is asked by push. */
async function runOutOfTurns(
  parts: Parts,
  start: Omit<Start, 'line'> & { readonly line: AskingLine },
): Promise<TurnOutcome> {
  const { host } = parts
  const { target, call, principal, line, beginning, progress, failed } = start
  if (failed) {
    const round: Round = { ...start, host, began: host.platform.now() }
    return toReplyOf(start, concludeRefused(round, undefined, failed))
  }
  const handAll: MakePortable = (round, sealed, questions, last) =>
    handQuestions(parts, sealed, toRequest(parts, round.call, last), questions)
  const hand = echoesState(call.capabilities) ? handAll : undefined
  const from = { beginning, answers: call.inputResponses ?? {}, progress }
  return toReplyOf(start, await runPushed({ host, target, call, principal, line }, { hand, from }))
}

function toRequest({ host }: Parts, call: FlowCall, progress: number | undefined): Omit<TurnClaims, 'keys'> {
  return {
    id: host.platform.randomId(),
    requestId: call.id,
    target: call.target,
    args: call.args,
    ...(call.progressToken === undefined ? {} : { progressToken: call.progressToken }),
    ...(progress === undefined ? {} : { progress }),
  }
}

/** The member of a reply that holds its turn, even in the record of a round that counts once. It is never sent. */
const TURN = 'rondo/turn'

async function run(parts: Parts, { progress, failed, remembers, ...start }: Start): Promise<TurnOutcome> {
  const { memory, options } = parts
  const { call } = start
  const host = outlivesUs(parts, call) ? parts.host : pinned(parts.host)
  const line = new SteadyLine(start.line, progress)
  const echoes = echoesState(call.capabilities)
  const carrier: Carrier<typeof start, Reply> = {
    ...tokenCarrier,
    open: (from) => ({ ...from, host, line, began: host.platform.now() }),
    async keep(round, pause) {
      const sealed = await sealPause(round, pause, async (claims) => {
        const request = toRequest(parts, call, line.progress)
        const turn = await sealTurn(host, claims, request, pause.inputRequests, { ...options, echoes })
        // A stored state needs no memory, and a client that echoes needs neither.
        if (turn.kind === 'sealed' && !host.states.stores && !(echoes && !remembers))
          memory.remember(turn.turn.id, turn.tokens, claims.roundExpires)
        return turn
      })
      if (sealed.kind === 'replied') return sealed.reply
      return { kind: 'input_required', _meta: { [TURN]: sealed.turn } }
    },
  }
  const round = await carrier.open(start)
  const reply = failed ? concludeRefused(round, undefined, failed) : await runOpened(round, carrier)
  const turn = reply.kind === 'input_required' ? (reply._meta?.[TURN] as TurnRequests | undefined) : undefined
  return turn ? { kind: 'turn', turn } : toReplyOf(start, reply)
}

async function handQuestions(
  { host, options }: Parts,
  claims: Claims,
  request: Omit<TurnClaims, 'keys'>,
  questions: InputRequests,
): ReturnType<MakePortable> {
  await host.keys.ready()
  const kept = await sealTurn(host, claims, request, questions, { ...options, echoes: true })
  if (kept.kind === 'too-large') return undefined
  const handed = Object.keys(questions).map((key, index) => {
    const state = kept.turn.requests[index]?.state
    return state === undefined ? [] : [[key, toHanded(toEventId(kept.turn.id, index + 1), state)] as const]
  })
  return Object.fromEntries(handed.flat())
}

const TASK = 'tasks/result'

/** The state of a task's question names the task; everything else of it is in the store. */
async function handTask(
  parts: Parts,
  { id, taskId, protocolVersion }: TaskCall,
  principal: Principal | undefined,
  questions: InputRequests,
): ReturnType<MakePortable> {
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
  { request, answers }: OpenedTurn,
  { principal, admit, facts }: TurnPeer,
): Promise<TurnOutcome> {
  if (!host.tasks) throw new RondoError('PEER_TASK')
  const { requestId: id, target: taskId } = request
  await admit({ ...facts, kind: 'task', action: 'update', id, taskId })
  await deliverAnswers(host, host.tasks, request.target, principal, answers)
  return { kind: 'taken' }
}

function toReplyOf({ call, target }: Pick<Start, 'call' | 'target'>, reply: Reply): TurnOutcome {
  return { kind: 'reply', id: call.id, reply, target }
}

/** A host that never moves a call: no other instance could continue it. */
function pinned(host: FlowHost): FlowHost {
  return { ...host, draining: false, overloaded: () => false, maxRoundMs: Number.POSITIVE_INFINITY }
}

async function guarded(
  { host }: Parts,
  id: RequestId | null,
  work: () => Promise<TurnOutcome>,
): Promise<TurnOutcome> {
  try {
    return await work()
  } catch (error) {
    return { kind: 'reply', id, reply: toErrorReply(error, host) }
  }
}

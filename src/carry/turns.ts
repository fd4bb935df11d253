/**
 * The turns carrier: the questions of a round go out on the call's own stream, each with the sealed journal as its
 * `state`, and the stream ends. The answers come in a request of their own, on any instance, which opens the state and
 * answers with what would have come on the stream. Nothing is kept here but a bounded memory of what was asked, for
 * clients that bring no state back.
 *
 * R6 The flow's id is in the client's hands before the first effect, on a ping if there is nothing to ask. A client
 * without states is like one of the push carrier: its flow lives and dies with this process, and an effect runs at once.
 */

import { RondoError } from '../errors.ts'
import type { FlowCall, FlowMethod, Line, Principal, RequestId } from '../protocol/call.ts'
import { withoutMethods } from '../protocol/capability.ts'
import { echoesState } from '../protocol/draft-turns/capability.ts'
import type { Turn, TurnAnswers } from '../protocol/draft-turns/turn.ts'
import type { Reply } from '../protocol/reply.ts'
import type { PeerFacts } from '../protocol/session-call.ts'
import { principalTag } from '../seal/binding.ts'
import type { Target } from '../tool/target.ts'
import { concludeRefused } from './conclude.ts'
import type { FlowHost } from './flow-host.ts'
import { growingLine } from './growing-line.ts'
import { keepTurn, type TurnsOptions } from './keep-turn.ts'
import { type Beginning, firstRound, nextRound } from './open-round.ts'
import { type OpenedTurn, openTurn } from './open-turn.ts'
import type { Keep, Round } from './round.ts'
import { runOpened } from './token.ts'
import { createTurnMemory, type TurnMemory } from './turn-memory.ts'

export type TurnOutcome =
  | { readonly kind: 'turn'; readonly turn: Turn }
  /** `id` is that of the request that began the call; null where the answers led to none. */
  | { readonly kind: 'reply'; readonly id: RequestId | null; readonly reply: Reply; readonly target?: Target }

export interface Turns {
  /** The first request of a call. Never rejects. */
  begin(target: Target, call: FlowCall, principal: Principal | undefined, line: Line): Promise<TurnOutcome>
  /** The answers of a turn; `peer` is the client as its session knows it. Never rejects. */
  resume(
    answers: TurnAnswers,
    peer: PeerFacts,
    principal: Principal | undefined,
    line: Line,
  ): Promise<TurnOutcome>
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
    begin: (target, call, principal, line) =>
      guarded(call.id, async () => {
        await host.keys.ready()
        return run(parts, { target, call, principal, line, beginning: await begin(parts, call) })
      }),
    async resume(answers, peer, principal, line) {
      const opened = await open(parts, answers, peer, principal).catch(toError)
      if (opened instanceof RondoError) return toReply(null, opened)
      const { requestId } = opened.claims.turn
      return guarded(requestId, () => goOn(parts, opened, peer, principal, line))
    },
  }
}

async function open(
  { host, memory }: Parts,
  answers: TurnAnswers,
  { protocolVersion }: PeerFacts,
  principal: Principal | undefined,
): Promise<OpenedTurn> {
  await host.keys.ready()
  const expected = {
    now: host.platform.now(),
    principal: principalTag(principal),
    protocolVersion,
    turn: answers.turn,
  }
  const opened = await openTurn(host, memory, answers, expected)
  if (opened.kind === 'open') return opened
  host.log({ event: 'state_refused', reason: opened.reason, keyId: opened.keyId })
  throw new RondoError('STATE_INVALID')
}

/** What a round runs on, before it is known how it is kept. */
interface Start extends Pick<Round, 'target' | 'call' | 'principal' | 'line' | 'beginning'> {
  /** The last progress that was told in an earlier turn. */
  readonly told?: number
  readonly failed?: RondoError
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
  return echoesState(capabilities) || host.continuation !== undefined
}

function goOn(
  parts: Parts,
  { claims, answers, failed, unable }: OpenedTurn,
  peer: PeerFacts,
  principal: Principal | undefined,
  line: Line,
): Promise<TurnOutcome> {
  const { requestId, target: name, args, progressToken, told } = claims.turn
  const method = claims.method as FlowMethod
  const target = parts.find(method, name)
  if (!target) throw new RondoError('REPLAY_DIVERGED', `"${name}" is no longer declared.`)
  const call: FlowCall = {
    ...peer,
    // Which kind of question it was is not in the state; who declares what it does not know is asked nothing more.
    capabilities: unable ? withoutMethods(peer.capabilities) : peer.capabilities,
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
  const beginning = nextRound(parts.host, claims)
  return run(parts, { target, call, principal, line, beginning, told, failed: unable ? undefined : failed })
}

async function run(parts: Parts, { told, failed, ...start }: Start): Promise<TurnOutcome> {
  const { memory, options } = parts
  const { call, target } = start
  const host = outlivesUs(parts, call) ? parts.host : staying(parts.host)
  const line = growingLine(start.line, told)
  const keep: Keep = async (_round, claims, inputRequests) => {
    const request = {
      id: host.platform.randomId(),
      requestId: call.id,
      target: call.target,
      args: call.args,
      ...(call.progressToken === undefined ? {} : { progressToken: call.progressToken }),
      ...(line.told === undefined ? {} : { told: line.told }),
    }
    const echoes = echoesState(call.capabilities)
    const kept = await keepTurn(host, claims, request, inputRequests, { ...options, echoes })
    if (kept.kind === 'too-large') return kept
    memory.remember(kept.claims, kept.bytes)
    const { turn, bytes, keyId } = kept
    return { kind: 'kept', reply: { kind: 'input_required', turn }, bytes, keyId }
  }
  const round: Round = { ...start, host, line, keep, began: host.platform.now() }
  const reply = failed ? concludeRefused(round, undefined, failed) : await runOpened(round)
  return reply.kind === 'input_required' && reply.turn
    ? { kind: 'turn', turn: reply.turn }
    : { kind: 'reply', id: call.id, reply, target }
}

/** A host that lets go of nothing: there is no other instance to take the call. */
function staying(host: FlowHost): FlowHost {
  return { ...host, draining: false, overloaded: () => false, maxRoundMs: Number.POSITIVE_INFINITY }
}

async function guarded(id: RequestId, work: () => Promise<TurnOutcome>): Promise<TurnOutcome> {
  try {
    return await work()
  } catch (error) {
    return toReply(id, toError(error))
  }
}

function toReply(id: RequestId | null, error: RondoError): TurnOutcome {
  return { kind: 'reply', id, reply: { kind: 'error', error } }
}

function toError(error: unknown): RondoError {
  return error instanceof RondoError ? error : new RondoError('SERVER_INTERNAL', undefined, { cause: error })
}

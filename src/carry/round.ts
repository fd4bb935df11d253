/**
 * One round of a call, whatever carries its journal: what it runs on, and what is logged of it.
 */

import type { FlowCall, Line, Principal } from '../protocol/call.ts'
import type { Reply } from '../protocol/reply.ts'
import type { InputRequests, InputResponses } from '../protocol/wire.ts'
import { CAN_LEAVE, FOREGROUND } from '../replay/create-context.ts'
import type { RunReport } from '../replay/outcome.ts'
import type { ReplayInput } from '../replay/replay.ts'
import type { Claims } from '../seal/claims.ts'
import type { Context } from '../tool/context.ts'
import type { Target } from '../tool/target.ts'
import type { FlowHost, RoundEvent } from './flow-host.ts'
import { movePolicy } from './move-policy.ts'
import type { Beginning } from './open-round.ts'
import { effectOnce } from './single-use.ts'
import { taskHostFor } from './task-host.ts'

export type Kept =
  | { readonly kind: 'kept'; readonly reply: Reply; readonly bytes: number; readonly keyId: string }
  | { readonly kind: 'too-large'; readonly bytes: number }

/** Puts what happened so far where the next round finds it; gives what the client is told. */
export type Keep = (
  round: Round,
  claims: Claims,
  inputRequests: InputRequests | undefined,
) => Kept | Promise<Kept>

export interface Round {
  readonly host: FlowHost
  readonly call: FlowCall
  readonly target: Target
  readonly principal: Principal | undefined
  readonly line: Line
  readonly beginning: Beginning
  /** When work on the request began, ms since the epoch. */
  readonly began: number
  /** Sealed and handed to the client, unless the carrier has another way. */
  readonly keep?: Keep
}

export function toReplayInput(round: Round, handler: (ctx: Context) => unknown): ReplayInput {
  const { host, call, principal, line, beginning } = round
  const { name, version } = call.clientInfo ?? {}
  const { store } = host
  return {
    handler,
    journal: beginning.journal,
    incoming: {
      anchored: beginning.anchored,
      asked: beginning.asked,
      answers: call.inputResponses,
      resumed: beginning.round > 1,
      capabilities: call.capabilities,
    },
    scene: {
      flow: beginning.flow,
      round: beginning.round,
      principal,
      client: { name, version, capabilities: call.capabilities },
      protocolVersion: call.protocolVersion,
      line,
      progressToken: call.progressToken,
      logLevel: call.logLevel,
      once: store && ((key, branch, act) => effectOnce(round, store.once, { key, branch }, act)),
      background: taskHostFor(round) ? CAN_LEAVE : FOREGROUND,
      inputResponses: solicited(beginning, call.inputResponses),
      requestState: beginning.journal.manual,
    },
    platform: host.platform,
    limits: host.limits,
    mayMove: movePolicy(host, line, beginning.journal.moves),
    onDeferError: (error) => logFault(round, error),
  }
}

/** The manual form sees only answers to what was asked; a first request may bring some along. */
export function solicited(
  { anchored, asked }: Beginning,
  answers: Readonly<Record<string, unknown>> | undefined,
): InputResponses | undefined {
  if (!answers || !anchored) return answers as InputResponses | undefined
  const wanted: Record<string, unknown> = Object.create(null)
  for (const key of Object.keys(answers)) if (Object.hasOwn(asked, key)) wanted[key] = answers[key]
  return wanted as InputResponses
}

type RoundFacts = Pick<RoundEvent, 'outcome' | 'asks' | 'moved' | 'task' | 'code' | 'stateBytes' | 'keyId'>

/** The one line of a round. */
export function logRound(round: Round, report: RunReport | undefined, facts: RoundFacts): void {
  const { host, call, target, beginning, began } = round
  const changed = beginning.anchored && beginning.sealedVersion !== target.version
  host.log({
    event: 'round',
    flow: beginning.flow,
    round: beginning.round,
    method: call.method,
    target: call.target,
    outcome: facts.outcome,
    asks: facts.asks,
    moved: facts.moved,
    task: facts.task,
    code: facts.code,
    replayed: report?.replayed ?? 0,
    executed: report?.executed ?? 0,
    stateBytes: facts.stateBytes,
    keyId: facts.keyId,
    sealedVersion: changed ? beginning.sealedVersion : undefined,
    ms: host.platform.now() - began,
  })
}

export function logFault({ host, call, beginning }: Round, error: unknown): void {
  const { method, target } = call
  host.log({ event: 'fault', flow: beginning.flow, round: beginning.round, method, target, error })
}

/**
 * The token carrier: between rounds the client holds the journal, sealed, as `requestState`. Nothing is kept here; any
 * instance with the keys takes the next round.
 *
 * R1 Nothing of a handler runs before the state that came with the request has passed every check.
 */

import { RondoError } from '../errors.ts'
import type { Journal } from '../journal/journal.ts'
import type { Reply } from '../protocol/reply.ts'
import {
  type Claims,
  openState,
  principalTag,
  requestDigest,
  type SealFacts,
  sealState,
  type TooLarge,
} from '../seal/state.ts'
import {
  type Beginning,
  type Carrier,
  type Pause,
  placeOf,
  type Replied,
  type Round,
  type RoundRequest,
  subjectOf,
} from './carrier.ts'
import type { FlowHost, OpenedStored, StateCarrier } from './host.ts'
import { logStateRefused, observeRefused, recordPlace } from './report.ts'
import { concludeRefused, logRound, runOnce } from './round.ts'
import { NO_EPOCH, replyOnce } from './single-use.ts'
import {
  beginAtOnce,
  continueAsTask,
  queueAsTask,
  sealWithStore,
  tooLarge,
  unspill,
  warnSize,
} from './task/begin.ts'
import { undoGone, withRecorded } from './undo.ts'

/** The client holds the sealed state, and nothing is stored. */
export const sealedStates: StateCarrier = {
  stores: false,
  open: ({ keys, audience, limits }, state, expected) =>
    openState(keys.ring, audience, state, expected, limits),
  keep: ({ keys, audience, limits }, claims) => sealState(keys.ring, audience, claims, limits),
}

export const tokenCarrier: Carrier<RoundRequest, Reply> = {
  open,
  keep,
  end: (_round, reply) => reply,
  begin: (round) => beginAtOnce(round, true),
  leave: queueAsTask,
}

/** Runs one round of a call. Rejects only with a `RondoError`. */
export async function runRound(request: RoundRequest): Promise<Reply> {
  const { keys } = request.host
  if (!keys.isReady) await keys.ready()
  const began = request.host.platform.now()
  let opened: Round
  try {
    opened = await tokenCarrier.open(request)
  } catch (error) {
    observeRefused(request, began, error)
    throw error
  }
  return await runOpened(opened, tokenCarrier)
}

/** Runs a round whose state has passed every check. */
export async function runOpened(opened: Round, carrier: Carrier<never, Reply>): Promise<Reply> {
  const { host, call, target } = opened
  try {
    const round = opened.beginning.journal.spilled === undefined ? opened : await unspill(opened)
    const isSingle = target.once || round.beginning.journal.lineage !== undefined
    if (!isSingle || !host.store) return await runOnce(carrier, round)
    const { beginning } = round
    const run = async () => runOnce(carrier, { ...round, beginning: await withRecorded(host, beginning) })
    return await replyOnce(host, host.store.once, call, beginning, run)
  } catch (error) {
    recordPlace(error, placeOf(opened))
    throw error
  }
}

const NOTHING_ASKED: Readonly<Record<string, string>> = {}

export function firstRound({ platform, limits }: FlowHost): Beginning {
  const now = platform.now()
  return {
    flow: platform.randomId(),
    round: 1,
    journal: { startedAt: now, seed: platform.randomId(), entries: [], reasks: {}, moves: 0 },
    asked: NOTHING_ASKED,
    flowExpires: now + limits.flowTtlMs,
    anchored: false,
  }
}

/** Throws `STATE_INVALID` for every state that does not open, and `LIMIT_ROUNDS` if the flow has used up its rounds. */
async function open(request: RoundRequest): Promise<Round> {
  const { host, call, target, principal, line } = request
  const began = host.platform.now()
  // Member by member: to spread the request costs more than everything else here.
  const toRound = (beginning: Beginning): Round => ({ host, call, target, principal, line, beginning, began })
  if (call.requestState === undefined) return toRound(firstRound(host))
  const { method, protocolVersion } = call
  const expected = {
    now: began,
    method,
    protocolVersion,
    principal: principalTag(principal),
    request: requestDigest(method, call.target, call.args),
  }
  return toRound(resume(request, await host.states.open(host, call.requestState, expected)))
}

function resume(request: RoundRequest, opened: OpenedStored): Beginning {
  const { host } = request
  if (opened.kind === 'open') return nextRound(host, opened.claims)
  logStateRefused(host, opened, subjectOf(request))
  throw new RondoError('STATE_INVALID')
}

/** The round after the one in which `claims` were sealed. */
export function nextRound(host: FlowHost, claims: Claims): Beginning {
  const { maxRounds } = host.limits
  if (claims.round >= maxRounds) {
    void undoGone(host, claims.journal)
    throw new RondoError(
      'LIMIT_ROUNDS',
      `The flow has used all of its ${maxRounds} rounds (limits.maxRounds).`,
    )
  }
  return {
    flow: claims.flow,
    round: claims.round + 1,
    journal: host.store ? { ...claims.journal, epoch: claims.journal.epoch ?? NO_EPOCH } : claims.journal,
    asked: claims.asked,
    flowExpires: claims.flowExpires,
    anchored: true,
    sealedVersion: claims.toolVersion,
    // Only telemetry reads it.
    askedAt: host.observer && Object.keys(claims.asked).length > 0 ? claims.issuedAt : undefined,
  }
}

async function keep(round: Round, pause: Pause): Promise<Reply> {
  const { host } = round
  const sealed = await sealPause(round, pause, (claims) => host.states.keep(host, claims))
  if (sealed.kind === 'replied') return sealed.reply
  return { kind: 'input_required', inputRequests: pause.inputRequests, requestState: sealed.token }
}

/** Seals the journal of a pause with `seal`. Returns the reply instead if the call continues as a task, or cannot be sealed. */
export async function sealPause<S extends { readonly kind: 'sealed' } & SealFacts>(
  round: Round,
  pause: Pause,
  seal: (claims: Claims) => S | TooLarge | Promise<S | TooLarge>,
): Promise<S | Replied> {
  const { host } = round
  const { report, facts, asked } = pause
  if (pause.leaves) return { kind: 'replied', reply: await continueAsTask(round, report) }
  const sealJournal = async (journal: Journal) => seal(claimsOf(round, journal, asked))
  const sealed = host.store
    ? await sealWithStore(round, pause, host.store, sealJournal)
    : await sealJournal(pause.journal)
  if (sealed.kind === 'replied') return sealed
  const { bytes } = sealed
  if (sealed.kind === 'too-large')
    return { kind: 'replied', reply: concludeRefused(round, report, tooLarge(round, bytes, pause.journal)) }
  if (bytes > host.limits.warnBytes) warnSize(round, bytes)
  const { outcome, asks, moved } = facts
  logRound(round, report, { outcome, asks, moved, stateBytes: bytes, keyId: sealed.keyId })
  return sealed
}

/** The claims to seal at the end of a round. */
export function claimsOf(
  { host, call, target, principal, beginning }: Round,
  journal: Journal,
  asked: Readonly<Record<string, string>>,
): Claims {
  const now = host.platform.now()
  const { flow, flowExpires, round } = beginning
  return {
    issuedAt: now,
    roundExpires: Math.min(now + host.limits.roundTtlMs, flowExpires),
    flowExpires,
    flow,
    round,
    method: call.method,
    toolVersion: target.version,
    protocolVersion: call.protocolVersion,
    asked,
    journal,
    principal: principalTag(principal),
    request: requestDigest(call.method, call.target, call.args),
  }
}

/**
 * The token carrier: between rounds the client holds the journal, sealed, as `requestState`. Nothing is kept here; any
 * instance with the keys takes the next round.
 *
 * R1 Nothing of a handler runs before the state that came with the request has passed every check.
 */

import { RondoError } from '../errors.ts'
import type { Journal } from '../journal/journal.ts'
import type { FlowCall, Principal } from '../protocol/call.ts'
import type { Reply } from '../protocol/reply.ts'
import type { InputRequests } from '../protocol/wire.ts'
import type { RunReport } from '../replay/run-state.ts'
import {
  type Claims,
  openState,
  principalTag,
  requestDigest,
  type SealedState,
  sealState,
} from '../seal/state.ts'
import type { Store } from '../store/store.ts'
import type { Target } from '../tool/target.ts'
import type { FlowHost, OpenedStored, StateCarrier } from './host.ts'
import {
  type Beginning,
  concludeRefused,
  type Kept,
  logRound,
  type Pause,
  type Round,
  type RoundRequest,
  runOnce,
  taskHostFor,
} from './round.ts'
import { answerOnce, spill, unspill } from './single-use.ts'
import { beginAtOnce, beginTask } from './task/begin.ts'

/** Sealed, in the client's hands, and nowhere else. */
export const sealedStates: StateCarrier = {
  stores: false,
  open: ({ keys, audience, limits }, state, expected) =>
    openState(keys.ring, audience, state, expected, limits),
  keep: ({ keys, audience, limits }, claims) => sealState(keys.ring, audience, claims, limits),
}

/** Runs one round of a call. Rejects only with a `RondoError`. */
export async function runRound(request: RoundRequest): Promise<Reply> {
  const { host } = request
  const loading = host.keys.ready()
  if (loading) await loading
  const began = host.platform.now()
  const opening = open(request)
  const beginning = opening instanceof Promise ? await opening : opening
  return await runOpened({ ...request, beginning, began })
}

/** Runs a round whose state has passed every check. */
export async function runOpened(opened: Round): Promise<Reply> {
  const { host, call, target } = opened
  const round = opened.beginning.journal.spilled === undefined ? opened : await fetchJournal(opened)
  if (!target.once || !host.store) return await runAndKeep(round)
  return await answerOnce(host, host.store.once, call, round.beginning, () => runAndKeep(round))
}

async function fetchJournal(round: Round): Promise<Round> {
  const { host, beginning } = round
  const journal = await unspill(host, host.store?.blobs, beginning.journal)
  return { ...round, beginning: { ...beginning, journal } }
}

async function runAndKeep(round: Round): Promise<Reply> {
  const { mode } = round.target.task
  const mayBegin = mode !== 'late' && mode !== 'never'
  const end = await runOnce(round, mayBegin ? { begin: () => beginAtOnce(round, true) } : undefined)
  switch (end.kind) {
    case 'replied':
      return end.reply
    case 'refused':
      return concludeRefused(round, end.report, end.error)
    case 'background':
      return await continueAsTask(round, end.report)
    case 'paused':
      return await (round.host.store ? keepWithStore(round, end, round.host.store) : keep(round, end))
    case 'abandoned':
      throw new RondoError('SERVER_INTERNAL')
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
function open({ host, call, principal }: RoundRequest): Beginning | Promise<Beginning> {
  if (call.requestState === undefined) return firstRound(host)
  const expected = {
    now: host.platform.now(),
    method: call.method,
    protocolVersion: call.protocolVersion,
    ...bind(call, principal),
  }
  const opening = host.states.open(host, call.requestState, expected)
  return opening instanceof Promise
    ? opening.then((opened) => beginFrom(host, call, opened))
    : beginFrom(host, call, opening)
}

function beginFrom(host: FlowHost, { method, target }: FlowCall, opened: OpenedStored): Beginning {
  if (opened.kind === 'open') return nextRound(host, opened.claims)
  const { reason, keyId } = { keyId: undefined, ...opened }
  host.log({ event: 'state_refused', method, target, reason, keyId })
  throw new RondoError('STATE_INVALID')
}

/** The round after the one in which `claims` were sealed. */
export function nextRound(host: FlowHost, claims: Claims): Beginning {
  const { maxRounds } = host.limits
  if (claims.round >= maxRounds) {
    throw new RondoError('LIMIT_ROUNDS', `The flow has had its ${maxRounds} rounds (limits.maxRounds).`)
  }
  return {
    flow: claims.flow,
    round: claims.round + 1,
    journal: claims.journal,
    asked: claims.asked,
    flowExpires: claims.flowExpires,
    anchored: true,
    sealedVersion: claims.toolVersion,
  }
}

/** Seals the journal and sends it to the client. */
function keep(round: Round, pause: Pause): Reply | Promise<Reply> {
  const kept = seal(round, pause)
  return kept instanceof Promise ? kept.then((done) => reply(round, pause, done)) : reply(round, pause, kept)
}

function seal(round: Round, { journal, asked, inputRequests }: Pause): Kept | Promise<Kept> {
  const { host } = round
  const claims = claimsOf(round, journal, asked)
  if (round.keep) return round.keep(round, claims, inputRequests)
  const sealing = host.states.keep(host, claims)
  return sealing instanceof Promise
    ? sealing.then((sealed) => toKept(sealed, inputRequests))
    : toKept(sealing, inputRequests)
}

function toKept(sealed: SealedState, inputRequests: InputRequests | undefined): Kept {
  if (sealed.kind === 'too-large') return sealed
  const { token, bytes, keyId } = sealed
  return { kind: 'kept', reply: { kind: 'input_required', inputRequests, requestState: token }, bytes, keyId }
}

function reply(round: Round, { report, facts }: Pause, kept: Kept): Reply {
  const { host, target } = round
  if (kept.kind === 'too-large') return concludeRefused(round, report, tooLarge(kept.bytes, host))
  const { bytes, keyId } = kept
  if (bytes > host.limits.warnBytes) warnSize(host, target, bytes)
  logRound(round, report, { ...facts, stateBytes: bytes, keyId })
  return kept.reply
}

/** What is sealed at the end of a round. */
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
    ...bind(call, principal),
  }
}

/** What a state is bound to. */
function bind(call: FlowCall, principal: Principal | undefined): Pick<Claims, 'principal' | 'request'> {
  return { principal: principalTag(principal), request: requestDigest(call.method, call.target, call.args) }
}

function tooLarge(bytes: number, { limits }: FlowHost): RondoError {
  const detail =
    `The sealed journal would have ${bytes} bytes; ${limits.maxBytes} are allowed (limits.maxBytes). ` +
    'Remember less (return ids from steps instead of documents), or give the server a store.'
  return new RondoError('LIMIT_STATE_BYTES', detail)
}

function warnSize(host: FlowHost, { name }: Target, bytes: number): void {
  const message = `requestState of ${name} has ${bytes} bytes; some proxies and clients refuse bodies of that size`
  host.log({ event: 'warning', message })
}

/**
 * With a store there are two more ways: a call that took long or many rounds, or whose journal no longer fits a token,
 * continues as a task if its client can follow one; otherwise the journal is stored and the token carries its id.
 */
async function keepWithStore(
  round: Round,
  pause: Pause,
  { once, blobs }: Pick<Store, 'once' | 'blobs'>,
): Promise<Reply> {
  const { host, beginning, line } = round
  const { report, facts } = pause
  const follows = taskHostFor(round) !== undefined
  if (facts.moved === 'time' && follows) {
    const task = await tryToContinueAsTask(round, report)
    if (task) return task
  }
  // A client that has gone would never learn of the task.
  const mayLeave = follows && pause.journal.manual === undefined && !line.closed
  const isLate = beginning.round >= host.limits.promoteRounds
  const promoted = mayLeave && isLate ? await tryToContinueAsTask(round, report) : undefined
  if (promoted) return promoted
  const journal = { ...pause.journal, epoch: pause.journal.epoch ?? (await once.epoch()) }
  const kept = await seal(round, { ...pause, journal })
  if (kept.kind === 'kept') return reply(round, pause, kept)
  const task = mayLeave && !isLate ? await tryToContinueAsTask(round, report) : undefined
  if (task) return task
  const spilled = await spill(host, blobs, journal, beginning.flowExpires)
  return reply(round, pause, await seal(round, { ...pause, journal: spilled }))
}

function continueAsTask(round: Round, { journal }: RunReport): Promise<Reply> {
  const tasks = taskHostFor(round)
  if (!tasks) throw new RondoError('SERVER_INTERNAL', 'This call cannot continue as a task')
  // Answers are in the journal by now; the manual form reads them again from the request.
  return beginTask(round, tasks, journal, journal.manual !== undefined)
}

/** Returns nothing if the caller has too many tasks: the call then continues in rounds. */
async function tryToContinueAsTask(round: Round, report: RunReport): Promise<Reply | undefined> {
  try {
    return await continueAsTask(round, report)
  } catch (error) {
    if (error instanceof RondoError && error.code === 'LIMIT_TASKS') return undefined
    throw error
  }
}

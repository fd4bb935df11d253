/**
 * The token carrier: between rounds the journal is in the client's hands, sealed, as `requestState`. Nothing is kept
 * here; any instance with the keys takes the next round.
 */

import { RondoError } from '../errors.ts'
import type { Journal } from '../journal/journal.ts'
import type { FlowCall, Line, Principal } from '../protocol/call.ts'
import type { Reply } from '../protocol/reply.ts'
import type { InputRequest, InputRequests } from '../protocol/wire.ts'
import { replay } from '../replay/replay.ts'
import type { MoveReason, OpenQuestion, RunReport } from '../replay/run-state.ts'
import { verify } from '../replay/verify.ts'
import { type Claims, principalTag, requestDigest, type SealedState } from '../seal/state.ts'
import type { Store } from '../store/store.ts'
import { type InputRequired, isInputRequired } from '../tool/result.ts'
import type { Target } from '../tool/target.ts'
import type { FlowHost, RoundEvent } from './host.ts'
import { keepState, type OpenedStored, openKept } from './migration.ts'
import {
  concludeArguments,
  concludeRefused,
  concludeReturned,
  concludeThrew,
  type Keep,
  type Kept,
  logRound,
  manualDigests,
  manualRequests,
  type Round,
  toReplayInput,
} from './round.ts'
import { answerOnce, spill, unspill } from './single-use.ts'
import { beginTask, cannotFollow } from './task/begin.ts'
import { taskHostFor } from './task/journal.ts'

/** Runs one round of a call. Rejects only with a `RondoError`. */
export async function runRound(
  host: FlowHost,
  target: Target,
  call: FlowCall,
  principal: Principal | undefined,
  line: Line,
): Promise<Reply> {
  const loading = host.keys.ready()
  if (loading) await loading
  const began = host.platform.now()
  const opening = openRound(host, call, principal)
  const opened = opening instanceof Promise ? await opening : opening
  return await runOpened({ host, call, target, principal, line, beginning: opened, began })
}

/** Runs a round whose state has passed every check, whatever keeps it in the end. */
export async function runOpened(opened: Round): Promise<Reply> {
  const { host, call, target } = opened
  const round = opened.beginning.journal.spilled === undefined ? opened : await fetchJournal(opened)
  if (!target.once || !host.store) return await runFrom(round)
  return await answerOnce(host, host.store.once, call, round.beginning, () => runFrom(round))
}

async function fetchJournal(round: Round): Promise<Round> {
  const { host, beginning } = round
  const journal = await unspill(host, host.store?.blobs, beginning.journal)
  return { ...round, beginning: { ...beginning, journal } }
}

async function runFrom(round: Round): Promise<Reply> {
  const { host, call, target, beginning } = round
  const preparing = target.prepare(call.args)
  const prepared = preparing instanceof Promise ? await preparing : preparing
  if (prepared.kind === 'refused') return concludeArguments(round, prepared.problem)
  const tasks = taskHostFor(round)
  if (target.task.mode === 'always' && !tasks) return concludeRefused(round, undefined, cannotFollow(target))
  if (tasks && target.task.mode !== 'late') return beginTask(round, tasks, beginning.journal, true)
  const input = toReplayInput(round, prepared.run)
  const first = await replay(input)
  const reply = settle(round, host.dev ? await verify(input, first) : first)
  return reply instanceof Promise ? await reply : reply
}

function settle(round: Round, report: RunReport): Reply | Promise<Reply> {
  const { ending } = report
  switch (ending.kind) {
    case 'returned':
      if (isInputRequired(ending.value)) return suspendManually(round, report, ending.value)
      return concludeReturned(round, report, ending.value)
    case 'threw':
      return concludeThrew(round, report, ending.error)
    case 'refused':
      return concludeRefused(round, report, ending.error)
    case 'background':
      return leave(round, report)
    case 'moved':
      return move(round, report, ending.reason)
    case 'asking':
      return suspendAsking(round, report, ending.questions)
  }
}

/** A call that takes long goes on as a task, where it can be one; any other move is the client's next round. */
function move(round: Round, report: RunReport, reason: MoveReason): Reply | Promise<Reply> {
  const journal = { ...report.journal, moves: report.journal.moves + 1 }
  const suspended = () => suspend(round, report, { journal, asked: {} }, { outcome: 'moved', moved: reason })
  if (reason !== 'time' || !taskHostFor(round)) return suspended()
  return tryToLeave(round, report).then((reply) => reply ?? suspended())
}

function suspendAsking(
  round: Round,
  report: RunReport,
  questions: ReadonlyMap<string, OpenQuestion>,
): Reply | Promise<Reply> {
  const asked: Record<string, string> = {}
  const inputRequests: Record<string, InputRequest> = {}
  const asks: { key: string; kind: OpenQuestion['kind'] }[] = []
  for (const [key, { digest, request, kind }] of questions) {
    asked[key] = digest
    inputRequests[key] = request
    asks.push({ key, kind })
  }
  const { journal } = report
  return suspend(round, report, { journal, asked, inputRequests }, { outcome: 'input_required', asks })
}

function suspendManually(round: Round, report: RunReport, needs: InputRequired): Reply | Promise<Reply> {
  const asked = manualDigests(round.host, needs, round.call.capabilities)
  if (asked instanceof RondoError) return concludeRefused(round, report, asked)
  const asks = Object.keys(asked).map((key) => ({ key, kind: 'manual' as const }))
  const journal = { ...report.journal, manual: needs.requestState }
  const inputRequests = manualRequests(round.host, journal, needs)
  return suspend(round, report, { journal, asked, inputRequests }, { outcome: 'input_required', asks })
}

/*
 * Where a round begins: with what was sealed before, or with an empty journal.
 *
 * R1 Nothing of a handler runs before the state that came with the request has passed every check.
 */

/** What a state is bound to; computed once per request, and only if it is needed. */
export interface Binding {
  readonly principal: string
  readonly request: string
}

export interface Beginning {
  readonly flow: string
  readonly round: number
  readonly journal: Journal
  readonly asked: Readonly<Record<string, string>>
  /** When the flow ends at the latest, ms since the epoch. */
  readonly flowExpires: number
  readonly anchored: boolean
  readonly sealedVersion?: string
}

const NOTHING_ASKED: Readonly<Record<string, string>> = {}

function bind(call: FlowCall, principal: Principal | undefined): Binding {
  return { principal: principalTag(principal), request: requestDigest(call.method, call.target, call.args) }
}

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

/** Throws the one error of a state that does not open, or of a flow that has had its rounds. */
function openRound(
  host: FlowHost,
  call: FlowCall,
  principal: Principal | undefined,
): Beginning | Promise<Beginning> {
  if (call.requestState === undefined) return firstRound(host)
  const expected = {
    now: host.platform.now(),
    method: call.method,
    protocolVersion: call.protocolVersion,
    ...bind(call, principal),
  }
  const opening = openKept(host, call.requestState, expected)
  return opening instanceof Promise
    ? opening.then((opened) => goOn(host, call, opened))
    : goOn(host, call, opening)
}

function goOn(host: FlowHost, { method, target }: FlowCall, opened: OpenedStored): Beginning {
  if (opened.kind === 'open') return nextRound(host, opened.claims)
  const { reason, keyId } = { keyId: undefined, ...opened }
  host.log({ event: 'state_refused', method, target, reason, keyId })
  throw new RondoError('STATE_INVALID')
}

/** The round after the one in which `claims` were sealed. */
export function nextRound(host: FlowHost, claims: Claims): Beginning {
  if (claims.round >= host.limits.maxRounds) {
    throw new RondoError(
      'LIMIT_ROUNDS',
      `The flow has had its ${host.limits.maxRounds} rounds (limits.maxRounds).`,
    )
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

/*
 * The end of a round that is not the end of its call: what happened so far is kept for the next one, sealed in the client's
 * hands unless the carrier has another way; where it has outgrown that, it goes on as a task or is put away in the store.
 */

interface Suspension {
  readonly journal: Journal
  readonly asked: Readonly<Record<string, string>>
  readonly inputRequests?: InputRequests
}

type Facts = Pick<RoundEvent, 'outcome' | 'asks' | 'moved'>

/** Keeps what happened so far and tells the client. */
function suspend(
  round: Round,
  report: RunReport,
  suspension: Suspension,
  facts: Facts,
): Reply | Promise<Reply> {
  const { store } = round.host
  if (store) return suspendWithStore(round, report, suspension, facts, store)
  const keeping = keep(round, suspension)
  if (!(keeping instanceof Promise)) return told(round, report, facts, keeping)
  return keeping.then((kept) => told(round, report, facts, kept))
}

/** Goes on as a task. Only for calls whose client can follow one. */
function leave(round: Round, { journal }: RunReport): Promise<Reply> {
  const tasks = taskHostFor(round)
  if (!tasks) throw new RondoError('SERVER_INTERNAL', 'A call was to go on as a task that cannot')
  // Answers are in the journal by now; the manual form reads them again from the request.
  return beginTask(round, tasks, journal, journal.manual !== undefined)
}

/** The same, unless the caller has too many tasks: then the call goes on as it did. */
async function tryToLeave(round: Round, report: RunReport): Promise<Reply | undefined> {
  try {
    return await leave(round, report)
  } catch (error) {
    if (error instanceof RondoError && error.code === 'LIMIT_TASKS') return undefined
    throw error
  }
}

async function suspendWithStore(
  round: Round,
  report: RunReport,
  { journal: given, ...rest }: Suspension,
  facts: Facts,
  { once, blobs }: Pick<Store, 'once' | 'blobs'>,
): Promise<Reply> {
  const { host, beginning, line } = round
  // A client that has gone would never hear of the task.
  const mayLeave = taskHostFor(round) !== undefined && given.manual === undefined && !line.closed
  const isLate = beginning.round >= host.limits.promoteRounds
  const left = mayLeave && isLate ? await tryToLeave(round, report) : undefined
  if (left) return left
  const journal = { ...given, epoch: given.epoch ?? (await once.epoch()) }
  const kept = await keep(round, { ...rest, journal })
  if (kept.kind === 'kept') return told(round, report, facts, kept)
  const task = mayLeave && !isLate ? await tryToLeave(round, report) : undefined
  if (task) return task
  const spilled = await spill(host, blobs, journal, beginning.flowExpires)
  return told(round, report, facts, await keep(round, { ...rest, journal: spilled }))
}

function keep(round: Round, { journal, asked, inputRequests }: Suspension): Kept | Promise<Kept> {
  return (round.keep ?? keepInToken)(round, claimsOf(round, journal, asked), inputRequests)
}

const keepInToken: Keep = ({ host }, claims, inputRequests) => {
  const hand = (sealed: SealedState): Kept =>
    sealed.kind === 'too-large'
      ? sealed
      : {
          kind: 'kept',
          reply: { kind: 'input_required', inputRequests, requestState: sealed.token },
          bytes: sealed.bytes,
          keyId: sealed.keyId,
        }
  const keeping = keepState(host, claims)
  return keeping instanceof Promise ? keeping.then(hand) : hand(keeping)
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

function told(round: Round, report: RunReport, facts: Facts, kept: Kept): Reply {
  const { host, target } = round
  if (kept.kind === 'too-large') return concludeRefused(round, report, tooLarge(kept.bytes, host))
  const { bytes, keyId, reply } = kept
  if (bytes > host.limits.warnBytes) warnSize(host, target, bytes)
  logRound(round, report, {
    outcome: facts.outcome,
    asks: facts.asks,
    moved: facts.moved,
    stateBytes: bytes,
    keyId,
  })
  return reply
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

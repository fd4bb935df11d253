/**
 * The token carrier: between rounds the journal is in the client's hands, sealed, as `requestState`. Nothing is kept
 * here; any instance with the keys takes the next round.
 */

import { RondoError } from '../errors.ts'
import type { Journal } from '../journal/journal.ts'
import type { FlowCall, Line, Principal } from '../protocol/call.ts'
import type { Reply } from '../protocol/reply.ts'
import type { InputRequests } from '../protocol/wire.ts'
import type { OpenQuestion, RunReport } from '../replay/outcome.ts'
import { replay } from '../replay/replay.ts'
import { verify } from '../replay/verify.ts'
import type { Claims } from '../seal/claims.ts'
import type { SealedState } from '../seal/state.ts'
import { type InputRequired, isInputRequired } from '../tool/input-required.ts'
import type { Target } from '../tool/target.ts'
import { concludeArguments, concludeRefused, concludeReturned, concludeThrew } from './conclude.ts'
import { keepState } from './continuation.ts'
import type { FlowHost, RoundEvent } from './flow-host.ts'
import { manualDigests } from './manual.ts'
import { bind, openRound } from './open-round.ts'
import { type Keep, type Kept, logRound, type Round, toReplayInput } from './round.ts'

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
  const beginning = opening instanceof Promise ? await opening : opening
  return runFrom({ host, call, target, principal, line, beginning, began })
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

/** Runs a round from where it begins, whatever keeps it in the end. */
export async function runFrom(round: Round): Promise<Reply> {
  const { host, call, target } = round
  const preparing = target.prepare(call.args)
  const prepared = preparing instanceof Promise ? await preparing : preparing
  if (prepared.kind === 'refused') return concludeArguments(round, prepared.problem)
  const input = toReplayInput(round, prepared.run)
  const first = await replay(input)
  return settle(round, host.dev ? await verify(input, first) : first)
}

function settle(round: Round, report: RunReport): Reply | Promise<Reply> {
  const { ending, journal } = report
  switch (ending.kind) {
    case 'returned':
      if (isInputRequired(ending.value)) return suspendManually(round, report, ending.value)
      return concludeReturned(round, report, ending.value)
    case 'threw':
      return concludeThrew(round, report, ending.error)
    case 'refused':
      return concludeRefused(round, report, ending.error)
    case 'background':
    case 'moved':
      return suspend(
        round,
        report,
        { journal: { ...journal, moves: journal.moves + 1 }, asked: {} },
        {
          outcome: 'moved',
          moved: ending.reason,
        },
      )
    case 'asking':
      return suspendAsking(round, report, [...ending.questions])
  }
}

interface Suspension {
  readonly journal: Journal
  readonly asked: Readonly<Record<string, string>>
  readonly inputRequests?: InputRequests
}

function suspendAsking(
  round: Round,
  report: RunReport,
  questions: readonly [string, OpenQuestion][],
): Reply | Promise<Reply> {
  const asked = Object.fromEntries(questions.map(([key, { digest }]) => [key, digest]))
  const inputRequests = Object.fromEntries(questions.map(([key, { request }]) => [key, request]))
  const asks = questions.map(([key, { kind }]) => ({ key, kind }))
  const { journal } = report
  return suspend(round, report, { journal, asked, inputRequests }, { outcome: 'input_required', asks })
}

function suspendManually(round: Round, report: RunReport, needs: InputRequired): Reply | Promise<Reply> {
  const asked = manualDigests(round.host, needs, round.call.capabilities)
  if (asked instanceof RondoError) return concludeRefused(round, report, asked)
  const asks = Object.keys(asked).map((key) => ({ key, kind: 'manual' as const }))
  const journal = { ...report.journal, manual: needs.requestState }
  const { inputRequests } = needs
  return suspend(round, report, { journal, asked, inputRequests }, { outcome: 'input_required', asks })
}

/** Keeps what happened so far and tells the client. */
function suspend(
  round: Round,
  report: RunReport,
  { journal, asked, inputRequests }: Suspension,
  facts: Pick<RoundEvent, 'outcome' | 'asks' | 'moved'>,
): Reply | Promise<Reply> {
  const { host, target } = round
  const finish = (kept: Kept): Reply => {
    if (kept.kind === 'too-large') return concludeRefused(round, report, tooLarge(kept.bytes, host))
    const { bytes, keyId, reply } = kept
    if (bytes > host.limits.warnBytes) warnSize(host, target, bytes)
    logRound(round, report, { ...facts, stateBytes: bytes, keyId })
    return reply
  }
  const { keep = keepInToken } = round
  const keeping = keep(round, claimsOf(round, journal, asked), inputRequests)
  return keeping instanceof Promise ? keeping.then(finish) : finish(keeping)
}

function claimsOf(
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

function tooLarge(bytes: number, { limits }: FlowHost): RondoError {
  const detail =
    `The sealed journal would have ${bytes} bytes; ${limits.maxBytes} are allowed (limits.maxBytes). ` +
    'Remember less: return ids from steps instead of documents.'
  return new RondoError('LIMIT_STATE_BYTES', detail)
}

function warnSize(host: FlowHost, { name }: Target, bytes: number): void {
  const message = `requestState of ${name} has ${bytes} bytes; some proxies and clients refuse bodies of that size`
  host.log({ event: 'warning', message })
}

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
import { sealState } from '../seal/state.ts'
import { type InputRequired, isInputRequired } from '../tool/input-required.ts'
import type { Target } from '../tool/target.ts'
import { concludeArguments, concludeRefused, concludeReturned, concludeThrew } from './conclude.ts'
import type { FlowHost, RoundEvent } from './flow-host.ts'
import { manualDigests } from './manual.ts'
import { bind, openRound } from './open-round.ts'
import { logRound, type Round, toReplayInput } from './round.ts'

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
  const beginning = openRound(host, call, principal)
  const round: Round = { host, call, target, principal, line, beginning, began }
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

function suspendAsking(round: Round, report: RunReport, questions: readonly [string, OpenQuestion][]): Reply {
  const asked = Object.fromEntries(questions.map(([key, { digest }]) => [key, digest]))
  const inputRequests = Object.fromEntries(questions.map(([key, { request }]) => [key, request]))
  const asks = questions.map(([key, { kind }]) => ({ key, kind }))
  const { journal } = report
  return suspend(round, report, { journal, asked, inputRequests }, { outcome: 'input_required', asks })
}

function suspendManually(round: Round, report: RunReport, needs: InputRequired): Reply {
  const asked = manualDigests(round.host, needs, round.call.capabilities)
  if (asked instanceof RondoError) return concludeRefused(round, report, asked)
  const asks = Object.keys(asked).map((key) => ({ key, kind: 'manual' as const }))
  const journal = { ...report.journal, manual: needs.requestState }
  const { inputRequests } = needs
  return suspend(round, report, { journal, asked, inputRequests }, { outcome: 'input_required', asks })
}

/** Seals what happened so far and hands it to the client. */
function suspend(
  round: Round,
  report: RunReport,
  { journal, asked, inputRequests }: Suspension,
  facts: Pick<RoundEvent, 'outcome' | 'asks' | 'moved'>,
): Reply {
  const { host, call, target, principal, beginning } = round
  const now = host.platform.now()
  const { flow, flowExpires } = beginning
  const sealed = sealState(
    host.keys.ring,
    host.audience,
    {
      issuedAt: now,
      roundExpires: Math.min(now + host.limits.roundTtlMs, flowExpires),
      flowExpires,
      flow,
      round: beginning.round,
      method: call.method,
      toolVersion: target.version,
      protocolVersion: call.protocolVersion,
      asked,
      journal,
      ...bind(call, principal),
    },
    host.limits,
  )
  if (sealed.kind === 'too-large') return concludeRefused(round, report, tooLarge(sealed.bytes, host))
  const { bytes, keyId, token } = sealed
  if (bytes > host.limits.warnBytes) warnSize(host, target, bytes)
  logRound(round, report, { ...facts, stateBytes: bytes, keyId })
  return { kind: 'input_required', inputRequests, requestState: token }
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

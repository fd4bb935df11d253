/** What others learn of a round besides its line in the log (`round.ts`): its faults, warnings, and telemetry if there is any. */

import { RondoError } from '../errors.ts'
import type { Journal } from '../journal/journal.ts'
import type { FlowMethod } from '../protocol/call.ts'
import type { Observed, ObservedOperation, OperationEnd } from '../protocol/observer.ts'
import type { RefusedState } from '../seal/state.ts'
import type { Target } from '../tool/target.ts'
import type { Round, RoundRequest } from './carrier.ts'
import type { FlowHost, RunningRound, StateRefusedEvent, TaskPlace } from './host.ts'

export function logFault(round: Round, error: unknown): void {
  round.host.log({ event: 'fault', ...placeOf(round), ...subjectOf(round), error })
}

/** What a line about this round is about. The URI of a template contains what its caller chose, so the template is named. */
export function subjectOf({ call, target }: Pick<RunningRound, 'call' | 'target'>): {
  method: FlowMethod
  target: string
} {
  return { method: call.method, target: target.label ?? call.target }
}

/** Logs why a state did not open. The client does not learn it. */
export function logStateRefused(
  host: FlowHost,
  opened: Omit<RefusedState, 'kind' | 'reason'> & { readonly reason: string },
  request: Pick<StateRefusedEvent, 'method' | 'target'> = {},
): void {
  const { reason, keyId, flow, round } = opened
  const place = flow === undefined || round === undefined ? {} : { flow, round: round + 1 }
  host.log({ event: 'state_refused', ...place, ...request, reason, keyId })
}

/** Where a line about this round belongs. */
export function placeOf({ beginning, task }: Pick<RunningRound, 'beginning' | 'task'>): {
  flow: string
  round: number
} & Partial<TaskPlace> {
  return { flow: beginning.flow, round: beginning.round, ...task }
}

/** Tells telemetry that a round begins. */
export function observeRound(round: Round): Observed | undefined {
  return round.host.observer?.begin?.(toOperation(round))
}

/** How telemetry sees a round that failed. */
export function toEnd(error: unknown): OperationEnd {
  if (!(error instanceof RondoError)) return { outcome: 'refused', code: 'SERVER_INTERNAL' }
  return { outcome: 'refused', code: error.code, rpc: error.rpc }
}

/** A request that was refused before its round began, because its state did not open. */
export function observeRefused(request: RoundRequest, began: number, error: unknown): void {
  const operation = { kind: 'request' as const, ...requestOf(request), began }
  request.host.observer?.begin?.(operation)?.end(toEnd(error))
}

function requestOf({
  call,
  target,
}: RoundRequest): Pick<ObservedOperation, 'method' | 'target' | 'requestId' | 'protocolVersion' | 'trace'> {
  const { id: requestId, method, protocolVersion, trace } = call
  // The URI of a resource may contain arguments.
  const name = method === 'resources/read' ? undefined : target.name
  return { method, target: name, requestId, protocolVersion, trace }
}

function toOperation(round: Round): ObservedOperation {
  const { beginning, task, wokenBy, began } = round
  const { askedAt, journal } = beginning
  return {
    kind: task ? 'turn' : 'round',
    ...requestOf(round),
    began,
    ...placeOf(round),
    spans: journal.spans,
    wokenBy,
    waitedMs: askedAt === undefined ? undefined : Math.max(0, began - askedAt),
  }
}

/** The spans that the next round, on whatever instance, links to. */
export function spansOf({ beginning, observed }: Round): Pick<Journal, 'spans'> {
  const { spans } = beginning.journal
  const span = observed?.span
  if (span === undefined) return spans ? { spans } : {}
  return { spans: [spans?.[0] ?? span, span] }
}

/** Targets that were told about: each is told once. */
const advised = new WeakSet<Target>()

/** Says once for each target that its handler creates schemas that could outlive it. */
export function adviseHoisting({ host, target, beginning, task }: Round, keys: readonly string[]): void {
  if (advised.has(target)) return
  advised.add(target)
  const [is, them] =
    keys.length === 1 ? ['schema of the question', 'it'] : ['schemas of the questions', 'them']
  const names = keys.map((key) => `"${key}"`).join(', ')
  const message =
    `"${target.name}" creates the ${is} ${names} in its handler, again in every round. ` +
    `Creating ${them} once, outside the handler, costs less.`
  host.log({ event: 'warning', ...placeOf({ beginning, task }), message })
}

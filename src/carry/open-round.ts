/**
 * Where a round begins: with what was sealed before, or with an empty journal.
 *
 * R1 Nothing of a handler runs before the state that came with the request has passed every check.
 */

import { RondoError } from '../errors.ts'
import type { Journal } from '../journal/journal.ts'
import type { FlowCall, Principal } from '../protocol/call.ts'
import { principalTag, requestDigest } from '../seal/binding.ts'
import type { Claims } from '../seal/claims.ts'
import { openKept } from './continuation.ts'
import type { FlowHost } from './flow-host.ts'
import type { OpenedStored } from './stored-state.ts'

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

export function bind(call: FlowCall, principal: Principal | undefined): Binding {
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
export function openRound(
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

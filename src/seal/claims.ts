/**
 * What is inside a `requestState`, and its JSON form.
 *
 * Decoding trusts nothing: the bytes are authentic, but they may come from another version of this package. A member
 * of the claims that is not known is refused, since it may be a binding this version would not check. Maps that are
 * keyed by names from elsewhere come back without a prototype.
 */

import type { Journal } from '../journal/journal.ts'
import { isCount, isRecord, isText, isTime, toMap } from './narrow.ts'
import { narrowJournal } from './narrow-journal.ts'
import { narrowTurn, type TurnClaims } from './turn-claims.ts'

export interface Claims {
  /** When this state was sealed, ms since the epoch. */
  readonly issuedAt: number
  /** From this moment on, ms since the epoch, the round is refused. */
  readonly roundExpires: number
  /** From this moment on the whole flow is refused, whatever its rounds say. */
  readonly flowExpires: number
  readonly flow: string
  readonly round: number
  /** From `principalTag`. */
  readonly principal: string
  readonly method: string
  /** From `requestDigest`. */
  readonly request: string
  readonly toolVersion?: string
  readonly protocolVersion: string
  /** Digests of the questions asked in this round, by key. */
  readonly asked: Readonly<Record<string, string>>
  readonly journal: Journal
  /** Only in a state that does not come back with its request. */
  readonly turn?: TurnClaims
}

const MEMBERS: ReadonlySet<string> = new Set<keyof Claims>([
  'issuedAt',
  'roundExpires',
  'flowExpires',
  'flow',
  'round',
  'principal',
  'method',
  'request',
  'toolVersion',
  'protocolVersion',
  'asked',
  'journal',
  'turn',
])

export function encodeClaims(claims: Claims): string {
  return JSON.stringify(claims)
}

export function decodeClaims(text: string): Claims | undefined {
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch {
    return undefined
  }
  return isRecord(value) ? narrowClaims(value) : undefined
}

function narrowClaims(value: Record<string, unknown>): Claims | undefined {
  if (!Object.keys(value).every((member) => MEMBERS.has(member))) return undefined
  const { issuedAt, roundExpires, flowExpires, flow, round } = value
  const { principal, method, request, toolVersion, protocolVersion } = value
  if (!isTime(issuedAt) || !isTime(roundExpires) || !isTime(flowExpires)) return undefined
  if (!isText(flow) || !isCount(round)) return undefined
  if (!isText(principal) || !isText(method) || !isText(request)) return undefined
  if (!isText(protocolVersion)) return undefined
  if (toolVersion !== undefined && !isText(toolVersion)) return undefined
  const asked = toMap(value.asked, (digest) => (isText(digest) ? digest : undefined))
  const journal = narrowJournal(value.journal)
  if (asked === undefined || journal === undefined) return undefined
  const turn = value.turn === undefined ? undefined : narrowTurn(value.turn)
  if (value.turn !== undefined && turn === undefined) return undefined
  return {
    issuedAt,
    roundExpires,
    flowExpires,
    flow,
    round,
    principal,
    method,
    request,
    ...(toolVersion === undefined ? {} : { toolVersion }),
    protocolVersion,
    asked,
    journal,
    ...(turn === undefined ? {} : { turn }),
  }
}

/**
 * The answers of a turn, and the journal they belong to.
 *
 * R1 Nothing runs unless every state that came passes every check: sealed by this service, for this principal, in time,
 * and for the turn that the client names. An answer counts only if the state it came with asked for it. One that came
 * without any state finds its turn in the memory of this instance, or in the store, and passes the same checks.
 */

import { RondoError } from '../errors.ts'
import { fromState } from '../protocol/draft-turns/state.ts'
import type { TurnAnswer, TurnAnswers } from '../protocol/draft-turns/turn.ts'
import type { Claims } from '../seal/claims.ts'
import { type ExpectedTurn, openState } from '../seal/state.ts'
import type { TurnClaims } from '../seal/turn-claims.ts'
import { openKept } from './continuation.ts'
import type { FlowHost } from './flow-host.ts'
import { turnName } from './keep-turn.ts'
import type { OpenedStored } from './stored-state.ts'
import type { TurnMemory } from './turn-memory.ts'

export interface OpenedTurn {
  readonly kind: 'open'
  readonly claims: Claims & { readonly turn: TurnClaims }
  /** Answers by the keys of their questions. */
  readonly answers: Readonly<Record<string, unknown>>
  /** A question was answered with an error. */
  readonly failed?: RondoError
  /** The error says that the client does not know the method after all. */
  readonly unable?: boolean
  /** Every answer brought its state. */
  readonly echoed: boolean
}

export interface RefusedTurn {
  readonly kind: 'refused'
  readonly reason: string
  readonly keyId?: string
}

/** The states of a POST, opened once each, by what they hold. */
type Opened = ReadonlyMap<string | undefined, Claims>

export async function openTurn(
  host: FlowHost,
  memory: TurnMemory,
  { answers }: TurnAnswers,
  expected: ExpectedTurn,
): Promise<OpenedTurn | RefusedTurn> {
  const opened = await openStates(host, memory, answers, expected)
  if (!(opened instanceof Map)) return opened as RefusedTurn
  const [first] = opened.values()
  if (first?.turn === undefined) return { kind: 'refused', reason: 'missing' }
  return assign({ ...first, turn: first.turn, asked: unite(opened.values()) }, answers, opened)
}

async function openStates(
  host: FlowHost,
  memory: TurnMemory,
  answers: readonly TurnAnswer[],
  expected: ExpectedTurn,
): Promise<Opened | RefusedTurn> {
  const opened = new Map<string | undefined, Claims>()
  for (const { state, index } of answers) {
    if (state === undefined) continue
    const sealed = fromState(state)
    if (sealed === undefined) return { kind: 'refused', reason: 'encoding' }
    if (opened.has(sealed)) continue
    const result = await openKept(host, sealed, expected, namesOf(expected.turn, index))
    if (result.kind === 'refused') return result
    opened.set(sealed, result.claims)
  }
  const without = answers.filter(({ state }) => state === undefined)
  if (opened.size > 0 && without.length === 0) return opened
  const recalled = await recall(host, memory, without, expected)
  if (recalled.kind === 'open') opened.set(undefined, recalled.claims)
  else if (opened.size === 0) return recalled
  return opened
}

/** A state stands for its whole turn, or for the one question it went out with. */
function namesOf(turn: string, index: number): readonly string[] {
  return [turnName(turn), turnName(turn, index)]
}

/** For answers that came without a state: what was kept of their turn here, or in the store. */
async function recall(
  host: FlowHost,
  memory: TurnMemory,
  answers: readonly TurnAnswer[],
  expected: ExpectedTurn,
): Promise<OpenedStored> {
  const { keys, audience, limits } = host
  const remembered = memory.recall(expected.turn)
  const found =
    remembered.length > 0
      ? remembered.map((token) => openState(keys.ring, audience, token, expected, limits))
      : await findStored(host, answers, expected)
  const open = found.filter((one) => one.kind === 'open')
  const [first] = open
  if (first === undefined) return found[0] ?? { kind: 'refused', reason: 'missing' }
  const asked = unite(open.map(({ claims }) => claims))
  return { ...first, claims: { ...first.claims, asked } }
}

async function findStored(
  host: FlowHost,
  answers: readonly TurnAnswer[],
  expected: ExpectedTurn,
): Promise<readonly OpenedStored[]> {
  if (!host.continuation) return []
  const whole = await openKept(host, undefined, expected, [turnName(expected.turn)])
  if (whole.kind === 'open' || whole.reason !== 'missing') return [whole]
  return Promise.all(
    answers.map(({ index }) => openKept(host, undefined, expected, [turnName(expected.turn, index)])),
  )
}

function unite(opened: Iterable<Claims>): Claims['asked'] {
  return Object.assign(Object.create(null), ...Array.from(opened, ({ asked }) => asked))
}

function assign(
  claims: OpenedTurn['claims'],
  given: readonly TurnAnswer[],
  opened: Opened,
): OpenedTurn | RefusedTurn {
  const answers: Record<string, unknown> = Object.create(null)
  let failed: RondoError | undefined
  let unable = false
  for (const { index, state, answer } of given) {
    const key = claims.turn.keys[index]
    // The response to a ping, which only carried the state.
    if (key === undefined) continue
    const own = opened.get(state === undefined ? undefined : fromState(state)) ?? claims
    if (!Object.hasOwn(own.asked, key)) return { kind: 'refused', reason: 'question' }
    if (answer.kind === 'result') answers[key] = answer.result
    else {
      failed ??= toFailure(key, answer)
      unable ||= answer.code === METHOD_NOT_FOUND
    }
  }
  return { kind: 'open', claims, answers, ...(failed && { failed, unable }), echoed: !opened.has(undefined) }
}

const METHOD_NOT_FOUND = -32601

function toFailure(key: string, { code, message }: { code: number; message: string }): RondoError {
  return new RondoError('INPUT_FAILED', `The client did not answer "${key}": ${message || `error ${code}`}`)
}

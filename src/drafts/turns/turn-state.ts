/**
 * The answers of a turn, and the journal they belong to.
 *
 * R1 Nothing runs unless every state that came passes every check: sealed by this service, for this principal, in time,
 * and for the turn that the client names. An answer counts only if the state it came with asked for it. One that came
 * without any state finds its turn in the memory of this instance, or in the store, and passes the same checks.
 */

import { hash } from 'node:crypto'
import type { FlowHost, OpenedStored } from '../../carry/host.ts'
import { toHandle } from '../../carry/migration.ts'
import { RondoError } from '../../errors.ts'
import type { InputRequests } from '../../protocol/wire.ts'
import {
  type Claims,
  type ExpectedTurn,
  openState,
  type SealedState,
  type TurnClaims,
} from '../../seal/state.ts'
import { fromState, type StateForm, type Turn, type TurnAnswer, type TurnAnswers, toState } from './wire.ts'

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
    const result = await host.states.open(host, sealed, expected, namesOf(expected.turn, index))
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
  if (!host.states.stores) return []
  const whole = await host.states.open(host, undefined, expected, [turnName(expected.turn)])
  if (whole.kind === 'open' || whole.reason !== 'missing') return [whole]
  return Promise.all(
    answers.map(({ index }) => host.states.open(host, undefined, expected, [turnName(expected.turn, index)])),
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

/*
 * Ends a round as a turn: seals the journal together with the request, and puts the state on the questions.
 *
 * F3 With `shared` every question of the turn has the same state; with `per-request` each has its own, which holds the
 * whole journal and counts for its question alone. Without a question to put it on, the state goes on a ping.
 */

export interface TurnsOptions {
  /** One state for all questions of a turn, or one for each. Default: `shared`. */
  state?: 'shared' | 'per-request'
  /** How a state travels. Default: `string`. */
  form?: StateForm
}

export type KeptTurn =
  | {
      readonly kind: 'kept'
      readonly turn: Turn
      /** Every state of the turn, as it went out or would have. */
      readonly tokens: readonly string[]
      readonly bytes: number
      readonly keyId: string
    }
  | { readonly kind: 'too-large'; readonly bytes: number }

const PING = { method: 'ping' } as const

export async function keepTurn(
  host: FlowHost,
  plain: Claims,
  request: Omit<TurnClaims, 'keys'>,
  inputRequests: InputRequests | undefined,
  options: Required<TurnsOptions> & { readonly echoes: boolean },
): Promise<KeptTurn> {
  const entries = Object.entries(inputRequests ?? {})
  const claims = { ...plain, turn: { ...request, keys: entries.map(([key]) => key) } }
  const sealed = await sealStates(host, claims, options)
  const [first] = sealed
  const refused = sealed.find((state) => state.kind === 'too-large')
  if (refused !== undefined || first?.kind !== 'sealed')
    return { kind: 'too-large', bytes: refused?.bytes ?? 0 }
  const tokens = sealed.flatMap((state) => (state.kind === 'sealed' ? [state.token] : []))
  const states = tokens.map((token) => (options.echoes ? toState(token, options.form) : undefined))
  const requests = entries.length > 0 ? entries.map(([, one]) => one) : [PING]
  const turn: Turn = {
    id: request.id,
    requests: requests.map((one, index) => {
      const state = states[index] ?? states[0]
      return state === undefined ? { request: one } : { request: one, state }
    }),
  }
  return { kind: 'kept', turn, tokens, bytes: first.bytes, keyId: first.keyId }
}

/** One state, or one for each question. What is stored is found by the name of the turn, also if no state comes back. */
async function sealStates(
  host: FlowHost,
  claims: Claims & { turn: TurnClaims },
  { state, echoes }: Required<TurnsOptions> & { readonly echoes: boolean },
): Promise<readonly SealedState[]> {
  const { id, keys } = claims.turn
  if (!echoes || state === 'shared' || keys.length < 2)
    return [await host.states.keep(host, claims, turnName(id))]
  const alone = keys.map((key) => ({ ...claims, asked: { [key]: claims.asked[key] ?? '' } }))
  return Promise.all(alone.map((one, index) => host.states.keep(host, one, turnName(id, index))))
}

/** What the stored state of a turn is filed under, or that of one of its questions where each has its own. */
function turnName(turn: string, index?: number): string {
  return toHandle(index === undefined ? turn : `${turn}_${index + 1}`)
}

/*
 * What this instance remembers for clients that do not bring their state back: the states of a turn, sealed as they went
 * out, by the turn's id. Whoever asks for a turn passes the same checks as with a state.
 *
 * T1 Bounded in bytes: where there are too many, the oldest is forgotten. T2 Nothing is remembered for a client that has
 * shown that it echoes, and what was remembered of a turn is forgotten when its state comes back.
 */

export interface TurnMemory {
  /** `until` is when the turn ends, ms since the epoch. */
  remember(turn: string, states: readonly string[], until: number): void
  /** The states of a turn, or nothing. */
  recall(turn: string): readonly string[]
  /** The state of a turn came back from the client of this session. */
  sawEcho(turn: string, session: string | undefined): void
  /** True if the client of this session has brought a state back before. */
  echoes(session: string | undefined): boolean
  /** Held for turns. */
  readonly bytes: number
}

interface Remembered {
  readonly states: readonly string[]
  readonly until: number
  readonly bytes: number
}

/** What an entry costs beside its states. */
const OVERHEAD = 256
/** Sessions of which it is known that they echo; 64 bytes or so each. */
const MAX_ECHOING = 10_000

export function createTurnMemory(maxBytes: number, now: () => number): TurnMemory {
  // In the order in which they came; as all live equally long at most, the first to end are at the front.
  const turns = new Map<string, Remembered>()
  const echoing = new Set<string>()
  let held = 0

  const forget = (turn: string): void => {
    held -= turns.get(turn)?.bytes ?? 0
    turns.delete(turn)
  }

  const makeRoom = (): void => {
    for (const [turn, { until }] of turns) {
      if (held <= maxBytes && until > now()) return
      forget(turn)
    }
  }

  return {
    remember(turn, states, until) {
      const bytes = states.reduce((sum, { length }) => sum + length, OVERHEAD)
      if (bytes > maxBytes) return
      forget(turn)
      turns.set(turn, { states, until, bytes })
      held += bytes
      makeRoom()
    },
    recall: (turn) => turns.get(turn)?.states ?? [],
    sawEcho(turn, session) {
      forget(turn)
      if (session === undefined) return
      const name = nameOf(session)
      echoing.delete(name)
      echoing.add(name)
      const [oldest] = echoing
      if (echoing.size > MAX_ECHOING && oldest !== undefined) echoing.delete(oldest)
    },
    echoes: (session) => session !== undefined && echoing.has(nameOf(session)),
    get bytes() {
      return held
    },
  }
}

function nameOf(session: string): string {
  return hash('sha256', session, 'base64url')
}

/**
 * The state of a turn: the journal, sealed together with the request that the responses belong to, since the client does
 * not repeat it. It is the extension of the claims.
 *
 * R1 Nothing runs unless every state that came passes every check: sealed by this service, for this principal, in time,
 * and for the turn that the client names. A response counts only if the state it came with asked for it. The turn of a
 * response without a state is looked up in this instance's memory, or in the store, and passes the same checks.
 *
 * F3 With `shared`, every question of the turn has the same state; with `per-request`, each has its own, which holds the
 * whole journal and counts for its question alone. If there is no question to carry the state, a ping does.
 */

import { hash } from 'node:crypto'
import type { FlowHost, OpenedStored } from '../../carry/host.ts'
import { toHandle } from '../../carry/migration.ts'
import { RondoError } from '../../errors.ts'
import { isRecord, isText } from '../../lib/json.ts'
import { defineOptions, type OptionSet, type OptionsOf, oneOf } from '../../options.ts'
import { isRequestId } from '../../protocol/common/request-id.ts'
import type { InputRequests } from '../../protocol/wire.ts'
import {
  type Claims,
  type ExpectedExtension,
  openState,
  type SealedState,
  type SealFacts,
  type TooLarge,
} from '../../seal/state.ts'
import {
  fromState,
  type StateForm,
  type TurnAnswer,
  type TurnAnswers,
  type TurnRequests,
  toState,
} from './wire.ts'

export interface TurnsOptions {
  /** `shared`: one state for all questions of a turn; `per-request`: one per question. Default: `shared`. */
  state?: 'shared' | 'per-request'
  /** `string` or `object`: how the server sends a state. It accepts both. Default: `string`. */
  form?: StateForm
}

export const TURNS: OptionSet<OptionsOf<Required<TurnsOptions>>> = defineOptions('turns', {
  state: oneOf(['shared', 'per-request'], 'shared'),
  form: oneOf(['string', 'object'], 'string'),
})

/** The request that a turn belongs to, as the state holds it. */
export interface TurnClaims {
  /** Names the turn; the client names it beside the state. */
  readonly id: string
  readonly requestId: string | number
  readonly target: string
  readonly args: Readonly<Record<string, unknown>>
  readonly progressToken?: string | number
  /** The last progress that was reported under that token. */
  readonly progress?: number
  /** The questions of the turn in the order in which they went out; those of `asked` are among them. */
  readonly keys: readonly string[]
}

/** The facts of the request at hand; the state of its turn must contain the same. */
export interface ExpectedTurn extends Omit<ExpectedExtension, 'accepts'> {
  readonly turn: string
}

export interface OpenedTurn {
  readonly kind: 'open'
  readonly claims: Claims
  readonly request: TurnClaims
  /** Responses by the keys of their questions. */
  readonly answers: Readonly<Record<string, unknown>>
  /** A response was an error. */
  readonly failed?: RondoError
  /** The error says that the client does not implement the method. */
  readonly unable?: boolean
  /** Every response brought its state. */
  readonly echoed: boolean
}

export interface RefusedTurn {
  readonly kind: 'refused'
  readonly reason: string
  readonly keyId?: string
  /** The call, if the state is one of this service. */
  readonly flow?: string
  readonly round?: number
}

/** The states of a POST, opened once each, by their sealed text. */
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
  const request = readTurnClaims(first?.extension)
  if (!first || !request) return { kind: 'refused', reason: 'missing' }
  return assign({ ...first, asked: unite(opened.values()) }, request, answers, opened)
}

/** Undefined for the extension of a state that is not a turn's. */
function readTurnClaims(value: unknown): TurnClaims | undefined {
  if (!isRecord(value)) return undefined
  const { id, requestId, target, args, progressToken, progress, keys } = value
  if (!isText(id) || !isRequestId(requestId) || !isText(target) || !isRecord(args)) return undefined
  if (progressToken !== undefined && !isRequestId(progressToken)) return undefined
  if (progress !== undefined && !Number.isFinite(progress)) return undefined
  if (!Array.isArray(keys) || !keys.every(isText)) return undefined
  return {
    id,
    requestId,
    target,
    args,
    ...(progressToken === undefined ? {} : { progressToken }),
    ...(progress === undefined ? {} : { progress: progress as number }),
    keys,
  }
}

/** The facts that the seal compares. */
function toExpected({ turn, ...expected }: ExpectedTurn): ExpectedExtension {
  return { ...expected, accepts: (extension) => readTurnClaims(extension)?.id === turn }
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
    // A state counts for its whole turn, or for the one question it went out with.
    const names = [turnName(expected.turn), turnName(expected.turn, index)]
    const result = await host.states.open(host, sealed, toExpected(expected), names)
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

/** For responses without a state: what this instance or the store kept of their turn. */
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
      ? remembered.map((token) => openState(keys.ring, audience, token, toExpected(expected), limits))
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
  const find = async (name: string) => host.states.open(host, undefined, toExpected(expected), [name])
  const whole = await find(turnName(expected.turn))
  if (whole.kind === 'open' || whole.reason !== 'missing') return [whole]
  return Promise.all(answers.map(({ index }) => find(turnName(expected.turn, index))))
}

function unite(opened: Iterable<Claims>): Claims['asked'] {
  return Object.assign(Object.create(null), ...Array.from(opened, ({ asked }) => asked))
}

function assign(
  claims: Claims,
  request: TurnClaims,
  given: readonly TurnAnswer[],
  opened: Opened,
): OpenedTurn | RefusedTurn {
  const answers: Record<string, unknown> = Object.create(null)
  let failed: RondoError | undefined
  let unable = false
  for (const { index, state, answer } of given) {
    const key = request.keys[index]
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
  const echoed = !opened.has(undefined)
  return { kind: 'open', claims, request, answers, ...(failed && { failed, unable }), echoed }
}

const METHOD_NOT_FOUND = -32601

function toFailure(key: string, { code, message }: { code: number; message: string }): RondoError {
  return new RondoError('INPUT_FAILED', `The client did not answer "${key}": ${message || `error ${code}`}`)
}

export interface SealedTurn extends SealFacts {
  readonly kind: 'sealed'
  readonly turn: TurnRequests
  /** Every state of the turn, even those that the client does not get. */
  readonly tokens: readonly string[]
}

const PING = { method: 'ping' } as const

/** Ends a round as a turn: seals the journal together with the request, and attaches the state to the questions. */
export async function sealTurn(
  host: FlowHost,
  plain: Claims,
  request: Omit<TurnClaims, 'keys'>,
  inputRequests: InputRequests | undefined,
  options: Required<TurnsOptions> & { readonly echoes: boolean },
): Promise<SealedTurn | TooLarge> {
  const entries = Object.entries(inputRequests ?? {})
  const sealed = await sealStates(host, plain, { ...request, keys: entries.map(([key]) => key) }, options)
  const [first] = sealed
  const refused = sealed.find((state) => state.kind === 'too-large')
  if (refused !== undefined || first?.kind !== 'sealed')
    return { kind: 'too-large', bytes: refused?.bytes ?? 0 }
  const tokens = sealed.flatMap((state) => (state.kind === 'sealed' ? [state.token] : []))
  const states = tokens.map((token) => (options.echoes ? toState(token, options.form) : undefined))
  const requests = entries.length > 0 ? entries.map(([, one]) => one) : [PING]
  const turn: TurnRequests = {
    id: request.id,
    requests: requests.map((one, index) => {
      const state = states[index] ?? states[0]
      return state === undefined ? { request: one } : { request: one, state }
    }),
  }
  return { kind: 'sealed', turn, tokens, bytes: first.bytes, keyId: first.keyId }
}

/** One state, or one for each question. A stored state is filed under the name of its turn, so it is found without the state. */
async function sealStates(
  host: FlowHost,
  plain: Claims,
  turn: TurnClaims,
  { state, echoes }: Required<TurnsOptions> & { readonly echoes: boolean },
): Promise<readonly SealedState[]> {
  const { id, keys } = turn
  const claims: Claims = { ...plain, extension: turn }
  if (!echoes || state === 'shared' || keys.length < 2)
    return [await host.states.keep(host, claims, turnName(id))]
  const alone = keys.map((key) => ({ ...claims, asked: { [key]: claims.asked[key] ?? '' } }))
  return Promise.all(alone.map((one, index) => host.states.keep(host, one, turnName(id, index))))
}

/** The name under which the state of a turn is stored, or that of one question where each has its own. */
function turnName(turn: string, index?: number): string {
  return toHandle(index === undefined ? turn : `${turn}_${index + 1}`)
}

// The memory of an instance for clients that do not echo the state: the states of a turn, sealed as they went out, by the
// turn's id. A turn that is recalled passes the same checks as one whose state came back.
//
// memory 1: It is bounded in bytes; the oldest turn is evicted first.
// memory 2: Nothing is remembered for a client that has echoed a state before, and a turn is forgotten once its state
// comes back.

export interface TurnMemory {
  /** `until` is when the turn expires, ms since the epoch. */
  remember(turn: string, states: readonly string[], until: number): void
  /** The states of a turn; empty if it is not remembered. */
  recall(turn: string): readonly string[]
  /** Records that the client of this session echoed the state of a turn. */
  sawEcho(turn: string, session: string | undefined): void
  /** True if the client of this session has echoed a state before. */
  echoes(session: string | undefined): boolean
  /** Bytes held for turns. */
  readonly bytes: number
}

interface Remembered {
  readonly states: readonly string[]
  readonly until: number
  readonly bytes: number
}

/** The bytes that an entry costs besides its states. */
const OVERHEAD = 256
/** Sessions that are known to echo, at about 64 bytes each. */
const MAX_ECHOING = 10_000

export function createTurnMemory(maxBytes: number, now: () => number): TurnMemory {
  // In order of arrival. No turn lives longer than another may, so those that expire first are at the front.
  const turns = new Map<string, Remembered>()
  const echoing = new Set<string>()
  let held = 0

  const forget = (turn: string): void => {
    held -= turns.get(turn)?.bytes ?? 0
    turns.delete(turn)
  }

  const evict = (): void => {
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
      evict()
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

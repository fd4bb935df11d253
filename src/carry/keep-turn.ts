/**
 * Ends a round as a turn: seals the journal together with the request, and puts the state on the questions.
 *
 * F3 With `shared` every question of the turn has the same state; with `per-request` each has its own, which holds the
 * whole journal and counts for its question alone. Without a question to put it on, the state goes on a ping.
 */

import { type StateForm, toState } from '../protocol/draft-turns/state.ts'
import type { Turn } from '../protocol/draft-turns/turn.ts'
import type { InputRequests } from '../protocol/wire.ts'
import type { Claims } from '../seal/claims.ts'
import type { SealedState } from '../seal/state.ts'
import type { TurnClaims } from '../seal/turn-claims.ts'
import { keepState } from './continuation.ts'
import type { FlowHost } from './flow-host.ts'
import { toHandle } from './stored-state.ts'

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
  if (!echoes || state === 'shared' || keys.length < 2) return [await keepState(host, claims, turnName(id))]
  const alone = keys.map((key) => ({ ...claims, asked: { [key]: claims.asked[key] ?? '' } }))
  return Promise.all(alone.map((one, index) => keepState(host, one, turnName(id, index))))
}

/** What the stored state of a turn is filed under, or that of one of its questions where each has its own. */
export function turnName(turn: string, index?: number): string {
  return toHandle(index === undefined ? turn : `${turn}_${index + 1}`)
}

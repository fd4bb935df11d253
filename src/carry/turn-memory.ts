/**
 * What this instance remembers for clients that do not bring their state back: the states of a turn, sealed as they went
 * out, by the turn's id. Whoever asks for a turn passes the same checks as with a state.
 *
 * T1 Bounded in bytes: where there are too many, the oldest is forgotten. T2 Nothing is remembered for a client that has
 * shown that it echoes, and what was remembered of a turn is forgotten when its state comes back.
 */

import { hash } from 'node:crypto'

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

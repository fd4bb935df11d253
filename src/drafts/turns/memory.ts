/**
 * What an instance remembers for clients that do not echo the state: the states of a turn, sealed as they went out, by the
 * turn's id. A turn that is recalled passes the same checks as one whose state came back.
 *
 * memory 1: It is bounded in bytes; the oldest turn is evicted first.
 * memory 2: Nothing is remembered for a client that has echoed a state before, and a turn is forgotten once its state
 * comes back.
 */

import { hash } from 'node:crypto'

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

/** What an entry costs besides its states. */
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

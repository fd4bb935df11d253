/**
 * Turns that this instance asked, for clients that do not bring their state back. Bounded in bytes: where there are too
 * many, the oldest is forgotten. Whoever asks for a turn passes the same checks as with a state.
 */

import type { Claims } from '../seal/claims.ts'

export interface TurnMemory {
  remember(claims: Claims, bytes: number): void
  recall(turn: string): Claims | undefined
  readonly bytes: number
}

interface Remembered {
  readonly claims: Claims
  readonly bytes: number
}

export function createTurnMemory(maxBytes: number, now: () => number): TurnMemory {
  // In the order in which they came; as all live equally long at most, the first to end are at the front.
  const turns = new Map<string, Remembered>()
  let held = 0

  const forget = (turn: string): void => {
    held -= turns.get(turn)?.bytes ?? 0
    turns.delete(turn)
  }

  const makeRoom = (): void => {
    for (const [turn, { claims }] of turns) {
      if (held <= maxBytes && claims.roundExpires > now()) return
      forget(turn)
    }
  }

  return {
    remember(claims, bytes) {
      if (claims.turn === undefined || bytes > maxBytes) return
      turns.set(claims.turn.id, { claims, bytes })
      held += bytes
      makeRoom()
    },
    recall: (turn) => turns.get(turn)?.claims,
    get bytes() {
      return held
    },
  }
}

/**
 * The part of a stream between `buffer_input` and `input_required`: requests are put by instead of being answered at once,
 * and at the end they are the turn.
 */

import type { StreamEvent } from '../../lib/event-parser.ts'
import { type AskedTurn, askedTurn } from '../../protocol/draft-turns/asked-turn.ts'

type Message = Readonly<Record<string, unknown>>

export interface TurnBuffer {
  /** Looks at an event; gives the turn when this one ends it. */
  mark(event: StreamEvent): AskedTurn | undefined
  /** True if the request was put by. */
  take(request: Message): boolean
}

export function createTurnBuffer(): TurnBuffer {
  let held: Message[] | undefined
  return {
    mark({ event, id = '', data }) {
      if (data !== undefined) return undefined
      if (event === 'buffer_input') held ??= []
      return event === 'input_required' && held ? askedTurn(held, id) : undefined
    },
    take(request) {
      held?.push(request)
      return held !== undefined
    },
  }
}

/**
 * The sealed state as the drafts let it travel: a string, or an object. To a client it is opaque either way, and it
 * comes back exactly as it went: an object with a member more is not the one we gave.
 */

import { isRecord } from '../../lib/is-record.ts'
import type { State } from './turn.ts'

export type StateForm = 'string' | 'object'

export function toState(sealed: string, form: StateForm): State {
  return form === 'string' ? sealed : { sealed }
}

/** What was sealed; undefined for a state that is none of ours. */
export function fromState(state: State): string | undefined {
  if (!isRecord(state)) return state
  const { sealed, ...rest } = state
  return typeof sealed === 'string' && Object.keys(rest).length === 0 ? sealed : undefined
}

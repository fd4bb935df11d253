/**
 * A server may have its own check of states (`requestState.verify`), and tools beside ours that live by it. Ours pass by
 * that check unopened, as an object that shows nothing: they are opened where the arguments are known.
 */

import type { ServerContext } from '@modelcontextprotocol/server'

export type VerifyState = (state: string, ctx: ServerContext) => unknown

/** How all of our states begin: sealed ones, and handles of stored ones. */
const OURS = /^[rh]1\./

export class SealedState {
  readonly #token: string

  constructor(token: string) {
    this.#token = token
  }

  /** The token, if `held` is one of these; anything else as it is. */
  static open(held: unknown): unknown {
    return held instanceof SealedState ? held.#token : held
  }
}

export function besideOurs(verify: VerifyState): VerifyState {
  return (state, ctx) => (OURS.test(state) ? new SealedState(state) : verify(state, ctx))
}

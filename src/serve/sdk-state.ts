/**
 * A server may have its own check of states (`requestState.verify`), and tools beside ours that live by it. States on
 * their way to a callback of ours pass by that check unopened, as an object that shows nothing: they are opened where the
 * arguments are known. How a state begins decides nothing: whoever sends one can write what we write.
 */

import type { ServerContext } from '@modelcontextprotocol/server'
import { isForUs } from './sdk-mount.ts'

export type VerifyState = (state: string, ctx: ServerContext) => unknown

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

/** Hands every state to `verify`, except those that a callback of ours is about to open. */
export function besideOurs(verify: VerifyState): VerifyState {
  return (state, ctx) => (isForUs(ctx) ? new SealedState(state) : verify(state, ctx))
}

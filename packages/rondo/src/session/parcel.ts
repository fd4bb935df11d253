/**
 * The arguments of a call that may have to wait for an answer. While it waits they are kept as text, because as values they may
 * take twenty times as much memory, and they do not count as in flight (N2). The call continues when there is room for them again.
 */

import type { FlowCall } from '../protocol/call.ts'
import { costOf } from '../serve/limits.ts'
import type { Load } from '../serve/port.ts'

export interface Parcel {
  /** The call. It has no arguments while they are put away. */
  readonly call: FlowCall
  /** Returns the arguments, read from their text while they are put away. */
  args(): FlowCall['args']
  /** Puts the arguments away. Returns the bytes that they keep. */
  pack(): number
  /** Resolves when there is room for the arguments and the call has them again. */
  unpack(): Promise<void>
  /** The call has ended. */
  end(): void
}

const NO_ARGS: FlowCall['args'] = {}

/** `weight` is what the arguments weigh, if they do not count yet. */
export function createParcel(
  given: FlowCall,
  load: Load | undefined,
  weight: number = load?.weight ?? 0,
): Parcel {
  // Not a getter: an accessor would give every call a hidden class of its own (see `RunContext`).
  const call: FlowCall & { args: FlowCall['args'] } = { ...given }
  let release = load?.hold()
  let text: string | undefined
  /** The text, while the arguments are put away. */
  let packed: string | undefined
  let hasEnded = false
  const args = (): FlowCall['args'] => (packed === undefined ? call.args : JSON.parse(packed))
  return {
    call,
    args,
    pack() {
      // Only the first time: a handler may change what it was given.
      text ??= JSON.stringify(call.args)
      call.args = NO_ARGS
      packed = text
      release?.()
      return costOf(text)
    },
    async unpack() {
      const held = await load?.reclaim(weight)
      release?.()
      if (hasEnded) return held?.()
      release = held
      call.args = args()
      packed = undefined
    },
    end() {
      hasEnded = true
      release?.()
    },
  }
}

/**
 * The arguments of a call that may have to wait for an answer. While it waits they are kept as text, because as values they may
 * take twenty times as much memory, and they do not count as in flight (N2). The call continues when there is room for them again.
 */

import type { FlowCall } from '../protocol/call.ts'
import { costOf } from '../serve/limits.ts'
import type { Load } from '../serve/port.ts'

export interface Parcel {
  /** The call. Once its arguments have been put away, they are read from their text each time. */
  readonly call: FlowCall
  /** Puts the arguments away. Returns the bytes that they keep. */
  pack(): number
  /** Resolves when there is room for the arguments. */
  unpack(): Promise<void>
  /** The call has ended. */
  end(): void
}

/** `weight` is what the arguments weigh, if they do not count yet. */
export function createParcel(
  given: FlowCall,
  load: Load | undefined,
  weight: number = load?.weight ?? 0,
): Parcel {
  let release = load?.hold()
  let args: FlowCall['args'] | undefined = given.args
  let text = ''
  let hasEnded = false
  return {
    call: {
      ...given,
      get args() {
        return args ?? JSON.parse(text)
      },
    },
    pack() {
      if (args !== undefined) text = JSON.stringify(args)
      args = undefined
      release?.()
      return costOf(text)
    },
    async unpack() {
      const held = await load?.reclaim(weight)
      release?.()
      if (hasEnded) held?.()
      else release = held
    },
    end() {
      hasEnded = true
      release?.()
    },
  }
}

/**
 * What a state carries besides its claims where the client comes back with answers alone: the request they are for.
 */

import { isRecord, isText } from './narrow.ts'

export interface TurnClaims {
  /** Names the turn; what the client brings back beside the state names the same. */
  readonly id: string
  readonly requestId: string | number
  readonly target: string
  readonly args: Readonly<Record<string, unknown>>
  readonly progressToken?: string | number
  /** The last progress that was told under that token. */
  readonly told?: number
  /** The questions of the turn in the order in which they went out; those of `asked` are among them. */
  readonly keys: readonly string[]
}

export function narrowTurn(value: unknown): TurnClaims | undefined {
  if (!isRecord(value)) return undefined
  const { id, requestId, target, args, progressToken, told, keys } = value
  if (!isText(id) || !isId(requestId) || !isText(target) || !isRecord(args)) return undefined
  if (progressToken !== undefined && !isId(progressToken)) return undefined
  if (told !== undefined && !Number.isFinite(told)) return undefined
  if (!Array.isArray(keys) || !keys.every(isText)) return undefined
  return {
    id,
    requestId,
    target,
    args,
    ...(progressToken === undefined ? {} : { progressToken }),
    ...(told === undefined ? {} : { told: told as number }),
    keys,
  }
}

function isId(value: unknown): value is string | number {
  return isText(value) || Number.isSafeInteger(value)
}

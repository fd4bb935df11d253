/**
 * What looks random and is the same on every replay: derived from the flow's seed.
 */

import { canonicalJson } from '../lib/canonical-json.ts'
import type { InputRequest } from '../protocol/wire.ts'
import type { RunState } from './run-state.ts'

/**
 * The idempotency key of an effect. `branch` is what the client had said when the handler called it, so that whoever
 * redeems one state twice with different answers gets two keys.
 */
export function effectKey(run: RunState, name: string, branch: string): string {
  const label = branch === '' ? `effect:${name}` : `effect@${branch}:${name}`
  return toHex(run.platform.derive(run.seed, label)).slice(0, 32)
}

/** A digest of what the handler has been given of the client by now, in whatever order; empty if it is nothing. */
export function branchOf({ given, platform }: RunState): string {
  if (given.size === 0) return ''
  const parts: [string, string][] = []
  for (const [name, said] of given) {
    said.digest ??= platform.digest(canonicalJson(said.answer))
    parts.push([name, said.digest])
  }
  return platform.digest(canonicalJson(parts.sort(([a], [b]) => (a < b ? -1 : 1))))
}

/** The request with an id of its page to visit: the same on every replay, and nobody's guess. It is no part of the question. */
export function withElicitationId(
  { platform, seed }: Pick<RunState, 'platform' | 'seed'>,
  key: string,
  request: InputRequest,
): InputRequest {
  if (request.method !== 'elicitation/create' || request.params.mode !== 'url') return request
  const elicitationId = toHex(platform.derive(seed, `elicitation:${key}`)).slice(0, 32)
  return { ...request, params: { elicitationId, ...request.params } }
}

/** Bytes for the nth drawing of the flow, or for a named one. */
function draw(run: RunState, kind: string, name: string | undefined): Uint8Array {
  const label = name === undefined ? `#${run.tally.drawn++}` : `:${name}`
  return run.platform.derive(run.seed, kind + label)
}

function toHex(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('')
}

/** A UUID of version 4. */
export function drawUuid(run: RunState, name: string | undefined): string {
  const hex = toHex(draw(run, 'uuid', name))
  const variant = ((Number.parseInt(hex[16] ?? '0', 16) & 3) | 8).toString(16)
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-4${hex.slice(13, 16)}-${variant}${hex.slice(17, 20)}-${hex.slice(20, 32)}`
}

/** A number in [0, 1). */
export function drawFraction(run: RunState, name: string | undefined): number {
  const bytes = draw(run, 'random', name)
  const view = new DataView(bytes.buffer, bytes.byteOffset)
  return (view.getUint32(0) * 2 ** 21 + (view.getUint32(4) >>> 11)) / 2 ** 53
}

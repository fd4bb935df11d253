/**
 * W9: the operator's decision before a call goes upstream. A confirmation is asked of the caller with the exact arguments, under a
 * reserved key, and its answer never goes upstream. The seal binds it to the caller, the tool and the arguments.
 */

import type { Principal } from 'rondo'

/** The call on which an operator decides. */
export interface DecideFacts {
  readonly upstream: string
  /** The name at the upstream: of the tool or prompt, or a URI. */
  readonly tool: string
  readonly method: 'tools/call' | 'prompts/get' | 'resources/read'
  readonly arguments: Readonly<Record<string, unknown>>
  /** Claims of the upstream about its tool. Not to be trusted as a boundary. */
  readonly annotations: Readonly<Record<string, unknown>>
  readonly principal?: Principal
}

/** `allow`, `confirm` (asks the caller), or a refusal with its reason. */
export type Decision = 'allow' | 'confirm' | 'approve' | 'deny' | { readonly deny: string }

/** Decides on a call. A function that throws denies it. */
export type Decide = (facts: DecideFacts) => Decision | Promise<Decision>

/** Keys that begin so are the gateway's own. */
export const OWN_KEY = 'gateway:'
export const CONFIRM_KEY = 'gateway:confirm'

/** Characters of arguments that a person can be expected to read. */
const MAX_SHOWN = 4_000

/** The question that a confirmation asks. Undefined if the arguments are too long to be shown in full, and so cannot be confirmed. */
export function confirmMessage({ upstream, tool, arguments: args }: DecideFacts): string | undefined {
  const text = JSON.stringify(args, undefined, 2)
  return text.length > MAX_SHOWN ? undefined : `Call ${tool} at ${upstream} with these arguments?\n${text}`
}

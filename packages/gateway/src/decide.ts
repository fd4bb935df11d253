/**
 * W9: the operator's decision before a call goes upstream. A confirmation is asked of the caller with the exact arguments, under a
 * reserved key, and its answer never goes upstream. The seal binds it to the caller, the tool and the arguments. An approval is asked of
 * somebody else; the call waits as a task meanwhile.
 */

import { type Context, type Principal, ToolError } from 'rondo'
import type { ApprovalOptions } from 'rondo/extension'
import { cleanText } from 'rondo/forms'

/** The call on which an operator decides. */
export interface DecideFacts {
  /** The name of the upstream. */
  readonly upstream: string
  /** The name at the upstream, `deploy` and not `ops_deploy`: of the tool or prompt, or a URI. */
  readonly tool: string
  /** `tools/call`, `prompts/get` or `resources/read`. */
  readonly method: 'tools/call' | 'prompts/get' | 'resources/read'
  /** The arguments of the call. */
  readonly arguments: Readonly<Record<string, unknown>>
  /** Claims of the upstream about its tool, such as `destructiveHint`. Not to be trusted as a boundary. */
  readonly annotations: Readonly<Record<string, unknown>>
  /** The caller. Absent if anonymous. */
  readonly principal?: Principal
}

/**
 * `allow`, `confirm` (asks the caller), `approve` (waits for a decision by somebody else, of the groups in `approvals` or of those named
 * here), or a refusal with its reason.
 */
export type Decision =
  | 'allow'
  | 'confirm'
  | 'approve'
  | { readonly approve: string | readonly string[] }
  | 'deny'
  | { readonly deny: string }

/** Decides on a call. A function that throws denies it. */
export type Decide = (facts: DecideFacts) => Decision | Promise<Decision>

/** How approvals are asked for: the options of `ctx.approve` but for what approvers read. */
export type ApprovalTerms = Omit<ApprovalOptions, 'message' | 'details'>

/** Keys that begin so are the gateway's own. */
export const OWN_KEY = 'gateway:'
const CONFIRM_KEY = 'gateway:confirm'
const APPROVE_KEY = 'gateway:approve'

/** Characters of arguments that a person can be expected to read. */
const MAX_SHOWN = 4_000

/** Characters that are invisible or reorder the text around them. Whoever agrees has to see them. */
const HIDDEN = /(?!\n)[\p{C}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}]/gu

const escaped = (text: string): string =>
  text.replace(/[\s\S]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`)

/** Resolves if the call may go on. Throws a `ToolError` otherwise, or what `decide` throws. */
export async function assertAllowed(
  { decide, approvals }: { readonly decide?: Decide; readonly approvals?: ApprovalTerms },
  facts: DecideFacts,
  ctx: Context,
): Promise<void> {
  if (decide === undefined) return
  const decision = await decide(facts)
  if (decision === 'allow') return
  const { upstream, tool, arguments: args } = facts
  const isSent = ctx.requestState !== undefined
  const nothing = isSent
    ? `It was begun before and does not go on; it may have had effects at "${upstream}".`
    : `Nothing was sent to "${upstream}".`
  // Whatever is returned that is none of these is a No, and a No wins.
  const given: { readonly approve?: string | readonly string[]; readonly deny?: string } =
    typeof decision === 'object' && decision !== null ? decision : {}
  const isApproval = decision === 'approve' || (given.approve !== undefined && given.deny === undefined)
  if (decision !== 'confirm' && !isApproval) {
    const reason = given.deny === undefined ? '' : `: ${given.deny}`
    throw new ToolError(
      `The operator of this gateway does not allow the call of ${tool}${reason}. ${nothing}`,
    )
  }
  const text = JSON.stringify(args, undefined, 2).replace(HIDDEN, escaped)
  if (text.length > MAX_SHOWN)
    throw new ToolError(
      `The arguments of ${tool} are too long to be shown to whoever has to agree. ${nothing}`,
    )
  if (!isApproval) {
    // A name with line breaks could show other arguments than those below it.
    const shown = cleanText(tool, MAX_SHOWN)
    if (await ctx.confirm(CONFIRM_KEY, `Call ${shown} at ${upstream} with these arguments?\n${text}`)) return
    throw new ToolError(`The user did not confirm the call of ${tool}. ${nothing}`)
  }
  const from = given.approve ?? approvals?.from
  if (approvals === undefined || from === undefined)
    throw new ToolError(
      `decide asks for an approval, and this gateway has no approvals: its operator passes approvals: { from } and a store, and uses @rondo/approvals. ${nothing}`,
    )
  const details = { server: upstream, tool, arguments: args }
  await ctx.approve(APPROVE_KEY, { ...approvals, from, message: `Call ${tool} at ${upstream}?`, details })
}

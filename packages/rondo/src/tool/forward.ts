/**
 * Forwarding: a tool, prompt, resource or template that another server offers. Its row is listed as it came, its schemas are
 * not judged here, its result passes unchanged, and development mode never runs it a second time, because a second run would
 * reach the other server again.
 */

import { misuse, RondoError } from '../errors.ts'
import type { FlowMethod, Listing, Principal } from '../protocol/call.ts'
import type { WireError } from '../protocol/reply.ts'
import type { Completion } from '../protocol/wire.ts'
import type { Context } from './context.ts'
import { errorResult, type InputRequired, type Target } from './target.ts'

/** The tools, prompts and resources of another server, and the function that passes calls on to it. */
export interface Forwarded {
  /** Listed as it is. Without it, the entry can be used and is not listed. */
  readonly row?: Readonly<Record<string, unknown>>
  /** Of a template: whether it serves this URI. */
  matches?(uri: string): boolean
  /**
   * Passes a call on, and returns the other server's result, or `inputRequired(…)`. It receives the arguments; of a resource, its
   * `uri`. An `UpstreamError` reaches the caller as the other server sent it.
   */
  run(
    args: Readonly<Record<string, unknown>>,
    ctx: Context,
  ): Promise<Readonly<Record<string, unknown>> | InputRequired>
  /** Suggests values for an argument of a prompt or template. */
  complete?(
    argument: { readonly name: string; readonly value: string },
    known: Readonly<Record<string, string>>,
    principal: Principal | undefined,
  ): Promise<Completion>
  /**
   * Of a resource or template: calls `changed` whenever the resource changes, for this caller, and never before it returns. Returns
   * a function that ends this, or undefined if the resource cannot be watched. Throws if the caller watches too much.
   */
  watch?(uri: string, principal: Principal | undefined, changed: () => void): (() => void) | undefined
}

/**
 * An error of another server, which reaches the caller with its own code, message and data.
 *
 * @example
 * ```ts
 * throw new UpstreamError({ code: -32602, message: 'Unknown tool: search' })
 * ```
 */
export class UpstreamError extends RondoError {
  readonly peer: WireError

  constructor(peer: WireError, options?: { readonly cause?: unknown }) {
    super('PEER_ERROR', peer.message, { ...options, data: peer.data })
    this.name = 'UpstreamError'
    this.peer = peer
  }

  override get rpc(): number {
    return this.peer.code
  }

  override get http(): number {
    return 200
  }

  override get sentence(): string {
    return this.peer.message
  }
}

const METHOD: Readonly<Record<Listing, FlowMethod>> = {
  tools: 'tools/call',
  prompts: 'prompts/get',
  resources: 'resources/read',
  templates: 'resources/read',
}

/** The target of a forwarded entry. `name` is what a call names: a tool, a prompt, or a URI. */
export function forwardTarget(listing: Listing, name: string, { run, watch }: Forwarded): Target {
  const method = METHOD[listing]
  const byUri = method === 'resources/read'
  return {
    method,
    name,
    live: true,
    task: { mode: 'never' },
    ...(watch && byUri && { watch: (principal, changed) => watch(name, principal, changed) }),
    prepare: (args) => ({ kind: 'ready', run: (ctx) => run(byUri ? { uri: name } : args, ctx) }),
    finish: (value) => value as Readonly<Record<string, unknown>>,
    fail: (message) =>
      method === 'tools/call'
        ? { result: errorResult(message) }
        : { error: new RondoError('SERVER_HANDLER', message) },
  }
}

export function assertForwarded(listing: Listing, name: string, forwarded: Forwarded): void {
  if (typeof forwarded?.run !== 'function')
    throw misuse(`Forwarding ${listing} "${name}" needs { run }: a function that passes the call on.`)
}

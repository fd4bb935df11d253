/** What an author says to a mount and to its callbacks, and what handlers are given. */

import type { ServerContext } from '@modelcontextprotocol/server'
import type { FlowMethod } from '../protocol/call.ts'
import type { Context } from '../tool/context.ts'
import type { HostOptions } from './create-host.ts'
import type { FindPrincipal } from './sdk-principal.ts'

export interface RondoOptions extends HostOptions {
  /** Says for whom a request is made. Default: `sub`, `iss` and the client of the verified token, else nobody. */
  principal?: FindPrincipal
}

/** Our context, with theirs at `sdk`. */
export interface SdkContext extends Context {
  /**
   * The official context. Its `requestState()` and `inputResponses` are those of the manual form: opened and bound. There is
   * none in a task, which outlives its request: looking at it there throws.
   */
  readonly sdk: ServerContext
}

export interface CallbackOptions {
  /** Sealed with every open call, and logged when a call that began under another version goes on. */
  version?: string
  /** Each state of a call is taken once; the same request again gets the same reply. Needs a store. */
  once?: boolean
  /**
   * Lets calls become tasks on a server that was given to `rondo.tasks`. `background`: from `ctx.background()` on. `auto`:
   * from the start, where the client can follow one. `always`: only as a task. Default: rounds alone. Needs a store.
   */
  task?: 'background' | 'auto' | 'always'
  /** How long a task of this tool lives. */
  taskTtlMs?: number
  /** How often clients should look at a task of this tool. */
  taskPollMs?: number
}

export interface Definition {
  readonly method: FlowMethod
  readonly handler: (first: never, ctx: SdkContext, variables: never) => unknown
  readonly options: CallbackOptions
}

/** The options of a mount and of its callbacks, and the definition that each callback is made from. Types only. */

import type { ServerContext } from '@modelcontextprotocol/server'
import type { FlowMethod, Principal } from '../protocol/call.ts'
import type { HostOptions } from '../serve/host.ts'
import type { Context } from '../tool/context.ts'
import type { AcceptEvent, Scopes } from '../tool/definition.ts'

/** Finds the caller. `authInfo` names the OAuth client; a state must be bound to the user behind it. */
export type FindPrincipal = (ctx: ServerContext) => Principal | undefined | Promise<Principal | undefined>

/** True if a token with the scope `granted` may do what needs the scope `required`. */
export type Implies = (granted: string, required: string) => boolean

export interface RondoOptions extends HostOptions {
  /** Identifies the caller of a request. Default: `extra.sub`, `extra.iss`, the client id and the scopes of `authInfo`, else anonymous. */
  principal?: FindPrincipal
  /** `(granted, required)`: true if the scope `granted` includes the scope `required`. Default: equal scopes only. */
  implies?: Implies
}

/** Rondo's context, with the official one at `sdk`. */
export interface SdkContext extends Context {
  /**
   * The official context. Its `requestState()` and `inputResponses` are those of the manual form: opened and bound. A task
   * outlives its request and has none: reading this property there throws.
   */
  readonly sdk: ServerContext
}

export interface CallbackOptions {
  /** Sealed with every open call, and logged when a call that began under another version continues. Default: none. */
  version?: string
  /** Each state of a call is accepted once; the same request again gets the same reply. Needs a store. Default: `false`. */
  once?: boolean
  /**
   * On a server that was passed to `rondo.tasks`. `auto`: a task if the client can follow one, rounds otherwise. `always`: only
   * a task. `never`: rounds, even after `ctx.background()`, because a tool is often created for each request, and a task
   * outlives the request. `auto` and `always` need a store. Default: `never`.
   */
  task?: 'never' | 'auto' | 'always'
  /** How long a task of this tool lives. Default: `tasks.ttlMs`. */
  taskTtlMs?: number
  /** How often clients should poll a task of this tool. Default: `tasks.pollMs`. */
  taskPollMs?: number
  /**
   * Functions that check the events of hooks before they take them, by the name of the hook. A function runs where the event is
   * delivered. Default: no check.
   *
   * @see docs/guide/time-and-events.md#refusing-an-event
   */
  accept?: Readonly<Record<string, AcceptEvent>>
  /**
   * The scopes that the caller's token must have, in every round and for the task: a list, or a function of the arguments (of the URI
   * or the variables, for a resource). Not checked without HTTP. Default: none.
   *
   * @see docs/guide/official-server-tasks.md#scopes
   */
  // biome-ignore lint/suspicious/noExplicitAny: a callback's arguments are those of its registration
  scopes?: Scopes<any>
}

export interface Definition {
  readonly method: FlowMethod
  readonly handler: (first: never, ctx: SdkContext, variables: never) => unknown
  readonly options: CallbackOptions
}

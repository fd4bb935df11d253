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
  /** Returns the caller of a request. Default: `sub`, `iss` and the client of the verified token, else nobody. */
  principal?: FindPrincipal
  /** True if a token with the scope `granted` may do what needs the scope `required`. Default: only equal scopes. */
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
  /** Sealed with every open call, and logged when a call that began under another version continues. */
  version?: string
  /** Each state of a call is accepted once; the same request again gets the same reply. Needs a store. */
  once?: boolean
  /**
   * On a server that was passed to `rondo.tasks`. `auto`: a task if the client can follow one, rounds otherwise. `always`: only
   * a task. Default: `never`, even after `ctx.background()`, because a tool is often created for each request, and a task
   * outlives the request. Needs a store.
   */
  task?: 'never' | 'auto' | 'always'
  /** The lifetime of a task of this tool. */
  taskTtlMs?: number
  /** The interval at which clients should poll a task of this tool. */
  taskPollMs?: number
  /** Checks the events of hooks before they take them, by the name of the hook. It runs where the event is delivered. */
  accept?: Readonly<Record<string, AcceptEvent>>
  /**
   * The scopes that the caller's token needs, in every round and for the task: a list, or a function of the arguments (of the URI or
   * the variables, for a resource). Not checked without HTTP.
   */
  // biome-ignore lint/suspicious/noExplicitAny: a callback's arguments are those of its registration
  scopes?: Scopes<any>
}

export interface Definition {
  readonly method: FlowMethod
  readonly handler: (first: never, ctx: SdkContext, variables: never) => unknown
  readonly options: CallbackOptions
}

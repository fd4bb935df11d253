/**
 * Scopes in an official server. Its entrance asks each registration for a challenge before the request is handled, and
 * responds with 403 itself; our callbacks return one. They check again when they run, since not every entrance asks: then
 * a JSON-RPC error is all that is left to send.
 */

import type { McpServer, ServerContext } from '@modelcontextprotocol/server'
import { scopesOfTask } from '../carry/scope.ts'
import { misuse, RondoError } from '../errors.ts'
import type { Principal } from '../protocol/call.ts'
import type { Scopes } from '../tool/definition.ts'
import { assertScopes, scopesOf } from '../tool/target.ts'
import type { Definition, Implies } from './definition.ts'

/** The function that the official entrance calls on a registration before it handles a request. */
export type ScopeChallenge = NonNullable<Parameters<McpServer['registerTool']>[1]['scopeChallenge']>
type Challenged = Awaited<ReturnType<ScopeChallenge>>

/** The registration of a callback, as far as it says how arguments are read. */
export interface RequestReading {
  readonly scopeChallenge?: ScopeChallenge
  readonly resourceTemplate?: { readonly uriTemplate: { match(uri: string): unknown } }
  /** Checks arguments as the official server does. Undefined: they do not fit. */
  read?(args: unknown): Promise<unknown>
}

export function assertScopeOption(scopes: Scopes<never> | undefined): void {
  if (scopes !== undefined && typeof scopes !== 'function') assertScopes('The option scopes', scopes)
}

/** The scopes of a request with these arguments, which were checked already. */
async function requiredBy({ options }: Definition, given: unknown): Promise<readonly string[]> {
  const required = await scopesOf(options.scopes as Scopes<never> | undefined, undefined)?.(given as never)
  return required?.kind === 'scopes' ? required.scopes : []
}

function lacks(
  granted: readonly string[],
  required: readonly string[],
  implies: Implies | undefined,
): boolean {
  return required.some(
    (scope) => !granted.includes(scope) && !(implies && granted.some((one) => implies(one, scope))),
  )
}

/** Throws if the caller may not do what needs these scopes. Without HTTP there is no token. */
function refuseLess(
  ctx: ServerContext,
  principal: Principal | undefined,
  required: readonly string[],
  implies: Implies | undefined,
): void {
  if (required.length === 0 || ctx.http === undefined) return
  const granted = principal?.scopes ?? ctx.http.authInfo?.scopes ?? []
  if (!lacks(granted, required, implies)) return
  throw new RondoError('PEER_SCOPE', undefined, { data: { requiredScopes: required } })
}

export async function assertAllowed(
  definition: Definition,
  given: unknown,
  ctx: ServerContext,
  principal: Principal | undefined,
  implies: Implies | undefined,
): Promise<void> {
  if (definition.options.scopes === undefined) return
  refuseLess(ctx, principal, await requiredBy(definition, given), implies)
}

export function assertTaskAllowed(
  taskId: string,
  ctx: ServerContext,
  principal: Principal | undefined,
  implies: Implies | undefined,
): void {
  refuseLess(ctx, principal, scopesOfTask(taskId), implies)
}

/** The challenge of one callback. `reading` is its registration. */
export function challengeOf(
  definition: Definition,
  implies: Implies | undefined,
  reading: RequestReading,
): ScopeChallenge {
  return async ({ request, authInfo }) => {
    if (authInfo === undefined) return undefined
    const given = await givenBy(definition, (request.params ?? {}) as RequestParams, reading)
    if (given === undefined) return undefined
    return toChallenge(authInfo.scopes, await requiredBy(definition, given), implies)
  }
}

interface RequestParams {
  readonly uri?: unknown
  readonly arguments?: unknown
  readonly taskId?: unknown
}

/** Returns the argument for the author's function: the arguments as the handler gets them, a URI, or the variables of a template. */
async function givenBy(
  { method, options }: Definition,
  params: RequestParams,
  { read, resourceTemplate }: RequestReading,
): Promise<unknown> {
  if (typeof options.scopes !== 'function') return {}
  if (method !== 'resources/read') return read ? read(params.arguments ?? {}) : (params.arguments ?? {})
  const { href } = new URL(String(params.uri))
  return resourceTemplate?.uriTemplate.match(href) ?? new URL(href)
}

function toChallenge(
  granted: readonly string[],
  required: readonly string[],
  implies: Implies | undefined,
): Challenged {
  const [first, ...rest] = required
  if (first === undefined || !lacks(granted, required, implies)) return undefined
  return { scopes: [first, ...rest] }
}

/** Requests about tasks have no registration: they need what the call needed that began the task. */
export function challengeTasks(server: McpServer, implies: Implies | undefined): void {
  const own = server.resolveScopeChallenge
  if (typeof own !== 'function') throw misuse('This version of the official server has no scope challenges.')
  server.resolveScopeChallenge = (context) => {
    const { method, params } = context.request
    const { taskId } = (params ?? {}) as RequestParams
    if (!method.startsWith('tasks/') || typeof taskId !== 'string' || context.authInfo === undefined)
      return own(context)
    return toChallenge(context.authInfo.scopes, scopesOfTask(taskId), implies)
  }
}

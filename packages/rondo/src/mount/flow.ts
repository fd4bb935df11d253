/**
 * Runs a call on an official server: the token carrier, with the official server's request and our callback.
 *
 * R1 The callback opens the state, because it knows the request and the arguments, before anything of the handler runs.
 */

import type { McpServer, ProtocolError, ServerContext } from '@modelcontextprotocol/server'
import { AS_REPLY, aroundRequest } from '../carry/around.ts'
import type { FlowHost, TaskHost } from '../carry/host.ts'
import { observeRequest, placeOfError } from '../carry/report.ts'
import { handleTask } from '../carry/task/call.ts'
import { deliverEvent, type EventDelivery, type HookView, viewHook } from '../carry/task/hook.ts'
import { runRound } from '../carry/token.ts'
import { misuse, RondoError } from '../errors.ts'
import { createEvery } from '../lib/clock.ts'
import { createInFlight } from '../lib/collection.ts'
import { isRecord } from '../lib/json.ts'
import type { Principal } from '../protocol/call.ts'
import type { Reply } from '../protocol/reply.ts'
import type { KeyHolder } from '../seal/key-ring.ts'
import type { ExtendedHost } from '../serve/extension.ts'
import { createSlowHandlers, createWatch } from '../serve/heartbeat.ts'
import { createHost, createTaskWork } from '../serve/host.ts'
import { assertPrincipal } from '../serve/http/authenticate.ts'
import { HOOK_MS, inTime } from '../tool/hook.ts'
import { isOlder, toFlowCall, toLine, toTaskCall } from './call.ts'
import type { Definition, FindPrincipal, RondoOptions } from './definition.ts'
import type { Intercepted } from './intercept.ts'
import { refuse, refuseOlder, toResult, toWire } from './reply.ts'
import { assertAllowed, assertTaskAllowed } from './scope.ts'
import { requestTarget, type SdkTarget, taskTarget } from './target.ts'
import type { TaskAction, TaskTools } from './task-tools.ts'

export interface SdkFlow {
  /** Runs one round of a call. `given` is what the official server passed to the callback before the context. */
  run(
    definition: Definition,
    intercepted: Intercepted,
    ctx: ServerContext,
    given: readonly unknown[],
  ): Promise<unknown>
  answerTask(
    action: TaskAction,
    taskId: unknown,
    ctx: ServerContext,
    server: McpServer['server'],
  ): Promise<unknown>
  deliver(hookId: string, event: unknown): Promise<EventDelivery>
  hook(hookId: string): Promise<HookView>
  /** Starts to work on tasks, if a tool is registered that may become one. */
  work(): void
  drain(): void
  close(): Promise<void>
}

export function createFlow(
  options: RondoOptions & { developer?: () => Principal | undefined },
  keys: KeyHolder,
  tools: TaskTools,
  { steps, approver }: Pick<ExtendedHost, 'steps' | 'approver'>,
): SdkFlow {
  const host = Object.assign(createHost(options, keys), { steps, approver })
  /** For tools that never become tasks, and for servers whose clients could not follow one. */
  const roundsAlone: FlowHost = Object.create(host, { tasks: { value: undefined } })
  const principalOf = findPrincipalOf(options.principal, options.developer)
  const onError = (error: unknown): void => host.log({ event: 'warning', message: 'A timer failed', error })
  const slow = createSlowHandlers(host)
  const inFlight = createInFlight(createWatch({ heartbeatMs: 0, slow, every: createEvery(onError), onError }))
  const warned = new WeakSet<Definition>()
  const warnOfRounds = (definition: Definition, name: string): void => {
    const { task = 'never' } = definition.options
    if (task === 'never' || warned.has(definition)) return
    warned.add(definition)
    const message =
      `The tool "${name}" has the option "task" but runs in rounds only. To let it become a task, pass its server to ` +
      'rondo.tasks first, then register the function that rondo.tool returned, unwrapped, under this name.'
    host.log({ event: 'warning', message })
  }
  const findTool = (name: string) => taskTarget(tools.find(name), name)
  const work = createTaskWork(host, ({ call }) => findTool(call.target), options)
  const startWork = (): void => {
    if (tools.isKnown) work.start()
  }

  return {
    async run(definition, intercepted, ctx, given) {
      const target = requestTarget(definition, intercepted, ctx, given)
      const mayLeave = tools.mayLeave(intercepted.server, target.name, definition)
      if (mayLeave) work.start()
      else warnOfRounds(definition, target.name)
      const active = {}
      inFlight.enter(active)
      try {
        const call = toFlowCall(intercepted, ctx, host.log)
        const principal = await principalOf(ctx)
        await assertAllowed(definition, scopeArguments(definition, given), ctx, principal, options.implies)
        const round = { host: mayLeave ? host : roundsAlone, target, call, principal, line: toLine(ctx) }
        const reply = await aroundRequest<Reply>(steps, call, principal, () => runRound(round), AS_REPLY)
        intercepted.refused = (error) => {
          const message = `The official server rejected the result of "${target.name}": check its shape`
          host.log({ event: 'warning', message, error })
        }
        return toResult(reply, intercepted)
      } catch (error) {
        const refusal = toRefusal(host, error, target)
        const cannotAsk = refusal instanceof RondoError && refusal.code === 'PEER_CAPABILITY'
        return cannotAsk && isOlder(intercepted.server)
          ? refuseOlder(intercepted, refusal)
          : refuse(intercepted, refusal)
      } finally {
        inFlight.leave(active)
      }
    },
    async answerTask(action, taskId, ctx, server) {
      work.start()
      try {
        const call = toTaskCall(action, taskId, ctx, server)
        const principal = await principalOf(ctx)
        assertTaskAllowed(call.taskId, ctx, principal, options.implies)
        const answer = async (): Promise<Reply> =>
          observeRequest(host, call, (observed) => handleTask(host, call, principal, observed?.span))
        return toResult(await aroundRequest(steps, call, principal, answer, AS_REPLY))
      } catch (error) {
        const refusal = toRefusal(host, error)
        throw refusal instanceof RondoError ? toWire(refusal) : refusal
      }
    },
    async deliver(hookId, event) {
      startWork()
      return deliverEvent(host, tasksOf(host), findTool, hookId, event)
    },
    hook: (hookId) => viewHook(host, tasksOf(host), hookId),
    work: startWork,
    drain: host.drain,
    async close() {
      host.drain()
      await work.stop()
      host.close()
    },
  }
}

/** Returns the argument for a function of scopes: arguments, a URI, or the variables of a template. */
function scopeArguments({ method }: Definition, [first = {}, variables]: readonly unknown[]): unknown {
  return method === 'resources/read' ? (variables ?? first) : first
}

function tasksOf({ tasks }: FlowHost): TaskHost {
  if (!tasks) throw new RondoError('PEER_METHOD')
  return tasks
}

/** Errors that the operator must act on, and that nothing else logs. */
const FOR_THE_OPERATOR = /^(LIMIT|STORE)_|^SERVER_INTERNAL$/

/** Returns the error that the client gets. A `ProtocolError` that the handler threw goes out unchanged. */
function toRefusal(host: FlowHost, error: unknown, target?: SdkTarget): RondoError | ProtocolError {
  const known = error instanceof RondoError ? error : undefined
  if (known === undefined || FOR_THE_OPERATOR.test(known.code)) {
    host.log({ event: 'warning', message: 'A request failed', ...placeOfError(error), error })
    return known ?? new RondoError('SERVER_INTERNAL', undefined, { cause: error })
  }
  return (known.code === 'SERVER_HANDLER' && target?.thrown) || known
}

/** Calls `find` within a time limit and checks what it returns before a handler sees it. */
function findPrincipalOf(
  find: FindPrincipal = principalFromAuthInfo,
  developer: () => Principal | undefined = () => undefined,
): FindPrincipal {
  return async (ctx) => {
    const principal: unknown = await inTime(Promise.resolve(find(ctx)), HOOK_MS, 'createRondo({ principal })')
    if (principal === undefined || principal === null) return developer()
    if (!isRecord(principal))
      throw misuse('The function principal of createRondo must return a principal or undefined')
    assertPrincipal(principal)
    return principal as unknown as Principal
  }
}

/** Reads the claims `sub` and `iss` that the token's verifier left in `authInfo.extra`. Refuses a token without a user. */
function principalFromAuthInfo({ http }: ServerContext): Principal | undefined {
  const auth = http?.authInfo
  if (auth === undefined) return undefined
  const { sub, iss } = auth.extra ?? {}
  if (typeof sub !== 'string' || sub === '') {
    throw new RondoError(
      'SERVER_INTERNAL',
      'The verified token names no user in authInfo.extra.sub. Pass createRondo a function that does: ' +
        'createRondo({ …, principal: ({ http }) => ({ subject: … }) })',
    )
  }
  const issuer = typeof iss === 'string' ? { issuer: iss } : {}
  return { subject: sub, client: auth.clientId, scopes: auth.scopes, ...issuer }
}

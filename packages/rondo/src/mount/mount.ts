/**
 * Rondo inside an official `McpServer`. The official server decodes, checks arguments and results, and encodes; rounds are
 * those of the token carrier, with its journal, its seal and its promises.
 *
 * A program loads this file and its imports when it starts. The code that runs a call (`flow.ts`) is loaded by `ready`, or
 * by the first call. Only that code imports values of the official package, so that `createRondo` can say that it is missing.
 */

import type {
  CallToolResult,
  GetPromptResult,
  InputRequiredResult,
  McpServer,
  ReadResourceResult,
  ServerContext,
  Variables,
} from '@modelcontextprotocol/server'
import type { EventDelivery, HookView } from '../carry/task/hook.ts'
import { misuse } from '../errors.ts'
import { isMissing } from '../lib/package.ts'
import { createLog } from '../log/log.ts'
import {
  callable,
  defineOptions,
  flag,
  number,
  type OptionSet,
  type OptionsOf,
  unchecked,
} from '../options.ts'
import type { FlowMethod } from '../protocol/call.ts'
import { resolveKeys } from '../seal/key-ring.ts'
import { inDevelopment, mountedInDevelopment } from '../serve/development.ts'
import { createExtensions, type ExtendedHost, type Extension, offerExtensions } from '../serve/extension.ts'
import { readTaskOptions, resolveLimits, SHARED_OPTIONS } from '../serve/options.ts'
import { POLL_RANGE, TTL_RANGE } from '../tool/registry.ts'
import { assertAccept, type InputRequired } from '../tool/target.ts'
import { besideOurs, type VerifyState } from './call.ts'
import type { CallbackOptions, Definition, RondoOptions, SdkContext } from './definition.ts'
import type { SdkFlow } from './flow.ts'
import { type Intercepted, interceptedOf, markAsOurs, mount } from './intercept.ts'
import { assertScopeOption, challengeOf, challengeTasks } from './scope.ts'
import { type AnswerTask, assertTerms, createTaskTools } from './task-tools.ts'

type Given<R> = R | InputRequiredResult | InputRequired
type Sent<R> = Promise<R | InputRequiredResult>
type Handler<A, R> = (args: A, ctx: SdkContext) => Given<R> | Promise<Given<R>>
type ReadHandler = (
  uri: URL,
  ctx: SdkContext,
  variables: Variables,
) => Given<ReadResourceResult> | Promise<Given<ReadResourceResult>>

/** A callback for `registerTool` and `registerPrompt`, with and without arguments. */
export interface ArgsCallback<A, R> {
  (ctx: ServerContext): Sent<R>
  (...params: [args: A, ctx: ServerContext]): Sent<R>
}

/** A callback for `registerResource`, for a URI and for a template. */
export interface ReadCallback {
  (uri: URL, ctx: ServerContext): Sent<ReadResourceResult>
  (uri: URL, variables: Variables, ctx: ServerContext): Sent<ReadResourceResult>
}

type Versioned = Pick<CallbackOptions, 'version' | 'once' | 'scopes'>

export interface Rondo {
  /** Prepares a server for these callbacks. Call it right after `new McpServer`, before anything is registered. */
  mount<S extends McpServer>(server: S): S
  /** Returns a callback for `registerTool`. The handler gets arguments and context, even if the tool takes no arguments. */
  tool<A = Record<string, never>>(
    handler: Handler<A, CallToolResult>,
    options?: CallbackOptions,
  ): ArgsCallback<A, CallToolResult>
  /** Returns a callback for `registerPrompt`. */
  prompt<A = Record<string, never>>(
    handler: Handler<A, GetPromptResult>,
    options?: Versioned,
  ): ArgsCallback<A, GetPromptResult>
  /** Returns a callback for `registerResource`. The variables of a template come last. */
  resource(handler: ReadHandler, options?: Versioned): ReadCallback
  /** Mounts, and adds tasks for tools that have the option `task`. Needs a store. */
  tasks<S extends McpServer>(server: S): S
  /**
   * Adds an [extension](docs/guide/extensions.md#on-an-official-server), such as `createApprovals(…)` of
   * `@rondo/approvals`, to all servers of this mount. Your own entrance serves its routes. Call it before `ready` and
   * before the first call.
   */
  use(extension: Extension): void
  /**
   * Wraps a `requestState.verify` of your own, for the other tools of the server. It gets every state except those sent to
   * a callback of Rondo, which opens them itself.
   */
  verify(own: VerifyState): VerifyState
  /**
   * Delivers an event to a hook (`ctx.hook`), in any process that has the same store, keys and audience. The first event wins; a
   * second is reported as a duplicate. Rejects only if the store or the tool's `accept` fails, or if this
   * process cannot start.
   */
  deliver(hookId: string, event: unknown): Promise<EventDelivery>
  /**
   * Returns the [state of a hook](docs/guide/time-and-events.md#what-a-page-can-know), for a page that its user opens
   * with the id. Rejects only if the store fails.
   */
  hook(hookId: string): Promise<HookView>
  /**
   * Loads keys and code and opens the store now instead of in the first call, and starts to work on tasks if a tool is registered
   * that may become one. Rejects if something is wrong.
   */
  ready(): Promise<void>
  /** Returns calls in flight to their clients at their next step, from now on. */
  drain(): void
  /** Drains, stops working on tasks, and stops all timers. */
  close(): Promise<void>
}

const OPTIONS = defineOptions('createRondo', {
  ...SHARED_OPTIONS,
  audience: unchecked(),
  principal: callable(),
  implies: callable(),
} satisfies OptionsOf<RondoOptions>)

const VERSIONED = {
  version: unchecked(),
  once: flag(false),
  scopes: unchecked(),
} satisfies OptionsOf<Versioned>

const CALLBACK_OPTIONS: Readonly<Record<FlowMethod, OptionSet>> = {
  'tools/call': defineOptions('rondo.tool', {
    ...VERSIONED,
    task: unchecked(),
    taskTtlMs: number(undefined, TTL_RANGE),
    taskPollMs: number(undefined, POLL_RANGE),
    accept: unchecked(),
  } satisfies OptionsOf<CallbackOptions>),
  'prompts/get': defineOptions('rondo.prompt', VERSIONED),
  'resources/read': defineOptions('rondo.resource', VERSIONED),
}

/**
 * Creates what an official server needs for tools that ask: keys, limits, and wrappers for its callbacks.
 *
 * @example
 * ```ts
 * const rondo = createRondo({ audience: 'tables' })
 * const server = rondo.mount(new McpServer({ name: 'tables', version: '1.0.0' }))
 * server.registerTool(
 *   'book',
 *   { description: 'Books a table', inputSchema: z.object({}) },
 *   rondo.tool(async (_, ctx) => {
 *     const sure = await ctx.confirm('sure', 'Book a table for two?')
 *     return { content: [{ type: 'text', text: sure ? 'Booked.' : 'Nothing was booked.' }] }
 *   }),
 * )
 * ```
 */
export function createRondo(given: RondoOptions): Rondo {
  if (isMissing('@modelcontextprotocol/server')) {
    throw misuse(
      'rondo/sdk needs the package "@modelcontextprotocol/server": run npm install @modelcontextprotocol/server',
    )
  }
  OPTIONS.assert(given)
  if (typeof given?.audience !== 'string' || given.audience === '') {
    throw misuse(
      "createRondo needs an audience, the name of your service: createRondo({ audience: 'tracker' })",
    )
  }
  readTaskOptions(given.tasks, 'createRondo: tasks')
  resolveLimits(given.limits, 'createRondo: limits')
  if (given.tasks?.tools) {
    throw misuse(
      'tasks: { tools: true } is an option of createServer. On an official server, clients without tasks are served in rounds.',
    )
  }
  const options = inDevelopment(given)
  const keys = resolveKeys(options.keys)
  const { log, instance } = createLog(options)
  /** Servers are built inside the official entrance, which turns whatever is thrown there into -32603 and logs nothing. */
  const logged = <R>(message: string, run: () => R): R => {
    try {
      return run()
    } catch (error) {
      log({ event: 'warning', message, error })
      throw error
    }
  }
  const tools = createTaskTools()
  let draining = false
  let loading: Promise<SdkFlow> | undefined

  const { audience, store, now = Date.now } = options
  const extended: ExtendedHost = { audience, keys, log, steps: [], store, platform: { now } }
  const extensions = createExtensions({
    host: extended,
    name: audience,
    late: 'rondo.use must come before ready and the first call.',
    hasTool: (name) => tools.find(name) !== undefined,
    deliver: (hookId, event) => rondo.deliver(hookId, event),
    hook: (hookId) => rondo.hook(hookId),
    reserved: {},
  })
  const load = async (): Promise<SdkFlow> => {
    extensions.freeze()
    const { createFlow } = await import('./flow.ts')
    const flow = createFlow({ ...options, instance }, keys, tools, extended)
    if (draining) flow.drain()
    return flow
  }
  const flow = (): Promise<SdkFlow> => {
    loading ??= load()
    return loading
  }
  /** For a request. The reason of a failure is logged and not sent to the client. */
  const flowFor = async (intercepted?: Intercepted): Promise<SdkFlow> => {
    try {
      return await flow()
    } catch (error) {
      log({ event: 'warning', message: 'Rondo cannot start, so every call fails', error })
      const internal = Object.assign(new Error('Internal error'), { code: -32603 })
      if (intercepted) {
        intercepted.ending = () => {
          throw internal
        }
      }
      throw internal
    }
  }
  /** The official server passes the context last: alone, after the arguments, or after URI and variables. */
  const wrap = (method: FlowMethod, handler: Definition['handler'], given: CallbackOptions = {}): never => {
    logged('A callback cannot be created', () => {
      CALLBACK_OPTIONS[method].assert(given)
      assertAccept(CALLBACK_OPTIONS[method].of, given.accept)
      assertTerms(given, options.store !== undefined)
      assertScopeOption(given.scopes)
    })
    const definition: Definition = { method, handler, options: given }
    const callback = async (...params: unknown[]): Promise<unknown> => {
      const ctx = params.at(-1) as ServerContext
      const intercepted = logged('A callback cannot run', () => interceptedOf(ctx))
      return (await flowFor(intercepted)).run(definition, intercepted, ctx, params.slice(0, -1))
    }
    markAsOurs(callback, given.scopes && ((reading) => challengeOf(definition, options.implies, reading)))
    tools.remember(callback, definition)
    return callback as never
  }
  const mountLogged: Rondo['mount'] = (server) => logged('A server cannot be mounted', () => mount(server))
  const drain = (): void => {
    draining = true
    loading?.then((loaded) => loaded.drain()).catch(() => {})
  }

  const rondo: Rondo = {
    mount: mountLogged,
    tool: (handler, given) => wrap('tools/call', handler as Definition['handler'], given),
    prompt: (handler, given) => wrap('prompts/get', handler as Definition['handler'], given),
    resource: (handler, given) => wrap('resources/read', handler as Definition['handler'], given),
    tasks(server) {
      return logged('A server cannot have tasks', () => {
        if (!options.store) throw misuse('Tasks need a store: createRondo({ …, store })')
        const answer: AnswerTask = async (...asked) => (await flowFor()).answerTask(...asked)
        challengeTasks(server, options.implies)
        return tools.add(mount(server), answer, logged)
      })
    },
    use(extension) {
      if (extension?.methods !== undefined)
        throw misuse(
          'An extension with methods cannot be used here: add them to the official server, with server.server.setRequestHandler.',
        )
      extensions.use(extension)
    },
    verify: besideOurs,
    async deliver(hookId, event) {
      if (!options.store)
        throw misuse('rondo.deliver needs a store, because only tasks have hooks: createRondo({ …, store })')
      return (await flow()).deliver(hookId, event)
    },
    async hook(hookId) {
      if (!options.store)
        throw misuse('rondo.hook needs a store, because only tasks have hooks: createRondo({ …, store })')
      return (await flow()).hook(hookId)
    },
    async ready() {
      const [, { work }] = await Promise.all([keys.ready(), flow(), options.store?.ready()])
      work()
    },
    drain,
    async close() {
      drain()
      keys.close()
      await loading?.then(
        (loaded) => loaded.close(),
        () => {},
      )
      await extensions.close()
    },
  }
  offerExtensions(rondo, { host: extended, routes: extensions.routes })
  mountedInDevelopment(rondo)
  return rondo
}

/**
 * Tasks on an official server: the methods with which clients follow them, and the tools that a worker finds by name.
 *
 * A task runs outside of any request. A worker therefore finds the tool by its registration, and the tool must not belong to
 * a request, or its closure could be another caller's. So only a tool that has the option `task` may become a task, and it
 * is refused when a second server registers a different callback under its name.
 */

import type { McpServer, RegisteredTool, ServerContext, StandardSchemaV1 } from '@modelcontextprotocol/server'
import { misuse } from '../errors.ts'
import { TASKS_EXTENSION } from '../protocol/reply.ts'
import type { CallbackOptions, Definition } from './definition.ts'

export type TaskAction = 'get' | 'update' | 'cancel'
export type AnswerTask = (
  action: TaskAction,
  taskId: unknown,
  ctx: ServerContext,
  server: McpServer['server'],
) => Promise<unknown>

/** Runs a function, and logs what it throws under the message. */
type Logged = <R>(message: string, run: () => R) => R

/** A tool as a worker finds it: what runs, and the schemas with which the official server would check it. */
export interface TaskTool {
  readonly definition: Definition
  readonly registered: Pick<RegisteredTool, 'inputSchema' | 'outputSchema'>
}

export interface TaskTools {
  /** Remembers a callback, so that it is recognised when it is registered. */
  remember(callback: object, definition: Definition): void
  /** Adds tasks to a server, and follows which tools are registered on it from now on. */
  add<S extends McpServer>(server: S, answer: AnswerTask, logged: Logged): S
  find(name: string): TaskTool | undefined
  /** True once a tool that may become a task is registered: before that, a worker could run nothing. */
  readonly isKnown: boolean
  /** True if a call of this tool, on this server, may become a task. */
  mayLeave(server: McpServer['server'], name: string, definition: Definition): boolean
}

const ACTIONS: readonly TaskAction[] = ['get', 'update', 'cancel']

/** Accepts any parameters; `toTaskCall` checks them. */
const ANY_PARAMS: StandardSchemaV1<unknown, { taskId?: unknown }> = {
  '~standard': { version: 1, vendor: 'rondo', validate: (value) => ({ value: value as object }) },
}

type Register = (name: string, config: unknown, callback: object) => RegisteredTool

export function assertTerms({ once, task }: CallbackOptions, hasStore: boolean): void {
  if (hasStore || (once !== true && (task === undefined || task === 'never'))) return
  throw misuse(`The option "${once ? 'once' : 'task'}" needs a store: createRondo({ …, store })`)
}

export function createTaskTools(): TaskTools {
  const definitions = new WeakMap<object, Definition>()
  const tools = new Map<string, TaskTool>()
  const servers = new WeakSet<object>()

  const note = (name: string, definition: Definition, registered: RegisteredTool): void => {
    const before = tools.get(name)
    if (before && before.definition !== definition) {
      throw misuse(
        `The tool "${name}" may become a task, but was created twice. Call rondo.tool once, outside of the function that builds ` +
          'servers, because a task outlives the request for which a server is built; or omit the option "task".',
      )
    }
    tools.set(name, { definition, registered })
  }

  return {
    remember: (callback, definition) => void definitions.set(callback, definition),
    add(server, answer, logged) {
      const { server: inner } = server
      if (servers.has(inner)) return server
      servers.add(inner)
      inner.registerCapabilities({ extensions: { [TASKS_EXTENSION]: {} } })
      for (const action of ACTIONS) {
        inner.setRequestHandler(
          `tasks/${action}`,
          { params: ANY_PARAMS },
          ({ taskId }, ctx) => answer(action, taskId, ctx, inner) as never,
        )
      }
      const register = server.registerTool.bind(server) as Register
      const registering: Register = (name, config, callback) => {
        const registered = register(name, config, callback)
        const definition = definitions.get(callback)
        if (definition && (definition.options.task ?? 'never') !== 'never') {
          logged('A tool cannot be registered', () => note(name, definition, registered))
        }
        return registered
      }
      server.registerTool = registering as typeof server.registerTool
      return server
    },
    find: (name) => tools.get(name),
    get isKnown() {
      return tools.size > 0
    },
    mayLeave: (server, name, definition) => servers.has(server) && tools.get(name)?.definition === definition,
  }
}

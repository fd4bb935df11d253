/**
 * Tasks on an official server: the methods with which clients follow them, and the tools a worker has to find by name.
 *
 * A task runs outside of any request. A worker must therefore know its tool from the registration, and the tool must not
 * belong to a request, or what it closes over could be somebody else's. So only a tool that has the option `task` may
 * become one, and it is refused when a second server registers another callback under its name.
 */

import type { McpServer, RegisteredTool, ServerContext, StandardSchemaV1 } from '@modelcontextprotocol/server'
import { misuse } from '../errors.ts'
import { TASKS_EXTENSION } from '../protocol/task.ts'
import { assertTaskTimes } from '../tool/registry.ts'
import type { CallbackOptions, Definition } from './mount.ts'

export type TaskAction = 'get' | 'update' | 'cancel'
export type AnswerTask = (
  action: TaskAction,
  taskId: unknown,
  ctx: ServerContext,
  server: McpServer['server'],
) => Promise<unknown>

/** Runs a function, and logs what it throws under the message. */
type Logged = <R>(message: string, run: () => R) => R

/** A tool as a worker finds it: what runs, and the schemas the official server would check with. */
export interface TaskTool {
  readonly definition: Definition
  readonly registered: Pick<RegisteredTool, 'inputSchema' | 'outputSchema'>
}

export interface TaskTools {
  /** Takes note of a callback, so that it is recognised when it is registered. */
  know(callback: object, definition: Definition): void
  /** Adds tasks to a server, and takes note of the tools that are registered on it from now on. */
  add<S extends McpServer>(server: S, answer: AnswerTask, logged: Logged): S
  find(name: string): TaskTool | undefined
  /** True if a call of this tool, on this server, may go on as a task. */
  mayLeave(server: McpServer['server'], name: string, definition: Definition): boolean
}

const ACTIONS: readonly TaskAction[] = ['get', 'update', 'cancel']

/** Parameters as they come: what they mean is decided where a task is looked for. */
const ANY_PARAMS: StandardSchemaV1<unknown, { taskId?: unknown }> = {
  '~standard': { version: 1, vendor: 'rondo', validate: (value) => ({ value: value as object }) },
}

type Register = (name: string, config: unknown, callback: object) => RegisteredTool

export function assertTerms({ once, task, taskTtlMs, taskPollMs }: CallbackOptions, hasStore: boolean): void {
  assertTaskTimes({ ttl: ['taskTtlMs', taskTtlMs], poll: ['taskPollMs', taskPollMs] })
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
        `The tool "${name}" may become a task and was created twice. Call rondo.tool once, outside of the function that builds ` +
          'servers: a task outlives the request for which a server is built. Or leave its option "task" out.',
      )
    }
    tools.set(name, { definition, registered })
  }

  return {
    know: (callback, definition) => void definitions.set(callback, definition),
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
    mayLeave: (server, name, definition) => servers.has(server) && tools.get(name)?.definition === definition,
  }
}

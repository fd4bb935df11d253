/**
 * What the page calls: tools and tasks of the server, through the proxy, with the client of this package. The client runs
 * here and not in the page, so it speaks every revision; its requests are those of any other client.
 */

import type { Client } from '../../client/client.ts'
import { type ConnectOptions, connect } from '../../client/connect.ts'
import { isRecord } from '../../lib/json.ts'
import type { QuestionKind } from '../../protocol/common/request.ts'
import type { Tool } from '../../protocol/wire.ts'
import { ActionError } from './actions.ts'
import { type Message, PRINCIPAL_HEADER } from './event.ts'

export interface Calls {
  tools(): Promise<readonly Tool[]>
  /** Starts a call and returns where it asks, ends or becomes a task. */
  call(request: unknown): Promise<CallReply>
  /** Polls a task, after answering or cancelling it. */
  task(request: unknown): Promise<object>
}

export type CallReply =
  | { readonly status: 'complete'; readonly result: unknown }
  | { readonly status: 'input_required' }
  | { readonly status: 'task'; readonly task?: string }
  | { readonly status: 'error'; readonly message: string }

const CONSOLE_CLIENT = 'rondo-console'

export function createCalls(mcp: () => string): Calls {
  async function using<T>(run: (client: Client) => Promise<T>, options: ConnectOptions = {}): Promise<T> {
    const client = await connect(mcp(), {
      clientInfo: { name: CONSOLE_CLIENT, version: '1' },
      cache: false,
      tasks: 'poll',
      ...options,
    })
    try {
      return await run(client)
    } finally {
      await client.close()
    }
  }
  return {
    tools: () => using((client) => client.listTools()),
    async call(given) {
      const { name, args, principal, mode, accepts } = readCall(given)
      const options = {
        mode: mode as ConnectOptions['mode'],
        ...(principal !== undefined && { headers: { [PRINCIPAL_HEADER]: principal } }),
      }
      try {
        return await using(async (client): Promise<CallReply> => {
          const done = await client.start({ method: 'tools/call', name, arguments: args }, { accepts })
          if (done.status === 'complete') return { status: 'complete', result: done.result }
          return done.status === 'task'
            ? { status: 'task', task: done.pending.task?.taskId }
            : { status: 'input_required' }
        }, options)
      } catch (error) {
        return { status: 'error', message: (error as Error).message }
      }
    },
    async task(given) {
      if (!isRecord(given) || typeof given.id !== 'string') throw new ActionError('Name a task')
      const { id, answers, cancel } = given
      try {
        return await using(async (client) => {
          const handle = client.task(id)
          if (isRecord(answers)) await handle.answer(answers as never)
          if (cancel === true) await handle.cancel()
          return await handle.get()
        })
      } catch (error) {
        throw new ActionError((error as Error).message)
      }
    },
  }
}

const KINDS: readonly unknown[] = ['form', 'url', 'sampling', 'roots'] satisfies QuestionKind[]

function readCall(given: unknown): {
  name: string
  args: Message
  mode: string
  accepts: QuestionKind[]
  principal?: string
} {
  if (!isRecord(given) || typeof given.name !== 'string') throw new ActionError('Name a tool')
  const { name, args = {}, mode = 'auto', accepts = KINDS, principal } = given
  if (!isRecord(args)) throw new ActionError('The arguments must be an object')
  if (typeof mode !== 'string') throw new ActionError('The revision must be a string')
  if (!Array.isArray(accepts) || !accepts.every((kind) => KINDS.includes(kind)))
    throw new ActionError('Unknown kind of question')
  if (principal !== undefined && (typeof principal !== 'string' || !/^[\w.@-]{1,64}$/.test(principal)))
    throw new ActionError('A principal is 1 to 64 letters, digits, dots, dashes and @')
  return { name, args, mode, accepts, ...(principal !== undefined && { principal }) }
}

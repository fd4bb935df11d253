/**
 * What the page calls: tools and tasks of the server, through the proxy, with the client of this package. The client runs
 * here and not in the page, so it speaks every revision; its requests are those of any other client.
 */

import type { Client } from '../../client/client.ts'
import { type ConnectOptions, connect } from '../../client/connect.ts'
import { isRecord } from '../../lib/json.ts'
import type { QuestionKind } from '../../protocol/common/request.ts'
import type { Tool } from '../../protocol/wire.ts'
import type { DoctorFinding } from '../doctor/report.ts'
import { ActionError } from './actions.ts'
import type { Book } from './book.ts'
import { CONSOLE_CLIENT, type Message, PRINCIPAL_HEADER } from './event.ts'
import type { ConsoleProxy } from './proxy.ts'

export interface Calls {
  tools(): Promise<readonly Tool[]>
  /** Starts a call and returns where it asks, ends or becomes a task. */
  call(request: unknown): Promise<CallReply>
  /** Polls a task, after answering or cancelling it. */
  task(request: unknown): Promise<object>
  /** Examines the server as `rondo doctor` does, with a tool that asks. */
  examine(request: unknown): Promise<object>
}

export interface CallsOptions {
  mcp(): string
  readonly proxy: Pick<ConsoleProxy, 'headersOfTask' | 'examining'>
  readonly book: Pick<Book, 'add' | 'watch'>
  /** Runs `rondo doctor` with these arguments. */
  examine(args: readonly string[]): Promise<readonly DoctorFinding[]>
}

export type CallReply =
  | { readonly status: 'complete'; readonly result: unknown }
  | { readonly status: 'input_required' }
  | { readonly status: 'task'; readonly task?: string }
  | { readonly status: 'error'; readonly message: string }

export function createCalls({ mcp, proxy, book, examine }: CallsOptions): Calls {
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
        return await using(
          async (client) => {
            const handle = client.task(id)
            if (isRecord(answers)) await handle.answer(answers as never)
            if (cancel === true) await handle.cancel()
            return await handle.get()
          },
          { headers: asOwner(proxy.headersOfTask(id)) },
        )
      } catch (error) {
        throw new ActionError((error as Error).message)
      }
    },
    async examine(given) {
      const { tool, args = {} } = isRecord(given) ? given : {}
      if (tool !== undefined && typeof tool !== 'string') throw new ActionError('Name a tool')
      if (!isRecord(args)) throw new ActionError('The arguments must be an object')
      const words = Object.entries(args).map(([name, value]) => `${name}:=${JSON.stringify(value)}`)
      let flow: string | undefined
      let task: string | undefined
      proxy.examining = true
      const stop = book.watch((event) => {
        if (event.kind !== 'round' || event.round.target !== tool) return
        if (event.round.outcome === 'input_required') flow ??= event.round.flow
        if (event.round.task !== undefined) task ??= event.round.flow
      })
      try {
        const stranger = ['--other-header', `${PRINCIPAL_HEADER}: somebody-else`]
        const found = await examine(tool === undefined ? stranger : ['--tool', tool, ...stranger, ...words])
        const findings = found.map((finding) => {
          const shown = finding.id.startsWith('task')
            ? task
            : /^(?:state|call)/.test(finding.id)
              ? flow
              : undefined
          return shown === undefined ? finding : { ...finding, flow: shown }
        })
        book.add({ kind: 'examined', ...(tool !== undefined && { tool }), findings })
        return { findings }
      } catch (error) {
        throw new ActionError((error as Error).message)
      } finally {
        stop()
        proxy.examining = false
      }
    },
  }
}

/** The owner of a task alone can see it. */
function asOwner(headers: Readonly<Record<string, string>>): Record<string, string> {
  const kept = Object.entries(headers).filter(
    ([name]) => name === 'authorization' || name === PRINCIPAL_HEADER,
  )
  return Object.fromEntries(kept)
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

/**
 * Tasks of upstreams, for callers that can follow tasks. A caller gets a handle in place of the upstream's id: sealed, it contains
 * the upstream, the id and the tool, and opens for this caller alone, on every instance with the same keys. Nothing is stored.
 *
 * W2 The upstream's id never leaves the gateway. A handle that was altered, or that belongs to another caller or another upstream,
 *    is an unknown task.
 * W3 Each request sees the questions that it declares, and no others.
 * W4 Questions are vetted each time they are shown, and before they are answered. A refused one cancels the task.
 */

import { type RondoError, ToolError } from 'rondo'
import {
  type FlowRequest,
  type InputResponses,
  PeerError,
  type TaskHandle,
  type TaskState,
} from 'rondo/client'
import { type ForwardedTasks, type TaskCaller, UpstreamError } from 'rondo/forward'
import type { Sealer } from './sent.ts'
import { type Connection, callerKey, KINDS, reasonOf, type Upstream } from './upstream.ts'
import { foreign, labelled, type Vetting, vet, withoutHop } from './vet.ts'

export interface UpstreamTasks extends ForwardedTasks {
  /** The task that a call of `tool` became, as its caller gets it. */
  hand(
    upstream: Upstream,
    tool: string,
    task: TaskState,
    caller: Pick<TaskCaller, 'principal'>,
  ): Promise<TaskState>
  close(): void
}

interface TasksParts {
  readonly upstreams: readonly Upstream[]
  readonly sealer: Sealer
  readonly vetting: Vetting
  warn(message: string): void
}

/** The content of a handle. */
interface Handle {
  /** The identity of the upstream. */
  readonly u: string
  /** The upstream's id of the task. */
  readonly t: string
  /** The tool's name at the upstream. */
  readonly n: string
}

/** A task, with what a request about it needs. */
interface Found extends Pick<Handle, 't' | 'n'> {
  readonly id: string
  readonly upstream: Upstream
  readonly caller: TaskCaller
}

/** Ids of our own tasks have no dot. */
const PREFIX = 'up.'
/** Clients repeat a handle in a header. */
const MAX_HANDLE = 4_096
const UNKNOWN = -32602

export function createUpstreamTasks(parts: TasksParts): UpstreamTasks {
  const { sealer, upstreams } = parts
  const closing = new AbortController()
  const purposeOf = ({ principal }: Pick<TaskCaller, 'principal'>): string => `task ${callerKey(principal)}`

  const find = async (id: string, caller: TaskCaller): Promise<Found | undefined> => {
    if (id.length > MAX_HANDLE) return undefined
    const opened = await sealer.open(purposeOf(caller), id.slice(PREFIX.length))
    if (opened === undefined) return undefined
    const { u, t, n } = JSON.parse(new TextDecoder().decode(opened)) as Handle
    const upstream = upstreams.find(({ identity }) => identity === u)
    return upstream && { id, upstream, t, n, caller }
  }
  /** Sends a request about a task. Resolves with undefined if the upstream does not know the task any more. */
  const send = async <T>(
    found: Found,
    request: (connection: Connection) => Promise<T>,
  ): Promise<T | undefined> => {
    const { upstream, caller } = found
    try {
      const connection = await upstream.anyConnection(caller.principal, kindsOf(caller))
      if (connection.rounds) return await request(connection)
      throw new Error(`it speaks ${connection.revision} now, and the task was begun in another revision`)
    } catch (error) {
      if (error instanceof PeerError && error.peer.code === UNKNOWN) return undefined
      throw toFailure(upstream, error)
    }
  }
  const read = (found: Found): Promise<TaskState | undefined> =>
    send(found, async ({ client }) => {
      const task = client.task(found.t)
      const seen = await task.get({ accepts: kindsOf(found.caller) })
      return toOwn(parts.vetting, found, seen, {
        answer: (answers) => task.answer(answers),
        cancel: () => task.cancel(),
      })
    })

  /** Resolves with false if the caller has no such task. */
  const act = async (found: Found, request: (task: TaskHandle) => Promise<void>): Promise<boolean> => {
    const sent = await send(found, ({ client }) => request(client.task(found.t)).then(() => true))
    return sent === true
  }

  return {
    owns: (id) => id.startsWith(PREFIX),
    async hand(upstream, tool, task, caller) {
      const handle: Handle = { u: upstream.identity, t: task.taskId, n: tool }
      const taskId = `${PREFIX}${await sealer.seal(purposeOf(caller), JSON.stringify(handle))}`
      if (taskId.length > MAX_HANDLE) throw new Error('the id of its task is too long')
      return { ...task, taskId }
    },
    async get(id, caller) {
      const found = await find(id, caller)
      return found && read(found)
    },
    async answer(id, responses, caller) {
      const found = await find(id, caller)
      // The caller may never have read the questions: a policy refuses or answers them first.
      const seen = found && (await read({ ...found, caller: { ...caller, can: () => true } }))
      if (found === undefined || seen === undefined) return false
      const { inputRequests: open = {} } = seen
      const given = Object.entries(foreign(responses)).filter(([key]) => Object.hasOwn(open, key))
      return given.length === 0 || act(found, (task) => task.answer(Object.fromEntries(given)))
    },
    async cancel(id, caller) {
      const found = await find(id, caller)
      return found !== undefined && act(found, (task) => task.cancel())
    },
    watch(ids, caller, changed) {
      const stop = new AbortController()
      const signal = AbortSignal.any([stop.signal, closing.signal])
      const watchAll = async (): Promise<void> => {
        const all = (await Promise.all(ids.map((id) => find(id, caller)))).filter((one) => one !== undefined)
        const of = (upstream: Upstream): Found[] => all.filter((one) => one.upstream === upstream)
        const watched = upstreams.filter((upstream) => of(upstream).length > 0)
        await Promise.all(watched.map((upstream) => watchAt(upstream, of(upstream))))
      }
      const report = async (found: Found): Promise<void> => {
        const task = await read(found)
        if (task && !signal.aborted) changed(task)
      }
      const watchAt = async (upstream: Upstream, tasks: readonly Found[]): Promise<void> => {
        const accepts = kindsOf(caller)
        const connection = await upstream.anyConnection(caller.principal, accepts)
        const release = connection.keep()
        try {
          const filter = { taskIds: tasks.map(({ t }) => t) }
          for await (const change of connection.client.subscribe(filter, { signal, accepts })) {
            // A notification is a hint: the state that is shown is read, and vetted, like any other.
            const about = change.kind === 'task' ? tasks.filter(({ t }) => t === change.task.taskId) : tasks
            for (const one of about) await report(one)
          }
        } finally {
          release()
        }
      }
      watchAll().catch((error: unknown) => {
        if (!signal.aborted) parts.warn(`Tasks are not reported as they change: ${reasonOf(error)}.`)
      })
      return () => stop.abort()
    },
    close: () => closing.abort(),
  }
}

function kindsOf({ can }: TaskCaller) {
  return KINDS.filter((kind) => can(kind))
}

interface Reactions {
  answer(answers: InputResponses): Promise<void>
  cancel(): Promise<void>
}

/** The task as its caller may see it. */
async function toOwn(
  vetting: Vetting,
  { id, upstream, n }: Found,
  task: TaskState,
  { answer, cancel }: Reactions,
): Promise<TaskState> {
  const { inputRequests, result } = task
  const own = { ...task, taskId: id, ...(result && { result: withoutHop(result) }) }
  if (inputRequests === undefined) return own
  const request: FlowRequest = { method: 'tools/call', name: n, arguments: {} }
  try {
    const { questions, answers } = await vet(vetting, { upstream, request }, inputRequests, 1)
    if (Object.keys(answers).length > 0) await answer(answers)
    const shown = Object.entries(questions).map(([key, one]) => [key, labelled(vetting, upstream, one)])
    return { ...own, inputRequests: Object.fromEntries(shown) }
  } catch (error) {
    if (!(error instanceof ToolError)) throw error
    await cancel()
    const { inputRequests: _, ...rest } = own
    return { ...rest, status: 'cancelled', statusMessage: error.message }
  }
}

function toFailure({ name }: Upstream, error: unknown): RondoError {
  if (error instanceof PeerError) return new UpstreamError(error.peer)
  const message = `The task at "${name}" cannot be reached now: ${reasonOf(error)}. Ask for it again later.`
  return new UpstreamError({ code: -32603, message }, { cause: error })
}

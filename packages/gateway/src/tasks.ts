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
import { type FlowRequest, PeerError, type TaskHandle, type TaskState } from 'rondo/client'
import { type ForwardedTasks, type TaskCaller, UpstreamError } from 'rondo/forward'
import type { Sealer } from './sent.ts'
import { type Connection, callerKey, KINDS, reasonOf, type Upstream } from './upstream.ts'
import { foreign, labelled, toUpstreamError, type Vetting, vet, withoutHop } from './vet.ts'

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
    const opened = await sealer.open(purposeOf(caller), id.slice(PREFIX.length))
    if (opened === undefined) return undefined
    const { u, t, n } = JSON.parse(new TextDecoder().decode(opened)) as Handle
    const upstream = upstreams.find(({ identity }) => identity === u)
    return upstream && { id, upstream, t, n, caller }
  }
  const send = async <T>(found: Found, request: (connection: Connection) => Promise<T>): Promise<T> => {
    const { upstream, caller } = found
    try {
      const connection = await upstream.anyConnection(caller.principal, kindsOf(caller))
      if (connection.rounds) return await request(connection)
      throw new Error(`it speaks ${connection.revision} now, and the task was begun in another revision`)
    } catch (error) {
      throw toFailure(found, error)
    }
  }
  /** Resolves with undefined if the upstream does not know the task any more. */
  const read = (found: Found): Promise<TaskState | undefined> =>
    send(found, async ({ client }) => {
      const task = client.task(found.t)
      const look = async (onRefusal: (error: unknown) => Promise<TaskState | undefined>) => {
        const seen = await task.get({ accepts: kindsOf(found.caller) }).catch(unlessUnknown)
        return seen && toOwn(parts.vetting, found, seen, task).catch(onRefusal)
      }
      // A task that has ended since it was read may refuse what follows from a policy. It is shown as it is now.
      return look((error) => {
        if (error instanceof PeerError) return look((second) => Promise.reject(second))
        throw error
      })
    })
  const act = async (found: Found, request: (task: TaskHandle) => Promise<void>): Promise<true> => {
    await send(found, ({ client }) => request(client.task(found.t)))
    return true
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
        // Whoever asks for a task that cannot be read gets the reason. The others are reported all the same.
        const task = await read(found).catch(() => undefined)
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

/** A request for a task has no other parameter than its id. */
function unlessUnknown(error: unknown): undefined {
  if (!(error instanceof PeerError && error.peer.code === UNKNOWN)) throw error
}

/** The task as its caller may see it. */
async function toOwn(
  vetting: Vetting,
  { id, upstream, n, caller }: Found,
  task: TaskState,
  handle: TaskHandle,
): Promise<TaskState> {
  const own = (one: TaskState): TaskState => {
    const { result } = one
    return { ...one, taskId: id, ...(result && { result: withoutHop(result) }) }
  }
  const { inputRequests, ...rest } = own(task)
  if (inputRequests === undefined) return rest
  const request: FlowRequest = { method: 'tools/call', name: n, arguments: {} }
  try {
    const { questions, answers } = await vet(vetting, { upstream, request }, inputRequests, 1)
    if (Object.keys(answers).length > 0) await handle.answer(answers)
    const shown = Object.entries(questions).map(([key, one]) => [key, labelled(vetting, upstream, one)])
    return { ...rest, inputRequests: Object.fromEntries(shown) }
  } catch (error) {
    if (!(error instanceof ToolError)) throw error
    await handle.cancel()
    // Its server may complete it all the same, or take its time.
    const now = await handle.get({ accepts: kindsOf(caller) }).catch(unlessUnknown)
    if (now?.status === 'working' || now?.status === 'input_required')
      throw new ToolError(`${error.message} It has not ended yet; ask again later how it ended.`)
    const cancelled = { status: 'cancelled', statusMessage: error.message } as const
    if (now === undefined) return { ...rest, ...cancelled }
    return now.status === 'cancelled' ? { ...own(now), ...cancelled } : own(now)
  }
}

/** The error that the caller gets. W2: the upstream's id is not in it. */
function toFailure({ upstream, t }: Found, error: unknown): RondoError {
  if (error instanceof ToolError) return new UpstreamError({ code: -32603, message: error.message })
  if (error instanceof PeerError) {
    const { code, message, data } = error.peer
    const isSafe = data !== undefined && !JSON.stringify(data).includes(JSON.stringify(t).slice(1, -1))
    return toUpstreamError({ code, message: message.replaceAll(t, '…'), ...(isSafe && { data }) })
  }
  const message = `The task at "${upstream.name}" cannot be reached now: ${reasonOf(error)}. Ask for it again later.`
  return new UpstreamError({ code: -32603, message }, { cause: error })
}

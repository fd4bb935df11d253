/**
 * Calls of the page: tools and tasks of the server, through the proxy, with the client of this package. The client runs
 * here and not in the page, so it speaks every revision; its requests are those of any other client.
 *
 * Also follows the tasks in the stores of the instances: what a store knows and no log says, such as when a task that sleeps is
 * due. Looks when something happened to a task, and regularly while one is open.
 */

import type { QuestionKind } from 'rondo'
import type { Client, Tool } from 'rondo/client'
import { type ConnectOptions, connect } from 'rondo/client'
import { isRecord } from 'rondo/internal'
import type { DoctorFinding } from '../doctor/probe.ts'
import type { Book } from './book.ts'
import { CONSOLE_CLIENT, type Message, PRINCIPAL_HEADER, type StoredTask } from './event.ts'
import type { LocalFleet } from './fleet.ts'
import type { ConsoleProxy } from './proxy.ts'
import { ActionError } from './web.ts'

export interface Calls {
  tools(): Promise<readonly Tool[]>
  /** Starts a call and returns where it asks, ends or becomes a task. */
  call(request: unknown): Promise<CallReply>
  /** Polls a task, after answering or cancelling it. */
  task(request: unknown): Promise<object>
  /** Delivers an event to a hook of a task. */
  deliver(request: unknown): Promise<object>
  /** The requests for approval. */
  approvals(): Promise<object>
  /** Votes on a request as somebody. */
  vote(request: unknown): Promise<object>
  /** Examines the server as `rondo doctor` does, with a tool that asks. */
  examine(request: unknown): Promise<object>
}

export interface CallsOptions {
  mcp(): string
  readonly proxy: Pick<ConsoleProxy, 'headersOfTask' | 'examining'>
  readonly book: Pick<Book, 'add' | 'watch'>
  readonly fleet: Pick<LocalFleet, 'deliver' | 'approvals'>
  /** Runs `rondo doctor` with these arguments. */
  examine(args: readonly string[]): Promise<readonly DoctorFinding[]>
}

export type CallReply =
  | { readonly status: 'complete'; readonly result: unknown }
  | { readonly status: 'input_required' }
  | { readonly status: 'task'; readonly task?: string }
  | { readonly status: 'error'; readonly message: string }

export function createCalls({ mcp, proxy, book, fleet, examine }: CallsOptions): Calls {
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
    async deliver(given) {
      if (!isRecord(given) || typeof given.hook !== 'string') throw new ActionError('Name a hook')
      const delivery = await fleet.deliver(given.hook, given.event)
      if (delivery.kind === 'failed') throw new ActionError(delivery.problem)
      return delivery
    },
    async approvals() {
      const reply = await fleet.approvals()
      if (reply.kind === 'refused') throw new ActionError(reply.problem)
      return reply
    },
    async vote(given) {
      const { task, key, approve, as, note } = isRecord(given) ? given : {}
      if (typeof task !== 'string' || typeof key !== 'string' || typeof approve !== 'boolean')
        throw new ActionError('Name a request and a decision')
      if (typeof as !== 'string' || as.trim() === '') throw new ActionError('Name who decides')
      const by = { subject: as.trim() }
      const reply = await fleet.approvals({
        ...{ task, key, approve, by },
        ...(typeof note === 'string' && note !== '' && { note }),
      })
      if (reply.kind !== 'voted')
        throw new ActionError('problem' in reply ? reply.problem : 'Nothing was changed')
      return reply
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

export interface FollowOptions {
  readonly fleet: Pick<LocalFleet, 'look'>
  readonly proxy: Pick<ConsoleProxy, 'pollsOf'>
  readonly book: Book
  /** Asks for a task as its owner, so that its questions are seen. */
  look(id: string): Promise<unknown>
}

const OPEN: readonly string[] = ['working', 'input_required']
const SOON_MS = 60
const EVERY_MS = 700

/** Returns a function that stops it. */
export function followTasks({ fleet, proxy, book, look }: FollowOptions): () => void {
  const known = new Map<string, string>()
  const asked = new Map<string, string>()
  let timer: NodeJS.Timeout | undefined
  let due = Number.POSITIVE_INFINITY
  let looking: Promise<unknown> = Promise.resolve()
  let stopped = false

  function note(task: StoredTask): void {
    const polls = proxy.pollsOf(task.id)
    const whole = polls ? { ...task, polls } : task
    const text = JSON.stringify(whole)
    if (known.get(task.id) === text) return
    known.set(task.id, text)
    book.add({ kind: 'stored', task: whole })
    // The owner of a task can read what the store cannot show: its questions, and in the end its result.
    const shown = OPEN.includes(task.status) ? task.openKeys.join() : task.status
    if (shown !== '' && asked.get(task.id) !== shown) {
      // Another caller's task stays unread; what it waits for is shown all the same.
      look(task.id).catch(() => {})
    }
    asked.set(task.id, shown)
  }

  async function run(): Promise<void> {
    const seen = new Map<string, StoredTask>()
    let missed = false
    const looks = fleet.look().map(async (look) => {
      const tasks = await look
      missed ||= tasks === undefined
      for (const task of [...(tasks ?? [])].reverse()) {
        if (!stopped) note(task)
        seen.set(task.id, task)
      }
    })
    await Promise.all(looks)
    // An instance that was too busy may have an open task, and no event says when that one changes.
    if (missed) return soon(EVERY_MS)
    for (const id of known.keys()) {
      if (seen.has(id)) continue
      known.delete(id)
      asked.delete(id)
    }
    if ([...seen.values()].some(({ status }) => OPEN.includes(status))) soon(EVERY_MS)
  }

  /** Looks in this time at the latest, after the look that is under way. */
  function soon(ms: number): void {
    const at = Date.now() + ms
    if (stopped || at >= due) return
    clearTimeout(timer)
    due = at
    timer = setTimeout(() => {
      due = Number.POSITIVE_INFINITY
      looking = looking.then(run, run)
    }, ms)
    timer.unref()
  }
  const unwatch = book.watch((event) => {
    const isTask =
      event.kind === 'task'
        ? event.event.kind !== 'queue'
        : event.kind === 'round' && event.round.task !== undefined
    if (isTask) soon(SOON_MS)
  })
  soon(0)
  return () => {
    stopped = true
    unwatch()
    clearTimeout(timer)
  }
}

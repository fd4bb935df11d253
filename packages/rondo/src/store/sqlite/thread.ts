/**
 * The SQLite file in a thread of its own: while a commit waits for the disk, this thread serves requests. Calls travel as
 * messages, many at once; each gets the result that the same method has in the other thread. Those who got results often write
 * again at once, so the next commit waits for a message from them, briefly: otherwise two commits would take turns with half of the
 * writes each. What has begun when the thread
 * dies fails with `STORE_UNAVAILABLE`, and nobody knows whether it took effect, as with a database whose connection broke.
 */

import { existsSync } from 'node:fs'
import { type MessagePort, Worker } from 'node:worker_threads'
import { type ErrorCode, misuse, RondoError } from '../../errors.ts'
import type { BusTable } from '../bus.ts'
import type { Store } from '../store.ts'
import {
  createHintBus,
  type Hint,
  type OperatorTasks,
  type OwnerTasks,
  type TaskStore,
  type WorkerTasks,
} from '../task-store.ts'
import type { Defer } from './database.ts'

/** The parts of a store that use the file. Arguments and results are plain data, except those of `approvals` and `onHint`. */
export interface SqlitePorts
  extends Required<
    Pick<Store, 'once' | 'blobs' | 'records' | 'approvals' | 'operator' | 'permits' | 'alarms'>
  > {
  readonly tasks: OwnerTasks & WorkerTasks & OperatorTasks
  readonly bus: Pick<BusTable, 'append' | 'read' | 'newest'>
  readonly file: Pick<Store, 'ready' | 'sweep' | 'close'>
  readonly onHint: TaskStore['onHint']
}

/** Approvals stay in this thread, with a connection of their own: their writes call functions that hold signing keys. */
type PortName = Exclude<keyof SqlitePorts, 'onHint' | 'approvals'>

export interface ThreadOptions {
  readonly file: string
  readonly busyMs?: number
  readonly pollMs?: number
}

/** A call, or whether hints are wanted. */
type Request =
  | { readonly id: number; readonly port: PortName; readonly method: string; readonly given: unknown[] }
  | { readonly hints: boolean }

type Response =
  | { readonly id: number; readonly result: unknown }
  | { readonly id: number; readonly error: unknown; readonly known?: KnownError }
  | { readonly hint: Hint }

/** A `RondoError`, which does not survive as a message. */
interface KnownError {
  readonly code: ErrorCode
  readonly detail: string
  readonly data: unknown
}

interface Pending {
  readonly resolve: (result: unknown) => void
  readonly reject: (error: unknown) => void
}

/** The file for the thread in the build, seen from an entry and from a chunk. */
const PLACES = ['./store/sqlite/thread-file.js', '../store/sqlite/thread-file.js']

/**
 * Returns the ports in a thread that begins with their first use. `shape` has the same methods in this thread. Undefined where
 * the file for the thread is missing: in a checkout without a build, and in bundles of others.
 */
export function startThread(shape: SqlitePorts, options: ThreadOptions): SqlitePorts | undefined {
  const place = PLACES.map((path) => new URL(path, import.meta.url)).find((url) => existsSync(url))
  return place && connectThread(() => new Worker(place, { workerData: options, execArgv: [] }), shape)
}

/** A thread, seen from the one that started it. */
export type Thread = Pick<Worker, 'on' | 'postMessage' | 'ref' | 'unref' | 'terminate'>

export function connectThread(start: () => Thread, shape: SqlitePorts): SqlitePorts {
  const pending = new Map<number, Pending>()
  let worker: Thread | undefined
  let queued: Request[] = []
  let lastId = 0
  let closed = false

  const hints = createHintBus(() => {
    send({ hints: true })
    return () => {
      if (worker) send({ hints: false })
    }
  })
  const receive = (responses: readonly Response[]): void => {
    for (const response of responses) {
      if ('hint' in response) hints.publish(response.hint)
      else settle(response)
    }
    // Even an empty message says that these callers have had their turn.
    if (queued.length === 0) setImmediate(flush)
  }
  const settle = (response: Exclude<Response, { hint: Hint }>): void => {
    const call = pending.get(response.id)
    pending.delete(response.id)
    if ('result' in response) call?.resolve(response.result)
    else call?.reject(toError(response))
  }
  const fail = (cause: unknown): void => {
    worker = undefined
    const calls = [...pending.values()]
    pending.clear()
    const error = new RondoError('STORE_UNAVAILABLE', 'the thread of the SQLite file ended', { cause })
    for (const { reject } of calls) reject(error)
  }
  const open = (): Thread => {
    const opened = start()
    let failure: unknown
    opened.on('message', receive)
    opened.on('error', (error) => {
      failure = error
    })
    opened.on('exit', () => {
      if (worker === opened) fail(failure)
    })
    if (hints.listening()) opened.postMessage([{ hints: true }])
    return opened
  }
  const flush = (): void => {
    const requests = queued
    queued = []
    if (closed && pending.size === 0) return
    worker ??= open()
    // A call keeps the process alive, waiting for hints does not.
    if (pending.size > 0) worker.ref()
    else worker.unref()
    try {
      worker.postMessage(requests)
    } catch (error) {
      // An argument that no message can carry. The whole batch fails, because none of it was sent.
      for (const request of requests) if ('id' in request) settle({ id: request.id, error })
    }
  }
  const send = (request: Request): void => {
    if (queued.length === 0) setImmediate(flush)
    queued.push(request)
  }
  const call = (port: PortName, method: string, given: unknown[]): Promise<unknown> =>
    new Promise((resolve, reject) => {
      if (closed) return reject(misuse('This store is closed'))
      lastId += 1
      pending.set(lastId, { resolve, reject })
      send({ id: lastId, port, method, given })
    })
  const remote = <N extends PortName>(port: N): SqlitePorts[N] => {
    const methods = Object.keys(shape[port]).map((method) => [
      method,
      (...given: unknown[]) => call(port, method, given),
    ])
    return Object.fromEntries(methods)
  }
  const file = remote('file')
  return {
    tasks: remote('tasks'),
    once: remote('once'),
    blobs: remote('blobs'),
    records: remote('records'),
    approvals: shape.approvals,
    operator: remote('operator'),
    permits: remote('permits'),
    alarms: remote('alarms'),
    bus: remote('bus'),
    file: {
      ...file,
      async close() {
        hints.close()
        await shape.file.close()
        // Nothing was opened.
        if (worker === undefined && pending.size === 0) closed = true
        if (closed) return
        const closing = file.close()
        closed = true
        await closing
        await worker?.terminate()
      },
    },
    onHint: hints.onHint,
  }
}

function toError({ error, known }: { readonly error: unknown; readonly known?: KnownError }): unknown {
  return known ? new RondoError(known.code, known.detail, { data: known.data, cause: error }) : error
}

/** How long a commit waits for those who got the results of the last one. */
const TURN_MS = 5

/** Answers the calls of the other thread with the ports of this one. */
export function serveThread(parent: MessagePort, createPorts: (defer: Defer) => SqlitePorts): void {
  let responses: Response[] = []
  let stopHints: (() => void) | undefined
  /** Callers have results, and have not had their turn. */
  let owed = false
  let commit: (() => void) | undefined
  const proceed = (): void => {
    const next = commit
    commit = undefined
    next?.()
  }
  const ports = createPorts((next) =>
    setImmediate(() => {
      if (!owed) return next()
      commit = next
      setTimeout(() => commit === next && proceed(), TURN_MS)
    }),
  )
  const flush = (): void => {
    parent.postMessage(responses)
    responses = []
    owed = true
  }
  const respond = (response: Response): void => {
    // Calls that shared a commit end in one moment, and share a message.
    if (responses.length === 0) queueMicrotask(flush)
    responses.push(response)
  }
  const run = async ({ id, port, method, given }: Exclude<Request, { hints: boolean }>): Promise<void> => {
    try {
      const methods = ports[port] as unknown as Record<string, (...given: unknown[]) => unknown>
      respond({ id, result: await methods[method]?.(...given) })
    } catch (error) {
      respond({ id, ...toMessage(error) })
    }
  }
  parent.on('message', (requests: readonly Request[]) => {
    owed = false
    for (const request of requests) {
      if (!('hints' in request)) void run(request)
      else {
        stopHints?.()
        stopHints = request.hints ? ports.onHint((hint) => respond({ hint })) : undefined
      }
    }
    // After the calls have put their writes into the queue.
    setImmediate(proceed)
  })
}

function toMessage(error: unknown): { error: unknown; known?: KnownError } {
  if (!(error instanceof RondoError)) return { error: toPlain(error) }
  const { code, message, data } = error
  return { error: toPlain(error.cause), known: { code, detail: message.slice(code.length + 3), data } }
}

/** An error of a driver has a class of its own, which no message can carry. */
function toPlain(error: unknown): unknown {
  if (!(error instanceof Error) || error instanceof TypeError) return error
  return new Error(error.message, error.cause === undefined ? undefined : { cause: toPlain(error.cause) })
}

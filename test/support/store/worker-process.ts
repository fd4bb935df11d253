/** Starts worker processes, and acts as the service that their effects call. */

import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import type { HookOutcome } from '../../../packages/rondo/src/store/task-store.ts'
import { processFile } from '../process-file.ts'
import type { FromWorker, Plan, ToWorker, WorkerOptions } from './worker-plan.ts'

/** A service that honours idempotency keys: the first call with a key takes effect, later ones get its outcome. */
export interface Downstream {
  /** `notBefore`: an earlier call is counted in `early`. */
  apply(key: string, notBefore?: number): number
  /** Effects that ran before the wait in front of them was over. */
  readonly early: number
  /** The outcome of each key. */
  readonly applied: ReadonlyMap<string, number>
  readonly attempts: number
}

export function createDownstream(): Downstream {
  const applied = new Map<string, number>()
  let attempts = 0
  let early = 0
  return {
    get early() {
      return early
    },
    applied,
    get attempts() {
      return attempts
    },
    apply(key, notBefore = 0) {
      attempts++
      if (Date.now() < notBefore) early++
      const value = applied.get(key) ?? applied.size + 1
      applied.set(key, value)
      return value
    },
  }
}

export interface WorkerProcess {
  readonly pid: number
  /** Resolves when the worker reports that this step of this task has begun. */
  began(id: string, step: number): Promise<void>
  /** Resolves when the worker has created the task; rejects if the worker ends first, or the store fails. */
  create(id: string, plan: Plan): Promise<void>
  /** Lets the worker answer the question of a task, if it is alive; `late`: also the one that nobody answers in time. */
  answer(id: string, late?: boolean): void
  /** Lets the worker deliver an event to the hook of a task. 'lost': it died, or the store failed. */
  deliver(id: string, event: string): Promise<HookOutcome | 'lost'>
  signal(name: 'SIGKILL' | 'SIGSTOP' | 'SIGCONT'): void
  /** The signal that ended it, if one did. */
  readonly ended: Promise<string | undefined>
  stop(): Promise<void>
}

/** `node` is the Node binary to use, if not the one that runs the tests. */
export async function startWorker(
  options: WorkerOptions,
  downstream: Downstream,
  node: string = process.execPath,
): Promise<WorkerProcess> {
  const child = fork(processFile('test/support/store/task-worker.ts'), [JSON.stringify(options)], {
    execArgv: [],
    execPath: node,
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
  })
  const ended = once(child, 'exit').then(([, signal]) => (signal ?? undefined) as string | undefined)
  let deliveries = 0
  const listeners = new Set<(message: FromWorker) => void>()
  child.on('message', (message: FromWorker) => {
    if (message.kind === 'apply')
      tell(child, { kind: 'applied', n: message.n, value: downstream.apply(message.key, message.notBefore) })
    for (const listener of [...listeners]) listener(message)
  })
  const heard = (test: (message: FromWorker) => boolean): Promise<void> => {
    const hearing = new Promise<void>((resolve, reject) => {
      const listener = (message: FromWorker) => {
        if (!test(message)) return
        listeners.delete(listener)
        resolve()
      }
      listeners.add(listener)
      void ended.then(() => reject(new Error('the worker has ended')))
    })
    // The caller that waits gets the error; a test that has ended no longer waits.
    hearing.catch(() => {})
    return hearing
  }
  await heard(({ kind }) => kind === 'ready')
  return {
    pid: child.pid ?? 0,
    ended,
    began: (id, step) =>
      heard((message) => message.kind === 'began' && message.id === id && message.step === step),
    create(id, plan) {
      let isCreated = false
      const told = heard((message) => {
        isCreated ||= message.kind === 'created' && message.id === id
        return (message.kind === 'created' || message.kind === 'failed') && message.id === id
      })
      tell(child, { kind: 'create', id, plan })
      return told.then(() => {
        if (!isCreated) throw new Error('the store failed')
      })
    },
    answer: (id, late) => tell(child, late ? { kind: 'answer', id, late } : { kind: 'answer', id }),
    async deliver(id, event) {
      const n = deliveries++
      let outcome: HookOutcome | 'lost' = 'lost'
      const told = heard((message) => {
        if (message.kind !== 'delivered' || message.n !== n) return false
        outcome = message.outcome
        return true
      })
      tell(child, { kind: 'deliver', n, id, event })
      await told.catch(() => {})
      return outcome
    },
    signal: (name) => void child.kill(name),
    async stop() {
      tell(child, { kind: 'stop' })
      await ended
    },
  }
}

/** A worker that was just killed cannot receive messages, and need not. */
function tell(child: ChildProcess, message: ToWorker): void {
  if (child.connected) child.send(message, () => {})
}

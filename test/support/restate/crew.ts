/** Workers on Restate behind a balancer, the service that their effects call, and what Restate accepted of them. */

import { type ChildProcess, fork } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import type { EngineStore } from 'rondo/store'
import { createRestateStore } from '../../../packages/restate/src/index.ts'
import { processFile } from '../process-file.ts'
import { startBalancer } from './balancer.ts'
import { restateNode } from './node.ts'
import type { TestRestate } from './server.ts'
import { freePort } from './site.ts'
import type { FromRestateWorker, RestateWorkerOptions, ToRestateWorker } from './worker.ts'

export interface RestateWorker {
  readonly alive: boolean
  signal(name: 'SIGKILL' | 'SIGSTOP' | 'SIGCONT'): void
  /** Resolves when the process has ended. */
  ended(): Promise<void>
  start(): Promise<void>
  stop(): Promise<void>
}

export interface RestateCrew {
  readonly workers: readonly RestateWorker[]
  /** A handle of the test itself, which runs no tasks. */
  readonly store: EngineStore
  readonly namespace: string
  /** The outcome of each effect, by key. */
  readonly applied: ReadonlyMap<string, number>
  /** The number of times that Restate accepted an entry (`id/step`) or an end (`id`). Everything above one is damage. */
  readonly accepted: ReadonlyMap<string, number>
  /** Resolves with the worker in which this step begins. */
  began(id: string, step: number): Promise<RestateWorker>
  stop(): Promise<void>
}

interface CrewOptions {
  readonly size: number
  readonly fenced?: boolean
  readonly maxFailures?: number
}

export async function startRestateCrew(
  restate: TestRestate,
  { size, fenced = true, maxFailures = 50 }: CrewOptions,
): Promise<RestateCrew> {
  const namespace = `C${randomBytes(6).toString('hex')}`
  const balancer = await startBalancer({ watches: true })
  const applied = new Map<string, number>()
  const accepted = new Map<string, number>()
  const listeners = new Set<(message: FromRestateWorker, worker: RestateWorker) => void>()
  const count = (key: string) => void accepted.set(key, (accepted.get(key) ?? 0) + 1)
  const hear = (message: FromRestateWorker, worker: RestateWorker, reply: (m: ToRestateWorker) => void) => {
    if (message.kind === 'recorded') count(`${message.id}/${message.step}`)
    if (message.kind === 'settled') count(message.id)
    if (message.kind === 'apply') {
      const value = applied.get(message.key) ?? applied.size + 1
      applied.set(message.key, value)
      reply({ kind: 'applied', n: message.n, value })
    }
    for (const listener of [...listeners]) listener(message, worker)
  }
  const { ingress, admin, identityKey } = restate
  const common = { ingress, admin, namespace, url: balancer.url, identityKey, maxFailures, fenced }
  const workers = await Promise.all(
    Array.from({ length: size }, async () => {
      const port = await freePort()
      balancer.add(port)
      return createWorker({ ...common, port }, hear)
    }),
  )
  await Promise.all(workers.map((worker) => worker.start()))
  const store = createRestateStore({ ingress, admin, namespace, retryMs: 60_000 })
  return {
    workers,
    store,
    namespace,
    applied,
    accepted,
    began: (id, step) =>
      new Promise((resolve) => {
        const listener = (message: FromRestateWorker, worker: RestateWorker) => {
          if (message.kind !== 'began' || message.id !== id || message.step !== step) return
          listeners.delete(listener)
          resolve(worker)
        }
        listeners.add(listener)
      }),
    async stop() {
      await Promise.all(workers.map((worker) => worker.stop()))
      await store.close()
      await balancer.close()
    },
  }
}

const STOP_MS = 20_000

function createWorker(
  options: RestateWorkerOptions,
  hear: (
    message: FromRestateWorker,
    worker: RestateWorker,
    reply: (message: ToRestateWorker) => void,
  ) => void,
): RestateWorker {
  let child: ChildProcess | undefined
  const isAlive = () => child !== undefined && child.exitCode === null && child.signalCode === null
  const tell = (message: ToRestateWorker) => void (child?.connected && child.send(message, () => {}))
  const ended = async () => {
    if (child && isAlive()) await once(child, 'exit')
  }
  const worker: RestateWorker = {
    get alive() {
      return isAlive()
    },
    signal: (name) => void child?.kill(name),
    ended,
    async start() {
      const begun = fork(processFile('test/support/restate/worker.ts'), [JSON.stringify(options)], {
        execArgv: [],
        execPath: restateNode,
        stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
      })
      child = begun
      await new Promise<void>((resolve, reject) => {
        begun.on('message', (message: FromRestateWorker) => {
          if (message.kind === 'ready') resolve()
          hear(message, worker, tell)
        })
        begun.once('exit', (code) => reject(new Error(`The worker ended with ${code}`)))
      })
    },
    async stop() {
      if (!isAlive()) return
      const timer = setTimeout(() => child?.kill('SIGKILL'), STOP_MS)
      child?.kill('SIGCONT')
      tell({ kind: 'stop' })
      await ended()
      clearTimeout(timer)
    },
  }
  return worker
}

/** Workers that are replaced when they end. */

import type { SeededRandom } from '../../../packages/store-kit/src/harness.ts'
import { until } from './store-harness.ts'
import type { WorkerOptions } from './worker-plan.ts'
import { type Downstream, startWorker, type WorkerProcess } from './worker-process.ts'

export interface Crew {
  /** A worker that is alive. */
  pick(): Promise<WorkerProcess>
  /** Lets all workers finish, late ones included; kills those that take too long. */
  stop(): Promise<void>
  /** Workers that ended without being killed. */
  readonly deaths: number
}

const STOP_MS = 20_000

export async function startCrew(
  size: number,
  settings: WorkerOptions,
  downstream: Downstream,
  random: SeededRandom,
): Promise<Crew> {
  const alive = new Set<WorkerProcess>()
  let stopped = false
  let deaths = 0
  const hire = async (): Promise<void> => {
    const worker = await startWorker(settings, downstream)
    alive.add(worker)
    if (stopped) worker.signal('SIGKILL')
    void worker.ended.then((signal) => {
      alive.delete(worker)
      if (stopped) return
      if (signal !== 'SIGKILL') deaths++
      hired.push(hire())
    })
  }
  const hired = Array.from({ length: size }, hire)
  await Promise.all(hired)
  return {
    get deaths() {
      return deaths
    },
    pick: async () => {
      await until('a worker that is alive', () => alive.size > 0)
      return random.pick([...alive])
    },
    async stop() {
      stopped = true
      await Promise.all([...alive].map(end))
      await Promise.all(hired)
      await Promise.all([...alive].map(({ ended }) => ended))
    },
  }
}

async function end(worker: WorkerProcess): Promise<void> {
  const timer = setTimeout(() => worker.signal('SIGKILL'), STOP_MS)
  await worker.stop()
  clearTimeout(timer)
}

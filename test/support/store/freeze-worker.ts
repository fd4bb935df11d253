import type { Store } from '../../../packages/rondo/src/store/store.ts'
import type { WorkerProcess } from './worker-process.ts'

/**
 * Freezes a worker while it holds no lock of the database: a worker that is frozen during a write keeps the SQLite file
 * locked, and no other worker could take over. `probe` is open already: the worker does not wait until it is.
 */
export async function freezeWorker(worker: WorkerProcess, probe: Store): Promise<void> {
  for (let tries = 0; tries < 50; tries++) {
    worker.signal('SIGSTOP')
    const isFree = probe.sweep(1).then(() => true)
    const tooLong = new Promise<false>((resolve) => setTimeout(resolve, 300, false))
    if (await Promise.race([isFree, tooLong])) return
    worker.signal('SIGCONT')
    await isFree.catch(() => {})
  }
  throw new Error('The worker was writing at every attempt')
}

import type { Database } from './store-harness.ts'
import type { WorkerProcess } from './worker-process.ts'

/**
 * Freezes a worker while it holds no lock of the database: a worker that is frozen during a write keeps the SQLite file
 * locked, and no other worker could take over.
 */
export async function freezeWorker(worker: WorkerProcess, database: Database): Promise<void> {
  const probe = database.open()
  await probe.ready()
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

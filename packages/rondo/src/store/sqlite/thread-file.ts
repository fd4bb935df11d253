/** The file that runs in the thread of a SQLite file. `thread.ts` starts it. */

import { parentPort, workerData } from 'node:worker_threads'
import { createFilePorts } from './store.ts'
import { serveThread, type ThreadOptions } from './thread.ts'

const { file, ...options } = workerData as ThreadOptions
if (parentPort) serveThread(parentPort, (defer) => createFilePorts(file, options, defer))

/** A server with tasks in a process of its own: `server-child.js ADDRESS`. Reports its address, and when all tasks have ended. */

import { createServer } from 'rondo'
import { createPostgresStore } from 'rondo/postgres'
import { createSqliteStore } from 'rondo/sqlite'
import { DESCRIPTION, Input, resultFor, SECRET } from '../work.ts'
import { PLAIN_TOOL, TASK_TOOL } from './server.ts'
import { AT_ONCE, type StoreAddress } from './subject.ts'

export interface Listening {
  readonly kind: 'listening'
  readonly url: string
}

/** The number of completed tasks has reached the one that was asked about. */
export interface Completed {
  readonly kind: 'completed'
}

const address = JSON.parse(process.argv[2] ?? '') as StoreAddress
const store =
  address.kind === 'sqlite'
    ? createSqliteStore({ file: address.file })
    : createPostgresStore({ connectionString: address.connectionString, schema: address.schema })
const tell = (message: Listening | Completed): void => void process.send?.(message)

let completed = 0
let wanted = Number.POSITIVE_INFINITY
const check = (): void => {
  if (completed < wanted) return
  wanted = Number.POSITIVE_INFINITY
  tell({ kind: 'completed' })
}

const server = createServer({
  name: 'bench',
  version: '1.0.0',
  keys: `bench:${SECRET}`,
  log: 'off',
  store,
  tasks: {
    // All requests here come from one caller.
    maxOpen: Number.POSITIVE_INFINITY,
    maxEnded: Number.POSITIVE_INFINITY,
    maxEndedBytes: Number.POSITIVE_INFINITY,
    concurrency: AT_ONCE,
    onEvent(event) {
      if (event.kind !== 'turn' || event.outcome !== 'complete') return
      completed++
      check()
    },
  },
})
const describe = { description: DESCRIPTION, input: Input }
const handle = ({ id }: { id: number }): string => resultFor(id, 'Fixed')
server.tool(PLAIN_TOOL, describe, handle)
server.tool(TASK_TOOL, { ...describe, task: 'always' }, handle)

/** The number of completed tasks to wait for, since the beginning. */
process.on('message', (count: number) => {
  wanted = count
  check()
})
process.on('disconnect', () => process.exit())
const { url } = await server.listen({ port: 0, signals: false })
tell({ kind: 'listening', url })

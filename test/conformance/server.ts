/**
 * The fixture server for the official conformance suite: `npm run conformance:server -- --port N`. Prints its URL as
 * the first line and serves until it is stopped.
 */

import { parseArgs } from 'node:util'
import { createServer } from '../../packages/rondo/src/index.ts'
import { createMemoryStore } from '../../packages/rondo/src/store/memory/store.ts'
import type { Store } from '../../packages/rondo/src/store/store.ts'
import { addOlderTools, STREAM_MS } from './fixture/older-tools.ts'
import { addPlainTools } from './fixture/plain-tools.ts'
import { addPrompts } from './fixture/prompts.ts'
import { addResources } from './fixture/resources.ts'
import { addRoundTools } from './fixture/round-tools.ts'
import { addTaskTools } from './fixture/task-tools.ts'

const { values } = parseArgs({ options: { port: { type: 'string', default: '3000' } } })

/** One file for several instances if CONFORMANCE_SQLITE names it, one database if CONFORMANCE_POSTGRES does. */
async function openStore(): Promise<Store> {
  const { CONFORMANCE_SQLITE: file, CONFORMANCE_POSTGRES: connectionString } = process.env
  if (file) return (await import('../../packages/rondo/src/sqlite.ts')).createSqliteStore({ file })
  if (connectionString)
    return (await import('../../packages/rondo/src/postgres.ts')).createPostgresStore({ connectionString })
  return createMemoryStore()
}

const store = await openStore()
const server = createServer({
  name: 'rondo-conformance',
  version: '1.0.0',
  log: 'off',
  store,
  sessions: { streamMs: STREAM_MS },
})
addPlainTools(server)
addRoundTools(server)
addTaskTools(server)
addOlderTools(server)
addPrompts(server)
addResources(server)

const { url } = await server.listen({ port: Number(values.port) })
console.log(url)

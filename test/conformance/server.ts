/**
 * The fixture server for the official conformance suite: `npm run conformance:server -- --port N`. Prints its URL as
 * the first line and serves until it is stopped.
 */

import { parseArgs } from 'node:util'
import { createServer } from '../../packages/rondo/src/index.ts'
import { addOlderTools, STREAM_MS } from './fixture/older-tools.ts'
import { addPlainTools } from './fixture/plain-tools.ts'
import { addPrompts } from './fixture/prompts.ts'
import { addResources } from './fixture/resources.ts'
import { addRoundTools } from './fixture/round-tools.ts'
import { openStore } from './fixture/store.ts'
import { addTaskTools } from './fixture/task-tools.ts'

const { values } = parseArgs({ options: { port: { type: 'string', default: '3000' } } })

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

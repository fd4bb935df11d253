/**
 * A gateway for the official suite: one instance in front of the server at CONFORMANCE_UPSTREAM. Prints its URL as the first line and
 * serves until it is stopped.
 */

import { createGateway } from '../../packages/gateway/src/index.ts'
import { STREAM_MS } from './fixture/older-tools.ts'
import { openStore } from './fixture/store.ts'

const gateway = createGateway({
  name: 'rondo-conformance',
  version: '1.0.0',
  log: 'off',
  store: await openStore(),
  // As on a direct connection: the suite expects the error of a tool that runs only as a task.
  followTasks: false,
  sessions: { streamMs: STREAM_MS },
  upstreams: { fixture: { url: process.env.CONFORMANCE_UPSTREAM ?? '' } },
})
const { url } = await gateway.listen({ port: 0 })
console.log(url)

/** The echo service as a process of its own: sends its port to the parent, then serves until it is told to stop. */

import { listen } from '../../packages/rondo/src/serve/http/listen.ts'
import { createEchoService } from './echo-service.ts'

const service = createEchoService()
// Would keep the process alive by itself.
setInterval(() => {}, 1_000_000)
const { port } = await listen(service, { port: 0, graceMs: 120_000 })
process.send?.({ port })
process.on('message', () => service.release())

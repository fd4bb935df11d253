/** Serves over HTTP. */

import server from './app.ts'

const { HOST, DRAIN_DELAY_MS } = process.env
const drainDelayMs = Number(DRAIN_DELAY_MS ?? 0)
const { url } = await server.listen({ host: HOST, health: '/healthz', ready: '/readyz', drainDelayMs })
console.log(`Serving ${url}`)

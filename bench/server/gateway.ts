/** Gateways under test. The server behind each runs in a process of its own, so that its costs are not theirs. */

import { createGateway, type UpstreamOptions } from '@rondo/gateway'
import { SECRET } from '../work.ts'
import { spawnServer } from './spawn-server.ts'
import type { Started, StartServer } from './start.ts'

const MANY = 100_000

async function startBefore(tools: number, options: Omit<UpstreamOptions, 'url'>): Promise<Started> {
  const { url: upstream } = await spawnServer('rondo', tools)
  const gateway = createGateway({
    name: 'gateway',
    version: '1.0.0',
    keys: `bench:${SECRET}`,
    log: 'off',
    hold: { maxCalls: MANY, maxCallsPerCaller: MANY },
    upstreams: { bench: { url: upstream.href, ...options } },
  })
  const { url } = await gateway.listen({ port: 0, signals: false })
  return { url: new URL(url), close: gateway.close }
}

/** Before a server that returns its questions. */
export const start: StartServer = (tools) => startBefore(tools, {})

/** Before a server that pushes its questions, so that calls are held while they wait. */
export const startHolding: StartServer = (tools) => startBefore(tools, { revision: '2025-11-25' })

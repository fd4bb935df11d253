/** The gateway of `rondo console --config`: an instance serves the servers of a file, and reports each request to them. */

import { dirname } from 'node:path'
import { setTimeout } from 'node:timers/promises'
import type { Gateway } from '@rondo/gateway'
import type { Observed, Observer } from 'rondo/otel'
import { serversOfFile } from '../bridge/config.ts'
import { VERSION } from '../describe.ts'
import type { Loaded } from '../load-server.ts'
import type { UpstreamRequest } from './event.ts'

/** How long the console waits for its servers before it starts. Requests wait for them after that. */
const PATIENCE_MS = 10_000

interface GatewayWatcher {
  /** Called before the servers are started. */
  onCreated(gateway: Gateway): void
  /** Called as a request begins, in its context. Returns what reports its end. */
  onSent(): (request: UpstreamRequest) => void
  /** Called with the reason if the servers turn out not to answer after the console has started. */
  onLate(reason: string): void
}

/** Creates the gateway, and reads what its servers offer. */
export async function loadGateway(
  file: string,
  { onCreated, onSent, onLate }: GatewayWatcher,
): Promise<Loaded> {
  const { createGateway } = await import('@rondo/gateway')
  const io = { cwd: dirname(file), env: process.env, now: Date.now }
  const { upstreams } = await serversOfFile(io as Parameters<typeof serversOfFile>[0], file)
  const gateway = createGateway({
    name: 'gateway',
    version: VERSION,
    upstreams,
    telemetry: observer(onSent),
  })
  onCreated(gateway)
  let isLate = false
  const ready = gateway.ready().catch(async (error: Error) => {
    if (!isLate) {
      await gateway.close()
      throw error
    }
    onLate(`${error.message} The next request tries again.`)
  })
  await Promise.race([ready, setTimeout(PATIENCE_MS)])
  isLate = true
  return { server: gateway, exported: { name: 'default', isFunction: false }, isOfficial: false }
}

function observer(onSent: () => (request: UpstreamRequest) => void): Observer {
  return {
    begin(operation): Observed | undefined {
      const { kind, peer, method, target, protocolVersion, began } = operation
      if (kind !== 'client' || peer === undefined) return undefined
      const report = onSent()
      return {
        run: (fn) => fn(),
        work: (_kind, _key, fn) => fn(),
        replayed() {},
        end({ outcome, code }) {
          const end = { outcome: code ?? outcome ?? 'complete' }
          const facts = { upstream: peer, method, revision: protocolVersion, began, ms: Date.now() - began }
          report({ ...facts, ...(target !== undefined && { target }), ...end })
        },
      }
    },
  }
}

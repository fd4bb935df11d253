/** The gateway of `rondo console --config`: an instance serves the servers of a file, and reports each request to them. */

import { dirname } from 'node:path'
import type { Observed, Observer } from 'rondo/otel'
import { serversOfFile } from '../bridge/config.ts'
import type { Loaded } from '../load-server.ts'
import type { UpstreamRequest } from './event.ts'

/** Creates the gateway, and reads what its servers offer. `onSent` is called as a request begins, in its context, and returns what reports its end. */
export async function loadGateway(
  file: string,
  onSent: () => (request: UpstreamRequest) => void,
): Promise<Loaded> {
  const { createGateway } = await import('@rondo/gateway')
  const io = { cwd: dirname(file), env: process.env, now: Date.now }
  const { upstreams } = await serversOfFile(io as Parameters<typeof serversOfFile>[0], file)
  const gateway = createGateway({
    name: 'gateway',
    version: '0.1.0',
    upstreams,
    telemetry: observer(onSent),
  })
  await gateway.ready()
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

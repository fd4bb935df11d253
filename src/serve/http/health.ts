/**
 * Health: whether this process is alive, and whether it can take calls. Ready means that it does not drain, its keys are
 * loaded, and its store answers within a bound. The result is kept for a second, and there is one query at a time, so that
 * nobody can load the store with these paths, which need no authentication.
 *
 * The paths are outside of MCP: probes of a cluster send the address of the pod as `Host`, so hosts and origins are not
 * checked, and the responses contain nothing but one word.
 */

import type { IncomingMessage, ServerResponse } from 'node:http'
import type { FlowHost } from '../../carry/host.ts'
import { misuse } from '../../errors.ts'
import type { EngineStore, Store } from '../../store/store.ts'
import type { NodeHandler } from './node.ts'

/** Why an instance takes no calls. */
export type NotReady = 'draining' | 'keys' | 'store'

export interface Readiness {
  /** Never rejects. */
  check(): Promise<NotReady | undefined>
  /** From now on the instance is not ready. */
  leave(): void
}

const STORE_MS = 2_000
const KEEP_MS = 1_000

/** An id that no blob has: asking for it is the cheapest query that every store answers. */
const NO_BLOB = 'ready'

export function createReadiness(
  host: Pick<FlowHost, 'keys' | 'draining' | 'platform'>,
  store: Store | EngineStore | undefined,
): Readiness {
  let leaving = false
  let asking: Promise<NotReady | undefined> | undefined
  let known: { readonly at: number; readonly reason: NotReady | undefined } | undefined

  const ask = async (): Promise<NotReady | undefined> => {
    const reason = (await answers(store, host.platform.after)) ? undefined : 'store'
    known = { at: host.platform.now(), reason }
    asking = undefined
    return reason
  }

  return {
    leave() {
      leaving = true
    },
    async check() {
      if (leaving || host.draining) return 'draining'
      if (!host.keys.isReady) return 'keys'
      if (!store) return undefined
      if (known && host.platform.now() - known.at < KEEP_MS) return known.reason
      asking ??= ask()
      return await asking
    },
  }
}

/** False if the store fails, or does not answer in time. */
function answers(
  store: Store | EngineStore | undefined,
  after: FlowHost['platform']['after'],
): Promise<boolean> {
  return new Promise((resolve) => {
    const cancel = after(STORE_MS, () => resolve(false))
    const done = (answered: boolean): void => {
      cancel()
      resolve(answered)
    }
    Promise.resolve(store?.blobs.get(NO_BLOB)).then(
      () => done(true),
      () => done(false),
    )
  })
}

interface HealthPaths {
  readonly health?: string
  readonly ready?: string
}

export function assertHealthPaths({ health, ready }: HealthPaths, path: string): void {
  for (const [name, value] of Object.entries({ health, ready })) {
    if (value === undefined) continue
    if (typeof value !== 'string' || !/^\/[\w./~-]*$/.test(value)) {
      throw misuse(`${name} must be a path such as /healthz.`)
    }
    if (value === path) throw misuse(`${name} must be another path than that of the endpoint, ${path}.`)
  }
  if (health !== undefined && health === ready) throw misuse('health and ready must be two different paths.')
}

/** Serves the paths that are set; everything else goes to `handler`. */
export function withHealth(handler: NodeHandler, paths: HealthPaths, readiness?: Readiness): NodeHandler {
  const { health, ready } = paths
  if (health === undefined && ready === undefined) return handler
  return (req, res) => {
    const path = req.url?.split('?', 1)[0]
    if (path === undefined || (path !== health && path !== ready)) return handler(req, res)
    // Without a listener, an error of the response would end the process.
    res.on('error', () => {})
    if (req.method !== 'GET' && req.method !== 'HEAD') return send(req, res, 405, 'use GET')
    if (path === health) return send(req, res, 200, 'live')
    const checking = readiness?.check() ?? Promise.resolve(undefined)
    void checking.then((reason) => send(req, res, reason === undefined ? 200 : 503, reason ?? 'ready'))
  }
}

function send(req: IncomingMessage, res: ServerResponse, status: number, word: string): void {
  // A body that nobody reads must not be kept.
  req.resume()
  const body = `${word}\n`
  const headers = { 'Content-Type': 'text/plain', 'Cache-Control': 'no-store', 'Content-Length': body.length }
  res.writeHead(status, status === 405 ? { ...headers, Allow: 'GET, HEAD' } : headers)
  res.end(req.method === 'HEAD' ? undefined : body)
}

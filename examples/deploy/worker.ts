/**
 * Cloudflare Workers, with a compatibility date of 2026-04-01 or later and the flag `nodejs_compat`: rounds only.
 * Everybody who can reach it may call, until you pass `authenticate`.
 */

import type { Server } from 'rondo'
import { createTracker } from './server.ts'

interface Env {
  /** Secrets: `npx wrangler secret put RONDO_KEYS`. They are known only once a request comes. */
  readonly RONDO_KEYS: string
  readonly ALLOWED_HOSTS: string
}

let server: Server | undefined

export default {
  fetch(request: Request, { RONDO_KEYS, ALLOWED_HOSTS }: Env): Promise<Response> {
    server ??= createTracker({
      keys: RONDO_KEYS,
      allowedHosts: ALLOWED_HOSTS.split(','),
      maxRoundMs: 20_000,
    })
    return server.fetch(request)
  },
}

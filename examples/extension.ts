/** An extension: limits what one caller may call in a minute, shows the counts on a page, and reports them by a method. */

import { createServer, type ServerOptions, ToolError } from 'rondo'
import type { Extension } from 'rondo/extension'

export function callLimit(perMinute: number): Extension {
  const counts = new Map<string, number>()
  return {
    name: 'call-limit',
    async around(call, next) {
      if (call.kind === 'turn' || call.method !== 'tools/call' || call.continues) return next()
      const caller = call.principal?.subject ?? 'anonymous'
      const count = (counts.get(caller) ?? 0) + 1
      counts.set(caller, count)
      if (count > perMinute) throw new ToolError(`At most ${perMinute} calls in a minute. Try again later.`)
      return next()
    },
    methods: {
      'example.com/calls': (_params, { principal }) => ({
        calls: counts.get(principal?.subject ?? 'anonymous') ?? 0,
      }),
    },
    routes: {
      '/calls': () => new Response([...counts].map(([caller, count]) => `${caller}: ${count}\n`).join('')),
    },
    attach({ log }) {
      const timer = setInterval(() => {
        log(`${counts.size} callers in the last minute`)
        counts.clear()
      }, 60_000)
      timer.unref()
      return () => clearInterval(timer)
    },
  }
}

export function limited(options?: Partial<ServerOptions>) {
  const server = createServer({ name: 'clock', version: '1.0.0', ...options })
  server.use(callLimit(2))
  server.tool('time', { description: 'Tells the time' }, () => new Date().toISOString())
  return server
}

/**
 * The world outside: applies each effect once per key, as a payment provider that honours idempotency keys does.
 */

import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { Recorder } from './history.ts'

export interface Downstream {
  readonly url: string
  /** Requests received, applied or not. */
  readonly attempts: number
  /** The keys that were applied to an order: one key is once, two keys are twice. */
  applied(order: number, effect: string): number
  close(): Promise<void>
}

/** `record` gets every request. */
export async function startDownstream(record?: Recorder): Promise<Downstream> {
  const keys = new Map<string, Set<string>>()
  let attempts = 0
  const server = createServer((req, res) => {
    let body = ''
    req.setEncoding('utf8')
    req.on('data', (chunk: string) => {
      body += chunk
    })
    req.on('end', () => {
      const { order, effect, key, answer } = JSON.parse(body)
      record?.({ type: 'ok', f: 'effect', process: 'downstream', order, effect, key, answer })
      attempts += 1
      const name = `${order} ${effect}`
      const seen = keys.get(name) ?? new Set()
      keys.set(name, seen.add(key))
      res.end('{}')
    })
  })
  await new Promise<void>((resolve) => {
    server.listen(0, '127.0.0.1', resolve)
  })
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/`,
    get attempts() {
      return attempts
    },
    applied: (order, effect) => keys.get(`${order} ${effect}`)?.size ?? 0,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve())
        server.closeAllConnections()
      }),
  }
}

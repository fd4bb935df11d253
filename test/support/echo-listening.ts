/** The echo service behind `listen`, on loopback, closed after the test. */

import { expect, onTestFinished } from 'vitest'
import { type Listening, type ListenOptions, listen } from '../../packages/rondo/src/serve/http/listen.ts'
import { callTool, createEchoService, type EchoService, type request } from './echo-service.ts'
import { type Posted, post } from './post.ts'

export async function startEcho(
  options: ListenOptions = {},
): Promise<{ service: EchoService; port: number; listening: Listening }> {
  const service = createEchoService()
  const listening = await listen(service, { port: 0, signals: false, graceMs: 500, ...options })
  onTestFinished(() => listening.close())
  return { service, listening, port: listening.port }
}

export function send(
  port: number,
  sent: ReturnType<typeof request>,
  headers: Record<string, string> = {},
): Promise<Posted> {
  return post(port, { headers: { ...sent.headers, ...headers }, body: JSON.stringify(sent.message) })
}

export function errorOf(posted: Posted): { code: number; message: string; data?: unknown } {
  return JSON.parse(posted.text).error
}

export async function expectServing(port: number): Promise<void> {
  const posted = await send(port, callTool('echo', { still: 'here' }))
  expect(posted.status).toBe(200)
  expect(posted.text).toContain('still')
}

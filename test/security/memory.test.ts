/**
 * T18 I3: what unauthenticated callers can make a server keep, sent until a process with a small heap would run out of
 * memory. With `RONDO_LONG` the flood is several times larger.
 */

import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { Agent, request } from 'node:http'
import { describe, expect, it, onTestFinished } from 'vitest'
import { callTool, request as rpc } from '../support/echo-service.ts'
import { post } from '../support/post.ts'
import { processFile } from '../support/process-file.ts'

const LONG = process.env.RONDO_LONG === '1'
const HEAP_MB = LONG ? 512 : 160
/** Megabytes to send: more than the heap could hold. */
const FLOOD = LONG ? 2_000 : 260
const MEGABYTE = 1_000_000

interface Target {
  readonly child: ChildProcess
  readonly port: number
}

async function start(options: object = {}): Promise<Target> {
  const child = fork(processFile('test/support/heap-process.ts'), {
    execArgv: [`--max-old-space-size=${HEAP_MB}`],
    env: { ...process.env, OPTIONS: JSON.stringify(options) },
    silent: true,
  })
  onTestFinished(() => void child.kill('SIGKILL'))
  const [{ port }] = (await once(child, 'message')) as [{ port: number }]
  return { child, port }
}

/** True if the process is alive and responds. */
async function serves({ child, port }: Target): Promise<boolean> {
  const echo = callTool('echo')
  const body = JSON.stringify(echo.message)
  const posted = await post(port, { headers: echo.headers, body }).catch(() => undefined)
  return child.exitCode === null && child.signalCode === null && posted?.text.includes('still here') === true
}

const HEADERS = { 'content-type': 'application/json', accept: 'application/json, text/event-stream' }

async function greet(port: number, capabilities: object): Promise<string | undefined> {
  const params = { protocolVersion: '2025-11-25', capabilities, clientInfo: { name: 'flood', version: '1' } }
  const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'initialize', params })
  const posted = await post(port, { headers: HEADERS, body })
  return posted.headers['mcp-session-id'] as string | undefined
}

/** Opens subscriptions that name `size` bytes each, until `count` are tried or the server is gone. */
async function listenAll({ child, port }: Target, count: number, size: number): Promise<void> {
  const agent = new Agent({ keepAlive: false, maxSockets: Number.POSITIVE_INFINITY })
  onTestFinished(() => agent.destroy())
  const uris = Array.from({ length: Math.ceil(size / 1_000) }, (_, i) => `notes://${i}/${'x'.repeat(980)}`)
  for (let i = 0; i < count && child.exitCode === null && child.signalCode === null; i++) {
    const { headers, message } = rpc(
      'subscriptions/listen',
      { notifications: { resourceSubscriptions: uris } },
      i,
    )
    await new Promise<void>((resolve) => {
      const req = request({ port, host: '127.0.0.1', path: '/mcp', method: 'POST', headers, agent })
      // Stays open unless the server refuses it; its first bytes show that the server has decided.
      req.on('response', (res) => {
        res.on('error', () => {})
        res.once('data', () => resolve())
        res.once('end', () => resolve())
      })
      req.on('error', () => resolve())
      req.on('close', () => resolve())
      req.end(JSON.stringify(message))
    })
  }
}

describe('I3 a process with a small heap', () => {
  it('T18 survives floods of initialize with large capabilities', async () => {
    const target = await start()
    const capabilities = { experimental: { flood: { text: 'x'.repeat(MEGABYTE) } }, elicitation: {} }
    const ids = new Set<string | undefined>()
    for (let i = 0; i < FLOOD; i++) ids.add(await greet(target.port, capabilities))
    expect(ids.size).toBe(FLOOD)
    expect(await serves(target)).toBe(true)
  })

  it('T18 survives floods of large subscriptions', async () => {
    const target = await start()
    await listenAll(target, FLOOD, MEGABYTE)
    expect(await serves(target)).toBe(true)
  })

  it('T18 survives as many subscriptions of the maximum size as it accepts', async () => {
    const target = await start()
    await listenAll(target, 300, 28_000)
    expect(await serves(target)).toBe(true)
  })

  it('control: runs out of memory with the same subscriptions and without the limits', async () => {
    const target = await start({ maxSubscriptionBytes: 'Infinity', maxSubscriptionsPerCaller: 'Infinity' })
    const ended = once(target.child, 'exit')
    await listenAll(target, FLOOD, MEGABYTE)
    await ended
    expect(await serves(target)).toBe(false)
  })

  it('T18 survives sessions that watch long URIs', async () => {
    const target = await start()
    const agent = new Agent({ keepAlive: true, maxSockets: 4 })
    onTestFinished(() => agent.destroy())
    let refused = 0
    for (let i = 0; refused < 3; i++) {
      const session = (await greet(target.port, {})) ?? ''
      for (let j = 0; j < 1_000; j++) {
        const params = { uri: `notes://${j}/${'x'.repeat(8_000)}` }
        const body = JSON.stringify({ jsonrpc: '2.0', id: j, method: 'resources/subscribe', params })
        const headers = { ...HEADERS, 'mcp-session-id': session }
        const { text } = await post(target.port, { headers, body })
        if (text.includes('"error"')) {
          refused += 1
          break
        }
      }
      expect(i).toBeLessThan(20)
    }
    expect(await serves(target)).toBe(true)
  })
})

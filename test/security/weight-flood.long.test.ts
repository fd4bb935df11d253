/**
 * N2: calls that weigh much more than they are long, sent to a process with the heap of a small container until it would run out
 * of memory: calls that run, and calls of older clients that wait for an answer.
 */

import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { Agent, request } from 'node:http'
import { describe, expect, it, onTestFinished } from 'vitest'
import { callTool } from '../support/echo-service.ts'
import { connectOlder } from '../support/older-client.ts'
import { post } from '../support/post.ts'
import { processFile } from '../support/process-file.ts'

const HEAP_MB = 512

interface Target {
  readonly child: ChildProcess
  readonly port: number
}

async function start(options: object): Promise<Target> {
  const child = fork(processFile('test/support/heap-process.ts'), {
    execArgv: [`--max-old-space-size=${HEAP_MB}`],
    env: { ...process.env, OPTIONS: JSON.stringify(options) },
    silent: true,
  })
  onTestFinished(() => void child.kill('SIGKILL'))
  const [{ port }] = (await once(child, 'message')) as [{ port: number }]
  return { child, port }
}

const isAlive = ({ child }: Target): boolean => child.exitCode === null && child.signalCode === null

/** True if the process is alive and responds. */
async function serves(target: Target): Promise<boolean> {
  const echo = callTool('echo')
  const body = JSON.stringify(echo.message)
  const posted = await post(target.port, { headers: echo.headers, body }).catch(() => undefined)
  return isAlive(target) && posted?.text.includes('still here') === true
}

const UNLIMITED = {
  maxMessageWeight: 'Infinity',
  maxWeightInFlight: 'Infinity',
  maxWeightInFlightPerCaller: 'Infinity',
}
const heavy = (objects: number): Record<string, unknown> => ({
  list: Array.from({ length: objects }, () => ({})),
})
/** The heaviest call that is accepted at all, and one of a megabyte. */
const ACCEPTED = heavy(190_000)
const MEGABYTE = heavy(330_000)

/** Begins calls that do not end, each with this address. Returns how many were refused. */
async function flood(target: Target, args: Record<string, unknown>, calls: number): Promise<number> {
  const agent = new Agent({ maxSockets: Number.POSITIVE_INFINITY })
  onTestFinished(() => agent.destroy())
  const { headers, message } = callTool('wait', args)
  const body = JSON.stringify(message)
  let refused = 0
  for (let i = 0; i < calls && isAlive(target); i++) {
    const from = { 'x-forwarded-for': `10.0.0.${i}` }
    const req = request({
      port: target.port,
      host: '127.0.0.1',
      path: '/mcp',
      method: 'POST',
      agent,
      headers: { ...headers, ...from },
    })
    req.on('error', () => {})
    req.on('response', (res) => {
      if (res.statusCode === 429) refused += 1
      res.resume()
    })
    req.end(body)
    // The next one begins when this one has been read.
    await serves(target)
  }
  return refused
}

describe('N2 a process with a heap of 512 MB', () => {
  it('survives calls in flight that weigh twenty times their length', async () => {
    const target = await start({ addressHeader: 'x-forwarded-for' })
    expect(await flood(target, ACCEPTED, 60)).toBeGreaterThan(40)
    expect(await serves(target)).toBe(true)
  })

  it('control: runs out of memory without the limits', async () => {
    const target = await start({ addressHeader: 'x-forwarded-for', ...UNLIMITED })
    await flood(target, MEGABYTE, 60)
    expect(await serves(target)).toBe(false)
  })

  it('survives calls of older clients that wait for an answer, and their answers', async () => {
    const target = await start({ addressHeader: 'x-forwarded-for' })
    const { calls, answer } = await park(target, ACCEPTED, 39)
    expect(await serves(target)).toBe(true)
    answer()
    for (const { result } of await Promise.all(calls)) expect(result).toBeDefined()
    expect(await serves(target)).toBe(true)
  })
})

/** Three callers, with as many sessions as the limits demand. */
async function park(target: Target, args: object, count: number) {
  const waiting: (() => void)[] = []
  let asked = 0
  const answer = () =>
    new Promise((resolve) => {
      asked += 1
      waiting.push(() => resolve({ action: 'accept', content: { confirm: true } }))
    })
  const url = `http://127.0.0.1:${target.port}/mcp`
  const calls: Promise<Readonly<Record<string, unknown>>>[] = []
  for (let i = 0; i < count; i++) {
    const headers = { 'x-forwarded-for': `10.0.0.${i % 3}` }
    const client = await connectOlder(url, { capabilities: { elicitation: {} }, headers, answer })
    calls.push(client.call('tools/call', { name: 'ask', arguments: args }))
    await expect.poll(() => asked).toBe(i + 1)
  }
  return {
    calls,
    answer() {
      for (const one of waiting) one()
    },
  }
}

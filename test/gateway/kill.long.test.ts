/**
 * Processes that die without a word: the gateway while a call is held, between an answer and its reply, between two rounds, and the
 * server behind it. Nothing is sent twice, and what is lost is reported. Each has a control in which nothing dies, or in which the tool
 * allows a repetition.
 */

import { type ChildProcess, spawn } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { createServer as createTcp } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { Client as V1Client } from '@modelcontextprotocol/sdk/client/index.js'
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import { ElicitRequestSchema } from '@modelcontextprotocol/sdk/types.js'
import { generateKey } from 'rondo'
import { type Client, connect, type RoundOptions, type RoundResult } from 'rondo/client'
import { describe, expect, it, onTestFinished } from 'vitest'
import { createOrderUpstream } from '../support/order-upstream.ts'
import { processFile } from '../support/process-file.ts'
import { startRoundRobin } from '../support/round-robin.ts'

interface Instance {
  readonly url: string
  kill(): Promise<void>
}

async function start(file: string, env: Readonly<Record<string, string>>): Promise<Instance> {
  const child: ChildProcess = spawn(process.execPath, [processFile(file)], {
    env: { ...process.env, RONDO_QUIET: '1', ...env },
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const ended = new Promise<void>((resolve) => child.once('exit', () => resolve()))
  const kill = async (): Promise<void> => {
    child.kill('SIGKILL')
    await ended
  }
  onTestFinished(kill)
  const url = await new Promise<string>((resolve, reject) => {
    if (child.stdout) createInterface(child.stdout).once('line', resolve)
    child.once('exit', (code) => reject(new Error(`${file} ended with code ${code}`)))
  })
  return { url, kill }
}

async function folder(): Promise<string> {
  const path = await mkdtemp(join(tmpdir(), 'rondo-gateway-kill-'))
  onTestFinished(() => rm(path, { recursive: true }))
  return path
}

/** A server that records what it is sent. Its work waits while the gate is shut. */
async function upstream() {
  const calls: string[] = []
  const seen = { last: '' }
  let pass = (): void => {}
  let shut: Promise<void> = Promise.resolve()
  const gate = {
    /** Handlers that came here. */
    reached: 0,
    open() {
      gate.reached += 1
      return shut
    },
    shut() {
      shut = new Promise((resolve) => {
        pass = resolve
      })
    },
    pass: () => pass(),
  }
  const server = createOrderUpstream(
    (line, client) => {
      calls.push(line)
      seen.last = client
    },
    generateKey(),
    gate,
  )
  const { url } = await server.listen({ port: 0, signals: false, graceMs: 100 })
  onTestFinished(async () => {
    pass()
    await server.close()
  })
  return { url, calls, gate, seen }
}

interface Pair {
  readonly one: Instance
  readonly two: Instance
}

/** Two instances with the same keys and, unless told otherwise, the same store. */
async function gateways(url: string, env: Readonly<Record<string, string>> = {}): Promise<Pair> {
  const common = {
    GATEWAY_UPSTREAM: url,
    RONDO_KEYS: generateKey(),
    GATEWAY_SQLITE: join(await folder(), 'store.db'),
    ...env,
  }
  const file = 'test/support/gateway-process.ts'
  const [one, two] = await Promise.all([
    start(file, { ...common, GATEWAY_NAME: 'one' }),
    start(file, { ...common, GATEWAY_NAME: 'two' }),
  ])
  return { one, two }
}

async function clientOf(url: string): Promise<Client> {
  const client = await connect(url, { tasks: 'poll' })
  onTestFinished(() => client.close())
  return client
}

const ORDER = { method: 'tools/call', name: 'order' } as const

/** Sends the first round, and returns the options of the second. */
async function asked(url: string): Promise<RoundOptions> {
  const first = await (await clientOf(url)).round(ORDER, { accepts: ['form'] })
  if (first.resultType !== 'input_required') throw new Error('The call did not ask')
  const [key = ''] = Object.keys(first.inputRequests)
  return {
    accepts: ['form'],
    requestState: first.requestState,
    inputResponses: { [key]: { action: 'accept', content: { size: 'large' } } },
  }
}

const answer = async (url: string, options: RoundOptions): Promise<RoundResult> =>
  (await clientOf(url)).round(ORDER, options)

const said = (text: string | RegExp, isError = false) => ({
  resultType: 'complete',
  result: { ...(isError && { isError }), content: [{ text: expect.stringMatching(text) }] },
})

const LOST = /"up" was lost.*may have had effects.*not sent again/

describe('K3 a held call', () => {
  const env = { GATEWAY_REVISION: '2025-11-25' }

  it.each([true, false])(
    'is reported as lost if its instance is killed, with a store: %s',
    async (stored) => {
      const { url, calls } = await upstream()
      const { one, two } = await gateways(url, { ...env, ...(!stored && { GATEWAY_SQLITE: '' }) })
      const second = await asked(one.url)
      await one.kill()
      expect(await answer(two.url, second)).toMatchObject(said(LOST, true))
      expect(await answer(two.url, second)).toMatchObject(said(LOST, true))
      expect(calls).toEqual(['order begun'])
    },
  )

  it('is continued by its instance, for the other one, if nothing is killed: the control', async () => {
    const { url, calls } = await upstream()
    const { one, two } = await gateways(url, env)
    const second = await asked(one.url)
    expect(await answer(two.url, second)).toMatchObject(said('ordered large'))
    expect(calls).toEqual(['order begun'])
  })

  it('is reported as lost if its instance is killed with the answer in its hands', async () => {
    const { url, calls, gate } = await upstream()
    const { one, two } = await gateways(url, env)
    const second = await asked(one.url)
    gate.shut()
    const handed = answer(two.url, second)
    handed.catch(() => {})
    const direct = answer(one.url, second)
    direct.catch(() => {})
    await expect.poll(() => gate.reached).toBeGreaterThan(0)
    await one.kill()
    await expect(direct).rejects.toThrow()
    expect(await handed).toMatchObject(said(LOST, true))
    expect(calls).toEqual(['order begun'])
  })
})

describe('a call in rounds', () => {
  it('loses nothing and asks once if its instance is killed between two rounds', async () => {
    const { url, calls } = await upstream()
    const { one, two } = await gateways(url)
    const second = await asked(one.url)
    await one.kill()
    expect(await answer(two.url, second)).toMatchObject(said('ordered large'))
    expect(calls).toEqual(['order begun', 'order answered'])
  })
})

/** The official client of the first generation, whose requests reach an instance that is up. */
async function pushed(targets: readonly string[], onAsked: () => void) {
  const robin = await startRoundRobin(targets.map((target) => new URL(target)))
  onTestFinished(robin.close)
  const transport = new StreamableHTTPClientTransport(new URL('/mcp', robin.url), {
    async fetch(input, init) {
      for (let left = 100; ; left -= 1) {
        const response = await fetch(input, init)
        if (response.status !== 502 || left === 0) return response
        await response.body?.cancel()
        await new Promise((resolve) => setTimeout(resolve, 50))
      }
    },
    reconnectionOptions: {
      initialReconnectionDelay: 50,
      maxReconnectionDelay: 500,
      reconnectionDelayGrowFactor: 1.5,
      maxRetries: 100,
    },
  })
  const client = new V1Client({ name: 'old', version: '1' }, { capabilities: { elicitation: { form: {} } } })
  client.setRequestHandler(ElicitRequestSchema, async () => {
    onAsked()
    return { action: 'accept', content: { size: 'large' } }
  })
  await client.connect(transport as never)
  onTestFinished(() => client.close())
  return { client, counts: robin.counts }
}

describe('a call of a client that is asked while it is open', () => {
  it.each([
    ['order', 1],
    ['look', 2],
  ] as const)(
    'of %s: the round whose reply was lost with its instance is sent %i times',
    async (tool, times) => {
      const { url, calls, gate, seen } = await upstream()
      const { one, two } = await gateways(url)
      let questions = 0
      const { client } = await pushed([one.url, two.url], () => {
        questions += 1
        gate.shut()
      })
      const calling = client.callTool({ name: tool })
      calling.catch(() => {})
      await expect.poll(() => calls).toContain(`${tool} answered`)
      // Whichever sent it dies, and the other one continues.
      await (seen.last === 'one' ? one : two).kill()
      if (tool === 'look')
        await expect.poll(() => calls.filter((one) => one === 'look answered')).toHaveLength(2)
      gate.pass()
      const result = await calling
      expect(calls.filter((line) => line === `${tool} answered`)).toHaveLength(times)
      expect(questions).toBe(1)
      if (tool === 'order')
        expect(result).toMatchObject({
          isError: true,
          content: [
            { text: expect.stringMatching(/"up" has ended, and the reply was lost.*not sent again/) },
          ],
        })
      else expect(result).toMatchObject({ content: [{ text: 'ordered large' }] })
    },
  )
})

describe('W9 a call that was approved', () => {
  it('is not sent again if the worker that sent it is killed', async () => {
    const page = 'http://127.0.0.1:3000/approvals'
    const { url, calls, gate, seen } = await upstream()
    const { one, two } = await gateways(url, { GATEWAY_APPROVE: page })
    const begun = await (await clientOf(one.url)).round(
      { method: 'tools/call', name: 'plain' },
      { tasks: true },
    )
    if (begun.resultType !== 'task') throw new Error('The call did not wait')
    expect(calls).toEqual([])
    gate.shut()
    await approve(one.url)
    await expect.poll(() => calls).toEqual(['plain begun'])
    const [dead, alive] = seen.last === 'one' ? [one, two] : [two, one]
    await dead.kill()
    const task = (await clientOf(alive.url)).task(begun.task.taskId)
    await expect.poll(async () => (await task.get()).status).toBe('completed')
    const { isError, content } = (await task.get()).result ?? {}
    expect(isError).toBe(true)
    expect(content).toContainEqual({
      type: 'text',
      text: expect.stringMatching(/"up" has ended, and the reply was lost.*not sent again/),
    })
    expect(calls).toEqual(['plain begun'])
  })

  it('has its result if nothing is killed: the control', async () => {
    const { url, calls } = await upstream()
    const { one } = await gateways(url, { GATEWAY_APPROVE: 'http://127.0.0.1:3000/approvals' })
    const client = await clientOf(one.url)
    const calling = client.callTool('plain')
    await approve(one.url)
    expect((await calling).content[0]).toMatchObject({ text: 'done' })
    expect(calls).toEqual(['plain begun'])
  })
})

/** Approves the open request on the page. */
async function approve(url: string): Promise<void> {
  const origin = new URL(url).origin
  const headers = { host: '127.0.0.1:3000', origin: 'http://127.0.0.1:3000' }
  let path = ''
  await expect
    .poll(async () => {
      const list = await (await fetch(`${origin}/approvals`, { headers })).text()
      path = /\/approvals\/r\/[\w-]+/.exec(list)?.[0] ?? ''
      return path
    })
    .not.toBe('')
  const shown = await (await fetch(`${origin}${path}`, { headers })).text()
  const csrf = /name="csrf" value="([^"]+)"/.exec(shown)?.[1] ?? ''
  const body = new URLSearchParams({ csrf, decision: 'approve' })
  await fetch(`${origin}${path}`, { method: 'POST', body, headers, redirect: 'manual' })
}

describe('W8 a server that is killed', () => {
  /** A server as a process, on a port that it gets again. */
  async function orders() {
    const path = join(await folder(), 'record')
    writeFileSync(path, '')
    const port = await freePort()
    const env = { ORDER_RECORD: path, ORDER_PORT: String(port), ORDER_KEYS: generateKey() }
    const startOne = () => start('test/support/order-upstream.ts', env)
    return {
      first: await startOne(),
      again: startOne,
      calls: () => readFileSync(path, 'utf8').trim().split('\n'),
    }
  }

  it.each([
    ['in rounds, continues when it is back', '2026-07-28', said('ordered large')],
    [
      'that is held, is reported as lost',
      '2025-11-25',
      said(/"up".*may have had effects.*not sent again/, true),
    ],
  ] as const)('a call %s', async (_what, revision, outcome) => {
    const { first, again, calls } = await orders()
    const { one } = await gateways(first.url, { GATEWAY_REVISION: revision })
    const second = await asked(one.url)
    await first.kill()
    if (revision === '2026-07-28') {
      expect(await answer(one.url, second)).toMatchObject(
        said(/"up" does not answer.*Nothing was sent/, true),
      )
    }
    await again()
    // The gateway pauses after a failure.
    await expect.poll(() => answer(one.url, second)).toMatchObject(outcome)
    const begun = calls().filter((line) => line === 'order begun')
    expect(begun).toHaveLength(1)
    // The next call works.
    await expect
      .poll(async () => await answer(one.url, await asked(one.url)))
      .toMatchObject(said('ordered large'))
  })
})

function freePort(): Promise<number> {
  return new Promise((resolve) => {
    const tcp = createTcp().listen(0, '127.0.0.1', () => {
      const { port } = tcp.address() as { port: number }
      tcp.close(() => resolve(port))
    })
  })
}

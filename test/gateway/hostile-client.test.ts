/** Clients of the gateway that forge, swap, repeat and probe. */

import { createServer as createHttp, request as httpRequest } from 'node:http'
import type { AddressInfo } from 'node:net'
import { type AskLocally, createGateway, type GatewayOptions } from '@rondo/gateway'
import { generateKey } from 'rondo'
import { connect } from 'rondo/client'
import { describe, expect, it, onTestFinished } from 'vitest'
import { fake, HINT, modern, said, toolRows } from './fake.ts'
import { serveGateway } from './peers.ts'

type Options = NonNullable<Parameters<typeof connect>[1]>

async function clientOf(url: string, user = 'ann', options: Options = {}) {
  const client = await connect(url, { headers: { 'x-user': user }, drafts: false, ...options })
  onTestFinished(() => client.close())
  return client
}

const authenticate: GatewayOptions['authenticate'] = ({ headers }) => ({ subject: headers('x-user') ?? '' })
const nobody: AskLocally = { kinds: ['form'], ask: async () => ({ action: 'cancel' }) }
const now = new Date(0).toISOString()

/** A server whose tool `t` is a task, and that knows every id. */
async function tasks() {
  const requests: string[] = []
  const server = await fake((message) => {
    const { method = '', params = {} } = message
    if (method.startsWith('tasks/')) requests.push(`${method} ${params.taskId}`)
    if (method === 'tasks/update' || method === 'tasks/cancel') return { result: { resultType: 'complete' } }
    const head = { createdAt: now, lastUpdatedAt: now, ttlMs: null, status: 'working' }
    if (method === 'tasks/get') return { result: { ...head, taskId: params.taskId, resultType: 'complete' } }
    if (method === 'tools/call') return { result: { ...head, taskId: 'task-at-up', resultType: 'task' } }
    return modern({ tools: toolRows('t') })(message)
  })
  return { ...server, requests }
}

describe('W2 made-up handles', () => {
  it('are unknown tasks, and none of them reaches a server', async () => {
    const [up, other] = [await tasks(), await tasks()]
    const { url } = await serveGateway({ up: { url: up.url }, other: { url: other.url } }, { authenticate })
    const client = await clientOf(url)
    const round = await client.round({ method: 'tools/call', name: 'up_t', arguments: {} }, { tasks: true })
    if (round.resultType !== 'task') throw new Error('The call is not a task')
    const { taskId } = round.task
    const flipped = (i: number): string => {
      const at = 3 + ((i * 7) % (taskId.length - 3))
      const one = taskId[at] === 'A' ? 'B' : 'A'
      return `${taskId.slice(0, at)}${one}${taskId.slice(at + 1)}`
    }
    const subscription = client.subscribe({ taskIds: Array.from({ length: 20 }, (_, i) => flipped(i)) })
    onTestFinished(() => subscription.close())
    await subscription.filter
    for (let i = 0; i < 500; i += 250) {
      const ids = Array.from({ length: 250 }, (_, j) => flipped(i + j))
      const ended = await Promise.allSettled(ids.map((id) => client.task(id).get()))
      for (const one of ended)
        expect(one).toMatchObject({ status: 'rejected', reason: { peer: { code: -32602 } } })
    }
    expect([up.requests, other.requests]).toEqual([[], []])
    // Control: the genuine handle does.
    expect((await client.task(taskId).get()).status).toBe('working')
    expect(up.requests).toEqual(['tasks/get task-at-up'])
  })
})

describe('W6 the tool task_status', () => {
  it("is the gateway's own, even if a server offers one of that name to this caller alone", async () => {
    const up = await fake((message, _response, { headers }) => {
      const tools = headers['x-key'] === undefined ? [] : toolRows('task_status', 't')
      return modern({ tools, call: () => said('hijacked') })(message)
    })
    const own: GatewayOptions['upstreams'][string]['credentials'] = (caller): Record<string, string> =>
      caller === undefined ? {} : { 'x-key': 'k' }
    const { url, events } = await serveGateway(
      { up: { url: up.url, credentials: own } },
      { authenticate, ask: nobody },
    )
    const client = await clientOf(url)
    const names = (await client.listTools()).map(({ name }) => name)
    expect(names.toSorted()).toEqual(['t', 'task_status'])
    expect(await client.callTool('t')).toMatchObject(said('hijacked'))
    expect(await client.callTool('task_status', { id: 'x', count: 1 })).toMatchObject({
      isError: true,
      content: [{ text: expect.stringContaining('There is no such call') }],
    })
    expect(JSON.stringify(events)).not.toContain('is not offered')
  })
})

describe('W8 names that only some callers are offered', () => {
  it('of one server do not keep those of another from being called, however many there are', async () => {
    const many = Array.from({ length: 10_001 }, (_, i) => `tool_${i}`)
    const flood = await fake((message, _response, { headers }) =>
      modern({ tools: headers['x-key'] === 'k' ? toolRows(...many) : [] })(message),
    )
    const calm = await fake((message, _response, { headers }) =>
      modern({ tools: headers['x-key'] === 'k' ? toolRows('t') : [], call: () => said('calm') })(message),
    )
    const own: GatewayOptions['upstreams'][string]['credentials'] = (caller): Record<string, string> =>
      caller === undefined ? {} : { 'x-key': 'k' }
    const upstreams = {
      flood: { url: flood.url, credentials: own },
      calm: { url: calm.url, credentials: own },
    }
    const { url } = await serveGateway(upstreams, { authenticate })
    const client = await clientOf(url)
    await client.callTool('flood_tool_1').catch(() => {})
    expect(await client.callTool('calm_t')).toMatchObject(said('calm'))
  })
})

describe('W9 completions', () => {
  it.each<[string, unknown]>([
    ['deny', 'deny'],
    ['a reason', { deny: 'secret' }],
    ['confirm', 'confirm'],
    ['approve', 'approve'],
    ['nothing', undefined],
    ['null', null],
  ])('of a prompt of which decide says %s are none, and nothing is sent', async (_name, verdict) => {
    const up = await fake((message) => {
      const { method } = message
      if (method === 'server/discover')
        return {
          result: {
            supportedVersions: ['2026-07-28'],
            capabilities: { prompts: {}, completions: {} },
            ...HINT,
          },
        }
      if (method === 'prompts/list')
        return { result: { prompts: [{ name: 'open' }, { name: 'closed' }], ...HINT } }
      if (method === 'completion/complete')
        return { result: { completion: { values: ['customer'] }, resultType: 'complete' } }
      return modern({})(message)
    })
    const { url } = await serveGateway(
      { up: { url: up.url } },
      { decide: ({ tool }) => (tool === 'closed' ? (verdict as 'deny') : 'allow') },
    )
    const client = await clientOf(url)
    const complete = async (name: string) => {
      const ref = { kind: 'prompt', name } as const
      return (await client.complete({ ref, argument: { name: 'who', value: 'c' } })).values
    }
    expect(await complete('closed')).toEqual([])
    expect(up.methods).not.toContain('completion/complete')
    expect(await complete('open')).toEqual(['customer'])
  })
})

describe('the handlers for node:http and for requests of the web', () => {
  async function serve(gateway: ReturnType<typeof createGateway>) {
    const http = createHttp(gateway.nodeHandler())
    await new Promise<void>((resolve) => http.listen(0, '127.0.0.1', resolve))
    onTestFinished(async () => {
      http.closeAllConnections()
      http.close()
      await gateway.close()
    })
    return `http://127.0.0.1:${(http.address() as AddressInfo).port}/mcp`
  }
  const options = { name: 'g', version: '1', keys: generateKey(), log: 'off' } as const

  it('waits until the servers have been read', async () => {
    const up = await fake(modern({ tools: toolRows('t'), call: () => said('done') }))
    const url = await serve(createGateway({ ...options, upstreams: { up: { url: up.url } } }))
    expect(await (await clientOf(url)).callTool('t')).toMatchObject(said('done'))
  })

  it('replies 503 while no server answers, and serves when one does', async () => {
    let isUp = false
    const up = await fake((message, response) => {
      if (!isUp) return void response.writeHead(500).end()
      return modern({ tools: toolRows('t'), call: () => said('done') })(message)
    })
    const gateway = createGateway({ ...options, upstreams: { up: { url: up.url } } })
    const url = await serve(gateway)
    const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'server/discover', params: {} })
    for (const refused of [
      await fetch(url, { method: 'POST', body }),
      await gateway.fetch(new Request(url, { method: 'POST', body })),
    ]) {
      expect(refused.status).toBe(503)
      expect(await refused.json()).toMatchObject({
        error: { message: expect.stringContaining('retry later') },
      })
    }
    isUp = true
    expect(await (await clientOf(url)).callTool('t')).toMatchObject(said('done'))
  })
})

describe('W5 a gateway on loopback', () => {
  const post = (url: URL, headers: Record<string, string>): Promise<number> =>
    new Promise((resolve, reject) => {
      const all = {
        'Content-Type': 'application/json',
        Accept: 'application/json, text/event-stream',
        ...headers,
      }
      const sent = httpRequest(url, { method: 'POST', headers: all }, (response) => {
        response.resume()
        resolve(response.statusCode ?? 0)
      })
      sent.on('error', reject)
      sent.end(JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/list', params: {} }))
    })

  it.each([
    ['another Host', { Host: 'evil.example' }],
    ['a Host that begins like its own', { Host: '127.0.0.1.evil.example' }],
    ['the Origin of another page', { Origin: 'https://evil.example' }],
    ['the Origin of no page', { Origin: 'null' }],
  ])('refuses a request with %s, and sends nothing to a server', async (_what, headers) => {
    const up = await fake(modern({ tools: toolRows('t') }))
    const { url } = await serveGateway({ up: { url: up.url } })
    const before = up.methods.length
    expect(await post(new URL(url), headers)).toBe(403)
    expect(up.methods.slice(before).filter((one) => one !== 'subscriptions/listen')).toEqual([])
    expect(await post(new URL(url), {})).not.toBe(403)
  })
})

/** Approvals on an official server, over real HTTP: its tool waits, a page decides, and its task continues. */

import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { generateKey } from 'rondo'
import type { RondoOptions } from 'rondo/sdk'
import { afterEach, expect, it } from 'vitest'
import { createMemoryStore } from '../packages/rondo/src/store/memory/store.ts'
import { send, settled } from '../test/support/task-client.ts'
import { createDeployer, onNode } from './official-approvals.ts'

const ISSUER = 'https://login.example'
const keys = generateKey()
const closing: (() => unknown)[] = []

afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close()
})

async function start(options: Partial<RondoOptions> = {}) {
  const listener = createServer().listen(0, '127.0.0.1')
  await once(listener, 'listening')
  const { port } = listener.address() as AddressInfo
  const origin = `http://127.0.0.1:${port}`
  const login = () => ({ issuer: ISSUER, subject: 'ann' })
  const principal = () => ({ issuer: ISSUER, subject: 'erin' })
  const given = { keys, log: 'off', store: createMemoryStore(), principal, ...options } as const
  const deployer = createDeployer(`${origin}/approvals`, login, given)
  const pages = onNode(deployer)
  listener.on('request', (req, res) => pages.emit('request', req, res))
  closing.push(
    () => deployer.rondo.close(),
    () => listener.close(),
  )
  const visit = async (path: string, init?: RequestInit) =>
    (await fetch(`${origin}/approvals${path}`, init)).text()
  const server = { fetch: (request: Request) => fetch(`${origin}/mcp`, toInit(request)) }
  return { ...deployer, origin, visit, server }
}

const toInit = (request: Request): RequestInit & { duplex: 'half' } => ({
  method: request.method,
  headers: request.headers,
  body: request.body,
  duplex: 'half',
})

type Started = Awaited<ReturnType<typeof start>>

async function ask({ server, approvals }: Started): Promise<{ taskId: string; id: string }> {
  const { result } = await send(server, 'tools/call', { name: 'deploy', arguments: { version: '1.2.3' } })
  expect(result).toMatchObject({ resultType: 'task' })
  await expect.poll(async () => (await approvals.desk().list(['open'], 5)).requests).toHaveLength(1)
  const [request] = (await approvals.desk().list(['open'], 5)).requests
  return { taskId: String(result?.taskId), id: request?.id ?? '' }
}

async function decide({ visit, origin }: Started, id: string, decision: string): Promise<string> {
  const [, csrf = ''] = /name="csrf" value="([^"]+)"/.exec(await visit(`/r/${id}`)) ?? []
  const body = new URLSearchParams({ csrf, decision })
  return visit(`/r/${id}`, { method: 'POST', body, headers: { origin } })
}

it('L1 a tool of an official server deploys once Ann has approved on the page', async () => {
  const started = await start()
  const { taskId, id } = await ask(started)
  expect(await started.visit('')).toContain(`href="/approvals/r/${id}"`)
  const waiting = await send(started.server, 'tasks/get', { taskId })
  expect(waiting.result).toMatchObject({ status: 'working' })
  expect(JSON.stringify(waiting)).toContain('Waiting for approval by release-managers')
  expect(JSON.stringify(waiting)).not.toContain(id)
  expect(await decide(started, id, 'approve')).toContain('You have approved this.')
  const done = (await settled(started.server, taskId)) as { result: { content: object[]; _meta: object } }
  expect(done.result.content).toMatchObject([
    { text: 'Deployed 1.2.3, approved by Ann.' },
    { text: 'Approved, and executed.' },
  ])
  expect(done.result._meta).toMatchObject({
    'io.modelcontextprotocol/tool-approval': { outcome: 'approved-executed' },
  })
  expect((await started.approvals.desk().verify()).problems).toEqual([])
})

it('L3 a tool of an official server executes nothing that Ann has denied', async () => {
  const started = await start()
  const { taskId, id } = await ask(started)
  await decide(started, id, 'deny')
  expect(await settled(started.server, taskId)).toMatchObject({
    result: {
      isError: true,
      _meta: { 'io.modelcontextprotocol/tool-approval': { outcome: 'denied-not-executed' } },
    },
  })
})

it('L1 the caller of an official server cannot approve its own call', async () => {
  const started = await start({ principal: () => ({ issuer: ISSUER, subject: 'ann' }) })
  const { id } = await ask(started)
  expect(await started.visit(`/r/${id}`)).toContain('You cannot decide this yourself')
  const held = await started.visit(`/r/${id}`, {
    method: 'POST',
    body: new URLSearchParams({ decision: 'approve' }),
  })
  expect(held).toContain('Nothing was decided')
  expect((await started.approvals.desk().get(id))?.state).toBe('open')
})

it('L2 cancelling the task on an official server withdraws the request', async () => {
  const started = await start()
  const { taskId, id } = await ask(started)
  await send(started.server, 'tasks/cancel', { taskId })
  expect((await started.approvals.desk().get(id))?.state).toBe('withdrawn')
})

it('L6 another process of an official server continues a task whose request was decided meanwhile', async () => {
  const store = createMemoryStore()
  const first = await start({ store })
  const { taskId, id } = await ask(first)
  await first.rondo.close()
  const second = await start({ store })
  second.build()
  await second.rondo.ready()
  expect(await decide(second, id, 'approve')).toContain('You have approved this.')
  expect(await settled(second.server, taskId)).toMatchObject({ status: 'completed' })
})

import { createMcpHandler, McpServer } from '@modelcontextprotocol/server'
import type { CallFacts, Extension, ExtensionHost } from 'rondo/extension'
import { createRondo, type RondoOptions } from 'rondo/sdk'
import { expect, it } from 'vitest'
import { send, settled } from '../../../../test/support/task-client.ts'
import { createMemoryStore } from '../store/memory/store.ts'

const KEYS = 'k:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE='

function shop(extensions: readonly Extension[], options: Partial<RondoOptions> = {}) {
  const rondo = createRondo({
    audience: 'shop',
    keys: KEYS,
    log: 'off',
    store: createMemoryStore(),
    ...options,
  })
  for (const extension of extensions) rondo.use(extension)
  const order = rondo.tool(
    async (_args, ctx) => {
      await ctx.background()
      return { content: [{ type: 'text', text: 'ordered' }] }
    },
    { task: 'auto' },
  )
  const gated = rondo.tool(
    async (_args, ctx) => {
      await ctx.approve('go', { from: 'managers', message: 'Go?' })
      return { content: [] }
    },
    { task: 'auto' },
  )
  const build = () => {
    const server = rondo.tasks(new McpServer({ name: 'shop', version: '1.0.0' }))
    server.registerTool('order', {}, order)
    server.registerTool('gated', {}, gated)
    return server
  }
  return { rondo, ...createMcpHandler(build) }
}

it('an extension of a mount runs around requests, requests about tasks, and turns', async () => {
  const seen: string[] = []
  const around: Extension['around'] = async (call: CallFacts, next) => {
    const reply = await next()
    seen.push(`${call.kind} ${call.method} ${reply.kind}`)
    return reply
  }
  const server = shop([{ name: 'spy', around }])
  const { result } = await send(server, 'tools/call', { name: 'order', arguments: {} })
  await settled(server, String(result?.taskId))
  expect(new Set(seen)).toEqual(
    new Set(['request tools/call task_created', 'turn tools/call complete', 'request tasks/get task']),
  )
  await server.rondo.close()
})

it('an extension of a mount has the keys, the store and the hooks, and is closed with the mount', async () => {
  let host: ExtensionHost | undefined
  let closed = 0
  const attach: Extension['attach'] = (given) => {
    host = given
    return () => {
      closed += 1
    }
  }
  const { rondo } = shop([{ name: 'keeper', attach }])
  expect(host).toMatchObject({ name: 'shop', tenant: 'shop', store: expect.anything() })
  const sealed = (await host?.seal('cookie', 'ann')) ?? ''
  expect(new TextDecoder().decode(await host?.open('cookie', sealed))).toBe('ann')
  expect(await host?.hook('h.made-up')).toEqual({ kind: 'unknown' })
  await rondo.close()
  expect(closed).toBe(1)
})

it('a mount refuses an extension with methods, and one that comes after the first call', async () => {
  const { rondo } = shop([])
  expect(() => rondo.use({ name: 'm', methods: { 'example.com/x': () => ({}) } })).toThrow(
    /setRequestHandler/,
  )
  await rondo.ready()
  expect(() => rondo.use({ name: 'late' })).toThrow(/rondo\.use must come before/)
  await rondo.close()
})

it('ctx.approve on a mount without approvals ends the task with SERVER_NO_APPROVER', async () => {
  const codes: unknown[] = []
  const server = shop([], { log: (event) => void codes.push((event as { code?: string }).code) })
  const { result } = await send(server, 'tools/call', { name: 'gated', arguments: {} })
  expect(await settled(server, String(result?.taskId))).toMatchObject({ status: 'failed' })
  expect(codes).toContain('SERVER_NO_APPROVER')
  await server.rondo.close()
})

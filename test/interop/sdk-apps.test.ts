/** On an official server, a question names its app to clients that declare it (M6), and a task has its labels (M5). */

import { createMcpHandler, McpServer } from '@modelcontextprotocol/server'
import { generateKey, parseKeys } from 'rondo'
import { createRondo, type Rondo } from 'rondo/sdk'
import { afterEach, expect, it } from 'vitest'
import { z } from 'zod'
import { labelTags } from '../../packages/rondo/src/carry/task/label.ts'
import { createMemoryStore } from '../../packages/rondo/src/store/memory/store.ts'
import { send, settled } from '../support/task-client.ts'

const keys = generateKey()
const open: Rondo[] = []
afterEach(async () => {
  await Promise.all(open.splice(0).map((rondo) => rondo.close()))
})

const APP = 'ui://tables/seats'
const FORM = { elicitation: { form: {} } }
const UI = { 'io.modelcontextprotocol/ui': { mimeTypes: ['text/html;profile=mcp-app'], elicitation: {} } }

function tables(store = createMemoryStore()) {
  const rondo = createRondo({ audience: 'tables', keys, log: 'off', store })
  open.push(rondo)
  const book = rondo.tool(
    async (_args, ctx) => {
      ctx.label({ order: '4711' })
      const question = { message: 'Where?', schema: z.object({ seat: z.string() }), ui: APP }
      const { seat } = await ctx.ask('seat', question)
      return { content: [{ type: 'text' as const, text: `Booked ${seat}.` }] }
    },
    { task: 'auto' },
  )
  return createMcpHandler(() => {
    const server = new McpServer({ name: 'tables', version: '1.0.0' })
    rondo.tasks(server)
    server.registerTool('book', {}, book)
    return server
  })
}

it('M6 a mount names the app in rounds to clients that declare it, and takes the answer of those that no longer do', async () => {
  const server = tables()
  const call = async (capabilities: object, more: object = {}) =>
    (await send(server, 'tools/call', { name: 'book', arguments: {}, ...more }, { capabilities })).result
  const drawn = await call({ ...FORM, extensions: UI })
  expect(drawn).toMatchObject({
    inputRequests: { seat: { params: { _meta: { ui: { resourceUri: APP } } } } },
  })
  const plain = await call(FORM)
  expect(plain).toMatchObject({ inputRequests: { seat: { params: { message: 'Where?' } } } })
  expect(JSON.stringify(plain)).not.toContain('ui://')
  const inputResponses = { seat: { action: 'accept', content: { seat: 'inside' } } }
  const done = await call(FORM, { requestState: drawn?.requestState, inputResponses })
  expect(done).toMatchObject({ content: [{ text: 'Booked inside.' }] })
})

it('M5 a task of a mount is found by its labels', async () => {
  const store = createMemoryStore()
  const server = tables(store)
  const { result } = await send(server, 'tools/call', { name: 'book', arguments: {} })
  await settled(server, String(result?.taskId))
  const found = await store.tasks.list({ labels: [labelTags(parseKeys(keys), 'order', '4711')] })
  expect(found).toMatchObject([{ id: result?.taskId }])
})

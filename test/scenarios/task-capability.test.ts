/** B10 for tasks: no request receives an input request of a kind that it has not declared itself, whoever created the task. */

import { createServer, generateKey, type Server } from 'rondo'
import { describe, expect, it, onTestFinished } from 'vitest'
import { z } from 'zod'
import { createMemoryStore } from '../../packages/rondo/src/store/memory/store.ts'
import { DRAFT, declaring, postDraft } from '../support/draft-client.ts'
import { connectOlder } from '../support/older-client.ts'
import { send, settled } from '../support/task-client.ts'

const EXTENSION = { extensions: { 'io.modelcontextprotocol/tasks': {} } }
const FORM = { elicitation: { form: {} } }
const URL_ONLY = { elicitation: { url: {} } }
const BOTH = { elicitation: { form: {}, url: {} } }

function make(): Server {
  const server = createServer({
    name: 'capability',
    version: '1',
    keys: generateKey(),
    log: 'off',
    sessions: {},
    eras: ['2026-07-28', '2025-11-25', DRAFT],
    store: createMemoryStore(),
  })
  onTestFinished(() => server.close())
  server.tool('both', { task: 'auto' }, async (_args, ctx) => {
    const schema = z.object({ name: z.string() })
    const [{ name }] = await Promise.all([
      ctx.ask('name', { message: 'Name?', schema }),
      ctx.visit('page', { message: 'Look', url: 'https://example.com/' }),
    ])
    return name
  })
  return server
}

const SENTENCE = (names: string): string =>
  `The task waits for input that needs ${names}, which this request does not declare.`

/** The questions that are shown for each capability, and the capability that the refusal of the others names. */
const CASES = [
  ['both', BOTH, ['name', 'page'], undefined],
  ['forms alone', FORM, ['name'], 'elicitation.url'],
  ['pages alone', URL_ONLY, ['page'], 'elicitation.form'],
  ['nothing', {}, [], 'elicitation.form, elicitation.url'],
] as const

describe('the input requests of a task', () => {
  it.each(CASES)(
    'B10 E3 are filtered in 2026-07-28 for a request that declares %s',
    async (_name, declared, keys, missing) => {
      const server = make()
      const created = await send(server, 'tools/call', { name: 'both', arguments: {} })
      const taskId = String(created.result?.taskId)
      await settled(server, taskId)
      const capabilities = { ...declared, ...EXTENSION }
      const { result } = await send(server, 'tasks/get', { taskId }, { capabilities })
      expect(result?.status).toBe('input_required')
      expect(Object.keys(result?.inputRequests as object).sort()).toEqual([...keys])
      expect(result?.statusMessage).toBe(
        missing ? SENTENCE(missing) : 'Waiting for an answer to "name", "page"',
      )
    },
  )

  it.each(CASES)(
    'B10 D3 are filtered in the draft for a request that declares %s',
    async (_name, declared, keys, missing) => {
      const server = make()
      const request = (id: number, method: string, params: object) => ({ jsonrpc: '2.0', id, method, params })
      const call = request(1, 'tools/call', { name: 'both', arguments: {}, task: {} })
      const { message } = await postDraft(server, declaring(call, BOTH))
      const { taskId } = (message as { result: { task: { taskId: string } } }).result.task
      const asked = await postDraft(server, declaring(request(2, 'tasks/result', { taskId }), declared))
      if (keys.length > 0) {
        const { inputRequests } = asked.message.result as { inputRequests: object }
        expect(Object.keys(inputRequests).sort()).toEqual([...keys])
      } else {
        expect(asked.message).toMatchObject({ error: { code: -32602, message: SENTENCE(missing ?? '') } })
      }
    },
  )

  it.each(CASES)(
    'B10 F1 are filtered in 2025-11-25 for a session that declares %s',
    async (_name, declared, keys, missing) => {
      const server = make()
      const url = 'http://127.0.0.1/mcp'
      const connect = (capabilities: object, answer?: () => unknown) =>
        connectOlder(url, { capabilities: { ...capabilities }, answer }, (request) => server.fetch(request))
      const began = await connect(BOTH)
      const created = await began.call('tools/call', { name: 'both', arguments: {}, task: {} })
      const { taskId } = (created as { result: { task: { taskId: string } } }).result.task
      const waits = await connect(declared, () => ({ action: 'accept', content: { name: 'Ada' } }))
      const response = await waits.call('tasks/result', { taskId })
      const modes = waits.asked.map(({ params }) => (params.mode === 'url' ? 'page' : 'name'))
      expect(modes.sort()).toEqual([...keys])
      if (missing === undefined) {
        expect(response).toMatchObject({ result: { content: [{ text: 'Ada' }] } })
      } else {
        expect(response).toMatchObject({
          error: { code: -32602, message: expect.stringContaining('waits for input') },
        })
      }
    },
  )

  it('B10 E4 are filtered in notifications to a subscriber that declares less', async () => {
    const server = make()
    const created = await send(server, 'tools/call', { name: 'both', arguments: {} })
    const taskId = String(created.result?.taskId)
    await settled(server, taskId)
    const controller = new AbortController()
    const _meta = {
      'io.modelcontextprotocol/protocolVersion': '2026-07-28',
      'io.modelcontextprotocol/clientCapabilities': { ...FORM, ...EXTENSION },
    }
    const response = await server.fetch(
      new Request('http://127.0.0.1/mcp', {
        method: 'POST',
        headers: {
          'content-type': 'application/json',
          accept: 'application/json, text/event-stream',
          'mcp-protocol-version': '2026-07-28',
          'mcp-method': 'subscriptions/listen',
        },
        body: JSON.stringify({
          jsonrpc: '2.0',
          id: 1,
          method: 'subscriptions/listen',
          params: { notifications: { taskIds: [taskId] }, _meta },
        }),
        signal: controller.signal,
      }),
    )
    const reader = (response.body as ReadableStream<Uint8Array>).getReader()
    let seen = ''
    for (let i = 0; i < 20 && !seen.includes('notifications/tasks"'); i++) {
      const { value, done } = await reader.read()
      if (done) break
      seen += new TextDecoder().decode(value)
    }
    expect(seen).toContain('"name"')
    expect(seen).not.toContain('https://example.com')
    controller.abort()
  })
})

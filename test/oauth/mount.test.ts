/** Scopes inside an official server: its entrance sends the challenge, and its token information becomes our principal. */

import { createMcpHandler, McpServer } from '@modelcontextprotocol/server'
import { createRondo } from 'rondo/sdk'
import { describe, expect, it } from 'vitest'
import { z } from 'zod'
import { generateKey } from '../../packages/rondo/src/seal/key-ring.ts'
import { createMemoryStore } from '../../packages/rondo/src/store/memory/store.ts'
import { call, readChallenge, request } from '../support/protected-server.ts'

const RESOURCE = new URL('https://mcp.example.com/mcp')
const extra = { sub: 'alice', iss: 'https://id.example.com' }
const YES = { inputResponses: { sure: { action: 'accept', content: { confirm: true } } } }

function open() {
  const ran: string[] = []
  const rondo = createRondo({
    audience: 'tracker',
    keys: generateKey('mount'),
    log: 'off',
    store: createMemoryStore(),
    implies: (granted, required) => granted === 'tickets:*' && required.startsWith('tickets:'),
  })
  const refund = rondo.tool<{ amount: number }>(
    async (_args, ctx) => {
      ran.push('refund')
      await ctx.confirm('sure', 'Refund?')
      return { content: [{ type: 'text', text: ctx.principal?.scopes?.join(' ') ?? '' }] }
    },
    { scopes: ({ amount }) => (amount > 100 ? ['tickets:write', 'tickets:large'] : ['tickets:write']) },
  )
  const report = rondo.tool(
    async (_args, ctx) => {
      await ctx.confirm('sure', 'Report?')
      return { content: [] }
    },
    { scopes: ['tickets:write'], task: 'always' },
  )
  const letter = rondo.prompt(() => ({ messages: [] }), { scopes: ['tickets:write'] })
  const all = rondo.resource((uri) => ({ contents: [{ uri: uri.href, text: '' }] }), {
    scopes: ['tickets:write'],
  })
  const build = (): McpServer => {
    const server = rondo.tasks(new McpServer({ name: 'tracker', version: '1.0.0' }))
    const config = { inputSchema: z.object({ amount: z.coerce.number() }) }
    server.registerTool('refund', config, refund)
    server.registerTool('plain', {}, () => ({ content: [] }))
    server.registerTool('report', {}, report)
    server.registerPrompt('letter', {}, letter)
    server.registerResource('all', 'tickets://all', {}, all)
    return server
  }
  const handler = createMcpHandler(build)
  /** A server to which the caller's token has these scopes. */
  const as = (...scopes: string[]) => ({
    fetch: (sent: Request) =>
      handler.fetch(sent, {
        authInfo: { token: 'x', clientId: 'desk', scopes, resource: RESOURCE, extra },
      }),
  })
  /** A call with enough scope, for a caller who differs in something. */
  const asOther = ({ clientId = 'desk', ...claims }: Record<string, string>) => ({
    fetch: (sent: Request) =>
      handler.fetch(sent, {
        authInfo: {
          ...{ token: 'x', clientId, scopes: ['tickets:write'], resource: RESOURCE },
          extra: { ...extra, ...claims },
        },
      }),
  })
  const anonymous = { fetch: (sent: Request) => handler.fetch(sent) }
  return { as, asOther, anonymous, ran, rondo }
}

describe('scopes in an official server', () => {
  it.each([
    ['tools/call', call('refund', { amount: '500' }), 'tickets:write tickets:large'],
    ['tools/call', call('report'), 'tickets:write'],
    ['prompts/get', { name: 'letter' }, 'tickets:write'],
    ['resources/read', { uri: 'tickets://all' }, 'tickets:write'],
  ])('H2 challenges %s %j with all scopes at once', async (method, params, scope) => {
    const { as, ran } = open()
    const refused = await request(as('tickets:read'), undefined, method, params)
    expect(refused.status).toBe(403)
    expect(readChallenge(refused.challenge)).toMatchObject({
      error: 'insufficient_scope',
      scope,
      resource_metadata: 'https://mcp.example.com/.well-known/oauth-protected-resource/mcp',
    })
    expect(ran).toEqual([])
    expect((await request(as('tickets:*'), undefined, method, params)).status).toBe(200)
  })

  it('H2 T33 challenges the second round with less scope, and completes it with enough', async () => {
    const { as, ran } = open()
    const first = await request(as('tickets:write'), undefined, 'tools/call', call('refund', { amount: 5 }))
    const answers = { ...YES, requestState: first.result?.requestState }
    const round = call('refund', { amount: 5 }, answers)
    expect(await request(as('tickets:read'), undefined, 'tools/call', round)).toMatchObject({ status: 403 })
    expect(ran).toHaveLength(1)
    const done = await request(as('tickets:write', 'more'), undefined, 'tools/call', round)
    expect(done.result).toMatchObject({ content: [{ text: 'tickets:write more' }] })
  })

  it.each([
    ['another user', { sub: 'bob' }],
    ['a user of that name at another issuer', { iss: 'https://id.example.org' }],
    ['another client of the user', { clientId: 'phone' }],
  ])('H3 refuses a state of %s with the one error', async (_who, other) => {
    const { as, asOther, ran } = open()
    const first = await request(as('tickets:write'), undefined, 'tools/call', call('refund', { amount: 5 }))
    const round = call('refund', { amount: 5 }, { ...YES, requestState: first.result?.requestState })
    expect((await request(asOther(other), undefined, 'tools/call', round)).error).toMatchObject({
      code: -32602,
      message: 'Invalid or expired requestState',
    })
    expect(ran).toHaveLength(1)
    expect((await request(asOther({}), undefined, 'tools/call', round)).result).toBeDefined()
  })

  it('H2 challenges requests about a task with less scope', async () => {
    const { as, rondo } = open()
    const { result } = await request(as('tickets:write'), undefined, 'tools/call', call('report'))
    const { taskId } = result as { taskId: string }
    for (const method of ['tasks/get', 'tasks/update', 'tasks/cancel']) {
      const refused = await request(as('tickets:read'), undefined, method, { taskId, inputResponses: {} })
      expect([method, refused.status]).toEqual([method, 403])
    }
    expect((await request(as('tickets:write'), undefined, 'tasks/get', { taskId })).status).toBe(200)
    await rondo.close()
  })

  it('H2 refuses a caller without a token, where the entrance let it in', async () => {
    const { anonymous, ran } = open()
    const refused = await request(anonymous, undefined, 'tools/call', call('refund', { amount: 5 }))
    expect(refused.error).toMatchObject({ code: -32000, data: { requiredScopes: ['tickets:write'] } })
    expect(ran).toEqual([])
    expect((await request(anonymous, undefined, 'tools/call', call('plain'))).error).toBeUndefined()
  })
})

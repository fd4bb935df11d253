import { McpServer, type ServerContext } from '@modelcontextprotocol/server'
import { describe, expect, it } from 'vitest'
import { generateKey } from '../seal/key-ring.ts'
import { besideOurs, UnopenedState } from './call.ts'
import { mount } from './intercept.ts'
import { createRondo } from './mount.ts'

const rondo = createRondo({ audience: 'test', keys: generateKey(), log: 'off' })
const text = { content: [] }

/** The view that `verify` has of a request for a tool: the context that is passed to the server's handler. */
async function contextOf(name: string): Promise<ServerContext> {
  const server = mount(new McpServer({ name: 'mixed', version: '1.0.0' }))
  server.registerTool(
    'ours',
    {},
    rondo.tool(() => text),
  )
  server.registerTool('theirs', {}, () => text)
  const { _requestHandlers: handlers } = server.server as unknown as {
    _requestHandlers: Map<string, (request: object, ctx: object) => Promise<unknown>>
  }
  const requestState = () => 'state'
  let seen: ServerContext | undefined
  Object.assign(server.server, {
    _requestStateVerify(_state: string, ctx: ServerContext) {
      seen = ctx
    },
  })
  const request = { method: 'tools/call', params: { name } }
  await handlers
    .get('tools/call')?.(request, { mcpReq: { requestState } })
    .catch(() => {})
  if (!seen) throw new Error('nothing was verified')
  return seen
}

describe('our states beside those of another server', () => {
  const verify = besideOurs((state) => `theirs: ${state}`)
  const states = ['', 'r1.sealed', 'h1.stored', 'r2.x', 'x r1.y']

  it.each(states)('F4 passes "%s" to a tool of ours unopened, and reveals nothing of it', async (state) => {
    const held = await verify(state, await contextOf('ours'))
    expect(held).toBeInstanceOf(UnopenedState)
    expect(JSON.stringify(held)).toBe('{}')
    expect(UnopenedState.tokenOf(held)).toBe(state)
  })

  it.each(states)('T25 passes "%s" to the given check for every other tool', async (state) => {
    for (const ctx of [await contextOf('theirs'), await contextOf('unknown'), {} as never]) {
      expect(await verify(state, ctx)).toBe(`theirs: ${state}`)
    }
  })
})

import { McpServer } from '@modelcontextprotocol/server'
import { describe, expect, it } from 'vitest'
import { interceptedOf, mount } from './intercept.ts'
import { createRondo } from './mount.ts'

const create = (options?: ConstructorParameters<typeof McpServer>[1]) =>
  new McpServer({ name: 'mounted', version: '1.0.0' }, options)

describe('mount', () => {
  it('returns the server itself, and changes nothing when it is repeated', () => {
    const server = create()
    expect(mount(server)).toBe(server)
    const { setRequestHandler } = server.server
    expect(mount(server)).toBe(server)
    expect(server.server.setRequestHandler).toBe(setRequestHandler)
  })

  it('accepts a server that already has tools', () => {
    const server = create({ capabilities: { tools: {} } })
    server.registerTool('early', {}, () => ({ content: [] }))
    expect(mount(server)).toBe(server)
  })

  it('refuses a server whose handlers it can no longer reach, and says what to do', () => {
    const closed = {
      server: {
        assertCanSetRequestHandler() {
          throw new Error('taken')
        },
        setRequestHandler() {},
      },
    }
    expect(() => mount(closed as unknown as McpServer)).toThrow(/leave capabilities\.tools out/)
  })

  it('does not wrap handlers of other methods', () => {
    const seen: unknown[][] = []
    const register = () => {}
    const open = {
      registerTool: register,
      registerPrompt: register,
      registerResource: register,
      server: {
        assertCanSetRequestHandler() {},
        setRequestHandler: (...params: unknown[]) => void seen.push(params),
      },
    }
    mount(open as unknown as McpServer)
    const set = open.server.setRequestHandler
    const handler = () => ({})
    set('ping', handler)
    set('acme/search', { params: {} }, handler)
    set('tools/call', handler)
    expect(seen.slice(0, 2)).toEqual([
      ['ping', handler],
      ['acme/search', { params: {} }, handler],
    ])
    expect(seen[2]?.[1]).not.toBe(handler)
  })
})

describe('a callback', () => {
  it('fails without a mount, before anything of the handler runs', async () => {
    const rondo = createRondo({ audience: 'test', log: 'off' })
    let ran = false
    const callback = rondo.tool(() => {
      ran = true
      return { content: [] }
    })
    await expect(callback({ mcpReq: {} } as never)).rejects.toThrow(/rondo\.mount\(new McpServer/)
    expect(ran).toBe(false)
    expect(() => interceptedOf({ mcpReq: {} } as never)).toThrow(TypeError)
  })
})

describe('createRondo', () => {
  it.each([{}, { audience: '' }, undefined])('refuses options without an audience: %j', (options) => {
    expect(() => createRondo(options as never)).toThrow(/audience/)
  })

  it('reads keys at once, so that invalid ones fail at startup', async () => {
    expect(() => createRondo({ audience: 'test', keys: 'nonsense' })).toThrow(TypeError)
    const source = { load: () => Promise.reject(new Error('no keys')) }
    await expect(createRondo({ audience: 'test', keys: source }).ready()).rejects.toThrow('no keys')
  })
})

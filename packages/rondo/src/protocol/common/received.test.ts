import { describe, expect, it } from 'vitest'
import {
  decodeCacheHint,
  decodeCompletion,
  decodeDiscovery,
  decodeNotification,
  decodePage,
  subscriptionOf,
} from './received.ts'

describe('results of one round', () => {
  it('reads a page', () => {
    const tools = [{ name: 'a', inputSchema: {} }]
    expect(decodePage('tools', { tools, nextCursor: '', ttlMs: 5, cacheScope: 'public' })).toEqual({
      items: tools,
      nextCursor: '',
      ttlMs: 5,
      cacheScope: 'public',
    })
    expect(decodePage('templates', { resourceTemplates: [{ uriTemplate: 'a', name: 'b' }] })).toBeDefined()
  })

  it.each([
    {},
    { tools: {} },
    { tools: [1] },
    { tools: [{ title: 'no name' }] },
    { tools: [], nextCursor: 1 },
  ])('refuses the page %j', (result) => {
    expect(decodePage('tools', result)).toBeUndefined()
  })

  it.each([
    [{}, {}],
    [{ ttlMs: -1, cacheScope: 'public' }, {}],
    [{ ttlMs: 'x' }, {}],
    [{ ttlMs: 5 }, { ttlMs: 5, cacheScope: 'private' }],
    [
      { ttlMs: 5, cacheScope: 'x' },
      { ttlMs: 5, cacheScope: 'private' },
    ],
  ])('reads the cache hint %j as %j', (result, hint) => {
    expect(decodeCacheHint(result)).toEqual(hint)
  })

  it('reads discovery and completion, and refuses malformed ones', () => {
    const serverInfo = { name: 'n', version: '1', title: 't' }
    const found = decodeDiscovery({
      supportedVersions: ['2026-07-28'],
      capabilities: {},
      instructions: 'i',
      _meta: { 'io.modelcontextprotocol/serverInfo': serverInfo },
    })
    expect(found).toMatchObject({ instructions: 'i', serverInfo })
    expect(decodeDiscovery({ supportedVersions: [1], capabilities: {} })).toBeUndefined()
    expect(decodeDiscovery({ supportedVersions: [] })).toBeUndefined()
    expect(decodeCompletion({ completion: { values: ['a'], total: 3, hasMore: true } })).toEqual({
      values: ['a'],
      total: 3,
      hasMore: true,
    })
    expect(decodeCompletion({ completion: { values: [1] } })).toBeUndefined()
    expect(decodeCompletion({})).toBeUndefined()
  })
})

describe('notifications', () => {
  const message = (method: string, params: object) => ({ jsonrpc: '2.0', method, params })

  it.each([
    ['notifications/progress', { progressToken: 1, progress: 2, total: 3, message: 'm' }, 'progress'],
    ['notifications/message', { level: 'info', data: { a: 1 }, logger: 'l' }, 'log'],
    ['notifications/tools/list_changed', {}, 'tools'],
    ['notifications/prompts/list_changed', {}, 'prompts'],
    ['notifications/resources/list_changed', {}, 'resources'],
    ['notifications/resources/updated', { uri: 'a:b' }, 'resource'],
  ])('reads %s', (method, params, kind) => {
    expect(decodeNotification(message(method, params))).toMatchObject({ kind })
  })

  it.each([
    ['notifications/progress', { progress: 2 }],
    ['notifications/progress', { progressToken: 1 }],
    ['notifications/message', { level: 'shout', data: 1 }],
    ['notifications/message', { level: 'info' }],
    ['notifications/resources/updated', {}],
    ['notifications/unheard', {}],
  ])('ignores %s with %j', (method, params) => {
    expect(decodeNotification(message(method, params))).toBeUndefined()
  })

  it('reads what a subscription covers, and which subscription a change belongs to', () => {
    const notifications = {
      toolsListChanged: true,
      promptsListChanged: 'x',
      resourceSubscriptions: ['a:b', 1],
    }
    const ack = message('notifications/subscriptions/acknowledged', {
      notifications,
      _meta: { 'io.modelcontextprotocol/subscriptionId': 5 },
    })
    expect(decodeNotification(ack)).toEqual({
      kind: 'subscribed',
      filter: { toolsListChanged: true, resourceSubscriptions: ['a:b'] },
    })
    expect(subscriptionOf(ack)).toBe(5)
    expect(subscriptionOf({})).toBeUndefined()
  })
})

import { describe, expect, it } from 'vitest'
import { createEchoService, VERSION } from '../../../../../test/support/echo-service.ts'
import type { ListenCall, ListenFilter, RequestId } from '../../protocol/call.ts'
import type { TaskState } from '../../protocol/reply.ts'
import { NOBODY } from '../limits.ts'
import type { WatchTasks } from '../port.ts'
import { createSubscriptions } from './subscription.ts'

const ID = 'io.modelcontextprotocol/subscriptionId'

const SUBSCRIBER = { principal: undefined, share: NOBODY }

function listenCall(filter: ListenFilter, id: RequestId = 7): ListenCall {
  return { kind: 'listen', id, protocolVersion: VERSION, capabilities: {}, filter }
}

function openOne(filter: ListenFilter, maxSubscriptions?: number, watchTasks?: WatchTasks) {
  const service = { ...createEchoService(), watchTasks }
  const subscriptions = createSubscriptions(service, { maxSubscriptions, maxSubscriptionsPerCaller: 2 })
  const messages: { method?: string; params?: Record<string, unknown>; id?: RequestId; result?: unknown }[] =
    []
  let ended = 0
  const sink = { send: (json: string) => messages.push(JSON.parse(json)), end: () => ended++ }
  const stop = subscriptions.open(listenCall(filter), SUBSCRIBER, sink)
  return { service, subscriptions, messages, stop, sink, ended: () => ended }
}

describe('subscriptions', () => {
  it('subscription 1: acknowledge first, with the part of the filter that is honored', () => {
    const { messages } = openOne({
      toolsListChanged: true,
      promptsListChanged: false,
      resourcesListChanged: true,
      resourceSubscriptions: ['a://b', 'a://b'],
    })
    expect(messages).toEqual([
      {
        jsonrpc: '2.0',
        method: 'notifications/subscriptions/acknowledged',
        params: {
          notifications: { toolsListChanged: true, resourceSubscriptions: ['a://b'] },
          _meta: { [ID]: 7 },
        },
      },
    ])
  })

  it('subscription 2: name themselves on every message', () => {
    const { service, messages } = openOne({ toolsListChanged: true, resourceSubscriptions: ['a://b'] })
    service.changes.publish({ kind: 'tools' })
    service.changes.publish({ kind: 'resource', uri: 'a://b' })
    expect(messages.slice(1)).toEqual([
      { jsonrpc: '2.0', method: 'notifications/tools/list_changed', params: { _meta: { [ID]: 7 } } },
      {
        jsonrpc: '2.0',
        method: 'notifications/resources/updated',
        params: { uri: 'a://b', _meta: { [ID]: 7 } },
      },
    ])
  })

  it('subscription 3: notify only of what was asked for', () => {
    const { service, messages } = openOne({ promptsListChanged: true, resourceSubscriptions: ['a://b'] })
    service.changes.publish({ kind: 'tools' })
    service.changes.publish({ kind: 'resources' })
    service.changes.publish({ kind: 'resource', uri: 'a://c' })
    expect(messages).toHaveLength(1)
    service.changes.publish({ kind: 'prompts' })
    expect(messages[1]?.method).toBe('notifications/prompts/list_changed')
  })

  it('subscription 4: end with an empty result when the server closes', () => {
    const { service, subscriptions, messages, ended } = openOne({ toolsListChanged: true })
    subscriptions.endAll()
    expect(messages[1]).toMatchObject({ id: 7, result: { resultType: 'complete', _meta: { [ID]: 7 } } })
    expect(ended()).toBe(1)
    service.changes.publish({ kind: 'tools' })
    subscriptions.endAll()
    expect(messages).toHaveLength(2)
  })

  it('subscription 4: write nothing more when the client goes', () => {
    const { service, subscriptions, messages, stop, ended } = openOne({ toolsListChanged: true })
    stop()
    service.changes.publish({ kind: 'tools' })
    subscriptions.endAll()
    expect(messages).toHaveLength(1)
    expect(ended()).toBe(0)
    expect(subscriptions.size).toBe(0)
  })

  it('subscription 5: T18 one caller cannot use up the limit of all', () => {
    const { subscriptions, sink } = openOne({ toolsListChanged: true })
    const listen = (share: string) =>
      subscriptions.open(listenCall({ toolsListChanged: true }), { principal: undefined, share }, sink)
    const stop = listen('a')
    listen('a')
    expect(() => listen('a')).toThrow('[LIMIT_SUBSCRIPTIONS]')
    expect(() => listen('b')).not.toThrow()
    stop()
    stop()
    expect(() => listen('a')).not.toThrow()
    expect(() => listen('a')).toThrow('[LIMIT_SUBSCRIPTIONS]')
  })

  it.each<[string, ListenFilter, RequestId]>([
    ['one long URI', { resourceSubscriptions: ['a'.repeat(40_000)] }, 7],
    ['many URIs', { resourceSubscriptions: Array.from({ length: 2_000 }, (_, i) => `notes://${i}`) }, 7],
    ['a long id', { toolsListChanged: true }, 'x'.repeat(40_000)],
  ])('subscription 5: T18 are refused if they name too much: %s', (_, filter, id) => {
    const { subscriptions, sink } = openOne({ toolsListChanged: true })
    expect(() => subscriptions.open(listenCall(filter, id), SUBSCRIBER, sink)).toThrow('too large')
    expect(subscriptions.size).toBe(1)
  })

  it('subscription 5: are never more than the limit', () => {
    const { subscriptions, sink, stop } = openOne({ toolsListChanged: true }, 1)
    const second = () => subscriptions.open(listenCall({ toolsListChanged: true }, 8), SUBSCRIBER, sink)
    expect(second).toThrow('[LIMIT_SUBSCRIPTIONS]')
    stop()
    expect(second).not.toThrow()
  })

  it('end at once if there is nothing to be notified of', () => {
    const { messages, ended, subscriptions } = openOne({ resourcesListChanged: true })
    expect(messages).toHaveLength(2)
    expect(ended()).toBe(1)
    expect(subscriptions.size).toBe(0)
  })
})

describe('subscriptions to tasks', () => {
  const filter = { taskIds: ['one'] }
  const task: TaskState = { taskId: 'one', status: 'working', createdAt: 1, lastUpdatedAt: 2, ttlMs: null }
  const moment = () => new Promise((resolve) => setImmediate(resolve))

  it('E4 end with their result if tasks cannot be watched, so that the client polls', async () => {
    const { messages, ended, subscriptions } = openOne(filter, undefined, async () => {
      throw new Error('no store')
    })
    await moment()
    expect(messages[1]).toMatchObject({ id: 7, result: { resultType: 'complete' } })
    expect(ended()).toBe(1)
    expect(subscriptions.size).toBe(0)
  })

  it('subscription 4: write nothing after their end, even if the first state of a task arrives later', async () => {
    let stopped = 0
    let look = () => {}
    const watch: WatchTasks = (_ids, _principal, _capabilities, listener) =>
      new Promise((resolve) => {
        look = () => {
          listener(task)
          resolve(() => void stopped++)
        }
      })
    const { messages, subscriptions } = openOne(filter, undefined, watch)
    await moment()
    subscriptions.endAll()
    look()
    await moment()
    expect(messages).toHaveLength(2)
    expect(stopped).toBe(1)
  })
})

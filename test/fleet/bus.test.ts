/** J2: what others publish can neither flood an instance nor deceive it, and what was missed is caught up. */

import { generateKey, parseKeys, type Store } from 'rondo'
import type { Bus } from 'rondo/store'
import { expect, it } from 'vitest'
import { sealEnvelope } from '../../packages/rondo/src/seal/envelope.ts'
import { BUS_LIMITS } from '../../packages/rondo/src/store/bus.ts'
import { createMemoryStore } from '../../packages/rondo/src/store/memory/store.ts'
import type { BusListener } from '../../packages/rondo/src/store/store.ts'
import type { OpenStream } from '../support/older-client.ts'
import { startFleet } from '../support/older-fleet.ts'
import { until } from '../support/store/store-harness.ts'

const kinds = ({ messages }: OpenStream): string[] => messages.map(({ method }) => String(method))

/** Reads a stream until it ends. */
function read(stream: OpenStream): void {
  void (async () => {
    while (await stream.next());
  })().catch(() => {})
}

it('T27 J2 messages that were not sealed by this service have no effect', async () => {
  const store = createMemoryStore()
  const { connect, instances } = await startFleet(2, () => ({ store }))
  const client = await connect()
  const stream = await client.get()
  read(stream)
  const news = JSON.stringify({ from: 'x', news: { kind: 'change', change: { kind: 'prompts' } } })
  const place = JSON.stringify(['bus', 'older'])
  await store.bus?.publish(news)
  await store.bus?.publish(sealEnvelope(parseKeys(generateKey()), place, news).token)
  await store.bus?.publish('x'.repeat(BUS_LIMITS.message))
  instances[0]?.server.tool('one', {}, () => '')
  instances[1]?.server.tool('two', {}, () => '')
  await until('both changes', () => kinds(stream).length >= 2)
  expect(new Set(kinds(stream))).toEqual(new Set(['notifications/tools/list_changed']))
})

it('T27 I3 J2 an instance that announces far too much reaches the others in bounded messages, and nothing that is watched is missed', async () => {
  const store = createMemoryStore()
  const { connect, route, instances } = await startFleet(2, () => ({ store }))
  const client = await connect()
  route(0)
  await client.call('resources/subscribe', { uri: 'test://watched' })
  route(1)
  const stream = await client.get()
  read(stream)
  const flood = 30 * BUS_LIMITS.queue
  for (let i = 0; i < flood; i++) instances[0]?.server.updated(`test://other/${i}`)
  instances[0]?.server.updated('test://watched')
  const updates = () => kinds(stream).filter((kind) => kind === 'notifications/resources/updated')
  await until('the update', () => updates().length > 0)
  // Lost changes are announced as a gap, at most once a second; the thirty thousand others are not announced.
  expect(kinds(stream).length).toBeLessThan(100)
})

/** Counts what reaches the second of two instances while the first announces far too much. */
async function floodThrough(
  busOf: (store: Store) => Bus | undefined,
): Promise<{ flood: number; reached: number }> {
  const flood = 6 * BUS_LIMITS.queue
  const store = createMemoryStore()
  const bus = busOf(store)
  let reached = 0
  const counted: Bus = {
    publish: (message) => bus?.publish(message) ?? Promise.resolve(),
    subscribe: (listener) =>
      bus?.subscribe({
        lost: () => listener.lost(),
        async receive(messages) {
          reached += messages.length
          await listener.receive(messages)
        },
      }) ?? { started: Promise.resolve(), stop: () => {} },
  }
  const { connect, route, instances } = await startFleet(2, (index) => ({
    store: { ...store, bus: index === 1 ? counted : bus },
  }))
  const client = await connect()
  route(1)
  const stream = await client.get()
  read(stream)
  for (let i = 0; i < flood; i++) instances[0]?.server.updated(`test://other/${i}`)
  instances[0]?.server.tool('last', {}, () => '')
  await until('the last change', () => kinds(stream).includes('notifications/tools/list_changed'))
  return { flood, reached }
}

it('T27 J2 an instance reads as much as the queue of another holds, whatever that one announces', async () => {
  const { reached } = await floodThrough(({ bus }) => bus)
  expect(reached).toBeGreaterThan(0)
  expect(reached).toBeLessThanOrEqual(2 * BUS_LIMITS.queue)
})

it('T27 J2 negative control: through a bus without limits, all of it arrives', async () => {
  const listeners = new Set<BusListener>()
  const unbounded: Bus = {
    async publish(message) {
      for (const listener of listeners) await listener.receive([message])
    },
    subscribe(listener) {
      listeners.add(listener)
      return { started: Promise.resolve(), stop: () => void listeners.delete(listener) }
    },
  }
  const { reached, flood } = await floodThrough(() => unbounded)
  expect(reached).toBeGreaterThanOrEqual(flood)
})

it('J2 a thousand updates of one resource are announced to another instance a few times', async () => {
  const store = createMemoryStore()
  const { connect, route, instances } = await startFleet(2, () => ({ store }))
  const client = await connect()
  await client.call('resources/subscribe', { uri: 'test://watched' })
  route(1)
  const stream = await client.get()
  read(stream)
  for (let i = 0; i < 1_000; i++) instances[0]?.server.updated('test://watched')
  instances[0]?.server.tool('last', {}, () => '')
  await until('the last change', () => kinds(stream).includes('notifications/tools/list_changed'))
  expect(kinds(stream).length).toBeLessThan(10)
})

it('J2 the own stream of a session is resumed at another instance, and everything counts as changed', async () => {
  const store = createMemoryStore()
  const { connect, route, instances } = await startFleet(2, () => ({ store }))
  const client = await connect()
  await client.call('resources/subscribe', { uri: 'test://watched' })
  route(0)
  const stream = await client.get()
  instances[0]?.server.tool('one', {}, () => '')
  await stream.next()
  await stream.drop()
  route(1)
  const resumed = await client.get({ 'last-event-id': stream.ids.at(-1) ?? '' })
  expect(resumed.status).toBe(200)
  read(resumed)
  // A change that the first instance announced may still be on its way here, so a kind may come twice.
  await until('all of them', () => new Set(kinds(resumed)).size >= 4)
  expect([...new Set(kinds(resumed))].sort()).toEqual([
    'notifications/prompts/list_changed',
    'notifications/resources/list_changed',
    'notifications/resources/updated',
    'notifications/tools/list_changed',
  ])
})

import { generateKey, parseKeys } from 'rondo'
import { expect, it } from 'vitest'
import type { FlowHost } from '../carry/host.ts'
import { createMemoryStore } from '../store/memory/store.ts'
import { createFleet, type News } from './fleet.ts'

it('J2 news that are told while the same news are under way are told again', async () => {
  const { records } = createMemoryStore()
  const published: (() => void)[] = []
  const publish = (): Promise<void> => new Promise((resolve) => published.push(resolve))
  const subscribe = () => ({ started: Promise.resolve(), stop: () => {} })
  const host = {
    platform: { randomId: () => 'self', now: () => 0 },
    keys: { ready: async () => {}, ring: parseKeys(generateKey()) },
    audience: 'test',
  } as unknown as FlowHost
  const fleet = createFleet(host, { records, bus: { publish, subscribe } })
  fleet?.start()
  const news: News = { kind: 'call', call: 'c_1' }
  const first = fleet?.tell(news)
  await expect.poll(() => published).toHaveLength(1)
  // Others may have read the first news by now, and look no more.
  const later = [fleet?.tell(news), fleet?.tell(news)]
  published[0]?.()
  await first
  await expect.poll(() => published).toHaveLength(2)
  published[1]?.()
  await Promise.all(later)
  expect(published).toHaveLength(2)
})

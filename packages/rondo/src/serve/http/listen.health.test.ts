import { afterEach, describe, expect, it, vi } from 'vitest'
import { generateKey } from '../../seal/key-ring.ts'
import { createMemoryStore } from '../../store/memory/store.ts'
import type { Store } from '../../store/store.ts'
import { createServer } from '../server.ts'
import { createReadiness, type ListenOptions } from './listen.ts'

const ends: (() => Promise<void>)[] = []
afterEach(async () => {
  for (const end of ends.splice(0)) await end()
})

async function start(options: Partial<ListenOptions>, store?: Store) {
  const server = createServer({ name: 'healthy', version: '1', keys: generateKey(), log: 'off', store })
  const listening = await server.listen({ port: 0, signals: false, rejections: false, ...options })
  ends.push(() => server.close())
  const at = (path: string, init?: RequestInit) => fetch(new URL(path, listening.url), init)
  return { server, listening, at }
}

const PATHS = { health: '/healthz', ready: '/readyz' }

describe('the health paths', () => {
  it('exist only if they are set', async () => {
    const { at } = await start({})
    expect((await at('/healthz')).status).toBe(404)
    expect((await at('/readyz')).status).toBe(404)
  })

  it('say live and ready in one word, whatever the Host, and leave the endpoint alone', async () => {
    const { at } = await start(PATHS)
    const live = await at('/healthz?from=probe')
    expect([live.status, await live.text()]).toEqual([200, 'live\n'])
    const ready = await at('/readyz', { headers: { origin: 'https://elsewhere.example' } })
    expect([ready.status, await ready.text()]).toEqual([200, 'ready\n'])
    expect((await at('/readyz', { method: 'HEAD' })).status).toBe(200)
    expect((await at('/readyz', { method: 'POST', body: 'x' })).status).toBe(405)
    expect((await at('/mcp')).status).toBe(405)
  })

  it.each([
    [{ health: 'healthz' }, 'health must be a path'],
    [{ ready: '/mcp' }, 'another path than that of the endpoint'],
    [{ health: '/up', ready: '/up' }, 'two different paths'],
    [{ drainDelayMs: -1 }, 'drainDelayMs must be'],
  ])('refuse %j', async (options, problem) => {
    await expect(start(options)).rejects.toThrow(problem)
  })

  it('are not ready while the store fails, and ready again afterwards', async () => {
    const memory = createMemoryStore()
    let fails = false
    const blobs = {
      ...memory.blobs,
      get: (id: string) => (fails ? Promise.reject(new Error('away')) : memory.blobs.get(id)),
    }
    let now = 0
    const platform = { now: () => now, after: () => () => {} } as never
    const host = { keys: { isReady: true }, draining: false, platform } as never
    const readiness = createReadiness(host, { ...memory, blobs })
    expect(await readiness.check()).toBeUndefined()
    fails = true
    expect(await readiness.check(), 'the result is kept for a second').toBeUndefined()
    now = 1_000
    expect(await readiness.check()).toBe('store')
    fails = false
    now = 2_000
    expect(await readiness.check()).toBeUndefined()
  })

  it('I2 are not ready while the store does not answer, and ask it once at a time', async () => {
    const memory = createMemoryStore()
    let asked = 0
    const late: (() => void)[] = []
    const blobs = {
      ...memory.blobs,
      get() {
        asked += 1
        return new Promise<undefined>(() => {})
      },
    }
    const after = (_ms: number, fn: () => void) => {
      late.push(fn)
      return () => {}
    }
    const host = { keys: { isReady: true }, draining: false, platform: { now: () => 0, after } } as never
    const readiness = createReadiness(host, { ...memory, blobs })
    const checks = Promise.all([readiness.check(), readiness.check(), readiness.check()])
    await Promise.resolve()
    for (const run of late) run()
    expect(await checks).toEqual(['store', 'store', 'store'])
    expect(asked).toBe(1)
  })

  it('say draining while calls are still served, for drainDelayMs', async () => {
    const { server, listening, at } = await start({ ...PATHS, drainDelayMs: 60_000 })
    let end = (): void => {}
    const timer = vi.spyOn(globalThis, 'setTimeout').mockImplementationOnce(((fn: () => void) => {
      end = fn
    }) as never)
    const closing = listening.close()
    expect(timer.mock.calls[0]?.[1]).toBe(60_000)
    timer.mockRestore()
    const ready = await at('/readyz')
    expect([ready.status, await ready.text()]).toEqual([503, 'draining\n'])
    expect((await at('/healthz')).status).toBe(200)
    expect(await server.notReady()).toBe('draining')
    // Not 503: the server still serves. 415 is the refusal of this body.
    expect((await at('/mcp', { method: 'POST', body: '{}' })).status).toBe(415)
    end()
    await closing
    await expect(at('/healthz')).rejects.toThrow()
  })
})

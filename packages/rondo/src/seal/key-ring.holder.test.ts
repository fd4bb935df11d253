import { describe, expect, it, vi } from 'vitest'
import { ringOf } from '../../../../test/support/seal-fixtures.ts'
import { createKeyHolder, type KeyRing, type Schedule } from './key-ring.ts'

/** A timer that the test fires itself. */
function handTimer() {
  const planned: { task: () => void; ms: number; off: boolean }[] = []
  const schedule: Schedule = (task, ms) => {
    const entry = { task, ms, off: false }
    planned.push(entry)
    return () => {
      entry.off = true
    }
  }
  return { planned, schedule, fire: () => planned.at(-1)?.task() }
}

/** A source whose loads the test settles itself. */
function handSource(refreshMs?: number) {
  const loads: PromiseWithResolvers<KeyRing>[] = []
  return {
    loads,
    refreshMs,
    load() {
      const load = withResolvers<KeyRing>()
      loads.push(load)
      return load.promise
    },
  }
}

describe('createKeyHolder', () => {
  it('is ready at once when the source loads synchronously', () => {
    const ring = ringOf('a')
    const holder = createKeyHolder({ load: () => ring })
    expect(() => holder.ring).toThrow(/await ready/)
    expect(holder.ready()).toBeUndefined()
    expect(holder.ring).toBe(ring)
  })

  it('waits for the first ring only, and loads it once for all callers', async () => {
    const source = handSource()
    const holder = createKeyHolder(source)
    const waiting = [holder.ready(), holder.ready()]
    expect(waiting[0]).toBeInstanceOf(Promise)
    expect(source.loads).toHaveLength(1)
    source.loads[0]?.resolve(ringOf('a'))
    await Promise.all(waiting)
    expect(holder.ready()).toBeUndefined()
    expect(holder.ring.names).toEqual(['a'])
  })

  it('retries a first load that failed, whether it threw or rejected', async () => {
    let attempt = 0
    const holder = createKeyHolder({
      load() {
        attempt++
        if (attempt === 1) throw new Error('first')
        if (attempt === 2) return Promise.reject(new Error('second'))
        return ringOf('a')
      },
    })
    await expect(holder.ready()).rejects.toThrow('first')
    await expect(holder.ready()).rejects.toThrow('second')
    expect(holder.ready()).toBeUndefined()
  })

  it.each([undefined, null, 'k:secret', {}, { kind: 'other' }])(
    'refuses %j in place of a ring',
    async (given) => {
      const holder = createKeyHolder({ load: () => given as unknown as KeyRing })
      await expect(holder.ready()).rejects.toThrow(/must return a key ring/)
    },
  )

  it('B9 refreshes without blocking requests: the old ring serves until the new one is loaded', async () => {
    const timer = handTimer()
    const source = handSource(1_000)
    const holder = createKeyHolder(source, { schedule: timer.schedule })
    const first = holder.ready()
    source.loads[0]?.resolve(ringOf('old'))
    await first
    expect(timer.planned.map(({ ms }) => ms)).toEqual([1_000])

    timer.fire()
    expect(holder.ready()).toBeUndefined()
    expect(holder.ring.names).toEqual(['old'])
    source.loads[1]?.resolve(ringOf('new', 'old'))
    await turn()
    expect(holder.ring.names).toEqual(['new', 'old'])
    expect(timer.planned).toHaveLength(2)
  })

  it('B9 keeps the current ring when a refresh fails, reports the error, and retries later', async () => {
    const timer = handTimer()
    const errors: unknown[] = []
    const results = [() => ringOf('old'), fail, () => 'nonsense' as unknown as KeyRing, () => ringOf('new')]
    const holder = createKeyHolder(
      { load: () => results.shift()?.() ?? ringOf('last'), refreshMs: 5 },
      { schedule: timer.schedule, onError: (error) => errors.push(error) },
    )
    holder.ready()
    for (const names of [['old'], ['old'], ['new']]) {
      timer.fire()
      await turn()
      expect(holder.ring.names).toEqual(names)
    }
    expect(errors.map(String)).toEqual([
      'Error: kms is down',
      'TypeError: load() of a key source must return a key ring',
    ])
    expect(timer.planned).toHaveLength(4)
  })

  it('B9 keeps the current ring when a refresh fails and nobody wants to know', async () => {
    const timer = handTimer()
    const results = [() => ringOf('old'), fail, () => ringOf('new')]
    const source = { load: () => results.shift()?.() ?? ringOf('last'), refreshMs: 5 }
    const holder = createKeyHolder(source, { schedule: timer.schedule })
    expect(holder.isReady).toBe(false)
    holder.ready()
    expect(holder.isReady).toBe(true)
    for (const names of [['old'], ['new']]) {
      timer.fire()
      await turn()
      expect(holder.ring.names).toEqual(names)
    }
  })

  it('loads once if there is no refresh', () => {
    const timer = handTimer()
    createKeyHolder({ load: () => ringOf('a') }, { schedule: timer.schedule }).ready()
    expect(timer.planned).toEqual([])
  })

  it('schedules nothing after close, and cancels what was scheduled', async () => {
    const timer = handTimer()
    const holder = createKeyHolder({ load: () => ringOf('a'), refreshMs: 5 }, { schedule: timer.schedule })
    holder.ready()
    holder.close()
    expect(timer.planned.map(({ off }) => off)).toEqual([true])
    timer.fire()
    await turn()
    expect(timer.planned).toHaveLength(1)
    expect(holder.ring.names).toEqual(['a'])
  })

  it('never passes a timer a delay that overflows', () => {
    const timer = handTimer()
    const source = { load: () => ringOf('a'), refreshMs: Number.POSITIVE_INFINITY }
    createKeyHolder(source, { schedule: timer.schedule }).ready()
    expect(timer.planned.map(({ ms }) => ms)).toEqual([2 ** 31 - 1])
  })

  it('B9 refreshes by its own timer until it is closed', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
    try {
      let loads = 0
      const load = () => ringOf(`${loads++}`)
      const holder = createKeyHolder({ load, refreshMs: 60_000 })
      holder.ready()
      await vi.advanceTimersByTimeAsync(60_000)
      expect(holder.ring.names).toEqual(['1'])
      // Other test files of this worker may have left timers behind: only the holder's own goes.
      const timers = vi.getTimerCount()
      holder.close()
      expect(vi.getTimerCount()).toBe(timers - 1)
    } finally {
      vi.useRealTimers()
    }
  })

  it('closes before it has loaded anything', () => {
    expect(() => createKeyHolder({ load: () => ringOf('a') }).close()).not.toThrow()
  })

  it('does not keep the process alive with its own timer', () => {
    const before = process.getActiveResourcesInfo().filter((kind) => kind === 'Timeout').length
    const holder = createKeyHolder({ load: () => ringOf('a'), refreshMs: 60_000 })
    holder.ready()
    const after = process.getActiveResourcesInfo().filter((kind) => kind === 'Timeout').length
    holder.close()
    expect(after).toBe(before)
  })
})

interface PromiseWithResolvers<T> {
  readonly promise: Promise<T>
  resolve(value: T): void
}

function withResolvers<T>(): PromiseWithResolvers<T> {
  let resolve: (value: T) => void = () => {}
  const promise = new Promise<T>((settle) => {
    resolve = settle
  })
  return { promise, resolve: (value) => resolve(value) }
}

function fail(): KeyRing {
  throw new Error('kms is down')
}

/** Lets everything run that is ready to run. */
function turn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve))
}

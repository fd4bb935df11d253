/** The remembered epoch of a store. The store's own promises about epochs are in the store contract. */

import { expect, it } from 'vitest'
import type { StoreClock } from '../lib/clock.ts'
import { recallEpoch } from './single-use.ts'

/** A store whose reads the test settles, and a clock that it drives. */
function start() {
  let elapsed = 0
  let timers: { at: number; fn: () => void }[] = []
  const reads: PromiseWithResolvers<string>[] = []
  const idly: StoreClock['idly'] = (ms, fn) => {
    const timer = { at: elapsed + ms, fn }
    timers.push(timer)
    return () => {
      timers = timers.filter((one) => one !== timer)
    }
  }
  const clock: StoreClock = { now: () => elapsed, elapsed: () => elapsed, after: idly, idly }
  const once = {
    epoch() {
      const read = withResolvers()
      reads.push(read)
      return read.promise
    },
  }
  return {
    epoch: recallEpoch(once, clock),
    reads,
    pass(ms: number) {
      elapsed += ms
      for (const { fn } of timers.filter(({ at }) => at <= elapsed)) fn()
    },
    timers: () => timers.length,
  }
}

type PromiseWithResolvers<T> = {
  promise: Promise<T>
  resolve(value: T): void
  reject(error: unknown): void
}

function withResolvers(): PromiseWithResolvers<string> {
  let resolve: (value: string) => void = () => {}
  let reject: (error: unknown) => void = () => {}
  const promise = new Promise<string>((yes, no) => {
    resolve = yes
    reject = no
  })
  return { promise, resolve, reject }
}

it('B8 the host reads the epoch of a store once for all rounds of a second', async () => {
  const { epoch, reads, pass, timers } = start()
  const first = [epoch(), epoch()]
  reads[0]?.resolve('one')
  expect(await Promise.all(first)).toEqual(['one', 'one'])
  pass(999)
  expect(await epoch()).toBe('one')
  expect(reads).toHaveLength(1)
  expect(timers()).toBe(0)
})

it('B8 new flows get the new epoch of a store that was emptied', async () => {
  const { epoch, reads, pass } = start()
  const first = epoch()
  reads[0]?.resolve('one')
  await first
  pass(1_000)
  const second = epoch()
  reads[1]?.resolve('two')
  expect(await second).toBe('two')
})

it('B8 the last known epoch is used while the store is away, and one round a second waits for it briefly', async () => {
  const { epoch, reads, pass } = start()
  const first = epoch()
  reads[0]?.resolve('one')
  await first
  pass(1_000)
  const waiting = epoch()
  expect(await epoch()).toBe('one')
  pass(100)
  expect(await waiting).toBe('one')
  expect(reads).toHaveLength(2)
  reads[1]?.reject(new Error('down'))
  await new Promise(setImmediate)
  pass(1_000)
  const again = epoch()
  reads[2]?.resolve('two')
  expect(await again).toBe('two')
})

it('B8 a store that was never reached has no epoch, which is read again later', async () => {
  const { epoch, reads, pass } = start()
  const first = [epoch(), epoch()]
  reads[0]?.reject(new Error('down'))
  expect(await Promise.all(first)).toEqual([undefined, undefined])
  expect(await epoch()).toBeUndefined()
  pass(1_000)
  const slow = epoch()
  pass(2_000)
  expect(await slow).toBeUndefined()
  pass(1_000)
  const late = epoch()
  reads[1]?.resolve('one')
  expect(await late).toBe('one')
  expect(reads).toHaveLength(2)
})

it('B8 the first round of all waits two seconds for a store that is slow', async () => {
  const { epoch, reads, pass } = start()
  const first = epoch()
  pass(1_999)
  await new Promise(setImmediate)
  reads[0]?.resolve('one')
  expect(await first).toBe('one')
})

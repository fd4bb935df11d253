/** Single use and spilled journals, on every database. */

import { workOnce } from '../../carry/single-use.ts'
import type { StoreClock } from '../../lib/clock.ts'
import type { OnceSlot, Store } from '../../store/store.ts'
import { createTime, type StoreHarness, type StoreSite, until } from './harness.ts'
import { afterEach, beforeEach, describe, expect, it } from './suite.ts'

export function describeOnceContract(harness: StoreHarness): void {
  let database: StoreSite
  let now: ReturnType<typeof createTime>
  let store: Store
  let other: Store
  let slot: OnceSlot
  beforeEach(async () => {
    database = await harness.create()
    now = createTime()
    store = database.open(now)
    other = database.open(now)
    const epoch = await store.once.epoch()
    slot = { flow: 'flow', round: 1, digest: 'digest', epoch, expiresAt: now() + 60_000 }
  })
  afterEach(() => database.close())
  const attempt = (claimant = 'one') => ({ claimant, holdMs: 5_000 })

  describe('single use', () => {
    it('P13 B8 has one winner among 200 concurrent claims', async () => {
      for (const round of [1, 2, 3]) {
        const claims = await Promise.all(
          Array.from({ length: 200 }, (_, i) =>
            (i % 2 ? store : other).once.claim({ ...slot, round }, attempt(`claimant ${i}`)),
          ),
        )
        expect(claims.filter(({ kind }) => kind === 'first')).toHaveLength(1)
        expect(claims.filter(({ kind }) => kind === 'busy')).toHaveLength(199)
      }
    })

    it('P13 B8 has one winner among 200 different requests, and refuses all others permanently', async () => {
      const claims = await Promise.all(
        Array.from({ length: 200 }, (_, i) =>
          (i % 2 ? store : other).once.claim({ ...slot, digest: `digest ${i}` }, attempt(`claimant ${i}`)),
        ),
      )
      expect(claims.filter(({ kind }) => kind === 'first')).toHaveLength(1)
      expect(claims.filter((claim) => claim.kind === 'refused' && claim.reason === 'used')).toHaveLength(199)
    })

    it('P13 returns the bytes that were stored first to everybody', async () => {
      await store.once.claim(slot, attempt())
      const stored = await Promise.all(
        Array.from({ length: 20 }, (_, i) => (i % 2 ? store : other).once.settle(slot, `response ${i}`)),
      )
      expect(new Set(stored).size).toBe(1)
      expect(await other.once.claim(slot, attempt('later'))).toEqual({ kind: 'stored', response: stored[0] })
    })

    it('B8 returns the stored response to the same request, and refuses any other', async () => {
      expect(await store.once.claim(slot, attempt('first'))).toEqual({ kind: 'first' })
      expect(await other.once.claim(slot, attempt('second'))).toEqual({ kind: 'busy', retryMs: 5_000 })
      expect(await store.once.settle(slot, 'response')).toBe('response')
      expect(await other.once.claim(slot, attempt('third'))).toEqual({ kind: 'stored', response: 'response' })
      const changed = { ...slot, digest: 'changed' }
      expect(await other.once.claim(changed, attempt())).toEqual({ kind: 'refused', reason: 'used' })
      expect(await other.once.claim({ ...slot, round: 2 }, attempt())).toEqual({ kind: 'first' })
      expect(await other.once.claim({ ...slot, flow: 'other' }, attempt())).toEqual({ kind: 'first' })
    })

    it('lets the claimant repeat its claim, and the same request take over an expired hold', async () => {
      await store.once.claim(slot, attempt('first'))
      expect(await other.once.claim(slot, attempt('first'))).toEqual({ kind: 'first' })
      now.pass(4_999)
      expect(await other.once.claim(slot, attempt('second'))).toEqual({ kind: 'busy', retryMs: 1 })
      now.pass(1)
      const changed = { ...slot, digest: 'changed' }
      expect(await other.once.claim(changed, attempt('second'))).toEqual({ kind: 'refused', reason: 'used' })
      expect(await other.once.claim(slot, attempt('second'))).toEqual({ kind: 'first' })
      expect(await store.once.claim(slot, attempt('third'))).toEqual({ kind: 'busy', retryMs: 5_000 })
    })

    it('refuses a claim after its expiry, whether or not the record still exists', async () => {
      await store.once.claim(slot, attempt())
      await store.once.settle(slot, 'response')
      now.pass(60_000)
      expect(await store.once.claim(slot, attempt())).toEqual({ kind: 'refused', reason: 'expired' })
      expect(await store.sweep(10)).toBe(1)
      expect(await store.once.claim(slot, attempt())).toEqual({ kind: 'refused', reason: 'expired' })
      expect(await store.once.settle(slot, 'too late')).toBe('too late')
    })

    it('B8 refuses a state of another epoch of the store', async () => {
      expect(await other.once.epoch()).toBe(slot.epoch)
      const next = await store.once.renewEpoch()
      expect(next).not.toBe(slot.epoch)
      expect(await store.once.claim(slot, attempt())).toEqual({ kind: 'refused', reason: 'epoch' })
      expect(await other.once.claim(slot, attempt())).toEqual({ kind: 'refused', reason: 'epoch' })
      expect(await other.once.epoch()).toBe(next)
      expect(await other.once.claim({ ...slot, epoch: next }, attempt())).toEqual({ kind: 'first' })
    })

    it('B8 waits briefly for the response to the same request', async () => {
      await store.once.claim(slot, attempt())
      const never = () => Promise.reject(new Error('the first request should have done this'))
      const waiting = workOnce(other.once, slot, never, { waitMs: 10_000 })
      await store.once.settle(slot, 'response')
      expect(await waiting).toEqual({ kind: 'stored', response: 'response' })
      const held = { ...slot, round: 2 }
      await store.once.claim(held, attempt())
      expect(await workOnce(other.once, held, never, { waitMs: 30 })).toEqual({
        kind: 'busy',
        retryMs: 5_000,
      })
    })

    it('I6 B8 keeps a slot for as long as the work takes, and for one hold after its worker died', async () => {
      const clock = createManualClock(now())
      const here = database.open(clock.now)
      const there = database.open(clock.now)
      const handed = { ...slot, epoch: await here.once.epoch(), expiresAt: now() + 3_600_000 }
      let finish: ((response: string) => void) | undefined
      const effect = () =>
        new Promise<string>((resolve) => {
          finish = resolve
        })
      const working = workOnce(here.once, handed, effect, { holdMs: 15_000, clock })
      const again = () => there.once.claim(handed, attempt('second'))
      await until('the effect', () => finish)
      for (let passed = 0; passed < 75_000; passed += 5_000) {
        await clock.elapse(5_000)
        // It was just renewed: the whole hold is left.
        const left = async () => {
          const claim = await again()
          return claim.kind === 'busy' && claim.retryMs
        }
        await until('a renewal', async () => (await left()) === 15_000)
      }
      finish?.('response')
      expect(await working).toEqual({ kind: 'stored', response: 'response' })
      expect(await again()).toEqual({ kind: 'stored', response: 'response' })
    })

    it('B8 releases a slot at once if the work failed', async () => {
      const fails = () => Promise.reject(new Error('it failed'))
      await expect(workOnce(store.once, slot, fails)).rejects.toThrow('it failed')
      expect(await other.once.claim(slot, attempt('second'))).toEqual({ kind: 'first' })
    })

    it('renews a slot only for its claimant, and not after there is a response', async () => {
      await store.once.claim(slot, attempt('first'))
      expect(await other.once.renew(slot, attempt('second'))).toBe(false)
      now.pass(4_000)
      expect(await store.once.renew(slot, attempt('first'))).toBe(true)
      now.pass(4_999)
      expect(await other.once.claim(slot, attempt('second'))).toEqual({ kind: 'busy', retryMs: 1 })
      now.pass(1)
      expect(await other.once.claim(slot, attempt('second'))).toEqual({ kind: 'first' })
      expect(await store.once.renew(slot, attempt('first'))).toBe(false)
      await other.once.settle(slot, 'response')
      expect(await other.once.renew(slot, attempt('second'))).toBe(false)
    })
  })

  describe('spilled journals', () => {
    it('keeps a blob until it expires', async () => {
      const sealed = 'z'.repeat(300_000)
      await store.blobs.put('id', sealed, now() + 1000)
      expect(await other.blobs.get('id')).toBe(sealed)
      expect(await other.blobs.get('unknown')).toBeUndefined()
      now.pass(1000)
      expect(await other.blobs.get('id')).toBeUndefined()
      expect(await store.sweep(10)).toBe(1)
    })

    it('never changes a blob', async () => {
      await store.blobs.put('id', 'first', now() + 1000)
      await other.blobs.put('id', 'second', now() + 9000)
      expect(await store.blobs.get('id')).toBe('first')
    })
  })
}

/** A clock that stands still until it is advanced to its next timer. */
function createManualClock(start: number): StoreClock & { elapse(ms: number): Promise<void> } {
  let time = start
  let timers: { readonly at: number; readonly fn: () => void }[] = []
  const after = (ms: number, fn: () => void) => {
    const timer = { at: time + ms, fn }
    timers.push(timer)
    return () => {
      timers = timers.filter((one) => one !== timer)
    }
  }
  return {
    now: () => time,
    elapsed: () => time,
    after,
    idly: after,
    async elapse(ms) {
      const due = await until(`a timer of ${ms} ms`, () => timers.find(({ at }) => at === time + ms))
      time = due.at
      timers = timers.filter((one) => one !== due)
      due.fn()
    },
  }
}

/**
 * What instances share besides tasks, on every database: single use and spilled journals, and for a fleet, where the store
 * has them, records and the bus.
 */

import type { StoreClock } from 'rondo/internal'
import { BUS_LIMITS, RECORD_BYTES, workOnce } from 'rondo/internal'
import type { Bus, BusListener, OnceSlot, RecordStore, RecordWrite, Store } from 'rondo/store'
import {
  afterEach,
  beforeEach,
  type ContractTime,
  createTime,
  describe,
  eachCase,
  expect,
  it,
  type StoreHarness,
  type StoreSite,
  until,
} from './harness.ts'

export function describeOnceContract(harness: StoreHarness): void {
  let database: StoreSite
  let now: ContractTime
  let store: Store
  let other: Store
  let slot: OnceSlot
  eachCase(harness, async (site) => {
    ;({ database, now, store, other } = site)
    const epoch = await store.once.epoch()
    slot = { flow: 'flow', round: 1, digest: 'digest', epoch, expiresAt: now() + 60_000 }
  })
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

const HOUR = 3_600_000

function write(changes: Partial<RecordWrite> = {}): RecordWrite {
  return { id: 'id', owner: 'alice', sealed: 'first', version: 0, ttlMs: HOUR, maxBytes: 100_000, ...changes }
}

export function describeRecordContract(harness: StoreHarness): void {
  let site: StoreSite
  let now: ReturnType<typeof createTime>
  let records: RecordStore
  let others: RecordStore
  beforeEach(async () => {
    site = await harness.create()
    now = createTime()
    const open = (): RecordStore => {
      const { records: port } = site.open(now)
      if (port === undefined) throw new Error('The store has no records')
      return port
    }
    records = open()
    others = open()
  })
  afterEach(() => site.close())

  it('J1 every handle sees a record, and nothing under any other id', async () => {
    const sealed = 'z'.repeat(50_000)
    expect(await records.put(write({ sealed }))).toBe('stored')
    expect(await others.get('id')).toEqual({ sealed, version: 1, quietMs: 0 })
    expect(await others.get('ID')).toBeUndefined()
    await others.remove('id')
    expect(await records.get('id')).toBeUndefined()
  })

  it('I3 records that are gone leave room, however often a record is written', async () => {
    const maxBytes = 3 * (1_000 + RECORD_BYTES)
    const sealed = 'z'.repeat(1_000)
    const put = (id: string, changes: Partial<RecordWrite> = {}) =>
      records.put(write({ id, sealed, maxBytes, ...changes }))
    expect(await put('stays')).toBe('stored')
    for (let i = 0; i < 5; i++) {
      expect(await put('removed')).toBe('stored')
      await others.remove('removed')
      expect(await put('expired', { ttlMs: 1_000 })).toBe('stored')
      now.pass(1_000)
      expect(await put('stays', { version: i + 1, sealed: `${i}${sealed.slice(1)}` })).toBe('stored')
      expect(await put('moved')).toBe('stored')
      expect(await put('moved', { version: 1, owner: 'bob', sealed: `${sealed}.` })).toBe('stored')
      await others.remove('moved')
    }
    expect(await put('second')).toBe('stored')
    expect(await put('third')).toBe('stored')
    expect(await put('fourth')).toBe('limit')
    now.pass(HOUR)
    await site.open(now).sweep(1_000)
    expect(await put('fourth')).toBe('stored')
  })

  it('J1 of many writes that replace one version, exactly one is stored', async () => {
    for (let version = 0; version < 3; version++) {
      const outcomes = await Promise.all(
        Array.from({ length: 40 }, (_, i) =>
          (i % 2 ? records : others).put(write({ version, sealed: `${version} ${i}` })),
        ),
      )
      expect(outcomes.filter((outcome) => outcome === 'stored')).toHaveLength(1)
      expect(outcomes.filter((outcome) => outcome === 'conflict')).toHaveLength(39)
      const winner = outcomes.indexOf('stored')
      expect(await others.get('id')).toEqual({
        sealed: `${version} ${winner}`,
        version: version + 1,
        quietMs: 0,
      })
    }
  })

  it('J1 stores the same write again, as after a lost connection, and refuses any other of that version', async () => {
    await records.put(write())
    expect(await others.put(write())).toBe('stored')
    expect(await others.put(write({ sealed: 'other' }))).toBe('conflict')
    expect(await others.put(write({ version: 7 }))).toBe('stored')
    expect(await others.put(write({ version: 7, sealed: 'other' }))).toBe('conflict')
    expect(await records.get('id')).toMatchObject({ sealed: 'first', version: 1 })
  })

  it('I3 J1 T27 refuses what would take an owner over its limit, and counts nobody else', async () => {
    const maxBytes = 4 * (RECORD_BYTES + 100)
    const outcomes = await Promise.all(
      Array.from({ length: 20 }, (_, i) =>
        (i % 2 ? records : others).put(write({ id: `id ${i}`, sealed: 'x'.repeat(100), maxBytes })),
      ),
    )
    expect(outcomes.filter((outcome) => outcome === 'stored')).toHaveLength(4)
    expect(outcomes.filter((outcome) => outcome === 'limit')).toHaveLength(16)
    expect(await records.put(write({ owner: 'bob', maxBytes }))).toBe('stored')
    const kept = `id ${outcomes.indexOf('stored')}`
    // A record may be replaced by one that is not longer.
    expect(await records.put(write({ id: kept, version: 1, sealed: 'y'.repeat(100), maxBytes }))).toBe(
      'stored',
    )
    expect(await records.put(write({ id: kept, version: 2, sealed: 'y'.repeat(101), maxBytes }))).toBe(
      'limit',
    )
    expect(await records.get(kept)).toMatchObject({ sealed: 'y'.repeat(100), version: 2 })
    now.pass(HOUR)
    expect(await records.put(write({ id: 'new', maxBytes }))).toBe('stored')
  })

  it('J1 an expired record is gone at once, and its id is free', async () => {
    await records.put(write({ ttlMs: 1_000 }))
    now.pass(999)
    expect(await others.get('id')).toMatchObject({ version: 1 })
    now.pass(1)
    expect(await others.get('id')).toBeUndefined()
    expect(await others.put(write({ version: 1, sealed: 'late' }))).toBe('conflict')
    expect(await others.put(write({ sealed: 'new' }))).toBe('stored')
    now.pass(HOUR)
    expect(await site.open(now).sweep(10)).toBe(1)
  })

  it('J1 says how long ago the holder of a record was heard of', async () => {
    await records.put(write())
    await records.put(write({ id: 'other' }))
    now.pass(5_000)
    expect(await others.get('id')).toMatchObject({ quietMs: 5_000 })
    await records.touch(['id', 'unknown'])
    await records.touch([])
    expect(await others.get('id')).toMatchObject({ quietMs: 0, version: 1 })
    expect(await others.get('other')).toMatchObject({ quietMs: 5_000 })
  })
}

/** A listener that keeps what it received. */
function createInbox(): BusListener & { readonly messages: string[]; losses: number } {
  const inbox = {
    messages: [] as string[],
    losses: 0,
    receive: (messages: readonly string[]) => void inbox.messages.push(...messages),
    lost: () => void inbox.losses++,
  }
  return inbox
}

export function describeBusContract(harness: StoreHarness): void {
  let site: StoreSite
  let now: ReturnType<typeof createTime>
  const open = (): Bus => {
    const { bus } = site.open(now)
    if (bus === undefined) throw new Error('The store has no bus')
    return bus
  }
  beforeEach(async () => {
    site = await harness.create()
    now = createTime()
  })
  afterEach(() => site.close())

  describe('messages', () => {
    it('J2 reach every listener of every handle once, in one order, this handle included', async () => {
      const buses = [open(), open(), open()]
      const inboxes = buses.map(createInbox)
      const subscriptions = buses.map((bus, i) => bus.subscribe(inboxes[i] as BusListener))
      await Promise.all(subscriptions.map(({ started }) => started))
      await Promise.all(Array.from({ length: 60 }, (_, i) => buses[i % 3]?.publish(`message ${i}`)))
      for (const inbox of inboxes) await until('all messages', () => inbox.messages.length >= 60)
      const [first] = inboxes
      for (const inbox of inboxes) {
        expect(inbox.messages).toEqual(first?.messages)
        expect(new Set(inbox.messages).size).toBe(60)
        expect(inbox.losses).toBe(0)
      }
      for (const { stop } of subscriptions) stop()
    })

    it('J2 are received in the order in which one process published them', async () => {
      const [here, there] = [open(), open()]
      const inbox = createInbox()
      const { started, stop } = there.subscribe(inbox)
      await started
      const sent = Array.from({ length: 400 }, (_, i) => `message ${i}`)
      await Promise.all(sent.map((message) => here.publish(message)))
      await until('all messages', () => inbox.messages.length >= sent.length)
      expect(inbox.messages).toEqual(sent)
      stop()
    })

    it('J2 that were published before a subscription are not received', async () => {
      const [here, there] = [open(), open()]
      await here.publish('before')
      const inbox = createInbox()
      const { started, stop } = there.subscribe(inbox)
      await started
      await here.publish('after')
      await until('the message', () => inbox.messages.length > 0)
      expect(inbox.messages).toEqual(['after'])
      stop()
    })

    it('J2 are received no more after the subscription was stopped', async () => {
      const [here, there] = [open(), open()]
      const [stopped, inbox] = [createInbox(), createInbox()]
      const first = there.subscribe(stopped)
      const second = there.subscribe(inbox)
      await Promise.all([first.started, second.started])
      first.stop()
      await here.publish('message')
      await until('the message', () => inbox.messages.length > 0)
      expect(stopped.messages).toEqual([])
      second.stop()
    })
  })

  describe('limits', () => {
    it('J2 T27 refuses a message that is too long', async () => {
      const bus = open()
      await expect(bus.publish('x'.repeat(BUS_LIMITS.message + 1))).rejects.toThrow('at most')
      await bus.publish('x'.repeat(BUS_LIMITS.message))
    })

    it('I3 J2 a process that publishes far too much tells the others that messages were lost, and they recover', async () => {
      const [here, there] = [open(), open()]
      const inbox = createInbox()
      const { started, stop } = there.subscribe(inbox)
      await started
      const flood = 20 * BUS_LIMITS.queue
      await Promise.all(Array.from({ length: flood }, (_, i) => here.publish(`message ${i}`)))
      await here.publish('last')
      await until('the last message', () => inbox.messages.includes('last'))
      expect(inbox.losses).toBeGreaterThan(0)
      expect(inbox.messages.length).toBeLessThan(3 * BUS_LIMITS.queue)
      stop()
    })

    it('I3 J2 expired messages are deleted, and a listener that comes later misses nothing', async () => {
      const here = open()
      await here.publish('old')
      now.pass(BUS_LIMITS.keepMs)
      const store = site.open(now)
      expect(await store.sweep(10)).toBe(1)
      const inbox = createInbox()
      const { started, stop } = open().subscribe(inbox)
      await started
      await here.publish('new')
      await until('the message', () => inbox.messages.length > 0)
      expect(inbox).toMatchObject({ messages: ['new'], losses: 0 })
      stop()
    })
  })
}

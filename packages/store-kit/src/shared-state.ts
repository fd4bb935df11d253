/**
 * The state that instances share besides tasks, on every database: single use and spilled journals, and for a fleet, where the store
 * has them, records and the bus.
 */

import assert from 'node:assert/strict'
import type { StoreClock } from 'rondo/internal'
import { BUS_LIMITS, RECORD_BYTES, workOnce } from 'rondo/internal'
import type { Bus, BusListener, OnceSlot, RecordStore, RecordWrite, Store } from 'rondo/store'
import {
  afterEach,
  assertEqual,
  assertMatch,
  beforeEach,
  type ContractTime,
  createTime,
  describe,
  eachCase,
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
        assert.equal(claims.filter(({ kind }) => kind === 'first').length, 1)
        assert.equal(claims.filter(({ kind }) => kind === 'busy').length, 199)
      }
    })

    it('P13 B8 has one winner among 200 different requests, and refuses all others permanently', async () => {
      const claims = await Promise.all(
        Array.from({ length: 200 }, (_, i) =>
          (i % 2 ? store : other).once.claim({ ...slot, digest: `digest ${i}` }, attempt(`claimant ${i}`)),
        ),
      )
      assert.equal(claims.filter(({ kind }) => kind === 'first').length, 1)
      assert.equal(claims.filter((claim) => claim.kind === 'refused' && claim.reason === 'used').length, 199)
    })

    it('P13 returns the bytes that were stored first to everybody', async () => {
      await store.once.claim(slot, attempt())
      const stored = await Promise.all(
        Array.from({ length: 20 }, (_, i) => (i % 2 ? store : other).once.settle(slot, `response ${i}`)),
      )
      assert.equal(new Set(stored).size, 1)
      assertEqual(await other.once.claim(slot, attempt('later')), { kind: 'stored', response: stored[0] })
    })

    it('B8 returns the stored response to the same request, and refuses any other', async () => {
      assertEqual(await store.once.claim(slot, attempt('first')), { kind: 'first' })
      assertEqual(await other.once.claim(slot, attempt('second')), { kind: 'busy', retryMs: 5_000 })
      assert.equal(await store.once.settle(slot, 'response'), 'response')
      assertEqual(await other.once.claim(slot, attempt('third')), { kind: 'stored', response: 'response' })
      const changed = { ...slot, digest: 'changed' }
      assertEqual(await other.once.claim(changed, attempt()), { kind: 'refused', reason: 'used' })
      assertEqual(await other.once.claim({ ...slot, round: 2 }, attempt()), { kind: 'first' })
      assertEqual(await other.once.claim({ ...slot, flow: 'other' }, attempt()), { kind: 'first' })
    })

    it('lets the claimant repeat its claim, and the same request take over an expired hold', async () => {
      await store.once.claim(slot, attempt('first'))
      assertEqual(await other.once.claim(slot, attempt('first')), { kind: 'first' })
      now.pass(4_999)
      assertEqual(await other.once.claim(slot, attempt('second')), { kind: 'busy', retryMs: 1 })
      now.pass(1)
      const changed = { ...slot, digest: 'changed' }
      assertEqual(await other.once.claim(changed, attempt('second')), { kind: 'refused', reason: 'used' })
      assertEqual(await other.once.claim(slot, attempt('second')), { kind: 'first' })
      assertEqual(await store.once.claim(slot, attempt('third')), { kind: 'busy', retryMs: 5_000 })
    })

    it('refuses a claim after its expiry, whether or not the record still exists', async () => {
      await store.once.claim(slot, attempt())
      await store.once.settle(slot, 'response')
      now.pass(60_000)
      assertEqual(await store.once.claim(slot, attempt()), { kind: 'refused', reason: 'expired' })
      assert.equal(await store.sweep(10), 1)
      assertEqual(await store.once.claim(slot, attempt()), { kind: 'refused', reason: 'expired' })
      assert.equal(await store.once.settle(slot, 'too late'), 'too late')
    })

    it('B8 refuses a state of another epoch of the store', async () => {
      assert.equal(await other.once.epoch(), slot.epoch)
      const next = await store.once.renewEpoch()
      assert.notEqual(next, slot.epoch)
      assertEqual(await store.once.claim(slot, attempt()), { kind: 'refused', reason: 'epoch' })
      assertEqual(await other.once.claim(slot, attempt()), { kind: 'refused', reason: 'epoch' })
      assert.equal(await other.once.epoch(), next)
      assertEqual(await other.once.claim({ ...slot, epoch: next }, attempt()), { kind: 'first' })
    })

    it('B8 waits briefly for the response to the same request', async () => {
      await store.once.claim(slot, attempt())
      const never = () => Promise.reject(new Error('the first request should have done this'))
      const waiting = workOnce(other.once, slot, never, { waitMs: 10_000 })
      await store.once.settle(slot, 'response')
      assertEqual(await waiting, { kind: 'stored', response: 'response' })
      const held = { ...slot, round: 2 }
      await store.once.claim(held, attempt())
      assertEqual(await workOnce(other.once, held, never, { waitMs: 30 }), {
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
      assertEqual(await working, { kind: 'stored', response: 'response' })
      assertEqual(await again(), { kind: 'stored', response: 'response' })
    })

    it('B8 releases a slot at once if the work failed', async () => {
      const fails = () => Promise.reject(new Error('it failed'))
      await assert.rejects(workOnce(store.once, slot, fails), /it failed/)
      assertEqual(await other.once.claim(slot, attempt('second')), { kind: 'first' })
    })

    it('renews a slot only for its claimant, and not after there is a response', async () => {
      await store.once.claim(slot, attempt('first'))
      assert.equal(await other.once.renew(slot, attempt('second')), false)
      now.pass(4_000)
      assert.equal(await store.once.renew(slot, attempt('first')), true)
      now.pass(4_999)
      assertEqual(await other.once.claim(slot, attempt('second')), { kind: 'busy', retryMs: 1 })
      now.pass(1)
      assertEqual(await other.once.claim(slot, attempt('second')), { kind: 'first' })
      assert.equal(await store.once.renew(slot, attempt('first')), false)
      await other.once.settle(slot, 'response')
      assert.equal(await other.once.renew(slot, attempt('second')), false)
    })
  })

  describe('spilled journals', () => {
    it('keeps a blob until it expires', async () => {
      const sealed = 'z'.repeat(300_000)
      await store.blobs.put('id', sealed, now() + 1000)
      assert.equal(await other.blobs.get('id'), sealed)
      assert.equal(await other.blobs.get('unknown'), undefined)
      now.pass(1000)
      assert.equal(await other.blobs.get('id'), undefined)
      assert.equal(await store.sweep(10), 1)
    })

    it('never changes a blob', async () => {
      await store.blobs.put('id', 'first', now() + 1000)
      await other.blobs.put('id', 'second', now() + 9000)
      assert.equal(await store.blobs.get('id'), 'first')
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
    assert.equal(await records.put(write({ sealed })), 'stored')
    assertEqual(await others.get('id'), { sealed, version: 1, quietMs: 0 })
    assert.equal(await others.get('ID'), undefined)
    await others.remove('id')
    assert.equal(await records.get('id'), undefined)
  })

  it('I3 records that are gone leave room, however often a record is written', async () => {
    const maxBytes = 3 * (1_000 + RECORD_BYTES)
    const sealed = 'z'.repeat(1_000)
    const put = (id: string, changes: Partial<RecordWrite> = {}) =>
      records.put(write({ id, sealed, maxBytes, ...changes }))
    assert.equal(await put('stays'), 'stored')
    for (let i = 0; i < 5; i++) {
      assert.equal(await put('removed'), 'stored')
      await others.remove('removed')
      assert.equal(await put('expired', { ttlMs: 1_000 }), 'stored')
      now.pass(1_000)
      assert.equal(await put('stays', { version: i + 1, sealed: `${i}${sealed.slice(1)}` }), 'stored')
      assert.equal(await put('moved'), 'stored')
      assert.equal(await put('moved', { version: 1, owner: 'bob', sealed: `${sealed}.` }), 'stored')
      await others.remove('moved')
    }
    assert.equal(await put('second'), 'stored')
    assert.equal(await put('third'), 'stored')
    assert.equal(await put('fourth'), 'limit')
    now.pass(HOUR)
    await site.open(now).sweep(1_000)
    assert.equal(await put('fourth'), 'stored')
  })

  it('J1 of many writes that replace one version, exactly one is stored', async () => {
    for (let version = 0; version < 3; version++) {
      const outcomes = await Promise.all(
        Array.from({ length: 40 }, (_, i) =>
          (i % 2 ? records : others).put(write({ version, sealed: `${version} ${i}` })),
        ),
      )
      assert.equal(outcomes.filter((outcome) => outcome === 'stored').length, 1)
      assert.equal(outcomes.filter((outcome) => outcome === 'conflict').length, 39)
      const winner = outcomes.indexOf('stored')
      assertEqual(await others.get('id'), {
        sealed: `${version} ${winner}`,
        version: version + 1,
        quietMs: 0,
      })
    }
  })

  it('J1 stores the same write again, as after a lost connection, and refuses any other of that version', async () => {
    await records.put(write())
    assert.equal(await others.put(write()), 'stored')
    assert.equal(await others.put(write({ sealed: 'other' })), 'conflict')
    assert.equal(await others.put(write({ version: 7 })), 'stored')
    assert.equal(await others.put(write({ version: 7, sealed: 'other' })), 'conflict')
    assertMatch(await records.get('id'), { sealed: 'first', version: 1 })
  })

  it('I3 J1 T27 refuses what would take an owner over its limit, and counts nobody else', async () => {
    const maxBytes = 4 * (RECORD_BYTES + 100)
    const outcomes = await Promise.all(
      Array.from({ length: 20 }, (_, i) =>
        (i % 2 ? records : others).put(write({ id: `id ${i}`, sealed: 'x'.repeat(100), maxBytes })),
      ),
    )
    assert.equal(outcomes.filter((outcome) => outcome === 'stored').length, 4)
    assert.equal(outcomes.filter((outcome) => outcome === 'limit').length, 16)
    assert.equal(await records.put(write({ owner: 'bob', maxBytes })), 'stored')
    const kept = `id ${outcomes.indexOf('stored')}`
    // A record may be replaced by one that is not longer.
    assert.equal(
      await records.put(write({ id: kept, version: 1, sealed: 'y'.repeat(100), maxBytes })),
      'stored',
    )
    assert.equal(
      await records.put(write({ id: kept, version: 2, sealed: 'y'.repeat(101), maxBytes })),
      'limit',
    )
    assertMatch(await records.get(kept), { sealed: 'y'.repeat(100), version: 2 })
    now.pass(HOUR)
    assert.equal(await records.put(write({ id: 'new', maxBytes })), 'stored')
  })

  it('J1 an expired record is gone at once, and its id is free', async () => {
    await records.put(write({ ttlMs: 1_000 }))
    now.pass(999)
    assertMatch(await others.get('id'), { version: 1 })
    now.pass(1)
    assert.equal(await others.get('id'), undefined)
    assert.equal(await others.put(write({ version: 1, sealed: 'late' })), 'conflict')
    assert.equal(await others.put(write({ sealed: 'new' })), 'stored')
    now.pass(HOUR)
    assert.equal(await site.open(now).sweep(10), 1)
  })

  it('J1 says how long ago the holder of a record was heard of', async () => {
    await records.put(write())
    await records.put(write({ id: 'other' }))
    now.pass(5_000)
    assertMatch(await others.get('id'), { quietMs: 5_000 })
    await records.touch(['id', 'unknown'])
    await records.touch([])
    assertMatch(await others.get('id'), { quietMs: 0, version: 1 })
    assertMatch(await others.get('other'), { quietMs: 5_000 })
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
        assertEqual(inbox.messages, first?.messages)
        assert.equal(new Set(inbox.messages).size, 60)
        assert.equal(inbox.losses, 0)
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
      assertEqual(inbox.messages, sent)
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
      assertEqual(inbox.messages, ['after'])
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
      assertEqual(stopped.messages, [])
      second.stop()
    })
  })

  describe('limits', () => {
    it('J2 T27 refuses a message that is too long', async () => {
      const bus = open()
      await assert.rejects(bus.publish('x'.repeat(BUS_LIMITS.message + 1)), /at most/)
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
      assert.ok(inbox.losses > 0)
      assert.ok(inbox.messages.length < 3 * BUS_LIMITS.queue)
      stop()
    })

    it('I3 J2 expired messages are deleted, and a listener that comes later misses nothing', async () => {
      const here = open()
      await here.publish('old')
      now.pass(BUS_LIMITS.keepMs)
      const store = site.open(now)
      assert.equal(await store.sweep(10), 1)
      const inbox = createInbox()
      const { started, stop } = open().subscribe(inbox)
      await started
      await here.publish('new')
      await until('the message', () => inbox.messages.length > 0)
      assertMatch(inbox, { messages: ['new'], losses: 0 })
      stop()
    })
  })
}

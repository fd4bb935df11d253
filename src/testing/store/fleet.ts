/** What the instances of a fleet share: records and the bus, on every database that has them. */

import { BUS_LIMITS } from '../../store/bus.ts'
import {
  type Bus,
  type BusListener,
  RECORD_BYTES,
  type RecordStore,
  type RecordWrite,
} from '../../store/store.ts'
import { createTime, type StoreHarness, type StoreSite, until } from './harness.ts'
import { afterEach, beforeEach, describe, expect, it } from './suite.ts'

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

  it('I3 J1 refuses what would take an owner over its limit, and counts nobody else', async () => {
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
    it('J2 refuses a message that is too long', async () => {
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

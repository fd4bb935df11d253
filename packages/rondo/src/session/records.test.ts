/** Sealed records, and streams that are relayed through them, on instances that are driven by hand. */

import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import {
  type Instance,
  settle,
  startInstances,
  type World,
} from '../../../../test/support/session-instances.ts'
import type { HttpResponse, Outlet } from '../serve/port.ts'
import { createRecords, createRelays, type Relays, type SealedRecords } from './records.ts'
import type { Session } from './session.ts'
import type { SessionStream } from './stream.ts'

const toText = (value: unknown): string | undefined => (typeof value === 'string' ? value : undefined)

interface Part extends Omit<Instance, 'session'> {
  readonly session: Session
  readonly records: SealedRecords
  readonly relays: Relays
}

function start(options = {}): World & { readonly parts: readonly [Part, Part] } {
  const world = startInstances(2, options)
  const parts = world.instances.map((instance): Part => {
    const { host, fleet, every, table } = instance
    const records = createRecords(host, fleet.records)
    const relays = createRelays(fleet, records, every, table.named)
    return { ...instance, session: instance.session(), records, relays }
  })
  return { ...world, parts: parts as unknown as [Part, Part] }
}

describe('a sealed record', () => {
  const put = ({ records, session }: Part, value: string, version = 0, ttlMs = 1_000) =>
    records.put('a', session, { value, ttlMs }, version)

  it('T27 is read by every instance, and tells a reader of the store nothing', async () => {
    const { parts, clock } = start()
    const [first, second] = parts
    expect(await put(first, 'secret')).toBe('stored')
    clock.now += 300
    expect(await second.records.get('a', toText)).toEqual({ value: 'secret', version: 1, quietMs: 300 })
    expect(await second.records.get('b', toText)).toBeUndefined()
    expect(await second.records.get('a', () => undefined)).toBeUndefined()
    expect(first.writes[0]).toMatchObject({ owner: 'alice', version: 0, ttlMs: 1_000 })
    expect(first.writes[0]?.sealed).not.toContain('secret')
    clock.now += 700
    expect(await second.records.get('a', toText)).toBeUndefined()
  })

  it('T27 does not open under the name of another, nor of another service', async () => {
    const { parts, store } = start()
    const [first] = parts
    await put(first, 'one')
    const { sealed = '' } = first.writes[0] ?? {}
    const write = { owner: 'alice', sealed, version: 0, ttlMs: 1_000, maxBytes: 1e6 }
    await store.put({ ...write, id: 'test b' })
    expect(await first.records.get('b', toText)).toBeUndefined()
    const other = createRecords({ ...first.host, audience: 'other' }, store)
    await store.put({ ...write, id: 'other a' })
    expect(await other.get('a', toText)).toBeUndefined()
    expect(await first.records.get('a', toText)).toBeDefined()
  })

  it('waits until the keys are there', async () => {
    const { parts } = start()
    const [{ host, fleet, session }] = parts
    await host.keys.ready()
    let isReady = false
    const keys = {
      ready: async () => {
        await Promise.resolve()
        isReady = true
      },
      get ring() {
        if (!isReady) throw new Error('not ready')
        return host.keys.ring
      },
    }
    const late = createRecords({ ...host, keys: keys as never }, fleet.records)
    expect(await late.put('a', session, { value: 'one', ttlMs: 1_000 }, 0)).toBe('stored')
    isReady = false
    expect(await late.get('a', toText)).toMatchObject({ value: 'one' })
  })

  it('R9 uses the share of its session, or another one as large if it is kept for a client that missed the end', async () => {
    const { parts } = start({ maxKeptBytesPerCaller: 20_000, maxKeptBytes: 30_000 })
    const [{ records, session, writes }] = parts
    await records.put('a', session, { value: 'one', ttlMs: 0, ended: true }, 0)
    expect(writes[0]).toMatchObject({ owner: 'ended alice', ttlMs: 1, maxBytes: 20_000 })
    expect(await records.put('b', session, { value: 'x'.repeat(30_000), ttlMs: 1 }, 0)).toBe('limit')
  })

  it('R9 is no larger than what opens again', async () => {
    const { parts } = start()
    const [{ records, session, writes }] = parts
    expect(await records.put('a', session, { value: 'x'.repeat(13e6), ttlMs: 1 }, 0)).toBe('limit')
    expect(writes).toEqual([])
  })

  it('is changed from what it is, however often others do so meanwhile', async () => {
    const { parts } = start()
    const [first, second] = parts
    await put(first, 'a')
    let others = 0
    const change = first.records.change(
      'a',
      first.session,
      (value) => ({ value: `${value}!`, ttlMs: 1_000 }),
      toText,
    )
    first.link.beforePut = async () => {
      others += 1
      if (others <= 31) await put(second, `${others}`, others)
    }
    expect(await change).toBe('stored')
    expect((await second.records.get('a', toText))?.value).toBe('31!')
  })

  it('is given up after others have changed it 32 times meanwhile', async () => {
    const { parts } = start()
    const [first, second] = parts
    let tries = 0
    first.link.beforePut = async () => {
      await put(second, `${tries}`, tries)
      tries += 1
    }
    const edit = () => ({ value: 'never', ttlMs: 1_000 })
    await expect(first.records.change('a', first.session, edit, toText)).rejects.toMatchObject({
      code: 'STORE_BUSY',
    })
    expect(tries).toBe(32)
  })

  it('is left as it is, or refused', async () => {
    const { parts } = start()
    const [{ records, session, writes, link }] = parts
    expect(await records.change('a', session, () => undefined, toText)).toBe('unchanged')
    expect(writes).toEqual([])
    link.isFull = true
    const edit = () => ({ value: 'one', ttlMs: 1_000 })
    expect(await records.change('a', session, edit, toText)).toBe('limit')
    const guess = { value: undefined, version: 0 }
    expect(await records.change('a', session, edit, toText, guess)).toBe('limit')
    expect([writes.length, guess.version]).toEqual([2, 0])
  })

  it('is read before it is changed, unless it is known and has not changed', async () => {
    const { parts } = start()
    const [first, second] = parts
    const append = (value: string | undefined) => ({ value: `${value ?? ''}!`, ttlMs: 1_000 })
    const guess = { value: undefined as string | undefined, version: 0 }
    const change = () => first.records.change('a', first.session, append, toText, guess)
    expect([await change(), guess.version, first.reads.length]).toEqual(['stored', 1, 0])
    await put(second, 'other', 1)
    expect([await change(), first.reads.length]).toEqual(['stored', 1])
    expect(await first.records.get('a', toText)).toMatchObject({ value: 'other!', version: 3 })
    expect(guess.version).toBe(3)
    const leave = (value: string | undefined) => (value === 'other!' ? append(value) : undefined)
    const wrong = { value: 'wrong', version: 3 }
    expect(await first.records.change('a', first.session, leave, toText, wrong)).toBe('stored')
    expect((await first.records.get('a', toText))?.value).toBe('other!!')
    const writes = first.writes.length
    await first.records.change('a', first.session, append, toText)
    expect(first.writes).toHaveLength(writes + 1)
  })

  it('is touched and removed by its name', async () => {
    const { parts, clock } = start()
    const [first, second] = parts
    await put(first, 'one')
    clock.now += 100
    await second.records.touch(['a', 'b'])
    expect((await first.records.get('a', toText))?.quietMs).toBe(0)
    await second.records.remove('a')
    expect(await first.records.get('a', toText)).toBeUndefined()
  })
})

/** The other end of a connection. */
function connect() {
  const seen = { text: '', writes: 0, ends: 0 }
  const listeners = new Set<() => void>()
  let isGone = false
  const outlet: Outlet = {
    get gone() {
      return isGone
    },
    ended: false,
    address: undefined,
    backlog: 0,
    send(_response: HttpResponse) {},
    open() {},
    write(text) {
      seen.text += text
      seen.writes += 1
    },
    end() {
      seen.ends += 1
    },
    fail() {},
    drop() {},
    onGone(listener) {
      listeners.add(listener)
      return () => listeners.delete(listener)
    },
  }
  const leave = (): void => {
    isGone = true
    for (const listener of listeners) listener()
  }
  return { seen, outlet, leave }
}

describe('a stream that is relayed', () => {
  beforeEach(() => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'Date'] })
  })
  afterEach(() => {
    vi.useRealTimers()
  })

  /** A stream of the first instance, whose client is at the second. */
  async function relay(options = {}) {
    const world = start(options)
    const [first, second] = world.parts
    const lost: string[] = []
    const http = { keepAliveMs: 15_000, maxBacklog: 100, every: () => () => {} }
    const request = { primed: false, streams: true, responses: 1, batch: false, scopes: ['read'] }
    const here = connect()
    const stream: SessionStream = first.session.streams.open(
      { ...request, onLost: () => void lost.push('lost') },
      here.outlet,
      http,
    )
    stream.send('1', false)
    stream.send('2', false)
    here.leave()
    const wanted = { kind: 'wanted', session: second.session.name, stream: stream.name, relay: 'r' } as const
    const want = async (after = 1) => {
      await second.fleet.tell({ ...wanted, after })
      await settle()
    }
    const there = connect()
    const read = () => second.relays.read(second.session, stream.name, 'r', there.outlet)
    const pass = async (ms: number) => {
      await vi.advanceTimersByTimeAsync(ms)
      await settle()
    }
    return { ...world, first, second, stream, there, want, read, pass, lost }
  }
  const event = (stream: SessionStream, number: number, json: string): string =>
    `id: ${stream.name}-${number}\nevent: message\ndata: ${json}\n\n`

  it('J1 reaches its client from the last event on, until it ends', async () => {
    const { first, second, stream, there, want, read } = await relay()
    expect(await second.relays.peek('r')).toBeUndefined()
    await want()
    expect(await second.relays.peek('r')).toMatchObject({ scopes: ['read'] })
    expect([first.timers.length, second.timers.length]).toEqual([1, 0])
    const reading = read()
    await settle()
    expect(there.seen.text).toBe(event(stream, 2, '2'))
    expect([first.timers.length, second.timers.map(({ ms }) => ms)]).toEqual([1, [10_000]])
    stream.send('3', false)
    await settle()
    expect([there.seen.text, there.seen.ends]).toEqual([event(stream, 2, '2') + event(stream, 3, '3'), 0])
    stream.respond('4')
    await reading
    expect(there.seen.text).toBe(event(stream, 2, '2') + event(stream, 3, '3') + event(stream, 4, '4'))
    // The last piece, which is empty, is not written.
    expect([there.seen.writes, there.seen.ends, first.timers, second.timers]).toEqual([3, 1, [], []])
    expect(await second.relays.peek('r')).toBeUndefined()
    expect(stream.ended).toBe(true)
  })

  it('J1 begins at once, even if the client has missed nothing', async () => {
    const { second, want, there, read, stream } = await relay()
    await want(2)
    expect(await second.relays.peek('r')).toMatchObject({ scopes: ['read'] })
    const reading = read()
    await settle()
    stream.respond('3')
    await reading
    expect(there.seen.text).toContain(event(stream, 3, '3'))
  })

  it('J1 is not begun for a stream that nobody has, or whose events are lost', async () => {
    const { second, want, first } = await relay()
    await want(7)
    await second.fleet.tell({ kind: 'wanted', session: 'other', stream: '1', relay: 'r', after: 0 })
    const { name } = second.session
    await second.fleet.tell({ kind: 'wanted', session: name, stream: 'x', relay: 'r', after: 0 })
    const faults: unknown[] = []
    const reader = { kind: 'reader', session: name, stream: 'x', relay: 'none', gone: true } as const
    for (const news of [
      reader,
      { kind: 'wanted', session: 'other', stream: '1', relay: 'r', after: 0 },
    ] as const)
      await first.hear(news).catch((error) => faults.push(error))
    await first.hear({ kind: 'cancel', session: name, request: 1 }).catch((error) => faults.push(error))
    expect(faults).toEqual([])
    await settle()
    expect([await second.relays.peek('r'), first.timers, first.writes]).toEqual([undefined, [], []])
  })

  it('R9 leaves no timer behind if it had ended before it was wanted', async () => {
    const { first, stream, there, want, pass } = await relay()
    there.leave()
    stream.respond('{"id":1}')
    await want()
    await pass(1_000)
    expect(first.timers).toEqual([])
  })

  it('J1 is kept for its client when the client goes away again', async () => {
    const { first, second, stream, there, want, read, pass, lost } = await relay()
    await want()
    const reading = read()
    await settle()
    there.leave()
    await pass(1_000)
    await reading
    expect(there.seen.ends).toBe(0)
    expect(second.told.at(-1)).toEqual({
      kind: 'reader',
      session: second.session.name,
      stream: stream.name,
      relay: 'r',
      gone: true,
    })
    expect([stream.attached, stream.ended, lost, first.timers, second.timers]).toEqual([
      false,
      false,
      [],
      [],
      [],
    ])
    const writes = first.writes.length
    stream.send('3', false)
    await settle()
    expect(first.writes).toHaveLength(writes)
  })

  it('J1 waits for a client that shows that it is there, and for no other', async () => {
    const { first, second, stream, want, read, pass } = await relay()
    await want()
    void read()
    await settle()
    await pass(30_000)
    second.timers[0]?.tick()
    await settle()
    expect(second.told.at(-1)).toMatchObject({ kind: 'reader', gone: false })
    await pass(45_000)
    first.timers[0]?.tick()
    expect(stream.attached).toBe(true)
    await pass(1)
    first.timers[0]?.tick()
    expect([stream.attached, first.timers]).toEqual([false, []])
  })

  it('J1 writes nothing after its end, nor after its reader has gone', async () => {
    const { first, second, stream, want, read } = await relay()
    let outlet: Outlet | undefined
    const { resume } = stream
    stream.resume = (given, after) => {
      outlet = given
      return resume.call(stream, given, after)
    }
    await want()
    expect([outlet?.gone, outlet?.ended, outlet?.backlog, first.timers.length]).toEqual([false, false, 0, 1])
    const heard: string[] = []
    outlet?.onGone(() => heard.push('gone'))
    const reading = read()
    await settle()
    stream.respond('3')
    await reading
    expect([outlet?.gone, outlet?.ended]).toEqual([false, true])
    const writes = first.writes.length
    outlet?.write('late')
    outlet?.end()
    outlet?.drop()
    await settle()
    expect([first.writes.length, outlet?.gone, heard]).toEqual([writes, false, []])
    const other = await relay()
    let lost: Outlet | undefined
    other.stream.resume = (given, after) => {
      lost = given
      return resume.call(other.stream, given, after)
    }
    await other.want()
    const stop = lost?.onGone(() => heard.push('stopped'))
    lost?.onGone(() => heard.push('gone'))
    stop?.()
    const { name } = other.second.session
    const reader = {
      kind: 'reader',
      session: name,
      stream: other.stream.name,
      relay: 'r',
      gone: true,
    } as const
    await other.first.hear(reader)
    await other.first.hear(reader)
    expect([lost?.gone, heard]).toEqual([true, ['gone']])
    const before = other.first.writes.length
    lost?.write('late')
    lost?.end()
    await settle()
    expect([other.first.writes.length, lost?.ended]).toEqual([before, false])
    expect(second.told.length).toBeGreaterThan(0)
  })

  it('J1 is read only from records that are its own', async () => {
    const { second } = await relay()
    const { records, relays, session } = second
    const values = [7, { text: 'x' }, { scopes: [] }, { text: 7, scopes: [] }]
    for (const [index, value] of values.entries()) {
      await records.put(`relay p${index} 0`, session, { value, ttlMs: 1_000 }, 0)
      expect(await relays.peek(`p${index}`)).toBeUndefined()
    }
    await records.put('relay q 0', session, { value: { text: '', scopes: [] }, ttlMs: 1_000 }, 0)
    expect(await relays.peek('q')).toBeDefined()
  })

  it('J1 ends for its client if the instance that has it is silent', async () => {
    const { there, want, read, pass } = await relay()
    await want()
    let isOver = false
    void read().then(() => {
      isOver = true
    })
    await settle()
    await pass(45_000)
    expect(isOver).toBe(false)
    await pass(1_000)
    expect([isOver, there.seen.ends]).toEqual([true, 1])
  })

  it('J1 is given up by an instance whose store is away or full', async () => {
    for (const fault of ['isAway', 'isFull'] as const) {
      const { first, stream, want, lost } = await relay()
      await want()
      first.link[fault] = true
      stream.send('3', false)
      await settle()
      expect([stream.attached, stream.ended, lost, first.timers]).toEqual([false, false, [], []])
    }
  })

  it('J1 lives in the store for as long as its reader may be silent, or its client may resume', async () => {
    const short = await relay({ resumeMs: 1_000 })
    await short.want()
    expect(short.first.writes[0]?.ttlMs).toBe(45_000)
    const long = await relay({ resumeMs: 100_000 })
    await long.want()
    expect(long.first.writes[0]?.ttlMs).toBe(100_000)
  })

  it('T20 is disconnected from a client that does not read', async () => {
    const { first, stream, want } = await relay()
    let release = () => {}
    first.link.beforePut = () => new Promise<void>((resolve) => (release = resolve))
    await want()
    stream.send(`"${'x'.repeat(200)}"`, false)
    expect(stream.attached).toBe(true)
    stream.send('4', false)
    expect(stream.attached).toBe(false)
    release()
  })

  it('has news for everybody who waits, or none in time', async () => {
    const { second, pass } = await relay()
    const heard: string[] = []
    void second.relays.news('s', 500).then(() => heard.push('one'))
    void second.relays.news('s', 1_000).then(() => heard.push('two'))
    void second.relays.news('t', 400).then(() => heard.push('other'))
    await pass(300)
    expect(heard).toEqual([])
    await second.hear({ kind: 'call', call: 's' })
    await settle()
    expect(heard).toEqual(['one', 'two'])
    await pass(99)
    expect(heard).toHaveLength(2)
    await pass(1)
    expect(heard).toEqual(['one', 'two', 'other'])
    void second.relays.news('s', 500).then(() => heard.push('three'))
    void second.relays.news('s', 1_000).then(() => heard.push('four'))
    await pass(500)
    expect(heard.slice(3)).toEqual(['three'])
    await second.hear({ kind: 'call', call: 's' })
    await second.hear({ kind: 'call', call: 's' })
    await settle()
    expect(heard.slice(3)).toEqual(['three', 'four'])
    expect(vi.getTimerCount()).toBe(0)
  })
})

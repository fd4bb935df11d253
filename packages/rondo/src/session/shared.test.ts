/** Sessions that every instance knows, on instances that are driven by hand. */

import { afterEach, describe, expect, it, vi } from 'vitest'
import {
  FACTS,
  type Instance,
  settle,
  startInstances,
  type World,
} from '../../../../test/support/session-instances.ts'
import { createCodecs } from '../protocol/revisions.ts'
import { resolveKeys } from '../seal/key-ring.ts'
import { createRecords } from './records.ts'
import type { Session } from './session.ts'
import { createSharedSessions, type SharedSessions, type StateCall } from './shared.ts'

const dialect = createCodecs().session('2025-11-25')
const OWNER = 'alice'

type Part = Instance & { readonly shared: SharedSessions }

function start(options = {}): World & { readonly parts: readonly [Part, Part] } {
  const world = startInstances(2, options)
  const parts = world.instances.map((instance) => {
    const { host, table, fleet, every } = instance
    return { ...instance, shared: createSharedSessions(host, table, fleet, every) }
  })
  return { ...world, parts: parts as unknown as [Part, Part] }
}

/** Instances without a store that they share. */
function startAlone() {
  const { instances, ...world } = startInstances(2)
  const parts = instances.map(({ host, table, every }) => createSharedSessions(host, table, undefined, every))
  return { ...world, instances, parts: parts as [SharedSessions, SharedSessions] }
}

const begin = ({ shared }: Pick<Part, 'shared'>): Promise<Session> => shared.begin(FACTS, OWNER, OWNER)
const find = ({ shared }: Pick<Part, 'shared'>, { id }: Pick<Session, 'id'>, owner = OWNER) =>
  shared.find(id, owner, owner)
const level = (name: string) => ({ kind: 'level', level: name }) as unknown as StateCall
const watch = (uri: string) => ({ kind: 'watch', uri }) as unknown as StateCall
const unwatch = (uri: string) => ({ kind: 'unwatch', uri }) as unknown as StateCall

afterEach(() => {
  vi.useRealTimers()
})

describe('a shared session', () => {
  it('shared 1: is known to every instance, for its owner, until it ends', async () => {
    const { parts, clock } = start({ lifetimeMs: 1_000 })
    const [first, second] = parts
    const session = await begin(first)
    expect([session.portable, session.until, session.facts]).toEqual([true, clock.now + 1_000, FACTS])
    const other = await find(second, session)
    expect(other).toMatchObject({ id: session.id, name: session.name, owner: OWNER, facts: FACTS })
    expect(other?.until).toBe(session.until)
    expect(await find(second, session)).toBe(other)
    expect(await find(first, session)).toBe(session)
    expect(await find(second, session, 'bob')).toBeUndefined()
    expect(await find(second, { id: `${session.id}x` })).toBeUndefined()
    clock.now += 1_000
    expect(await find(second, session)).toBeUndefined()
  })

  it('R9 is refused if there are too many', async () => {
    const [first] = start({ maxSessionsPerCaller: 1 }).parts
    await begin(first)
    await expect(begin(first)).rejects.toMatchObject({ code: 'LIMIT_SESSIONS' })
  })

  it('waits until the keys are there', async () => {
    const { parts, key } = start()
    const [first, second] = parts
    const session = await begin(first)
    const host = { ...second.host, keys: resolveKeys(key) }
    const late = createSharedSessions(host, second.table, undefined, second.every)
    expect(await find({ shared: late }, session)).toBeDefined()
  })

  it('T15 has streams that are known by their names, before the store is read', async () => {
    const { parts } = start()
    const [first, second] = parts
    const session = await begin(first)
    const found = (eventId: string) => second.shared.find(session.id, OWNER, OWNER, eventId)
    await expect(found('c_forged-1')).rejects.toMatchObject({ code: 'PEER_EVENT' })
    expect(second.reads).toEqual([])
    expect(await found('an id of its own')).toBeDefined()
    expect(await second.shared.find(session.id, OWNER, OWNER)).toBeDefined()
    const unknown = second.shared.find('s.unknown', OWNER, OWNER, 'c_forged-1')
    expect(await unknown).toBeUndefined()
  })

  it('shared 2: is unknown on every instance once it has ended', async () => {
    const { parts, clock } = start({ lifetimeMs: 60_000 })
    const [first, second] = parts
    const session = await begin(first)
    await find(second, session)
    clock.now += 1_000
    await first.shared.end(session)
    expect(first.writes.at(-1)?.ttlMs).toBe(59_000)
    await settle()
    expect([first.table.size, second.table.size]).toEqual([0, 0])
    expect([await find(first, session), await find(second, session)]).toEqual([undefined, undefined])
  })

  it('shared 2: is not ended if other instances would go on serving it', async () => {
    const [first] = start().parts
    const session = await begin(first)
    first.link.isFull = true
    await expect(first.shared.end(session)).rejects.toMatchObject({ code: 'STORE_BUSY' })
    expect(first.table.size).toBe(1)
  })

  it('shared 2: is unknown to the instance that ended it, without a store', async () => {
    const { parts } = startAlone()
    const [first, second] = parts
    const session = await begin({ shared: first })
    await first.end(session)
    expect(await find({ shared: first }, session)).toBeUndefined()
    expect(await find({ shared: second }, session)).toBeDefined()
    for (let i = 0; i < 9_999; i++) await first.end({ name: `${i}` } as Session)
    expect(await find({ shared: first }, session)).toBeUndefined()
    await first.end({ name: 'one more' } as Session)
    expect(await find({ shared: first }, session)).toBeDefined()
  })

  it('has what a store makes possible, and only with one', async () => {
    const [alone] = startAlone().parts
    expect([alone.hold, alone.answer, alone.parts]).toEqual([undefined, undefined, undefined])
    await alone.close()
    const [first] = start().parts
    expect(first.shared.parts?.fleet).toBe(first.fleet)
    const session = await begin(first)
    const terms = { id: 1, target: 'a', protocolVersion: '2025-11-25', scopes: () => [] }
    const call = first.shared.hold?.(session, { name: 'c_one' }, terms)
    await call?.park({ task: 'task' }, [], session.until)
    expect(first.timers).toHaveLength(1)
    let isStored = false
    first.link.beforePut = async () => {
      await settle()
      isStored = true
    }
    call?.release()
    await first.shared.close()
    expect([first.timers.length, isStored]).toEqual([0, true])
  })
})

describe('a change of a shared session', () => {
  it('shared 3: is in the store, and other instances know of it', async () => {
    const { parts, clock } = start({ lifetimeMs: 60_000 })
    const [first, second] = parts
    const session = await begin(first)
    const other = (await find(second, session)) as Session
    const changed = first.shared.change(session, level('error'))
    expect(session.level).toBe('error')
    await changed
    expect(other.level).toBe('error')
    clock.now += 1_000
    await first.shared.change(session, watch('a'))
    await first.shared.change(session, watch('b'))
    await first.shared.change(session, watch('a'))
    expect(first.writes.at(-1)?.ttlMs).toBe(59_000)
    expect([other.level, [...other.state.watched].sort()]).toEqual(['error', ['a', 'b']])
    await second.shared.change(other, unwatch('b'))
    expect(session.state).toEqual({ level: 'error', watched: ['a'] })
    await second.shared.change(other, level('debug'))
    expect(session.state).toEqual({ level: 'debug', watched: ['a'] })
    expect(first.told).toContainEqual({ kind: 'session', session: session.name })
  })

  it('shared 3: is none of other sessions', async () => {
    const [first, second] = start().parts
    const [one, two] = [await begin(first), await begin(first)]
    await first.shared.change(one, level('error'))
    expect([(await find(second, one))?.level, (await find(second, two))?.level]).toEqual(['error', 'info'])
  })

  it('shared 3: is known to an instance that has no part of the session yet', async () => {
    const [first, second] = start().parts
    const session = await begin(first)
    await first.shared.change(session, watch('a'))
    expect((await find(second, session))?.state.watched).toEqual(['a'])
  })

  it('is refused if the client asks for too much, here or in the store', async () => {
    const [first, second] = start().parts
    const session = await begin(first)
    await expect(first.shared.change(session, watch('x'.repeat(8_193)))).rejects.toMatchObject({
      code: 'PEER_PARAMS',
    })
    expect(first.writes).toEqual([])
    const other = (await find(second, session)) as Session
    second.link.isFull = true
    await expect(second.shared.change(other, watch('a'))).rejects.toMatchObject({
      code: 'LIMIT_SUBSCRIPTIONS',
    })
  })

  it('shared 2: does not revive a session that has ended elsewhere', async () => {
    const [first, second] = start().parts
    const session = await begin(first)
    const other = (await find(second, session)) as Session
    first.link.isAway = true
    await second.shared.end(other)
    first.link.isAway = false
    await first.shared.change(session, level('error'))
    expect([await find(first, session), await find(second, session)]).toEqual([undefined, undefined])
  })

  it('stays here without a store, or in a session that only this instance knows', async () => {
    const { parts, instances } = startAlone()
    const alone = await begin({ shared: parts[0] })
    await parts[0].change(alone, level('error'))
    expect(alone.level).toBe('error')
    await parts[0].change(alone, watch('a'))
    await parts[0].change(alone, watch('b'))
    await parts[0].change(alone, unwatch('a'))
    expect(alone.state.watched).toEqual(['b'])
    expect(await parts[0].refresh(alone)).toBe(true)
    expect(instances[0]?.writes).toEqual([])
    const [first] = start().parts
    const own = first.session(OWNER, undefined, 'own')
    await first.shared.change(own, level('error'))
    expect([own.level, await first.shared.refresh(own)]).toEqual(['error', true])
    expect([first.reads, first.writes, first.told]).toEqual([[], [], []])
  })

  it('is observed, even if the session was refreshed before the change was in the store', async () => {
    const [first] = start().parts
    const session = await begin(first)
    const log: string[] = []
    const observe = () => {
      log.push('begins')
      return () => void log.push('ends')
    }
    first.link.beforePut = () => first.hear({ kind: 'session', session: session.name })
    await first.shared.change(session, watch('a'), observe)
    expect(log).toEqual(['begins', 'ends', 'begins'])
    expect(session.state.watched).toEqual(['a'])
  })

  it('is not observed if it was undone meanwhile', async () => {
    const [first, second] = start().parts
    const session = await begin(first)
    const other = (await find(second, session)) as Session
    const log: string[] = []
    const observe = () => {
      log.push('begins')
      return () => void log.push('ends')
    }
    const { records } = first.fleet
    const { get, put } = records
    records.put = async (record) => {
      const outcome = await put(record)
      records.get = async (id) => {
        records.get = get
        await second.shared.refresh(other)
        await second.shared.change(other, unwatch('a'))
        return get(id)
      }
      return outcome
    }
    await first.shared.change(session, watch('a'), observe)
    expect([log, session.state.watched]).toEqual([['begins', 'ends'], []])
  })

  it('keeps a subscription that another instance has begun again meanwhile', async () => {
    const [first, second] = start().parts
    const session = await begin(first)
    await first.shared.change(session, watch('a'))
    const other = (await find(second, session)) as Session
    const { records } = first.fleet
    const { put } = records
    records.put = async (record) => {
      records.put = put
      const outcome = await put(record)
      await second.shared.refresh(other)
      await second.shared.change(other, watch('a'))
      return outcome
    }
    await first.shared.change(session, unwatch('a'))
    expect([session.state.watched, other.state.watched]).toEqual([['a'], ['a']])
  })

  it('says whether the session has ended', async () => {
    const [first, second] = start().parts
    const session = await begin(first)
    const other = (await find(second, session)) as Session
    expect(await first.shared.refresh(session)).toBe(true)
    first.link.isAway = true
    await second.shared.end(other)
    first.link.isAway = false
    expect(await first.shared.refresh(session)).toBe(false)
    expect(first.table.size).toBe(0)
  })

  it('is not read from a record that is none', async () => {
    const { parts } = start()
    const [first] = parts
    const session = await begin(first)
    const records = createRecords(first.host, first.fleet.records)
    await records.put(`session ${session.name}`, session, { value: 7, ttlMs: 1_000 }, 0)
    expect(await find(first, session)).toBe(session)
  })
})

describe('news of a shared session', () => {
  it('J2 are messages for its stream, and cancellations of its calls', async () => {
    const [first, second] = start().parts
    const session = await begin(first)
    const other = (await find(second, session)) as Session
    const sent: string[] = []
    session.streams.general = { send: (json) => void sent.push(json), open: true }
    await first.hear({ kind: 'note', session: session.name, json: 'note' })
    await first.hear({ kind: 'note', session: 'unknown', json: 'other' })
    await first.hear({ kind: 'reader', session: session.name, stream: '1', relay: 'r', gone: false })
    expect(sent).toEqual(['note'])
    const line = session.begin(7, { send() {}, open: true }, dialect)
    second.shared.cancel(other, 8)
    await settle()
    expect(line.closed).toBe(false)
    second.shared.cancel(other, 7)
    await settle()
    expect(line.closed).toBe(true)
    expect(second.told).toContainEqual({ kind: 'cancel', session: session.name, request: 7 })
  })

  it('are not told of a call that is here, nor of an id that is none', async () => {
    const [first] = start().parts
    const session = await begin(first)
    const line = session.begin(7, { send() {}, open: true }, dialect)
    first.shared.cancel(session, 7)
    expect(line.closed).toBe(true)
    for (const id of ['x'.repeat(1_025), {}, undefined, null]) first.shared.cancel(session, id as never)
    first.shared.cancel(first.session(OWNER, undefined, 'own'), 7)
    await settle()
    expect(first.told).toEqual([])
    first.shared.cancel(session, 'x'.repeat(1_024))
    expect(first.told).toHaveLength(1)
    const { parts } = startAlone()
    expect(() => parts[0].cancel(session, 8)).not.toThrow()
  })

  it('T18 are told of so many cancellations of a caller in a second', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
    const [first] = start().parts
    const session = await begin(first)
    const other = await first.shared.begin(FACTS, 'bob', 'bob')
    for (let i = 0; i < 70; i++) first.shared.cancel(session, i)
    expect(first.told).toHaveLength(64)
    first.shared.cancel(other, 1)
    expect(first.told).toHaveLength(65)
    await vi.advanceTimersByTimeAsync(999)
    first.shared.cancel(session, 100)
    expect(first.told).toHaveLength(65)
    await vi.advanceTimersByTimeAsync(1)
    for (let i = 0; i < 70; i++) first.shared.cancel(session, i)
    expect(first.told).toHaveLength(65 + 64)
  })
})

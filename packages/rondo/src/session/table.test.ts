import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { createCodecs } from '../protocol/revisions.ts'
import { createChangeBus } from '../serve/http/subscription.ts'
import { resolveSessions, type SessionOptions } from './options.ts'
import { createSessionTable } from './table.ts'

const FACTS = { protocolVersion: '2025-11-25', capabilities: {} }
const ANONYMOUS = 'anonymous'
const at = (address: number) => `anonymous 192.0.2.${address}`

function start(options: SessionOptions = {}) {
  let ids = 0
  const world = { now: () => 0, randomId: () => `s${ids++}`, every: () => () => {} }
  return createSessionTable(resolveSessions(options, world), createChangeBus())
}

describe('T18 sessions of anonymous callers', () => {
  it('are limited per address: the oldest unused one of that address is evicted', () => {
    const table = start({ maxSessionsPerCaller: 2 })
    const other = table.open(FACTS, ANONYMOUS, at(1))
    const [first, second, third] = [1, 2, 3].map(() => table.open(FACTS, ANONYMOUS, at(2)))
    expect(table.find(other.id, ANONYMOUS)).toBe(other)
    expect(table.find(first?.id ?? '', ANONYMOUS)).toBeUndefined()
    expect(table.find(second?.id ?? '', ANONYMOUS)).toBe(second)
    expect(table.find(third?.id ?? '', ANONYMOUS)).toBe(third)
  })

  it('are evicted in the order of their last use', () => {
    const table = start({ maxSessions: 2 })
    const [a, b] = [table.open(FACTS, ANONYMOUS, at(1)), table.open(FACTS, ANONYMOUS, at(2))]
    table.find(a.id, ANONYMOUS)
    table.open(FACTS, 'named')
    expect(table.find(a.id, ANONYMOUS)).toBe(a)
    expect(table.find(b.id, ANONYMOUS)).toBeUndefined()
  })

  it('are not evicted while a call runs or a stream is attached', () => {
    const table = start({ maxSessions: 2 })
    table
      .open(FACTS, ANONYMOUS)
      .begin(1, { send: () => {}, open: true }, createCodecs().session('2025-11-25'))
    table.open(FACTS, ANONYMOUS).streams.general = { send: () => {}, open: true }
    expect(() => table.open(FACTS, ANONYMOUS)).toThrow('[LIMIT_SESSIONS]')
  })

  it('never evict a session of an authenticated caller', () => {
    const table = start({ maxSessions: 1, maxSessionsPerCaller: 1 })
    const named = table.open(FACTS, 'named')
    expect(() => table.open(FACTS, ANONYMOUS, at(1))).toThrow('[LIMIT_SESSIONS]')
    expect(() => table.open(FACTS, 'named')).toThrow('[LIMIT_SESSIONS]')
    expect(table.find(named.id, 'named')).toBe(named)
  })
})

describe('I3 the memory that sessions keep', () => {
  it('is limited in bytes for subscriptions, per caller and in total', () => {
    const table = start({ maxKeptBytes: 100_000, maxKeptBytesPerCaller: 50_000 })
    const watchAll = (share: string) => {
      const session = table.open(FACTS, ANONYMOUS, share)
      for (let i = 0; ; i++) {
        try {
          session.watch(`notes://${'x'.repeat(5_000)}/${i}`)
        } catch (error) {
          expect(String(error)).toContain('LIMIT_SUBSCRIPTIONS')
          return i
        }
      }
    }
    expect(watchAll(at(1))).toBe(4)
    expect(table.keptBytes).toBeLessThanOrEqual(50_000)
    expect(watchAll(at(2))).toBe(4)
    expect(table.keptBytes).toBeLessThanOrEqual(100_000)
  })

  it('does not accept a subscription to a URI that is too long', () => {
    const session = start().open(FACTS, ANONYMOUS)
    expect(() => session.watch('x'.repeat(8_193))).toThrow('at most 8192')
  })

  it('evicts older sessions to make room for what a new one declares', () => {
    const table = start({ maxKeptBytes: 20_000 })
    const facts = { ...FACTS, capabilities: { experimental: { big: { text: 'x'.repeat(1_000) } } } }
    for (let i = 0; i < 50; i++) table.open(facts, ANONYMOUS, at(i))
    expect(table.size).toBeGreaterThan(0)
    expect(table.keptBytes).toBeLessThanOrEqual(20_000)
  })

  it('is given back to the last byte, whatever happened in between', () => {
    const act = fc.record({
      kind: fc.constantFrom('open', 'watch', 'unwatch', 'park', 'unpark', 'end'),
      which: fc.nat(3),
      size: fc.nat(200),
    })
    fc.assert(
      fc.property(fc.array(act, { maxLength: 60 }), (acts) => {
        const table = start({ maxKeptBytes: 60_000, maxKeptBytesPerCaller: 30_000, maxSessions: 3 })
        const open: ReturnType<typeof table.open>[] = []
        const parked: { unpark(): void }[] = []
        for (const { kind, which, size } of acts) {
          const session = open[which]
          try {
            if (kind === 'open') open.push(table.open(FACTS, ANONYMOUS, at(which)))
            else if (session === undefined || table.find(session.id, ANONYMOUS) === undefined) continue
            else if (kind === 'watch') session.watch('x'.repeat(size))
            else if (kind === 'unwatch') session.unwatch('x'.repeat(size))
            else if (kind === 'park' && session.park(size))
              parked.push({ unpark: () => session.unpark(size) })
            else if (kind === 'unpark') parked.pop()?.unpark()
            else if (kind === 'end') table.end(session)
          } catch (error) {
            expect(String(error)).toContain('LIMIT_')
          }
          expect(table.keptBytes).toBeLessThanOrEqual(60_000)
        }
        for (const one of parked) one.unpark()
        for (const session of open) table.end(session)
        expect(table.keptBytes).toBe(0)
        expect(table.size).toBe(0)
      }),
    )
  })
})

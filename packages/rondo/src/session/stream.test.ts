import fc from 'fast-check'
import { beforeEach, describe, expect, it } from 'vitest'
import type { Outlet } from '../serve/port.ts'
import { resolveSessions, UNCOUNTED } from './options.ts'
import { EventLog, readEventId, SessionStream } from './stream.ts'

const idsOf = (events: readonly string[] | undefined): (string | undefined)[] | undefined =>
  events?.map((event) => /^id: (\S+)\n/.exec(event)?.[1])

describe('the event log', () => {
  it('log 1: assigns growing ids that name the stream', () => {
    const log = new EventLog('3', 10_000)
    expect(log.append('{"a":1}', false)).toBe('id: 3-1\nevent: message\ndata: {"a":1}\n\n')
    log.append('{}', true)
    expect(idsOf(log.after(0))).toEqual(['3-1', '3-2'])
    expect(idsOf(log.after(1))).toEqual(['3-2'])
    expect(log.after(2)).toEqual([])
    expect(log.prime(500)).toBe('id: 3-2\nretry: 500\ndata: \n\n')
  })

  it('log 2, log 3: evicts progress and logs first, then what a client must not miss', () => {
    const size = new EventLog('1', 10_000).append('{"n":1}', false).length
    const log = new EventLog('1', 3 * size)
    for (const droppable of [false, true, false]) log.append('{"n":1}', droppable)
    log.append('{"n":1}', false)
    expect(idsOf(log.after(0))).toEqual(['1-1', '1-3', '1-4'])
    log.append('{"n":1}', false)
    expect(log.after(0)).toBeUndefined()
    expect(idsOf(log.after(1))).toEqual(['1-3', '1-4', '1-5'])
  })

  it('log 3: never misses an event with an id of its own', () => {
    const log = new EventLog('1', 50)
    log.appendWhole('q', 'id: q\ndata: {}\n\n')
    log.append('{"n":1}', false)
    expect(log.after(1)).toHaveLength(1)
    expect(log.after(0)).toBeUndefined()
  })

  it('R9 stays within its bytes except for a single event, and a client never misses one unnoticed (log 2, log 3)', () => {
    const events = fc.array(fc.record({ text: fc.string({ maxLength: 50 }), droppable: fc.boolean() }), {
      minLength: 1,
      maxLength: 40,
    })
    fc.assert(
      fc.property(events, fc.integer({ min: 1, max: 800 }), fc.nat(40), (sent, maxBytes, seen) => {
        const log = new EventLog('1', maxBytes)
        const texts = sent.map(({ text, droppable }) => log.append(JSON.stringify(text), droppable))
        expect(log.bytes).toBeLessThanOrEqual(Math.max(maxBytes, ...texts.map(({ length }) => length)))
        const rest = log.after(seen)
        if (seen > sent.length) expect(rest).toBeUndefined()
        if (rest === undefined) return
        const must = texts.filter((_, i) => i >= seen && !sent[i]?.droppable)
        expect(rest).toEqual(expect.arrayContaining(must))
      }),
    )
  })

  it('T15 writes every event as one line of data, whatever is in it', () => {
    const event = new EventLog('1', 1_000).append('{"a":\n"b"}\r\n', false)
    expect(event).toBe('id: 1-1\nevent: message\ndata: {"a": "b"} \n\n')
  })

  it.each(['', '1', '1-', '-1', '1-x', '1-1\n', '1.1-1', `${'x'.repeat(65)}-1`, '1-9999999999', ' 1-1'])(
    'does not recognise the id %j',
    (id) => {
      expect(readEventId(id)).toBeUndefined()
    },
  )

  it('finds events by their own ids', () => {
    expect(readEventId('12-345')).toEqual({ stream: '12', number: 345 })
  })
})

/** The other end of a connection, and what was written there. */
function createOutlet(gone: boolean) {
  const written: string[] = []
  const outlet = {
    gone,
    backlog: 0,
    open: () => {},
    send: () => {},
    end: () => {},
    write: (text: string) => void written.push(text),
    onGone(listener: () => void) {
      if (gone) listener()
      return () => {}
    },
  }
  return { outlet: outlet as unknown as Outlet, written }
}

describe('a stream that another instance began', () => {
  let now = 0
  let lost = 0
  let known: SessionStream[] = []
  beforeEach(() => {
    now = 0
    lost = 0
    known = []
  })
  const setup = {
    name: () => 'c_1',
    after: 3,
    settings: resolveSessions({}, { now: () => now, randomId: () => '' }),
    budget: UNCOUNTED,
    http: { keepAliveMs: 15_000, maxBacklog: 1_000, every: () => () => {} },
    primed: true,
    streams: true,
    responses: 1,
    batch: false,
    onOpen: (stream: SessionStream) => void known.push(stream),
    onLost: () => void lost++,
  }

  it('J1 stream 2: outlives a connection that is lost before anything is sent', () => {
    const stream = new SessionStream(setup, createOutlet(true).outlet)
    expect(known).toEqual([stream])
    expect(stream.open).toBe(true)
    stream.respond('{}')
    const { outlet, written } = createOutlet(false)
    expect(stream.resume(outlet, 3)).toBe(true)
    expect(written.join('')).toContain('id: c_1-4\n')
    expect(lost).toBe(0)
  })

  it('J1 stream 3: has nothing more to say once it was abandoned, so the client learns that its call is over', () => {
    const stream = new SessionStream(setup, createOutlet(true).outlet)
    now = setup.settings.resumeMs
    stream.sweep(now)
    expect(lost).toBe(1)
    expect(stream.resume(createOutlet(false).outlet, 3)).toBe(false)
  })

  it('J1 stream 4: is resumed after its end if the client has missed something, or has its response', () => {
    const stream = new SessionStream(setup, createOutlet(true).outlet)
    stream.send('{"method":"ping"}', false)
    stream.respond(undefined)
    expect(stream.resume(createOutlet(false).outlet, 3)).toBe(true)
    expect(stream.resume(createOutlet(false).outlet, 4)).toBe(false)
    const answered = new SessionStream(setup, createOutlet(true).outlet)
    answered.respond('{}')
    expect(answered.resume(createOutlet(false).outlet, 4)).toBe(true)
  })
})

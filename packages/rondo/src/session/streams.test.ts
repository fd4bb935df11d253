/** The streams of a session, by a clock that is turned by hand. */

import { describe, expect, it } from 'vitest'
import type { HttpResponse, Outlet } from '../serve/port.ts'
import { resolveSessions, type SessionOptions } from './options.ts'
import type { SessionStream } from './stream.ts'
import { SessionStreams } from './streams.ts'

/** The other end of a connection. */
function connect() {
  const seen = {
    text: '',
    headers: undefined as unknown,
    sent: undefined as HttpResponse | undefined,
    ends: 0,
    isDropped: false,
    backlog: 0,
  }
  const listeners = new Set<() => void>()
  const outlet: Outlet = {
    gone: false,
    ended: false,
    address: undefined,
    get backlog() {
      return seen.backlog
    },
    send(response) {
      seen.sent = response
    },
    open(headers) {
      seen.headers = headers
    },
    write(text) {
      seen.text += text
    },
    end() {
      seen.ends += 1
    },
    fail() {},
    drop() {
      seen.isDropped = true
      leave()
    },
    onGone(listener) {
      listeners.add(listener)
      return () => listeners.delete(listener)
    },
  }
  const leave = (): void => {
    for (const listener of [...listeners]) listener()
  }
  return { seen, outlet, leave }
}

interface Setup {
  readonly options?: SessionOptions
  readonly isPortable?: boolean
  readonly secret?: string
  /** Bytes that may be kept. */
  readonly room?: number
}

function start({ options = {}, isPortable = false, secret, room = Number.POSITIVE_INFINITY }: Setup = {}) {
  const clock = { now: 1_000 }
  const kept = { bytes: 0 }
  const timers = { running: 0, ms: [] as number[], ticks: [] as (() => void)[] }
  const lost: string[] = []
  let ids = 0
  const settings = resolveSessions(options, { now: () => clock.now, randomId: () => `r${ids++}` })
  const budget = {
    take(bytes: number) {
      if (kept.bytes + bytes > room) return false
      kept.bytes += bytes
      return true
    },
    release(bytes: number) {
      kept.bytes -= bytes
    },
  }
  const http = {
    keepAliveMs: 15_000,
    maxBacklog: 100,
    every(ms: number, tick: () => void) {
      timers.running += 1
      timers.ms.push(ms)
      timers.ticks.push(tick)
      let isRunning = true
      return () => {
        if (isRunning) timers.running -= 1
        isRunning = false
      }
    },
  }
  const streams = new SessionStreams(isPortable, settings, budget, secret)
  const open = (request: Partial<Parameters<SessionStreams['open']>[0]> = {}) => {
    const end = connect()
    const call = { primed: true, streams: true, responses: 1, batch: false }
    const onLost = (): void => void lost.push('lost')
    return { ...end, stream: streams.open({ ...call, onLost, ...request }, end.outlet, http) }
  }
  /** Opens the session's own stream. */
  const openOwn = (request: Partial<Parameters<SessionStreams['open']>[0]> = {}) =>
    open({ responses: 0, ...request })
  const resume = (eventId: string) => {
    const end = connect()
    return { ...end, isResumed: streams.resume(eventId, end.outlet) }
  }
  const pass = (ms: number): void => {
    clock.now += ms
    streams.sweep(clock.now)
  }
  return { streams, open, openOwn, resume, pass, clock, kept, timers, lost, settings, http }
}

const event = (id: string, json: string): string => `id: ${id}\nevent: message\ndata: ${json}\n\n`
const prime = (id: string): string => `id: ${id}\nretry: 1000\ndata: \n\n`
const COMMENT = ': still here\n\n'
const JSON_TYPE = { 'Content-Type': 'application/json' }

describe('the response to a POST', () => {
  it('stream 1: is JSON unless something is sent before it', () => {
    const { open, streams, timers } = start()
    const { stream, seen } = open()
    stream.respond('{"id":1}')
    expect(seen).toMatchObject({ sent: { status: 200, headers: JSON_TYPE, body: '{"id":1}' }, text: '' })
    expect([streams.size, streams.attached, stream.ended, timers.running]).toEqual([0, false, true, 0])
  })

  it('stream 1: is empty if there is nothing to respond', () => {
    const { seen, stream } = start().open()
    stream.respond(undefined)
    expect(seen.sent).toEqual({ status: 202, headers: {}, body: '' })
  })

  it('stream 1: to a batch is a batch, even of one response', () => {
    const { open } = start()
    const two = open({ responses: 3, batch: true })
    two.stream.respond('1')
    two.stream.respond(undefined)
    expect(two.seen.sent).toBeUndefined()
    two.stream.respond('2')
    expect(two.seen.sent).toMatchObject({ status: 200, body: '[1,2]' })
    const none = open({ responses: 1, batch: true })
    none.stream.respond(undefined)
    expect(none.seen.sent).toMatchObject({ status: 202, body: '' })
  })

  it('stream 1: is a stream if something is sent before it, and ends with the response', () => {
    const { open, timers, streams } = start()
    const { stream, seen } = open()
    expect(streams.attached).toBe(false)
    stream.send('"note"', true)
    expect(streams.attached).toBe(true)
    expect(seen.text).toBe(prime('1-0') + event('1-1', '"note"'))
    expect(seen.headers).toMatchObject({ 'Content-Type': 'text/event-stream' })
    expect([timers.ms, timers.running]).toEqual([[15_000], 1])
    timers.ticks[0]?.()
    stream.respond('"done"')
    expect(seen.text).toBe(prime('1-0') + event('1-1', '"note"') + COMMENT + event('1-2', '"done"'))
    expect([seen.ends, seen.sent, timers.running, stream.attached]).toEqual([1, undefined, 0, false])
    stream.send('"late"', false)
    stream.beat()
    expect(seen.text).not.toContain('late')
    expect(seen.ends).toBe(1)
  })

  it('stream 1: carries the responses that were there before it became a stream', () => {
    const { seen, stream } = start().open({ responses: 3, primed: false })
    stream.respond('1')
    stream.send('"note"', false)
    stream.respond('2')
    stream.respond(undefined)
    expect(seen.text).toBe(event('1-1', '1') + event('1-2', '"note"') + event('1-3', '2'))
    expect(seen.ends).toBe(1)
  })

  it('begins as a stream with a heartbeat', () => {
    const { open } = start()
    const { stream, seen } = open()
    expect(seen.text).toBe('')
    stream.beat()
    stream.beat()
    expect(seen.text).toBe(prime('1-0') + COMMENT + COMMENT)
    seen.backlog = 101
    stream.beat()
    expect(seen.text).toBe(prime('1-0') + COMMENT + COMMENT)
    seen.backlog = 100
    stream.beat()
    expect(seen.text).toBe(prime('1-0') + COMMENT.repeat(3))
  })

  it('is JSON for a client that reads no streams, whatever else there is to send', () => {
    const { stream, seen } = start().open({ streams: false })
    expect(stream.open).toBe(false)
    stream.send('"note"', false)
    stream.beat()
    stream.endWith([{ id: 'q', text: 'id: q\n\n' }])
    stream.respond('1')
    expect(seen).toMatchObject({ text: '', sent: { status: 200, body: '1' } })
  })

  it('is a stream of questions with ids of their own, and ends with them', () => {
    const { open, resume } = start()
    const { stream, seen } = open({ primed: false })
    stream.endWith([
      { id: 'q.a', text: 'id: q.a\ndata: 1\n\n' },
      { id: 'q.b', text: 'id: q.b\ndata: 2\n\n' },
    ])
    expect(seen).toMatchObject({ text: 'id: q.a\ndata: 1\n\nid: q.b\ndata: 2\n\n', ends: 1 })
    expect(resume('q.a')).toMatchObject({ isResumed: true, seen: { text: 'id: q.b\ndata: 2\n\n', ends: 1 } })
    expect(resume('q.b')).toMatchObject({ isResumed: true, seen: { text: COMMENT, ends: 1 } })
    expect(resume('q.c').isResumed).toBe(false)
    stream.endWith([{ id: 'q.c', text: 'id: q.c\n\n' }])
    expect(resume('q.c').isResumed).toBe(false)
  })

  it('ends with questions after what was sent before, for a client that has lost it too', () => {
    const { open, resume } = start()
    const questions = [{ id: 'q', text: 'id: q\n\n' }]
    const talking = open()
    talking.stream.send('1', false)
    talking.stream.endWith(questions)
    expect(talking.seen.text).toBe(`${prime('1-0')}${event('1-1', '1')}id: q\n\n`)
    const lost = open()
    lost.stream.send('1', false)
    lost.leave()
    lost.stream.endWith(questions)
    expect(resume('2-1').seen).toMatchObject({ text: 'id: q\n\n', ends: 1 })
    const silent = open({ name: () => '7', after: 3 })
    silent.leave()
    silent.stream.endWith(questions)
    expect(resume('7-3').seen).toMatchObject({ text: 'id: q\n\n', ends: 1 })
  })

  it('T20 drops progress and logs for a client that does not read, and disconnects it for anything else', () => {
    const { open, resume } = start()
    const { stream, seen } = open()
    stream.send('1', true)
    seen.backlog = 101
    stream.send('2', true)
    expect(seen.isDropped).toBe(false)
    stream.send('3', false)
    expect([seen.isDropped, stream.attached]).toEqual([true, false])
    expect(seen.text).toBe(prime('1-0') + event('1-1', '1'))
    expect(resume('1-1').seen.text).toBe(event('1-2', '3'))
  })

  it('T20 is not dropped for what it leaves unread within the limit', () => {
    const { stream, seen } = start().open({ primed: false })
    seen.backlog = 100
    stream.send('1', true)
    expect(seen.text).toBe(event('1-1', '1'))
  })
})

describe('a stream whose connection is lost', () => {
  it('stream 2: is resumed with everything but the progress and logs of meanwhile', () => {
    const { open, resume, lost, timers } = start()
    const { stream, leave } = open()
    stream.send('1', false)
    leave()
    expect([stream.attached, timers.running, stream.ended]).toEqual([false, 0, false])
    stream.send('2', true)
    stream.beat()
    stream.send('3', false)
    const again = resume('1-1')
    expect(again).toMatchObject({ isResumed: true, seen: { text: event('1-2', '3'), ends: 0 } })
    expect([stream.attached, timers.running]).toEqual([true, 1])
    stream.send('4', true)
    stream.respond('5')
    expect(again.seen.text).toBe(event('1-2', '3') + event('1-3', '4') + event('1-4', '5'))
    expect([again.seen.ends, lost]).toEqual([1, []])
  })

  it('stream 2: ends the connection that it has when it is resumed on another', () => {
    const { open, resume } = start()
    const { stream, seen, leave } = open()
    stream.send('1', false)
    const again = resume('1-1')
    expect(again.seen.text).toBe(COMMENT)
    expect(seen.ends).toBe(1)
    leave()
    expect(stream.attached).toBe(true)
    stream.send('2', false)
    expect(seen.text).not.toContain('2-')
    expect(again.seen.text).toBe(COMMENT + event('1-2', '2'))
  })

  it('stream 3: is abandoned if nobody resumes it in time', () => {
    const { open, pass, streams, lost, kept, resume } = start({ options: { resumeMs: 1_000 } })
    const { stream, leave } = open()
    stream.send('1', false)
    pass(5_000)
    expect(lost).toEqual([])
    leave()
    pass(999)
    expect([streams.size, lost]).toEqual([1, []])
    pass(1)
    expect([streams.size, lost, kept.bytes, stream.ended]).toEqual([0, ['lost'], 0, true])
    expect(resume('1-0').isResumed).toBe(false)
    pass(5_000)
    expect(lost).toEqual(['lost'])
  })

  it('stream 4: is kept for that time once it has ended, however often it is ended', () => {
    const { open, pass, streams } = start({ options: { resumeMs: 1_000 } })
    const { stream } = open()
    stream.send('1', false)
    stream.end()
    pass(999)
    stream.end()
    expect(streams.size).toBe(1)
    pass(1)
    expect(streams.size).toBe(0)
  })

  it('log 3: is not resumed if a response of a batch is no longer kept', () => {
    const { open, resume } = start()
    const { stream } = open({ responses: 3, batch: true })
    stream.respond(`"${'x'.repeat(100_000)}"`)
    stream.send('"note"', false)
    expect(resume('1-0').isResumed).toBe(true)
    stream.send(`"${'x'.repeat(200_000)}"`, false)
    expect(resume('1-0').isResumed).toBe(false)
  })

  it('stream 3: has its time again each time that it is lost', () => {
    const { open, pass, resume, lost } = start({ options: { resumeMs: 1_000 } })
    const { stream, leave } = open()
    stream.send('1', false)
    leave()
    pass(600)
    const again = resume('1-1')
    pass(5_000)
    again.leave()
    pass(999)
    expect(lost).toEqual([])
    pass(1)
    expect(lost).toEqual(['lost'])
  })

  it('stream 3: is abandoned at once if there is nothing to resume from, or no resumption', () => {
    const plain = start()
    const silent = plain.open()
    silent.leave()
    expect([plain.lost, silent.stream.ended]).toEqual([['lost'], true])
    const { open, lost, resume } = start({ options: { resumeMs: 0 } })
    const { stream, leave, seen } = open()
    stream.send('1', false)
    expect(seen.text).toBe(event('1-1', '1'))
    leave()
    expect(lost).toEqual(['lost'])
    expect(resume('1-1').isResumed).toBe(false)
  })

  it('stream 4: is kept after its end, for a client that missed it', () => {
    const { open, openOwn, pass, resume, streams, kept, lost } = start({ options: { resumeMs: 1_000 } })
    const { stream } = open()
    stream.send('1', false)
    stream.respond('2')
    pass(600)
    const again = resume('1-1')
    expect(again).toMatchObject({ isResumed: true, seen: { text: event('1-2', '2'), ends: 1 } })
    expect(stream.attached).toBe(false)
    pass(999)
    expect(resume('1-2')).toMatchObject({ isResumed: true, seen: { text: COMMENT, ends: 1 } })
    const own = openOwn({ primed: false })
    pass(999)
    expect(streams.size).toBe(2)
    pass(1)
    expect([streams.size, kept.bytes, lost]).toEqual([1, 0, []])
    expect(resume('1-2').isResumed).toBe(false)
    expect(streams.general).toBe(own.stream)
  })

  it('stream 4: of a batch that was abandoned ends when it is resumed', () => {
    const { open, resume } = start()
    const { stream } = open({ responses: 2, batch: true })
    stream.send('1', false)
    stream.respond(undefined)
    stream.respond(undefined)
    expect(resume('1-1')).toMatchObject({ isResumed: true, seen: { text: COMMENT, ends: 1 } })
  })

  it('is not held by a connection that is gone before it is resumed', () => {
    const { open, streams } = start()
    const { stream } = open()
    stream.send('1', false)
    stream.respond('2')
    const { outlet } = connect()
    const gone: Outlet = {
      ...outlet,
      onGone(listener) {
        listener()
        return () => {}
      },
    }
    expect([streams.resume('1-1', gone), stream.attached]).toEqual([true, false])
  })

  it.each([
    ['a response', (stream: SessionStream) => stream.respond('1')],
    ['a question', (stream: SessionStream) => stream.endWith([{ id: 'q', text: 'id: q\n\n' }])],
    ['a message', (stream: SessionStream) => stream.send('1', false)],
  ])('log 3: is not resumed if %s is no longer kept', (_what, send) => {
    const { open, resume } = start({ room: 1_000 })
    const { stream } = open({ responses: 3 })
    send(stream)
    if (stream.open) stream.send(JSON.stringify('x'.repeat(300_000)), false)
    expect(resume('1-0').isResumed).toBe(!stream.open)
  })

  it('log 2: keeps a single message, however large, and the last 256 KiB of many', () => {
    const { open, resume } = start()
    const { stream, leave } = open()
    stream.send('1', false)
    leave()
    const large = JSON.stringify('x'.repeat(300_000))
    stream.send(large, false)
    expect(resume('1-0').isResumed).toBe(false)
    expect(resume('1-1').seen.text).toBe(event('1-2', large))
  })

  it('log 3: is not resumed if what followed is no longer kept', () => {
    const { open, resume, kept } = start({ room: 100 })
    const { stream, seen, leave } = open()
    stream.send('1', false)
    stream.send(JSON.stringify('x'.repeat(100)), true)
    leave()
    expect(resume('1-1').isResumed).toBe(true)
    stream.send(JSON.stringify('@'.repeat(100)), false)
    expect(seen.text).not.toContain('@')
    expect(resume('1-2').isResumed).toBe(false)
    expect(resume('1-3').isResumed).toBe(true)
    expect(resume('1-4').isResumed).toBe(false)
    expect(kept.bytes).toBeLessThanOrEqual(100)
  })
})

describe('streamMs', () => {
  const options = { streamMs: 1_000, resumeMs: 10_000 }

  it('closes no response that has not begun, even if it is 0', () => {
    const { open, pass } = start({ options: { ...options, streamMs: 0 } })
    const { stream, seen } = open({ name: () => '7', after: 3 })
    pass(1)
    expect(seen.ends).toBe(0)
    stream.send('1', false)
    pass(1)
    expect(seen.ends).toBe(1)
  })

  it('ends the stream of a call, and its client resumes it', () => {
    const { open, pass, resume, timers, lost, streams } = start({ options })
    const { stream, seen } = open()
    pass(2_000)
    expect(seen.ends).toBe(0)
    stream.send('1', false)
    pass(999)
    expect(seen.ends).toBe(0)
    pass(1)
    expect([seen.ends, stream.ended, stream.attached, timers.running]).toEqual([1, false, false, 0])
    pass(9_999)
    expect([streams.size, lost]).toEqual([1, []])
    const again = resume('1-1')
    expect(again.isResumed).toBe(true)
    pass(999)
    expect(again.seen.ends).toBe(0)
    pass(1)
    expect(again.seen.ends).toBe(1)
    pass(5_000)
    pass(4_999)
    expect(lost).toEqual([])
    pass(1)
    expect(lost).toEqual(['lost'])
  })

  it.each([
    ["the session's own stream", { responses: 0 }, options],
    ['a client whose version does not resume', { primed: false }, options],
    ['a server without resumption', {}, { streamMs: 1_000, resumeMs: 0 }],
  ])('does not end the stream for %s', (_who, request, given) => {
    const { open, pass } = start({ options: given })
    const { stream, seen } = open(request)
    stream.send('1', false)
    pass(1_000)
    expect([seen.ends, stream.attached]).toEqual([0, true])
  })
})

describe("a session's own stream", () => {
  it('begins at once', () => {
    const { openOwn, streams } = start()
    expect(openOwn().seen.text).toBe(prime('1-0'))
    expect(openOwn({ primed: false }).seen.text).toBe(COMMENT)
    expect(streams.attached).toBe(true)
  })

  it('begins with a byte even if there is no resumption', () => {
    expect(start({ options: { resumeMs: 0 } }).openOwn().seen.text).toBe(COMMENT)
  })

  it('replaces the one before it', () => {
    const { openOwn, open, streams, resume, kept } = start()
    const first = openOwn()
    streams.general?.send('1', false)
    const call = open()
    const second = openOwn()
    expect([first.seen.ends, call.seen.ends, streams.size]).toEqual([1, 0, 1])
    expect([resume('1-0').isResumed, kept.bytes]).toEqual([false, 0])
    streams.general?.send('2', false)
    expect(second.seen.text).toBe(prime('3-0') + event('3-1', '2'))
    expect(first.seen.text).toBe(prime('1-0') + event('1-1', '1'))
  })

  it('leaves a channel that is not a stream as it is, and takes its place', () => {
    const { openOwn, streams } = start()
    streams.general = { send: () => {}, open: true }
    const { stream } = openOwn()
    expect(streams.general).toBe(stream)
  })

  it('is gone after its client has been away for too long', () => {
    const { openOwn, streams, pass } = start({ options: { resumeMs: 1_000 } })
    const { leave, stream } = openOwn()
    leave()
    expect(streams.general).toBe(stream)
    pass(1_000)
    expect([streams.general, streams.size]).toEqual([undefined, 0])
  })
})

describe('the name of a stream', () => {
  it('is a number where only this instance knows the session', () => {
    const { open, openOwn } = start()
    expect([open().stream.name, openOwn().stream.name, open().stream.name]).toEqual(['1', '2', '3'])
  })

  it('says which process began it, and whether it is the own stream', () => {
    const { open, openOwn, settings } = start({ isPortable: true })
    expect(open().stream.name).toBe(`c_${settings.tag}r0`)
    expect(openOwn().stream.name).toBe(`g_${settings.tag}r1`)
  })

  it('T1 is recognised by every instance that knows the secret, and nothing else is', () => {
    const { open, streams } = start({ isPortable: true, secret: 'a'.repeat(43) })
    const { name } = open().stream
    const other = start({ isPortable: true, secret: 'a'.repeat(43) }).streams
    const foreign = start({ isPortable: true, secret: 'b'.repeat(43) }).streams
    expect([streams, other, foreign].map((one) => one.mayExist(name))).toEqual([true, true, false])
    expect([streams, other, foreign].map((one) => one.mayHaveSent(`${name}-7`))).toEqual([true, true, false])
    expect(streams.mayHaveSent(`x${name}-7`)).toBe(false)
    expect(streams.mayHaveSent('an event with an id of its own')).toBe(true)
    expect(start().streams.mayExist('anything')).toBe(true)
  })

  it('is that of the stream that another instance began, with its numbers', () => {
    const { open, kept, streams } = start({ isPortable: true })
    const { stream, seen } = open({ name: () => 'c_other', after: 3 })
    expect([stream.last, streams.size]).toEqual([3, 1])
    stream.send('1', false)
    expect(seen.text).toBe(prime('c_other-3') + event('c_other-4', '1'))
    expect(stream.last).toBe(4)
    expect(kept.bytes).toBe(event('c_other-4', '1').length)
  })
})

describe('the streams of a session', () => {
  const talk = ({ stream }: { stream: SessionStream }): void => stream.send('1', false)

  it('T33 have the scopes of their calls', () => {
    const { open, streams } = start()
    talk(open({ scopes: ['pay'] }))
    talk(open())
    expect(['1-0', '2-0', '3-0', 'own'].map((id) => streams.scopesOf(id))).toEqual([['pay'], [], [], []])
  })

  it('are relayed to a client of another instance, with the scopes that it needs', () => {
    const { open, streams } = start()
    const { stream } = open({ scopes: ['pay'] })
    stream.send('1', false)
    stream.send('2', false)
    const end = connect()
    expect(streams.relay('1', 1, end.outlet)).toEqual(['pay'])
    expect(end.seen.text).toBe(event('1-2', '2'))
    expect(streams.relay('1', 3, end.outlet)).toBeUndefined()
    expect(streams.relay('2', 0, end.outlet)).toBeUndefined()
  })

  it('I3 are evicted beyond 64, the oldest finished one first, and never one that runs', () => {
    const { open, streams, resume } = start()
    const all = Array.from({ length: 64 }, () => open())
    for (const one of all) talk(one)
    all[5]?.stream.respond('2')
    all[9]?.stream.respond('2')
    expect(streams.size).toBe(64)
    expect(resume('6-1').isResumed).toBe(true)
    talk(open())
    expect(streams.size).toBe(64)
    expect([resume('6-1').isResumed, resume('10-1').isResumed]).toEqual([false, true])
    talk(open())
    talk(open())
    expect([streams.size, resume('10-1').isResumed, resume('1-1').isResumed]).toEqual([65, false, true])
    expect(streams.dropEnded()).toBe(false)
    all[1]?.stream.respond('2')
    expect([streams.dropEnded(), streams.size]).toEqual([true, 64])
  })

  it('I3 use no room that an earlier stream of the same name has used', () => {
    const { open, streams, kept, resume } = start({ isPortable: true })
    const first = open({ name: () => 'c_one', after: 0 })
    first.stream.send('1', false)
    first.stream.respond(undefined)
    const second = open({ name: () => 'c_one', after: 1 })
    second.stream.send('2', false)
    expect(kept.bytes).toBe(event('c_one-2', '2').length)
    expect([streams.size, first.seen.ends, second.seen.ends]).toEqual([1, 1, 0])
    expect(resume('c_one-1').seen.text).toBe(event('c_one-2', '2'))
    streams.end()
    expect(kept.bytes).toBe(0)
  })

  it('R9 end with their session', () => {
    const { open, openOwn, streams, kept, timers } = start()
    const ends = [open(), open(), openOwn()]
    for (const end of ends) talk(end)
    const awaited = connect()
    streams.awaitAnswer('turn', awaited.outlet, start().http)
    streams.end()
    expect(ends.map(({ seen }) => seen.ends)).toEqual([1, 1, 1])
    expect([streams.size, kept.bytes, timers.running, streams.general]).toEqual([0, 0, 0, undefined])
    expect([streams.awaited('turn'), awaited.seen.ends]).toEqual([undefined, 1])
  })
})

describe('a stream on which a client waits for what follows its answer', () => {
  it('begins at once, and is taken once', () => {
    const { streams, http } = start()
    const { outlet, seen } = connect()
    streams.awaitAnswer('turn', outlet, http)
    expect(seen.text).toBe(COMMENT)
    expect(streams.awaited('other')).toBeUndefined()
    const stream = streams.awaited('turn')
    stream?.respond('1')
    expect(seen).toMatchObject({ text: COMMENT + event('1-1', '1'), ends: 1 })
    expect(streams.awaited('turn')).toBeUndefined()
  })

  it('is not taken if its client has gone', () => {
    const { streams, http, pass, settings } = start()
    const first = connect()
    streams.awaitAnswer('turn', first.outlet, http)
    first.leave()
    pass(settings.resumeMs)
    expect(streams.size).toBe(0)
    const second = connect()
    streams.awaitAnswer('turn', second.outlet, http)
    second.leave()
    expect(streams.awaited('turn')).toBeUndefined()
  })
})

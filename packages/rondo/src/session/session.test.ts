/** Sessions and their table: whose they are, when they end, and what they may hold. By a clock that is turned by hand. */

import { describe, expect, it } from 'vitest'
import type { ErrorCode, RondoError } from '../errors.ts'
import { createCodecs } from '../protocol/revisions.ts'
import { createChangeBus } from '../serve/http/subscription.ts'
import type { Outlet } from '../serve/port.ts'
import { IDLE_MS, resolveSessions, type SessionOptions, sweepMs } from './options.ts'
import { callerLimit, isNamed, type Session } from './session.ts'
import { createSessionTable } from './table.ts'

const FACTS = { protocolVersion: '2025-11-25', capabilities: {} }
const ANONYMOUS = 'anonymous'
const at = (address: number) => `anonymous 192.0.2.${address}`
const dialect = createCodecs().session('2025-11-25')

function start(options: SessionOptions = {}, isAlone = false) {
  const clock = { now: 1_000_000 }
  const events: string[] = []
  const errors: unknown[] = []
  const elsewhere: string[] = []
  const timers = { set: [] as number[], stopped: 0 }
  let ids = 0
  const changes = createChangeBus()
  const settings = resolveSessions(options, {
    now: () => clock.now,
    randomId: () => `s${ids++}`,
    every(ms) {
      timers.set.push(ms)
      return () => {
        timers.stopped += 1
      }
    },
    onError: (error) => errors.push(error),
    elsewhere: isAlone ? undefined : (session, json) => elsewhere.push(`${session} ${json}`),
  })
  const table = createSessionTable(settings, changes, (phase, { id }) => events.push(`${phase} ${id}`))
  return { table, clock, events, errors, elsewhere, timers, changes, settings }
}

/** The session's own stream, of a client that does not read: it gets what must not be dropped. */
function listen(session: Session): string[] {
  const sent: string[] = []
  const send = (json: string, droppable: boolean): void => void (droppable || sent.push(json))
  session.streams.general = { send, open: true }
  return sent
}

/** Opens the stream of a call, which ignores what is written. */
function openStream(session: Session) {
  const outlet: Outlet = {
    gone: false,
    ended: false,
    address: undefined,
    backlog: 0,
    send() {},
    open() {},
    write() {},
    end() {},
    fail() {},
    drop() {},
    onGone: () => () => {},
  }
  const request = { primed: true, streams: true, responses: 1, batch: false, onLost() {} }
  const http = { keepAliveMs: 15_000, maxBacklog: 100, every: () => () => {} }
  return session.streams.open(request, outlet, http)
}
const refused = (code: ErrorCode) => expect.objectContaining({ code })
const QUESTION = { q: { method: 'roots/list', params: {} } } as const
const ANSWER = { kind: 'result', result: {} } as never
const codeOf = (work: () => unknown): string | undefined => {
  try {
    work()
    return undefined
  } catch (error) {
    return (error as RondoError).code
  }
}

describe('a session', () => {
  it('T15 is found by its owner only, and until it ends', () => {
    const { table, clock } = start()
    const session = table.open(FACTS, 'alice', 'alice', { id: 'one', until: clock.now + 1_000 })
    expect(table.find('one', 'alice')).toBe(session)
    expect(table.find('one', 'bob')).toBeUndefined()
    expect(table.find('two', 'alice')).toBeUndefined()
    expect(table.named(session.name)).toBe(session)
    expect(session.name).not.toBe(session.id)
    clock.now += 999
    expect(table.find('one', 'alice')).toBe(session)
    clock.now += 1
    expect(table.find('one', 'alice')).toBeUndefined()
    table.sweep()
    expect(table.named(session.name)).toBeUndefined()
  })

  it('T15 of an id that is in use is the one that is there, for its owner; others get one of a request', () => {
    const { table, events } = start({ maxSessionsPerCaller: 1 })
    const session = table.adopt({ id: 'one' }, FACTS, 'alice')
    expect(table.adopt({ id: 'one' }, FACTS, 'alice')).toBe(session)
    expect(events).toEqual(['opened one'])
    const alone = table.adopt({ id: 'two' }, FACTS, 'alice')
    expect(alone.id).toBe('two')
    expect(table.find('two', 'alice')).toBeUndefined()
    expect(table.size).toBe(1)
  })

  it('begins and ends once, and gives back what it took', () => {
    const { table, events, timers } = start()
    const empty = table.keptBytes
    const [one, two] = [table.open(FACTS, 'alice'), table.open(FACTS, 'alice')]
    expect(table.keptBytes).toBeGreaterThan(empty + 4_096)
    expect(timers.set).toEqual([5_000])
    table.end(one)
    table.end(one)
    expect([table.size, timers.stopped]).toEqual([1, 0])
    table.end(two)
    expect([table.size, table.keptBytes, timers.stopped]).toEqual([0, 0, 1])
    expect(events).toEqual(['opened s0', 'opened s1', 'closed s0', 'closed s1'])
    table.open(FACTS, 'alice')
    expect(timers.set).toEqual([5_000, 5_000])
  })

  it('ends after half an hour without a request, and not while a call runs or a stream is attached', () => {
    const { table, clock } = start()
    const session = table.open(FACTS, 'alice')
    const pass = (ms: number) => {
      clock.now += ms
      table.sweep()
      return table.size
    }
    expect(pass(IDLE_MS - 1)).toBe(1)
    session.touch()
    expect(pass(IDLE_MS - 1)).toBe(1)
    const line = session.begin(1, { send: () => {}, open: true }, dialect)
    expect(pass(IDLE_MS)).toBe(1)
    session.finish(1, line)
    expect(pass(IDLE_MS - 1)).toBe(1)
    expect(pass(1)).toBe(0)
  })

  it('R11 that fails in a sweep does not stop the sweep of others', () => {
    const { table, clock, errors } = start()
    const bad = table.open(FACTS, 'alice')
    table.open(FACTS, 'bob')
    const fault = new Error('broken')
    bad.sweep = () => {
      throw fault
    }
    clock.now += IDLE_MS
    table.sweep()
    expect(table.size).toBe(1)
    expect(errors).toEqual([fault])
  })

  it('of the drafts is released as soon as it holds nothing that a request could need', () => {
    const { table, clock } = start()
    const observe = () => new Promise<never>(() => {})
    const session = table.adopt({ id: 't.1' }, FACTS, 'alice')
    const isReleased = () => {
      table.sweep()
      return table.size === 0
    }
    const line = session.begin(1, { send: () => {}, open: true }, dialect)
    expect(isReleased()).toBe(false)
    session.finish(1, line)
    session.watch('a')
    expect(isReleased()).toBe(false)
    session.unwatch('a')
    session.level = 'error'
    expect(isReleased()).toBe(false)
    session.level = 'info'
    openStream(session).send('{}', false)
    expect(isReleased()).toBe(false)
    session.streams.end()
    let end = () => {}
    session.followTask('task', (report) => {
      end = () => report(undefined, true)
      return observe()
    })
    expect(isReleased()).toBe(false)
    end()
    expect(isReleased()).toBe(true)
    table.adopt({ id: 's.1' }, FACTS, 'alice')
    expect(isReleased()).toBe(false)
    clock.now += IDLE_MS
    expect(isReleased()).toBe(true)
  })

  it('R9 may be one of so many of its caller, and of all', () => {
    const mine = start({ maxSessionsPerCaller: 2 })
    mine.table.open(FACTS, 'alice')
    mine.table.open(FACTS, 'alice')
    expect(() => mine.table.open(FACTS, 'alice')).toThrow(refused('LIMIT_SESSIONS'))
    mine.table.open(FACTS, 'bob')
    const all = start({ maxSessions: 2 })
    all.table.open(FACTS, 'alice')
    all.table.open(FACTS, 'bob')
    expect(() => all.table.open(FACTS, 'carol')).toThrow(refused('LIMIT_SESSIONS'))
    const one = start({ maxSessionsPerCaller: 1 })
    one.table.end(one.table.open(FACTS, 'alice'))
    expect(codeOf(() => one.table.open(FACTS, 'alice'))).toBeUndefined()
    const small = start({ maxKeptBytes: 4_000 })
    small.table.open(FACTS, 'alice')
    expect(() => small.table.open(FACTS, 'bob')).toThrow(refused('LIMIT_SESSIONS'))
  })

  it('T18 of an anonymous caller has the limit of its address, or none if that is not known', () => {
    expect([isNamed('alice'), isNamed(ANONYMOUS)]).toEqual([true, false])
    expect(callerLimit({ owner: 'alice', share: 'alice' }, 5)).toBe(5)
    expect(callerLimit({ owner: ANONYMOUS, share: at(1) }, 5)).toBe(5)
    expect(callerLimit({ owner: ANONYMOUS, share: ANONYMOUS }, 5)).toBe(Number.POSITIVE_INFINITY)
    const { table } = start({ maxKeptBytes: 1_000, maxKeptBytesPerCaller: 500 })
    const kept = (owner: string, share: string) => table.transient(FACTS, owner, { id: share }).keptBytes
    expect(kept('alice', 'alice')).toBe(500)
    expect(kept(ANONYMOUS, ANONYMOUS)).toBe(1_000)
  })

  it('lives for a week unless the operator says otherwise', () => {
    const days = (options: SessionOptions) => start(options).table.lifetimeMs / (24 * 3_600_000)
    expect([days({}), days({ lifetimeMs: 3_600_000 })]).toEqual([7, 1 / 24])
  })

  it('is swept as often as the shortest of its times needs', () => {
    const every = (options: SessionOptions) => sweepMs(start(options).settings)
    expect(every({})).toBe(5_000)
    expect(every({ resumeMs: 4_000 })).toBe(1_000)
    expect(every({ streamMs: 2_000 })).toBe(500)
    expect(every({ resumeMs: 0 })).toBe(50)
  })
})

describe('the subscriptions of a session', () => {
  it('I3 are so many, of so many characters', () => {
    const { table } = start()
    const session = table.open(FACTS, 'alice')
    expect(codeOf(() => session.watch('x'.repeat(8_192)))).toBeUndefined()
    expect(codeOf(() => session.watch('x'.repeat(8_193)))).toBe('PEER_PARAMS')
    for (let i = 0; i < 999; i++) session.watch(`a://${i}`)
    expect(codeOf(() => session.watch('one more'))).toBe('LIMIT_SUBSCRIPTIONS')
    expect(codeOf(() => session.watch('a://1'))).toBeUndefined()
    session.unwatch('a://1')
    expect(codeOf(() => session.watch('one more'))).toBeUndefined()
    const long = table.open(FACTS, 'alice')
    for (let i = 0; i < 32; i++) long.watch(String(i).padEnd(8_192, 'x'))
    expect(codeOf(() => long.watch('y'))).toBe('LIMIT_SUBSCRIPTIONS')
    expect(codeOf(() => table.transient(FACTS, 'alice').watch('a'))).toBe('PEER_METHOD')
  })

  it('are ended where they are observed: when they end, fail, or the session ends', () => {
    const { table } = start()
    const session = table.open(FACTS, 'alice')
    const sent = listen(session)
    const before = table.keptBytes
    const log: string[] = []
    let change = () => {}
    session.watch('a', (changed) => {
      change = changed
      return () => log.push('a ends')
    })
    session.watch('a', () => {
      throw new Error('is observed already')
    })
    change()
    expect(sent.map((json) => JSON.parse(json))).toEqual([
      { jsonrpc: '2.0', method: 'notifications/resources/updated', params: { uri: 'a' } },
    ])
    session.unwatch('a')
    session.unwatch('a')
    expect(log).toEqual(['a ends'])
    expect(codeOf(() => session.watch('b', () => undefined))).toBe('PEER_METHOD')
    expect(table.keptBytes).toBe(before)
    session.watch('c', () => () => log.push('c ends'))
    table.end(session)
    expect(log).toEqual(['a ends', 'c ends'])
  })

  it('F1 are notified of what they are about, and of lists', () => {
    const { table, changes } = start()
    const session = table.open(FACTS, 'alice')
    const sent = listen(session)
    session.watch('a')
    changes.publish({ kind: 'resource', uri: 'a' })
    changes.publish({ kind: 'resource', uri: 'b' })
    changes.publish({ kind: 'tools' })
    changes.publish({ kind: 'everything' })
    const updated = { jsonrpc: '2.0', method: 'notifications/resources/updated', params: { uri: 'a' } }
    const list = (kind: string) => ({ jsonrpc: '2.0', method: `notifications/${kind}/list_changed` })
    expect(sent.map((json) => JSON.parse(json))).toMatchObject([
      updated,
      list('tools'),
      list('tools'),
      list('prompts'),
      list('resources'),
      updated,
    ])
    table.end(session)
    changes.publish({ kind: 'tools' })
    expect(sent).toHaveLength(6)
  })

  it('are those that other instances know of, and observed where the client asked', () => {
    const { table } = start()
    const session = table.open(FACTS, 'alice')
    const before = table.keptBytes
    const log: string[] = []
    const observe = (uri: string) => () => {
      log.push(`${uri} begins`)
      return () => log.push(`${uri} ends`)
    }
    session.watch('a')
    session.adopt({ level: 'error', watched: ['b', 'c'] })
    expect(session.state).toEqual({ level: 'error', watched: ['b', 'c'] })
    session.watch('b', observe('b'))
    session.adopt({ watched: ['b'] })
    expect(session.state).toEqual({ level: 'info', watched: ['b'] })
    expect(log).toEqual(['b begins'])
    session.adopt({})
    expect(session.state).toEqual({ level: 'info', watched: [] })
    expect(log).toEqual(['b begins', 'b ends'])
    expect(table.keptBytes).toBe(before)
  })

  it('are notified of nothing while the session has no stream', () => {
    const session = start().table.open(FACTS, 'alice')
    session.watch('a')
    expect(() => session.notify({ kind: 'everything' })).not.toThrow()
    expect(() => session.noteHere('{}')).not.toThrow()
  })
})

describe('a message that belongs to no call', () => {
  it('J2 is sent on the stream of the session, wherever that is', () => {
    const { table, elsewhere } = start()
    const shared = table.adopt({ id: 's.1' }, FACTS, 'alice')
    shared.note('one')
    expect(elsewhere).toEqual([`${shared.name} one`])
    const sent = listen(shared)
    shared.note('two')
    shared.noteHere('three')
    expect(sent).toEqual(['two', 'three'])
    table.open(FACTS, 'alice').note('four')
    expect(elsewhere).toHaveLength(1)
    const alone = start({}, true).table.adopt({ id: 's.1' }, FACTS, 'alice')
    expect(() => alone.note('five')).not.toThrow()
  })
})

describe('the questions of a session', () => {
  it('T15 are answered once for each that was asked, with the state that they were sent with', () => {
    const { table } = start()
    const session = table.open(FACTS, 'alice')
    const taken: unknown[] = []
    const id = session.expect((answer) => taken.push(answer), undefined, ['read'])
    expect(id).toBe('ask.1')
    expect(session.expect(() => {})).toBe('ask.2')
    expect([session.asked(id), session.asked('ask.3'), session.asked(1)]).toEqual([true, false, false])
    expect([session.scopesOf(id), session.scopesOf('ask.2'), session.scopesOf(1)]).toEqual([['read'], [], []])
    const answer = { kind: 'result', result: {} } as never
    expect(session.answer('ask.9', answer)).toBe(true)
    expect(session.answer(1, answer)).toBe(true)
    expect(taken).toEqual([])
    expect(session.answer(id, answer)).toBe(true)
    expect(taken).toEqual([answer])
    session.forget(id)
    session.answer(id, answer)
    expect(taken).toHaveLength(1)
    const own = session.expect(() => taken.push('own'), { id: 'own', accepts: (state) => state === 'good' })
    expect(own).toBe('own')
    expect(session.answer('own', answer, 'bad')).toBe(false)
    expect(taken).toHaveLength(1)
    expect(session.answer('own', answer, 'good')).toBe(true)
    expect(taken).toHaveLength(2)
    expect(session.askedElsewhere('12345678.1')).toBe(false)
    expect(session.scopesOf('ask.9')).toEqual([])
  })

  it('T15 need no state if none was given, or they were sent without', () => {
    const session = start().table.open(FACTS, 'alice')
    const taken: string[] = []
    const strict = { id: 'strict', accepts: () => false }
    session.expect(() => taken.push('strict'), strict)
    session.expect(() => taken.push('plain'), { id: 'plain' })
    const id = session.expect(() => taken.push('own'))
    expect(session.answer('strict', ANSWER)).toBe(true)
    expect(session.answer('plain', ANSWER, 'state')).toBe(true)
    expect(session.answer(id, ANSWER, 'state')).toBe(true)
    expect(taken).toEqual(['strict', 'plain', 'own'])
  })

  it('J1 name the process that asked, if every instance knows the session', () => {
    const { table, settings } = start()
    const session = table.adopt({ id: 's.1' }, FACTS, 'alice')
    const id = session.expect(() => {})
    expect([id, session.tag, session.resumeMs]).toEqual([`${settings.tag}.1`, settings.tag, 60_000])
    expect(settings.tag).toMatch(/^[\w-]{8}$/)
    expect(start().settings.tag).not.toBe(settings.tag)
    const other = settings.tag === 'abcdefgh' ? 'hgfedcba' : 'abcdefgh'
    session.expect(() => {}, { id: `${other}.7` })
    const ids = [`${other}.1`, id, `${settings.tag}.2`, `${other}.7`, `x${other}.1`, 'a.1', 12345678.5]
    expect(ids.map((one) => session.askedElsewhere(one))).toEqual([true, ...ids.slice(1).map(() => false)])
  })

  it('were asked by a call that runs, even after their answers', async () => {
    const { table } = start()
    const session = table.open(FACTS, 'alice')
    const line = session.begin(1, { send: () => {}, open: true }, dialect)
    const handed = { q: { id: 'own', attach: (json: string) => json, accepts: () => true } }
    const asked = line.ask(QUESTION, { timeoutMs: 1_000, handed })
    session.answer('own', ANSWER)
    expect(await asked).toEqual({ kind: 'answers', answers: { q: {} } })
    expect([session.asked('own'), session.asked('other')]).toEqual([true, false])
    session.finish(1, line)
    expect(session.asked('own')).toBe(false)
  })
})

describe('the calls of a session', () => {
  const channel = { send: () => {}, open: true }

  it('have different ids, and a continued one replaces its earlier attempt', () => {
    const { table } = start()
    const session = table.open(FACTS, 'alice')
    const line = session.begin(1, channel, dialect)
    expect(codeOf(() => session.begin(1, channel, dialect))).toBe('PEER_REQUEST')
    expect(session.unused).toBe(false)
    const again = session.resume(1, channel, dialect)
    expect([line.closed, again.closed]).toEqual([true, false])
    session.finish(1, line)
    expect(session.unused).toBe(false)
    session.finish(1, again)
    expect(session.unused).toBe(true)
    expect(session.cancel(1)).toBe(false)
    const third = session.begin(1, channel, dialect)
    expect(session.cancel(1)).toBe(true)
    expect(third.closed).toBe(true)
    const fourth = session.resume(2, channel, dialect)
    table.end(session)
    expect(fourth.closed).toBe(true)
  })

  it('J1 end here without a word if another instance continues them', () => {
    const session = start().table.open(FACTS, 'alice')
    const line = session.begin(1, channel, dialect)
    session.leave(1)
    session.leave(1)
    expect([line.left, line.closed]).toEqual([true, true])
    expect(codeOf(() => session.begin(1, channel, dialect))).toBeUndefined()
  })

  it('end with an error if they wait when the server stops, also those of single requests', async () => {
    const { table } = start()
    const session = table.open(FACTS, 'alice')
    const alone = table.transient(FACTS, 'alice')
    const asked = [session, alone].map((one) =>
      one.begin(1, channel, dialect).ask(QUESTION, { timeoutMs: 1_000 }),
    )
    await table.endAll()
    const error = { code: 'SERVER_DRAINING' }
    expect(await Promise.all(asked)).toMatchObject([
      { kind: 'refused', error },
      { kind: 'refused', error },
    ])
    expect(table.size).toBe(0)
  })

  it('R9 take room while they wait', () => {
    const { table } = start({ maxKeptBytes: 12_000 })
    const session = table.open(FACTS, 'alice')
    const before = table.keptBytes
    expect(session.park(1_000)).toBe(true)
    expect(table.keptBytes).toBe(before + 8_192 + 1_000)
    expect(session.park(0)).toBe(false)
    session.unpark(1_000)
    expect(table.keptBytes).toBe(before)
  })

  it('R9 take the last byte that is left, of all and of their caller', () => {
    const facts = start()
    facts.table.open(FACTS, 'alice')
    const room = facts.table.keptBytes + 8_192
    const all = start({ maxKeptBytes: room }).table.open(FACTS, 'alice')
    expect([all.park(1), all.park(0)]).toEqual([false, true])
    const mine = start({ maxKeptBytesPerCaller: room }).table.open(FACTS, 'alice')
    expect([mine.park(1), mine.park(0)]).toEqual([false, true])
  })

  it('R9 take the room of streams that have ended', () => {
    const { table } = start({ maxKeptBytes: 14_000 })
    const session = table.open(FACTS, 'alice')
    const stream = openStream(session)
    stream.send('x'.repeat(4_000), false)
    expect(session.park(0)).toBe(false)
    stream.respond('{}')
    expect(session.park(0)).toBe(true)
    expect(session.streams.size).toBe(0)
  })

  it('R9 take room of their caller, also those of single requests', () => {
    const { table } = start({ maxKeptBytesPerCaller: 10_000 })
    expect(table.transient(FACTS, 'alice').park(0)).toBe(true)
    expect(table.transient(FACTS, 'alice').park(0)).toBe(false)
    expect(table.transient(FACTS, 'bob').park(0)).toBe(true)
  })

  it('R9 of a single request keep its session swept while they wait', () => {
    const { table, clock, timers } = start()
    const session = table.transient(FACTS, 'alice')
    expect(timers.set).toEqual([])
    expect(session.park(0)).toBe(true)
    expect([timers.set.length, table.size]).toEqual([1, 0])
    table.end(table.open(FACTS, 'alice'))
    expect(timers.stopped).toBe(0)
    session.unpark(0)
    clock.now += IDLE_MS
    table.sweep()
    expect(timers.stopped).toBe(1)
  })
})

describe('the tasks of a session', () => {
  it('F1 are no longer observed if they end before the observation has begun', async () => {
    const session = start().table.open(FACTS, 'alice')
    const sent = listen(session)
    const stopped: string[] = []
    session.followTask('a', async (report) => {
      report(undefined, true)
      return () => stopped.push('a')
    })
    await new Promise((resolve) => setImmediate(resolve))
    expect([sent, stopped]).toEqual([[], ['a']])
  })

  it('F1 are followed until they end, each once, and so many', async () => {
    const { table, errors } = start()
    const session = table.open(FACTS, 'alice')
    const sent = listen(session)
    const stopped: string[] = []
    const reports = new Map<string, (json: string | undefined, ended: boolean) => void>()
    const follow = (id: string) =>
      session.followTask(id, async (report) => {
        reports.set(id, report)
        return () => stopped.push(id)
      })
    follow('a')
    reports.get('a')?.('one', false)
    follow('a')
    await Promise.resolve()
    reports.get('a')?.('two', true)
    reports.get('a')?.('three', false)
    expect([sent, stopped]).toEqual([['one', 'two'], ['a']])
    for (let i = 0; i < 65; i++) follow(`t${i}`)
    expect(reports.size).toBe(65)
    session.followTask('b', () => Promise.reject(new Error('unseen')))
    const other = table.open(FACTS, 'alice')
    other.followTask('c', () => Promise.reject(new Error('broken')))
    await new Promise((resolve) => setImmediate(resolve))
    expect(errors).toMatchObject([{ message: 'broken' }])
    table.end(session)
    expect(stopped).toHaveLength(65)
    const alone = table.transient(FACTS, 'alice')
    alone.followTask('d', () => Promise.reject(new Error('never')))
    await new Promise((resolve) => setImmediate(resolve))
    expect(errors).toHaveLength(1)
  })
})

import { PassThrough } from 'node:stream'
import { describe, expect, it } from 'vitest'
import { startEcho } from '../../../../test/support/echo-listening.ts'
import { callTool, createEchoService } from '../../../../test/support/echo-service.ts'
import { startOlder } from '../../../../test/support/older-server.ts'
import { messagesOf } from '../../../../test/support/post.ts'
import type { FlowLimits, FlowPlatform, RunningRound } from '../carry/host.ts'
import { createInFlight } from '../lib/collection.ts'
import type { LogFacts } from '../log/event.ts'
import type { Line } from '../protocol/call.ts'
import type { Reply } from '../protocol/reply.ts'
import { createSlowHandlers, createWatch, Pulse, type WatchSettings } from './heartbeat.ts'
import { createExchange } from './http/exchange.ts'
import { createFetchHandler } from './http/fetch.ts'
import { serveStdio } from './stdio/stdio.ts'

/** Timers that run when the test says so. A call is watched four times per interval, from the first tick that sees it. */
function createTimers() {
  const ticks = new Map<number, Set<() => void>>()
  let seen = false
  const tick = () => {
    for (const run of [...(ticks.get(1_250) ?? [])]) run()
  }
  return {
    every(ms: number, tick: () => void) {
      const same = ticks.get(ms) ?? new Set()
      ticks.set(ms, same.add(tick))
      return () => void same.delete(tick)
    },
    tick,
    /** Five seconds pass. */
    beat() {
      if (!seen) tick()
      seen = true
      for (let i = 0; i < 4; i++) tick()
    },
    running: () => ticks.get(1_250)?.size ?? 0,
  }
}

function withResolvers<T>() {
  let resolve: (value: T) => void = () => {}
  const promise = new Promise<T>((done) => {
    resolve = done
  })
  return { promise, resolve }
}

/** A service whose one call says what the test has it say. */
function createSilence() {
  const service = createEchoService()
  const began = withResolvers<Line>()
  const ended = withResolvers<Reply>()
  let calls = 0
  service.handle = ({ line }) => {
    calls += 1
    began.resolve(line)
    return ended.promise
  }
  return {
    service,
    began: began.promise,
    calls: () => calls,
    end: () => ended.resolve({ kind: 'complete', result: { content: [] } }),
  }
}

const progressOf = (messages: readonly { method?: string; params?: unknown }[]): number[] =>
  messages.flatMap(({ method, params }) =>
    method === 'notifications/progress' ? [(params as { progress: number }).progress] : [],
  )

function startFetch(headers: Record<string, string> = {}, meta: Record<string, unknown> = {}) {
  const silence = createSilence()
  const timers = createTimers()
  const handle = createFetchHandler(createExchange(silence.service, { every: timers.every }))
  const sent = callTool('echo', {}, meta)
  const answered = handle(
    new Request('http://localhost/mcp', {
      method: 'POST',
      headers: { ...sent.headers, ...headers },
      body: JSON.stringify(sent.message),
    }),
  )
  return { ...silence, ...timers, answered }
}

describe('a silent call', () => {
  it('beat 2 begins a stream with its first heartbeat, and ends it with the response', async () => {
    const { began, beat, end, answered } = startFetch()
    await began
    beat()
    const response = await answered
    expect(response.headers.get('content-type')).toBe('text/event-stream')
    beat()
    end()
    const text = await response.text()
    expect(text.match(/^: .*\n\n/gm)).toHaveLength(2)
    expect(messagesOf(text)).toMatchObject([{ result: {} }])
  })

  it('beat 2 beat 3 sends progress if the client asked for it, and so does the handler afterwards', async () => {
    const { began, beat, end, answered } = startFetch({}, { _meta: { progressToken: 'p' } })
    const line = await began
    beat()
    beat()
    line.notify('notifications/progress', { progressToken: 'p', progress: 0, message: 'first' })
    line.notify('notifications/progress', { progressToken: 'p', progress: 1, total: 2 })
    beat()
    beat()
    line.notify('notifications/progress', { progressToken: 'p', progress: 2, total: 2 })
    end()
    const messages = messagesOf(await (await answered).text())
    const progress = progressOf(messages)
    expect(progress).toHaveLength(6)
    for (let i = 1; i < progress.length; i++) expect(progress[i]).toBeGreaterThan(progress[i - 1] ?? 0)
    expect(progress[0]).toBe(0)
    expect(progress[2]).toBeLessThan(1e-3)
    expect(progress[3]).toBe(1)
    expect(progress[4]).toBeCloseTo(1, 3)
    expect(progress[5]).toBe(2)
    expect(messages[2]).toMatchObject({ params: { message: 'first' } })
  })

  it('beat 4 begins no stream while the store does not respond, for half a minute', async () => {
    const silence = createSilence()
    const timers = createTimers()
    let isStuck = true
    const service = { ...silence.service, isStuck: () => isStuck }
    const start = () => {
      const handle = createFetchHandler(createExchange(service, { every: timers.every }))
      const { headers, message } = callTool('echo')
      const answered = handle(
        new Request('http://localhost/mcp', { method: 'POST', headers, body: JSON.stringify(message) }),
      )
      let begun = false
      void answered.then(() => {
        begun = true
      })
      return async () => {
        await new Promise(setImmediate)
        return begun
      }
    }
    const first = start()
    await silence.began
    for (let i = 0; i < 5; i++) timers.beat()
    expect(await first()).toBe(false)
    timers.beat()
    expect(await first()).toBe(true)
    const second = start()
    await new Promise(setImmediate)
    timers.beat()
    expect(await second()).toBe(false)
    isStuck = false
    timers.beat()
    expect(await second()).toBe(true)
    silence.end()
  })

  it('beat 1 sends no heartbeat while it sends notifications', async () => {
    const { began, beat, end, answered } = startFetch()
    const line = await began
    for (let i = 0; i < 3; i++) {
      line.notify('notifications/message', { level: 'info', data: i })
      beat()
    }
    end()
    expect(await (await answered).text()).not.toMatch(/^:/m)
  })

  it('sends no heartbeat if the client reads no streams', async () => {
    const { began, beat, end, answered } = startFetch({ accept: 'application/json' })
    await began
    beat()
    beat()
    end()
    const response = await answered
    expect(response.headers.get('content-type')).toBe('application/json')
    expect(await response.json()).toMatchObject({ result: {} })
  })

  it('sends its headers over node:http with the first heartbeat', async () => {
    const silence = createSilence()
    const timers = createTimers()
    const { service, port } = await startEcho({ every: timers.every })
    service.handle = silence.service.handle
    const { headers, message } = callTool('echo')
    const answered = fetch(`http://127.0.0.1:${port}/mcp`, {
      method: 'POST',
      headers,
      body: JSON.stringify(message),
    })
    await silence.began
    timers.beat()
    const response = await answered
    expect(response.status).toBe(200)
    expect(response.headers.get('content-type')).toBe('text/event-stream')
    silence.end()
    expect(messagesOf(await response.text())).toMatchObject([{ result: {} }])
  })

  it('sends heartbeats over stdio only if the client asked for progress', async () => {
    const timers = createTimers()
    const { service, calls, end } = createSilence()
    const [input, output] = [new PassThrough(), new PassThrough()]
    const { every } = timers
    const { done } = serveStdio(service, { input, output, signals: false, every })
    input.write(`${JSON.stringify(callTool('echo').message)}\n`)
    input.write(`${JSON.stringify(callTool('echo', {}, { _meta: { progressToken: 7 } }).message)}\n`)
    await expect.poll(calls, { timeout: 60_000 }).toBe(2)
    timers.beat()
    timers.beat()
    end()
    input.end()
    await done
    output.end()
    const lines = (await output.setEncoding('utf8').toArray()).join('').trim().split('\n')
    const messages = lines.map((line) => JSON.parse(line))
    expect(progressOf(messages)).toEqual([0, 1e-6])
    expect(messages.filter((message) => 'result' in message)).toHaveLength(2)
  })
})

describe('a silent call of a session', () => {
  const call = { jsonrpc: '2.0', id: 7, method: 'tools/call' }

  async function begin(params: object) {
    const timers = createTimers()
    const released = withResolvers<void>()
    const { connect, server } = await startOlder({ every: timers.every } as object)
    server.tool('silent', {}, async () => {
      await released.promise
      return 'done'
    })
    const client = await connect()
    const posting = client.post({ ...call, params: { name: 'silent', ...params } })
    await expect.poll(timers.running, { timeout: 60_000 }).toBe(1)
    timers.beat()
    const stream = await posting
    timers.beat()
    return { stream, release: () => released.resolve() }
  }

  it('beat 2 begins its stream with the first heartbeat', async () => {
    const { stream, release } = await begin({})
    expect(stream.response.headers.get('content-type')).toBe('text/event-stream')
    release()
    expect(await stream.next()).toMatchObject({ id: 7, result: { content: [{ text: 'done' }] } })
  })

  it('beat 2 sends progress if the client asked for it', async () => {
    const { stream, release } = await begin({ _meta: { progressToken: 'p' } })
    expect(await stream.next()).toMatchObject({ method: 'notifications/progress', params: { progress: 0 } })
    expect(await stream.next()).toMatchObject({ params: { progressToken: 'p', progress: 1e-6 } })
    release()
    expect(await stream.next()).toMatchObject({ id: 7 })
  })
})

describe('the watch over calls in flight', () => {
  function start(more: Partial<WatchSettings> = {}, isolated = false) {
    const timers = createTimers()
    const errors: unknown[] = []
    const watch = createWatch({
      heartbeatMs: 5_000,
      every: timers.every,
      onError: (error) => errors.push(error),
      ...more,
    })
    const inFlight = createInFlight(watch, isolated)
    const enter = (fault?: Error) => {
      const beats: unknown[] = []
      const active = {
        call: { progressToken: 'p' },
        line: {
          beat(token: unknown) {
            if (fault) throw fault
            beats.push(token)
          },
        },
      }
      inFlight.enter(active)
      return { active, beats }
    }
    return { ...timers, inFlight, enter, errors }
  }

  it('has one timer for all calls, and none once a tick finds no call', () => {
    const { enter, inFlight, tick, running } = start()
    expect(running()).toBe(0)
    const calls = [enter(), enter(), enter()]
    expect(running()).toBe(1)
    for (const { active } of calls) inFlight.leave(active)
    expect(running()).toBe(1)
    const later = enter()
    expect(running()).toBe(1)
    inFlight.leave(later.active)
    tick()
    expect(running()).toBe(0)
    enter()
    expect(running()).toBe(1)
  })

  it('beat 1 beats after a whole interval of each call, however the calls overlap', () => {
    const { enter, tick } = start()
    const first = enter()
    tick()
    tick()
    const second = enter()
    for (let i = 0; i < 3; i++) tick()
    expect([first.beats, second.beats]).toEqual([['p'], []])
    tick()
    tick()
    expect([first.beats, second.beats]).toEqual([['p'], ['p']])
  })

  it('continues with the other calls if the heartbeat of one throws', () => {
    const fault = new Error('gone')
    const { enter, beat, errors } = start()
    enter(fault)
    const other = enter()
    beat()
    expect(errors).toEqual([fault])
    expect(other.beats).toEqual(['p'])
  })

  it('has a timer for each call of an entrance whose calls are isolated', () => {
    const { enter, inFlight, beat, running } = start({}, true)
    const [first, second] = [enter(), enter()]
    expect(running()).toBe(2)
    inFlight.leave(first.active)
    beat()
    expect(running()).toBe(1)
    expect([first.beats, second.beats]).toEqual([[], ['p']])
  })

  it('has no timer if heartbeats and slow handlers are off', () => {
    const { enter, running } = start({ heartbeatMs: 0 })
    enter()
    expect(running()).toBe(0)
  })
})

describe('I2 a handler that does not end', () => {
  function start(slowHandlerMs = 60_000) {
    const events: LogFacts[] = []
    const ticks = new Set<() => void>()
    let now = 0
    const every = (ms: number, tick: () => void) => {
      expect(ms).toBe(slowHandlerMs / 4)
      ticks.add(tick)
      return () => void ticks.delete(tick)
    }
    const call = { method: 'tools/call', target: 'index' } as const
    const beginning = { flow: 'f1', round: 2 }
    const round = { call, target: {}, beginning, began: 0, task: { task: 't1', turn: 3 } }
    const running = new Set<RunningRound>()
    running.add(round)
    const slow = createSlowHandlers({
      running,
      limits: { slowHandlerMs } as FlowLimits,
      platform: { now: () => now } as FlowPlatform,
      log: (facts) => void events.push(facts),
    })
    const inFlight = createInFlight(createWatch({ heartbeatMs: 0, slow, every, onError: () => {} }))
    const active = {}
    inFlight.enter(active)
    const minute = () => {
      for (let i = 0; i < 4; i++) {
        now += 15_000
        for (const run of [...ticks]) run()
      }
    }
    return { events, ticks, minute, running, round, end: () => inFlight.leave(active) }
  }

  it('is logged once, with its flow, round, task and turn, and continues', () => {
    const { events, minute } = start()
    minute()
    minute()
    const place = { flow: 'f1', round: 2, task: 't1', turn: 3 }
    expect(events).toEqual([{ event: 'slow', ...place, method: 'tools/call', target: 'index', ms: 60_000 }])
  })

  it('is not logged while its call waits for an answer, which is between two rounds', () => {
    const { events, running, round, minute } = start()
    running.delete(round)
    minute()
    expect(events).toEqual([])
    running.add(round)
    minute()
    expect(events).toHaveLength(1)
  })

  it('is not watched with 0, or after the end of its call', () => {
    expect(start(0).ticks.size).toBe(0)
    const { events, ticks, running, end, minute } = start()
    end()
    for (const one of running) running.delete(one)
    minute()
    expect(events).toEqual([])
    expect(ticks.size).toBe(0)
  })
})

it('beat 3 progress of any size keeps growing', () => {
  for (const start of [0, -5, 1e9, 1e15, 0.1]) {
    const pulse = new Pulse()
    let last = pulse.say('notifications/progress', { progress: start }).progress as number
    for (let i = 0; i < 100; i++) {
      const next = pulse.beat('p').progress as number
      expect(next).toBeGreaterThan(last)
      last = next
    }
  }
})

it.each([-1, Number.NaN, Number.POSITIVE_INFINITY, '5', 2 ** 31])(
  'an entrance refuses %s as the interval of heartbeats',
  (value) => {
    expect(() => createExchange(createEchoService(), { heartbeatMs: value as number })).toThrow('heartbeatMs')
    expect(() => createExchange(createEchoService(), { heartbeatMs: 0 })).not.toThrow()
  },
)

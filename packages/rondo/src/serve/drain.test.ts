import assert from 'node:assert'
import { EventEmitter } from 'node:events'
import { describe, expect, it } from 'vitest'
import { createSignalHub, createStop, type SignalSource } from './drain.ts'

function gate() {
  let open = (): void => {}
  const promise = new Promise<void>((resolve) => {
    open = resolve
  })
  return { promise, open }
}

describe('createStop', () => {
  it('refuses new work, waits for calls in flight, then closes', async () => {
    const log: string[] = []
    const busy = gate()
    const stop = createStop({
      begin: () => log.push('begin'),
      idle: () => busy.promise.then(() => void log.push('idle')),
      finish: async () => void log.push('finish'),
    })
    const stopped = stop()
    expect(log).toEqual(['begin'])
    busy.open()
    await stopped
    expect(log).toEqual(['begin', 'idle', 'finish'])
  })

  it('closes after the grace period, whatever is in flight', async () => {
    const stop = createStop({
      begin: () => {},
      idle: () => new Promise(() => {}),
      finish: async () => {},
      graceMs: 5,
    })
    await expect(stop()).resolves.toBeUndefined()
  })

  it('stops once, however often it is called', async () => {
    let begins = 0
    const stop = createStop({ begin: () => begins++, idle: async () => {}, finish: async () => {} })
    await Promise.all([stop(), stop()])
    await stop()
    expect(begins).toBe(1)
  })
})

describe('createSignalHub', () => {
  function source() {
    const emitter = new EventEmitter()
    const exits: number[] = []
    const exited = gate()
    const signals: SignalSource & { emit(signal: string): boolean } = {
      on: (signal, listener) => emitter.on(signal, listener),
      off: (signal, listener) => emitter.off(signal, listener),
      emit: (signal) => emitter.emit(signal),
      exit(code) {
        exits.push(code)
        exited.open()
      },
    }
    const listeners = () => emitter.listenerCount('SIGTERM') + emitter.listenerCount('SIGINT')
    return { signals, exits, exited: exited.promise, listeners }
  }

  it('stops every server on the first signal, then exits', async () => {
    const { signals, exits, exited } = source()
    const hub = createSignalHub(signals)
    const [a, b] = [gate(), gate()]
    hub.add(() => a.promise)
    hub.add(() => b.promise)
    signals.emit('SIGTERM')
    a.open()
    await a.promise
    expect(exits).toEqual([])
    b.open()
    await exited
    expect(exits).toEqual([0])
  })

  it('exits at once on the second signal', () => {
    const { signals, exits } = source()
    createSignalHub(signals).add(() => new Promise(() => {}))
    signals.emit('SIGINT')
    expect(exits).toEqual([])
    signals.emit('SIGTERM')
    expect(exits).toEqual([130])
  })

  it('exits with 1 if a server could not be stopped', async () => {
    const { signals, exits, exited } = source()
    createSignalHub(signals).add(() => Promise.reject(new Error('no')))
    signals.emit('SIGTERM')
    await exited
    expect(exits).toEqual([1])
  })

  it.each([
    ['throws', () => assert.fail('stderr has no method once')],
    ['rejects', () => Promise.reject(new Error('no stream'))],
  ])('R11 exits although the wait for the reader of the log %s', async (_, flushed) => {
    const { signals, exits, exited } = source()
    createSignalHub(signals, flushed).add(() => Promise.resolve())
    signals.emit('SIGTERM')
    await exited
    expect(exits).toEqual([0])
  })

  it('removes its signal listeners once nothing is served', () => {
    const { signals, listeners } = source()
    const hub = createSignalHub(signals)
    const forget = [hub.add(async () => {}), hub.add(async () => {})]
    expect(listeners()).toBe(2)
    for (const one of forget) one()
    expect(listeners()).toBe(0)
  })
})

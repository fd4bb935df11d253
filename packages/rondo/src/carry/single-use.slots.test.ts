/** The slots of requests and of effects (B8), against a store whose time stands still. */

import { beforeEach, describe, expect, it } from 'vitest'
import { RondoError } from '../errors.ts'
import type { StoreClock } from '../lib/clock.ts'
import type { LogEvent } from '../log/event.ts'
import type { FlowCall } from '../protocol/call.ts'
import type { Reply } from '../protocol/reply.ts'
import { openEnvelope } from '../seal/envelope.ts'
import { createHost, type OpenHost } from '../serve/host.ts'
import { createMemoryStore } from '../store/memory/store.ts'
import type { OnceAttempt, OnceStore } from '../store/store.ts'
import type { Beginning } from './carrier.ts'
import { effectOnce, epochOf, NO_EPOCH, replyOnce, workOnce } from './single-use.ts'

const START = 1_800_000_000_000
const LEASE_MS = 30_000

let events: LogEvent[] = []
let host: OpenHost
let once: OnceStore
let beginning: Beginning

beforeEach(async () => {
  events = []
  host = createHost({
    audience: 'shop',
    keys: 'k:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=',
    log: (event) => void events.push(event),
    store: createMemoryStore({ now: () => START }),
    now: () => START,
    tasks: { leaseMs: LEASE_MS },
  })
  await host.keys.ready()
  once = host.store?.once as OnceStore
  beginning = {
    flow: 'flow',
    round: 2,
    journal: { startedAt: START, seed: 's', entries: [], reasks: {}, moves: 0, epoch: await once.epoch() },
    asked: {},
    flowExpires: START + 60_000,
    anchored: true,
  }
})

const call = (more: Partial<FlowCall> = {}): FlowCall =>
  ({ kind: 'flow', method: 'tools/call', target: 'pay', requestState: 'state', ...more }) as FlowCall
const done: Reply = { kind: 'complete', result: { content: [] } }

/** Work that ends when the test says so. */
function held() {
  let end = (_value: string): void => {}
  const work = () =>
    new Promise<string>((resolve) => {
      end = resolve
    })
  return { work, finish: (value: string) => end(value) }
}

/** A request whose handler notes that it ran, and replies so. */
function request(reply: Reply = done) {
  let runs = 0
  return {
    runs: () => runs,
    send: (more: Partial<FlowCall> = {}, at: Partial<Beginning> = {}) =>
      replyOnce(host, once, call(more), { ...beginning, ...at }, async () => {
        runs += 1
        return reply
      }),
  }
}

describe('a request with a state', () => {
  it('B8 runs once, and gets the same reply again', async () => {
    const { send, runs } = request()
    expect([await send(), await send()]).toEqual([done, done])
    expect(runs()).toBe(1)
  })

  it('B8 gets the error again that ended its call, with code, message and data', async () => {
    const error = new RondoError('PEER_PARAMS', 'No such order', { data: { order: 7 } })
    const { send, runs } = request({ kind: 'error', error })
    await send()
    const reply = await send()
    expect(reply.kind).toBe('error')
    const { error: again } = reply as Extract<Reply, { kind: 'error' }>
    expect(again).toBeInstanceOf(RondoError)
    expect([again.code, again.message, again.data]).toEqual([error.code, error.message, error.data])
    expect(runs()).toBe(1)
  })

  it.each(['STORE_UNAVAILABLE', 'STORE_BUSY', 'LIMIT_TASKS'] as const)(
    'B8 is not used up by %s, and runs again at once',
    async (code) => {
      const error = new RondoError(code)
      const { send, runs } = request({ kind: 'error', error })
      for (let i = 0; i < 2; i++) await expect(send()).rejects.toThrow(error)
      expect(runs()).toBe(2)
    },
  )

  it.each([
    ['other answers', { inputResponses: { a: { action: 'decline' } } }],
    ['another state', { requestState: 'another' }],
  ])('B8 is refused with %s, and the log says why', async (_name, more) => {
    const { send, runs } = request()
    await send()
    await expect(send(more as Partial<FlowCall>)).rejects.toMatchObject({ code: 'STATE_INVALID' })
    expect(runs()).toBe(1)
    const facts = { event: 'state_refused', flow: 'flow', round: 2, method: 'tools/call', target: 'pay' }
    expect(events).toEqual([expect.objectContaining({ ...facts, reason: 'used' })])
  })

  it('B8 of a resource is refused without its URI in the log', async () => {
    const { send } = request()
    await send()
    const read = { method: 'resources/read', target: 'file:///secret', inputResponses: {} } as const
    await expect(send(read)).rejects.toMatchObject({ code: 'STATE_INVALID' })
    expect(events).toEqual([expect.objectContaining({ event: 'state_refused', method: 'resources/read' })])
    expect(JSON.stringify(events)).not.toContain('secret')
  })

  it('B8 of another epoch of the store, or of none, is refused before its handler runs', async () => {
    const { send, runs } = request()
    for (const epoch of ['another', undefined, NO_EPOCH])
      await expect(send({}, { journal: { ...beginning.journal, epoch } })).rejects.toMatchObject({
        code: 'STATE_INVALID',
      })
    expect(runs()).toBe(0)
    expect(events).toHaveLength(3)
  })

  it('B8 is free to run if it has no state, or is the first of its flow', async () => {
    const { send, runs } = request()
    for (let i = 0; i < 2; i++) {
      await send({ requestState: undefined })
      await send({}, { anchored: false })
    }
    expect(runs()).toBe(4)
  })

  it('B8 in another round of its flow, or in another flow, is another request', async () => {
    const { send, runs } = request()
    await send()
    await send({}, { round: 3 })
    await send({}, { flow: 'another' })
    expect(runs()).toBe(3)
  })

  it('B8 I7 gets no reply that was stored for another place', async () => {
    const { send } = request()
    await send()
    const swapped: OnceStore = {
      ...once,
      claim: (slot, attempt) => once.claim({ ...slot, flow: 'flow' }, attempt),
    }
    const reply = replyOnce(host, swapped, call(), { ...beginning, flow: 'another' }, async () => done)
    await expect(reply).rejects.toMatchObject({ code: 'STATE_INVALID' })
  })
})

describe('a single-use effect', () => {
  const run = (branch: string, act: () => unknown, key = 'pay') =>
    effectOnce({ host, beginning }, once, { key, branch }, act, 0)

  it('B8 R7 runs once for each name and each branch of its flow, and has its result again', async () => {
    let runs = 0
    const act = () => ++runs
    const places = [
      ['', 'pay'],
      ['b', 'pay'],
      ['', 'ship'],
      ['c', 'ship'],
    ] as const
    const first = await Promise.all(places.map(([branch, key]) => run(branch, act, key)))
    const again = await Promise.all(places.map(([branch, key]) => run(branch, act, key)))
    expect(first.sort()).toEqual([1, 2, 3, 4])
    expect(again.sort()).toEqual([1, 2, 3, 4])
    expect(runs).toBe(4)
  })

  it('B8 is found by another release of the service, which must not run it again', async () => {
    await run('', () => 'paid')
    await run('b', () => 'paid')
    for (const flow of ['flow/pay', 'flow@b/pay']) {
      const { epoch = '' } = beginning.journal
      const slot = { flow, round: 0, digest: 'effect', epoch, expiresAt: beginning.flowExpires }
      const claim = await once.claim(slot, { claimant: 'another release', holdMs: 1 })
      const place = JSON.stringify(['once', flow, 0, 'shop'])
      const opened = claim.kind === 'stored' && openEnvelope(host.keys.ring, place, claim.response, 1_000)
      expect(opened).toMatchObject({ kind: 'open', plaintext: Buffer.from('{"value":"paid"}') })
    }
  })

  it('B8 runs again in the same round and in any later one as the same effect', async () => {
    await run('', () => 'first')
    beginning = { ...beginning, round: 7 }
    expect(await run('', () => 'second')).toBe('first')
  })

  it('B8 without a result has none again', async () => {
    expect([await run('', () => undefined), await run('', () => 'late')]).toEqual([undefined, undefined])
  })

  it('B8 whose result is not JSON has run, and says so each time', async () => {
    let runs = 0
    const act = () => {
      runs += 1
      return 1n
    }
    for (let i = 0; i < 2; i++) await expect(run('', act)).rejects.toMatchObject({ code: 'REPLAY_NOT_JSON' })
    expect(runs).toBe(1)
  })

  it('B8 of a flow without an epoch does not run, because nothing says that it did not', async () => {
    beginning = { ...beginning, journal: { ...beginning.journal, epoch: undefined } }
    await expect(run('', () => 'never')).rejects.toMatchObject({
      code: 'STATE_INVALID',
      message: expect.stringContaining('(epoch)'),
    })
  })

  it('B8 that is running elsewhere is not begun, and the error says when its worker is known to be dead', async () => {
    const { work, finish } = held()
    const first = run('', work)
    await new Promise((resolve) => setImmediate(resolve))
    await expect(run('', () => 'second')).rejects.toMatchObject({
      code: 'STORE_BUSY',
      data: { retryAfterMs: 2 * LEASE_MS },
    })
    finish('first')
    expect(await first).toBe('first')
  })

  it('B8 that failed may run again at once', async () => {
    const failing = run('', () => {
      throw new Error('declined')
    })
    await expect(failing).rejects.toThrow('declined')
    expect(await run('', () => 'paid')).toBe('paid')
  })
})

describe('work in a slot', () => {
  const slotOf = async () => ({
    flow: 'f',
    round: 1,
    digest: 'd',
    epoch: await once.epoch(),
    expiresAt: 2e12,
  })

  /** A clock whose timers the test runs, in order. */
  function manual() {
    let at = 0
    let timers: { at: number; fn: () => unknown }[] = []
    const after: StoreClock['after'] = (ms, fn) => {
      const timer = { at: at + ms, fn }
      timers.push(timer)
      return () => {
        timers = timers.filter((one) => one !== timer)
      }
    }
    return {
      clock: { now: () => at, elapsed: () => at, after, idly: after } satisfies StoreClock,
      timers: () => timers.map((timer) => timer.at - at),
      async tick() {
        const [timer] = timers.sort((a, b) => a.at - b.at)
        if (!timer) throw new Error('no timer')
        timers = timers.filter((one) => one !== timer)
        at = timer.at
        await timer.fn()
        await new Promise((resolve) => setImmediate(resolve))
      },
      now: () => at,
    }
  }

  it('B8 renews its hold three times in that time, whatever the store says, until it has ended', async () => {
    const { clock, tick, timers } = manual()
    const holds: number[] = []
    const store: OnceStore = {
      ...once,
      async renew(_slot, { holdMs }: OnceAttempt) {
        holds.push(holdMs)
        throw new RondoError('STORE_UNAVAILABLE')
      },
    }
    const { work, finish } = held()
    const working = workOnce(store, await slotOf(), work, { holdMs: 30_000, clock })
    await new Promise((resolve) => setImmediate(resolve))
    for (let i = 0; i < 3; i++) {
      expect(timers()).toEqual([10_000])
      await tick()
    }
    finish('done')
    expect(await working).toEqual({ kind: 'stored', response: 'done' })
    expect(holds).toEqual([30_000, 30_000, 30_000])
    expect(timers()).toEqual([])
  })

  it('B8 waits a little longer each time for a slot that is claimed, but not beyond its time', async () => {
    const { clock, tick, now } = manual()
    const slot = await slotOf()
    await once.claim(slot, { claimant: 'other', holdMs: 30_000 })
    const waiting = workOnce(once, slot, async () => 'never', { waitMs: 515, holdMs: 30_000, clock })
    const at: number[] = []
    let claim: unknown
    void waiting.then((value) => {
      claim = value
    })
    while (claim === undefined) {
      await new Promise((resolve) => setImmediate(resolve))
      if (claim !== undefined) break
      await tick()
      at.push(now())
    }
    expect(at).toEqual([5, 15, 35, 75, 155, 315, 515])
    expect(claim).toEqual({ kind: 'busy', retryMs: 30_000 })
  })

  it('B8 gets a stored response however long it took to read', async () => {
    const slot = await slotOf()
    await once.claim(slot, { claimant: 'other', holdMs: 30_000 })
    await once.settle(slot, 'theirs')
    let at = 0
    const slow: OnceStore = {
      ...once,
      async claim(...args) {
        at += 30_000
        return once.claim(...args)
      },
    }
    const { clock } = manual()
    const options = { holdMs: 30_000, clock: { ...clock, elapsed: () => at } }
    expect(await workOnce(slow, slot, async () => 'never', options)).toEqual({
      kind: 'stored',
      response: 'theirs',
    })
  })

  it('B8 of the same request that is processed elsewhere is not begun, and the error says when to come again', async () => {
    const { clock, tick, timers } = manual()
    const held: number[] = []
    const busy: OnceStore = {
      ...once,
      async claim(_slot, { holdMs }) {
        held.push(holdMs)
        return { kind: 'busy', retryMs: 7_100 }
      },
    }
    const replying = replyOnce(host, busy, call(), beginning, async () => done, clock)
    const refused = expect(replying).rejects.toMatchObject({
      code: 'STORE_BUSY',
      data: { retryAfterMs: 8_000 },
    })
    for (;;) {
      await new Promise((resolve) => setImmediate(resolve))
      if (timers().length === 0) break
      await tick()
    }
    await refused
    expect(new Set(held)).toEqual(new Set([2 * LEASE_MS]))
  })

  it('B8 gets the response of the one that it waited for', async () => {
    const { clock, tick } = manual()
    const slot = await slotOf()
    await once.claim(slot, { claimant: 'other', holdMs: 30_000 })
    const waiting = workOnce(once, slot, async () => 'never', { holdMs: 30_000, clock })
    await new Promise((resolve) => setImmediate(resolve))
    await once.settle(slot, 'theirs')
    await tick()
    expect(await waiting).toEqual({ kind: 'stored', response: 'theirs' })
  })
})

it('E2 B8 a flow that needs an epoch fails if the store was never reached, and any other goes without', async () => {
  const down = new RondoError('STORE_UNAVAILABLE')
  const store = { once: { epoch: () => Promise.reject(down) } }
  const away = { ...host, epoch: async () => undefined, store } as unknown as OpenHost
  expect(await epochOf(away)).toBeUndefined()
  await expect(epochOf(away, true)).rejects.toThrow(down)
  expect(await epochOf({ ...away, store: undefined }, true)).toBeUndefined()
  expect(await epochOf(host, true)).toBe(await once.epoch())
  expect(await epochOf({ ...away, epoch: async () => 'known' }, true)).toBe('known')
})

import { beforeEach, describe, expect, it } from 'vitest'
import { RondoError } from '../errors.ts'
import type { Journal } from '../journal/journal.ts'
import type { StoreClock } from '../lib/clock.ts'
import type { ReplayInput } from '../replay/input.ts'
import { createHost } from '../serve/host.ts'
import { createMemoryStore } from '../store/memory/store.ts'
import type { PermitRequest, PermitStore } from '../store/permits.ts'
import type { Concurrency } from '../tool/concurrency.ts'
import type { Pause, Round } from './carrier.ts'
import type { FlowHost } from './host.ts'
import { type HeldPermit, leavePermit, lostPermit, takePermit, tooManyCalls, withPermit } from './permit.ts'

const LEASE_MS = 60_000
const HOLD_MS = 2 * LEASE_MS
const HOUR = 3_600_000
const START = 1_800_000_000_000

/** What the store was asked, and what it does instead of its work. */
let time = START
const open = () => createMemoryStore({ now: () => time })
let store = open()
const own = (): PermitStore => store.permits as PermitStore
let acquired: PermitRequest[] = []
let renewed: [holdMs: number, endsWith: string | undefined][] = []
let away: RondoError | undefined

const permits: PermitStore = {
  async acquire(request) {
    if (away) throw away
    acquired.push(request)
    return own().acquire(request)
  },
  async renew(holder, grant, holdMs, endsWith) {
    if (away) throw away
    renewed.push([holdMs, endsWith])
    return own().renew(holder, grant, holdMs, endsWith)
  },
  async release(holder, grant) {
    if (away) throw away
    await own().release(holder, grant)
  },
}

const hostFor = (audience = 'shop'): FlowHost =>
  createHost({
    audience,
    keys: 'k:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=',
    log: 'off',
    store: { ...store, permits },
    now: () => time,
    tasks: { leaseMs: LEASE_MS },
    limits: { roundTtlMs: HOUR },
  })

beforeEach(() => {
  time = START
  store = open()
  acquired = []
  renewed = []
  away = undefined
})

const undoable: Partial<Journal> = {
  begun: [{ key: 'reserve', effectKey: 'k' }] as unknown as Journal['begun'],
  lineage: 'l',
}
const terms: Concurrency = { keyOf: async () => 'one', limit: 1, queues: true, releases: false }

/** The round of a flow; `of`: the time at which its task was created. */
function roundOf(flow: string, of?: number, host = hostFor()): Round {
  const journal = { startedAt: START, seed: 'seed', entries: [], reasks: {}, moves: 0 }
  return {
    host,
    call: { method: 'tools/call', target: 'book', args: { seat: 1 } },
    target: { name: 'book', concurrency: terms },
    principal: { subject: 'ada' },
    beginning: { flow, round: 1, journal, flowExpires: START + 5 * HOUR },
    ...(of !== undefined && { task: { task: flow, turn: 1 }, row: { createdAt: of } }),
  } as unknown as Round
}

async function hold(round: Round, concurrency = terms): Promise<HeldPermit> {
  const taken = await takePermit(round, concurrency, permits)
  if (taken.kind !== 'held') throw new Error(taken.kind)
  taken.permit.stop()
  return taken.permit
}

const isFree = async (): Promise<boolean> => {
  const taken = await takePermit(roundOf('another'), { ...terms, queues: false }, permits)
  if (taken.kind === 'held') taken.permit.stop()
  return taken.kind === 'held'
}
const pauseOf = (pause: Partial<Pause> = {}): Pause => ({ facts: { outcome: 'waiting' }, ...pause }) as Pause

describe('taking a permit', () => {
  it('M3 asks the tool for the key, with the arguments and the caller', async () => {
    const asked: unknown[] = []
    const keyOf: Concurrency['keyOf'] = async (...given) => {
      asked.push(...given)
      return 'one'
    }
    await hold(roundOf('a'), { ...terms, keyOf })
    expect(asked).toEqual([{ seat: 1 }, { principal: { subject: 'ada' } }])
  })

  it('M3 counts the calls of one tool of one service with one key', async () => {
    const first = roundOf('a')
    await hold(first)
    const others: [Round, string][] = [
      [{ ...first, call: { ...first.call, target: 'cancel' } }, 'one'],
      [roundOf('b', undefined, hostFor('other')), 'one'],
      [roundOf('b'), 'two'],
    ]
    for (const [round, key] of others)
      await hold(
        { ...round, beginning: { ...round.beginning, flow: 'b' } },
        { ...terms, keyOf: async () => key },
      )
    expect(new Set(acquired.map(({ tags }) => tags[0])).size).toBe(4)
    expect(await isFree()).toBe(false)
  })

  it.each([
    ['a call in rounds', undefined, true, false],
    ['a task', START, true, true],
    ['a task of a tool that refuses', START, false, false],
  ])('M3 lets only a task wait in the queue: %s', async (_name, of, queues, waits) => {
    await hold(roundOf('a'))
    const taken = await takePermit(roundOf('b', of), { ...terms, queues }, permits)
    expect(taken).toEqual(waits ? { kind: 'queued', delayMs: 500 } : { kind: 'busy', retryMs: HOLD_MS })
    const { holder, queues: queued, task, turn } = acquired.at(-1) ?? {}
    const own = of === undefined ? {} : { task: 'b', turn: 1 }
    expect({ holder, queued, task, turn }).toEqual({ holder: 'b', queued: waits, ...own })
  })

  it.each([
    [0, 500],
    [20_000, 20_000],
    [3_600_000, 60_000],
  ])('M3 tries a task that has waited for %i ms again after %i ms', async (waitedMs, delayMs) => {
    const busy: PermitStore = { ...permits, acquire: async () => ({ kind: 'busy', retryMs: 1, waitedMs }) }
    expect(await takePermit(roundOf('b', START), terms, busy)).toEqual({ kind: 'queued', delayMs })
  })

  it('M3 lets a task wait while the store fails, without counting a failure', async () => {
    away = new RondoError('STORE_UNAVAILABLE')
    expect(await takePermit(roundOf('a', START), terms, permits)).toEqual({ kind: 'queued', delayMs: 5_000 })
    await expect(takePermit(roundOf('a'), terms, permits)).rejects.toThrow(away)
    away = new RondoError('SERVER_INTERNAL')
    await expect(takePermit(roundOf('a', START), terms, permits)).rejects.toThrow(away)
  })
})

describe('a permit that is held', () => {
  it('M3 is renewed before an effect for twice a lease, and refuses once another call has it', async () => {
    const permit = await hold(roundOf('a'))
    await permit.check()
    expect(renewed).toEqual([[HOLD_MS, undefined]])
    time += HOLD_MS
    expect(await isFree()).toBe(true)
    const refused = { code: 'STORE_BUSY', data: { retryAfterMs: HOLD_MS } }
    await expect(permit.check()).rejects.toMatchObject(refused)
    // The store is not asked again: a grant that has ended stays so.
    const before = renewed.length
    await expect(permit.check()).rejects.toMatchObject(refused)
    expect(renewed).toHaveLength(before)
  })

  it('M3 I6 does not count if its process froze for as long as the hold while it asked', async () => {
    const frozen = (ms: number): PermitStore => ({
      ...permits,
      async renew(...args) {
        const held = await permits.renew(...args)
        time += ms
        return held
      },
    })
    for (const [ms, counts] of [
      [HOLD_MS - 1, true],
      [HOLD_MS, false],
    ] as const) {
      const taken = await takePermit(roundOf(`frozen ${ms}`), { ...terms, limit: 9 }, frozen(ms))
      if (taken.kind !== 'held') throw new Error(taken.kind)
      taken.permit.stop()
      if (counts) await taken.permit.check()
      else await expect(taken.permit.check()).rejects.toMatchObject({ code: 'STORE_BUSY' })
    }
  })

  it('M3 does not let a late renewal shorten the hold of a wait', async () => {
    const permit = await hold(roundOf('a'))
    await Promise.all([permit.check(), permit.pause(pauseOf())])
    expect(renewed.map(([holdMs]) => holdMs)).toEqual([HOLD_MS, HOLD_MS + HOUR])
  })

  it('M3 still goes on after a renewal that failed because the store was away', async () => {
    const permit = await hold(roundOf('a'))
    away = new RondoError('STORE_UNAVAILABLE')
    await expect(permit.check()).rejects.toThrow(away)
    expect(await permit.pause(pauseOf())).toBe(true)
    await permit.release()
    away = undefined
    await permit.check()
  })

  const left = 2 * HOUR
  it.each<[string, Partial<Pause>, { of?: number; releases?: boolean }, number | 'released']>([
    ['while a call in rounds waits, as long as its round', {}, {}, HOUR],
    ['while a task waits, as long as the task', {}, { of: START + 3 * HOUR }, left],
    ['while a task waits that should be over', {}, { of: START + 6 * HOUR }, 0],
    ['while a call moves', { facts: { outcome: 'moved', moved: 'drain' } }, {}, 0],
    ['while a call becomes a task', { leaves: true }, {}, 0],
    [
      'while a call that releases it moves',
      { facts: { outcome: 'moved', moved: 'time' } },
      { releases: true },
      0,
    ],
    ['while a call that releases it becomes a task', { leaves: true }, { releases: true }, 0],
    ['while a call that releases it waits', {}, { releases: true }, 'released'],
    ['before the effect of a call in rounds', { facts: { outcome: 'moved', moved: 'effect' } }, {}, 0],
    [
      'while a task waits whose owner may never learn of it',
      { facts: { outcome: 'moved', moved: 'effect' } },
      { of: START },
      'released',
    ],
    ['while a task moves', { facts: { outcome: 'moved', moved: 'drain' } }, { of: START }, 0],
  ])('M3 lasts %s', async (_name, pause, { of, releases = false }, lasts) => {
    const permit = await hold(roundOf('a', of), { ...terms, releases })
    expect(await permit.pause(pauseOf(pause))).toBe(true)
    expect(renewed).toEqual(lasts === 'released' ? [] : [[HOLD_MS + lasts, undefined]])
    expect(await isFree()).toBe(lasts === 'released')
  })

  it('M3 reports that it was lost when its call pauses', async () => {
    const permit = await hold(roundOf('a'))
    time += HOLD_MS
    expect(await isFree()).toBe(true)
    expect(await permit.pause(pauseOf())).toBe(false)
  })

  it('M1 M3 of a task that can be undone passes to its alarm, for an hour longer', async () => {
    for (const [of, endsWith, more] of [
      [START, expect.any(String), HOUR],
      [undefined, undefined, 0],
    ] as const) {
      renewed = []
      const permit = await hold(roundOf(`flow ${of}`, of), { ...terms, limit: 9 })
      permit.guard({ ...roundOf('a').beginning.journal, ...undoable } as Journal)
      await permit.hold(1_000)
      expect(renewed).toEqual([[HOLD_MS + 1_000 + more, endsWith]])
    }
  })

  it('M1 M3 stays with the worker that undoes the rest of its call', async () => {
    const permit = await hold(roundOf('a'))
    permit.handOver()
    await permit.release()
    expect(await isFree()).toBe(false)
    time += HOLD_MS
    expect(await isFree()).toBe(true)
  })

  it('M3 is renewed for twice a lease while its handler runs, twice in a lease, whether or not the store is away', async () => {
    const timers = new Map<() => unknown, number>()
    const idly: StoreClock['idly'] = (ms, run) => {
      timers.set(run, ms)
      return () => void timers.delete(run)
    }
    const clock: StoreClock = { now: () => time, elapsed: () => time, after: idly, idly }
    const taken = await takePermit(roundOf('a'), terms, permits, clock)
    const turn = async (): Promise<void> => {
      const [[run, ms] = [() => {}, 0]] = timers
      timers.delete(run)
      time += ms
      await run()
      await new Promise((resolve) => setImmediate(resolve))
    }
    await turn()
    away = new RondoError('STORE_UNAVAILABLE')
    await turn()
    away = undefined
    await turn()
    expect(renewed).toEqual([
      [HOLD_MS, undefined],
      [HOLD_MS, undefined],
    ])
    expect(time).toBe(START + 1.5 * LEASE_MS)
    if (taken.kind === 'held') await taken.permit.release()
    expect(timers.size).toBe(0)
  })

  it('M3 ends with its call', async () => {
    const permit = await hold(roundOf('a'))
    await permit.release()
    expect(await isFree()).toBe(true)
  })
})

it('M1 M3 the permit of a task passes to its alarm as soon as the run has something to undo', async () => {
  const permit = await hold(roundOf('a', START))
  const kept: unknown[] = []
  const keep = async (...given: unknown[]) => void kept.push(given)
  const { undoing } = withPermit({ undoing: { keep, lineage: 'l' } } as unknown as ReplayInput, permit)
  const journal = { ...roundOf('a').beginning.journal, ...undoable } as Journal
  if (!undoing || !('keep' in undoing)) throw new Error('no undoing')
  expect(undoing).toMatchObject({ lineage: 'l' })
  await undoing.keep(journal, {} as never)
  expect(kept).toEqual([[journal, {}]])
  await permit.hold(0)
  expect(renewed).toEqual([[HOLD_MS + HOUR, expect.any(String)]])
})

it('M3 a task records nothing once it has lost its permit', async () => {
  const permit = await hold(roundOf('a', START))
  const kept: unknown[] = []
  const { persist } = withPermit(
    { persist: async (entry: unknown) => void kept.push(entry) } as unknown as ReplayInput,
    permit,
  )
  await persist?.('entry' as never)
  expect(kept).toEqual(['entry'])
  await permits.release('a')
  await expect(persist?.('late' as never)).rejects.toMatchObject({ code: 'STORE_BUSY' })
  expect(kept).toEqual(['entry'])
})

it('M1 M3 the run of a call that cannot be undone still says why', async () => {
  const permit = await hold(roundOf('a'))
  const undoing = { missing: 'a store' }
  expect(withPermit({ undoing } as unknown as ReplayInput, permit).undoing).toEqual(undoing)
  expect(withPermit({} as ReplayInput, permit)).toEqual({ admit: permit.check })
})

describe('a call that ended without another run', () => {
  it.each([
    ['frees its permit', {}, true],
    ['keeps it for the worker that undoes it', undoable, false],
  ] as const)('M1 M3 %s', async (_name, more, free) => {
    const round = roundOf('a')
    await hold(round)
    await leavePermit(round, { ...round.beginning.journal, ...more } as Journal)
    expect(await isFree()).toBe(free)
  })

  it('R11 leaves the permit to its end if the store is away, and asks no store for a tool without one', async () => {
    const round = roundOf('a')
    await hold(round)
    away = new RondoError('STORE_UNAVAILABLE')
    await leavePermit(round, round.beginning.journal)
    const { concurrency: _, ...target } = round.target
    away = undefined
    await leavePermit({ ...round, target } as Round, round.beginning.journal)
    for (const none of [undefined, { ...store, permits: undefined }])
      await leavePermit({ ...round, host: { ...round.host, store: none } } as Round, round.beginning.journal)
    expect(await isFree()).toBe(false)
  })
})

it('M3 the error of a permit that was lost says when it may be free, after a second at least', () => {
  const after = (leaseMs: number): unknown => lostPermit({ leaseMs } as FlowHost).data
  expect(after(15_100)).toEqual({ retryAfterMs: 31_000 })
  expect(after(0)).toEqual({ retryAfterMs: 1_000 })
})

it('M3 the error of a call that is one too many says whether it could wait, and as what', () => {
  const round = roundOf('a')
  const host = { ...round.host, tasks: undefined }
  const errors = [
    tooManyCalls(round, { ...terms, queues: false }, 700),
    tooManyCalls(round, terms, 700),
    tooManyCalls({ ...round, host }, terms, 700),
  ]
  expect(errors.map(({ code, data }) => [code, data])).toEqual(
    Array(3).fill(['LIMIT_CONCURRENCY', { retryAfterMs: 700 }]),
  )
  const [refuses, could, runsNone] = errors.map(({ message }) => message)
  expect(refuses).toMatch(/it allows\. Nothing was done\.$/)
  expect(could).toContain('this client or this tool does not allow')
  expect(runsNone).toContain('this server runs none')
})

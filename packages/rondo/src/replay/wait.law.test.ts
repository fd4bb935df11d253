/**
 * Laws of time: sleeps, time limits and hooks lead to the same journal whatever wakes the task in between, and wherever it
 * crashes. fast-check prints the seed and the smallest program that fails.
 */

import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { accept, replayFlow, returned, textQuestion } from '../../../../test/support/replay-flow.ts'
import type { Entry } from '../journal/journal.ts'
import type { Context } from '../tool/context.ts'
import type { Arrival } from './input.ts'

type Part =
  | { readonly kind: 'sleep'; readonly ms: number }
  /** `delay`: how long after it was first shown the answer arrives. */
  | { readonly kind: 'ask'; readonly within?: number; readonly delay: number }
  /** `delay`: how long after it was opened the event arrives. */
  | { readonly kind: 'hook'; readonly within?: number; readonly delay: number }
  | { readonly kind: 'step' }

const span = fc.integer({ min: 1, max: 50 })
const limit = fc.option(span, { nil: undefined })
const part: fc.Arbitrary<Part> = fc.oneof(
  fc.record({ kind: fc.constant('sleep' as const), ms: span }),
  fc.record({ kind: fc.constant('ask' as const), within: limit, delay: span }),
  fc.record({ kind: fc.constant('hook' as const), within: limit, delay: span }),
  fc.record({ kind: fc.constant('step' as const) }),
)
type Program = readonly (readonly Part[])[]
/** Parts of a group run at the same time, groups one after the other. */
const program: fc.Arbitrary<Program> = fc.array(fc.array(part, { minLength: 1, maxLength: 3 }), {
  minLength: 1,
  maxLength: 4,
})

function handlerOf(groups: Program) {
  const perform = async (ctx: Context, key: string, one: Part): Promise<string> => {
    if (one.kind === 'step') return ctx.step(key, () => 'done')
    if (one.kind === 'sleep') return ctx.sleep(key, one.ms).then(() => 'awake')
    if (one.kind === 'ask') return (await ctx.elicit(key, { ...textQuestion(), within: one.within })).action
    const hook = await ctx.hook(key, { within: one.within })
    return hook.received().then(
      (event) => `${hook.id} ${event}`,
      (error: Error) => error.name,
    )
  }
  return async (ctx: Context) => {
    const results: string[] = []
    for (const [i, group] of groups.entries())
      results.push(...(await Promise.all(group.map((one, j) => perform(ctx, `${i}.${j}`, one)))))
    return results
  }
}

interface Disturbance {
  /** Wakes the task after these times, for nothing. */
  readonly wakes: readonly number[]
  /** Writes that fail: the process dies before they are durable. */
  readonly crashes: ReadonlySet<number>
  /** Writes during which the events that are due arrive, in the middle of a turn. Without any, they arrive between turns. */
  readonly midway?: ReadonlySet<number>
}

/** A hook in the store. */
interface Slot {
  readonly arrivesAt: number
  readonly until: number
  /** Undefined while it is open. */
  state?: 'answered' | 'closed'
}

/** Runs the program as a task: what is written is durable, everything else is lost with each run. */
async function live(groups: Program, { wakes, crashes, midway }: Disturbance) {
  const flow = replayFlow(handlerOf(groups), { anchored: true })
  const { journal: empty, clock } = flow
  const entries: Entry[] = []
  const deadlines = new Map<string, number>()
  const arrivals = new Map<string, number>()
  const slots = new Map<string, Slot>()
  const delays = new Map<string, number>(
    groups.flatMap((group, i) =>
      group.map((one, j) => [`${i}.${j}`, 'delay' in one ? one.delay : 0] as const),
    ),
  )
  const spurious = [...wakes]
  let writes = 0
  let dead = false
  let tell: (arrived: Arrival) => boolean = () => false
  /** What the store accepts at this moment reaches the turn that runs, if there is one. */
  const accepted = (): void => {
    for (const [key, slot] of slots) {
      if (slot.state !== undefined || slot.arrivesAt > clock.now || slot.arrivesAt >= slot.until) continue
      slot.state = 'answered'
      tell({ hook: key, value: 'event' })
    }
  }
  const write = async (put: () => void): Promise<void> => {
    if (midway?.has(writes)) accepted()
    dead ||= crashes.has(writes++)
    if (dead) throw new Error('the process dies here')
    put()
  }
  const hooks = {
    open: async (key: string, _schema: unknown, until = Number.POSITIVE_INFINITY) => {
      await write(() => {
        if (!slots.has(key)) slots.set(key, { arrivesAt: clock.now + (delays.get(key) ?? 0), until })
      })
      return `id ${key}`
    },
    close: (key: string) =>
      write(() => {
        const slot = slots.get(key)
        if (slot) slot.state ??= 'closed'
      }),
  }
  for (let runs = 0; runs < 500; runs++) {
    dead = false
    if (midway === undefined || midway.size === 0 || runs % 2 === 0) accepted()
    flow.journal = { ...empty, entries: [...entries], deadlines: Object.fromEntries(deadlines) }
    const here = [...arrivals].filter(([, at]) => at <= clock.now)
    const events = [...slots].filter(([, { state }]) => state === 'answered').map(([key]) => key)
    const { ending } = await flow.round(
      Object.fromEntries(here.map(([key]) => [key, accept({ value: 'x' })])),
      {
        sleeping: { parks: true },
        input: { hooks },
        events: new Map(events.map((key) => [key, 'event'])),
        onArrival: (arrival) => {
          tell = arrival
        },
        // A store accepts no late answer, so what it has came in time.
        arrivedAt: Number.NEGATIVE_INFINITY,
        persist: (entry) =>
          write(() => {
            entries.push(entry)
            deadlines.delete(entry.key)
          }),
        persistDeadline: (key, due) => write(() => void deadlines.set(key, due)),
      },
    )
    tell = () => false
    if (ending.kind === 'returned') return { value: ending.value, entries, ended: clock.now }
    if (ending.kind === 'refused') continue
    if (ending.kind !== 'asking' && ending.kind !== 'sleeping') throw new Error(ending.kind)
    if (ending.kind === 'asking')
      for (const [key, { due = Number.POSITIVE_INFINITY }] of ending.questions) {
        const at = clock.now + (delays.get(key) ?? 0)
        if (!arrivals.has(key)) arrivals.set(key, at < due ? at : Number.POSITIVE_INFINITY)
      }
    const open = ending.kind === 'asking' ? [...ending.questions.keys()].map((key) => arrivals.get(key)) : []
    // An event that arrived after the turn had looked makes the task due at once.
    const waiting = [...slots.values()]
      .filter(({ state, arrivesAt, until }) => state === undefined && arrivesAt < until)
      .map(({ arrivesAt }) => arrivesAt)
    const next = Math.min(
      ending.wakeAt ?? Number.POSITIVE_INFINITY,
      ...open.map((at) => at ?? 0),
      ...waiting,
      ...(events.length < [...slots.values()].filter(({ state }) => state === 'answered').length
        ? [clock.now]
        : []),
    )
    const early = clock.now + (spurious.shift() ?? Number.POSITIVE_INFINITY)
    clock.now = Math.max(clock.now, Math.min(next, early))
  }
  throw new Error('the task did not end')
}

const CALM: Disturbance = { wakes: [], crashes: new Set() }
const indexes = fc.array(fc.nat(16), { maxLength: 5 }).map((list) => new Set(list))

/** A journal as what is recorded in it says: moment by moment, and what was recorded in one moment by key. */
function byMoment(entries: readonly Entry[]): { readonly at: number; readonly recorded: readonly Entry[] }[] {
  const moments: { at: number; recorded: Entry[] }[] = []
  for (const entry of entries) {
    const last = moments.at(-1)
    if (last?.at === entry.at) last.recorded.push(entry)
    else moments.push({ at: entry.at, recorded: [entry] })
  }
  for (const { recorded } of moments) recorded.sort((a, b) => (a.key < b.key ? -1 : 1))
  return moments
}

/** The first entry that is recorded before one that it depends on: one of an earlier group, or the hook whose event it is. */
function beforeItsCause(entries: readonly Entry[]): string | undefined {
  const groupOf = (key: string) => Number(key.split('.')[0])
  const early = entries.find(({ key }, i) =>
    entries
      .slice(i + 1)
      .some((later) => groupOf(later.key) < groupOf(key) || key === `${later.key}.received`),
  )
  return early?.key
}

/**
 * The order of a journal is that of time and of cause. What happened in one moment, neither because of the other, has none:
 * a crash may swap it.
 */
function expectSameJournal(entries: readonly Entry[], others: readonly Entry[]): void {
  expect([entries, others].map(beforeItsCause)).toEqual([undefined, undefined])
  expect(byMoment(entries)).toEqual(byMoment(others))
}

/** The time that a part takes. */
function waits(one: Part): number {
  if (one.kind === 'sleep') return one.ms
  return one.kind === 'step' ? 0 : Math.min(one.delay, one.within ?? Number.POSITIVE_INFINITY)
}

describe('time in a task', () => {
  it('G1 G2 G3 R10 produces the same journal, in the order of time and cause, under any wake-ups and crashes', async () => {
    await fc.assert(
      fc.asyncProperty(program, fc.array(span, { maxLength: 8 }), indexes, async (groups, wakes, crashes) => {
        const { entries: calm, ...rest } = await live(groups, CALM)
        const { entries, ...disturbed } = await live(groups, { wakes, crashes })
        expect(disturbed).toEqual(rest)
        expectSameJournal(entries, calm)
      }),
      { numRuns: 100 },
    )
  })

  it('control: two journals differ if time or cause was swapped, and not if only what is concurrent was', async () => {
    const groups: Program = [
      [{ kind: 'step' }, { kind: 'step' }, { kind: 'hook', delay: 1 }],
      [{ kind: 'step' }],
    ]
    const { entries } = await live(groups, CALM)
    const swapped = (a: string, b: string) =>
      entries.map((entry) =>
        entry.key === a || entry.key === b
          ? (entries.find(({ key }) => key !== entry.key && (key === a || key === b)) as Entry)
          : entry,
      )
    const keys = entries.map(({ key, at }) => `${key} ${at - (entries[0]?.at ?? 0)}`)
    expect(keys).toEqual(['0.0 0', '0.1 0', '0.2 0', '0.2.received 1', '1.0 1'])
    expectSameJournal(swapped('0.0', '0.1'), entries)
    // A step of the next group, in the same moment as the event that it waited for; and an event before its hook.
    expect(() => expectSameJournal(swapped('0.2.received', '1.0'), entries)).toThrow()
    expect(() => expectSameJournal(swapped('0.2', '0.2.received'), entries)).toThrow()
    // Concurrent, but at another time.
    expect(() => expectSameJournal(swapped('0.1', '0.2.received'), entries)).toThrow()
    const later = entries.map((entry) => (entry.key === '0.1' ? { ...entry, at: entry.at + 1 } : entry))
    expect(() => expectSameJournal(later, entries)).toThrow()
  })

  it('G3 R10 produces the same results, and each of them once, if events arrive in the middle of turns', async () => {
    await fc.assert(
      fc.asyncProperty(program, indexes, indexes, async (groups, crashes, midway) => {
        const calm = await live(groups, CALM)
        const { value, entries } = await live(groups, { wakes: [], crashes, midway })
        expect(value).toEqual(calm.value)
        expect(entries.map(({ key }) => key).sort()).toEqual(calm.entries.map(({ key }) => key).sort())
        expect(beforeItsCause(entries)).toBeUndefined()
        const { journal } = replayFlow(() => {})
        const again = replayFlow(handlerOf(groups), { anchored: true, journal: { ...journal, entries } })
        const open = () => Promise.reject(new Error('a replay opens nothing'))
        const report = await again.round({}, { input: { hooks: { open, close: open } } })
        expect([returned(report), report.executed]).toEqual([value, 0])
      }),
      { numRuns: 100 },
    )
  })

  it('G1 G2 G3 a program takes exactly as long as its waits', async () => {
    await fc.assert(
      fc.asyncProperty(program, async (groups) => {
        const began = replayFlow(() => {}).clock.now
        const total = groups.reduce((sum, group) => sum + Math.max(...group.map(waits)), 0)
        const { ended, entries } = await live(groups, CALM)
        expect(ended - began).toBe(total)
        const all = groups.flat()
        expect(entries).toHaveLength(all.length + all.filter(({ kind }) => kind === 'hook').length)
      }),
      { numRuns: 60 },
    )
  })
})

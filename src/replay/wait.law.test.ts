/** Laws of time: sleeps and time limits give the same journal whatever wakes the task in between, and wherever it crashes. */

import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { accept, replayFlow, textQuestion } from '../../test/support/replay-flow.ts'
import type { Entry } from '../journal/journal.ts'
import type { Context } from '../tool/context.ts'

type Part =
  | { readonly kind: 'sleep'; readonly ms: number }
  /** `delay`: how long after it was first shown the answer arrives. */
  | { readonly kind: 'ask'; readonly within?: number; readonly delay: number }
  | { readonly kind: 'step' }

const span = fc.integer({ min: 1, max: 50 })
const part: fc.Arbitrary<Part> = fc.oneof(
  fc.record({ kind: fc.constant('sleep' as const), ms: span }),
  fc.record({ kind: fc.constant('ask' as const), within: fc.option(span, { nil: undefined }), delay: span }),
  fc.record({ kind: fc.constant('step' as const) }),
)
/** Parts of a group run at the same time, groups one after the other. */
const program = fc.array(fc.array(part, { minLength: 1, maxLength: 3 }), { minLength: 1, maxLength: 4 })

function handlerOf(groups: readonly (readonly Part[])[]) {
  const perform = async (ctx: Context, key: string, one: Part): Promise<string> => {
    if (one.kind === 'step') return ctx.step(key, () => 'done')
    if (one.kind === 'sleep') return ctx.sleep(key, one.ms).then(() => 'awake')
    return (await ctx.elicit(key, { ...textQuestion(), within: one.within })).action
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
}

/** Runs the program as a task: what is written is durable, everything else is lost with each run. */
async function live(groups: readonly (readonly Part[])[], { wakes, crashes }: Disturbance) {
  const flow = replayFlow(handlerOf(groups), { anchored: true })
  const { journal: empty, clock } = flow
  const entries: Entry[] = []
  const deadlines = new Map<string, number>()
  const arrivals = new Map<string, number>()
  const delays = new Map<string, number>(
    groups.flatMap((group, i) =>
      group.map((one, j) => [`${i}.${j}`, one.kind === 'ask' ? one.delay : 0] as const),
    ),
  )
  const spurious = [...wakes]
  let writes = 0
  let dead = false
  const write = async (put: () => void): Promise<void> => {
    dead ||= crashes.has(writes++)
    if (dead) throw new Error('the process dies here')
    put()
  }
  for (let runs = 0; runs < 500; runs++) {
    dead = false
    flow.journal = { ...empty, entries: [...entries], deadlines: Object.fromEntries(deadlines) }
    const here = [...arrivals].filter(([, at]) => at <= clock.now)
    const { ending } = await flow.round(
      Object.fromEntries(here.map(([key]) => [key, accept({ value: 'x' })])),
      {
        sleeping: { parks: true },
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
    if (ending.kind === 'returned') return { value: ending.value, entries, ended: clock.now }
    if (ending.kind === 'refused') continue
    if (ending.kind !== 'asking' && ending.kind !== 'sleeping') throw new Error(ending.kind)
    if (ending.kind === 'asking')
      for (const [key, { due = Number.POSITIVE_INFINITY }] of ending.questions) {
        const at = clock.now + (delays.get(key) ?? 0)
        if (!arrivals.has(key)) arrivals.set(key, at < due ? at : Number.POSITIVE_INFINITY)
      }
    const open = ending.kind === 'asking' ? [...ending.questions.keys()].map((key) => arrivals.get(key)) : []
    const next = Math.min(ending.wakeAt ?? Number.POSITIVE_INFINITY, ...open.map((at) => at ?? 0))
    const early = clock.now + (spurious.shift() ?? Number.POSITIVE_INFINITY)
    clock.now = Math.max(clock.now, Math.min(next, early))
  }
  throw new Error('the task did not end')
}

const CALM: Disturbance = { wakes: [], crashes: new Set() }

describe('time in a task', () => {
  it('G1 G2 R10 gives the same journal under any wake-ups and crashes', async () => {
    await fc.assert(
      fc.asyncProperty(
        program,
        fc.array(span, { maxLength: 8 }),
        fc.array(fc.nat(12), { maxLength: 4 }),
        async (groups, wakes, crashes) => {
          const calm = await live(groups, CALM)
          expect(await live(groups, { wakes, crashes: new Set(crashes) })).toEqual(calm)
        },
      ),
      { numRuns: 60 },
    )
  })

  it('G1 G2 a program takes exactly as long as its waits', async () => {
    await fc.assert(
      fc.asyncProperty(program, async (groups) => {
        const began = replayFlow(() => {}).clock.now
        const waits = (one: Part): number =>
          one.kind === 'sleep'
            ? one.ms
            : one.kind === 'ask'
              ? Math.min(one.delay, one.within ?? Number.POSITIVE_INFINITY)
              : 0
        const total = groups.reduce((sum, group) => sum + Math.max(...group.map(waits)), 0)
        const { ended, entries } = await live(groups, CALM)
        expect(ended - began).toBe(total)
        expect(entries).toHaveLength(groups.flat().length)
      }),
      { numRuns: 60 },
    )
  })
})

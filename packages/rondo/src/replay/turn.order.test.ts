/**
 * Laws of replay over generated programs (P8 to P11): however a flow is cut into rounds, the handler sees the same.
 */

import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { z } from 'zod'
import {
  accept,
  deferredPromise,
  type Handler,
  replayFlow,
  returned,
  textQuestion,
} from '../../../../test/support/replay-flow.ts'
import { idle } from '../lib/clock.ts'
import type { Context } from '../tool/context.ts'
import type { MoveReason } from './run-state.ts'

/** A small language of handlers: sequences, parallels, races of asks, steps and effects. */
type Program =
  | { kind: 'step' | 'effect' | 'ask'; turns: number; fails: boolean }
  | { kind: 'all' | 'race' | 'settled' | 'seq'; parts: Program[] }

const leaf = fc.record({
  kind: fc.constantFrom<'step' | 'effect' | 'ask'>('step', 'step', 'effect', 'ask'),
  turns: fc.nat({ max: 3 }),
  fails: fc.boolean(),
})

const program: fc.Arbitrary<Program> = fc.letrec<{ program: Program }>((tie) => ({
  program: fc.oneof(
    { maxDepth: 3, withCrossShrink: true },
    leaf,
    fc.record({
      kind: fc.constantFrom<'all' | 'race' | 'settled' | 'seq'>('all', 'race', 'settled', 'seq', 'seq'),
      parts: fc.array(tie('program'), { minLength: 1, maxLength: 3 }),
    }),
  ),
})).program

const pause = (turns: number): Promise<void> =>
  turns === 0 ? Promise.resolve() : new Promise<void>((resolve) => idle(() => pause(turns - 1).then(resolve)))

interface Trace {
  /** Names in the order in which their results reached the handler. */
  seen: string[]
  ran: string[]
}

/** `race` waits for the losers too: work that is not awaited is tested elsewhere. */
async function combine(
  kind: 'all' | 'race' | 'settled' | 'seq',
  runs: (() => Promise<unknown>)[],
): Promise<unknown> {
  if (kind === 'seq') {
    const results = []
    for (const run of runs) results.push(await run())
    return results
  }
  const promises = runs.map((run) => run())
  const winner = kind === 'race' ? await Promise.race(promises) : undefined
  return [
    winner,
    (await Promise.allSettled(promises)).map((r) => (r.status === 'fulfilled' ? r.value : 'failed')),
  ]
}

function interpret(ctx: Context, node: Program, name: string, trace: Trace): Promise<unknown> {
  if ('parts' in node) {
    return combine(
      node.kind,
      node.parts.map((part, i) => () => interpret(ctx, part, `${name}.${i}`, trace)),
    )
  }
  const operate = async (): Promise<unknown> => {
    if (node.kind === 'ask') return (await ctx.ask(name, textQuestion(name))).value
    return ctx[node.kind](name, async () => {
      trace.ran.push(name)
      await pause(node.turns)
      if (node.fails) throw new Error(name)
      return name
    }).catch((error: Error) => `caught ${error.message}`)
  }
  return operate().then((value) => {
    trace.seen.push(name)
    return value
  })
}

/** Runs to the end, answering everything and moving the call where `cut` says; returns the last trace and all that ran. */
async function drive(node: Program, cut: (executed: number, round: number) => boolean, anchored: boolean) {
  const ran: string[] = []
  let last: Trace = { seen: [], ran: [] }
  const handler: Handler = (ctx) => {
    last = { seen: [], ran }
    return interpret(ctx, node, 'p', last)
  }
  const flow = replayFlow(handler, { anchored, limits: { maxEntries: 1000, maxQuestions: 1000 } })
  let answers: Record<string, unknown> = {}
  for (let round = 0; round < 200; round++) {
    const mayMove = (executed: number): MoveReason | undefined => (cut(executed, round) ? 'time' : undefined)
    const report = await flow.round(answers, { mayMove })
    answers = {}
    if (report.ending.kind === 'asking') {
      for (const key of report.ending.questions.keys()) answers[key] = accept({ value: `answer ${key}` })
    } else if (report.ending.kind !== 'moved') {
      return { result: returned(report), seen: last.seen, ran, journal: report.journal, handler }
    }
  }
  throw new Error('did not end')
}

describe('laws of replay', () => {
  it('P8 a replay of a full journal runs nothing and returns the same result in the same order', async () => {
    await fc.assert(
      fc.asyncProperty(program, async (node) => {
        const live = await drive(node, () => false, true)
        const before = live.ran.length
        const again = replayFlow(live.handler, { anchored: true, journal: live.journal })
        const report = await again.round()
        expect(returned(report)).toEqual(live.result)
        expect(live.ran.length).toBe(before)
        expect(report.executed).toBe(0)
      }),
      { numRuns: 150 },
    )
  })

  it('P9 P11 however a flow is cut into rounds, all work runs once and the handler sees one order', async () => {
    await fc.assert(
      fc.asyncProperty(program, fc.integer({ min: 1, max: 3 }), async (node, every) => {
        const cut = await drive(node, (executed) => executed >= every, true)
        expect(new Set(cut.ran).size).toBe(cut.ran.length)
        const order: string[] = []
        const again = replayFlow((ctx) => interpret(ctx, node, 'p', { seen: order, ran: [] }), {
          anchored: true,
          journal: cut.journal,
        })
        expect(returned(await again.round())).toEqual(cut.result)
        expect(order).toEqual(cut.seen)
        expect(order).toEqual(cut.journal.entries.map((entry) => entry.key))
      }),
      { numRuns: 150 },
    )
  })

  it('P10 a program that lost an effect runs no new effect', async () => {
    await fc.assert(
      fc.asyncProperty(program, async (node) => {
        const live = await drive(node, () => false, true)
        fc.pre(live.journal.entries.some((entry) => entry.kind === 'effect'))
        const ran: string[] = []
        const report = await replayFlow((ctx) => ctx.effect('new', () => void ran.push('new')), {
          anchored: true,
          journal: live.journal,
        }).round()
        expect(report.ending.kind).toBe('refused')
        expect(ran).toEqual([])
      }),
      { numRuns: 50 },
    )
  })
})

describe('turn 1: results in order', () => {
  /** A question whose answer is validated when the gate opens. */
  const checkedBehind = (gate: Promise<unknown>) => ({
    message: 'Say something',
    schema: z.object({ value: z.string().refine(() => gate.then(() => true)) }),
  })

  it('turn 1: delivers the answers of a request in the order of their questions, however slow a validation', async () => {
    const gate = deferredPromise()
    const seen: string[] = []
    const flow = replayFlow((ctx) =>
      Promise.all([
        ctx.ask('slow', checkedBehind(gate.promise)).then(() => seen.push('slow')),
        ctx.ask('fast', checkedBehind(Promise.resolve())).then(() => seen.push('fast')),
        ctx.ask('plain', textQuestion()).then(() => seen.push('plain')),
        ctx.step('work', () => void seen.push('work begins')),
      ]),
    )
    await flow.round(undefined, { mayMove: () => 'drain' })
    const answer = accept({ value: 'x' })
    const round = flow.round({ plain: answer, fast: answer, slow: answer })
    await pause(5)
    expect(seen).toEqual([])
    gate.resolve()
    await round
    expect(seen).toEqual(['slow', 'fast', 'plain', 'work begins'])
  })

  it('turn 1: delivers no recorded result before an earlier one that is still being read', async () => {
    const gates = [deferredPromise(), deferredPromise()]
    gates[0]?.resolve()
    let run = 0
    const seen: string[] = []
    const flow = replayFlow(async (ctx) => {
      const gate = gates[run++] ?? deferredPromise()
      await Promise.all([
        ctx.ask('slow', checkedBehind(gate.promise)).then(() => seen.push('slow')),
        ctx.ask('plain', textQuestion()).then(() => seen.push('plain')),
      ])
      await ctx.ask('last', textQuestion())
    })
    run = -1
    await flow.round()
    const answer = accept({ value: 'x' })
    await flow.round({ slow: answer, plain: answer })
    const round = flow.round({ last: answer })
    await pause(5)
    expect(seen).toEqual(['slow', 'plain'])
    gates[1]?.resolve()
    await round
    expect(seen).toEqual(['slow', 'plain', 'slow', 'plain'])
  })

  it('turn 1: passes a checkpoint at the same place in a replay, whatever is recorded in other branches', async () => {
    const gate = deferredPromise()
    const seen: string[] = []
    const flow = replayFlow(async (ctx) => {
      const first = async (): Promise<void> => {
        await ctx.step('a', () => {})
        seen.push('a')
        await ctx.step('b', () => gate.promise.then(() => {}))
        seen.push('b')
      }
      const second = async (): Promise<void> => {
        await ctx.checkpoint()
        await ctx.step('c', () => {})
        seen.push('c')
        gate.resolve()
      }
      await Promise.all([first(), second()])
      await ctx.ask('last', textQuestion())
    })
    await flow.round()
    expect(seen.splice(0).toSorted()).toEqual(['a', 'b', 'c'])
    const recorded = flow.journal.entries.map(({ key }) => key)
    expect(recorded).toEqual(['a', 'c', 'b'])
    await flow.round({ last: accept({ value: 'x' }) })
    expect(seen).toEqual(recorded)
  })

  it('turn 1: stops at a checkpoint before it delivers a result out of order', async () => {
    const gate = deferredPromise()
    const seen: string[] = []
    const flow = replayFlow(async (ctx) => {
      await Promise.all([
        ctx.step('a', () => {}).then(() => ctx.step('b', () => gate.promise.then(() => {}))),
        ctx.checkpoint().then(() => ctx.step('c', () => gate.resolve())),
      ]).then(() => seen.push('all'))
      await ctx.ask('last', textQuestion())
    })
    await flow.round()
    const { ending } = await flow.round({ last: accept({ value: 'x' }) }, { mayMove: () => 'drain' })
    expect(ending).toEqual({ kind: 'moved', reason: 'drain' })
    expect(seen).toEqual(['all'])
  })
})

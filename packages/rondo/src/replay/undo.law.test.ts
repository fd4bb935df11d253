/**
 * The law of undo, over generated programs: effects one after the other and in parallel, some of which throw, questions between them,
 * undo functions that fail at first, and `ctx.undo()` in the middle and at the end.
 */

import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { accept, replayFlow, returned, textQuestion } from '../../../../test/support/replay-flow.ts'
import type { Journal } from '../journal/journal.ts'
import type { Context } from '../tool/context.ts'

interface Op {
  readonly kind: 'effects' | 'ask' | 'undo'
  /** The number of parallel effects. */
  readonly width: number
  /** Effects whose bit is set throw. */
  readonly throws: number
  /** Attempts of an undo that fail. */
  readonly undoFails: number
}

/** A call of an effect (`+`) or of its undo (`-`), in the order in which they happened. */
interface Happened {
  readonly sign: '+' | '-'
  readonly name: string
  readonly key: string
  readonly effectKey: string
  readonly ran?: string
  readonly failed: boolean
}

const op: fc.Arbitrary<Op> = fc.record({
  kind: fc.constantFrom('effects', 'effects', 'ask', 'undo'),
  width: fc.integer({ min: 1, max: 3 }),
  throws: fc.integer({ min: 0, max: 7 }),
  undoFails: fc.integer({ min: 0, max: 2 }),
})

function programOf(ops: readonly Op[], happened: Happened[]) {
  const failures = new Map<string, number>()
  const effect = async (ctx: Context, name: string, { throws, undoFails }: Op, bit: number) => {
    const isThrown = ((throws >> bit) & 1) === 1
    await ctx
      .effect(
        name,
        ({ key }) => {
          happened.push({ sign: '+', name, key, effectKey: key, failed: isThrown })
          if (isThrown) throw new Error('x')
          return name
        },
        {
          undo(_result, { key, effectKey, ran }) {
            const count = failures.get(name) ?? 0
            failures.set(name, count + 1)
            const failed = count < undoFails
            happened.push({ sign: '-', name, key, effectKey, ran, failed })
            if (failed) throw new Error('later')
          },
        },
      )
      .catch(() => {})
  }
  return async (ctx: Context): Promise<readonly string[][]> => {
    const undone: string[][] = []
    for (const [i, one] of ops.entries()) {
      if (one.kind === 'ask') await ctx.ask(`q${i}`, textQuestion())
      else if (one.kind === 'undo') undone.push([...(await ctx.undo()).undone])
      else
        await Promise.all(
          Array.from({ length: one.width }, (_, bit) => effect(ctx, `e${i}.${bit}`, one, bit)),
        )
    }
    undone.push([...(await ctx.undo()).undone])
    return undone
  }
}

/** Runs the program in rounds, each of which parks while an undo waits for its next attempt. */
async function run(ops: readonly Op[], order: (journal: Journal) => Journal = (journal) => journal) {
  const happened: Happened[] = []
  const kept: Journal[] = []
  const flow = replayFlow(programOf(ops, happened), {
    anchored: true,
    journal: { lineage: 'one' },
    limits: { maxEntries: 1_000 },
  })
  const input = { undoing: { isLinear: true, keep: async (journal: Journal) => void kept.push(journal) } }
  let answers: Record<string, unknown> = {}
  for (let rounds = 0; rounds < 200; rounds++) {
    flow.journal = order(flow.journal)
    const report = await flow.round(answers, { sleeping: { parks: true }, input })
    const { ending } = report
    if (ending.kind === 'sleeping') flow.clock.now = ending.wakeAt
    else if (ending.kind === 'asking')
      answers = Object.fromEntries([...ending.questions.keys()].map((key) => [key, accept({ value: 'x' })]))
    else return { happened, undone: returned(report) as string[][], kept, journal: report.journal }
  }
  throw new Error('The program did not end')
}

/** Problems of a history, in words. */
function problemsOf(happened: readonly Happened[], kept: readonly Journal[]): string[] {
  const problems: string[] = []
  const open: string[] = []
  for (const { sign, name, key, effectKey, failed, ran } of happened) {
    const begun = happened.find((one) => one.sign === '+' && one.name === name)
    if (sign === '+') {
      open.push(name)
      continue
    }
    if (open.at(-1) !== name) problems.push(`${name} is undone before ${open.at(-1)}`)
    if (!failed) open.splice(open.lastIndexOf(name), 1)
    if (begun?.effectKey !== effectKey) problems.push(`${name} is undone for another effect`)
    if (ran !== (begun?.failed ? 'maybe' : 'yes')) problems.push(`${name} ran ${ran}`)
    const keys = new Set(
      happened.filter((one) => one.sign === '-' && one.name === name).map((one) => one.key),
    )
    if (keys.size > 1 || keys.has(begun?.key ?? '')) problems.push(`${name} has the keys ${[...keys].join()}`)
    if (key.length !== 32) problems.push(`${key} is not a key`)
  }
  problems.push(...open.map((name) => `${name} is left`))
  for (const { name } of happened.filter(({ sign }) => sign === '+'))
    if (
      !kept.some(
        ({ begun, entries }) =>
          begun?.some(({ key }) => key === name) && !entries.some(({ key }) => key === name),
      )
    )
      problems.push(`the intent of ${name} was not written before its result`)
  return problems
}

describe('the law of undo', () => {
  it('undoes everything that began, the last first, under one key each, however the call is interrupted', async () => {
    let seen = 0
    await fc.assert(
      fc.asyncProperty(fc.array(op, { minLength: 1, maxLength: 6 }), async (ops) => {
        const { happened, undone, kept } = await run(ops)
        seen += happened.filter(({ sign }) => sign === '-').length
        expect(problemsOf(happened, kept)).toEqual([])
        expect(undone.flat().sort()).toEqual(
          [...new Set(happened.filter(({ sign }) => sign === '+').map(({ name }) => name))].sort(),
        )
      }),
      { numRuns: 60 },
    )
    expect(seen).toBeGreaterThan(50)
  })

  it('control: a journal that forgets the order of its effects breaks the law', async () => {
    const effects: Op = { kind: 'effects', width: 3, throws: 0, undoFails: 0 }
    const ops: Op[] = [effects, { ...effects, kind: 'ask' }]
    const reversed = (journal: Journal): Journal => ({
      ...journal,
      ...(journal.begun && { begun: [...journal.begun].reverse() }),
    })
    const { happened, kept } = await run(ops, reversed)
    expect(problemsOf(happened, kept)).toContain('e0.0 is undone before e0.2')
  })
})

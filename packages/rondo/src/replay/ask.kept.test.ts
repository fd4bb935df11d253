import { describe, expect, it } from 'vitest'
import {
  accept,
  askedKeys,
  deferredPromise,
  type FlowOptions,
  type Handler,
  type ReplayFlow,
  refusal,
  replayFlow,
  returned,
  textQuestion,
} from '../../../../test/support/replay-flow.ts'
import { createRecord } from '../journal/journal.ts'
import type { Context } from '../tool/context.ts'
import { MANUAL } from './question.ts'

const yes = accept({ confirm: true })
const text = accept({ value: 'x' })
const sure =
  (message = 'Delete all?'): Handler =>
  (ctx) =>
    ctx.confirm('sure', message)

/** A later release asks `first` before everything else. */
const asksFirst =
  (then: Handler): Handler =>
  async (ctx: Context) => {
    await ctx.ask('first', textQuestion('First?'))
    return then(ctx)
  }

/** The answers to what the first release asked reach a second one, which asks something else. */
async function upgraded(
  handler: Handler,
  answers: Record<string, unknown>,
  options?: FlowOptions,
): Promise<ReplayFlow> {
  const flow = replayFlow(handler, { dev: true, ...options })
  await flow.round()
  expect(askedKeys(await flow.round(answers, { handler: asksFirst(handler) }))).toEqual(['first'])
  return flow
}

describe('an answer whose question the run has not reached', () => {
  it('N4 R3 counts when the same question is reached, after any number of rounds', async () => {
    const flow = await upgraded(sure(), { sure: yes })
    const handler = asksFirst(sure())
    expect(askedKeys(await flow.round({}, { handler }))).toEqual(['first'])
    expect(returned(await flow.round({ first: text }, { handler }))).toBe(true)
  })

  it('N4 R3 does not count for a question in other words', async () => {
    const flow = await upgraded(sure(), { sure: yes })
    const handler = asksFirst(sure('Delete everything?'))
    expect(askedKeys(await flow.round({ first: text }, { handler }))).toEqual(['sure'])
    expect(flow.journal.kept).toBeUndefined()
  })

  it('R3 does not count for a question in other words that goes back to the old ones', async () => {
    const flow = await upgraded(sure(), { sure: yes })
    await flow.round({ first: text }, { handler: asksFirst(sure('Delete everything?')) })
    expect(askedKeys(await flow.round({}, { handler: asksFirst(sure()) }))).toEqual(['sure'])
  })

  it('R3 does not count for a question in other words that was shown since', async () => {
    const flow = await upgraded(sure(), { sure: yes })
    const { kept } = flow.journal
    const handler = sure('Delete everything?')
    await flow.round({}, { handler })
    flow.journal = { ...flow.journal, kept }
    expect(askedKeys(await flow.round({}, { handler }))).toEqual(['sure'])
  })

  it('R3 is not kept if nobody had asked', async () => {
    const flow = await upgraded(sure(), { sure: yes, other: yes, first: text, __proto__: yes })
    expect(Object.keys(flow.journal.kept ?? {})).toEqual(['sure'])
    const unasked = replayFlow(asksFirst(sure()))
    expect(askedKeys(await unasked.round({ sure: yes }))).toEqual(['first'])
    expect(unasked.journal.kept).toBeUndefined()
  })

  it('R3 is read again by the manual form, and counts for no other question of its key', async () => {
    const flow = replayFlow(sure(), { anchored: true })
    flow.asked = { sure: `${MANUAL}digest` }
    await flow.round({ sure: yes }, { handler: asksFirst(sure()) })
    const reads: Handler = async (ctx) => ctx.inputResponses?.sure
    expect(returned(await flow.round({ sure: { action: 'decline' } }, { handler: reads }))).toEqual(yes)
    expect(askedKeys(await flow.round({ first: text }, { handler: asksFirst(sure()) }))).toEqual(['sure'])
  })

  it.each([
    ['Tip?', 'accept'],
    ['Any tip?', undefined],
  ])('N4 R3 counts for a standing offer only in the same words: %s', async (message, action) => {
    const flow = await upgraded((ctx) => ctx.elicit('tip', textQuestion('Tip?')), { tip: text })
    const handler = asksFirst(async (ctx) => (await ctx.offer('tip', textQuestion(message))).action)
    const hooks = { open: async () => 'id', close: async () => {} }
    const { ending } = await flow.round({ first: text }, { handler, input: { hooks } })
    expect(ending).toMatchObject(
      action ? { kind: 'returned', value: action } : { kind: 'asking', events: new Set(['tip']) },
    )
  })

  it('B17 is not kept if it arrives while its question is open and does not fit', async () => {
    const done = deferredPromise()
    const handler: Handler = (ctx) =>
      Promise.all([ctx.ask('q', textQuestion()), ctx.step('slow', () => done.promise)])
    const flow = replayFlow((ctx) => ctx.ask('q', textQuestion()))
    await flow.round()
    const digest = flow.asked.q ?? ''
    const report = await flow.round(undefined, {
      handler,
      onArrival(arrival) {
        setImmediate(() => {
          expect(arrival({ question: 'q', digest, answer: accept({ value: 7 }) })).toBe(true)
          done.resolve()
        })
      },
    })
    expect(askedKeys(report)).toEqual(['q'])
    expect(flow.journal).toMatchObject({ reasks: { q: { misfits: 1 } } })
    expect(flow.journal.kept).toBeUndefined()
  })

  it('N4 is kept if it arrives while a run asks something else first', async () => {
    const done = deferredPromise()
    const handler = asksFirst(sure())
    const flow = replayFlow(sure())
    await flow.round()
    const digest = flow.asked.sure ?? ''
    const report = await flow.round(undefined, {
      handler: (ctx) => Promise.all([handler(ctx), ctx.step('slow', () => done.promise)]),
      onArrival(arrival) {
        setImmediate(() => {
          expect(arrival({ question: 'sure', digest, answer: yes })).toBe(true)
          done.resolve()
        })
      },
    })
    expect(askedKeys(report)).toEqual(['first'])
    expect(returned(await flow.round({ first: text }, { handler }))).toBe(true)
  })

  it('R2 is not kept beside a recorded one', async () => {
    const flow = await upgraded(sure(), { sure: yes })
    flow.journal = {
      ...flow.journal,
      entries: [{ kind: 'step', key: 'sure', at: 1, value: 1 }],
    }
    await flow.round({}, { handler: asksFirst(() => 1) })
    expect(flow.journal.kept).toBeUndefined()
    const record = createRecord(flow.journal)
    record.keep('sure', { question: 'digest', answer: yes })
    expect(record.takeEarly('sure')).toBeUndefined()
  })

  it('N4 is kept when the instance releases the call before its question', async () => {
    const flow = replayFlow(sure())
    await flow.round()
    const handler: Handler = async (ctx) => {
      await ctx.step('check', () => 1)
      return sure()(ctx)
    }
    const { ending } = await flow.round({ sure: yes }, { handler, mayMove: () => 'drain' })
    expect(ending).toMatchObject({ kind: 'moved' })
    expect(returned(await flow.round({}, { handler }))).toBe(true)
  })

  it('P18 counts although its time is up by now, if it came in time', async () => {
    const handler: Handler = async (ctx) =>
      (await ctx.elicit('q', { ...textQuestion(), within: 1000 })).action
    for (const [late, outcome] of [
      [999, 'accept'],
      [1000, 'expired'],
    ] as const) {
      const flow = replayFlow(handler)
      await flow.round()
      flow.clock.now += late
      await flow.round({ q: text }, { handler: asksFirst(handler) })
      flow.clock.now += 5000
      expect(returned(await flow.round({ first: text }, { handler: asksFirst(handler) }))).toBe(outcome)
    }
  })

  it('B17 is asked for again if it does not fit', async () => {
    const handler: Handler = (ctx) => ctx.ask('q', textQuestion())
    const flow = await upgraded(handler, { q: accept({ value: 7 }) })
    expect(askedKeys(await flow.round({ first: text }, { handler: asksFirst(handler) }))).toEqual(['q'])
    expect(flow.journal).toMatchObject({ reasks: { q: { misfits: 1 } } })
    expect(flow.journal.kept).toBeUndefined()
  })

  it('R7 does not change the key of an effect that comes before its question', async () => {
    const keys: string[] = []
    const handler: Handler = async (ctx) => {
      await ctx.ask('first', textQuestion('First?'))
      await ctx.effect('save', ({ key }) => void keys.push(key))
      return sure()(ctx)
    }
    for (const answer of [yes, { action: 'decline' }, undefined]) {
      const flow = replayFlow(sure())
      await flow.round()
      await flow.round(answer && { sure: answer }, { handler })
      await flow.round({ first: text }, { handler })
    }
    expect(keys).toHaveLength(3)
    expect(new Set(keys).size).toBe(1)
  })

  it('R9 counts as an entry', async () => {
    const handler = asksFirst((ctx) => ctx.step('work', () => 1))
    for (const [maxEntries, isFull] of [
      [2, true],
      [3, false],
    ] as const) {
      const flow = await upgraded(sure(), { sure: yes }, { limits: { maxEntries } })
      const report = await flow.round({ first: text }, { handler })
      if (isFull) expect(refusal(report)).toBe('LIMIT_ENTRIES')
      else expect(returned(report)).toBe(1)
    }
  })
})

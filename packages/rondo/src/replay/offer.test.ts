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
import { RondoError } from '../errors.ts'
import type { Entry } from '../journal/journal.ts'
import type { InputRequest } from '../protocol/wire.ts'
import type { Context, Offer } from '../tool/context.ts'
import type { Arrival, ReplayInput } from './input.ts'
import type { OpenQuestion, RunReport } from './run-state.ts'

const YES = accept({ value: 'yes' })
const NO = { action: 'decline' } as const
const WITHDRAWN = { action: 'cancel' }
/** Waits until the handler, and everything that it has begun, has nothing left to do. */
async function moment(): Promise<void> {
  for (let i = 0; i < 10; i++) await new Promise((resolve) => setImmediate(resolve))
}

/** A task whose client sees the questions of its handler while that works. */
interface Task {
  readonly flow: ReplayFlow
  /** Each showing of a question, in order. */
  readonly shown: { readonly key: string; readonly message: string; readonly question: OpenQuestion }[]
  readonly withdrawn: string[]
  /** The client answers a question, in the words in which it was shown last. Returns false if the run is over. */
  answer(key: string, answer: unknown, digest?: string): boolean
  turn(options?: { readonly handler?: Handler; readonly input?: Partial<ReplayInput> }): Promise<RunReport>
}

function createTask(handler: Handler, options: FlowOptions = {}): Task {
  const flow = replayFlow(handler, { anchored: true, ...options })
  const shown: Task['shown'] = []
  const withdrawn: string[] = []
  let tell: (arrived: Arrival) => boolean = () => false
  return {
    flow,
    shown,
    withdrawn,
    answer(key, answer, digest = shown.findLast((one) => one.key === key)?.question.digest ?? '') {
      return tell({ question: key, digest, answer })
    },
    turn: ({ handler: other, input } = {}) =>
      flow.round(undefined, {
        handler: other,
        sleeping: { parks: true },
        onArrival: (arrival) => {
          tell = arrival
        },
        input: {
          hooks: { open: async () => 'id', close: async () => {} },
          async publish(questions) {
            for (const [key, question] of questions)
              shown.push({ key, question, message: messageOf(question.request) })
          },
          withdraw: async (key) => void withdrawn.push(key),
          ...input,
        },
      }),
  }
}

function messageOf(request: InputRequest): string {
  return request.method === 'elicitation/create' ? request.params.message : request.method
}

/** Works in steps that the test ends one by one. */
function stepper() {
  const gates = Array.from({ length: 4 }, () => deferredPromise())
  let next = 0
  return {
    step: (ctx: Context) => {
      const i = next++
      return ctx.step(`step ${i}`, () => gates[i]?.promise)
    },
    /** Ends the step that runs, and waits until the handler has nothing to do. */
    async advance() {
      gates[next - 1]?.resolve()
      await moment()
    },
    replay() {
      next = 0
    },
  }
}

describe('an offer in a task', () => {
  it('G5 is shown while the handler works, and peek sees the answer after the next result', async () => {
    const { step, advance, replay } = stepper()
    const seen: unknown[] = []
    const task = createTask(async (ctx) => {
      const offer = ctx.offer('tip', textQuestion('Any tip?'))
      seen.push(offer.peek())
      await step(ctx)
      seen.push(offer.peek())
      await step(ctx)
      seen.push(offer.peek(), offer.peek())
      await ctx.ask('last', textQuestion())
      return seen
    })
    const running = task.turn()
    await moment()
    expect(task.shown).toMatchObject([
      { key: 'tip', message: 'Any tip?', question: { kind: 'form', standing: true } },
    ])
    await advance()
    expect(task.answer('tip', YES)).toBe(true)
    await moment()
    task.flow.clock.now += 5
    await advance()
    const report = await running
    expect(askedKeys(report)).toEqual(['last'])
    expect(seen).toEqual([undefined, undefined, YES, YES])
    expect(report.journal.entries.map(({ key }) => key)).toEqual(['step 0', 'tip', 'step 1'])
    expect(report.journal.entries[1]).toEqual({
      kind: 'form',
      key: 'tip',
      at: 1_000_000,
      question: task.shown[0]?.question.digest,
      answer: YES,
    })
    // A replay sees the same at the same places.
    replay()
    const again = await task.turn()
    expect(askedKeys(again)).toEqual(['last'])
    expect(again).toMatchObject({ replayed: 3, executed: 0 })
    expect(seen.slice(4)).toEqual([undefined, undefined, YES, YES])
    expect(task.shown.filter(({ key }) => key === 'tip')).toHaveLength(1)
  })

  it('offer 2: a change that the handler makes to what it peeks at does not reach the next peek', async () => {
    const { step, advance } = stepper()
    const task = createTask(async (ctx) => {
      const offer = ctx.offer('tip', textQuestion())
      await step(ctx)
      await step(ctx)
      const first = offer.peek() as unknown as { content: { value: string } }
      first.content.value = 'changed'
      return offer.peek()
    })
    const running = task.turn()
    await moment()
    task.answer('tip', YES)
    await advance()
    await advance()
    expect(returned(await running)).toEqual(YES)
  })

  it('G5 can be awaited, more than once and in order, and ends the wait when the answer arrives', async () => {
    const seen: string[] = []
    const { step, advance } = stepper()
    const task = createTask(async (ctx) => {
      const offer = ctx.offer('tip', textQuestion())
      const waits = ['first', 'second'].map((name) =>
        offer.then(({ action }) => seen.push(`${name} ${action}`)),
      )
      await Promise.all([...waits, step(ctx)])
      seen.push(`later ${(await offer).action}`)
      return ctx.now()
    })
    const running = task.turn()
    await moment()
    task.flow.clock.now += 7
    task.answer('tip', NO)
    await moment()
    expect(seen).toEqual(['first decline', 'second decline'])
    task.answer('tip', YES)
    await advance()
    const report = await running
    expect(returned(report)).toBe(1_000_007)
    expect(seen).toEqual(['first decline', 'second decline', 'later decline'])
    expect(report.journal.entries).toHaveLength(2)
  })

  it('G5 parks the task while it is awaited, and the next turn has the answer', async () => {
    const handler: Handler = async (ctx) => (await ctx.offer('tip', textQuestion())).action
    const task = createTask(handler)
    expect((await task.turn()).ending).toMatchObject({ kind: 'asking', events: new Set(['tip']) })
    const running = task.turn()
    await moment()
    expect((await running).ending.kind).toBe('asking')
    expect(task.answer('tip', YES)).toBe(false)
    const digest = task.shown[0]?.question.digest ?? ''
    task.flow.asked = { tip: digest }
    const report = await task.flow.round(
      { tip: YES },
      { input: { hooks: { open: async () => 'id', close: async () => {} } } },
    )
    expect(returned(report)).toBe('accept')
  })

  it('offer 2: peek sees what an await has returned, normalized', async () => {
    const task = createTask(async (ctx) => {
      const offer = ctx.offer('tip', textQuestion())
      const { action } = await offer
      return [action, offer.peek()]
    })
    const digest = replayFlow((ctx) => ctx.ask('tip', textQuestion()))
    await digest.round()
    task.flow.asked = digest.asked
    const hooks = { open: async () => 'id', close: async () => {} }
    const { ending, journal } = await task.flow.round(
      { tip: { ...YES, _meta: { x: 1 } } },
      { input: { hooks } },
    )
    expect(ending).toEqual({ kind: 'returned', value: ['accept', YES] })
    expect(journal.entries).toMatchObject([{ key: 'tip', answer: YES }])
    expect(journal.entries[0]).not.toHaveProperty('answer._meta')
  })

  it('R7 gives an effect after a peek that saw an answer another key than after one that did not', async () => {
    const keys: string[] = []
    for (const isAnswered of [true, false]) {
      const { step, advance } = stepper()
      const task = createTask(async (ctx) => {
        const offer = ctx.offer('tip', textQuestion())
        await step(ctx)
        await step(ctx)
        offer.peek()
        await ctx.effect('act', ({ key }) => void keys.push(key))
      })
      const running = task.turn()
      await moment()
      if (isAnswered) task.answer('tip', YES)
      await advance()
      await advance()
      await running
    }
    expect(new Set(keys).size).toBe(2)
  })

  it('G5 that nobody answers does not keep the handler from returning', async () => {
    const task = createTask((ctx) => void ctx.offer('tip', textQuestion()))
    const { ending, journal } = await task.turn()
    expect(ending).toEqual({ kind: 'returned', value: undefined })
    expect(journal.entries).toEqual([])
  })

  it('B17 is shown again with the problem of an answer that does not fit, three times', async () => {
    const { step, advance } = stepper()
    const task = createTask(async (ctx) => {
      const offer = ctx.offer('tip', textQuestion('Any tip?'))
      await step(ctx)
      return offer.peek() ?? 'never answered properly'
    })
    const running = task.turn()
    await moment()
    for (let i = 0; i < 5; i++) {
      task.answer('tip', accept({ value: 7 as never }))
      await moment()
    }
    expect(task.shown.map(({ message }) => message)).toEqual([
      'Any tip?',
      ...Array(3).fill('Value must be a text. Any tip?'),
    ])
    await advance()
    expect(returned(await running)).toBe('never answered properly')
  })

  it('R3 does not take an answer to other words', async () => {
    const { step, advance } = stepper()
    const task = createTask(async (ctx) => {
      const offer = ctx.offer('tip', textQuestion('Any tip?'))
      await step(ctx)
      await step(ctx)
      return offer.peek()?.action
    })
    const running = task.turn()
    await moment()
    task.answer('tip', YES, 'the digest of other words')
    await advance()
    task.answer('tip', NO)
    await moment()
    await advance()
    expect(returned(await running)).toBe('decline')
  })

  it('R3 forgets an answer that was recorded for other words, and is shown again', async () => {
    const offers =
      (message: string): Handler =>
      async (ctx) => {
        const { action } = await ctx.offer('tip', textQuestion(message))
        await ctx.ask('last', textQuestion())
        return action
      }
    const task = createTask(offers('Any tip?'))
    const journal = task.flow.journal
    const running = task.turn()
    await moment()
    await running
    task.flow.asked = { tip: task.shown[0]?.question.digest ?? '' }
    const input = { hooks: { open: async () => 'id', close: async () => {} } }
    expect(askedKeys(await task.flow.round({ tip: YES }, { input }))).toEqual(['last'])
    expect(journal.entries).toEqual([])
    const { ending, journal: after } = await task.turn({ handler: offers('A tip?') })
    expect(ending).toMatchObject({ kind: 'asking', events: new Set(['tip']) })
    expect(after.entries).toEqual([])
    expect(task.shown.at(-1)).toMatchObject({ key: 'tip', message: 'A tip?' })
  })

  it.each<[string, Entry[]]>([
    ['', []],
    [
      ', although other words were answered before',
      [{ kind: 'form', key: 'tip', at: 1_000_000, question: 'the digest of other words', answer: NO }],
    ],
  ])('G5 takes the answer that arrives before the handler offers%s', async (_when, entries) => {
    const { step, advance } = stepper()
    const handler: Handler = async (ctx) => {
      await step(ctx)
      return (await ctx.offer('tip', textQuestion('Any tip?'))).action
    }
    const task = createTask(handler, { journal: { entries } })
    const other = createTask((ctx) => void ctx.offer('tip', textQuestion('Any tip?')))
    await other.turn()
    const digest = other.shown[0]?.question.digest
    const running = task.turn()
    await moment()
    task.answer('tip', YES, digest)
    await advance()
    expect(returned(await running)).toBe('accept')
    expect(task.shown).toEqual([])
  })

  it('G5 is not shown to a client that cannot show it, and peek sees nothing', async () => {
    const task = createTask((ctx) => ctx.offer('tip', textQuestion()).peek() ?? 'nothing', {
      capabilities: {},
    })
    expect(returned(await task.turn())).toBe('nothing')
    expect(task.shown).toEqual([])
  })

  it('turn 3: ends no turn before its showing is durable, and ends the call if that fails', async () => {
    const gate = deferredPromise()
    let ended = false
    const task = createTask((ctx) => void ctx.offer('tip', textQuestion()))
    const running = task.turn({ input: { publish: () => gate.promise } }).finally(() => {
      ended = true
    })
    await moment()
    expect(ended).toBe(false)
    gate.resolve()
    expect((await running).ending.kind).toBe('returned')
    const waits: Handler = async (ctx) => void (await ctx.offer('tip', textQuestion()))
    for (const [error, code] of [
      [new RondoError('STORE_UNAVAILABLE'), 'STORE_UNAVAILABLE'],
      [new Error('away'), 'SERVER_INTERNAL'],
    ] as const) {
      const report = await createTask(waits).turn({ input: { publish: () => Promise.reject(error) } })
      expect(refusal(report)).toBe(code)
      if (code === 'SERVER_INTERNAL') expect(report.ending).toMatchObject({ error: { cause: error } })
    }
  })

  it('R4 takes its name', async () => {
    const task = createTask((ctx) => {
      ctx.offer('tip', textQuestion())
      return ctx.ask('tip', textQuestion())
    })
    expect(refusal(await task.turn())).toBe('REPLAY_NAME_REUSED')
    const twice = createTask(async (ctx) => {
      await ctx.step('tip', () => 1)
      ctx.offer('tip', textQuestion())
    })
    expect(refusal(await twice.turn())).toBe('REPLAY_NAME_REUSED')
    expect(twice.shown).toEqual([])
  })

  it('cannot have a time limit', async () => {
    const { ending } = await createTask(
      (ctx) => void ctx.offer('tip', { ...textQuestion(), within: 5 }),
    ).turn()
    expect(ending).toMatchObject({ kind: 'threw', error: expect.any(TypeError) })
    expect(String((ending as { error: unknown }).error)).toContain('The offer "tip" cannot have a time limit')
  })

  it('is not shown by the second run of development mode', async () => {
    const task = createTask((ctx) => void ctx.offer('tip', textQuestion()).withdraw(), { dev: true })
    expect((await task.turn()).ending.kind).toBe('returned')
    expect([task.shown.length, task.withdrawn]).toEqual([1, ['tip']])
  })
})

describe('an offer that is withdrawn', () => {
  it('G5 is closed for the client, ends the wait for it, and takes no answer', async () => {
    const { step, advance } = stepper()
    let offer: Offer<unknown> | undefined
    const task = createTask(async (ctx) => {
      offer = ctx.offer('tip', textQuestion())
      const waiting = [offer.then(({ action }) => action), offer.then(({ action }) => action)]
      await step(ctx)
      offer.withdraw()
      offer.withdraw()
      const outcomes = await Promise.all(waiting)
      await step(ctx)
      return [...outcomes, (await offer).action, offer.peek()]
    })
    const running = task.turn()
    await moment()
    await advance()
    expect(task.withdrawn).toEqual(['tip'])
    task.answer('tip', YES)
    await advance()
    const report = await running
    expect(returned(report)).toEqual(['cancel', 'cancel', 'cancel', undefined])
    expect(report.journal.entries.map(({ key }) => key)).toEqual(['step 0', 'step 1'])
  })

  it('G5 does not keep the task waiting', async () => {
    const { step, advance } = stepper()
    const task = createTask(async (ctx) => {
      const offer = ctx.offer('tip', textQuestion())
      const waiting = offer.then(({ action }) => action)
      await step(ctx)
      offer.withdraw()
      await Promise.all([waiting, ctx.sleep('nap', '1 min')])
    })
    const running = task.turn()
    await moment()
    await advance()
    expect((await running).ending).toEqual({ kind: 'sleeping', wakeAt: task.flow.clock.now + 60_000 })
  })

  it('G5 peek still sees an answer that was there before, and none that was recorded after', async () => {
    const { step, advance } = stepper()
    const offers = ['before', 'after']
    const task = createTask(async (ctx) => {
      const [before, after] = offers.map((key) => ctx.offer(key, textQuestion()))
      await step(ctx)
      await step(ctx)
      before?.withdraw()
      after?.withdraw()
      await step(ctx)
      return [before?.peek(), after?.peek()]
    })
    const running = task.turn()
    await moment()
    task.answer('before', YES)
    await advance()
    await advance()
    task.answer('after', YES)
    await advance()
    expect(returned(await running)).toEqual([YES, undefined])
  })

  it('is not shown again after an answer that does not fit', async () => {
    const { step, advance } = stepper()
    const task = createTask(async (ctx) => {
      const offer = ctx.offer('tip', textQuestion())
      await step(ctx)
      offer.withdraw()
      await step(ctx)
    })
    const running = task.turn()
    await moment()
    task.answer('tip', accept({ value: 7 as never }))
    const ended = advance()
    await ended
    await advance()
    await running
    expect(task.shown.length).toBeLessThanOrEqual(2)
    expect(task.withdrawn).toEqual(['tip'])
  })

  it('turn 3: ends the call if its withdrawal cannot be made durable', async () => {
    const task = createTask((ctx) => void ctx.offer('tip', textQuestion()).withdraw())
    const report = await task.turn({ input: { withdraw: () => Promise.reject(new Error('away')) } })
    expect(refusal(report)).toBe('SERVER_INTERNAL')
  })

  it('works where the carrier has nothing to withdraw', async () => {
    const task = createTask((ctx) => void ctx.offer('tip', textQuestion()).withdraw())
    const { ending } = await task.turn({ input: { withdraw: undefined, publish: undefined } })
    expect(ending.kind).toBe('returned')
  })
})

describe('an offer in rounds', () => {
  it('G5 is asked when it is awaited, once, and peek sees nothing', async () => {
    const flow = replayFlow(async (ctx) => {
      const offer = ctx.offer('tip', textQuestion())
      const before = offer.peek()
      const [{ action }, again] = [await offer, await offer]
      return [before, action, again.action, offer.peek()]
    })
    expect(askedKeys(await flow.round())).toEqual(['tip'])
    expect(returned(await flow.round({ tip: YES }))).toEqual([undefined, 'accept', 'accept', undefined])
  })

  it('G5 is not asked if nobody awaits it, or once it is withdrawn', async () => {
    const flow = replayFlow(async (ctx) => {
      ctx.offer('unread', textQuestion())
      const offer = ctx.offer('tip', textQuestion())
      offer.withdraw()
      return offer
    })
    expect(returned(await flow.round())).toEqual(WITHDRAWN)
  })

  it('G5 has the answer of a question that was asked before it was withdrawn', async () => {
    const flow = replayFlow(async (ctx) => {
      const offer = ctx.offer('tip', textQuestion())
      const first = offer.then(({ action }) => action)
      offer.withdraw()
      return [await first, (await offer).action]
    })
    expect(askedKeys(await flow.round())).toEqual(['tip'])
    expect(returned(await flow.round({ tip: YES }))).toEqual(['accept', 'accept'])
  })
})

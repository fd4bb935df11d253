/**
 * The key of an effect is the same in every attempt of a flow, whatever crashes and whenever answers arrive, and differs
 * if the answers differ (R7, R10).
 */

import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { z } from 'zod'
import {
  accept,
  deferredPromise,
  type Handler,
  type ReplayFlow,
  replayFlow,
  returned,
  textQuestion,
} from '../../../../test/support/replay-flow.ts'
import { RondoError } from '../errors.ts'
import type { BegunEffect, Entry } from '../journal/journal.ts'
import { idle } from '../lib/clock.ts'
import type { Context } from '../tool/context.ts'
import type { ReplayInput, Undoing } from './input.ts'
import type { RunReport } from './run-state.ts'

type Leaf = 'ask' | 'slow ask' | 'step' | 'effect'
/** Branches that run beside each other, each a sequence. */
type Program = Leaf[][]

const program: fc.Arbitrary<Program> = fc.array(
  fc.array(fc.constantFrom<Leaf>('ask', 'ask', 'slow ask', 'step', 'effect', 'effect'), {
    minLength: 1,
    maxLength: 4,
  }),
  { minLength: 1, maxLength: 3 },
)

const pause = (turns: number): Promise<void> =>
  turns === 0 ? Promise.resolve() : new Promise<void>((resolve) => idle(() => pause(turns - 1).then(resolve)))

/** Cycles through the items, so that no two attempts take equally long. */
function stream<T>(items: readonly T[]): () => T {
  let next = 0
  return () => items[next++ % items.length] as T
}

interface Attempt {
  readonly name: string
  readonly key: string
  /** The answers that the handler had received when the effect began, which is later than when it was called. */
  readonly begun: string
}

interface World {
  attempts: Attempt[]
  delay(): number
  /** An event at which the process may die; then the promise never resolves. */
  tick(): Promise<void>
}

/** Validates slowly: its answers are read later than those of others. */
const slowly = (delay: () => number) => ({
  message: 'Say something',
  schema: z.object({ value: z.string().refine(() => pause(delay()).then(() => true)) }),
})

function toHandler(branches: Program, world: World): Handler {
  const run = async (ctx: Context, seen: string[], kind: Leaf, name: string): Promise<void> => {
    if (kind === 'step') await ctx.step(name, () => pause(world.delay()).then(world.tick))
    else if (kind === 'effect') {
      await ctx.effect(name, async ({ key }) => {
        world.attempts.push({ name, key, begun: seen.toSorted().join() })
        await pause(world.delay())
        await world.tick()
      })
    } else {
      if (kind === 'ask') await ctx.elicit(name, textQuestion())
      else await ctx.elicit(name, slowly(world.delay))
      seen.push(name)
    }
  }
  return async (ctx) => {
    const seen: string[] = []
    await Promise.all(
      branches.map(async (leaves, b) => {
        for (const [i, kind] of leaves.entries()) await run(ctx, seen, kind, `${b}.${i}`)
      }),
    )
    return 'done'
  }
}

interface Chances {
  readonly delays: readonly number[]
  /** The open questions that are answered before the next turn. */
  readonly arrivals: readonly boolean[]
  /** After how many events of a turn its process dies. */
  readonly crashes: readonly number[]
}

const chances: fc.Arbitrary<Chances> = fc.record({
  delays: fc.array(fc.nat({ max: 3 }), { minLength: 1, maxLength: 12 }),
  arrivals: fc.array(fc.boolean(), { minLength: 1, maxLength: 12 }),
  crashes: fc.array(fc.nat({ max: 6 }), { maxLength: 6 }),
})

/** No crash, and every question is answered at once. */
const SMOOTH: Chances = { delays: [0], arrivals: [true], crashes: [] }

/** `task`: an entry is durable before its result is delivered. `token`: a round is kept when it ends, or repeated whole. */
type Carrier = 'task' | 'token'

async function live(
  carrier: Carrier,
  branches: Program,
  { delays, arrivals, crashes }: Chances,
): Promise<Attempt[]> {
  const attempts: Attempt[] = []
  const delay = stream(delays)
  const arrives = stream([...arrivals, true])
  const left = [...crashes]
  let durable: Entry[] = []
  let asked: ReplayFlow['asked'] = {}
  let answers: Record<string, unknown> = {}
  const arrive = (): void => {
    for (const key of Object.keys(asked))
      if (!(key in answers) && arrives()) answers[key] = accept({ value: key })
  }
  for (let turn = 0; turn < 200; turn++) {
    const died = deferredPromise<'died'>()
    const diesAfter = left.shift() ?? Number.POSITIVE_INFINITY
    let events = 0
    const tick = (): Promise<void> => {
      if (events++ < diesAfter) return Promise.resolve()
      died.resolve('died')
      return new Promise(() => {})
    }
    const alive = (): boolean => events <= diesAfter
    const own: Attempt[] = []
    const entries = [...durable]
    const flow = replayFlow(toHandler(branches, { attempts: own, delay, tick }), {
      anchored: true,
      journal: { entries },
    })
    flow.asked = asked
    const persist = async (entry: Entry): Promise<void> => {
      await tick()
      if (alive()) durable.push(entry)
    }
    const outcome = await Promise.race([
      flow.round(answers, carrier === 'task' ? { persist } : {}),
      died.promise,
    ])
    attempts.push(...own)
    if (outcome === 'died') {
      // With the token carrier the same request comes again; in a task, more answers may have arrived meanwhile.
      if (carrier === 'task') arrive()
      continue
    }
    if (outcome.ending.kind === 'returned') return attempts
    asked = openDigests(outcome)
    answers = {}
    arrive()
    if (carrier === 'token') durable = [...outcome.journal.entries]
  }
  throw new Error('the flow does not end')
}

function openDigests({ ending }: RunReport): Record<string, string> {
  if (ending.kind !== 'asking') throw new Error(`the run ended as ${ending.kind}`)
  return Object.fromEntries(Array.from(ending.questions, ([key, { digest }]) => [key, digest]))
}

function byName(attempts: readonly Attempt[], of: 'key' | 'begun'): Map<string, Set<string>> {
  const found = new Map<string, Set<string>>()
  for (const attempt of attempts)
    found.set(attempt.name, (found.get(attempt.name) ?? new Set()).add(attempt[of]))
  return found
}

describe('R7 one key per effect', () => {
  it.each(['task', 'token'] as const)(
    'R7 keeps the key across crashes and whenever answers arrive, with the %s carrier',
    async (carrier) => {
      let repeated = 0
      let ambiguous = 0
      await fc.assert(
        fc.asyncProperty(program, chances, async (branches, chance) => {
          const attempts = await live(carrier, branches, chance)
          const keys = byName(attempts, 'key')
          for (const [name, set] of keys) expect([...set], name).toHaveLength(1)
          repeated += attempts.length - keys.size
          ambiguous += [...byName(attempts, 'begun').values()].filter((set) => set.size > 1).length
        }),
        { numRuns: 400 },
      )
      expect(repeated).toBeGreaterThan(50)
      // Negative control: in a task, a key derived when the effect begins would not have stayed the same.
      if (carrier === 'task') expect(ambiguous).toBeGreaterThan(0)
    },
  )

  it('R10 derives a key that does not depend on the order of the answers', async () => {
    const handler: Handler = async (ctx) => {
      await Promise.all([ctx.ask('a', textQuestion()), ctx.ask('b', textQuestion())])
      return ctx.effect('pay', ({ key }) => key)
    }
    const a = accept({ value: '1' })
    const b = accept({ value: '2' })
    const keyAfter = async (...rounds: Record<string, unknown>[]): Promise<unknown> => {
      const flow = replayFlow(handler)
      await flow.round()
      let last: RunReport | undefined
      for (const answers of rounds) last = await flow.round(answers)
      return last && returned(last)
    }
    const key = await keyAfter({ a, b })
    expect(key).toMatch(/^[0-9a-f]{32}$/)
    expect(await keyAfter({ b }, { a })).toBe(key)
    expect(await keyAfter({ a }, { b })).toBe(key)
  })

  it('R10 derives the same key with every carrier', async () => {
    await fc.assert(
      fc.asyncProperty(program, async (branches) => {
        const keys = async (carrier: Carrier) => byName(await live(carrier, branches, SMOOTH), 'key')
        expect(await keys('task')).toEqual(await keys('token'))
      }),
      { numRuns: 100 },
    )
  })
})

describe('R7 another key in another branch', () => {
  const order: Handler = async (ctx) => {
    const first = await ctx.effect('hold', ({ key }) => key)
    const outcome = await ctx.elicit('qty', textQuestion())
    return [first, await ctx.effect('charge', ({ key }) => key), outcome.action]
  }

  const keysOn = async (answer: unknown, handler = order): Promise<unknown> => {
    const flow = replayFlow(handler, { anchored: true })
    await flow.round()
    return returned(await flow.round({ qty: answer }))
  }

  it('R7 derives another key for each answer, a decline and a cancel included, and leaves earlier effects alone', async () => {
    const answers = [
      accept({ value: '1' }),
      accept({ value: '1000' }),
      { action: 'decline' },
      { action: 'cancel' },
    ]
    const keys = (await Promise.all(answers.map((answer) => keysOn(answer)))) as string[][]
    expect(new Set(keys.map(([hold]) => hold)).size).toBe(1)
    expect(new Set(keys.map(([, charge]) => charge)).size).toBe(4)
    expect(await keysOn(answers[0])).toEqual(keys[0])
  })

  it('R7 derives the key from flow and name alone if there was no answer', async () => {
    const flow = replayFlow((ctx) => ctx.effect('hold', ({ key }) => key), { anchored: true })
    // HMAC-SHA-256 of "effect:hold" under "seed": the derivation of every version so far.
    expect(returned(await flow.round())).toBe('c623455c11f8db36762ab1261b6b9fb2')
  })

  it('R7 leaves steps out of the key: a result may differ when a lost round runs again', async () => {
    const withStep =
      (value: number): Handler =>
      async (ctx) => {
        await ctx.step('rate', () => value)
        return order(ctx)
      }
    const answer = accept({ value: '1' })
    expect(await keysOn(answer, withStep(1))).toEqual(await keysOn(answer, withStep(2)))
  })

  it('R7 includes what a handler in the manual form reads, and only if it reads it', async () => {
    const keyOf = async (handler: Handler, inputResponses: object | undefined, requestState?: string) =>
      returned(
        await replayFlow(handler, { anchored: true }).round(undefined, {
          input: { inputResponses: () => inputResponses as never, requestState },
        }),
      )
    const keyIn = ({ key }: { key: string }) => key
    const charge = (ctx: Context) => ctx.effect('charge', keyIn)
    const reads: Handler = (ctx) => ctx.inputResponses !== null && charge(ctx)
    const destructures: Handler = ({ inputResponses, ...ctx }) =>
      inputResponses !== null && ctx.effect('charge', keyIn)
    const readsState: Handler = (ctx) => ctx.requestState !== null && charge(ctx)
    const one = { qty: accept({ value: '1' }) }
    const many = { qty: accept({ value: '1000' }) }
    expect(await keyOf(reads, one)).not.toBe(await keyOf(reads, many))
    expect(await keyOf(destructures, one)).toBe(await keyOf(reads, one))
    expect(await keyOf(readsState, {}, 'qty=1')).not.toBe(await keyOf(readsState, {}, 'qty=1000'))
    expect(await keyOf(charge, one)).toBe(await keyOf(charge, many))
    expect(await keyOf(reads, undefined)).toBe(await keyOf(charge, one))
  })
})

describe('R7 the same answer with other members', () => {
  const noise = { _meta: { sentAt: 1 }, extra: 'x' }
  const page = { message: 'Open', url: 'https://example.com/' }
  const yes = { action: 'accept', content: { confirm: true } }

  it.each<[string, (ctx: Context) => Promise<unknown>, object, object]>([
    ['a yes', (ctx) => ctx.confirm('q', 'Sure?'), yes, { ...yes, content: { ...yes.content, extra: 1 } }],
    [
      'a form',
      (ctx) => ctx.ask('q', textQuestion()),
      accept({ value: 'x' }),
      accept({ value: 'x', extra: 1 }),
    ],
    [
      'a decline',
      (ctx) => ctx.confirm('q', 'Sure?'),
      { action: 'decline' },
      { action: 'decline', content: {} },
    ],
    [
      'a cancel',
      (ctx) => ctx.elicit('q', textQuestion()),
      { action: 'cancel' },
      { action: 'cancel', content: {} },
    ],
    [
      'a visit',
      (ctx) => ctx.visit('q', page),
      { action: 'accept' },
      { action: 'accept', content: { extra: 1 } },
    ],
    ['roots', (ctx) => ctx.roots('q'), { roots: [{ uri: 'file:///a' }] }, { roots: [{ uri: 'file:///a' }] }],
  ])('R7 derives the same key: %s', async (_name, question, plain, padded) => {
    const keyAfter = async (answer: object): Promise<unknown> => {
      const flow = replayFlow(async (ctx) => {
        await question(ctx)
        return ctx.effect('pay', ({ key }) => key)
      })
      await flow.round()
      return returned(await flow.round({ q: answer }))
    }
    const key = await keyAfter(plain)
    expect(key).toMatch(/^[0-9a-f]{32}$/)
    expect(await keyAfter({ ...padded, ...noise })).toBe(key)
  })
})

describe('the key of an effect that can be undone', () => {
  const undoing: Undoing = { isLinear: true, keep: async () => {} }
  const undo = (): void => {}

  it('R7 is that of its intent, even in a release that asks something before it', async () => {
    const keys: string[] = []
    const books: Handler = (ctx) => ctx.effect('flight', ({ key }) => void keys.push(key), { undo })
    const flow = replayFlow(books, { anchored: true })
    const fails: Undoing = {
      ...undoing,
      async keep(_journal, news) {
        if (news === 'outcome') throw new RondoError('STORE_UNAVAILABLE')
      },
    }
    flow.journal = (await flow.round(undefined, { input: { undoing: fails } })).journal
    const handler: Handler = async (ctx) => {
      await ctx.ask('q', textQuestion())
      return books(ctx)
    }
    await flow.round(undefined, { handler, input: { undoing } })
    returned(await flow.round({ q: accept({ value: 'x' }) }, { handler, input: { undoing } }))
    expect(keys).toHaveLength(2)
    expect(keys[1]).toBe(keys[0])
  })

  it('R7 belongs to the branch whose slot it claims, which is noted only for one that runs once', async () => {
    for (const options of [{ undo, once: true }, { undo }]) {
      const claimed: string[] = []
      const begun: BegunEffect[] = []
      const input: Partial<ReplayInput> = {
        undoing,
        async once(_key, branch, act) {
          claimed.push(branch)
          return act()
        },
        persistBegun: async (effect) => void begun.push(effect),
      }
      const flow = replayFlow(async (ctx) => {
        await ctx.ask('q', textQuestion())
        return ctx.effect('flight', () => 'booked', options)
      })
      await flow.round(undefined, { input })
      expect(returned(await flow.round({ q: accept({ value: 'x' }) }, { input }))).toBe('booked')
      expect(claimed).toHaveLength('once' in options ? 1 : 0)
      expect(begun.map(({ branch }) => branch)).toEqual([claimed[0]])
    }
  })
})

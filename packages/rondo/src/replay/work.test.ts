import { describe, expect, it } from 'vitest'
import {
  accept,
  askedKeys,
  deferredPromise,
  type Handler,
  refusal,
  replayFlow,
  returned,
  textQuestion,
} from '../../../../test/support/replay-flow.ts'
import { ToolError } from '../errors.ts'
import { narrowJournal, type RecordedFailure, type WorkEntry } from '../journal/journal.ts'
import type { RunReport } from './run-state.ts'
import { originOf } from './work.ts'

function fail(): never {
  throw new Error('unreadable')
}

function messageOf({ ending }: RunReport): string {
  return ending.kind === 'refused' ? ending.error.message : ending.kind
}

describe('R4 names', () => {
  it('R4 finds answers and results by name when the code is reordered', async () => {
    const before: Handler = async (ctx) => {
      const a = await ctx.step('a', () => 'A')
      const b = await ctx.step('b', () => 'B')
      await ctx.ask('q', textQuestion())
      return a + b
    }
    const after: Handler = async (ctx) => {
      const b = await ctx.step('b', () => 'again')
      const a = await ctx.step('a', () => 'again')
      const { value } = await ctx.ask('q', textQuestion())
      return a + b + value
    }
    const flow = replayFlow(before)
    await flow.round()
    expect(returned(await flow.round({ q: accept({ value: '!' }) }, { handler: after }))).toBe('AB!')
  })

  it('R4 refuses a name that is used twice, and says what to do', async () => {
    const handlers: Handler[] = [
      async (ctx) => {
        for (const _ of [1, 2]) await ctx.step('item', () => 1)
      },
      (ctx) => Promise.all([ctx.ask('item', textQuestion()), ctx.ask('item', textQuestion())]),
      (ctx) => Promise.all([ctx.ask('item', textQuestion()), ctx.step('item', () => 1)]),
    ]
    for (const handler of handlers) {
      const report = await replayFlow(handler).round()
      expect(refusal(report)).toBe('REPLAY_NAME_REUSED')
      expect(messageOf(report)).toMatch(/`item:\$\{id\}`/)
    }
  })

  it('R4 refuses a name that was recorded for another kind of operation', async () => {
    const flow = replayFlow(async (ctx) => {
      await ctx.step('x', () => 1)
      await ctx.ask('q', textQuestion())
    })
    await flow.round()
    const report = await flow.round({}, { handler: (ctx) => ctx.effect('x', () => 1) })
    expect(refusal(report)).toBe('REPLAY_KIND_CHANGED')
  })

  it('refuses invalid names', async () => {
    for (const name of ['', '__proto__', 'constructor', 'x'.repeat(129), 5 as never]) {
      const { ending } = await replayFlow((ctx) => ctx.step(name, () => 1)).round()
      expect(ending.kind === 'threw' && ending.error).toBeInstanceOf(TypeError)
    }
  })

  it.each([
    ['__proto__', /other than __proto__, constructor, prototype; got "__proto__"\./],
    ['x'.repeat(100_000), /got "x{128}"…, which has 100000\. The next round/],
  ])('says what is wrong with a name, without quoting all of it', async (name, message) => {
    const { ending } = await replayFlow((ctx) => ctx.step(name, () => 1)).round()
    expect(ending.kind === 'threw' && String(ending.error)).toMatch(message)
  })
})

describe('R7 at least once, with one key', () => {
  it('R7 uses the same key when a round is repeated because its response was lost', async () => {
    const keys: string[] = []
    const flow = replayFlow(
      async (ctx) => {
        await ctx.effect('charge', ({ key }) => void keys.push(key))
        await ctx.effect('mail', ({ key }) => void keys.push(key))
        await ctx.ask('q', textQuestion())
      },
      { anchored: true },
    )
    const { journal, asked } = flow
    await flow.round()
    Object.assign(flow, { journal, asked })
    await flow.round()
    expect(keys).toHaveLength(4)
    expect(keys.slice(2)).toEqual(keys.slice(0, 2))
    expect(keys[0]).not.toBe(keys[1])
  })

  it('R7 uses another key in another flow', async () => {
    const keyOf = async (seed: string) =>
      returned(
        await replayFlow((ctx) => ctx.effect('e', ({ key }) => key), {
          anchored: true,
          journal: { seed },
        }).round(),
      )
    expect(await keyOf('one')).not.toBe(await keyOf('two'))
    expect(await keyOf('one')).toBe(await keyOf('one'))
  })

  it('R7 throws the same error in the handler on the first run and on a replay', async () => {
    class DiskFull extends Error {
      override name = 'DiskFull'
      code = 'ENOSPC'
    }
    const seen: unknown[] = []
    const flow = replayFlow(async (ctx) => {
      const failing = ctx.step('write', () => {
        throw new DiskFull('no space')
      })
      const error = await failing.catch((caught: unknown) => caught)
      seen.push(
        error instanceof Error && {
          ...error,
          name: error.name,
          message: error.message,
          own: error instanceof DiskFull,
        },
      )
      await ctx.ask('q', textQuestion())
    })
    await flow.round()
    await flow.round({ q: accept({ value: '' }) })
    expect(seen[0]).toEqual({ name: 'DiskFull', message: 'no space', code: 'ENOSPC', own: false })
    expect(seen[1]).toEqual(seen[0])
  })

  it('rethrows a ToolError of a step as a ToolError', async () => {
    const flow = replayFlow((ctx) =>
      ctx.step('s', async () => {
        throw new ToolError('out of stock')
      }),
    )
    const { ending } = await flow.round()
    expect(ending.kind === 'threw' && ending.error).toBeInstanceOf(ToolError)
  })

  it('refuses results that JSON would change, and says where', async () => {
    const bad: [unknown, string][] = [
      [new Date(0), 'the value itself is a Date'],
      [{ when: { at: new Date(0) } }, 'when.at is a Date'],
      [[1, Number.NaN], '[1] is NaN'],
      [new Map(), 'the value itself is a Map'],
      [{ f: () => 1 }, 'f is a function'],
      [10n, 'the value itself is a bigint'],
    ]
    for (const [value, where] of bad) {
      const report = await replayFlow((ctx) => ctx.step('s', () => value)).round()
      expect(refusal(report)).toBe('REPLAY_NOT_JSON')
      expect(messageOf(report)).toContain(where)
    }
  })

  it('returns undefined, null and nested JSON unchanged', async () => {
    for (const value of [undefined, null, 0, '', false, [], {}, { a: [{ b: null }] }]) {
      const flow = replayFlow(async (ctx) => {
        const got = await ctx.step('s', () => value)
        await ctx.ask('q', textQuestion())
        return { got }
      })
      await flow.round()
      expect(returned(await flow.round({ q: accept({ value: '' }) }))).toEqual({ got: value })
    }
  })
})

describe('R7 the error of a step', () => {
  /** As read back from a state or a store. */
  const throughJson = (report: RunReport): RecordedFailure => {
    const journal = narrowJournal(JSON.parse(JSON.stringify(report.journal)))
    if (!journal) throw new Error('the journal cannot be read back')
    return (journal.entries[0] as WorkEntry & { failure: RecordedFailure }).failure
  }
  const odd = (members: Record<string, unknown>): Error =>
    Object.defineProperties(new Error('m'), toProperties(members))
  const toProperties = (members: Record<string, unknown>): PropertyDescriptorMap =>
    Object.fromEntries(Object.entries(members).map(([name, value]) => [name, { value }]))

  it.each<[string, unknown, Partial<RecordedFailure>]>([
    ['a message that is an object', odd({ message: { text: 'no' } }), { message: '[object Object]' }],
    ['a message that is missing', odd({ message: undefined }), { message: 'undefined' }],
    ['a name that is a number', odd({ name: 5 }), { name: '5' }],
    ['a code that is NaN', odd({ code: Number.NaN }), { message: 'm' }],
    [
      'a message that throws',
      Object.defineProperty(new Error('m'), 'message', { get: fail }),
      { name: 'Error' },
    ],
    ['an object without a text', Object.create(null), { message: 'unknown' }],
    ['a symbol', Symbol('why'), { message: 'Symbol(why)' }],
    ['nothing', undefined, { message: 'undefined' }],
  ])('R7 records %s as text, and the flow continues', async (_what, thrown, expected) => {
    const flow = replayFlow(async (ctx) => {
      await ctx.step('s', () => Promise.reject(thrown)).catch(() => {})
      await ctx.ask('q', textQuestion())
      return 'done'
    })
    expect(throughJson(await flow.round())).toMatchObject(expected)
    expect(returned(await flow.round({ q: accept({ value: '' }) }))).toBe('done')
  })

  it('R7 uses the first result of a thenable that settles twice', async () => {
    const twice = {
      // biome-ignore lint/suspicious/noThenProperty: it is what is tested.
      then(done: (value: unknown) => void, failed: (error: unknown) => void) {
        done('first')
        done('second')
        failed(new Error('third'))
      },
    }
    const flow = replayFlow(async (ctx) => {
      const got = await ctx.step('s', () => twice as never)
      await ctx.ask('q', textQuestion())
      return got
    })
    expect(askedKeys(await flow.round())).toEqual(['q'])
    expect(returned(await flow.round({ q: accept({ value: '' }) }))).toBe('first')
    expect(returned(await replayFlow(() => twice).round())).toBe('first')
  })

  it('R7 calls `then` of a lazy thenable once', async () => {
    let queries = 0
    const lazy = {
      // biome-ignore lint/suspicious/noThenProperty: it is what is tested.
      then(done: (value: unknown) => void) {
        queries += 1
        done(queries)
      },
    }
    expect(returned(await replayFlow((ctx) => ctx.step('s', () => lazy as never)).round())).toBe(1)
    expect(queries).toBe(1)
  })

  it('keeps the thrown error for the log, and shows the handler only the recorded form', async () => {
    const thrown = new Error('no disk', { cause: 'secret' })
    const flow = replayFlow(
      async (ctx) => {
        const error = await ctx.effect('e', () => Promise.reject(thrown)).catch((caught: unknown) => caught)
        await ctx.ask('q', textQuestion())
        throw error
      },
      { anchored: true },
    )
    const live = await replayFlow((ctx) => ctx.effect('e', () => Promise.reject(thrown)), {
      anchored: true,
    }).round()
    if (live.ending.kind !== 'threw') throw new Error('expected an error')
    expect(live.ending.error).not.toBe(thrown)
    expect(live.ending.error).not.toHaveProperty('cause')
    expect(originOf(live.ending.error)).toBe(thrown)
    await flow.round()
    const { ending } = await flow.round({ q: accept({ value: '' }) })
    expect(ending.kind === 'threw' && originOf(ending.error)).toMatchObject({ message: 'no disk' })
  })

  it('R9 records a value of 1,000 levels and refuses one of 1,001', async () => {
    const nested = (levels: number): unknown => (levels === 0 ? 'leaf' : [nested(levels - 1)])
    const flow = (levels: number) => replayFlow((ctx) => ctx.step('s', () => nested(levels))).round()
    expect(JSON.stringify(returned(await flow(1_000)))).toBe(JSON.stringify(nested(1_000)))
    const report = await flow(1_001)
    expect(refusal(report)).toBe('REPLAY_NOT_JSON')
    expect(messageOf(report)).toMatch(/cannot be recorded: [[\]0]{200} is nested deeper than 1000 levels/)
  })
})

describe('ctx.background', () => {
  const handler: Handler = async (ctx) => {
    await ctx.background()
    return 'continued'
  }

  it('continues at once if the call cannot become a task', async () => {
    expect(returned(await replayFlow(handler).round())).toBe('continued')
  })

  it('leaves in the first round: unlike an effect, it does not need a client that holds a state', async () => {
    const leaving = { input: { background: { possible: true, setStatus: () => {} } } }
    expect((await replayFlow(handler).round(undefined, leaving)).ending).toEqual({ kind: 'background' })
  })

  it('leaves only when the work beside it is recorded', async () => {
    const gate = deferredPromise()
    const flow = replayFlow((ctx) =>
      Promise.all([ctx.background(), ctx.step('s', () => gate.promise.then(() => 1))]),
    )
    const round = flow.round(undefined, { input: { background: { possible: true, setStatus: () => {} } } })
    gate.resolve()
    const { ending, journal } = await round
    expect(ending.kind).toBe('background')
    expect(journal.entries).toEqual([expect.objectContaining({ key: 's', value: 1 })])
  })
})

describe('R9 limits', () => {
  it('R9 limits the entries of a journal', async () => {
    const report = await replayFlow(
      async (ctx) => {
        for (let i = 0; i < 10; i++) await ctx.step(`s${i}`, () => i)
      },
      { limits: { maxEntries: 5 } },
    ).round()
    expect(refusal(report)).toBe('LIMIT_ENTRIES')
  })

  it('R9 limits the questions of a round', async () => {
    const report = await replayFlow(
      (ctx) => Promise.all(Array.from({ length: 4 }, (_, i) => ctx.ask(`q${i}`, textQuestion()))),
      { limits: { maxQuestions: 3 } },
    ).round()
    expect(refusal(report)).toBe('LIMIT_QUESTIONS')
  })
})

describe('a run whose instance releases the call', () => {
  const threeSteps =
    (ran: string[]): Handler =>
    async (ctx) => {
      for (const name of ['a', 'b', 'c']) await ctx.step(name, () => void ran.push(name))
      return 'done'
    }

  it('B20 ends at its next step and does not repeat what was done', async () => {
    const ran: string[] = []
    const flow = replayFlow(threeSteps(ran))
    const first = await flow.round(undefined, { mayMove: (executed) => (executed >= 2 ? 'shed' : undefined) })
    expect(first.ending).toEqual({ kind: 'moved', reason: 'shed' })
    expect(returned(await flow.round())).toBe('done')
    expect(ran).toEqual(['a', 'b', 'c'])
  })

  it('finishes running work before it ends', async () => {
    const gate = deferredPromise()
    const ran: string[] = []
    const flow = replayFlow(async (ctx) => {
      await Promise.all([
        ctx.step('slow', async () => {
          await gate.promise
          ran.push('slow')
        }),
        (async () => {
          await ctx.step('quick', () => void ran.push('quick'))
          await ctx.step('next', () => void ran.push('next'))
        })(),
      ])
      return 'done'
    })
    const round = flow.round(undefined, { mayMove: (executed) => (executed >= 2 ? 'drain' : undefined) })
    gate.resolve()
    expect((await round).ending).toEqual({ kind: 'moved', reason: 'drain' })
    expect(ran).toEqual(['quick', 'slow'])
    expect(returned(await flow.round())).toBe('done')
    expect(ran).toEqual(['quick', 'slow', 'next'])
  })

  it('may end at a checkpoint, which otherwise does nothing', async () => {
    const handler: Handler = async (ctx) => {
      await ctx.checkpoint()
      return 'continued'
    }
    expect(returned(await replayFlow(handler).round())).toBe('continued')
    expect((await replayFlow(handler).round(undefined, { mayMove: () => 'drain' })).ending.kind).toBe('moved')
  })

  it('asks in the same round if there is a question anyway', async () => {
    const flow = replayFlow((ctx) => Promise.all([ctx.ask('q', textQuestion()), ctx.step('s', () => 1)]))
    expect(askedKeys(await flow.round(undefined, { mayMove: () => 'drain' }))).toEqual(['q'])
  })
})

describe('R11 values that cannot be inspected', () => {
  const revoked = (): object => {
    const { proxy, revoke } = Proxy.revocable({}, {})
    revoke()
    return proxy
  }
  const unreadable = () => ({
    get value(): never {
      return fail()
    },
  })

  it.each<[string, () => unknown]>([
    ['at once', unreadable],
    ['in a promise', async () => unreadable()],
    ['through a proxy that throws', async () => new Proxy([], { get: (_, key) => key !== 'then' && fail() })],
  ])('R11 ends the call if the result of a step throws when it is read, %s', async (_when, fn) => {
    for (const kind of ['step', 'effect'] as const) {
      const flow = replayFlow(async (ctx) => {
        await ctx.ask('q', textQuestion())
        await ctx[kind]('work', fn as never)
      })
      await flow.round()
      const report = await flow.round({ q: accept({ value: 'x' }) })
      expect(refusal(report)).toBe('REPLAY_NOT_JSON')
      expect(messageOf(report)).toContain('reading it throws')
    }
  })

  it.each<[string, () => unknown]>([
    [
      'throws',
      () => {
        throw revoked()
      },
    ],
    ['rejects with', () => Promise.reject(revoked())],
  ])('R11 records a failure if a step %s a value on which instanceof throws', async (_how, fn) => {
    const report = await replayFlow(async (ctx) => {
      try {
        await ctx.step('work', fn as never)
      } catch (error) {
        return (error as Error).message
      }
    }).round()
    expect(returned(report)).toBe('unknown')
  })
})

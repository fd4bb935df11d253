/**
 * The messages that a client receives round by round: the wire types (A), which questions are asked when (B), and where a flow ends
 * (R9). Each round reaches another instance.
 */

import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { type Context, createServer, type LogEvent, type ServerOptions } from 'rondo'
import { createBench, type Script, type TestBench, type TestCall, type TestRound } from 'rondo/testing'
import { describe, expect, it } from 'vitest'
import { z } from 'zod'

const text = (message: string) => ({ message, schema: z.object({ value: z.string().min(2) }) })
const value = async (ctx: Context, key: string) => (await ctx.ask(key, text(`Which ${key}?`))).value

type Handler = (ctx: Context) => unknown

/** A bench whose servers have one tool, `go`. */
function benchOf(handler: Handler, limits?: ServerOptions['limits']): TestBench {
  return createBench((options) => {
    const server = createServer({
      name: 'rounds',
      version: '1.0.0',
      limits,
      ...options,
      dev: false,
      store: undefined,
    })
    server.tool('go', { description: 'Does it' }, async (_args, ctx) => String(await handler(ctx)))
    return server
  })
}

function next(call: TestCall, answers?: Script): Promise<TestRound> {
  return call.otherInstance().next(answers)
}

function questionsOf(round: TestRound): string[] {
  return round.kind === 'input_required' ? Object.keys(round.questions) : [round.kind]
}

async function startOf(
  handler: Handler,
  limits?: ServerOptions['limits'],
): Promise<{ call: TestCall; first: TestRound }> {
  const call = benchOf(handler, limits).tool('go')
  return { call, first: await next(call) }
}

describe('an input_required result', () => {
  it('A1 A3 contains a map from keys to requests of the four kinds, and a state', async () => {
    const { first } = await startOf(async (ctx) => {
      const messages = [{ role: 'user', content: { type: 'text', text: 'Hello' } }]
      await Promise.all([
        ctx.ask('form', text('What?')),
        ctx.visit('page', { message: 'Open it', url: 'https://example.com/x' }),
        ctx.sample('model', { messages, maxTokens: 5 }),
        ctx.roots('roots'),
      ])
    })
    expect(first).toEqual({
      kind: 'input_required',
      state: expect.stringMatching(/^r1\.[\w-]+$/),
      questions: {
        form: {
          method: 'elicitation/create',
          params: {
            mode: 'form',
            message: 'What?',
            requestedSchema: expect.objectContaining({ type: 'object' }),
          },
        },
        page: {
          method: 'elicitation/create',
          params: {
            mode: 'url',
            message: 'Open it',
            url: 'https://example.com/x',
            elicitationId: expect.stringMatching(/^[0-9a-f]{32}$/),
          },
        },
        model: { method: 'sampling/createMessage', params: expect.objectContaining({ maxTokens: 5 }) },
        roots: expect.objectContaining({ method: 'roots/list' }),
      },
    })
  })

  it('A3 contains a state alone if nothing is asked', async () => {
    const { first } = await startOf((ctx) => ctx.effect('save', () => 'saved'))
    expect(first).toEqual({ kind: 'input_required', questions: {}, state: expect.any(String) })
  })

  it('B10 T6 is replaced by the missing-capability error if the client did not declare the kind', async () => {
    const cases: [string, Record<string, object>, Handler, object][] = [
      ['form', {}, (ctx) => value(ctx, 'a'), { elicitation: { form: {} } }],
      [
        'url',
        { elicitation: { form: {} } },
        (ctx) => ctx.visit('a', { message: 'x', url: 'https://example.com' }),
        { elicitation: { url: {} } },
      ],
      [
        'sampling',
        { elicitation: {} },
        (ctx) => ctx.sample('a', { messages: [], maxTokens: 1 }),
        { sampling: {} },
      ],
      ['roots', { sampling: {} }, (ctx) => ctx.roots(), { roots: {} }],
    ]
    for (const [kind, capabilities, handler, required] of cases) {
      const round = await benchOf(handler).tool('go', {}, { capabilities }).next()
      expect([kind, round]).toEqual([
        kind,
        expect.objectContaining({
          code: -32021,
          message: expect.stringMatching(/^This client cannot be asked: .* Nothing was done\. /),
          data: { requiredCapabilities: expect.objectContaining(required) },
        }),
      ])
    }
  })
})

describe('a flow', () => {
  it('B12 B13 asks in as many rounds as it needs, each question once, on instances that share nothing', async () => {
    const names = ['one', 'two', 'three', 'four', 'five']
    const { call, first } = await startOf(async (ctx) => {
      const values: string[] = []
      for (const name of names) values.push(await value(ctx, name))
      return values.join(' ')
    })
    const asked = [questionsOf(first)]
    for (const name of names) asked.push(questionsOf(await next(call, { [name]: { value: `<${name}>` } })))
    expect(asked).toEqual([['one'], ['two'], ['three'], ['four'], ['five'], ['complete']])
  })

  it('B13 has all answers at the end, although the client sent each only once', async () => {
    const { call } = await startOf(async (ctx) => `${await value(ctx, 'a')} ${await value(ctx, 'b')}`)
    await next(call, { a: { value: 'first' } })
    expect(await next(call, { b: { value: 'second' } })).toMatchObject({ text: 'first second' })
  })

  it('B16 asks again only for the answer that is missing', async () => {
    const both: Handler = async (ctx) => (await Promise.all([value(ctx, 'a'), value(ctx, 'b')])).join(' ')
    const { call, first } = await startOf(both)
    expect(questionsOf(first)).toEqual(['a', 'b'])
    expect(questionsOf(await next(call, { a: { value: 'here' } }))).toEqual(['b'])
    expect(questionsOf(await next(call))).toEqual(['b'])
    expect(await next(call, { b: { value: 'there' } })).toMatchObject({ text: 'here there' })
  })

  it('B15 ignores responses that nobody requested', async () => {
    const { call } = await startOf((ctx) => value(ctx, 'a'))
    expect(await next(call, { a: { value: 'mine' }, b: { value: 'foreign' } })).toMatchObject({
      text: 'mine',
    })
  })

  it('B17 says what was wrong with an answer, and accepts the next one', async () => {
    const { call } = await startOf((ctx) => value(ctx, 'a'))
    const again = await next(call, { a: { value: 'x' } })
    expect(again).toMatchObject({
      questions: { a: { params: { message: expect.stringMatching(/^Value .*\. Which a\?$/) } } },
    })
    expect(await next(call, { a: { value: 'xyz' } })).toMatchObject({ text: 'xyz' })
  })

  it('B11 leaves nothing in memory while the call waits', async () => {
    const contexts: WeakRef<Context>[] = []
    const held: Context[] = []
    const bench = benchOf((ctx) => {
      contexts.push(new WeakRef(ctx))
      if (contexts.length > 100) held.push(ctx)
      return value(ctx, 'a')
    })
    for (let i = 0; i < 150; i++) expect(questionsOf(await bench.tool('go').next())).toEqual(['a'])
    await collectGarbage()
    const alive = contexts.map((reference) => reference.deref() !== undefined)
    expect(alive.slice(0, 99).filter(Boolean).length).toBe(0)
    // Control: contexts that are held on purpose are found.
    expect(alive.slice(100).filter(Boolean).length).toBe(held.length)
  })
})

async function collectGarbage(): Promise<void> {
  setFlagsFromString('--expose-gc')
  const collect = runInNewContext('gc') as () => void
  for (let i = 0; i < 3; i++) {
    await new Promise((resolve) => setImmediate(resolve))
    collect()
  }
}

describe('a flow without end', () => {
  const endless: Handler = async (ctx) => {
    for (let i = 0; ; i++) await value(ctx, `q${i}`)
  }

  it('B12 R9 T19 ends after its last round', async () => {
    const { call } = await startOf(endless, { maxRounds: 3 })
    expect(questionsOf(await next(call, { q0: { value: 'xx' } }))).toEqual(['q1'])
    expect(questionsOf(await next(call, { q1: { value: 'xx' } }))).toEqual(['q2'])
    const last = await next(call, { q2: { value: 'xx' } })
    expect(last).toMatchObject({
      kind: 'error',
      code: -32603,
      message: expect.stringContaining('more rounds'),
    })
  })

  it.each<[string, ServerOptions['limits'], Handler, string]>([
    [
      'entries',
      { maxEntries: 2 },
      async (ctx) => {
        for (let i = 0; i < 3; i++) await ctx.step(`s${i}`, () => i)
      },
      'more steps',
    ],
    [
      'questions',
      { maxQuestions: 1 },
      (ctx) => Promise.all([value(ctx, 'a'), value(ctx, 'b')]),
      'asks more questions at once',
    ],
    [
      'bytes',
      { maxBytes: 2_000 },
      async (ctx) => {
        await ctx.step('s', () => 'x'.repeat(3_000))
        return value(ctx, 'a')
      },
      'is larger than the server allows',
    ],
  ])('R9 T19 ends at its limit on %s', async (_name, limits, handler, message) => {
    const within = await startOf(handler)
    expect(within.first.kind).not.toBe('error')
    const { first } = await startOf(handler, limits)
    expect(first).toMatchObject({ kind: 'error', code: -32603, message: expect.stringContaining(message) })
  })

  it('R9 T19 ends after too many invalid answers to one question', async () => {
    const { call } = await startOf((ctx) => value(ctx, 'a'), { maxReasks: 1 })
    expect(questionsOf(await next(call, { a: { value: 'x' } }))).toEqual(['a'])
    expect(await next(call, { a: { value: 'x' } })).toMatchObject({
      kind: 'complete',
      result: { isError: true },
    })
  })

  it('R9 ends when the lifetime of a round, or of the flow, has passed', async () => {
    const bench = benchOf(endless, { roundTtlMs: 1_000, flowTtlMs: 2_500 })
    const late = bench.tool('go')
    await next(late)
    bench.clock.advance(1_000)
    expect(await next(late, { q0: { value: 'xx' } })).toMatchObject({ kind: 'error', code: -32602 })
    const call = bench.tool('go')
    await next(call)
    for (const [i, kind] of ['input_required', 'input_required', 'error'].entries()) {
      bench.clock.advance(900)
      expect(await next(call, { [`q${i}`]: { value: 'xx' } })).toMatchObject({ kind })
    }
  })
})

it.each<[string, unknown, z.ZodType | undefined]>([
  ['that no tool can return', 5, undefined],
  ['that is not JSON', { big: 1n }, undefined],
  ['that does not match the output schema', { word: 5 }, z.object({ word: z.string() })],
  [
    'that the output schema cannot check',
    { word: 'a' },
    z.object({
      word: z.string().refine(() => {
        throw new Error('The dictionary is away')
      }),
    }),
  ],
])(
  'R11 a value %s ends the call with an error of the tool, which is logged once',
  async (_, value, output) => {
    const events: LogEvent[] = []
    const bench = createBench((options) => {
      const log = (event: LogEvent) => void events.push(event)
      const server = createServer({ name: 'rounds', version: '1.0.0', ...options, dev: false, log })
      server.tool('go', { output }, () => value as never)
      return server
    })
    expect(await bench.tool('go').next()).toMatchObject({ kind: 'complete', result: { isError: true } })
    const rounds = events.filter(({ event }) => event === 'round')
    expect(rounds).toEqual([expect.objectContaining({ outcome: 'tool_error' })])
    expect(events.filter(({ event }) => event === 'fault')).toHaveLength(1)
  },
)

import { describe, expect, it } from 'vitest'
import { type Handler, replayFlow, textQuestion } from '../../../../test/support/replay-flow.ts'
import type { ReplayInput } from './input.ts'

/** A carrier that keeps labels: every write, in order. */
function keeping(): { readonly input: Partial<ReplayInput>; readonly written: Record<string, string>[] } {
  const written: Record<string, string>[] = []
  const keep = async (labels: ReadonlyMap<string, string>) => void written.push(Object.fromEntries(labels))
  return { input: { labelling: { keep } }, written }
}

async function errorOf(handler: Handler): Promise<string> {
  const { ending } = await replayFlow(handler).round()
  return ending.kind === 'threw' ? String(ending.error) : ending.kind
}

describe('ctx.label', () => {
  it('M5 merges labels by name, and the last value of a name wins', async () => {
    const { input, written } = keeping()
    const flow = replayFlow((ctx) => {
      ctx.label({ order: '1', customer: 'ada' })
      ctx.label({ order: '4711' })
    })
    const { labels, ending } = await flow.round(undefined, { input })
    expect(ending).toMatchObject({ kind: 'returned' })
    expect(Object.fromEntries(labels ?? [])).toEqual({ order: '4711', customer: 'ada' })
    expect(written.at(-1)).toEqual({ order: '4711', customer: 'ada' })
  })

  it('M5 adds no entry to the journal, and changes no key of an effect', async () => {
    const keys: string[] = []
    const handler =
      (labels: boolean): Handler =>
      async (ctx) => {
        if (labels) ctx.label({ order: '4711' })
        await ctx.effect('pay', ({ key }) => void keys.push(key))
      }
    const [one, other] = [
      replayFlow(handler(true), { anchored: true }),
      replayFlow(handler(false), { anchored: true }),
    ]
    const [first, second] = [await one.round(), await other.round()]
    expect(first.journal).toEqual(second.journal)
    expect(keys[0]).toBe(keys[1])
  })

  it('M5 writes no earlier value of a name in a replay, and what a replay sets before news is written with the news', async () => {
    const { input, written } = keeping()
    const flow = replayFlow(async (ctx) => {
      ctx.label({ state: 'new' })
      await ctx.step('work', () => 1)
      ctx.label({ state: 'worked' })
      await ctx.ask('name', textQuestion())
      ctx.label({ name: 'given' })
    })
    await flow.round(undefined, { input })
    expect(written).toEqual([{ state: 'new' }, { state: 'worked' }])
    written.length = 0
    await flow.round({ name: { action: 'accept', content: { value: 'Ada' } } }, { input })
    expect(written.map(({ state }) => state)).not.toContain('new')
    expect(written.at(-1)).toEqual({ state: 'worked', name: 'given' })
  })

  it('M5 writes labels that a new release sets where a replay is, as soon as there is news', async () => {
    const { input, written } = keeping()
    const handler =
      (isNew: boolean): Handler =>
      async (ctx) => {
        if (isNew) ctx.label({ release: 'new' })
        await ctx.step('one', () => 1)
        await ctx.ask('q', textQuestion())
        await ctx.step('two', () => 2)
      }
    const flow = replayFlow(handler(false))
    await flow.round(undefined, { input })
    await flow.round({ q: { action: 'accept', content: { value: '' } } }, { input, handler: handler(true) })
    expect(written).toEqual([{ release: 'new' }])
  })

  it('M5 ends no run before its labels are written, and refuses the run if they cannot be', async () => {
    let release = (): void => {}
    const written = new Promise<void>((resolve) => {
      release = resolve
    })
    let ended = false
    const flow = replayFlow((ctx) => ctx.label({ order: '1' }))
    const round = flow.round(undefined, { input: { labelling: { keep: () => written } } }).then((report) => {
      ended = true
      return report
    })
    await new Promise((resolve) => setTimeout(resolve, 20))
    expect(ended).toBe(false)
    release()
    expect((await round).ending.kind).toBe('returned')
    const keep = () => Promise.reject(new Error('away'))
    const failed = await replayFlow((ctx) => ctx.label({ order: '1' })).round(undefined, {
      input: { labelling: { keep } },
    })
    expect(failed.ending).toMatchObject({ kind: 'refused', error: { code: 'SERVER_INTERNAL' } })
  })

  it.each<[string, unknown, string]>([
    ['text', '4711', 'takes an object with names and values: ctx.label({ order: '],
    ['nothing', undefined, 'got undefined'],
    ['null', null, 'got null'],
    ['an array', ['4711'], 'got an array'],
    [
      'a number as a value',
      { order: 4711 },
      'The label "order" must be text, because it is found by exactly that text; got a number',
    ],
    ['an object as a value', { order: {} }, 'got an object'],
    ['an empty value', { order: '' }, 'must have 1 to 256 characters; got 0'],
    ['a value that is too long', { order: 'x'.repeat(257) }, 'must have 1 to 256 characters; got 257'],
    ['an empty name', { '': 'x' }, 'must have 1 to 64 characters and no "="'],
    ['a name that is too long', { ['x'.repeat(65)]: 'x' }, 'must have 1 to 64 characters and no "="'],
    ['a name with =', { 'a=b': 'x' }, 'must have 1 to 64 characters and no "="'],
    [
      'too many labels',
      Object.fromEntries(Array.from({ length: 9 }, (_, i) => [`l${i}`, 'x'])),
      'at most 8 labels',
    ],
  ])('M5 refuses %s with a sentence', async (_name, given, sentence) => {
    const error = await errorOf((ctx) => ctx.label(given as never))
    expect(error).toMatch(/^TypeError/)
    expect(error).toContain(sentence)
  })

  it('M5 counts the labels of all calls, and accepts names that objects have by themselves', async () => {
    const nine: Handler = (ctx) => {
      for (let i = 0; i < 9; i++) ctx.label({ [`l${i}`]: 'x' })
    }
    expect(await errorOf(nine)).toContain('at most 8 labels')
    const longest = Array.from({ length: 8 }, (_, i) => [`${i}`.repeat(64), 'x'.repeat(256)])
    expect(await errorOf((ctx) => ctx.label(Object.fromEntries(longest)))).toBe('returned')
    const { labels } = await replayFlow((ctx) =>
      ctx.label(JSON.parse('{"__proto__":"a","constructor":"b"}')),
    ).round()
    expect([...(labels ?? [])]).toEqual([
      ['__proto__', 'a'],
      ['constructor', 'b'],
    ])
  })

  it('M5 refuses labels inside a step, where no replay would set them again', async () => {
    const { ending } = await replayFlow((ctx) =>
      ctx.step('load', () => ctx.label({ order: '1' }) as never),
    ).round()
    expect(ending).toMatchObject({
      kind: 'threw',
      error: { code: 'REPLAY_NESTED', message: expect.stringContaining('The ctx.label() was called inside') },
    })
  })

  it('M5 reports labels that are set after the handler returned, and ignores them', async () => {
    const { input, written } = keeping()
    let later = (): void => {}
    const flow = replayFlow((ctx) => {
      later = () => ctx.label({ order: '1' })
    })
    await flow.round(undefined, { input })
    expect(later).not.toThrow()
    expect(written).toEqual([])
    expect(flow.faults).toMatchObject([{ code: 'REPLAY_NOT_AWAITED' }])
  })

  it('M5 ignores labels of a handler that was suspended', async () => {
    const { input, written } = keeping()
    let later = (_given: object): void => {}
    const flow = replayFlow(async (ctx) => {
      later = (given) => ctx.label(given as never)
      await ctx.ask('name', textQuestion())
    })
    await flow.round(undefined, { input })
    // Nobody would catch an error of a handler that nothing awaits any more.
    for (const given of [{ order: '1' }, { order: 1 }]) expect(() => later(given)).not.toThrow()
    expect(written).toEqual([])
  })

  it('M5 in development, names a label that a replay sets to another value', async () => {
    let n = 0
    const { ending } = await replayFlow((ctx) => ctx.label({ at: String(n++) }), { dev: true }).round()
    expect(ending).toMatchObject({ kind: 'refused', error: { code: 'REPLAY_UNSTABLE' } })
    expect(String((ending as { error: Error }).error)).toContain('the label "at" had another value')
  })

  it('M5 says what a store without a part for operators lacks', async () => {
    const { ending } = await replayFlow((ctx) => ctx.label({ order: '1' })).round(undefined, {
      input: { labelling: { missing: 'Not here.' } },
    })
    expect(ending).toMatchObject({ kind: 'threw', error: { message: expect.stringContaining('Not here.') } })
  })
})

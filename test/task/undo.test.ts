/** Undo, as tasks and rounds experience it: after a No, a failure, a cancellation, and when a call is left alone. */

import { createServer, type Server, type ServerOptions, type Store, ToolError } from 'rondo'
import { createBench, decline, type TestBench } from 'rondo/testing'
import { describe, expect, it } from 'vitest'

const DAY = 86_400_000

/** A hotel that honours idempotency keys, and remembers every call. */
interface Hotel {
  readonly bench: TestBench
  /** Rooms that are reserved, by the key of their effect. */
  readonly reserved: Map<string, string>
  /** Calls, in order. */
  readonly calls: string[]
  /** Keys of undo calls, by room. */
  readonly undoKeys: Map<string, Set<string>>
  /** The next calls of these names fail. */
  readonly fails: string[]
  store(): Store
}

function hotel(declare: (server: Server, book: Book) => void, options: Partial<ServerOptions> = {}): Hotel {
  const reserved = new Map<string, string>()
  const calls: string[] = []
  const undoKeys = new Map<string, Set<string>>()
  const fails: string[] = []
  const failing = (name: string): void => {
    const at = fails.indexOf(name)
    if (at < 0) return
    fails.splice(at, 1)
    throw new Error(`${name} failed`)
  }
  const book: Book = (ctx, room, more = {}) =>
    ctx.effect(
      room,
      ({ key }) => {
        calls.push(`reserve ${room}`)
        reserved.set(key, room)
        failing(room)
        return { room, key }
      },
      {
        undo(result, { key, effectKey, ran }) {
          calls.push(`release ${room} ${ran}${result ? ` ${result.room}` : ''}`)
          undoKeys.set(room, (undoKeys.get(room) ?? new Set()).add(key))
          failing(`release ${room}`)
          reserved.delete(effectKey)
        },
        ...more,
      },
    )
  let store: unknown
  const bench = createBench((given) => {
    store = given.store
    const server = createServer({ name: 'hotel', version: '1.0.0', ...given, ...options })
    declare(server, book)
    return server
  })
  return { bench, reserved, calls, undoKeys, fails, store: () => store as Store }
}

type Ctx = Parameters<Parameters<Server['tool']>[2]>[1]
type Book = (ctx: Ctx, room: string, more?: object) => Promise<{ room: string; key: string }>

const MODES = ['rounds', 'a task'] as const
const call = (bench: TestBench, mode: (typeof MODES)[number], name = 'trip') =>
  mode === 'rounds' ? bench.tool(name) : bench.task(name)

describe.each(MODES)('undo in %s', (mode) => {
  const task = mode === 'rounds' ? 'never' : 'auto'

  it('takes back what ran after a No, in reverse order, and returns what it undid', async () => {
    const { bench, reserved, calls } = hotel((server, book) =>
      server.tool('trip', { task }, async (_args, ctx) => {
        await book(ctx, 'one')
        await book(ctx, 'two')
        if (await ctx.confirm('ok', 'Book both?')) return 'Booked.'
        const { undone, failed } = await ctx.undo()
        return `Released ${undone.join(', ')}${failed.join()}.`
      }),
    )
    expect(await call(bench, mode).run({ ok: { confirm: false } })).toMatchObject({
      text: 'Released two, one.',
    })
    expect(calls).toEqual(['reserve one', 'reserve two', 'release two yes two', 'release one yes one'])
    expect(reserved.size).toBe(0)
  })

  it('keeps what ran if the call ends well, and leaves no alarm', async () => {
    const { bench, reserved, calls } = hotel((server, book) =>
      server.tool('trip', { task }, async (_args, ctx) => {
        await book(ctx, 'one')
        await ctx.confirm('ok', 'Book?')
        return 'Booked.'
      }),
    )
    expect(await call(bench, mode).run({ ok: { confirm: true } })).toMatchObject({ text: 'Booked.' })
    await bench.advance(40 * DAY)
    expect(calls).toEqual(['reserve one'])
    expect(reserved.size).toBe(1)
  })

  it.each([
    ['throws', () => Promise.reject(new ToolError('Sold out.')), 'Sold out.'],
    ['returns an error', () => ({ isError: true, content: [{ type: 'text', text: 'No.' }] }) as never, 'No.'],
  ])('takes back what ran if the handler %s, and the result says so', async (_name, end, text) => {
    const { bench, reserved } = hotel((server, book) =>
      server.tool('trip', { task }, async (_args, ctx) => {
        await book(ctx, 'one')
        await book(ctx, 'two')
        return end()
      }),
    )
    expect(await call(bench, mode).run()).toMatchObject({
      result: { isError: true },
      text: `${text}\nUndone: two, one.`,
    })
    expect(reserved.size).toBe(0)
    expect(bench.events.filter(({ event }) => event === 'undo')).toMatchObject([
      { undone: ['two', 'one'], failed: [] },
    ])
  })

  it('takes back what ran if the user declines', async () => {
    const { bench, reserved } = hotel((server, book) =>
      server.tool('trip', { task }, async (_args, ctx) => {
        await book(ctx, 'one')
        await ctx.ask('name', {
          message: 'Name?',
          schema: { type: 'object', properties: { value: { type: 'string' } } },
        })
        return 'Booked.'
      }),
    )
    expect(await call(bench, mode).run({ name: decline })).toMatchObject({
      text: expect.stringMatching(/declined.*\nUndone: one\./),
    })
    expect(reserved.size).toBe(0)
  })

  it('takes back an effect that threw, because it may have happened', async () => {
    const { bench, reserved, calls, fails } = hotel((server, book) =>
      server.tool('trip', { task }, (_args, ctx) => book(ctx, 'one')),
    )
    fails.push('one')
    expect(await call(bench, mode).run()).toMatchObject({ result: { isError: true } })
    expect(calls).toEqual(['reserve one', 'release one maybe'])
    expect(reserved.size).toBe(0)
  })

  it('retries an undo under one key', async () => {
    const { bench, reserved, undoKeys, fails, calls } = hotel((server, book) =>
      server.tool('trip', { task }, async (_args, ctx) => {
        await book(ctx, 'one')
        throw new ToolError('Sold out.')
      }),
    )
    fails.push('release one', 'release one')
    expect(await call(bench, mode).run()).toMatchObject({ text: 'Sold out.\nUndone: one.' })
    expect(calls.filter((line) => line.startsWith('release'))).toHaveLength(3)
    expect(undoKeys.get('one')?.size).toBe(1)
    expect(reserved.size).toBe(0)
  })

  it('leaves an undo that keeps failing to a worker, and says so', async () => {
    const { bench, reserved, undoKeys, fails } = hotel((server, book) =>
      server.tool('trip', { task }, async (_args, ctx) => {
        await book(ctx, 'one')
        await book(ctx, 'two')
        throw new ToolError('Sold out.')
      }),
    )
    fails.push(...Array.from({ length: 8 }, () => 'release two'))
    expect(await call(bench, mode).run()).toMatchObject({
      text: 'Sold out.\nUndone: one. Not undone yet: two. The server tries again.',
    })
    for (let i = 0; i < 20 && reserved.size > 0; i++) await bench.advance('10 min')
    expect(reserved.size).toBe(0)
    expect(undoKeys.get('two')?.size).toBe(1)
  })

  it('takes back what ran if the call is left alone until it expires', async () => {
    const { bench, reserved, calls } = hotel((server, book) =>
      server.tool('trip', { task }, async (_args, ctx) => {
        await book(ctx, 'one')
        await book(ctx, 'two')
        await ctx.confirm('ok', 'Book?')
        return 'Booked.'
      }),
    )
    const running = call(bench, mode)
    let round = await running.next()
    while (round.kind === 'input_required' && Object.keys(round.questions).length === 0)
      round = await running.next()
    expect(round).toMatchObject({ kind: 'input_required', questions: { ok: {} } })
    expect(reserved.size).toBe(2)
    await bench.advance('23 hours')
    expect(reserved.size).toBe(2)
    await bench.advance('90 min')
    await bench.advance(1)
    expect(reserved.size).toBe(0)
    expect(calls.slice(2)).toEqual(['release two yes two', 'release one yes one'])
  })
})

describe('undo of a task', () => {
  const asking = () =>
    hotel((server, book) =>
      server.tool('trip', { task: 'auto' }, async (_args, ctx) => {
        await book(ctx, 'one')
        await ctx.confirm('ok', 'Book?')
        return 'Booked.'
      }),
    )

  it('runs when the task is cancelled', async () => {
    const { bench, reserved, calls } = asking()
    const task = bench.task('trip')
    await task.next()
    expect(reserved.size).toBe(1)
    await task.cancel()
    await bench.advance(1)
    expect(await task.next()).toEqual({ kind: 'cancelled' })
    expect(calls).toEqual(['reserve one', 'release one yes one'])
  })

  it('survives a restart before the task is cancelled', async () => {
    const { bench, reserved } = asking()
    const task = bench.task('trip')
    await task.next()
    await task.restart()
    await task.cancel()
    await bench.advance(1)
    expect(reserved.size).toBe(0)
  })
})

describe('undo after the program has changed', () => {
  /** The first release reserves two rooms; the second knows only the first of them. */
  const changing = (mode: (typeof MODES)[number], options: Partial<ServerOptions> = {}) => {
    const release = { number: 1 }
    const made = hotel(
      (server, book) =>
        server.tool('trip', { task: mode === 'rounds' ? 'never' : 'auto' }, async (_args, ctx) => {
          await book(ctx, 'one')
          if (release.number === 1) await book(ctx, 'two')
          await ctx.confirm('ok', 'Book?')
          if (release.number === 2) await ctx.effect('new', () => 'never')
          return 'Booked.'
        }),
      options,
    )
    return { ...made, release }
  }

  it.each(MODES)('undoes what it still reaches in %s, and lists the rest for operators', async (mode) => {
    const { bench, reserved, release } = changing(mode)
    const running = call(bench, mode)
    let round = await running.next()
    while (round.kind === 'input_required' && !('ok' in round.questions)) round = await running.next()
    release.number = 2
    // A new effect while "two" is recorded and not reached: REPLAY_DIVERGED.
    const ended = await running.next({ ok: { confirm: true } })
    expect((ended as { text: string }).text).toMatch(
      /^\[REPLAY_DIVERGED\].*\nUndone: one\. Not undone yet: two\. The server tries again\.$/,
    )
    await bench.advance(1)
    expect([...reserved.values()]).toEqual(['two'])
    await expect
      .poll(() => bench.events.filter(({ event, level }) => event === 'undo' && level === 'error').at(-1))
      .toMatchObject({ failed: ['two'] })
    const failed = bench.events.filter(({ event }) => event === 'undo')
    expect(failed[0]).toMatchObject({ undone: ['one'], failed: ['two'] })
  })

  it('undoes the rest when an operator retries the alarm with a release that reaches it', async () => {
    const { bench, reserved, release, store } = changing('rounds', { tasks: { keepFailedMs: 30 * DAY } })
    const running = bench.tool('trip')
    let round = await running.next()
    while (round.kind === 'input_required' && !('ok' in round.questions)) round = await running.next()
    release.number = 2
    await bench.advance('25 hours')
    expect([...reserved.values()]).toEqual(['two'])
    const [alarm] = await store().tasks.list({ status: 'failed' })
    release.number = 1
    const outcome = await store().operator?.act({ kind: 'retry', id: alarm?.id ?? '', liveMs: DAY }, 'test')
    expect(outcome).toBe('done')
    await bench.advance(1)
    expect(reserved.size).toBe(0)
  })

  it('undoes the rest if the function is there again', async () => {
    const { bench, reserved, release } = changing('rounds')
    const running = bench.tool('trip')
    let round = await running.next()
    while (round.kind === 'input_required' && !('ok' in round.questions)) round = await running.next()
    release.number = 2
    await bench.advance('23 hours')
    release.number = 1
    await bench.advance('2 hours')
    expect(reserved.size).toBe(0)
  })
})

describe('undo in rounds', () => {
  const asking = () =>
    hotel((server, book) =>
      server.tool('trip', { task: 'never' }, async (_args, ctx) => {
        await book(ctx, 'one')
        if (await ctx.confirm('ok', 'Book?')) return 'Booked.'
        await ctx.undo()
        return 'Released.'
      }),
    )

  it('gets the same reply if it was lost, and undoes nothing twice', async () => {
    const { bench, calls } = asking()
    const trip = bench.tool('trip')
    let round = await trip.next()
    while (round.kind === 'input_required' && !('ok' in round.questions)) round = await trip.next()
    await trip.loseReply({ ok: { confirm: false } })
    expect(await trip.otherInstance().next({ ok: { confirm: false } })).toMatchObject({ text: 'Released.' })
    expect(calls).toEqual(['reserve one', 'release one yes one'])
  })

  it('refuses a second answer to a state whose effects may have been undone', async () => {
    const { bench, reserved } = asking()
    const trip = bench.tool('trip')
    let round = await trip.next()
    while (round.kind === 'input_required' && !('ok' in round.questions)) round = await trip.next()
    await trip.loseReply({ ok: { confirm: false } })
    expect(await trip.next({ ok: { confirm: true } })).toMatchObject({ kind: 'error', code: -32602 })
    expect(reserved.size).toBe(0)
  })

  it('cannot end well once a worker has begun to undo it', async () => {
    const { bench, reserved } = asking()
    const trip = bench.tool('trip')
    let round = await trip.next()
    while (round.kind === 'input_required' && !('ok' in round.questions)) round = await trip.next()
    await bench.advance('25 hours')
    expect(reserved.size).toBe(0)
    bench.clock.now -= 25 * 3_600_000
    const late = await trip.next({ ok: { confirm: true } })
    expect(late).toMatchObject({ kind: 'error', code: -32602 })
  })

  it('needs a store, and says so before the effect begins', async () => {
    let ran = false
    const bench = createBench(
      (options) => {
        const server = createServer({ name: 'hotel', version: '1.0.0', ...options })
        server.tool('trip', {}, (_args, ctx) =>
          ctx.effect(
            'one',
            () => {
              ran = true
            },
            { undo: () => {} },
          ),
        )
        return server
      },
      { store: false },
    )
    expect(await bench.tool('trip').run()).toMatchObject({
      text: expect.stringMatching(
        /An effect with \{ undo \} needs a store: pass one: createServer\(\{ store \}\)\./,
      ),
    })
    expect(ran).toBe(false)
  })
})

/** Undo, as tasks and rounds experience it: after a No, a failure, a cancellation, and when a call is left alone. */

import {
  createServer,
  Fatal,
  generateKey,
  inputRequired,
  RondoError,
  type Server,
  type ServerOptions,
  type Store,
  ToolError,
} from 'rondo'
import type { RecordStore } from 'rondo/store'
import { createBench, decline, type TestBench, type TestTask } from 'rondo/testing'
import { describe, expect, it } from 'vitest'
import { z } from 'zod'
import { branchBefore } from '../../packages/rondo/src/carry/task/operate.ts'
import { parseKeys } from '../../packages/rondo/src/seal/key-ring.ts'
import { createMemoryStore } from '../../packages/rondo/src/store/memory/store.ts'
import type { StoredTask } from '../../packages/rondo/src/store/operator.ts'
import type { PermitStore } from '../../packages/rondo/src/store/permits.ts'
import { connectOlder } from '../support/older-client.ts'

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

  it('M1 takes back what ran after a No, in reverse order, and returns what it undid', async () => {
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

  it('M1 keeps what ran if the call ends well, and leaves no alarm', async () => {
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
  ])('M1 takes back what ran if the handler %s, and the result says so', async (_name, end, text) => {
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

  it('M1 takes back what ran if the user declines', async () => {
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

  it('M1 takes back what ran if the result does not match the output schema', async () => {
    const { bench, reserved, calls } = hotel((server, book) =>
      server.tool('trip', { task, output: z.object({ price: z.number() }) }, async (_args, ctx) => {
        await book(ctx, 'one')
        return { price: 'unknown' } as never
      }),
    )
    const ended = await call(bench, mode).run()
    expect(ended).toMatchObject({ result: { isError: true } })
    expect(JSON.stringify(ended)).toContain('Undone: one.')
    expect(calls).toEqual(['reserve one', 'release one yes one'])
    expect(reserved.size).toBe(0)
  })

  it('M1 takes back what ran if the handler returns questions that cannot be asked', async () => {
    const { bench, reserved } = hotel(
      (server, book) =>
        server.tool('trip', { task }, async (_args, ctx) => {
          await book(ctx, 'one')
          const roots = { method: 'roots/list' } as const
          return inputRequired({ inputRequests: { a: roots, b: roots } })
        }),
      { limits: { maxQuestions: 1 } },
    )
    expect(await call(bench, mode).run()).toMatchObject({
      code: -32603,
      data: { undone: ['one'], notUndone: [] },
    })
    expect(reserved.size).toBe(0)
  })

  it('M1 R9 takes back everything that ran if the journal is full', async () => {
    const rooms = ['one', 'two', 'three', 'four', 'five', 'six']
    const { bench, reserved } = hotel(
      (server, book) =>
        server.tool('trip', { task }, async (_args, ctx) => {
          for (const room of rooms) await book(ctx, room)
          return ctx.step('one too many', () => 'Booked.')
        }),
      { limits: { maxEntries: rooms.length } },
    )
    expect(await call(bench, mode).run()).toMatchObject({
      data: { undone: [...rooms].reverse(), notUndone: [] },
    })
    expect(reserved.size).toBe(0)
  })

  it('M1 takes back an effect that threw, because it may have happened', async () => {
    const { bench, reserved, calls, fails } = hotel((server, book) =>
      server.tool('trip', { task }, (_args, ctx) => book(ctx, 'one')),
    )
    fails.push('one')
    expect(await call(bench, mode).run()).toMatchObject({ result: { isError: true } })
    expect(calls).toEqual(['reserve one', 'release one maybe'])
    expect(reserved.size).toBe(0)
  })

  it('M1 retries an undo under one key', async () => {
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

  it('M1 leaves an undo that keeps failing to a worker, and says so', async () => {
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

  it('M1 takes back what ran if the call is left alone until it expires', async () => {
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

  it('M1 undoes once if ctx.undo() is called twice, one after the other or at the same time', async () => {
    const { bench, calls } = hotel((server, book) =>
      server.tool('trip', { task }, async (_args, ctx) => {
        await book(ctx, 'one')
        const both = await Promise.all([ctx.undo(), ctx.undo()])
        return JSON.stringify([...both, await ctx.undo()].map(({ undone }) => undone))
      }),
    )
    expect(await call(bench, mode).run()).toMatchObject({ text: '[["one"],[],[]]' })
    expect(calls).toEqual(['reserve one', 'release one yes one'])
  })

  it('M1 undoes what runs beside ctx.undo(), after it has an outcome', async () => {
    const { bench, calls } = hotel((server, book) =>
      server.tool('trip', { task }, async (_args, ctx) => {
        const [, , { undone }] = await Promise.all([book(ctx, 'one'), book(ctx, 'two'), ctx.undo()])
        return undone.join()
      }),
    )
    expect(await call(bench, mode).run()).toMatchObject({ text: 'two,one' })
    expect(calls).toEqual(['reserve one', 'reserve two', 'release two yes two', 'release one yes one'])
  })

  it.each([
    ['asks', (ctx: Ctx) => ctx.confirm('again', 'Release?')],
    ['calls a step', (ctx: Ctx) => ctx.step('inner', () => 1)],
    ['never settles', () => new Promise<never>(() => {})],
    ['throws something that is no error', () => Promise.reject(Object.create(null))],
  ])('M1 ends the call if an undo function %s, and says that nothing is undone', async (_name, undo) => {
    const { bench } = hotel((server, book) =>
      server.tool('trip', { task }, async (_args, ctx) => {
        await book(ctx, 'one', { undo: () => undo(ctx), timeout: '20 ms' })
        throw new ToolError('Sold out.')
      }),
    )
    expect(await call(bench, mode).run()).toMatchObject({
      text: 'Sold out.\nNot undone yet: one. The server tries again.',
    })
  })

  it.each([
    ['ctx.undo()', (ctx: Ctx) => void ctx.undo()],
    ['an effect', (ctx: Ctx, book: Book) => void book(ctx, 'two')],
  ])('M1 R11 keeps nothing after a No if the handler does not await %s', async (_name, forget) => {
    const { bench, reserved } = hotel((server, book) =>
      server.tool('trip', { task }, async (_args, ctx) => {
        await book(ctx, 'one')
        if (await ctx.confirm('ok', 'Book?')) return 'Booked.'
        forget(ctx, book)
        return 'Released.'
      }),
    )
    const ended = await call(bench, mode).run({ ok: { confirm: false } })
    expect(ended).toMatchObject({ text: expect.stringMatching(/REPLAY_NOT_AWAITED[\s\S]*Undone: one\./) })
    await bench.advance('1 min')
    expect(reserved.size).toBe(0)
  })

  it('M1 R11 refuses an effect with undo while an earlier question is unread, and keeps nothing', async () => {
    const { bench, reserved, calls } = hotel((server, book) =>
      server.tool('trip', { task }, async (_args, ctx) => {
        await book(ctx, 'one')
        const sure = ctx.confirm('ok', 'Book?')
        if (sure as never) await book(ctx, 'two')
        return 'Booked.'
      }),
    )
    expect(await call(bench, mode).run()).toMatchObject({
      text: expect.stringMatching(/REPLAY_NOT_AWAITED[\s\S]*Undone: one\./),
    })
    expect([reserved.size, calls.includes('reserve two')]).toEqual([0, false])
  })

  it('M1 undoes an effect that took too long, and that may still finish, as one that may have run', async () => {
    const { bench, calls } = hotel((server) =>
      server.tool('trip', { task }, (_args, ctx) =>
        ctx.effect('slow', () => new Promise<never>(() => {}), {
          timeout: '20 ms',
          undo: (result, { ran }) => void calls.push(`release slow ${ran} ${result}`),
        }),
      ),
    )
    expect(await call(bench, mode).run()).toMatchObject({
      text: expect.stringMatching(/did not settle within 20 ms\.\nUndone: slow\./),
    })
    expect(calls).toEqual(['release slow maybe undefined'])
  })

  it.each([
    ['after', (ctx: Ctx, book: Book) => book(ctx, 'one').then(() => ctx.step('one.undo', () => 1)), 1],
    ['before', (ctx: Ctx, book: Book) => ctx.step('one.undo', () => 1).then(() => book(ctx, 'one')), 0],
  ] as const)('M1 refuses a step with the name of an undo %s its effect', async (_name, run, reserves) => {
    const { bench, reserved, calls } = hotel((server, book) =>
      server.tool('trip', { task }, async (_args, ctx) => {
        await run(ctx, book)
        return 'Booked.'
      }),
    )
    expect(await call(bench, mode).run()).toMatchObject({
      text: expect.stringMatching(/^\[REPLAY_NAME_REUSED\].*one\.undo/),
    })
    expect([reserved.size, calls.filter((line) => line.startsWith('reserve')).length]).toEqual([0, reserves])
  })

  it('M1 M3 keeps the permit of a call until its effects are undone', async () => {
    const { bench, calls } = hotel((server, book) =>
      server.tool('trip', { task, concurrency: {} }, async (_args, ctx) => {
        await book(ctx, 'one')
        throw new ToolError('Sold out.')
      }),
    )
    await Promise.all([
      call(bench, mode).run(),
      bench
        .task('trip')
        .run()
        .catch(() => {}),
    ])
    const inside = calls.map((line) => line.split(' ')[0])
    expect(inside.join(' ')).toMatch(/^(reserve release ?)+$/)
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

  it('M1 runs when the task is cancelled', async () => {
    const { bench, reserved, calls } = asking()
    const task = bench.task('trip')
    await task.next()
    expect(reserved.size).toBe(1)
    await task.cancel()
    await bench.advance(1)
    expect(await task.next()).toEqual({ kind: 'cancelled' })
    expect(calls).toEqual(['reserve one', 'release one yes one'])
  })

  it.each([
    ['is cancelled', (bench: TestBench, task: TestTask) => task.cancel().then(() => bench.advance(1))],
    ['expires', (bench: TestBench) => bench.advance('25 hours')],
  ])('M1 M3 keeps the permit of a task that %s until a worker has undone it', async (_how, end) => {
    const { bench, calls, fails } = hotel((server, book) =>
      server.tool('trip', { task: 'auto', concurrency: {} }, async (_args, ctx) => {
        await book(ctx, 'one')
        await ctx.confirm('ok', 'Book?')
        return 'Booked.'
      }),
    )
    fails.push('release one', 'release one', 'release one', 'release one', 'release one')
    const first = bench.task('trip')
    await first.next()
    await end(bench, first)
    expect(calls.at(-1)).toBe('release one yes one')
    const second = bench.task('trip')
    expect(await second.next()).toMatchObject({ kind: 'sleeping' })
    await bench.advance('10 min')
    expect(calls.at(-1)).toBe('release one yes one')
    for (let i = 0; i < 10 && calls.at(-1) !== 'reserve one'; i++) await bench.advance('1 min')
    expect(await second.next()).toMatchObject({ kind: 'input_required' })
    const work = calls.map((line) => line.split(' ')[0])
    expect(work).toEqual(['reserve', ...Array(6).fill('release'), 'reserve'])
  })

  it('M1 M3 lets nobody enter between the end of a task and its undo', async () => {
    const { bench, calls, store } = hotel((server, book) =>
      server.tool('trip', { task: 'auto', concurrency: {} }, async (_args, ctx) => {
        await book(ctx, 'one')
        await ctx.confirm('ok', 'Book?')
        return 'Booked.'
      }),
    )
    const permits = store().permits as PermitStore
    const { acquire } = permits
    let tags: readonly string[] = []
    permits.acquire = (request) => {
      tags = request.tags
      return acquire(request)
    }
    const task = bench.task('trip')
    await task.next()
    const enters = async () => (await acquire({ holder: 'x', tags, limit: 1, holdMs: 1 })).kind
    const found = (await store().tasks.list({})).find(({ owner }) => !owner.principal.startsWith('undo'))
    expect(found && (await store().tasks.cancel(found.id, found.owner))).toBeTruthy()
    expect([calls.length, await enters()]).toEqual([1, 'busy'])
    await bench.advance(1)
    expect([calls.length, await enters()]).toEqual([2, 'held'])
  })

  it('M1 M3 ends as failed again if an operator retries a task that was undone', async () => {
    const { bench, reserved, store } = hotel((server, book) =>
      server.tool('trip', { task: 'auto', concurrency: {} }, async (_args, ctx) => {
        await book(ctx, 'one')
        if (!(await ctx.confirm('ok', 'Book?'))) return 'Not booked.'
        return ctx.effect('pay', () => 'Paid.')
      }),
    )
    const task = bench.task('trip')
    await task.next()
    const found = (await store().tasks.list({})).find(({ owner }) => !owner.principal.startsWith('undo'))
    const act = (kind: 'fail' | 'retry') =>
      store().operator?.act({ kind, id: found?.id ?? '', keepMs: DAY, liveMs: DAY } as never, 'test')
    expect(await act('fail')).toBe('done')
    await bench.advance(1)
    expect(reserved.size).toBe(0)
    expect(await act('retry')).toBe('done')
    await bench.advance(1)
    expect(await task.next({ ok: { confirm: true } })).toMatchObject({ kind: 'error', code: -32602 })
  })

  /** A task of two rooms that an operator ends as failed, and continues from before a step or effect. */
  const rerun = async (from: string, isUndone = true) => {
    const keys = generateKey('k')
    const made = hotel(
      (server, book) =>
        server.tool('trip', { task: 'auto' }, async (_args, ctx) => {
          await ctx.step('price', () => 1)
          await book(ctx, 'one')
          await book(ctx, 'two')
          await ctx.confirm('ok', 'Book?')
          return 'Booked.'
        }),
      { keys },
    )
    const { bench, store, calls } = made
    const task = bench.task('trip')
    await task.next()
    const operator = store().operator as NonNullable<Store['operator']>
    const found = (await store().tasks.list({})).find(({ owner }) => !owner.principal.startsWith('undo'))
    const id = found?.id ?? ''
    await operator.act({ kind: 'fail', id, keepMs: DAY }, 'test')
    if (isUndone) await bench.advance(1)
    const branch = branchBefore(parseKeys(keys), (await operator.read(id)) as StoredTask, from, 'again')
    const before = calls.length
    expect(await operator.act({ kind: 'retry', id, liveMs: DAY, branch }, 'test')).toBe('done')
    await bench.advance(1)
    return { ...made, task, reserves: calls.slice(before).filter((line) => line.startsWith('reserve')) }
  }

  it.each(['price', 'one'])(
    'M1 can be undone again after an operator continued it from before "%s"',
    async (from) => {
      const { bench, task, reserved, reserves, undoKeys } = await rerun(from)
      expect(reserves).toEqual(['reserve one', 'reserve two'])
      expect(await task.next()).toMatchObject({ kind: 'input_required' })
      expect(reserved.size).toBe(2)
      await task.cancel()
      await bench.advance(1)
      expect(reserved.size).toBe(0)
      // Another effect, so another undo.
      expect(undoKeys.get('one')?.size).toBe(2)
    },
  )

  it('M1 ends well after an operator continued it from before its first effect', async () => {
    const { bench, task, reserved } = await rerun('one')
    await task.next()
    expect(await task.next({ 'ok~2': { confirm: true } })).toMatchObject({ text: 'Booked.' })
    await bench.advance(2 * DAY)
    expect(reserved.size).toBe(2)
  })

  it.each([
    ['was undone', true],
    ['may be in place', false],
  ])('M1 begins no effect if an operator continued it after one that %s', async (_what, isUndone) => {
    const { bench, task, reserved, reserves } = await rerun('two', isUndone)
    expect(await task.next()).toMatchObject({ kind: 'error', code: -32602 })
    expect(reserves).toEqual([])
    await bench.advance('1 min')
    expect(reserved.size).toBe(0)
  })

  /** A task that is cancelled, or ended by an operator, while its effect runs; `end` ends the effect. */
  const cancelledInside = async (how: 'cancel' | 'fail' = 'cancel') => {
    const calls: string[] = []
    let end = (_error?: Error) => {}
    const ended = new Promise<void>((resolve, reject) => {
      end = (error) => (error ? reject(error) : resolve())
    })
    const { bench, store } = hotel((server) =>
      server.tool('trip', { task: 'auto' }, (_args, ctx) =>
        ctx.effect(
          'one',
          async () => {
            calls.push('begins')
            await ended
            calls.push('ends')
            return 'Booked.'
          },
          { undo: (result, { ran }) => void calls.push(`release ${ran} ${result}`) },
        ),
      ),
    )
    const task = bench.task('trip')
    const next = task.next()
    await expect.poll(() => calls).toEqual(['begins'])
    const find = async (): Promise<string> =>
      (await store().tasks.list({})).find(({ owner }) => !owner.principal.startsWith('undo'))?.id ?? ''
    if (how === 'cancel') await task.cancel()
    else await store().operator?.act({ kind: 'fail', id: await find(), keepMs: DAY }, 'test')
    await bench.advance(1)
    return { bench, calls, end, next, store, find }
  }

  it('M1 undoes an effect that runs while its task is cancelled after the effect has ended', async () => {
    const { bench, calls, end, next } = await cancelledInside()
    expect(calls).toEqual(['begins'])
    end()
    expect(await next).toEqual({ kind: 'cancelled' })
    await bench.advance('1 s')
    expect(calls).toEqual(['begins', 'ends', 'release yes Booked.'])
  })

  it('M1 undoes an effect that fails while its task is cancelled once it has failed', async () => {
    const { bench, calls, end, next } = await cancelledInside()
    end(new Error('Aborted'))
    await next
    await bench.advance('1 s')
    expect(calls).toEqual(['begins', 'release maybe undefined'])
  })

  it('M1 does not wait for an effect whose process may be dead', async () => {
    const { bench, calls } = await cancelledInside()
    await bench.advance('20 s')
    expect(calls).toEqual(['begins'])
    await bench.advance('15 s')
    expect(calls).toEqual(['begins', 'release maybe undefined'])
  })

  it('M1 begins no effect again that was undone while it ran, if an operator retries the task', async () => {
    const { bench, calls, end, next, store, find } = await cancelledInside('fail')
    await bench.advance('20 s')
    await bench.advance('15 s')
    end()
    await next
    const undone = ['begins', 'release maybe undefined', 'ends']
    expect(calls).toEqual(undone)
    const retry = { kind: 'retry', id: await find(), liveMs: DAY } as const
    expect(await store().operator?.act(retry, 'test')).toBe('done')
    await bench.advance('1 min')
    expect(calls).toEqual(undone)
  })

  it('M1 survives a restart before the task is cancelled', async () => {
    const { bench, reserved } = asking()
    const task = bench.task('trip')
    await task.next()
    await task.restart()
    await task.cancel()
    await bench.advance(1)
    expect(reserved.size).toBe(0)
  })
})

describe('undo after a run that ended early', () => {
  it('M1 R9 begins with the last effect, although the journal was full before the run reached it', async () => {
    const { bench, reserved, calls } = hotel(
      (server, book) =>
        server.tool('trip', {}, async (_args, ctx) => {
          const rooms = async () => {
            await book(ctx, 'one')
            await book(ctx, 'two')
          }
          const questions = ['a', 'b', 'c'].map((key) => ctx.confirm(key, `Meal ${key}?`))
          await Promise.all([rooms(), ...questions])
          return 'Booked.'
        }),
      { limits: { maxEntries: 3 } },
    )
    const running = bench.tool('trip')
    await running.next()
    await running.next()
    expect(reserved.size).toBe(2)
    const yes = { confirm: true }
    expect(await running.next({ a: yes, b: yes, c: yes })).toMatchObject({ kind: 'error' })
    await bench.advance(1)
    await expect.poll(() => reserved.size).toBe(0)
    expect(calls.slice(2)).toEqual(['release two yes two', 'release one yes one'])
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

  it.each(MODES)('M1 undoes what it still reaches in %s, and lists the rest for operators', async (mode) => {
    const { bench, reserved, release } = changing(mode)
    const running = call(bench, mode)
    let round = await running.next()
    while (round.kind === 'input_required' && !('ok' in round.questions)) round = await running.next()
    release.number = 2
    // A new effect while "two" is recorded and not reached: REPLAY_DIVERGED.
    const ended = await running.next({ ok: { confirm: true } })
    expect((ended as { text: string }).text).toMatch(
      /^\[REPLAY_DIVERGED\].*\nNot undone yet: two, one\. The server tries again\.$/,
    )
    await bench.advance(1)
    expect([...reserved.values()]).toEqual(['two'])
    await expect
      .poll(() => bench.events.filter(({ event, level }) => event === 'undo' && level === 'error').at(-1))
      .toMatchObject({ failed: ['two'] })
    const worker = bench.events.filter(({ event }) => event === 'undo')
    expect(worker[0]).toMatchObject({ undone: ['one'], failed: ['two'] })
  })

  it('M1 undoes the rest when an operator retries the alarm with a release that reaches it', async () => {
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

  it('M1 R7 runs an effect again under the key of its intent if a release calls it with other answers', async () => {
    let release = 1
    const keys: string[] = []
    const { bench, reserved } = hotel((server) =>
      server.tool('trip', { task: 'auto' }, async (_args, ctx) => {
        const book = () =>
          ctx.effect(
            'room',
            ({ key }) => {
              keys.push(key)
              reserved.set(key, 'room')
              if (release === 1) throw new RondoError('STORE_UNAVAILABLE')
            },
            { undo: (_result, { effectKey }) => void reserved.delete(effectKey) },
          )
        if (release === 2) await book()
        await ctx.confirm('ok', 'Book?')
        if (release === 1) await book()
        throw new ToolError('No room is good enough')
      }),
    )
    const task = bench.task('trip')
    await task.next()
    await task.next({ ok: { confirm: true } })
    release = 2
    await bench.advance('1 min')
    expect(await task.next()).toMatchObject({ kind: 'complete' })
    expect(new Set(keys).size).toBe(1)
    expect(keys.length).toBeGreaterThan(1)
    expect(reserved.size).toBe(0)
  })

  it('B8 M1 does not run a single-use effect again if a release calls it with other answers', async () => {
    let release = 1
    let runs = 0
    let isDying = false
    const undone: string[] = []
    const bench = createBench(({ store: given, ...options }) => {
      const store = given as Store & { records: RecordStore }
      const records: RecordStore = {
        ...store.records,
        put: async (record) => {
          if (isDying) throw new RondoError('STORE_UNAVAILABLE')
          return store.records.put(record)
        },
      }
      const server = createServer({
        name: 'hotel',
        version: '1.0.0',
        ...options,
        store: { ...store, records },
      })
      server.tool('trip', { task: 'auto' }, async (_args, ctx) => {
        const book = () =>
          ctx.effect(
            'room',
            () => {
              runs += 1
              // The process dies before the outcome is recorded.
              isDying = release === 1
            },
            { once: true, undo: () => void undone.push('room') },
          )
        if (release === 2) await book()
        await ctx.confirm('ok', 'Book?')
        if (release === 1) await book()
        throw new ToolError('No room is good enough')
      })
      return server
    })
    const task = bench.task('trip')
    await task.next()
    await task.next({ ok: { confirm: true } })
    expect(runs).toBe(1)
    release = 2
    isDying = false
    await bench.advance('1 min')
    await task.next()
    expect(runs).toBe(1)
    expect(undone).toEqual(['room'])
  })

  it('M1 undoes the rest if the function is there again', async () => {
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

  it('M1 gets the same reply if it was lost, and undoes nothing twice', async () => {
    const { bench, calls } = asking()
    const trip = bench.tool('trip')
    let round = await trip.next()
    while (round.kind === 'input_required' && !('ok' in round.questions)) round = await trip.next()
    await trip.loseReply({ ok: { confirm: false } })
    expect(await trip.otherInstance().next({ ok: { confirm: false } })).toMatchObject({ text: 'Released.' })
    expect(calls).toEqual(['reserve one', 'release one yes one'])
  })

  it('M1 R7 runs an effect under the same key if a new release calls it with other answers', async () => {
    let release = 1
    const keys: string[] = []
    const { bench } = hotel((server) =>
      server.tool('trip', { task: 'never' }, async (_args, ctx) => {
        const book = () =>
          ctx.effect(
            'room',
            ({ key }) => {
              keys.push(key)
              if (release === 1) throw new RondoError('STORE_UNAVAILABLE')
            },
            { undo: () => {} },
          )
        if (release === 2) await book()
        await ctx.confirm('ok', 'Book?')
        if (release === 1) await book()
        return 'Booked.'
      }),
    )
    const trip = bench.tool('trip')
    await trip.next()
    await trip.next({ ok: { confirm: true } })
    expect(await trip.next()).toMatchObject({ message: expect.stringContaining('Send the request again') })
    release = 2
    expect(await trip.next()).toMatchObject({ kind: 'complete', text: 'Booked.' })
    expect(keys).toHaveLength(2)
    expect(new Set(keys).size).toBe(1)
  })

  it('M1 refuses a second answer to a state whose effects may have been undone', async () => {
    const { bench, reserved } = asking()
    const trip = bench.tool('trip')
    let round = await trip.next()
    while (round.kind === 'input_required' && !('ok' in round.questions)) round = await trip.next()
    await trip.loseReply({ ok: { confirm: false } })
    expect(await trip.next({ ok: { confirm: true } })).toMatchObject({ kind: 'error', code: -32602 })
    expect(reserved.size).toBe(0)
  })

  it('M1 cannot end well once a worker has begun to undo it', async () => {
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

  it('M1 is undone by a worker at once when the call has used all of its rounds', async () => {
    const { bench, reserved } = hotel(
      (server, book) =>
        server.tool('trip', { task: 'never' }, async (_args, ctx) => {
          await book(ctx, 'one')
          await ctx.confirm('ok', 'Book?')
          return 'Booked.'
        }),
      { limits: { maxRounds: 2 } },
    )
    const trip = bench.tool('trip')
    await trip.next()
    expect(await trip.next()).toMatchObject({ questions: { ok: {} } })
    expect(reserved.size).toBe(1)
    expect(await trip.next({ ok: { confirm: true } })).toMatchObject({ kind: 'error' })
    await bench.advance('10 s')
    expect(reserved.size).toBe(0)
  })

  const oneAtATime = (end: (ctx: Ctx, store: Store) => Promise<unknown>): Hotel => {
    const made: Hotel = hotel((server, book) =>
      server.tool('trip', { task: 'auto', concurrency: { otherwise: 'refuse' } }, async (_args, ctx) => {
        await book(ctx, 'one')
        await end(ctx, made.store())
        return 'Booked.'
      }),
    )
    return made
  }

  it('M1 M3 passes the permit to the worker that undoes the rest', async () => {
    const { bench, fails } = oneAtATime(() => Promise.reject(new ToolError('Sold out.')))
    fails.push(...Array(10).fill('release one'))
    const first = bench.tool('trip')
    await first.next()
    expect(await first.next()).toMatchObject({ text: expect.stringContaining('Not undone yet: one') })
    expect(await bench.tool('trip').next()).toMatchObject({
      message: expect.stringContaining('as many calls as it allows'),
    })
    await bench.advance('20 min')
    fails.length = 0
    await bench.advance('1 h')
    expect(await bench.tool('trip').next()).toMatchObject({ kind: 'input_required' })
  })

  it('M1 M3 waits for a permit to undo a call that has lost its own', async () => {
    const { bench, reserved, calls } = oneAtATime((ctx) => ctx.confirm('ok', 'Book?'))
    const first = bench.tool('trip')
    await first.next()
    await first.next()
    await bench.advance('23 hours')
    const second = bench.task('trip')
    expect(await second.next()).toMatchObject({ kind: 'input_required' })
    await bench.advance('2 hours')
    expect([reserved.size, calls.length]).toEqual([2, 2])
    expect(await second.next({ ok: { confirm: true } })).toMatchObject({ text: 'Booked.' })
    for (let i = 0; i < 5; i++) await bench.advance('1 min')
    expect([reserved.size, calls.at(-1)]).toEqual([1, 'release one yes one'])
  })

  it('M1 M3 leaves the undo to a worker if the call has lost its permit', async () => {
    const { bench, calls } = oneAtATime(async (ctx, store) => {
      await ctx.step('freeze', () => store.permits?.release(ctx.flow))
      throw new ToolError('Sold out.')
    })
    const trip = bench.tool('trip')
    await trip.next()
    expect(await trip.next()).toMatchObject({ code: -32000, data: { retryAfterMs: expect.any(Number) } })
    expect(calls.filter((line) => line.startsWith('release'))).toEqual([])
    await bench.advance('1 s')
    expect(calls).toEqual(['reserve one', 'release one yes one'])
  })

  it('M1 M3 keeps the permit of a session whose question could not be asked until a worker has undone its call', async () => {
    const store = createMemoryStore()
    const start = (workers: number): Server => {
      const server = createServer({
        ...{ name: 'hotel', version: '1', keys: generateKey('k'), log: 'off', store },
        tasks: { concurrency: workers },
      })
      server.tool('trip', { concurrency: { otherwise: 'refuse' } }, async (_args, ctx) => {
        await ctx.effect('one', () => 1, { undo: () => {} })
        return String(await ctx.confirm('ok', 'Book?'))
      })
      return server
    }
    const server = start(0)
    const { url } = await server.listen({ port: 0, signals: false, graceMs: 200 })
    const answer = () => ({ error: { code: -32000, message: 'Not now' } })
    const client = await connectOlder(url, { capabilities: { elicitation: { form: {} } }, answer })
    const call = () => client.call('tools/call', { name: 'trip', arguments: {} })
    expect(JSON.stringify(await call())).toContain('Not now')
    expect(JSON.stringify(await call())).toContain('as many calls as it allows')
    await server.close()
  })

  it('M1 runs nothing but undo functions when a worker undoes a call that was left alone', async () => {
    const { bench, calls } = hotel((server, book) =>
      server.tool('trip', { task: 'never' }, async (_args, ctx) => {
        await book(ctx, 'one')
        await ctx.step('after', () => void calls.push('step'))
        await ctx.confirm('ok', 'Book?')
        return 'Booked.'
      }),
    )
    const trip = bench.tool('trip')
    let round = await trip.next()
    while (round.kind === 'input_required' && !('ok' in round.questions)) round = await trip.next()
    await bench.advance('25 hours')
    expect(calls).toEqual(['reserve one', 'step', 'release one yes one'])
  })

  it('M1 hands the call back once before an effect that follows a question, so that a state counts once', async () => {
    const { bench, calls } = hotel((server, book) =>
      server.tool('trip', { task: 'never' }, async (_args, ctx) => {
        await ctx.confirm('ok', 'Reserve?')
        await book(ctx, 'one')
        return 'Booked.'
      }),
    )
    const trip = bench.tool('trip')
    expect(await trip.next()).toMatchObject({ kind: 'input_required', questions: { ok: {} } })
    expect(await trip.next({ ok: { confirm: true } })).toMatchObject({
      kind: 'input_required',
      questions: {},
    })
    expect(calls).toEqual([])
    await trip.loseReply()
    expect(await trip.otherInstance().next()).toMatchObject({ text: 'Booked.' })
    expect(calls).toEqual(['reserve one'])
  })

  it('M1 begins no further effect once a worker has begun to undo the call', async () => {
    const { bench, calls } = hotel((server, book) =>
      server.tool('trip', { task: 'never' }, async (_args, ctx) => {
        await book(ctx, 'one')
        await ctx.confirm('ok', 'Book?')
        await book(ctx, 'two')
        return 'Booked.'
      }),
    )
    const trip = bench.tool('trip')
    let round = await trip.next()
    while (round.kind === 'input_required' && !('ok' in round.questions)) round = await trip.next()
    await bench.advance('25 hours')
    bench.clock.now -= 25 * 3_600_000
    expect(await trip.next({ ok: { confirm: true } })).toMatchObject({ kind: 'error', code: -32602 })
    expect(calls).not.toContain('reserve two')
  })

  it('M1 begins no effect after ctx.undo() if a worker has undone the call meanwhile', async () => {
    const waits: (() => void)[] = []
    const { bench, calls } = hotel((server, book) =>
      server.tool('trip', { task: 'never' }, async (_args, ctx) => {
        await book(ctx, 'one', {
          // The first attempt, that of the call, is slow.
          undo: () => new Promise<void>((resolve) => (waits.push(resolve) > 1 ? resolve() : undefined)),
          timeout: '30 days',
        })
        await ctx.confirm('ok', 'Book?')
        await ctx.undo()
        await book(ctx, 'two')
        return 'Booked.'
      }),
    )
    const trip = bench.tool('trip')
    let round = await trip.next()
    while (round.kind === 'input_required' && !('ok' in round.questions)) round = await trip.next()
    const ended = trip.next({ ok: { confirm: true } })
    await expect.poll(() => waits.length).toBe(1)
    await bench.advance('25 hours')
    expect(waits.length).toBe(2)
    waits[0]?.()
    expect(await ended).toMatchObject({ kind: 'error', code: -32602 })
    expect(calls).not.toContain('reserve two')
  })

  it('M1 cannot end well after an undo that failed if a worker has undone the call meanwhile', async () => {
    const steps: (() => void)[] = []
    const { bench, reserved, calls } = hotel((server, book) =>
      server.tool('trip', { task: 'never' }, async (_args, ctx) => {
        await book(ctx, 'one', { undo: () => Promise.reject(new Fatal('Closed')) })
        await ctx.undo()
        await book(ctx, 'two')
        await ctx.step('slow', () => new Promise<void>((resolve) => void steps.push(resolve)))
        return 'Booked.'
      }),
    )
    const trip = bench.tool('trip')
    await trip.next()
    const ended = trip.next()
    await expect.poll(() => steps.length).toBe(1)
    await bench.advance('25 hours')
    expect(calls).toEqual(['reserve one', 'reserve two', 'release two yes two'])
    steps[0]?.()
    expect(await ended).toMatchObject({ kind: 'error', code: -32602 })
    expect([...reserved.values()]).toEqual(['one'])
  })

  it('M1 keeps what ran if a worker looks at a call that is just becoming a task', async () => {
    const { bench, reserved, store } = hotel((server, book) =>
      server.tool('trip', {}, async (_args, ctx) => {
        await book(ctx, 'one')
        await ctx.background()
        return 'Booked.'
      }),
    )
    const task = bench.task('trip')
    const { tasks } = store()
    const { claim, create, park } = tasks
    const looks = { may: false, done: 0 }
    Object.assign(tasks, {
      claim: async (...given: Parameters<typeof claim>) => (looks.may ? claim(...given) : []),
      park: async (...given: Parameters<typeof park>) => {
        looks.done += 1
        return park(...given)
      },
      async create(...all: Parameters<typeof create>) {
        const [given, openLimit] = all
        // The workers of the process that creates the alarm are busy.
        if (given.owner.principal.startsWith('undo')) return create(given, openLimit)
        looks.may = true
        await expect.poll(() => looks.done).toBe(1)
        return create(...all)
      },
    })
    expect(await task.run()).toMatchObject({ text: 'Booked.' })
    await bench.advance(2 * DAY)
    expect(reserved.size).toBe(1)
  })

  it('M1 needs a store, and says so before the effect begins', async () => {
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

/** Tasks that sleep, and tasks whose questions close by themselves. */

import { type Context, createServer, type Server, type TaskOptions } from 'rondo'
import { createBench, type TestBench } from 'rondo/testing'
import { describe, expect, it } from 'vitest'
import { z } from 'zod'

const value = z.object({ value: z.string() })
const DAY = 86_400_000

interface World {
  readonly effects: string[]
}

function bench(declare: (server: Server, world: World) => void): TestBench & World {
  const world: World = { effects: [] }
  const made = createBench((options) => {
    const server = createServer({ name: 'time', version: '1.0.0', ...options, tasks: { ttlMs: 30 * DAY } })
    declare(server, world)
    return server
  })
  return Object.assign(made, world)
}

describe('a task that sleeps', () => {
  const reminder = () =>
    bench((server, { effects }) =>
      server.tool('remind', { task: 'auto' }, async (_args, ctx) => {
        const began = ctx.now()
        await ctx.sleep('wait', '3 days')
        await ctx.effect('send', ({ key }) => void effects.push(key))
        return `after ${(ctx.now() - began) / DAY} days`
      }),
    )

  it('G1 is parked until its time, and wakes once', async () => {
    const made = reminder()
    const task = made.task('remind')
    expect(await task.next()).toEqual({ kind: 'sleeping', until: made.clock.now + 3 * DAY })
    await made.advance('2 days 23 hours')
    expect(await task.next()).toMatchObject({ kind: 'sleeping' })
    expect(made.effects).toEqual([])
    await made.advance('1 hour')
    expect(await task.next()).toMatchObject({ kind: 'complete', text: 'after 3 days' })
    expect(made.effects).toHaveLength(1)
  })

  it('G1 survives a restart, which does not start the clock again', async () => {
    const made = reminder()
    const task = made.task('remind')
    const { until } = (await task.next()) as { until: number }
    await made.advance('2 days')
    await task.restart()
    expect(await task.next()).toEqual({ kind: 'sleeping', until })
    await made.advance('1 day')
    expect(await task.next()).toMatchObject({ kind: 'complete' })
    expect(made.effects).toHaveLength(1)
  })

  it.each(['back', 'forward'])(
    'G1 keeps its time although the clock steps %s, and wakes once',
    async (direction) => {
      const made = reminder()
      const task = made.task('remind')
      const { until } = (await task.next()) as { until: number }
      await made.advance('1 day')
      made.clock.now += direction === 'back' ? -DAY : DAY
      expect(await task.next()).toEqual({ kind: 'sleeping', until })
      await task.restart()
      expect(await task.next()).toEqual({ kind: 'sleeping', until })
      await made.advance(until - made.clock.now - 1)
      expect(await task.next()).toEqual({ kind: 'sleeping', until })
      await made.advance(1)
      expect(await task.next()).toMatchObject({ kind: 'complete', text: 'after 3 days' })
      expect(made.effects).toHaveLength(1)
    },
  )

  it('runs to its end in one call of a test, and the time passes at once', async () => {
    const made = reminder()
    expect(await made.task('remind').run()).toMatchObject({ kind: 'complete', text: 'after 3 days' })
  })

  it('is cancelled while it sleeps', async () => {
    const made = reminder()
    const task = made.task('remind')
    await task.next()
    await task.cancel()
    await made.advance('4 days')
    expect(await task.next()).toEqual({ kind: 'cancelled' })
    expect(made.effects).toEqual([])
  })

  it('G1 a call that begins in rounds continues as a task', async () => {
    const made = bench((server) =>
      server.tool('late', {}, async (_args, ctx) => {
        const { value: name } = await ctx.ask('name', { message: 'Name?', schema: value })
        await ctx.sleep('wait', '1 day')
        return `Hello ${name}`
      }),
    )
    const task = made.task('late')
    expect(await task.next()).toMatchObject({ kind: 'input_required' })
    expect(task.taskId).toBeUndefined()
    expect(await task.next({ name: { value: 'Ada' } })).toMatchObject({ kind: 'sleeping' })
    expect(task.taskId).toBeDefined()
    await made.advance('1 day')
    expect(await task.next()).toMatchObject({ text: 'Hello Ada' })
  })

  it('G1 a client without tasks gets advice instead, and nothing later runs', async () => {
    const made = reminder()
    expect(await made.tool('remind').run()).toMatchObject({
      result: { isError: true },
      text: expect.stringContaining('This client cannot follow a task'),
    })
    expect(made.effects).toEqual([])
  })

  it('G1 a short sleep waits in the request, without real time in a test', async () => {
    const made = bench((server) =>
      server.tool('nap', {}, async (_args, ctx) => {
        const began = ctx.now()
        await ctx.sleep('wait', '9 s')
        return `${ctx.now() - began}`
      }),
    )
    expect(await made.tool('nap').run()).toMatchObject({ text: '9000' })
  })
})

describe('a question of a task with a time limit', () => {
  const approval = () =>
    bench((server, { effects }) =>
      server.tool('approve', { task: 'auto' }, async (_args, ctx) => {
        const [first, second] = await Promise.all([
          ctx.elicit('first', { message: 'First?', schema: value, within: '1 day' }),
          ctx.elicit('second', { message: 'Second?', schema: value }),
        ])
        await ctx.effect('act', ({ key }) => void effects.push(key))
        return [first, second].map(({ action }) => action).join()
      }),
    )

  it('G2 is answered in time', async () => {
    const made = approval()
    const task = made.task('approve')
    await task.next()
    await made.advance('23 hours')
    expect(await task.next({ first: { value: 'a' }, second: { value: 'b' } })).toMatchObject({
      text: 'accept,accept',
    })
  })

  it('G2 expires by timer and is withdrawn, and the other question stays open under its key', async () => {
    const made = approval()
    const task = made.task('approve')
    await task.next()
    await made.advance('1 day')
    const round = await task.next()
    expect(round).toMatchObject({ kind: 'input_required' })
    expect(Object.keys((round as { questions: object }).questions)).toEqual(['second'])
    expect(await task.next({ second: { value: 'b' } })).toMatchObject({ text: 'expired,accept' })
    expect(made.effects).toHaveLength(1)
  })

  it('G2 takes no late response, and acknowledges it', async () => {
    const made = approval()
    const task = made.task('approve')
    await task.next()
    // Nobody wakes the task yet: the response arrives first.
    made.clock.now += DAY
    const round = await task.next({ first: { value: 'late' } })
    expect(['input_required']).toContain(round.kind)
    await made.advance(0)
    expect(await task.next({ second: { value: 'b' } })).toMatchObject({ text: 'expired,accept' })
  })

  it('G2 counts a response that came in time although no worker was there until later', async () => {
    const made = approval()
    const task = made.task('approve')
    await task.next()
    await task.next({ first: { value: 'in time' } })
    await made.server.close()
    made.clock.now += 2 * DAY
    made.otherInstance()
    expect(await task.next({ second: { value: 'b' } })).toMatchObject({ text: 'accept,accept' })
  })
})

describe('a task that waits for longer than it lives otherwise', () => {
  /** The thing that the handler waits for, and the text of its result after so many days. */
  const WAITS: Readonly<Record<string, (ctx: Context, days: string) => Promise<string>>> = {
    sleep: async (ctx, within) => ctx.sleep('wait', within).then(() => 'slept'),
    hook: async (ctx, within) =>
      (await ctx.hook('wait', { within })).received().catch(({ name }: Error) => name) as Promise<string>,
    elicit: async (ctx, within) =>
      (await ctx.elicit('wait', { message: 'Well?', schema: value, within })).action,
    confirm: async (ctx, within) => String(await ctx.confirm('wait', 'Well?', { within })),
  }
  const ENDS = { sleep: 'slept', hook: 'EventExpired', elicit: 'expired', confirm: 'false' }
  const kinds = Object.keys(ENDS) as (keyof typeof ENDS)[]

  /** With the default lifetime of a day. */
  function patient(tasks?: TaskOptions): TestBench {
    return createBench((options) => {
      const server = createServer({ name: 'patient', version: '1.0.0', ...options, tasks })
      const input = z.object({ kind: z.string(), within: z.string() })
      server.tool('wait', { input, task: 'auto' }, async ({ kind, within }, ctx) => {
        const outcome = await WAITS[kind]?.(ctx, within)
        return ctx.effect('tell', () => `${outcome}`)
      })
      return server
    })
  }

  it.each(kinds)('G1 G2 G3 lives until its %s is over, and for its own time from then on', async (kind) => {
    const made = patient()
    const task = made.task('wait', { kind, within: '3 days' })
    await task.next()
    await made.advance(3 * DAY - 1)
    expect((await task.next()).kind).toMatch(/sleeping|waiting|input_required/)
    await made.advance(1)
    expect(await task.next()).toMatchObject({ kind: 'complete', text: ENDS[kind] })
    await made.advance(DAY - 1)
    expect(await task.next()).toMatchObject({ kind: 'complete' })
    await made.advance(1)
    expect(await task.next()).toMatchObject({ kind: 'error', message: 'Task not found' })
  })

  it.each(kinds)('G1 G2 G3 ends at once with advice if no task lives as long as its %s', async (kind) => {
    for (const [tasks, within] of [
      [{}, '30 days'],
      [{ maxTtlMs: 2 * DAY }, '2 days'],
    ] as const) {
      const made = patient(tasks)
      expect(await made.task('wait', { kind, within }).next()).toMatchObject({
        kind: 'complete',
        result: { isError: true },
        text: expect.stringMatching(/"wait".* for (30|2) days.*tasks\.maxTtlMs/),
      })
    }
  })

  it.each(kinds)('G1 may wait for as long as it lives anyway, whatever the limit: %s', async (kind) => {
    const made = patient({ ttlMs: 5 * DAY, maxTtlMs: DAY })
    const task = made.task('wait', { kind, within: '3 days' })
    await task.next()
    await made.advance('3 days')
    expect(await task.next()).toMatchObject({ kind: 'complete', text: ENDS[kind] })
  })

  it('G1 lives until the last of its waits is over', async () => {
    const made = createBench((options) => {
      const server = createServer({ name: 'patient', version: '1.0.0', ...options })
      server.tool('wait', { task: 'auto' }, async (_args, ctx) => {
        const hook = await ctx.hook('paid', { within: '2 days' })
        const [{ action }, paid] = await Promise.all([
          ctx.elicit('soon', { message: 'Well?', schema: value, within: '1 hour' }),
          hook.received().catch(({ name }: Error) => name),
          ctx.sleep('nap', '3 days'),
        ])
        return `${action} ${paid}`
      })
      return server
    })
    const task = made.task('wait')
    await task.next()
    await made.advance('3 days')
    expect(await task.next()).toMatchObject({ kind: 'complete', text: 'expired EventExpired' })
  })

  it('G1 lives no longer than the limit, even if its wait ends shortly before', async () => {
    const made = patient({ maxTtlMs: 3 * DAY })
    const task = made.task('wait', { kind: 'hook', within: '2 days 23 hours' })
    await task.next()
    await made.advance('2 days 23 hours')
    expect(await task.next()).toMatchObject({ kind: 'complete', text: 'EventExpired' })
    await made.advance('1 hour')
    expect(await task.next()).toMatchObject({ kind: 'error', message: 'Task not found' })
  })

  it('G3 takes the event of a hook that it opened before it slept, after more than its own time', async () => {
    const ids: string[] = []
    const made = createBench((options) => {
      const server = createServer({ name: 'patient', version: '1.0.0', ...options })
      server.tool('wait', { task: 'auto' }, async (_args, ctx) => {
        const hook = await ctx.hook('paid')
        await ctx.step('hand out', () => void ids.push(hook.id))
        await ctx.sleep('nap', '4 days')
        return String(await hook.received())
      })
      return server
    })
    const task = made.task('wait')
    await task.next()
    await made.advance('3 days')
    expect(await made.server.deliver(ids[0] ?? '', 'paid')).toEqual({ kind: 'accepted' })
    await made.advance('1 day')
    expect(await task.next()).toMatchObject({ kind: 'complete', text: 'paid' })
  })
})

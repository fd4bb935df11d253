/** Hooks that take an event only for a while: in time, too late, at the same moment, and over a restart (G3). */

import { createServer, EventExpired, type Server, type ServerOptions } from 'rondo'
import { createBench, type TestBench } from 'rondo/testing'
import { afterEach, describe, expect, it } from 'vitest'
import type { Arrival } from '../../packages/rondo/src/replay/input.ts'
import { createMemoryStore } from '../../packages/rondo/src/store/memory/store.ts'
import { replayFlow } from '../support/replay-flow.ts'
import { until } from '../support/store/store-harness.ts'
import { send, settled } from '../support/task-client.ts'

const HOUR = 3_600_000

interface Desk {
  readonly ids: string[]
  readonly effects: string[]
}

function declare(server: Server, { ids, effects }: Desk): Server {
  server.tool('pay', { task: 'auto' }, async (_args, ctx) => {
    const payment = await ctx.hook('payment', { within: '1 hour' })
    await ctx.step('hand out', () => void ids.push(payment.id))
    const event = await payment.received().catch((error: unknown) => {
      if (error instanceof EventExpired) return `expired ${error.key}`
      throw error
    })
    await ctx.effect('note', ({ key }) => void effects.push(key))
    return JSON.stringify(event)
  })
  server.tool('uncaught', { task: 'auto' }, async (_args, ctx) => {
    const payment = await ctx.hook('payment', { within: '1 hour' })
    await payment.received()
    return ctx.step('never', () => void effects.push('never'))
  })
  return server
}

function bench(): TestBench & Desk {
  const desk: Desk = { ids: [], effects: [] }
  const made = createBench((options) =>
    declare(createServer({ name: 'hooks', version: '1.0.0', ...options }), desk),
  )
  return Object.assign(made, desk)
}

describe('a hook with a time limit', () => {
  it('G3 takes an event until a millisecond before its time', async () => {
    const made = bench()
    const task = made.task('pay')
    expect(await task.next()).toEqual({ kind: 'waiting', hooks: ['payment'], until: made.clock.now + HOUR })
    await made.advance(HOUR - 1)
    expect(await made.server.deliver(made.ids[0] ?? '', 7)).toEqual({ kind: 'accepted' })
    expect(await task.next()).toMatchObject({ kind: 'complete', text: '7' })
    expect(made.effects).toHaveLength(1)
  })

  it('G3 expires by timer, and the handler goes on; a late event is told that the hook is closed', async () => {
    const made = bench()
    const task = made.task('pay')
    await task.next()
    await made.advance('1 hour')
    expect(await task.next()).toMatchObject({ kind: 'complete', text: '"expired payment"' })
    expect(await made.server.deliver(made.ids[0] ?? '', 7)).toEqual({ kind: 'closed' })
    expect(made.effects).toHaveLength(1)
  })

  it('G3 takes no event at its time, even if no worker has come yet', async () => {
    const made = bench()
    const task = made.task('pay')
    await task.next()
    made.clock.now += HOUR
    expect(await made.server.deliver(made.ids[0] ?? '', 7)).toEqual({ kind: 'closed' })
    await made.advance(0)
    expect(await task.next()).toMatchObject({ text: '"expired payment"' })
  })

  it('G3 counts an event that came in time although no worker was there until later', async () => {
    const made = bench()
    const task = made.task('pay')
    await task.next()
    await made.server.close()
    expect(await made.server.deliver(made.ids[0] ?? '', 7)).toEqual({ kind: 'accepted' })
    made.clock.now += 2 * HOUR
    made.otherInstance()
    expect(await task.next()).toMatchObject({ text: '7' })
  })

  it('G3 does not start the clock again after a restart', async () => {
    const made = bench()
    const task = made.task('pay')
    const { until: before } = (await task.next()) as { until: number }
    await made.advance('50 min')
    await task.restart()
    expect(await task.next()).toEqual({ kind: 'waiting', hooks: ['payment'], until: before })
    await made.advance('10 min')
    expect(await task.next()).toMatchObject({ text: '"expired payment"' })
    expect(made.ids).toHaveLength(1)
  })

  it('G3 ends the call politely if the author does not catch its end', async () => {
    const made = bench()
    expect(await made.task('uncaught').run()).toMatchObject({
      kind: 'complete',
      text: 'The event for "payment" did not arrive in time. Nothing more was done.',
      result: { isError: true },
    })
    expect(made.effects).toEqual([])
  })

  it.each([-1, Number.NaN, Number.POSITIVE_INFINITY, 'soon', '', '-3 days', 367 * 24 * HOUR, {}, null])(
    'G3 ends with an error that names the option for within: %s',
    async (within) => {
      const made = createBench((options) => {
        const server = createServer({ name: 'hooks', version: '1.0.0', ...options })
        server.tool('bad', { task: 'auto' }, async (_args, ctx) => {
          try {
            await ctx.hook('payment', { within: within as never })
            return 'opened'
          } catch (error) {
            return `${(error as Error).name}: ${(error as Error).message}`
          }
        })
        return server
      })
      const { text } = (await made.task('bad').run()) as { text: string }
      expect(text).toMatch(
        /^TypeError: .*(The time limit of "payment" \(within\) (must|may) be|The hook "payment": within is null)/,
      )
    },
  )
})

it('G3 a hook hands nothing out before the end of its time is durable, so that no crash can move it', async () => {
  const opened: string[] = []
  const flow = replayFlow((ctx) => ctx.hook('payment', { within: 50 }), { anchored: true })
  let written = () => {}
  const run = flow.round(undefined, {
    persistDeadline: () => new Promise((resolve) => (written = resolve)),
    input: {
      hooks: {
        open: async (key, _schema, due) => `id ${opened.push(`${key} ${due}`)}`,
        close: async () => {},
      },
    },
  })
  for (let i = 0; i < 20; i++) await new Promise((resolve) => setImmediate(resolve))
  expect(opened).toEqual([])
  written()
  await run
  expect(opened).toEqual([`payment ${flow.clock.now + 50}`])
})

it.each(['a\0b', '\ud800'])(
  "G3 R11 a name that no database stores is the author's error: %j",
  async (key) => {
    const made = createBench((options) => {
      const server = createServer({ name: 'hooks', version: '1.0.0', ...options })
      server.tool('odd', { task: 'auto' }, async (_args, ctx) =>
        ctx.hook(key).then(
          () => 'opened',
          (error: Error) => error.message,
        ),
      )
      return server
    })
    expect(await made.task('odd').run()).toMatchObject({ text: expect.stringContaining('well-formed text') })
  },
)

it('G3 the name of a hook leaves room for the name of its event', async () => {
  const open = async () => 'id'
  const hooks = { open, close: async () => {} }
  const flow = replayFlow((ctx) => ctx.hook('k'.repeat(120)))
  expect((await flow.round(undefined, { input: { hooks } })).ending).toMatchObject({
    kind: 'threw',
    error: { message: expect.stringContaining('at most 119 characters') },
  })
  const longest = replayFlow(async (ctx) => (await ctx.hook('k'.repeat(119))).received())
  const { ending } = await longest.round(undefined, {
    input: { hooks },
    events: new Map([['k'.repeat(119), 'event']]),
  })
  expect(ending).toEqual({ kind: 'returned', value: 'event' })
})

describe('an event and the end of its time at the same moment', () => {
  it('G3 are recorded as the event alone: the hook that is being closed has taken it', async () => {
    let tell: (arrived: Arrival) => boolean = () => false
    const flow = replayFlow(async (ctx) => {
      const hook = await ctx.hook('payment', { within: 10 })
      return hook.received().then(String, (error: Error) => error.name)
    })
    const round = (close: () => Promise<void>) =>
      flow.round(undefined, {
        sleeping: { parks: true },
        input: { hooks: { open: async () => 'id', close } },
        onArrival: (arrival) => {
          tell = arrival
        },
      })
    expect((await round(async () => {})).ending).toMatchObject({ wakeAt: flow.clock.now + 10 })
    flow.clock.now += 10
    // The store accepted it in time; the worker reads that when it closes the hook.
    const { ending, journal } = await round(async () => void tell({ hook: 'payment', value: 'in time' }))
    expect(ending).toEqual({ kind: 'returned', value: 'in time' })
    const recorded = journal.entries.filter(({ key }) => key === 'payment.received')
    expect(recorded).toEqual([expect.objectContaining({ value: 'in time' })])
    expect(recorded[0]).not.toHaveProperty('expired')
  })

  const servers: Server[] = []
  afterEach(async () => {
    for (const server of servers.splice(0)) await server.close()
  })

  it('G3 counts what the store has accepted, although the clock of the worker is ahead', async () => {
    // The worker's clock jumps forward while the store's does not: the worker believes that the time is up.
    let jump = 0
    const store = createMemoryStore({ now: () => Date.now() })
    const ids: string[] = []
    let delivered: unknown
    const { publish } = store.tasks
    const options: Partial<ServerOptions> = { store, now: () => Date.now() + jump, log: 'off' }
    const server = createServer({ name: 'race', version: '1', ...options })
    servers.push(server)
    // The event arrives between the decision of the worker and its write.
    store.tasks.publish = async (fence, slots) => {
      if (slots.some(({ kind, role }) => kind === 'closed' && role === 'hook'))
        delivered ??= await server.deliver(ids[0] ?? '', 'in time')
      return publish(fence, slots)
    }
    server.tool('pay', { task: 'auto' }, async (_args, ctx) => {
      const payment = await ctx.hook('payment', { within: '10 min' })
      await ctx.step('hand out', () => void ids.push(payment.id))
      await ctx.step('jump', () => {
        jump = 600_000
      })
      const text = await payment.received().then(String, (error: Error) => error.name)
      // Another turn replays what was recorded. It is due by the store's clock, so the worker's must agree again.
      jump = 0
      await ctx.sleep('rest', 1)
      return text
    })
    const { result } = await send(server, 'tools/call', { name: 'pay', arguments: {} })
    const ended = await settled(server, String(result?.taskId))
    await until('the delivery', () => delivered)
    expect(delivered).toEqual({ kind: 'accepted' })
    expect(ended).toMatchObject({ result: { content: [{ text: 'in time' }] } })
  })
})

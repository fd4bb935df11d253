import { once } from 'node:events'
import { type Context, createServer, generateKey, type ServerOptions } from 'rondo'
import type { BusSubscription, Store } from 'rondo/store'
import { describe, expect, it, onTestFinished } from 'vitest'
import { connectOlder, type Message, type OpenStream } from '../../../../test/support/older-client.ts'
import { createMemoryStore } from '../store/memory/store.ts'

const YES = { action: 'accept', content: { confirm: true } }
const BOOK = { jsonrpc: '2.0', id: 'book', method: 'tools/call', params: { name: 'book' } }

type Wrap = (store: Store) => Store

interface Setup {
  readonly tool?: object
  /** The options of all servers. */
  readonly options?: Partial<ServerOptions>
  /** What each instance has for a store. */
  readonly stores?: readonly Wrap[]
  /** Whether the effect can be undone. */
  readonly isUndoable?: boolean
  /** What the handler does once it has its answer. */
  go?(ctx: Context): Promise<unknown>
}

const same: Wrap = (store) => store

/** Instances with one store, two unless `stores` says otherwise, and a client whose requests go to the one that was chosen last. */
async function start({ tool = {}, options: more, stores = [same, same], isUndoable = true, go }: Setup = {}) {
  const store = createMemoryStore()
  const keys = generateKey()
  const happened: string[] = []
  const servers = stores.map((wrap) => {
    const options = { name: 'hotel', version: '1', keys, log: 'off', sessions: {}, ...more } as const
    const server = createServer({ ...options, store: wrap(store) })
    server.tool('book', tool, async (_args, ctx) => {
      const undo = (): void => void happened.push('undo')
      await ctx.effect('room', () => void happened.push('room'), { ...(isUndoable && { undo }) })
      const isSure = await ctx.confirm('sure', 'Sure?')
      await go?.(ctx)
      return isSure ? 'Booked.' : 'Not booked.'
    })
    onTestFinished(() => server.close())
    return server
  })
  let chosen = 0
  const send = async (request: Request): Promise<Response> =>
    (await servers[chosen]?.fetch(request)) ?? new Response()
  const options = { capabilities: { elicitation: { form: {} } } }
  const client = await connectOlder('http://127.0.0.1/mcp', options, send)
  const stream = await client.post(BOOK)
  const question = await next(stream)
  const choose = (index: number): void => {
    chosen = index
  }
  /** Resumes the stream of the call after the question. */
  const resume = (): Promise<OpenStream> => client.get({ 'last-event-id': stream.ids.at(-1) ?? '' })
  return { client, stream, question, happened, choose, resume }
}

async function next(stream: OpenStream): Promise<Message> {
  const message = await stream.next()
  if (message) return message
  throw new Error('the stream ended')
}

const BOOKED = { result: { content: [{ text: 'Booked.' }] } }

describe('a call that waits, on two instances', () => {
  it('J1 M1 R7 is not undone by the instance that loses it to another', async () => {
    const { client, question, happened, choose, resume } = await start()
    choose(1)
    const stream = await resume()
    await client.respond(question.id, YES)
    expect(await next(stream)).toMatchObject(BOOKED)
    expect(happened).toEqual(['room'])
  })

  it('J1 M3 keeps its permit when another instance continues it', async () => {
    const { client, question, choose, resume } = await start({
      tool: { concurrency: { key: () => 'all', limit: 1 } },
    })
    choose(1)
    const stream = await resume()
    const other = await client.call('tools/call', { name: 'book' })
    expect(other).not.toMatchObject(BOOKED)
    await client.respond(question.id, YES)
    expect(await next(stream)).toMatchObject(BOOKED)
  })

  it('J1 M3 releases its permit when its client cancels it after another instance has taken it over', async () => {
    const tool = { concurrency: { key: () => 'all', limit: 1 } }
    const { client, choose, resume } = await start({ tool, isUndoable: false })
    choose(1)
    await resume()
    await client.notify('notifications/cancelled', { requestId: BOOK.id })
    await expect
      .poll(async () => {
        const stream = await client.post({ ...BOOK, id: 'again' })
        const { id, method } = await next(stream)
        if (method !== undefined) void client.respond(id, YES)
        return method
      })
      .toBe('elicitation/create')
  })

  it('J1 R2 learns of an answer whose first request failed after the answer was stored', async () => {
    let failures = 1
    const flaky = (store: Store): Store => ({
      ...store,
      bus: store.bus && {
        ...store.bus,
        publish: async (message) => {
          if (failures-- > 0) throw new Error('away')
          await store.bus?.publish(message)
        },
      },
    })
    const { client, stream, question, choose } = await start({ stores: [same, flaky] })
    choose(1)
    expect((await client.respond(question.id, YES)).status).not.toBe(202)
    expect((await client.respond(question.id, YES)).status).toBe(202)
    expect(await next(stream)).toMatchObject(BOOKED)
  })

  it.each([
    ['the instance that takes it over', 1],
    ['another instance', 2],
  ])('J1 R2 continues with an answer that %s accepts before it asks again', async (_which, index) => {
    let answered = (): void => {}
    const hasAnswered = new Promise<void>((resolve) => {
      answered = resolve
    })
    let stored = false
    const slow: Wrap = (store) => ({
      ...store,
      records: store.records && {
        ...store.records,
        put: async (record) => {
          const outcome = await store.records?.put(record)
          if (!stored && record.id.includes(' call ')) {
            stored = true
            await hasAnswered
          }
          return outcome as never
        },
      },
    })
    const { client, question, choose, resume } = await start({ stores: [same, slow, same] })
    choose(1)
    const resumed = resume()
    await expect.poll(() => stored).toBe(true)
    choose(index)
    expect((await client.respond(question.id, YES)).status).toBe(202)
    answered()
    expect(await next(await resumed)).toMatchObject(BOOKED)
  })

  it('J1 R2 gets its answer at an instance that has it again before it learns that it had lost it', async () => {
    let slow = false
    let release: (() => void) | undefined
    const late: Wrap = (store) => ({
      ...store,
      records: store.records && {
        ...store.records,
        get: async (id) => {
          const found = await store.records?.get(id)
          if (slow && id.includes(' call ')) {
            slow = false
            await new Promise<void>((resolve) => {
              release = resolve
            })
          }
          return found
        },
      },
    })
    const go = (ctx: Context): Promise<unknown> => ctx.confirm('again', 'Really?')
    const { client, question, choose, resume } = await start({ stores: [late, same], go })
    slow = true
    choose(1)
    const elsewhere = await resume()
    await client.respond(question.id, YES)
    const { id } = await next(elsewhere)
    await expect.poll(() => release).toBeDefined()
    choose(0)
    const back = await client.get({ 'last-event-id': elsewhere.ids.at(-1) ?? '' })
    release?.()
    choose(1)
    await client.respond(id, YES)
    expect(await next(back)).toMatchObject(BOOKED)
  })

  it('J1 M1 R7 is not undone by an instance that did not learn that it lost it, when its own client is gone', async () => {
    let looks = 0
    const deaf: Wrap = (store) => ({
      ...store,
      records: store.records && {
        ...store.records,
        get: (id) => {
          looks++
          return store.records?.get(id) as never
        },
      },
      bus: store.bus && { ...store.bus, subscribe: () => ({ started: Promise.resolve(), stop: () => {} }) },
    })
    const options = { sessions: { resumeMs: 100 } }
    const { client, stream, question, happened, choose, resume } = await start({
      options,
      stores: [deaf, same],
    })
    choose(1)
    const resumed = await resume()
    const before = looks
    await stream.drop()
    await expect.poll(() => looks).toBeGreaterThan(before)
    await client.respond(question.id, YES)
    expect(await next(resumed)).toMatchObject(BOOKED)
    expect(happened).toEqual(['room'])
  })
})

describe('a call that runs, on two instances', () => {
  /** An instance that shows no sign of life and learns nothing, until it is thawed. */
  function freezer() {
    let isFrozen = false
    const late: (() => unknown)[] = []
    const wrap: Wrap = (store) => ({
      ...store,
      records: store.records && {
        ...store.records,
        touch: async (ids, ...rest) => {
          if (!isFrozen) await store.records?.touch(ids, ...rest)
        },
      },
      bus: store.bus && {
        ...store.bus,
        subscribe: ({ receive, lost }) =>
          store.bus?.subscribe({
            lost,
            receive: async (messages) => {
              if (isFrozen) late.push(() => receive(messages))
              else await receive(messages)
            },
          }) as BusSubscription,
      },
    })
    return {
      wrap,
      freeze: () => {
        isFrozen = true
      },
      thaw: async () => {
        isFrozen = false
        for (const receive of late) await receive()
      },
    }
  }

  it.each<[string, (ctx: Context) => Promise<unknown>]>([
    ['its handler throws', () => Promise.reject(new Error('aborted'))],
    ['its handler calls ctx.undo()', (ctx) => ctx.undo()],
  ])('J1 M1 R7 is not undone by the instance that lost it to another, if %s', async (_name, abort) => {
    const { wrap, freeze, thaw } = freezer()
    let runs = 0
    let hasThawed = false
    const go = async (ctx: Context): Promise<unknown> => {
      runs += 1
      if (runs === 1) {
        await once(ctx.signal, 'abort')
        return abort(ctx)
      }
      await expect.poll(() => hasThawed).toBe(true)
      return ctx.step('work', () => {})
    }
    const options = { tasks: { leaseMs: 500 } }
    const { client, question, happened, choose, resume } = await start({ options, stores: [wrap, same], go })
    await client.respond(question.id, YES)
    await expect.poll(() => runs).toBe(1)
    freeze()
    choose(1)
    const resumed = await resume()
    await expect.poll(() => runs).toBe(2)
    await thaw()
    hasThawed = true
    expect(await next(resumed)).toMatchObject(BOOKED)
    expect(happened).toEqual(['room'])
  })

  it.each([
    ['before', true],
    ['after', false],
  ])(
    'J1 M1 R7 begins no effect again that was undone, if the first of these was %s its question',
    async (_where, isUndoable) => {
      const { wrap, freeze } = freezer()
      let runs = 0
      const go = async (ctx: Context): Promise<unknown> => {
        await ctx.effect('car', () => void happened.push('car'), {
          undo: () => void happened.push('undo car'),
        })
        await ctx.undo()
        runs += 1
        return runs === 1 ? once(ctx.signal, 'abort') : undefined
      }
      const options = { tasks: { leaseMs: 500 } }
      const stores = [wrap, same]
      const { client, question, happened, choose, resume } = await start({ options, stores, isUndoable, go })
      await client.respond(question.id, YES)
      await expect.poll(() => runs).toBe(1)
      freeze()
      choose(1)
      expect(await next(await resume())).toMatchObject(BOOKED)
      expect(happened).toEqual(['room', 'car', 'undo car', ...(isUndoable ? ['undo'] : [])])
    },
  )

  it('J1 R2 uses no id of a question again, if another instance continues it from an effect after the answer', async () => {
    const { wrap, freeze } = freezer()
    let runs = 0
    const go = async (ctx: Context): Promise<unknown> => {
      await ctx.effect('car', () => {}, { undo: () => {} })
      runs += 1
      return runs === 1 ? once(ctx.signal, 'abort') : ctx.confirm('again', 'Again?')
    }
    const options = { tasks: { leaseMs: 500 } }
    const stores = [wrap, same]
    const { client, question, choose, resume } = await start({ options, stores, isUndoable: false, go })
    await client.respond(question.id, YES)
    await expect.poll(() => runs).toBe(1)
    freeze()
    choose(1)
    const resumed = await resume()
    const { id } = await next(resumed)
    expect(id).not.toBe(question.id)
    await client.respond(id, YES)
    expect(await next(resumed)).toMatchObject(BOOKED)
  })

  it('J1 R2 is not overwritten by an earlier run of the instance to which it has come back', async () => {
    const { wrap, freeze } = freezer()
    let runs = 0
    let release: (() => void) | undefined
    const late: Wrap = (store) => ({
      ...store,
      records: store.records && {
        ...store.records,
        put: async (record) => {
          if (runs === 1 && record.id.includes(' call ')) {
            await new Promise<void>((resolve) => {
              release = resolve
            })
          }
          return (await store.records?.put(record)) as never
        },
      },
    })
    const go = async (ctx: Context): Promise<unknown> => {
      runs += 1
      await ctx.confirm('again', 'Again?')
      return ctx.confirm('last', 'Really?')
    }
    const options = { tasks: { leaseMs: 500 } }
    const stores: Wrap[] = [(store) => late(wrap(store)), same]
    const { client, question, choose, resume } = await start({ options, stores, go })
    await client.respond(question.id, YES)
    await expect.poll(() => release).toBeDefined()
    freeze()
    choose(1)
    const elsewhere = await resume()
    await client.respond((await next(elsewhere)).id, YES)
    const { id } = await next(elsewhere)
    choose(0)
    const back = await client.get({ 'last-event-id': elsewhere.ids.at(-1) ?? '' })
    release?.()
    await client.respond(id, YES)
    expect(await next(back)).toMatchObject(BOOKED)
  })

  it('J1 M1 R7 is not undone by the instance that fails before it learns that it lost it to another', async () => {
    const { wrap, freeze } = freezer()
    let runs = 0
    const ends: unknown[] = []
    const go = async (): Promise<unknown> => {
      runs += 1
      if (runs > 1) return expect.poll(() => ends).toContain('tool_error')
      await expect.poll(() => runs).toBe(2)
      throw new Error('too late')
    }
    const options: Partial<ServerOptions> = {
      tasks: { leaseMs: 500 },
      log: (event) => void (event.event === 'round' && ends.push(event.outcome)),
    }
    const { client, question, happened, choose, resume } = await start({ options, stores: [wrap, same], go })
    await client.respond(question.id, YES)
    await expect.poll(() => runs).toBe(1)
    freeze()
    choose(1)
    expect(await next(await resume())).toMatchObject(BOOKED)
    expect(happened).toEqual(['room'])
  })
})

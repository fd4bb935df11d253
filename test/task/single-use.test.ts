/**
 * Additions of a store to rounds: states that are accepted once (B8), effects that are not repeated, journals too large to send.
 */

import { createServer, RondoError, type Server, type ServerOptions } from 'rondo'
import { describe, expect, it } from 'vitest'
import { createMemoryStore } from '../../packages/rondo/src/store/memory/store.ts'
import type { Store } from '../../packages/rondo/src/store/store.ts'
import { createTime, until } from '../support/store/store-harness.ts'
import { type Rpc, send, settled } from '../support/task-client.ts'

const keys = 'k:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE='
const ROUNDS_ONLY = { capabilities: { elicitation: {} } }
const REFUSED = { code: -32602, message: 'Invalid or expired requestState' }
const yes = { sure: { action: 'accept', content: { confirm: true } } }
const no = { sure: { action: 'accept', content: { confirm: false } } }

function start(ran: string[], options: Partial<ServerOptions> = {}): Server {
  const server = createServer({
    name: 'once',
    version: '1',
    keys,
    log: 'off',
    store: createMemoryStore(),
    ...options,
  })
  server.tool('redeem', { once: true }, async (_args, ctx) => {
    if (!(await ctx.confirm('sure', 'Redeem the voucher?'))) return 'kept'
    await ctx.step('redeem', () => void ran.push('redeem'))
    return `redeemed ${ran.length}`
  })
  server.tool('ask', {}, async (_args, ctx) => String(await ctx.confirm('sure', 'Sure?')))
  server.tool('charge', {}, async (_args, ctx) => {
    await ctx.confirm('sure', 'Charge?')
    const n = await ctx.effect('charge', () => ran.push('charge'), { once: true })
    return `charge ${n}`
  })
  return server
}

async function begin(server: Server, name: string): Promise<string> {
  const { result } = await send(server, 'tools/call', { name }, ROUNDS_ONLY)
  return String(result?.requestState)
}

const call = (server: Server, name: string, requestState: string, inputResponses: object): Promise<Rpc> =>
  send(server, 'tools/call', { name, requestState, inputResponses }, ROUNDS_ONLY)

describe('rounds while the store is away', () => {
  const away = () => Promise.reject(new RondoError('STORE_UNAVAILABLE', 'the database is down'))
  /** A store that can be switched off. */
  function switchable() {
    const memory = createMemoryStore()
    const state = { up: true }
    const epoch = () => (state.up ? memory.once.epoch() : away())
    const claim: Store['once']['claim'] = (...given) => (state.up ? memory.once.claim(...given) : away())
    return { state, store: { ...memory, once: { ...memory.once, epoch, claim } } }
  }

  it('E2 asks, and takes the answer once the store is back, if it was reached before', async () => {
    const ran: string[] = []
    const { state, store } = switchable()
    const server = start(ran, { store })
    await begin(server, 'charge')
    state.up = false
    const asked = await begin(server, 'charge')
    state.up = true
    expect((await call(server, 'charge', asked, yes)).result).toMatchObject({
      content: [{ text: 'charge 1' }],
    })
  })

  it('B8 asks if the store was never reached, and runs no single-use effect of that flow afterwards', async () => {
    const ran: string[] = []
    const { state, store } = switchable()
    const server = start(ran, { store })
    state.up = false
    const { result } = await send(server, 'tools/call', { name: 'ask' }, ROUNDS_ONLY)
    const plain = String(result?.requestState)
    const asked = await begin(server, 'charge')
    state.up = true
    expect((await call(server, 'ask', plain, yes)).result).toMatchObject({ content: [{ text: 'true' }] })
    expect((await call(server, 'charge', asked, yes)).result).toMatchObject({ isError: true })
    expect(ran).toEqual([])
  })

  it('B8 asks nothing in a single-use call whose state could never be redeemed', async () => {
    const { state, store } = switchable()
    const server = start([], { store })
    state.up = false
    expect((await send(server, 'tools/call', { name: 'redeem' }, ROUNDS_ONLY)).error).toMatchObject({
      code: -32000,
    })
  })
})

describe('a server with single use', () => {
  it('B8 accepts a state once: the same request gets the same response, any other is refused', async () => {
    const ran: string[] = []
    const server = start(ran)
    const state = await begin(server, 'redeem')
    const first = await call(server, 'redeem', state, yes)
    expect(first.result).toMatchObject({ content: [{ text: 'redeemed 1' }] })
    const again = await call(server, 'redeem', state, yes)
    expect(again.result).toEqual(first.result)
    expect((await call(server, 'redeem', state, no)).error).toEqual(REFUSED)
    expect(ran).toEqual(['redeem'])
  })

  it('B8 P13 processes one of many concurrent requests, on instances that share the store', async () => {
    const ran: string[] = []
    const store = createMemoryStore()
    const [a, b] = [start(ran, { store }), start(ran, { store })]
    const state = await begin(a, 'redeem')
    const replies = await Promise.all(
      Array.from({ length: 20 }, (_, i) => call(i % 2 === 0 ? a : b, 'redeem', state, yes)),
    )
    expect(new Set(replies.map(({ result }) => JSON.stringify(result))).size).toBe(1)
    expect(ran).toEqual(['redeem'])
  })

  it('B8 ends the call if the result of an effect is not JSON, and does not run the effect again', async () => {
    for (const result of [new Date(0), 1n, { n: Number.NaN }]) {
      const ran: string[] = []
      const server = start([])
      server.tool('odd', {}, async (_args, ctx) => {
        await ctx.confirm('sure', 'Charge?')
        const charge = () => {
          ran.push('odd')
          return result as never
        }
        await ctx.effect('odd', charge, { once: true })
        return 'done'
      })
      const state = await begin(server, 'odd')
      for (let attempt = 1; attempt <= 2; attempt++) {
        const { error, result: reply } = await call(server, 'odd', state, yes)
        expect(reply).toBeUndefined()
        expect(error).toMatchObject({ code: expect.any(Number), message: expect.any(String) })
      }
      expect(ran).toEqual(['odd'])
    }
  })

  it('B8 releases the slot of an effect that failed, so that the next request can try again at once', async () => {
    const server = start([])
    let failing = true
    server.tool('flaky', {}, async (_args, ctx) => {
      await ctx.confirm('sure', 'Charge?')
      return ctx.effect(
        'pay',
        () => {
          if (failing) throw new Error('The provider is down')
          return 'paid'
        },
        { once: true },
      )
    })
    const state = await begin(server, 'flaky')
    expect((await call(server, 'flaky', state, yes)).result).toMatchObject({ isError: true })
    failing = false
    expect((await call(server, 'flaky', state, yes)).result).toMatchObject({ content: [{ text: 'paid' }] })
  })

  it('B8 control: without single use, the same state is accepted twice', async () => {
    const ran: string[] = []
    const server = createServer({ name: 'often', version: '1', keys, log: 'off' })
    server.tool('redeem', {}, async (_args, ctx) => {
      await ctx.confirm('sure', 'Redeem?')
      await ctx.step('redeem', () => void ran.push('redeem'))
    })
    const state = await begin(server, 'redeem')
    await call(server, 'redeem', state, yes)
    await call(server, 'redeem', state, yes)
    expect(ran).toEqual(['redeem', 'redeem'])
  })

  it.each(['redeem', 'charge'])(
    'T17 B8 opens no reply of %s that was stored for another call',
    async (tool) => {
      const ran: string[] = []
      const store = createMemoryStore()
      let moved: string | undefined
      const claim: typeof store.once.claim = async (slot, attempt) =>
        moved === undefined ? store.once.claim(slot, attempt) : { kind: 'stored', response: moved }
      const settle: typeof store.once.settle = async (slot, response) => {
        moved = response
        return store.once.settle(slot, response)
      }
      const server = start(ran, { store: { ...store, once: { ...store.once, claim, settle } } })
      const [mine, theirs] = [await begin(server, tool), await begin(server, tool)]
      const first = await call(server, tool, mine, yes)
      expect(first.result).toMatchObject({ content: [{ text: expect.stringContaining(' 1') }] })
      expect((await call(server, tool, mine, yes)).result).toEqual(first.result)
      const stolen = await call(server, tool, theirs, yes)
      expect(JSON.stringify(stolen)).not.toContain(' 1')
      expect(ran).toHaveLength(1)
    },
  )

  it('B8 fails closed when the store has lost its records', async () => {
    const ran: string[] = []
    const state = await begin(start(ran), 'redeem')
    expect((await call(start(ran), 'redeem', state, yes)).error).toEqual(REFUSED)
    expect(ran).toEqual([])
  })

  it('B8 runs a single-use effect once, even if its response was lost', async () => {
    const ran: string[] = []
    const server = start(ran)
    const state = await begin(server, 'charge')
    const first = await call(server, 'charge', state, yes)
    const again = await call(server, 'charge', state, yes)
    expect(first.result).toMatchObject({ content: [{ text: 'charge 1' }] })
    expect(again.result).toEqual(first.result)
    expect(ran).toEqual(['charge'])
  })

  it('B8 runs a single-use effect once, even if it takes longer than a lease', async () => {
    const store = createMemoryStore()
    let running = 0
    let most = 0
    let finish = () => {}
    const instance = () => {
      const server = start([], { store, tasks: { leaseMs: 1_500 } })
      server.tool('slow', {}, async (_args, ctx) => {
        await ctx.confirm('sure', 'Charge?')
        const paying = () =>
          new Promise<string>((resolve) => {
            most = Math.max(most, ++running)
            finish = () => resolve('paid')
          })
        return ctx.effect('pay', paying, { once: true })
      })
      return server
    }
    const [a, b] = [instance(), instance()]
    const state = await begin(a, 'slow')
    const first = call(a, 'slow', state, yes)
    await until('the effect', () => running === 1)
    // It waits longer than the slot is held without renewal, and gets a retry-after error.
    const second = await call(b, 'slow', state, yes)
    expect(most).toBe(1)
    expect(second.error).toEqual({
      code: -32000,
      message: expect.stringMatching(/^This call is running elsewhere, .* Retry in \d+ s$/),
      data: { retryAfterMs: expect.any(Number) },
    })
    finish()
    expect((await first).result).toMatchObject({ content: [{ text: 'paid' }] })
    expect(await call(b, 'slow', state, yes)).toMatchObject({ result: { content: [{ text: 'paid' }] } })
    expect(most).toBe(1)
  })

  it('B8 E9 waits for the slot of an effect whose worker died in the middle of it', async () => {
    const now = createTime()
    const store = createMemoryStore({ now })
    const attempts: string[] = []
    const instance = (name: string, act: (signal: AbortSignal) => Promise<string>): Server => {
      const server = start([], { store, now, tasks: { leaseMs: 15_000 } })
      server.tool('pay', { task: 'always' }, (_args, ctx) => {
        const paying = ({ signal }: { signal: AbortSignal }) => {
          attempts.push(name)
          return act(signal)
        }
        return ctx.effect('pay', paying, { once: true })
      })
      return server
    }
    const dies = instance('first', (signal) => new Promise((_, no) => signal.addEventListener('abort', no)))
    const { result } = await send(dies, 'tools/call', { name: 'pay' })
    const taskId = String(result?.taskId)
    await send(dies, 'tasks/get', { taskId })
    await until('the effect', () => attempts.length === 1)
    const takesOver = instance('second', async () => 'paid')
    now.pass(16_000)
    await send(takesOver, 'tasks/get', { taskId })
    await until('a take-over', async () => (await store.tasks.list({ id: taskId }))[0]?.worker === undefined)
    expect(attempts).toEqual(['first'])
    await dies.close()
    now.pass(60_000)
    expect(await settled(takesOver, taskId)).toMatchObject({ result: { content: [{ text: 'paid' }] } })
    expect(attempts).toEqual(['first', 'second'])
    await takesOver.close()
  })

  it('B8 throws at definition time if there is no store', async () => {
    const server = createServer({ name: 'no store', version: '1', keys, log: 'off', dev: true })
    expect(() => server.tool('redeem', { once: true }, () => '')).toThrow(/needs a store/)
    server.tool('charge', {}, async (_args, ctx) => {
      await ctx.confirm('sure', 'Charge?')
      return ctx.effect('charge', () => 'x', { once: true })
    })
    const reply = await call(server, 'charge', await begin(server, 'charge'), yes)
    expect(reply.result).toMatchObject({
      isError: true,
      content: [{ text: expect.stringContaining('needs a store') }],
    })
  })
})

describe('a journal too large for its token', () => {
  const big = (options: Partial<ServerOptions> = {}): Server => {
    const limits = { maxBytes: 2048 }
    const server = createServer({
      name: 'big',
      version: '1',
      keys,
      log: 'off',
      store: createMemoryStore(),
      limits,
      ...options,
    })
    server.tool('big', {}, async (_args, ctx) => {
      const document = await ctx.step('document', () => 'x'.repeat(5000))
      await ctx.confirm('sure', 'Go on?')
      return String(document.length)
    })
    return server
  }

  it('P14 goes into the store; the token stays small and any instance can continue', async () => {
    const store = createMemoryStore()
    const state = await begin(big({ store }), 'big')
    expect(state.length).toBeLessThanOrEqual(2048)
    expect((await call(big({ store }), 'big', state, yes)).result).toMatchObject({
      content: [{ text: '5000' }],
    })
  })

  it('is refused like any invalid state if the store does not have it', async () => {
    const state = await begin(big(), 'big')
    expect((await call(big(), 'big', state, yes)).error).toEqual(REFUSED)
  })

  it('is an error without a store', async () => {
    const { error } = await send(big({ store: undefined }), 'tools/call', { name: 'big' }, ROUNDS_ONLY)
    expect(error).toMatchObject({
      code: -32603,
      message: 'The state of this call is larger than the server allows',
    })
  })
})

/**
 * A captured state is useless except for the call that it was sealed for. Each row of the matrix is the same attack with
 * one thing changed; the control row changes nothing and succeeds. Rondo's own server and an official one with Rondo's
 * callbacks refuse in the same way.
 */

import { createServer, generateKey, type Server, type ServerOptions } from 'rondo'
import { type BenchOptions, createBench, type TestBench, type TestCall, type TestRound } from 'rondo/testing'
import { describe, expect, it } from 'vitest'
import { z } from 'zod'
import { mountedServer } from '../support/sdk-bench.ts'

type Overrides = Pick<ServerOptions, 'keys' | 'audience' | 'limits'>
type Bank = (bench: BenchOptions, overrides?: Overrides) => Server

const alice = { subject: 'alice', issuer: 'https://id.example', client: 'app' }
const input = z.object({ to: z.string(), amount: z.number().optional() })
const promptInput = z.object({ to: z.string() })

const ours: Bank = (bench, overrides) => {
  const server = createServer({ name: 'bank', version: '1.0.0', ...bench, ...overrides })
  for (const tool of ['transfer', 'transfer_all']) {
    server.tool(tool, { input }, async ({ to }, ctx) =>
      (await ctx.confirm('sure', `Send to ${to}?`)) ? `sent to ${to}` : 'not sent',
    )
  }
  server.prompt('transfer', { input: promptInput }, async ({ to }, ctx) =>
    (await ctx.confirm('sure', `Send to ${to}?`)) ? `sent to ${to}` : 'not sent',
  )
  server.tool('two', {}, async (_args, ctx) => {
    await ctx.confirm('a', 'A?')
    await ctx.confirm('b', 'B?')
    return 'done'
  })
  return server
}

const official: Bank = (bench, overrides) =>
  mountedServer({ ...bench, audience: 'bank', ...overrides }, (server, rondo) => {
    for (const tool of ['transfer', 'transfer_all']) {
      server.registerTool(
        tool,
        { inputSchema: input },
        rondo.tool(async ({ to }, ctx) => {
          const text = (await ctx.confirm('sure', `Send to ${to}?`)) ? `sent to ${to}` : 'not sent'
          return { content: [{ type: 'text', text }] }
        }),
      )
    }
    server.registerPrompt(
      'transfer',
      { argsSchema: promptInput },
      rondo.prompt(async ({ to }, ctx) => {
        const text = (await ctx.confirm('sure', `Send to ${to}?`)) ? `sent to ${to}` : 'not sent'
        return { messages: [{ role: 'user', content: { type: 'text', text } }] }
      }),
    )
    server.registerTool(
      'two',
      {},
      rondo.tool(async (_args, ctx) => {
        await ctx.confirm('a', 'A?')
        await ctx.confirm('b', 'B?')
        return { content: [{ type: 'text', text: 'done' }] }
      }),
    )
  })

const REFUSAL = { kind: 'error', code: -32602, message: 'Invalid or expired requestState', data: undefined }

const servers: [string, Bank, object][] = [
  ['our server', ours, REFUSAL],
  ['the official server', official, { ...REFUSAL, data: { reason: 'invalid_request_state' } }],
]

interface Captured {
  bench: TestBench
  state: string
}

async function capture(make: Bank, overrides?: Overrides): Promise<Captured> {
  const bench = createBench((options) => make(options, overrides))
  const call = bench.tool('transfer', { to: 'bob' }, { principal: alice })
  await call.next()
  return { bench, state: call.state ?? '' }
}

/** Sends the state with a call as if its question had been asked there. */
async function present(call: TestCall, state: string): Promise<TestRound> {
  call.state = state
  return call.next({ sure: { confirm: true } })
}

describe.each(servers)('T1 T2 binding matrix of %s', (_name, bank, refusal) => {
  it('control: an unchanged state is accepted', async () => {
    const { bench, state } = await capture(bank)
    const round = await present(bench.tool('transfer', { to: 'bob' }, { principal: alice }), state)
    expect(round).toMatchObject({ kind: 'complete', text: 'sent to bob' })
  })

  const others: [string, (bench: TestBench) => TestCall][] = [
    ['B7 other arguments', (b) => b.tool('transfer', { to: 'mallory' }, { principal: alice })],
    ['B7 an additional argument', (b) => b.tool('transfer', { to: 'bob', amount: 1 }, { principal: alice })],
    ['B7 another tool', (b) => b.tool('transfer_all', { to: 'bob' }, { principal: alice })],
    ['B7 another method of the same name', (b) => b.prompt('transfer', { to: 'bob' }, { principal: alice })],
    [
      'B5 another subject',
      (b) => b.tool('transfer', { to: 'bob' }, { principal: { ...alice, subject: 'eve' } }),
    ],
    [
      'B5 another issuer',
      (b) => b.tool('transfer', { to: 'bob' }, { principal: { ...alice, issuer: 'https://evil.example' } }),
    ],
    [
      'B5 another client',
      (b) => b.tool('transfer', { to: 'bob' }, { principal: { ...alice, client: 'other' } }),
    ],
    ['B5 no principal at all', (b) => b.tool('transfer', { to: 'bob' })],
  ]
  it.each(others)('%s: refused', async (_name, call) => {
    const { bench, state } = await capture(bank)
    expect(await present(call(bench), state)).toEqual(refusal)
    expect(bench.events.at(-1)).toMatchObject({ event: 'state_refused' })
  })

  it('B5 a state of an unauthenticated caller is refused for an authenticated one', async () => {
    const { bench } = await capture(bank)
    const call = bench.tool('transfer', { to: 'bob' })
    await call.next()
    expect(await present(call.as(alice), call.state ?? '')).toEqual(refusal)
  })

  it('B6 a state is refused after the lifetime of its round or its flow', async () => {
    const { bench, state } = await capture(bank, { limits: { roundTtlMs: 1000 } })
    bench.clock.advance(999)
    const call = bench.tool('transfer', { to: 'bob' }, { principal: alice })
    expect(await present(call, state)).toMatchObject({ kind: 'complete' })
    bench.clock.advance(1)
    expect(await present(call, state)).toEqual(refusal)
  })

  it('B6 a flow ends at its lifetime, although every round was in time', async () => {
    const limits = { roundTtlMs: 1000, flowTtlMs: 1500 }
    const bench = createBench((options) => bank(options, { limits }))
    const call = bench.tool('two')
    await call.next()
    bench.clock.advance(900)
    await call.next({ a: { confirm: true } })
    bench.clock.advance(700)
    expect(await call.next({ b: { confirm: true } })).toEqual(refusal)
  })

  it('B4 another service with the same key, and the same service with another key: refused', async () => {
    const { state, bench } = await capture(bank)
    const from = (overrides: Overrides) =>
      createBench((options) => bank({ ...options, now: () => bench.clock.now }, overrides)).tool(
        'transfer',
        { to: 'bob' },
        { principal: alice },
      )
    expect(await present(from({ keys: generateKey('bench') }), state)).toEqual(refusal)
    const sharing = createBench((options) =>
      bank(options, { keys: 'shared:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=' }),
    )
    const original = sharing.tool('transfer', { to: 'bob' }, { principal: alice })
    await original.next()
    const elsewhere = createBench((options) =>
      bank(options, { keys: 'shared:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=', audience: 'another' }),
    )
    const thief = elsewhere.tool('transfer', { to: 'bob' }, { principal: alice })
    expect(await present(thief, original.state ?? '')).toEqual(refusal)
  })

  it('B4 P17 every failure returns the same bytes', async () => {
    const { bench, state } = await capture(bank)
    const seen = new Set<string>()
    const last = state.at(-1) === 'A' ? 'B' : 'A'
    for (const forged of [
      '',
      'x',
      'r1.',
      'r1.AAAA',
      state.slice(0, -1),
      `${state}A`,
      `${state} `,
      state.slice(0, -1) + last,
      `r2.${state.slice(3)}`,
      'r1.'.padEnd(70_000, 'A'),
    ]) {
      const round = await present(bench.tool('transfer', { to: 'bob' }, { principal: alice }), forged)
      seen.add(JSON.stringify(round))
    }
    seen.add(
      JSON.stringify(await present(bench.tool('transfer', { to: 'eve' }, { principal: alice }), state)),
    )
    expect([...seen]).toEqual([JSON.stringify(refusal)])
  })

  it('B9 a rotated key opens what it sealed until it is dropped', async () => {
    const [old, fresh] = [generateKey('old'), generateKey('fresh')]
    let keys = old
    const bench = createBench((options) => bank(options, { keys }))
    const call = bench.tool('transfer', { to: 'bob' }, { principal: alice })
    await call.next()
    const phases: [string, TestRound['kind']][] = [
      [`${old},${fresh}`, 'complete'],
      [`${fresh},${old}`, 'complete'],
      [fresh, 'error'],
    ]
    for (const [phase, kind] of phases) {
      keys = phase
      const state = call.state
      expect((await call.otherInstance().next({ sure: { confirm: true } })).kind).toBe(kind)
      call.state = state
    }
  })
})

describe('arguments that the schema does not name', () => {
  const strict = z.strictObject({ to: z.string() })
  const bench = (dropUnknownArguments?: boolean) =>
    createBench((options) => {
      const server = createServer({ name: 'bank', version: '1.0.0', ...options, dropUnknownArguments })
      server.tool('transfer', { input: strict }, async (args, ctx) =>
        (await ctx.confirm('sure', `Send to ${args.to}?`)) ? `sent: ${JSON.stringify(args)}` : 'not sent',
      )
      server.tool('exact', { input: strict, dropUnknownArguments: false }, () => 'taken')
      return server
    })

  const args = { to: 'bob', _host: 'cli' }
  const yes = { sure: { confirm: true } }

  it('are refused by a strict schema, and dropped with dropUnknownArguments', async () => {
    expect(await bench().tool('transfer', args).next()).toMatchObject({ result: { isError: true } })
    const call = bench(true).tool('transfer', args)
    await call.next()
    expect(await call.next(yes)).toMatchObject({ kind: 'complete', text: 'sent: {"to":"bob"}' })
    expect(await bench(true).tool('exact', args).next()).toMatchObject({ result: { isError: true } })
  })

  it('B7 still bind the state, which is sealed for the arguments as the client sent them', async () => {
    const same = bench(true)
    const call = same.tool('transfer', args)
    await call.next()
    const other = same.tool('transfer', { ...args, _host: 'other' })
    expect(await present(other, call.state ?? '')).toMatchObject({ kind: 'error', code: -32602 })
  })
})

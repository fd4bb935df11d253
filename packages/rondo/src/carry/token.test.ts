import { describe, expect, it } from 'vitest'
import { z } from 'zod'
import type { ObservedOperation } from '../protocol/observer.ts'
import { createHost } from '../serve/host.ts'
import type { ServerOptions } from '../serve/options.ts'
import { createServer, type Server } from '../serve/server.ts'
import { createBench } from '../testing/bench.ts'
import type { Round } from './carrier.ts'
import { claimsOf, firstRound } from './token.ts'

/** A bench whose server runs as in production, with a tool that asks three questions after an effect that can be undone. */
function start(options: Partial<ServerOptions> = {}) {
  const calls: string[] = []
  const bench = createBench((given): Server => {
    const server = createServer({ name: 'hotel', version: '1.0.0', ...given, dev: false, ...options })
    server.tool('talk', {}, async (_args, ctx) => {
      for (const key of ['a', 'b', 'c']) await ctx.confirm(key, `${key}?`)
      return 'done'
    })
    server.tool('trip', { task: 'never' }, async (_args, ctx) => {
      await ctx.effect('room', () => void calls.push('reserve'), { undo: () => void calls.push('release') })
      for (const key of ['a', 'b', 'c']) if (!(await ctx.confirm(key, `${key}?`))) return 'stopped'
      return 'done'
    })
    server.tool('save', {}, async (_args, ctx) => {
      await ctx.effect('save', () => void calls.push('save'))
      return 'saved'
    })
    server.tool('large', { task: 'never' }, async (_args, ctx) => {
      const text = await ctx.step('load', () => {
        calls.push('load')
        return 'x'.repeat(100_000)
      })
      await ctx.confirm('a', 'a?')
      return String(text.length)
    })
    server.tool('at-once', { task: 'auto' }, () => 'done')
    server.tool('greet', { task: 'auto' }, async (_args, ctx) => {
      const { name } = await ctx.ask('who', { message: 'Who?', schema: z.object({ name: z.string() }) })
      return name
    })
    server.tool('leaves', {}, async (_args, ctx) => {
      await ctx.background()
      return 'done'
    })
    server.tool('late', {}, async (_args, ctx) => {
      await ctx.confirm('a', 'a?')
      return 'done'
    })
    return server
  })
  const rounds = () => bench.events.flatMap((event) => (event.event === 'round' ? [event] : []))
  const warnings = () => bench.events.flatMap((event) => (event.event === 'warning' ? [event.message] : []))
  return { bench, calls, rounds, warnings }
}

const yes = (key: string) => ({ [key]: { confirm: true } })

describe('a call under a token', () => {
  it('R9 may use limits.maxRounds rounds, and no more', async () => {
    const { bench } = start({ limits: { maxRounds: 3 } })
    const call = bench.tool('talk')
    await call.next()
    await call.next(yes('a'))
    expect(await call.next(yes('b'))).toMatchObject({ kind: 'input_required' })
    expect(await call.next(yes('c'))).toMatchObject({
      kind: 'error',
      code: -32603,
      message: 'This call needs more rounds than the server allows',
    })
  })

  it('R6 runs its first effect in the round after its id has reached the client', async () => {
    const { bench, calls } = start()
    const call = bench.tool('save')
    expect(await call.next()).toMatchObject({ kind: 'input_required', questions: {} })
    expect(calls).toEqual([])
    expect(await call.next()).toMatchObject({ kind: 'complete' })
    expect(calls).toEqual(['save'])
  })

  it('R1 is refused with a state that does not open, and says why only in the log', async () => {
    const { bench, rounds } = start()
    const call = bench.tool('talk')
    await call.next()
    call.state = 'odd'
    expect(await call.next(yes('a'))).toMatchObject({ kind: 'error', code: -32602 })
    expect(rounds()).toHaveLength(1)
    expect(bench.events).toContainEqual(expect.objectContaining({ event: 'state_refused', target: 'talk' }))
  })

  it('B8 may use a state again where nothing counts it', async () => {
    const { bench } = start()
    const call = bench.tool('late')
    await call.next()
    const { state } = call
    for (const confirm of [true, false]) {
      call.state = state
      expect(await call.next({ a: { confirm } })).toMatchObject({ kind: 'complete' })
    }
  })

  it('P14 continues with a journal that is too large for its state, from the store', async () => {
    const { bench, calls } = start()
    const call = bench.tool('large')
    const first = await call.next()
    expect(first).toMatchObject({ kind: 'input_required' })
    expect(call.state?.length).toBeLessThan(10_000)
    expect(await call.next(yes('a'))).toMatchObject({ kind: 'complete', text: '100000' })
    expect(calls).toEqual(['load'])
  })

  it('R9 ends with a journal that is too large for its state, if there is no store', async () => {
    const { bench, rounds } = start({ store: undefined })
    expect(await bench.tool('large').next()).toMatchObject({ kind: 'error', code: -32603 })
    expect(rounds()).toMatchObject([{ outcome: 'refused', code: 'LIMIT_STATE_BYTES' }])
  })

  it('D9 becomes a task at once if its tool says so, or when its handler does', async () => {
    for (const name of ['at-once', 'leaves']) {
      const { bench, rounds } = start()
      expect(await bench.task(name).next()).toMatchObject({ kind: 'complete', text: 'done' })
      expect(rounds()[0]).toMatchObject({ round: 1, outcome: 'task' })
    }
  })

  it('R3 uses the answer that came with its request if it becomes a task at once', async () => {
    const { bench } = start()
    const call = bench.task('greet')
    expect(await call.next({ who: { name: 'Ada' } })).toMatchObject({ kind: 'complete', text: 'Ada' })
  })

  it('shows its questions to an extension as such', async () => {
    const { bench } = start()
    const kinds: string[] = []
    bench.server.use({
      name: 'audit',
      async around(_call, next) {
        const reply = await next()
        kinds.push(reply.kind)
        return reply
      },
    })
    const call = bench.tool('late')
    await call.next()
    await call.next(yes('a'))
    expect(kinds).toEqual(['input_required', 'complete'])
  })

  it('has a state that expires after limits.roundTtlMs, and never later than its flow', () => {
    let time = 1_000
    const limits = { roundTtlMs: 10_000, flowTtlMs: 15_000 }
    const host = createHost({ audience: 'hotel', log: 'off', now: () => time, limits })
    const beginning = firstRound(host)
    const call = { method: 'tools/call', target: 'talk', args: {}, protocolVersion: '2026-07-28' }
    const ends = () =>
      claimsOf({ host, call, target: {}, beginning } as unknown as Round, beginning.journal, {}).roundExpires
    expect(ends()).toBe(11_000)
    time = 9_000
    expect(ends()).toBe(16_000)
  })

  it('R9 M1 is undone when it has used all of its rounds', async () => {
    const { bench, calls } = start({ limits: { maxRounds: 2 } })
    const call = bench.tool('trip')
    await call.next()
    await call.next()
    expect(calls).toEqual(['reserve'])
    await call.next(yes('a'))
    await bench.advance(0)
    await expect.poll(() => calls).toEqual(['reserve', 'release'])
  })

  it('B8 M1 may use each state once after an effect that can be undone', async () => {
    const { bench } = start()
    const call = bench.tool('trip')
    await call.next()
    await call.next()
    const { state } = call
    await call.next(yes('a'))
    call.state = state
    expect(await call.next({ a: { confirm: false } })).toMatchObject({ kind: 'error', code: -32602 })
    call.state = state
    expect(await call.next(yes('a'))).toMatchObject({ kind: 'input_required' })
  })

  it('logs the questions, the size of its state and the key that seals it', async () => {
    const { bench, rounds } = start()
    const call = bench.tool('talk')
    await call.next()
    expect(rounds()).toEqual([
      expect.objectContaining({
        outcome: 'input_required',
        asks: [{ key: 'a', kind: 'confirm' }],
        stateBytes: call.state?.length,
        keyId: 'bench',
      }),
    ])
  })

  it('warns of a state that is larger than limits.warnBytes', async () => {
    const whole = start()
    await whole.bench.tool('talk').next()
    const [{ stateBytes = 0 } = {}] = whole.rounds()
    for (const [warnBytes, count] of [
      [stateBytes, 0],
      [stateBytes - 1, 1],
    ] as const) {
      const { bench, warnings } = start({ limits: { warnBytes } })
      await bench.tool('talk').next()
      expect(warnings().filter((message) => message.includes(`${stateBytes} bytes`))).toHaveLength(count)
    }
  })

  it('logs the round in which it becomes a task once', async () => {
    const { bench, rounds } = start({ limits: { promoteRounds: 1 } })
    await bench.task('late').next()
    expect(rounds().filter(({ round, turn }) => round === 1 && turn === undefined)).toMatchObject([
      { outcome: 'task' },
    ])
  })

  it('tells telemetry how long its client took to answer, and nothing if it was not asked', async () => {
    const operations: ObservedOperation[] = []
    const telemetry = { begin: (operation: ObservedOperation) => void operations.push(operation) }
    const { bench } = start({ telemetry: telemetry as unknown as ServerOptions['telemetry'] })
    const call = bench.tool('trip')
    await call.next()
    bench.clock.advance(5_000)
    await call.next()
    bench.clock.advance(7_000)
    await call.next(yes('a'))
    const rounds = operations.filter(({ kind }) => kind === 'round')
    expect(rounds.map(({ waitedMs }) => waitedMs)).toEqual([undefined, undefined, 7_000])
  })
})

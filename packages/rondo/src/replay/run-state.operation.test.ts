import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import {
  accept,
  askedKeys,
  deferredPromise,
  type Handler,
  refusal,
  replayFlow,
  returned,
  textQuestion,
} from '../../../../test/support/replay-flow.ts'
import { InputDeclined } from '../errors.ts'
import { idle } from '../lib/clock.ts'
import type { RunReport } from './run-state.ts'

const decline = { action: 'decline' }

function messageOf({ ending }: RunReport): string {
  return ending.kind === 'refused' ? ending.error.message : ending.kind
}

/** Node reports an unhandled rejection before the next macrotask. */
function settled(): Promise<void> {
  return new Promise((resolve) => idle(() => idle(resolve)))
}

/** Replaces the listeners of the test runner, so that a rejection is counted here and does not fail the run. */
function countUnhandled(): { readonly reasons: unknown[]; restore(): void } {
  const reasons: unknown[] = []
  const before = process.listeners('unhandledRejection')
  process.removeAllListeners('unhandledRejection')
  process.on('unhandledRejection', (reason) => reasons.push(reason))
  return {
    reasons,
    restore() {
      process.removeAllListeners('unhandledRejection')
      for (const listener of before) process.on('unhandledRejection', listener)
    },
  }
}

describe('R11 nothing ends the process', () => {
  let unhandled: ReturnType<typeof countUnhandled>
  beforeEach(() => {
    unhandled = countUnhandled()
  })
  afterEach(() => unhandled.restore())

  it('R11 keeps a decline until the handler awaits the question', async () => {
    const seen: unknown[] = []
    const flow = replayFlow(async (ctx) => {
      const a = ctx.ask('a', textQuestion())
      const b = ctx.ask('b', textQuestion())
      await a
      await b.catch((error: unknown) => seen.push(error))
      return 'both'
    })
    expect(askedKeys(await flow.round())).toEqual(['a', 'b'])
    expect(askedKeys(await flow.round({ b: decline }))).toEqual(['a'])
    await settled()
    expect(seen).toEqual([])
    expect(returned(await flow.round({ a: accept({ value: '' }) }))).toBe('both')
    expect(seen).toEqual([expect.any(InputDeclined)])
    await settled()
    expect(unhandled.reasons).toEqual([])
  })

  it('R11 returns no promise that can become an unhandled rejection', async () => {
    const operations: Record<string, Handler> = {
      ask: (ctx) => ctx.ask('x', textQuestion()),
      visit: (ctx) => ctx.visit('x', { message: 'm', url: 'https://example.com/' }),
      step: (ctx) => ctx.step('x', () => Promise.reject(new Error('no disk'))),
      effect: (ctx) =>
        ctx.effect('x', () => {
          throw new Error('no disk')
        }),
      once: (ctx) => ctx.effect('x', () => 1, { once: true }),
      'an invalid name': (ctx) => ctx.step('', () => 1),
      'an invalid schema': (ctx) => ctx.ask('x', { message: 'm', schema: 5 as never }),
      'an invalid URL': (ctx) => ctx.visit('x', { message: 'm', url: 'javascript:1' }),
      nested: (ctx) =>
        ctx.step('outer', async () => {
          void ctx.step('x', () => 1)
        }),
    }
    for (const [name, operation] of Object.entries(operations)) {
      const flow = replayFlow(
        async (ctx) => {
          void operation(ctx)
          await ctx.ask('other', textQuestion())
        },
        { anchored: true },
      )
      await flow.round()
      await flow.round({ x: decline })
      await settled()
      expect(unhandled.reasons, name).toEqual([])
    }
  })

  it('counts the rejection of a promise that is not ours (negative control)', async () => {
    const flow = replayFlow(async (ctx) => {
      void (async () => {
        throw new Error('floating')
      })()
      await ctx.ask('q', textQuestion())
    })
    await flow.round()
    await settled()
    expect(unhandled.reasons).toEqual([new Error('floating')])
  })
})

describe('an operation that is not awaited', () => {
  const failing: Handler = (ctx) =>
    ctx.step('audit', () => {
      throw new Error('no disk')
    })

  it('ends the call with an error that names the failed operation', async () => {
    const report = await replayFlow(async (ctx) => {
      void failing(ctx)
      await ctx.step('other', () => 1)
      return 'fine'
    }).round()
    expect(refusal(report)).toBe('REPLAY_NOT_AWAITED')
    expect(messageOf(report)).toContain('the step "audit" had failed')
    expect(report.ending.kind === 'refused' && report.ending.error.cause).toMatchObject({
      message: 'no disk',
    })
  })

  it('ends the call the same way when its failure is replayed', async () => {
    const flow = replayFlow(async (ctx) => {
      void failing(ctx)
      await ctx.ask('q', textQuestion())
      return 'fine'
    })
    expect(askedKeys(await flow.round())).toEqual(['q'])
    expect(messageOf(await flow.round({ q: accept({ value: '' }) }))).toContain('the step "audit" had failed')
  })

  it('is named and waited for if it still runs when the handler returns', async () => {
    const gate = deferredPromise()
    let finished = false
    const round = replayFlow(async (ctx) => {
      void ctx.step('slow', async () => {
        await gate.promise
        finished = true
      })
      await ctx.step('fast', () => 1)
      return 'fine'
    }).round()
    await settled()
    gate.resolve()
    const report = await round
    expect(messageOf(report)).toContain('the step "slow" was still open')
    expect(finished).toBe(true)
  })

  it('is ignored if something observed its failure', async () => {
    const observers: Handler[] = [
      (ctx) => Promise.resolve(failing(ctx)).catch(() => 'fine'),
      async (ctx) => {
        await Promise.allSettled([failing(ctx)])
        return 'fine'
      },
      (ctx) => Promise.race([failing(ctx), ctx.step('other', () => 1)]).catch(() => 'fine'),
    ]
    for (const observe of observers) expect(returned(await replayFlow(observe).round())).toBe('fine')
  })

  it('is ignored if the handler throws', async () => {
    const { ending } = await replayFlow(async (ctx) => {
      void failing(ctx)
      await ctx.step('other', () => 1)
      throw new Error('mine')
    }).round()
    expect(ending.kind === 'threw' && String(ending.error)).toBe('Error: mine')
  })

  it('returns a promise that behaves like any other', async () => {
    const seen: unknown[] = []
    const report = await replayFlow(async (ctx) => {
      const step = ctx.step('s', () => 1)
      seen.push(step instanceof Promise, step.then((n) => n + 1).constructor === Promise)
      seen.push(await step.finally(() => seen.push('finally')))
      return 'fine'
    }).round()
    expect(returned(report)).toBe('fine')
    expect(seen).toEqual([true, true, 'finally', 1])
  })
})

describe('nested operations', () => {
  const inner: Record<string, Handler> = {
    'question "in"': (ctx) => ctx.ask('in', textQuestion()),
    'step "in"': (ctx) => ctx.step('in', () => 1),
    'effect "in"': (ctx) => ctx.effect('in', () => 1),
    'ctx.checkpoint()': (ctx) => ctx.checkpoint(),
    'ctx.background()': (ctx) => ctx.background(),
  }
  const outer: Record<string, (fn: Handler) => Handler> = {
    'step "out"': (fn) => (ctx) => ctx.step('out', async () => void (await fn(ctx))),
    'effect "out"': (fn) => (ctx) =>
      ctx.effect('out', async () => {
        await new Promise<void>((resolve) => idle(resolve))
        await fn(ctx)
      }),
  }
  for (const [outside, around] of Object.entries(outer)) {
    for (const [inside, fn] of Object.entries(inner)) {
      it(`refuses the ${inside} in the ${outside} at once, naming both`, async () => {
        for (const dev of [false, true]) {
          const report = await replayFlow(around(fn), { anchored: true, dev }).round()
          expect(refusal(report)).toBe('REPLAY_NESTED')
          expect(messageOf(report)).toContain(`The ${inside} was called inside the ${outside}.`)
        }
      })
    }
  }

  it('refuses even if the step catches the error', async () => {
    const report = await replayFlow((ctx) =>
      ctx.step('out', async () => {
        await ctx.confirm('in', 'Sure?').catch(() => {})
      }),
    ).round()
    expect(refusal(report)).toBe('REPLAY_NESTED')
  })

  it('lets other branches continue while a step runs', async () => {
    const gate = deferredPromise()
    const flow = replayFlow(async (ctx) => {
      const [slow, value] = await Promise.all([
        ctx.step('slow', () => gate.promise.then(() => 'slow')),
        (async () => {
          await ctx.step('quick', () => 1)
          // The step opens the gate; what waits behind it still belongs to the handler.
          await ctx.step('open', () => gate.resolve())
          await gate.promise
          await ctx.step('after', () => 1)
          return (await ctx.ask('q', textQuestion())).value
        })(),
      ])
      return [slow, value]
    })
    expect(askedKeys(await flow.round())).toEqual(['q'])
    expect(returned(await flow.round({ q: accept({ value: 'yes' }) }))).toEqual(['slow', 'yes'])
  })

  it('lets a step call another flow', async () => {
    const other = replayFlow((ctx) => ctx.step('in', () => 'from inside'))
    const flow = replayFlow((ctx) => ctx.step('out', async () => returned(await other.round())))
    expect(returned(await flow.round())).toBe('from inside')
  })
})

describe('ctx.defer', () => {
  it('reports an operation in a deferred function, and the call still ends', async () => {
    for (const inside of [
      (ctx: Parameters<Handler>[0]) => ctx.effect('late', () => 1),
      (ctx: Parameters<Handler>[0]) => ctx.ask('late', textQuestion()),
      async (ctx: Parameters<Handler>[0]) => ctx.defer(() => {}),
    ]) {
      const flow = replayFlow(
        (ctx) => {
          ctx.defer(async () => void (await inside(ctx)))
          return 'done'
        },
        { anchored: true },
      )
      expect(returned(await flow.round())).toBe('done')
      expect(flow.faults).toEqual([expect.objectContaining({ code: 'REPLAY_NESTED' })])
    }
  })

  it('R9 waits for deferred functions up to a limit, reports it, and still runs the others', async () => {
    const ran: string[] = []
    const flow = replayFlow(
      (ctx) => {
        ctx.defer(() => void ran.push('first'))
        ctx.defer(() => new Promise(() => {}))
        return 'done'
      },
      { limits: { maxDeferMs: 1 } },
    )
    expect(returned(await flow.round())).toBe('done')
    expect(ran).toEqual(['first'])
    expect(flow.faults).toEqual([expect.objectContaining({ code: 'LIMIT_DEFER' })])
  })
})

describe('an operation after the handler has returned', () => {
  const late: Record<string, Handler> = {
    'step "late"': (ctx) => ctx.step('late', () => 1),
    'effect "late"': (ctx) => ctx.effect('late', () => 1),
    'question "late"': (ctx) => ctx.ask('late', textQuestion()),
    'offer "late"': (ctx) => void ctx.offer('late', textQuestion()),
    'ctx.defer()': (ctx) => ctx.defer(() => {}),
  }

  it.each(Object.entries(late))(
    'R11 is reported once, does nothing and rejects nothing: %s',
    async (label, operation) => {
      const gate = deferredPromise()
      const over = deferredPromise()
      const settledLate: string[] = []
      const flow = replayFlow((ctx) => {
        void gate.promise.then(() => {
          for (let i = 0; i < 3; i++) {
            const promise = operation(ctx)
            if (promise instanceof Promise) promise.finally(() => settledLate.push(label))
          }
          over.resolve()
        })
        return 'done'
      })
      expect(returned(await flow.round())).toBe('done')
      gate.resolve()
      await over.promise
      await settled()
      expect(flow.faults).toHaveLength(1)
      expect(String(flow.faults[0])).toContain(`${label} was called after the handler had returned`)
      expect(settledLate).toEqual([])
    },
  )

  it('R11 throws nothing where nobody reads reports', async () => {
    const gate = deferredPromise()
    const late = deferredPromise<unknown>()
    const flow = replayFlow((ctx) => {
      gate.promise.then(() => ctx.defer(() => {})).then(late.resolve, late.resolve)
      return 'done'
    })
    expect(returned(await flow.round(undefined, { input: { onAsideError: undefined } }))).toBe('done')
    gate.resolve()
    expect(await late.promise).toBeUndefined()
  })

  it('R8 is not reported in a run that was suspended', async () => {
    const gate = deferredPromise()
    const flow = replayFlow(async (ctx) => {
      await Promise.race([ctx.ask('q', textQuestion()), gate.promise])
      void ctx.step('dropped', () => 1)
      return 'dropped'
    })
    expect(askedKeys(await flow.round())).toEqual(['q'])
    gate.resolve()
    await settled()
    expect(flow.faults).toEqual([])
  })
})

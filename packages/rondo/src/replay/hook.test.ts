import { describe, expect, it } from 'vitest'
import { z } from 'zod'
import {
  accept,
  deferredPromise,
  type Handler,
  type ReplayFlow,
  refusal,
  replayFlow,
  returned,
  textQuestion,
} from '../../../../test/support/replay-flow.ts'
import { EventExpired, EventRejected, RondoError } from '../errors.ts'
import type { HookOptions } from '../tool/context.ts'
import { hookOfEvent } from './hook.ts'
import { type Arrival, CAN_LEAVE, FOREGROUND, type ReplayInput } from './input.ts'
import type { RunReport } from './run-state.ts'

const MINUTE = 60_000

/** A store of hooks in memory, and what it was asked to do. */
interface Yard {
  readonly flow: ReplayFlow
  readonly opened: { readonly key: string; readonly request: unknown; readonly until?: number }[]
  readonly closed: string[]
  turn(more?: Partial<ReplayInput>, events?: Record<string, unknown>): Promise<RunReport>
}

function createYard(handler: Handler): Yard {
  const flow = replayFlow(handler)
  const opened: Yard['opened'] = []
  const closed: string[] = []
  const hooks: ReplayInput['hooks'] = {
    open: async (key, request, until) => `id ${opened.push({ key, request, until })}`,
    close: async (key) => void closed.push(key),
  }
  return {
    flow,
    opened,
    closed,
    turn: (more, events = {}) =>
      flow.round(undefined, {
        sleeping: { parks: true },
        events: new Map(Object.entries(events)),
        input: { hooks, ...more },
      }),
  }
}

const pays =
  (options?: HookOptions): Handler =>
  async (ctx) => {
    const hook = await ctx.hook('payment', options as never)
    return hook.received()
  }

async function errorOf(handler: Handler): Promise<string> {
  const { ending } = await createYard(handler).turn()
  return ending.kind === 'threw' ? String(ending.error) : ending.kind
}

/** Returns the names of the events that the handler waits for. */
function awaited({ ending }: RunReport): string[] {
  if (ending.kind !== 'asking') throw new Error(`expected a wait, got ${ending.kind}`)
  return [...ending.events]
}

/** Waits until the handler, and everything that it has begun, has nothing left to do. */
async function moment(): Promise<void> {
  for (let i = 0; i < 10; i++) await new Promise((resolve) => setImmediate(resolve))
}

describe('ctx.hook', () => {
  it('G3 opens the hook once, and its id is the same on every replay', async () => {
    const ids: string[] = []
    const { flow, opened, turn } = createYard(async (ctx) => {
      const hook = await ctx.hook('payment', { about: { order: 7 }, schema: z.object({ amount: z.int() }) })
      ids.push(hook.id)
      return hook.received()
    })
    const first = await turn()
    expect(awaited(first)).toEqual(['payment.received'])
    expect(first.ending).not.toHaveProperty('wakeAt')
    expect(hookOfEvent('payment.received')).toBe('payment')
    expect(first).toMatchObject({ replayed: 0, executed: 1 })
    const again = await turn()
    expect(awaited(again)).toEqual(['payment.received'])
    expect(again).toMatchObject({ replayed: 1, executed: 0 })
    expect(ids).toEqual(['id 1', 'id 1'])
    expect(opened).toEqual([
      {
        key: 'payment',
        request: { about: { order: 7 }, schema: expect.objectContaining({ type: 'object' }) },
        until: undefined,
      },
    ])
    expect(flow.journal.entries).toMatchObject([{ kind: 'hook', key: 'payment', value: 'id 1' }])
  })

  it('G3 returns the same event however often and whenever it is received', async () => {
    const seen: unknown[] = []
    const { turn } = createYard(async (ctx) => {
      const hook = await ctx.hook('payment')
      seen.push(...(await Promise.all([hook.received(), hook.received()])))
      seen.push(await hook.received())
    })
    await turn()
    const { journal, ending } = await turn({}, { payment: { amount: 5 } })
    expect(ending.kind).toBe('returned')
    expect(seen).toEqual(Array(3).fill({ amount: 5 }))
    expect(journal.entries).toHaveLength(2)
  })

  it('hook 2: records an event before the handler has it, and a change by the handler does not reach the journal', async () => {
    const handler: Handler = async (ctx) => {
      const hook = await ctx.hook('payment')
      const event = (await hook.received()) as { list: number[] }
      event.list.push(2)
      await ctx.ask('q', textQuestion())
      return event.list
    }
    const { flow, turn } = createYard(handler)
    flow.clock.now += 10
    const event = { list: [1] }
    await turn({}, { payment: event })
    expect(event).toEqual({ list: [1] })
    expect(flow.journal.entries[1]).toEqual({
      kind: 'event',
      key: 'payment.received',
      at: flow.clock.now,
      value: { list: [1] },
    })
    flow.clock.now += 10
    // A second event for the same hook changes nothing.
    expect(flow.journal.entries).toHaveLength(2)
    const report = await turn({ incoming: answering(flow) }, { payment: 'later' })
    expect(returned(report)).toEqual([1, 2])
    expect(report.replayed).toBe(2)
  })

  it('G3 receives an event without a value', async () => {
    const handler: Handler = async (ctx) => {
      const event = await (await ctx.hook('bell')).received()
      await ctx.ask('q', textQuestion())
      return event === undefined
    }
    const { flow, turn } = createYard(handler)
    await turn({}, { bell: undefined })
    expect(returned(await turn({ incoming: answering(flow) }))).toBe(true)
  })

  it('G3 applies the schema to an event, in every replay', async () => {
    const schema = z.object({ amount: z.int(), currency: z.string().default('EUR') })
    const handler: Handler = async (ctx) => {
      const event = await (await ctx.hook('payment', { schema })).received()
      await ctx.ask('q', textQuestion())
      return event
    }
    const { flow, turn } = createYard(handler)
    await turn({}, { payment: { amount: 5 } })
    expect(returned(await turn({ incoming: answering(flow) }))).toEqual({ amount: 5, currency: 'EUR' })
  })

  it('hook 2: rejects an event that does not fit, and every replay sees the same refusal', async () => {
    const seen: unknown[] = []
    const handler: Handler = async (ctx) => {
      const hook = await ctx.hook('payment', { schema: z.object({ amount: z.int() }) })
      await hook.received().catch((error: unknown) => seen.push(error))
      await ctx.ask('q', textQuestion())
    }
    const { flow, turn } = createYard(handler)
    await turn({}, { payment: { amount: 'five' } })
    await turn({ incoming: answering(flow) })
    expect(seen).toEqual([expect.any(EventRejected), expect.any(EventRejected)])
    expect(seen[0]).toMatchObject({ key: 'payment', problem: expect.stringContaining('amount') })
    expect(seen[1]).toEqual(seen[0])
  })

  it('G3 takes an event that arrives while the handler works, at the time when it arrives', async () => {
    const gate = deferredPromise()
    const later = deferredPromise()
    let tell: (arrived: Arrival) => boolean = () => false
    const seen: string[] = []
    const { flow, turn } = createYard(async (ctx) => {
      const hook = await ctx.hook('payment')
      await Promise.all([
        hook.received().then((event) => {
          seen.push(`${event} at ${ctx.now()}`)
          later.resolve()
        }),
        ctx.step('work', () => gate.promise),
        ctx.step('more', () => later.promise),
      ])
      return seen
    })
    const running = turn({
      onArrival: (arrival) => {
        tell = arrival
      },
    })
    await moment()
    flow.clock.now += 5
    expect(tell({ hook: 'another', value: 'x' })).toBe(true)
    expect(tell({ hook: 'payment', value: 'paid' })).toBe(true)
    await later.promise
    expect(seen).toEqual([`paid at ${flow.clock.now}`])
    gate.resolve()
    expect(returned(await running)).toEqual(seen)
    expect(tell({ hook: 'payment', value: 'again' })).toBe(false)
  })

  it('G3 takes an event that arrives before the handler waits for it', async () => {
    let tell: (arrived: Arrival) => boolean = () => false
    const { turn } = createYard(async (ctx) => {
      const hook = await ctx.hook('payment')
      await ctx.step('work', () => void tell({ hook: 'payment', value: 'early' }))
      return hook.received()
    })
    const report = await turn({
      onArrival: (arrival) => {
        tell = arrival
      },
    })
    expect(returned(report)).toBe('early')
  })

  it('G3 takes an event at once, although an open question has a similar name', async () => {
    const gate = deferredPromise()
    let tell: (arrived: Arrival) => boolean = () => false
    const { turn } = createYard(async (ctx) => {
      const hook = await ctx.hook('answer q')
      const received = hook.received()
      await Promise.all([
        received,
        ctx.ask('q.received', textQuestion()),
        ctx.step('work', () => gate.promise),
      ])
    })
    const running = turn({
      onArrival: (arrival) => {
        tell = arrival
      },
    })
    await moment()
    expect(tell({ hook: 'answer q', value: 'paid' })).toBe(true)
    gate.resolve()
    const report = await running
    expect(awaited(report)).toEqual([])
    expect(report.journal.entries.map(({ key }) => key)).toContain('answer q.received')
  })

  it('R4 takes the name of its event', async () => {
    const { turn } = createYard(async (ctx) => {
      await ctx.step('payment.received', () => 1)
      return (await ctx.hook('payment')).received()
    })
    expect(refusal(await turn())).toBe('REPLAY_NAME_REUSED')
  })

  it.each<[string, unknown, string]>([
    ['an option that does not exist', { wihtin: 5 }, 'The hook "payment" has no option "wihtin"'],
    ['a subject that is not JSON', { about: { at: new Date(0) } }, 'must be plain JSON: at is a Date'],
    ['a time limit that is none', { within: 'soon' }, 'The time limit of "payment" (within) must be'],
    ['a schema that is none', { schema: 5 }, 'TypeError'],
  ])('refuses %s', async (_what, options, sentence) => {
    expect(await errorOf(pays(options as never))).toContain(sentence)
  })

  it('refuses a name that leaves no room for the name of its event', async () => {
    expect(await errorOf((ctx) => ctx.hook('k'.repeat(120)))).toContain(
      'at most 119 characters long; got 120',
    )
    expect(await errorOf(async (ctx) => (await ctx.hook('k'.repeat(119))).received())).toBe('asking')
  })

  it.each([[undefined], [7], [Array(120).fill('k')]])('refuses a name that is not text: %j', async (key) => {
    expect(await errorOf((ctx) => ctx.hook(key as never))).toContain(
      'The name of an ask or a step must be a string',
    )
  })
})

/** The answer to the question that the last turn asked. */
function answering(flow: ReplayFlow): ReplayInput['incoming'] {
  return {
    anchored: true,
    asked: flow.asked,
    answers: { q: accept({ value: '' }) },
    capabilities: { elicitation: {} },
  }
}

describe('a hook where there is no task', () => {
  it('G3 continues as a task if the call can, and opens nothing before that', async () => {
    const { opened, turn } = createYard(pays())
    const { ending } = await turn({ hooks: undefined, background: CAN_LEAVE })
    expect(ending).toEqual({ kind: 'background' })
    expect(opened).toEqual([])
    const dev = replayFlow(pays(), { dev: true })
    expect((await dev.round(undefined, { input: { background: CAN_LEAVE } })).ending.kind).toBe('background')
  })

  it('G3 ends the call with the reason if it cannot', async () => {
    const why = { ...FOREGROUND, whyNot: (what: string) => new RondoError('REPLAY_NO_TASK', `No: ${what}.`) }
    for (const [background, message] of [
      [FOREGROUND, 'Only a task can wait for the hook "payment". This call cannot become one.'],
      [why, 'No: the hook "payment".'],
    ] as const) {
      const { ending } = await createYard(pays()).turn({ hooks: undefined, background })
      expect(ending).toMatchObject({
        error: { code: 'REPLAY_NO_TASK', message: expect.stringContaining(message) },
      })
    }
  })
})

describe('a hook with a time limit', () => {
  const limited: Handler = async (ctx) => {
    const hook = await ctx.hook('payment', { within: '1 min' })
    const outcome = await hook.received().then(String, (error: unknown) => error)
    await ctx.ask('q', textQuestion())
    return outcome
  }

  it('G3 fixes its end once, and passes it to the store', async () => {
    const { flow, opened, turn } = createYard(limited)
    const due = flow.clock.now + MINUTE
    expect((await turn()).ending).toMatchObject({ kind: 'asking', wakeAt: due })
    flow.clock.now += MINUTE - 1
    expect((await turn()).ending).toMatchObject({ wakeAt: due })
    expect(opened).toMatchObject([{ until: due }])
  })

  it('G3 is open as long as was fixed before a crash, not longer', async () => {
    const { flow, opened, turn } = createYard(limited)
    const due = flow.clock.now + 10
    flow.journal = { ...flow.journal, deadlines: { 'payment.received': due } }
    expect((await turn()).ending).toMatchObject({ wakeAt: due })
    expect(opened).toMatchObject([{ until: due }])
  })

  it('hook 3: expires only after it is closed in the store, and every replay sees that it did', async () => {
    const { flow, closed, turn } = createYard(limited)
    await turn()
    flow.clock.now += MINUTE
    const expired = await turn()
    expect(closed).toEqual(['payment'])
    expect(expired.journal.entries[1]).toEqual({
      kind: 'event',
      key: 'payment.received',
      at: flow.clock.now,
      expired: true,
    })
    expect(expired.journal.deadlines).toBeUndefined()
    const again = await turn({ incoming: answering(flow) }, { payment: 'late' })
    expect(returned(again)).toEqual(new EventExpired('payment'))
    expect(again.replayed).toBe(2)
    expect(closed).toHaveLength(1)
  })

  it('hook 3: ends no turn before the hook is closed', async () => {
    const gate = deferredPromise()
    const { flow, turn } = createYard(limited)
    await turn()
    flow.clock.now += MINUTE
    let ended = false
    const running = turn({ hooks: { open: async () => 'id', close: () => gate.promise } }).finally(() => {
      ended = true
    })
    await moment()
    expect(ended).toBe(false)
    gate.resolve()
    expect((await running).ending).toMatchObject({ kind: 'asking', events: new Set() })
  })

  it.each([
    ['itself', new RondoError('STORE_UNAVAILABLE'), 'STORE_UNAVAILABLE'],
    ['an internal error', new Error('away'), 'SERVER_INTERNAL'],
  ])(
    'hook 3: ends the call with the error of the store as %s if it cannot be closed',
    async (_how, error, code) => {
      const { flow, turn } = createYard(limited)
      await turn()
      flow.clock.now += MINUTE
      const report = await turn({ hooks: { open: async () => 'id', close: () => Promise.reject(error) } })
      expect(refusal(report)).toBe(code)
      expect(report.journal.entries).toHaveLength(1)
      if (code === 'SERVER_INTERNAL') expect(report.ending).toMatchObject({ error: { cause: error } })
    },
  )

  it('hook 3: records nothing if the call ends while it is being closed', async () => {
    const gate = deferredPromise()
    let isLater = false
    const { flow, turn } = createYard((ctx) =>
      isLater ? Promise.race([limited(ctx), ctx.step('work', () => gate.promise)]) : limited(ctx),
    )
    await turn()
    isLater = true
    flow.clock.now += MINUTE
    const close = async (): Promise<void> => {
      gate.resolve()
      await moment()
    }
    const { ending, journal } = await turn({ hooks: { open: async () => 'id', close } })
    expect(ending).toEqual({ kind: 'returned', value: undefined })
    expect(journal.entries.map(({ key }) => key)).toEqual(['payment', 'work'])
  })

  it('G3 closes by timer while the handler works', async () => {
    const gate = deferredPromise()
    const { flow, turn } = createYard(async (ctx) => {
      const hook = await ctx.hook('payment', { within: 1 })
      const outcome = hook.received().catch(({ name }: Error) => {
        gate.resolve()
        return name
      })
      return Promise.all([outcome, ctx.step('work', () => gate.promise)])
    })
    const running = turn()
    await moment()
    flow.clock.now += 5
    expect(returned(await running)).toEqual(['EventExpired', undefined])
  })

  it('G3 waits no more for its end once the event is there', async () => {
    const { flow, closed, turn } = createYard(async (ctx) => {
      const event = await (await ctx.hook('payment', { within: '1 min' })).received()
      await ctx.sleep('nap', '2 min')
      return event
    })
    await turn()
    const { ending } = await turn({}, { payment: 'paid' })
    expect(ending).toEqual({ kind: 'sleeping', wakeAt: flow.clock.now + 2 * MINUTE })
    expect(closed).toEqual([])
  })

  it('G1 is refused before it is opened if it ends after its task, and not later', async () => {
    const { flow, opened, turn } = createYard(limited)
    const rules = (until: number) => ({
      sleeping: () => ({ parks: true, inlineMs: 0, beyond: 'Not here.', until }),
    })
    const report = await turn(rules(flow.clock.now + MINUTE))
    expect(refusal(report)).toBe('LIMIT_SLEEP')
    expect(report.ending).toMatchObject({
      error: { message: expect.stringContaining('The hook "payment" is open (within) for 1 minute') },
    })
    expect(opened).toEqual([])
    expect((await turn(rules(flow.clock.now + MINUTE + 1))).ending.kind).toBe('asking')
    // Its end is fixed, so it cannot outlive the task now, whatever the clock says.
    expect((await turn(rules(flow.clock.now + MINUTE))).ending.kind).toBe('asking')
  })

  it('hook 3: is recorded as its event if the store took that before it was closed', async () => {
    let tell: (arrived: Arrival) => boolean = () => false
    const { flow, turn } = createYard(limited)
    await turn()
    flow.clock.now += MINUTE
    const close = async () => void tell({ hook: 'payment', value: 'in time' })
    const { journal } = await turn({
      hooks: { open: async () => 'id', close },
      onArrival: (arrival) => {
        tell = arrival
      },
    })
    expect(journal.entries.slice(1)).toEqual([
      { kind: 'event', key: 'payment.received', at: flow.clock.now, value: 'in time' },
    ])
  })

  it('G1 may be open as long as its task if it has no limit', async () => {
    const sleeping = () => ({ parks: true, inlineMs: 0, beyond: 'Not here.', until: 1 })
    expect((await createYard(pays()).turn({ sleeping })).ending.kind).toBe('asking')
  })

  it('G1 goes by the end that was fixed before a crash', async () => {
    const { flow, turn } = createYard(limited)
    flow.journal = { ...flow.journal, deadlines: { 'payment.received': flow.clock.now + 10 } }
    const sleeping = () => ({ parks: true, inlineMs: 0, beyond: 'Not here.', until: flow.clock.now + 11 })
    expect((await turn({ sleeping })).ending.kind).toBe('asking')
  })
})

it('R11 does not read an event that was recorded after the call had ended: its schema may never answer', async () => {
  const written = deferredPromise()
  const fails = deferredPromise()
  let reads = 0
  const schema = z.number().refine(() => {
    reads += 1
    return new Promise<boolean>(() => {})
  })
  const { turn } = createYard(async (ctx) => {
    const hook = await ctx.hook('payment', { schema })
    void hook.received().catch(() => {})
    await fails.promise
    throw new Error('away')
  })
  const recorded: string[] = []
  const persist: ReplayInput['persist'] = async ({ kind }) => {
    recorded.push(kind)
    if (kind === 'event') await written.promise
  }
  const running = turn({ persist }, { payment: 1 })
  await expect.poll(() => recorded).toEqual(['hook', 'event'])
  fails.resolve()
  await moment()
  written.resolve()
  expect((await running).ending).toMatchObject({ kind: 'threw', error: new Error('away') })
  expect(reads).toBe(0)
})

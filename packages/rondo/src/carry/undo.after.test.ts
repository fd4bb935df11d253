/** The end of a call whose effects can be undone: who undoes them, and what its client reads. */

import { beforeEach, describe, expect, it } from 'vitest'
import { RondoError } from '../errors.ts'
import type { Journal } from '../journal/journal.ts'
import type { LogFacts } from '../log/event.ts'
import type { Reply, TaskState } from '../protocol/reply.ts'
import { createHost, type OpenHost } from '../serve/host.ts'
import { createMemoryStore } from '../store/memory/store.ts'
import type { PermitStore } from '../store/permits.ts'
import type { RecordStore, Store } from '../store/store.ts'
import type { Concurrency } from '../tool/concurrency.ts'
import type { Context } from '../tool/context.ts'
import { taskCreated } from '../tool/forward.ts'
import { inputRequired, type Target } from '../tool/target.ts'
import type { Carrier, Pause, Round } from './carrier.ts'
import type { FlowHost, TaskHost } from './host.ts'
import { runOnce } from './round.ts'
import {
  changeGuard,
  type GuardRecord,
  guardOf,
  guardTask,
  leftToUndo,
  openAlarm,
  readGuard,
  undoGone,
  withTried,
} from './undo.ts'

const START = 1_800_000_000_000
const DAY = 86_400_000
const texts = (text: string) => ({ content: [{ type: 'text', text }] })
const journal: Journal = {
  startedAt: START,
  seed: 'c2VlZA',
  entries: [],
  reasks: {},
  moves: 0,
  lineage: 'line',
}

let events: LogFacts[] = []
let calls: string[] = []
/** Effects that cannot be undone now. */
let fails: string[] = []
/** The alarms that were woken. */
let woken: string[] = []
let time = START
let host: OpenHost
beforeEach(async () => {
  events = []
  calls = []
  fails = []
  woken = []
  time = START
  const created = createHost({
    audience: 'hotel',
    keys: 'k:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=',
    log: (event) => void events.push(event),
    store: createMemoryStore({ now: () => time }),
    now: () => time,
  })
  await created.keys.ready()
  const tasks = created.tasks as TaskHost
  const deliver: TaskHost['engine']['deliver'] = async (id) => {
    woken.push(id)
    return 'resumed'
  }
  /** Waiting costs no time here. */
  const after = (ms: number, fn: () => void) => {
    const timer = setImmediate(() => {
      time += ms
      fn()
    })
    return () => clearImmediate(timer)
  }
  host = Object.assign(created, {
    platform: { ...created.platform, after },
    tasks: { ...tasks, engine: { ...tasks.engine, deliver } },
  })
})

const guard = () => guardOf(host, 'c2VlZA', 'line')
const read = (): Promise<GuardRecord | undefined> => readGuard(host, guard())
const write = (record: Partial<GuardRecord>) =>
  changeGuard(host, guard(), DAY, (now) => ({ phase: 'open', journal, ...now, ...record }))
const recordsOf = () => (host.store as Store).records as RecordStore
const warnings = () => events.flatMap((event) => (event.event === 'warning' ? [event.message] : []))

/** Reserves these, each with its undo. */
const reserve =
  (...names: string[]) =>
  async (ctx: Context): Promise<void> => {
    for (const name of names)
      await ctx.effect(name, () => calls.push(`do ${name}`), {
        undo() {
          calls.push(`undo ${name}`)
          if (fails.includes(name)) throw new Error('no')
        },
      })
  }

interface Given {
  readonly target?: Partial<Target>
  readonly round?: Partial<Round>
  readonly host?: Partial<FlowHost>
  readonly line?: Partial<Round['line']>
}

type Outcome = { readonly reply: Reply } | { readonly pause: Pause }

/** Runs one round of a call that has reserved a room and a car. */
async function run(then: (ctx: Context) => unknown, given: Given = {}): Promise<Outcome> {
  const handler = async (ctx: Context) => {
    await reserve('room', 'car')(ctx)
    return await then(ctx)
  }
  const round = {
    host: { ...host, ...given.host },
    call: { method: 'tools/call', target: 'trip', args: {}, protocolVersion: '2026-07-28', capabilities: {} },
    target: {
      method: 'tools/call',
      name: 'trip',
      task: { mode: 'late' },
      prepare: () => ({ kind: 'ready', run: handler }),
      finish: (value: unknown) => (typeof value === 'string' ? texts(value) : value),
      fail: (message: string) => ({ result: { ...texts(message), isError: true } }),
      ...given.target,
    },
    line: { closed: false, notify: () => {}, onClose: () => () => {}, ...given.line },
    beginning: { flow: 'flow', round: 2, journal, asked: {}, flowExpires: START + DAY, anchored: true },
    began: START,
    ...given.round,
  } as unknown as Round
  const carrier: Carrier<never, Outcome> = {
    open: () => round,
    keep: (_round, pause) => ({ pause }),
    end: (_round, reply) => ({ reply }),
  }
  return await runOnce(carrier, round)
}

/** A tool that runs once at a time; `isFree` returns whether another call may begin. */
function oneAtATime(): { given: Given; isFree(): Promise<boolean> } {
  const concurrency: Concurrency = { keyOf: async () => 'one', limit: 1, queues: false, releases: false }
  const permits = host.store?.permits as PermitStore
  let tags: readonly string[] = []
  const acquire: PermitStore['acquire'] = (request) => {
    tags = request.tags
    return permits.acquire(request)
  }
  const store = { ...host.store, permits: { ...permits, acquire } } as FlowHost['store']
  return {
    given: { target: { concurrency }, host: { store } },
    async isFree() {
      const taken = await permits.acquire({ holder: 'next', tags, limit: 1, holdMs: 1 })
      if (taken.kind === 'held') await permits.release('next', taken.grant)
      return taken.kind === 'held'
    },
  }
}

const textOf = (outcome: Outcome): string => {
  if (!('reply' in outcome) || outcome.reply.kind !== 'complete') return JSON.stringify(outcome)
  const content = outcome.reply.result.content as { text: string }[]
  return content.map(({ text }) => text).join(' | ')
}
const fail = () => {
  throw new Error('secret')
}

describe('a call that ends without success', () => {
  it.each<[string, (ctx: Context) => unknown, Given, string]>([
    ['its handler throws', fail, {}, 'trip failed'],
    ['its result is an error', () => ({ ...texts('No'), isError: true }), {}, 'No'],
    [
      'no result can be made',
      () => 'done',
      {
        target: {
          finish: () => {
            throw new TypeError('odd')
          },
        },
      },
      'trip failed',
    ],
  ])('M1 undoes its effects, the last first, and says so: %s', async (_name, then, given, text) => {
    expect(textOf(await run(then, given))).toBe(`${text} | Undone: car, room.`)
    expect(calls).toEqual(['do room', 'do car', 'undo car', 'undo room'])
    expect(await read()).toMatchObject({ phase: 'undone' })
    expect(events).toContainEqual(
      expect.objectContaining({ event: 'undo', flow: 'flow', undone: ['car', 'room'], failed: [] }),
    )
    expect(woken).toEqual([])
  })

  it.each<[string, (ctx: Context) => unknown, string]>([
    ['the runtime refuses to continue', (ctx) => ctx.step('room', () => 1), 'REPLAY_NAME_REUSED'],
    [
      'it must not ask',
      () => inputRequired({ inputRequests: { r: { method: 'roots/list' } } }),
      'PEER_CAPABILITY',
    ],
  ])('M1 undoes its effects, and says so in the error: %s', async (_name, then, code) => {
    expect(await run(then)).toMatchObject({
      reply: { kind: 'error', error: { code, data: { undone: ['car', 'room'], notUndone: [] } } },
    })
    expect(await read()).toMatchObject({ phase: 'undone' })
  })

  it('M1 leaves to a worker what it cannot undo', async () => {
    fails = ['room']
    const outcome = await run(fail)
    expect(textOf(outcome)).toBe('trip failed | Undone: car. Not undone yet: room. The server tries again.')
    expect(await read()).toMatchObject({ phase: 'undoing' })
    expect(woken).toEqual([guard().alarm])
  })

  it('M1 M3 keeps its permit for the worker that undoes the rest, and only for that', async () => {
    const { given, isFree } = oneAtATime()
    for (const failing of [[], ['room']]) {
      fails = failing
      await run(fail, given)
      expect(await isFree()).toBe(failing.length === 0)
      await host.store?.records?.remove(guard().id)
    }
  })

  it('M1 is logged with everything that ran, and says in text what was undone', async () => {
    const outcome = await run(fail)
    expect(outcome).toMatchObject({
      reply: { result: { content: [{ type: 'text' }, { type: 'text', text: 'Undone: car, room.' }] } },
    })
    expect(events).toContainEqual(expect.objectContaining({ event: 'round', executed: 4 }))
  })

  it('M1 M3 wakes its alarm if the store fails while it undoes, and leaves it its permit', async () => {
    const { given, isFree } = oneAtATime()
    const own = recordsOf()
    let isDown = false
    const put: typeof own.put = (record) =>
      isDown ? Promise.reject(new RondoError('STORE_UNAVAILABLE')) : own.put(record)
    const store = { ...given.host?.store, records: { ...own, put } } as FlowHost['store']
    const then = async (ctx: Context) => {
      await ctx.effect('meal', () => 1, {
        undo() {
          isDown = true
        },
      })
      return fail()
    }
    expect(await run(then, { ...given, host: { store } })).toMatchObject({
      reply: { kind: 'error', error: { code: 'STORE_UNAVAILABLE' } },
    })
    expect(woken).toEqual([guard().alarm])
    expect(await read()).toMatchObject({ phase: 'undoing' })
    expect(await isFree()).toBe(false)
  })

  it.each<[string, { draining?: boolean; closed?: boolean; left?: boolean }, number]>([
    ['a later round does if this instance is draining', { draining: true }, 0],
    ['the instance that continues the call does', { closed: true, left: true }, 0],
    ['a worker does at once if the client has disconnected', { closed: true }, 1],
  ])('M1 leaves the rest of its effects to another process: %s', async (_name, change, count) => {
    const own = { ...host, draining: false }
    const line = { closed: false, notify: () => {}, onClose: () => () => {} }
    const then = async (ctx: Context) => {
      await ctx.effect('meal', () => 1, {
        undo() {
          Object.assign(own, change)
          Object.assign(line, change)
        },
      })
      return fail()
    }
    const outcome = await run(then, { round: { host: own, line } })
    expect(outcome).toMatchObject({ pause: { facts: { moved: 'drain' } } })
    expect(calls).toEqual(['do room', 'do car'])
    expect(await read()).toMatchObject({ phase: 'undoing' })
    expect(woken).toHaveLength(count)
  })

  it('M1 wakes no alarm of a task, whose end does', async () => {
    fails = ['room']
    const row = { id: 'task', owner: guard().owner, expiresAt: START + DAY } as Round['row']
    const alarms = { ...host.store?.alarms, set: async () => true }
    const store = { ...host.store, alarms } as FlowHost['store']
    await run(fail, { round: { row }, host: { store } })
    expect(await read()).toMatchObject({ phase: 'undoing' })
    expect(woken).toEqual([])
  })

  it('M1 undoes nothing if another run of the round has ended the call well', async () => {
    const outcome = await run(async () => {
      await write({ phase: 'ended' })
      return fail()
    })
    expect(textOf(outcome)).toBe('trip failed')
    expect(calls).toEqual(['do room', 'do car'])
    expect(await read()).toMatchObject({ phase: 'ended' })
  })

  it('M1 leaves all effects to the alarm if another process has begun one that the run has not reached', async () => {
    const begun = [{ key: 'meal', effectKey: 'key of meal' }]
    const outcome = await run(async () => {
      const now = await read()
      await write({
        journal: { ...journal, ...now?.journal, begun: [...(now?.journal.begun ?? []), ...begun] },
      })
      return fail()
    })
    expect(textOf(outcome)).toBe('trip failed | Not undone yet: meal, car, room. The server tries again.')
    expect(calls).toEqual(['do room', 'do car'])
    expect(woken).toEqual([guard().alarm])
    const record = await read()
    expect(record?.journal.begun?.map(({ key }) => key)).toEqual(['room', 'car', 'meal'])
  })

  it('M1 leaves it to the alarm if that waits for an effect that may be running elsewhere', async () => {
    const begun = [{ key: 'meal', effectKey: 'key of meal' }]
    const outcome = await run(async () => {
      const now = await read()
      const more = { ...journal, ...now?.journal, begun: [...(now?.journal.begun ?? []), ...begun] }
      await write({ phase: 'undoing', since: START, journal: more })
      return fail()
    })
    expect(textOf(outcome)).toBe('trip failed | Not undone yet: meal, car, room. The server tries again.')
    expect(calls).toEqual(['do room', 'do car'])
    expect(woken).toEqual([])
    expect(await read()).toMatchObject({ phase: 'undoing', since: START })
  })

  it('M1 does not undo what has been undone', async () => {
    let left: unknown
    const outcome = await run(async () => {
      const now = (await read())?.journal ?? journal
      const undone = ['car.undo', 'room.undo'].map((key) => ({ kind: 'undo', key, at: START }) as const)
      await write({ phase: 'undone', journal: { ...now, entries: [...now.entries, ...undone] } })
      left = await recordsOf().get(guard().id)
      return fail()
    })
    expect(textOf(outcome)).toBe('trip failed | Undone: car, room.')
    expect(calls).toEqual(['do room', 'do car'])
    expect(await recordsOf().get(guard().id)).toEqual(left)
  })

  it('M1 undoes its effects even if its record has gone', async () => {
    const outcome = await run(async () => {
      await recordsOf().remove(guard().id)
      return fail()
    })
    expect(textOf(outcome)).toBe('trip failed | Undone: car, room.')
    expect(await read()).toMatchObject({ phase: 'undone' })
  })

  it('M1 says what it undid even if its record goes at the end', async () => {
    const own = recordsOf()
    const put: typeof own.put = async (record) => {
      const outcome = await own.put(record)
      if (calls.at(-1) === 'undo room' && calls.push('remove')) await own.remove(record.id)
      return outcome
    }
    const store = { ...host.store, records: { ...own, put } } as FlowHost['store']
    expect(textOf(await run(fail, { host: { store } }))).toBe('trip failed | Undone: car, room.')
    expect(await read()).toBeUndefined()
  })
})

describe('a call that has not ended', () => {
  it('M1 keeps its effects while it asks or the store fails', async () => {
    const store = () => {
      throw new RondoError('STORE_BUSY')
    }
    const finish = () => Promise.reject(new TypeError('odd'))
    for (const then of [
      () => inputRequired({ requestState: 'own' }),
      (ctx: Context) => ctx.step('more', store),
    ]) {
      calls = []
      await run(then, { target: { finish } })
      expect(calls.filter((call) => call.startsWith('undo'))).toEqual([])
      expect(await read()).toMatchObject({ phase: 'open' })
    }
  })
})

describe('a call that ends well', () => {
  it('M1 removes its record and its alarm', async () => {
    expect(textOf(await run(() => 'done'))).toBe('done')
    expect(await read()).toBeUndefined()
    const { alarm, owner } = guard()
    expect((await host.tasks?.engine.get(alarm, owner))?.status).toBe('cancelled')
    expect(calls).toEqual(['do room', 'do car'])
  })

  it('M1 becomes a task of another server', async () => {
    const task = { taskId: 'theirs', status: 'working' } as TaskState
    const finish = () => Promise.reject(new Error('no result'))
    expect(await run(() => taskCreated(task), { target: { finish } })).toMatchObject({
      reply: { kind: 'task_created' },
    })
    expect(await read()).toBeUndefined()
    expect(calls).toEqual(['do room', 'do car'])
  })

  it('M1 R11 leaves its record to its end if the store fails then', async () => {
    const records = { ...(host.store as Store).records, remove: () => Promise.reject(new Error('down')) }
    const store = { ...host.store, records } as FlowHost['store']
    expect(textOf(await run(() => 'done', { host: { store } }))).toBe('done')
    expect(await read()).toMatchObject({ phase: 'ended' })
    expect(warnings()).toEqual([expect.stringContaining('could not be removed')])
  })

  it('M1 has not if a worker has begun to undo it', async () => {
    for (const phase of ['undoing', 'undone'] as const) {
      const outcome = await run(async () => {
        await write({ phase })
        return 'done'
      })
      expect(outcome).toMatchObject({ reply: { kind: 'error', error: { code: 'STATE_INVALID' } } })
      expect(await read()).toMatchObject({ phase })
      await write({ phase: 'open' })
    }
  })

  it('M1 has done so even if its record has gone', async () => {
    const outcome = await run(async () => {
      await host.store?.records?.remove(guard().id)
      return 'done'
    })
    expect(textOf(outcome)).toBe('done')
  })
})

describe('a call whose handler undoes its effects itself', () => {
  it('M1 ends well if all of them could be undone', async () => {
    const outcome = await run(async (ctx) => {
      await ctx.undo()
      return 'undone'
    })
    expect(textOf(outcome)).toBe('undone')
    expect(calls).toEqual(['do room', 'do car', 'undo car', 'undo room'])
    expect(await read()).toMatchObject({ phase: 'ended' })
  })

  it('M1 M3 leaves the others to a worker, with its permit', async () => {
    fails = ['room']
    const { given, isFree } = oneAtATime()
    const outcome = await run(async (ctx) => {
      await ctx.undo()
      await reserve('meal')(ctx)
      return 'almost'
    }, given)
    expect(textOf(outcome)).toBe('almost')
    const record = await read()
    expect(record?.phase).toBe('ended')
    expect(leftToUndo(withTried(record?.journal ?? journal))).toEqual(['room'])
    expect(woken).toEqual([guard().alarm])
    expect(await isFree()).toBe(false)
  })

  it('M1 has expired if the alarm has begun to undo it', async () => {
    fails = ['room']
    const outcome = await run(async (ctx) => {
      await ctx.undo()
      await write({ phase: 'undoing', since: START })
      return 'almost'
    })
    expect(outcome).toMatchObject({ reply: { kind: 'error', error: { code: 'STATE_INVALID' } } })
  })
})

describe('a call that is given up while it waits', () => {
  const waits: Journal = { ...journal, begun: [{ key: 'room', effectKey: 'k' }] }

  it('M1 wakes its alarm only if it was open or is being undone', async () => {
    for (const [phase, count] of [
      ['open', 1],
      ['undoing', 1],
      ['ended', 0],
      ['undone', 0],
    ] as const) {
      woken = []
      await write({ phase, journal: waits })
      await undoGone(host, waits)
      expect(woken).toHaveLength(count)
    }
    expect(warnings()).toEqual([])
  })

  it('M1 has nothing to undo if there is no record', async () => {
    await undoGone(host, waits)
    expect([woken, warnings()]).toEqual([[], []])
  })

  it('M1 M3 has no alarm without tasks, and none to follow a task in a store without alarms', async () => {
    expect(await openAlarm({ ...host, tasks: undefined }, waits)).toBeUndefined()
    await write({ journal: waits })
    const store = { ...host.store, alarms: undefined } as FlowHost['store']
    const round = { host: { ...host, store }, beginning: { flowExpires: START + DAY } } as unknown as Round
    await guardTask(round, waits, { id: 'task', owner: guard().owner })
    expect(await read()).toMatchObject({ task: { id: 'task' } })
  })
})

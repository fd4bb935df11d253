/** How the call stands that an alarm looks after, and what the alarm's turn does then (guard 3 and 4 in `../undo.ts`). */

import { getEventListeners } from 'node:events'
import { beforeEach, describe, expect, it } from 'vitest'
import { RondoError } from '../../errors.ts'
import type { WorkEntry } from '../../journal/journal.ts'
import { type StoreClock, storeClock } from '../../lib/clock.ts'
import type { LogEvent } from '../../log/event.ts'
import { tagsOf } from '../../seal/tag.ts'
import { createHost, type OpenHost } from '../../serve/host.ts'
import { createMemoryStore } from '../../store/memory/store.ts'
import type { PermitStore } from '../../store/permits.ts'
import type { Store } from '../../store/store.ts'
import { createTaskId, type TaskTurn, type TaskTurnOutcome } from '../../store/task-engine.ts'
import type { Context } from '../../tool/context.ts'
import type { Target } from '../../tool/target.ts'
import type { TaskHost } from '../host.ts'
import { changeGuard, type Guard, type GuardRecord, guardOf, readGuard, WAKE } from '../undo.ts'
import { openPiece, ownerOf, sealPiece, type TaskPlan, type TaskRecord } from './journal.ts'
import { redeem } from './redeem.ts'

const START = 1_800_000_000_000
const DAY = 86_400_000
const EXPIRES = START + 5_000
const LEASE_MS = 15_000

let events: LogEvent[] = []
let host: OpenHost
let tasks: TaskHost
let guard: Guard
beforeEach(async () => {
  events = []
  host = createHost({
    audience: 'hotel',
    keys: 'k:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=',
    log: (event) => void events.push(event),
    store: createMemoryStore({ now: () => START }),
    now: () => START,
    tasks: { leaseMs: LEASE_MS },
  })
  tasks = host.tasks as TaskHost
  await host.keys.ready()
  guard = guardOf(host, 'c2VlZA', 'line')
})

const journal = {
  startedAt: START,
  seed: 'c2VlZA',
  entries: [{ kind: 'effect', key: 'room', at: START, value: 1 }] as WorkEntry[],
  reasks: {},
  moves: 0,
  begun: [{ key: 'room', effectKey: 'k' }],
  lineage: 'line',
}
const plan: TaskPlan & { readonly undo: NonNullable<TaskPlan['undo']> } = {
  flow: 'flow',
  seed: 'c2VlZA',
  startedAt: START,
  round: 1,
  call: { method: 'tools/call', target: 'trip', args: {}, protocolVersion: '2026-07-28', capabilities: {} },
  undo: { lineage: 'line', expires: EXPIRES },
}
// The tool no longer takes its own arguments, so an alarm that has to undo ends as failed and names what is left.
const target = {
  method: 'tools/call',
  name: 'trip',
  task: { mode: 'auto' },
  prepare: () => ({ kind: 'refused', problem: 'other arguments' }),
} as unknown as Target

const write = (record: Partial<GuardRecord>) =>
  changeGuard(host, guard, DAY, () => ({ phase: 'open', journal, ...record }))

/** Lets the record be gone after so many reads of it. */
function loseRecord(after: number): void {
  const store = host.store as Store
  const records = store.records as NonNullable<Store['records']>
  let reads = 0
  const get: typeof records.get = async (id) => (++reads <= after ? records.get(id) : undefined)
  host = { ...host, store: { ...store, records: { ...records, get } } }
}

/** One turn of the alarm. `again`: it has parked before. */
async function turnAt(
  claimedAt: number,
  again = false,
  more: Partial<TaskTurn> = {},
  tool = target,
  clock?: StoreClock,
): Promise<TaskTurnOutcome> {
  const turn = {
    task: { id: guard.alarm, owner: guard.owner },
    number: 1,
    journal: [],
    claimedAt,
    answers: new Map(),
    slots: () => (again ? [{ kind: 'open', key: WAKE, request: 'r' }] : []),
    signal: new AbortController().signal,
    draining: new AbortController().signal,
    record: async () => {},
    ...more,
  }
  return await redeem(host, tasks, turn as unknown as TaskTurn, plan, tool, clock)
}

type End = 'open' | 'completed' | 'cancelled'

/** A task that the alarm follows, and that stands so. */
async function follow(end: End): Promise<NonNullable<GuardRecord['task']>> {
  const id = createTaskId()
  const owner = ownerOf(host, undefined)
  await tasks.engine.create({ id, owner, head: 'h', ttlMs: DAY, pollMs: 1 })
  await host.store?.alarms?.set(id, guard.alarm, DAY)
  if (end === 'cancelled') await tasks.engine.cancel(id, owner)
  if (end === 'completed') await finish({ id, owner })
  return { id, owner }
}

/** Lets a worker complete the task. */
async function finish({ id, owner }: NonNullable<GuardRecord['task']>): Promise<void> {
  let completed = (): void => {}
  const ended = new Promise<void>((resolve) => {
    completed = resolve
  })
  const serving = await tasks.engine.serve(async () => ({ kind: 'complete', result: 'r' }))
  const stop = await tasks.engine.watch([id], owner, (_id, view) => {
    if (view?.status === 'completed') completed()
  })
  await ended
  stop()
  await serving.stop()
}

const undone = (outcome: TaskTurnOutcome): unknown =>
  outcome.kind === 'complete' &&
  openPiece(host, tasks, { id: guard.alarm, owner: guard.owner }, 'result', outcome.result)
const undoes = {
  kind: 'fail',
  error: expect.any(String),
}

describe('the alarm of a call in rounds', () => {
  it.each([
    ['has no record yet', undefined],
    ['is open', 'open'],
  ] as const)('M1 waits until the call expires, if the call %s', async (_name, phase) => {
    if (phase) await write({ phase })
    expect(await turnAt(EXPIRES - 1)).toEqual({
      kind: 'park',
      inputs: new Map([[WAKE, expect.any(String)]]),
      wakeAt: EXPIRES,
      liveUntil: EXPIRES + tasks.ttlMs,
    })
    expect(await turnAt(START)).toMatchObject({ kind: 'park', wakeAt: EXPIRES })
    expect(await turnAt(EXPIRES - 1, true)).toMatchObject({
      kind: 'park',
      inputs: new Map(),
      wakeAt: EXPIRES,
    })
  })

  it('M1 undoes a call that is open when it expires', async () => {
    await write({})
    const outcome = await turnAt(EXPIRES)
    expect(outcome).toEqual(undoes)
    expect(await readGuard(host, guard)).toMatchObject({ phase: 'undoing', since: EXPIRES })
    const of = { id: guard.alarm, owner: guard.owner }
    const error = outcome.kind === 'fail' && openPiece(host, tasks, of, 'error', outcome.error)
    expect(error).toMatchObject({ code: -32603, message: 'Could not be undone: room', data: { undone: [] } })
  })

  it('M1 has nothing to do for a call that recorded nothing before it expired', async () => {
    expect(undone(await turnAt(EXPIRES))).toEqual({ undone: [] })
  })

  it('M1 removes the record of a call that ended well, before it expires and after', async () => {
    for (const at of [EXPIRES - 1, EXPIRES]) {
      await write({ phase: 'ended' })
      expect(undone(await turnAt(at))).toEqual({ undone: [] })
      expect(await readGuard(host, guard)).toBeUndefined()
    }
  })

  it('M1 keeps the record of effects that the call has undone until it expires: a round may come again', async () => {
    const undone = { kind: 'undo', key: 'room.undo', at: START } as const
    await write({
      phase: 'ended',
      task: await follow('completed'),
      journal: { ...journal, entries: [...journal.entries, undone] },
    })
    expect(await turnAt(START)).toMatchObject({ kind: 'complete' })
    expect(await readGuard(host, guard)).toMatchObject({ phase: 'ended' })
  })

  it('M1 has nothing to do if another worker removes the record meanwhile', async () => {
    await write({})
    loseRecord(1)
    expect(undone(await turnAt(EXPIRES))).toEqual({ undone: [] })
  })

  it('M1 waits anew for an effect if an operator retried the task in between', async () => {
    const task = await follow('open')
    await write({ phase: 'undoing', since: START - 2 * LEASE_MS, task, journal: { ...journal, entries: [] } })
    expect(await turnAt(START)).toMatchObject({ kind: 'park' })
    await tasks.engine.cancel(task.id, task.owner)
    expect(await turnAt(START + 1_000)).toEqual({ kind: 'release', delayMs: 1_000 })
    expect(await turnAt(START + 1_000 + 2 * LEASE_MS)).toEqual(undoes)
  })

  it('M1 undoes at once what another worker has begun to undo, and nothing twice', async () => {
    await write({ phase: 'undoing', since: START - 2 * LEASE_MS })
    expect(await turnAt(START)).toEqual(undoes)
    expect(await readGuard(host, guard)).toMatchObject({ since: START - 2 * LEASE_MS })
    await write({ phase: 'undone' })
    expect(undone(await turnAt(START))).toEqual({ undone: [] })
    expect(await readGuard(host, guard)).toMatchObject({ phase: 'undone' })
  })

  it.each([
    [0, 1_000],
    [2 * LEASE_MS - 400, 400],
    [2 * LEASE_MS, 'undoes'],
  ])('M1 waits for an effect that may be running, %i ms after it began to undo: %s', async (after, delay) => {
    await write({ phase: 'undoing', since: START, journal: { ...journal, entries: [] } })
    const outcome = await turnAt(START + after)
    expect(outcome).toEqual(delay === 'undoes' ? undoes : { kind: 'release', delayMs: delay })
  })

  it('M1 waits for no effect that has an outcome, nor if the call itself undid', async () => {
    await write({ phase: 'undoing', since: START })
    expect(await turnAt(START)).toEqual(undoes)
    await write({ phase: 'undoing', journal: { ...journal, entries: [] } })
    expect(await turnAt(START)).toEqual(undoes)
  })
})

describe('the alarm of a task', () => {
  it.each<[string, GuardRecord['phase'], End, 'undoes' | 'done' | 'well']>([
    ['completed', 'open', 'completed', 'well'],
    ['completed', 'ended', 'completed', 'well'],
    ['completed while a worker undid it', 'undoing', 'completed', 'undoes'],
    ['was cancelled', 'open', 'cancelled', 'undoes'],
    // The handler had returned, and the cancellation came before its result was stored.
    ['was cancelled at its end', 'ended', 'cancelled', 'undoes'],
    ['was cancelled and undone', 'undone', 'cancelled', 'done'],
  ])('M1 of one that %s, with a record that says %s', async (_name, phase, end, does) => {
    await write({ phase, task: await follow(end) })
    const outcome = await turnAt(START)
    if (does === 'undoes') expect(outcome).toEqual(undoes)
    else expect(undone(outcome)).toEqual({ undone: [] })
    const now = await readGuard(host, guard)
    expect(now?.phase).toBe({ undoes: 'undoing', done: 'undone', well: undefined }[does])
  })

  it('M1 goes by the task itself where the store keeps no end of it', async () => {
    const store = host.store as Store
    const alarms = store.alarms as NonNullable<Store['alarms']>
    for (const none of [undefined, { ...alarms, ended: async () => undefined }]) {
      await write({ task: await follow('completed') })
      const before = host
      host = { ...host, store: { ...store, alarms: none } as Store }
      expect(undone(await turnAt(START, true))).toEqual({ undone: [] })
      host = before
      expect(await readGuard(host, guard)).toBeUndefined()
    }
  })

  it('M1 looks again soon after it has parked for the first time, and then when the task expires', async () => {
    const task = await follow('open')
    await write({ task })
    const { expiresAt } = (await tasks.engine.get(task.id, task.owner)) ?? { expiresAt: 0 }
    expect(await turnAt(START)).toMatchObject({
      kind: 'park',
      wakeAt: START + 2_000,
      liveUntil: expiresAt + tasks.ttlMs,
    })
    expect(await turnAt(START, true)).toMatchObject({ kind: 'park', wakeAt: expiresAt })
  })

  it('M1 undoes nothing of one that ends well between two looks at it', async () => {
    const task = await follow('open')
    await write({ task })
    const store = host.store as Store
    const alarms = store.alarms as NonNullable<Store['alarms']>
    const { engine } = tasks
    /** The first of these reads is over before the task ends, the second begins after. */
    let reads = 0
    const after = async <T>(read: Promise<T>): Promise<T> => {
      const value = await read
      if (++reads === 1) await finish(task)
      return value
    }
    host = { ...host, store: { ...store, alarms: { ...alarms, ended: (id) => after(alarms.ended(id)) } } }
    tasks = { ...tasks, engine: { ...engine, get: (...of) => after(engine.get(...of)) } }
    const outcome = await turnAt(START)
    expect(outcome.kind).not.toBe('fail')
    expect((await readGuard(host, guard))?.phase).not.toBe('undoing')
  })

  it('M1 waits once for a task that a call is just becoming, and undoes the call if it never did', async () => {
    await write({ task: { id: createTaskId(), owner: ownerOf(host, undefined) } })
    expect(await turnAt(START)).toMatchObject({ kind: 'park', wakeAt: START + 2_000 })
    expect(await turnAt(START, true)).toEqual(undoes)
  })
})

describe('the alarm that undoes', () => {
  let calls: string[] = []
  let fails: string[] = []
  let keys: Set<string>
  beforeEach(() => {
    calls = []
    fails = []
    keys = new Set()
  })
  const both = {
    ...journal,
    entries: ['room', 'car'].map((key): WorkEntry => ({ kind: 'effect', key, at: START, value: key })),
    begun: ['room', 'car'].map((key) => ({ key, effectKey: `key of ${key}` })),
  }

  /** A tool that performs these effects, and could do more. */
  const toolFor = (effects: readonly string[], more: Partial<Target> = {}): Target =>
    ({
      ...target,
      prepare: () => ({
        kind: 'ready',
        async run(ctx: Context) {
          for (const name of effects)
            await ctx.effect(name, () => calls.push(`do ${name}`), {
              undo(_result, { key }) {
                calls.push(`undo ${name}`)
                keys.add(key)
                if (fails.includes(name)) throw new Error('no')
              },
            })
          await ctx.step('more', () => calls.push('more'))
          return 'done'
        },
      }),
      ...more,
    }) as unknown as Target
  const undo = (more: Partial<TaskTurn> = {}, tool = toolFor(['room', 'car'])) =>
    turnAt(START, true, more, tool)
  const seal = (record: TaskRecord) =>
    sealPiece(host, { id: guard.alarm, owner: guard.owner }, 'record', record)
  const concurrency = { keyOf: async () => 'one', limit: 1, queues: false, releases: false }
  const failed = (key: string): WorkEntry => ({
    kind: 'undo',
    key,
    at: START,
    failure: { name: 'Error', message: 'no' },
  })

  it('M1 runs the undo functions, the last effect first, and nothing else', async () => {
    await write({ phase: 'undoing', journal: both })
    expect(undone(await undo())).toEqual({ undone: ['car', 'room'] })
    expect(calls).toEqual(['undo car', 'undo room'])
    expect(keys.size).toBe(2)
    expect(await readGuard(host, guard)).toMatchObject({ phase: 'undone' })
    expect(events).toContainEqual(
      expect.objectContaining({
        event: 'undo',
        flow: 'flow',
        task: guard.alarm,
        turn: 1,
        undone: ['car', 'room'],
        failed: [],
      }),
    )
  })

  it('M1 records each undo before the next one, and undoes none again', async () => {
    await write({ phase: 'undoing', journal: both })
    const kept: string[] = []
    await undo({ record: async (sealed) => void kept.push(sealed) })
    const records = kept.map((one) =>
      openPiece<TaskRecord>(host, tasks, { id: guard.alarm, owner: guard.owner }, 'record', one),
    )
    const names = records.flatMap((record) => ('entry' in record ? [record.entry.key] : []))
    expect(names).toEqual(['car.undo', 'room.undo'])
    await write({ phase: 'undoing', journal: both })
    calls = []
    expect(undone(await undo({ journal: kept.slice(0, 1) }))).toEqual({ undone: ['room'] })
    expect(calls).toEqual(['undo room'])
  })

  it('M1 retries an undo that failed after a second, under its key, and keeps what has been undone', async () => {
    await write({ phase: 'undoing', journal: both })
    fails = ['room']
    const kept: string[] = []
    expect(await undo({ record: async (sealed) => void kept.push(sealed) })).toEqual({
      kind: 'park',
      inputs: new Map(),
      wakeAt: START + 1_000,
      liveUntil: START + 1_000 + tasks.ttlMs,
    })
    const of = { id: guard.alarm, owner: guard.owner }
    expect(kept.map((one) => openPiece(host, tasks, of, 'record', one))).toContainEqual({
      attempt: { key: 'room.undo', count: 1, due: START + 1_000 },
    })
    fails = []
    expect(undone(await turnAt(START + 1_000, true, { journal: kept }, toolFor(['room', 'car'])))).toEqual({
      undone: ['room'],
    })
    expect(calls).toEqual(['undo car', 'undo room', 'undo room'])
    expect(keys.size).toBe(2)
    const { entries = [] } = (await readGuard(host, guard))?.journal ?? {}
    expect(entries.map(({ key }) => key).sort()).toEqual(['car', 'car.undo', 'room', 'room.undo'])
  })

  it('M1 tries an undo again that had failed for good, in the call or in an earlier turn', async () => {
    await write({ phase: 'undoing', journal: { ...both, entries: [...both.entries, failed('car.undo')] } })
    expect(undone(await undo({ journal: [seal({ entry: failed('room.undo') })] }))).toEqual({
      undone: ['car', 'room'],
    })
  })

  it('M1 undoes only what ctx.undo() could not undo in a call that ended well, which stays as it ended', async () => {
    await write({ phase: 'ended', journal: { ...both, entries: [...both.entries, failed('car.undo')] } })
    expect(undone(await undo())).toEqual({ undone: ['car'] })
    expect(calls).toEqual(['undo car'])
    expect(await readGuard(host, guard)).toMatchObject({ phase: 'ended' })
  })

  const nothingLeft = () => {
    const entries: WorkEntry[] = [...journal.entries, { kind: 'undo', key: 'room.undo', at: START }]
    return write({ phase: 'undoing', journal: { ...journal, entries } })
  }

  it('M1 ends well after its last undo, even if the tool no longer takes its arguments', async () => {
    await nothingLeft()
    expect(undone(await undo({}, target))).toEqual({ undone: [] })
    expect(await readGuard(host, guard)).toMatchObject({ phase: 'undone' })
  })

  it('M1 ends if the record of what it has undone expires meanwhile', async () => {
    await nothingLeft()
    loseRecord(2)
    expect(undone(await undo())).toEqual({ undone: [] })
    expect(calls).toEqual([])
  })

  it('M1 reaches an effect beside a hook whose time is up', async () => {
    const hook: WorkEntry = { kind: 'hook', key: 'paid', at: START, value: 'h.1' }
    const deadlines = { 'paid.received': START }
    await write({ phase: 'undoing', journal: { ...journal, entries: [hook, ...journal.entries], deadlines } })
    const run = async (ctx: Context) => {
      const paid = await ctx.hook('paid', { within: 1_000 })
      await Promise.all([paid.received(), ctx.effect('room', () => 1, { undo: () => {} })])
    }
    const tool = toolFor([], { prepare: () => ({ kind: 'ready', run }) } as unknown as Partial<Target>)
    expect(undone(await undo({}, tool))).toEqual({ undone: ['room'] })
  })

  it('M1 ends as failed if a changed program no longer reaches an effect, and undoes the others', async () => {
    await write({ phase: 'undoing', journal: both })
    const outcome = await undo({}, toolFor(['room']))
    const of = { id: guard.alarm, owner: guard.owner }
    expect(outcome.kind === 'fail' && openPiece(host, tasks, of, 'error', outcome.error)).toMatchObject({
      message: 'Could not be undone: car',
      data: { undone: ['room'] },
    })
    expect(events).toContainEqual(
      expect.objectContaining({ event: 'undo', undone: ['room'], failed: ['car'] }),
    )
    expect(await readGuard(host, guard)).toMatchObject({ phase: 'undoing' })
  })

  it('M1 waits while the store is away, without counting a failure', async () => {
    await write({ phase: 'undoing', journal: both })
    const record = () => Promise.reject(new RondoError('STORE_UNAVAILABLE'))
    expect(await undo({ record })).toEqual({ kind: 'release', delayMs: 5_000 })
  })

  it('M1 leaves the rest to another worker if its turn no longer counts, or its process stops', async () => {
    await write({ phase: 'undoing', journal: both })
    for (const name of ['signal', 'draining'] as const) {
      expect(await undo({ [name]: AbortSignal.abort() })).toEqual({ kind: 'release' })
      expect(await readGuard(host, guard)).toMatchObject({ phase: 'undoing' })
    }
  })

  it('M1 counts any other error as a failure of the alarm', async () => {
    await write({ phase: 'undoing', journal: both })
    const record = () => Promise.reject(new RondoError('LIMIT_STATE_BYTES'))
    await expect(undo({ record })).rejects.toMatchObject({ code: 'LIMIT_STATE_BYTES' })
  })

  it.each<[string, (look: () => void, lose: () => void) => void, readonly boolean[], GuardRecord['phase']]>([
    ['it is not', (look) => look(), [false], 'undone'],
    ['it is', (look, lose) => [look(), lose(), look()], [false, true], 'undoing'],
    ['it is before the undo looks', (look, lose) => [lose(), look()], [true], 'undoing'],
  ])(
    'M1 tells the last undo whether its turn is lost, and then leaves the end of the call to another worker: %s',
    async (_name, act, expected, phase) => {
      await write({ phase: 'undoing' })
      const turn = new AbortController()
      const seen: boolean[] = []
      const run = (ctx: Context) =>
        ctx.effect('room', () => 1, {
          undo: (_result, last) =>
            void act(
              () => seen.push(last.signal.aborted),
              () => turn.abort(),
            ),
        })
      const tool = toolFor([], { prepare: () => ({ kind: 'ready', run }) } as unknown as Partial<Target>)
      const { kind } = await undo({ signal: turn.signal }, tool)
      expect(kind).toBe(phase === 'undone' ? 'complete' : 'release')
      expect(seen).toEqual(expected)
      expect(await readGuard(host, guard)).toMatchObject({ phase })
      expect(getEventListeners(turn.signal, 'abort')).toEqual([])
    },
  )

  it('M1 M3 renews its permit while it undoes, and no more once another worker has to continue', async () => {
    await write({ phase: 'undoing', journal: both })
    const timers = new Set<() => void>()
    const seen: number[] = []
    const idly: StoreClock['idly'] = (_ms, renew) => {
      timers.add(renew)
      seen.push(timers.size)
      return () => void timers.delete(renew)
    }
    const tool = toolFor(['room', 'car'], { concurrency })
    const lost = { draining: AbortSignal.abort() }
    expect(await turnAt(START, true, lost, tool, { ...storeClock, idly })).toEqual({ kind: 'release' })
    expect(seen).toEqual([1])
    expect(timers.size).toBe(0)
  })

  it('M1 M3 keeps its permit until it tries an undo again', async () => {
    const store = host.store as Store
    const permits = store.permits as PermitStore
    const held: number[] = []
    const renew: PermitStore['renew'] = (holder, grant, holdMs, endsWith) => {
      held.push(holdMs)
      return permits.renew(holder, grant, holdMs, endsWith)
    }
    host = { ...host, store: { ...store, permits: { ...permits, renew } } }
    await write({ phase: 'undoing', journal: both })
    fails = ['room']
    expect(await undo({}, toolFor(['room', 'car'], { concurrency }))).toMatchObject({ kind: 'park' })
    expect(held.at(-1)).toBe(2 * LEASE_MS + 1_000 + 3_600_000)
  })

  it('M1 M3 waits for a permit like any other call of the key, and releases it afterwards', async () => {
    const permits = host.store?.permits as PermitStore
    const tool = toolFor(['room', 'car'], { concurrency })
    const tags = tagsOf(host.keys.ring, 'concurrency', JSON.stringify(['hotel', 'trip', 'one']))
    const other = { holder: 'other', tags, limit: 1, holdMs: DAY }
    const held = await permits.acquire(other)
    await write({ phase: 'undoing', journal: both })
    expect(await undo({}, tool)).toEqual({ kind: 'release', delayMs: 500 })
    expect(calls).toEqual([])
    await permits.release('other', held.kind === 'held' ? held.grant : undefined)
    fails = ['room']
    expect(await undo({}, tool)).toMatchObject({ kind: 'park' })
    expect(await permits.acquire(other)).toMatchObject({ kind: 'busy' })
    fails = []
    expect(undone(await turnAt(START + 1_000, true, {}, tool))).toEqual({ undone: ['room'] })
    expect(await permits.acquire(other)).toMatchObject({ kind: 'held' })
  })
})

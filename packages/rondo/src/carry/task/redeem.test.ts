/** How the call stands that an alarm looks after, and what the alarm's turn does then (guard 3 and 4 in `../undo.ts`). */

import { beforeEach, describe, expect, it } from 'vitest'
import type { WorkEntry } from '../../journal/journal.ts'
import { createHost, type OpenHost } from '../../serve/host.ts'
import { createMemoryStore } from '../../store/memory/store.ts'
import { createTaskId, type TaskTurn, type TaskTurnOutcome } from '../../store/task-engine.ts'
import type { Target } from '../../tool/target.ts'
import type { TaskHost } from '../host.ts'
import { changeGuard, type Guard, type GuardRecord, guardOf, readGuard, WAKE } from '../undo.ts'
import { openPiece, ownerOf, type TaskPlan } from './journal.ts'
import { redeem } from './redeem.ts'

const START = 1_800_000_000_000
const DAY = 86_400_000
const EXPIRES = START + 5_000
const LEASE_MS = 15_000

let host: OpenHost
let tasks: TaskHost
let guard: Guard
beforeEach(async () => {
  host = createHost({
    audience: 'hotel',
    keys: 'k:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=',
    log: 'off',
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

/** One turn of the alarm. `again`: it has parked before. */
async function turnAt(claimedAt: number, again = false): Promise<TaskTurnOutcome> {
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
  }
  return await redeem(host, tasks, turn as unknown as TaskTurn, plan, target)
}

type End = 'open' | 'completed' | 'cancelled'

/** A task that the alarm follows, and that stands so. */
async function follow(end: End): Promise<NonNullable<GuardRecord['task']>> {
  const id = createTaskId()
  const owner = ownerOf(host, undefined)
  await tasks.engine.create({ id, owner, head: 'h', ttlMs: DAY, pollMs: 1 })
  await host.store?.alarms?.set(id, guard.alarm, DAY)
  if (end === 'cancelled') await tasks.engine.cancel(id, owner)
  if (end === 'completed') {
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
  return { id, owner }
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

  it('M1 waits once for a task that a call is just becoming, and undoes the call if it never did', async () => {
    await write({ task: { id: createTaskId(), owner: ownerOf(host, undefined) } })
    expect(await turnAt(START)).toMatchObject({ kind: 'park', wakeAt: START + 2_000 })
    expect(await turnAt(START, true)).toEqual(undoes)
  })
})

/** The guard of a call that can be undone: its names, its alarm, and who closes its record. */

import { beforeEach, describe, expect, it } from 'vitest'
import type { Journal } from '../journal/journal.ts'
import type { Line } from '../protocol/call.ts'
import type { ReplayInput, Undoable, Undoing, UndoReport } from '../replay/input.ts'
import { createHost, type OpenHost } from '../serve/host.ts'
import { createMemoryStore } from '../store/memory/store.ts'
import { createTaskId } from '../store/task-engine.ts'
import type { Round } from './carrier.ts'
import type { TaskHost } from './host.ts'
import { ownerOf } from './task/journal.ts'
import {
  changeGuard,
  type GuardRecord,
  guardOf,
  readGuard,
  type UndoneReport,
  undoAfter,
  undoingIn,
  WAKE,
} from './undo.ts'

const START = 1_800_000_000_000
const DAY = 86_400_000

let host: OpenHost
beforeEach(async () => {
  host = createHost({
    audience: 'hotel',
    keys: 'k:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=',
    log: 'off',
    store: createMemoryStore({ now: () => START }),
    now: () => START,
  })
  await host.keys.ready()
})

const journal: Journal = {
  startedAt: START,
  seed: 'c2VlZA',
  entries: [],
  reasks: {},
  moves: 0,
  begun: [{ key: 'room', effectKey: 'key of room' }],
  lineage: 'line',
}

const row = () =>
  ({ id: createTaskId(), owner: ownerOf(host, undefined), expiresAt: START + DAY }) as Round['row']

const roundOf = (more: Partial<Round> = {}): Round =>
  ({
    host,
    call: { method: 'tools/call', target: 'trip', args: {}, protocolVersion: '2026-07-28', capabilities: {} },
    target: { name: 'trip', finish: async (value: unknown) => value },
    beginning: { flow: 'flow', round: 1, journal, asked: {}, flowExpires: START + DAY },
    ...more,
  }) as unknown as Round

const guard = () => guardOf(host, 'c2VlZA', 'line')

it('M1 has the same names in every release, so that calls survive an update', () => {
  expect(guard()).toEqual({
    id: 'undo:4c362541a9889a0553a418ccbdbd3617f1644e1d2c1049ffb186b65c993bccaf',
    alarm: '5UT3A_n0hPvlxSkhfkVN2A',
    owner: { tenant: 'hotel', principal: 'undo 4c362541a9889a0553a418ccbdbd3617' },
  })
  expect(WAKE).toBe('wake')
})

describe('the alarm of a call', () => {
  it('M1 waits for nobody to name it, and is created once', async () => {
    const tasks = host.tasks as TaskHost
    const heads: string[] = []
    const engine: TaskHost['engine'] = {
      ...tasks.engine,
      create(task) {
        heads.push(task.head)
        return tasks.engine.create(task)
      },
    }
    const { keep } = undoingIn(roundOf({ host: { ...host, tasks: { ...tasks, engine } } }), true) as Undoing
    await keep(journal, 'intent')
    await keep(journal, 'outcome')
    expect(heads).toHaveLength(1)
    const { alarm, owner } = guard()
    expect(await tasks.engine.get(alarm, owner)).toMatchObject({ known: true })
  })
})

describe('the record of a call whose handler has returned a result', () => {
  /** Returns the phase of the record. */
  async function endWell(
    line: Partial<Line>,
    more: Partial<Round> = {},
    known: Partial<Journal> = {},
  ): Promise<string | undefined> {
    await changeGuard(host, guard(), DAY, () => ({ phase: 'open', journal }))
    const value = { content: [] }
    const ran = { ending: { kind: 'returned', value }, journal: { ...journal, ...known }, undoable: [] }
    const round = roundOf({ ...more, line: line as Line })
    const report = await undoAfter(round, {} as ReplayInput, ran as unknown as UndoneReport)
    expect(report).toMatchObject(ran)
    return (await readGuard(host, guard()))?.phase
  }

  it('M1 is removed by the process that runs the call, even if the client has disconnected', async () => {
    expect(await endWell({ closed: false })).toBeUndefined()
    expect(await endWell({ closed: true })).toBeUndefined()
    expect(await endWell({ closed: false, left: false, isTaken: async () => false })).toBeUndefined()
  })

  it('M1 R7 stays if the handler has undone its effects: the round comes again if its reply is lost', async () => {
    const entries = [{ kind: 'undo', key: 'room.undo', at: START } as const]
    expect(await endWell({ closed: false }, {}, { entries })).toBe('ended')
  })

  it('M1 is closed if the call began another effect after it had undone those before', async () => {
    const effects = { begun: [...(journal.begun ?? []), { key: 'car', effectKey: 'key of car' }] }
    const entries = [{ kind: 'undo', key: 'room.undo', at: START } as const]
    expect(await endWell({ closed: false }, {}, { ...effects, entries })).toBe('ended')
  })

  it('M1 is closed by the worker that holds the task, and by none that has lost it', async () => {
    expect(await endWell({ closed: false }, { row: row() })).toBe('ended')
    expect(await endWell({ closed: true }, { row: row() })).toBe('open')
  })

  it.each<[string, Partial<Journal>, Partial<OpenHost>]>([
    ['no effect has begun', { begun: undefined }, {}],
    ['none of its effects can be undone', { begun: [] }, {}],
    ['nothing was kept', { lineage: undefined }, {}],
    ['no worker could undo it', {}, { tasks: undefined }],
  ])('M1 is not looked for if %s', async (_name, more, without) => {
    const ran = { ending: { kind: 'threw', error: new Error() }, journal: { ...journal, ...more } }
    const store = { ...host.store, records: undefined } as unknown as OpenHost['store']
    const round = roundOf({ host: { ...host, store, ...without }, line: { closed: false } as Line })
    const report = ran as unknown as UndoneReport
    expect(await undoAfter(round, {} as ReplayInput, report)).toBe(report)
  })

  const car = { key: 'car', effectKey: 'key of car' }
  const oneUndone: Journal = {
    ...journal,
    begun: [...(journal.begun ?? []), car],
    entries: [{ kind: 'undo', key: 'room.undo', at: START }],
  }

  it.each<[string, Partial<GuardRecord>, Partial<UndoneReport>, UndoReport]>([
    ['the run has not reached', {}, {}, { undone: [], failed: ['room'] }],
    [
      'the run has not reached after it undid one',
      {},
      { journal: oneUndone, undoable: [{ key: 'room' } as Undoable] },
      { undone: ['room'], failed: ['car'] },
    ],
    [
      'may be running elsewhere while the alarm waits for it',
      { phase: 'undoing', since: START },
      {},
      { undone: [], failed: ['room'] },
    ],
  ])('M1 leaves to a worker an effect that %s, and says so', async (_name, record, known, undo) => {
    await changeGuard(host, guard(), DAY, () => ({ phase: 'open', journal, ...record }))
    const ran = { ending: { kind: 'threw', error: new Error() }, journal, undoable: [], ...known }
    const round = roundOf({ line: { closed: false } as Line })
    const report = await undoAfter(round, {} as ReplayInput, ran as unknown as UndoneReport)
    expect(report).toEqual({ ...ran, undo, left: true })
  })

  it('M1 stays open once another instance continues the call', async () => {
    expect(await endWell({ closed: true, left: true })).toBe('open')
    expect(await endWell({ closed: false, isTaken: async () => true })).toBe('open')
  })
})

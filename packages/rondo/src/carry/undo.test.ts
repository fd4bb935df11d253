/** The record of a call that can be undone, and who may change it (guard 1 to 4 in `undo.ts`). */

import { beforeEach, describe, expect, it } from 'vitest'
import { RondoError } from '../errors.ts'
import type { Journal, WorkEntry } from '../journal/journal.ts'
import type { LogEvent } from '../log/event.ts'
import type { Reply } from '../protocol/reply.ts'
import type { Undoing, UndoNews } from '../replay/input.ts'
import { createHost, type OpenHost } from '../serve/host.ts'
import { createMemoryStore } from '../store/memory/store.ts'
import type { RecordStore } from '../store/store.ts'
import { createTaskId, isOpen } from '../store/task-engine.ts'
import type { Round } from './carrier.ts'
import type { TaskHost } from './host.ts'
import { scopesOfTask } from './scope.ts'
import { ownerOf } from './task/journal.ts'
import {
  alarmOf,
  changeGuard,
  type GuardRecord,
  guardOf,
  guardTask,
  leftToUndo,
  mayRun,
  openAlarm,
  readGuard,
  undoGone,
  undoingIn,
  withRecorded,
  withTried,
  withUndo,
} from './undo.ts'

const START = 1_800_000_000_000
const DAY = 86_400_000

let time = START
let events: LogEvent[] = []
let host: OpenHost
let tasks: TaskHost
beforeEach(async () => {
  time = START
  events = []
  host = createHost({
    audience: 'hotel',
    keys: 'k:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=',
    log: (event) => void events.push(event),
    store: createMemoryStore({ now: () => time }),
    now: () => time,
  })
  tasks = host.tasks as TaskHost
  await host.keys.ready()
})

const entry = (key: string, more: object = {}): WorkEntry =>
  ({ kind: 'effect', key, at: START, value: key, ...more }) as WorkEntry
const undone = (key: string, more?: object) => entry(`${key}.undo`, { kind: 'undo', ...more })
const failure = { value: undefined, failure: { name: 'Error', message: 'no' } }
const begun = (...keys: string[]) => keys.map((key) => ({ key, effectKey: `key of ${key}` }))

const journalOf = (more: Partial<Journal> = {}): Journal => ({
  startedAt: START,
  seed: 'c2VlZA',
  entries: [],
  reasks: {},
  moves: 0,
  begun: begun('room'),
  lineage: 'line',
  ...more,
})

function roundOf(more: Partial<Round> = {}): Round {
  return {
    host,
    call: { method: 'tools/call', target: 'trip', args: {}, protocolVersion: '2026-07-28', capabilities: {} },
    target: { name: 'trip' },
    beginning: { flow: 'flow', round: 1, journal: journalOf(), asked: {}, flowExpires: START + DAY },
    ...more,
  } as Round
}

const guard = () => guardOf(host, 'c2VlZA', 'line')
const read = (): Promise<GuardRecord | undefined> => readGuard(host, guard())
const write = (record: Partial<GuardRecord>) =>
  changeGuard(host, guard(), DAY, () => ({ phase: 'open', journal: journalOf(), ...record }))
const keep = (journal: Partial<Journal>, news: UndoNews = 'intent', round = roundOf()) =>
  (undoingIn(round, true) as Undoing).keep(journalOf(journal), news)
const refused = { code: 'STATE_INVALID', message: expect.stringContaining('being undone') }

describe('an effect that can be undone', () => {
  it('M1 has an alarm, which ends with its call, and a record before it begins', async () => {
    await keep({})
    const { alarm, owner } = guard()
    expect(await tasks.engine.get(alarm, owner)).toMatchObject({
      status: 'working',
      expiresAt: START + DAY + tasks.ttlMs,
    })
    expect(await read()).toMatchObject({ phase: 'open', journal: { begun: begun('room') } })
  })

  it('M1 has an alarm before it has a record', async () => {
    const down = new RondoError('STORE_UNAVAILABLE')
    const engine = { ...tasks.engine, create: () => Promise.reject(down) }
    const without = { ...host, tasks: { ...tasks, engine } }
    await expect(keep({}, 'intent', roundOf({ host: without }))).rejects.toThrow(down)
    expect(await read()).toBeUndefined()
  })

  it('M1 keeps what a process that died recorded besides', async () => {
    await write({
      journal: journalOf({
        begun: begun('room', 'car'),
        entries: [entry('room'), entry('car'), undone('car')],
      }),
    })
    await keep({
      begun: begun('room', 'meal'),
      entries: [entry('ask', { kind: 'step' }), entry('room', { value: 2 })],
    })
    const { journal } = (await read()) as GuardRecord
    expect(journal.begun?.map(({ key }) => key)).toEqual(['room', 'meal', 'car'])
    expect(journal.entries.map(({ key }) => key)).toEqual(['ask', 'room', 'car', 'car.undo'])
    expect(journal.entries[1]).toMatchObject({ value: 2 })
  })

  it('M1 of a call that becomes a task in between is kept with it, and follows it', async () => {
    await write({ journal: journalOf({ begun: undefined }) })
    const owner = ownerOf(host, undefined)
    const id = createTaskId()
    await tasks.engine.create({ id, owner, head: 'h', ttlMs: DAY, pollMs: 1 })
    await keep(
      {},
      'intent',
      roundOf({ row: { id, owner, expiresAt: START + DAY } as unknown as Round['row'] }),
    )
    expect(await read()).toMatchObject({ task: { id, owner }, journal: { begun: begun('room') } })
    await tasks.engine.cancel(id, owner)
    expect(await host.store?.alarms?.ended(id)).toBe('cancelled')
  })

  it('M1 keeps the steps of the process that took the call over, if an effect of the other one ends late', async () => {
    const step = entry('price', { kind: 'step' })
    await write({ journal: journalOf({ begun: begun('room', 'car'), entries: [step, entry('car')] }) })
    await keep({ entries: [entry('room')] }, 'outcome')
    expect((await read())?.journal.entries.map(({ key }) => key)).toEqual(['room', 'price', 'car'])
  })

  it('M1 does not begin under another key than the one under which it may have run', async () => {
    await keep({})
    const other = [{ key: 'room', effectKey: 'another' }]
    await expect(keep({ begun: other })).rejects.toMatchObject({ code: 'REPLAY_DIVERGED' })
    await expect(keep({ begun: other, rerun: 'by an operator' })).rejects.toMatchObject(refused)
    expect((await read())?.journal.begun).toEqual(begun('room'))
  })

  it.each<[GuardRecord['phase'], UndoNews, boolean, boolean]>([
    ['open', 'intent', true, true],
    ['open', 'outcome', true, true],
    ['open', 'undo', true, true],
    // A round that ended well comes again, because its reply was lost.
    ['ended', 'intent', true, false],
    ['undoing', 'intent', false, false],
    ['undone', 'intent', false, false],
    ['undone', 'outcome', false, false],
    // Recorded, but the call cannot go on.
    ['undoing', 'outcome', false, true],
    ['undoing', 'undo', true, true],
    ['undone', 'undo', true, true],
  ])(
    'M1 of a call that is %s, with news of an %s: continues %s, recorded %s',
    async (phase, news, continues, isKept) => {
      await write({ phase })
      const keeping = keep({ begun: begun('room', 'car') }, news)
      await (continues
        ? expect(keeping).resolves.toBeUndefined()
        : expect(keeping).rejects.toMatchObject(refused))
      const now = await read()
      expect(now?.phase).toBe(phase)
      expect(now?.journal.begun).toHaveLength(isKept ? 2 : 1)
    },
  )

  it('M1 of a task follows the task, and does not begin once the task has ended', async () => {
    const owner = ownerOf(host, undefined)
    const begin = async () => {
      const id = createTaskId()
      const view = await tasks.engine.create({ id, owner, head: 'h', ttlMs: DAY, pollMs: 1 })
      return { round: roundOf({ row: { ...view, owner } as unknown as Round['row'] }), id }
    }
    const ended = await begin()
    await tasks.engine.cancel(ended.id, owner)
    await expect(keep({}, 'intent', ended.round)).rejects.toMatchObject(refused)
    expect(await read()).toBeUndefined()
    const { round, id } = await begin()
    await keep({}, 'intent', round)
    expect(await read()).toMatchObject({ task: { id, owner } })
    await keep({ begun: begun('room', 'car') }, 'intent', round)
    await tasks.engine.cancel(id, owner)
    expect(await host.store?.alarms?.ended(id)).toBe('cancelled')
    // It was running meanwhile.
    await keep({ entries: [entry('room')] }, 'outcome', round)
    expect(await read()).toMatchObject({ journal: { entries: [entry('room')] } })
  })

  it('M1 of a task whose record says that it ended does not begin: an operator has to continue it elsewhere', async () => {
    const owner = ownerOf(host, undefined)
    const id = createTaskId()
    await tasks.engine.create({ id, owner, head: 'h', ttlMs: DAY, pollMs: 1 })
    await write({ phase: 'ended', task: { id, owner } })
    await expect(
      keep({}, 'intent', roundOf({ row: { id, owner, expiresAt: START + DAY } as unknown as Round['row'] })),
    ).rejects.toMatchObject(refused)
  })

  it('M1 needs a store with records, alarms and tasks, and a tool', () => {
    const { store } = host
    const hosts: [string, Partial<OpenHost>][] = [
      ['createServer', { store: undefined }],
      ['rondo.tasks', { tasks: undefined }],
      ['no records or no alarms', { store: { ...store, records: undefined } as OpenHost['store'] }],
      ['no records or no alarms', { store: { ...store, alarms: undefined } as OpenHost['store'] }],
    ]
    for (const [missing, more] of hosts)
      expect(undoingIn(roundOf({ host: { ...host, ...more } }), true)).toEqual({
        missing: expect.stringContaining(missing),
      })
    const { call } = roundOf()
    expect(undoingIn(roundOf({ call: { ...call, method: 'prompts/get' } }), true)).toHaveProperty('missing')
    expect(undoingIn(roundOf(), false)).toMatchObject({ isLinear: false })
    expect(undoingIn(roundOf(), true)).toMatchObject({ isLinear: true })
  })
})

describe('a round that comes again', () => {
  const { beginning } = roundOf()
  const entries = async (more: Partial<Journal> = {}, asked = {}) => {
    const { journal } = await withRecorded(host, { ...beginning, asked, journal: journalOf(more) })
    return journal.entries.map(({ key }) => key)
  }
  const answer = { kind: 'confirm', key: 'sure', at: START, question: 'digest', answer: {} } as const

  it.each<[GuardRecord['phase'], boolean]>([
    ['open', true],
    ['ended', true],
    ['undoing', false],
    ['undone', false],
  ])(
    'M1 R7 of a call that is %s: continues from what its last run recorded: %s',
    async (phase, continues) => {
      await write({
        phase,
        journal: journalOf({ begun: begun('room', 'car'), entries: [entry('car'), answer] }),
      })
      expect(await entries({ entries: [entry('room')] })).toEqual(
        continues ? ['room', 'car', 'sure'] : ['room'],
      )
      const { journal } = await withRecorded(host, beginning)
      expect(journal.begun).toEqual(continues ? begun('room', 'car') : begun('room'))
    },
  )

  it('M1 R3 asks a question again that was reworded since, and no other', async () => {
    await write({ journal: journalOf({ entries: [answer] }) })
    expect(await entries({}, { sure: 'digest' })).toEqual(['sure'])
    expect(await entries({}, { sure: 'other' })).toEqual([])
  })

  it('M1 reads no record of a call without effects that can be undone, nor without a store for it', async () => {
    await write({ journal: journalOf({ entries: [entry('room')] }) })
    const get = () => Promise.reject(new Error('read'))
    const records = { ...host.store?.records, get }
    const unread = { ...host, store: { ...host.store, records } } as unknown as OpenHost
    const plain = { ...beginning, journal: journalOf({ lineage: undefined }) }
    expect(await withRecorded(unread, plain)).toBe(plain)
    const others = [{ store: undefined }, { store: { ...host.store, records: undefined } }]
    for (const other of others)
      expect(await withRecorded({ ...host, ...other } as unknown as OpenHost, beginning)).toBe(beginning)
  })
})

describe('the record of a call that can be undone', () => {
  it('M1 I7 belongs to one line of one call of one service, and opens nowhere else', async () => {
    const ids = [guard(), guardOf(host, 'c2VlZA', 'other'), guardOf(host, 'b3RoZXI', 'line')].flatMap(
      ({ id, alarm }) => [id, alarm],
    )
    expect(new Set(ids).size).toBe(6)
    expect(guard().owner.tenant).toBe('hotel')
    await write({})
    const records = host.store?.records as RecordStore
    const { id } = guardOf(host, 'c2VlZA', 'other')
    const { sealed = '' } = (await records.get(guard().id)) ?? {}
    await records.put({ id, owner: id, sealed, version: 0, ttlMs: DAY, maxBytes: 1e6 })
    await expect(readGuard(host, guardOf(host, 'c2VlZA', 'other'))).rejects.toMatchObject({
      code: 'SERVER_INTERNAL',
      message: expect.stringContaining('does not open'),
    })
    expect(scopesOfTask(guard().alarm)).toEqual([])
  })

  it('M1 that holds no journal is refused', async () => {
    await changeGuard(host, guard(), DAY, () => ({ phase: 'open' }) as GuardRecord)
    await expect(read()).rejects.toMatchObject({ code: 'SERVER_INTERNAL' })
  })

  it('M1 is changed by one of those that change it at the same time, and then by the next', async () => {
    await write({})
    const add = (key: string) =>
      changeGuard(
        host,
        guard(),
        DAY,
        (now) =>
          now && { ...now, journal: journalOf({ begun: [...(now.journal.begun ?? []), ...begun(key)] }) },
      )
    await Promise.all(['a', 'b', 'c'].map(add))
    expect((await read())?.journal.begun).toHaveLength(4)
  })

  it.each([
    ['conflict', 'STORE_BUSY', 10],
    ['limit', 'LIMIT_STATE_BYTES', 1],
  ] as const)('M1 that cannot be changed (%s) is an error', async (outcome, code, tries) => {
    let puts = 0
    const records = {
      ...host.store?.records,
      async put() {
        puts += 1
        return outcome
      },
    }
    const other = { ...host, store: { ...host.store, records } } as unknown as OpenHost
    const changing = changeGuard(other, guard(), DAY, () => ({ phase: 'open', journal: journalOf() }))
    await expect(changing).rejects.toMatchObject({ code })
    expect(puts).toBe(tries)
  })

  it('M1 names the task that its call becomes, if it has effects that can be undone', async () => {
    const task = { id: createTaskId(), owner: ownerOf(host, undefined) }
    await guardTask(roundOf(), journalOf(), task)
    expect(await read()).toBeUndefined()
    await write({ phase: 'undoing' })
    for (const journal of [
      journalOf({ begun: [] }),
      journalOf({ begun: undefined }),
      journalOf({ lineage: undefined }),
    ])
      await guardTask(roundOf(), journal, task)
    expect(await read()).not.toHaveProperty('task')
    await guardTask(roundOf(), journalOf(), task)
    expect(await read()).toMatchObject({ phase: 'undoing', task })
  })
})

describe('the alarm of a call', () => {
  it('M1 M3 exists once an effect that can be undone has begun', async () => {
    const { alarm, owner } = guard()
    expect(alarmOf(host, journalOf())).toBe(alarm)
    const none = [
      journalOf({ begun: [] }),
      journalOf({ begun: undefined }),
      journalOf({ lineage: undefined }),
    ]
    await keep({})
    for (const journal of none) {
      expect(alarmOf(host, journal)).toBeUndefined()
      expect(await openAlarm(host, journal)).toBeUndefined()
    }
    expect(await openAlarm(host, journalOf())).toBe(alarm)
    expect(await openAlarm({ ...host, tasks: undefined }, journalOf())).toBeUndefined()
    await tasks.engine.cancel(alarm, owner)
    expect(await openAlarm(host, journalOf())).toBeUndefined()
  })

  it('M1 M3 that was never created holds nothing', async () => {
    expect(await openAlarm(host, journalOf())).toBeUndefined()
  })

  it('M1 undoes a call that ended while it waited, unless the call had ended well', async () => {
    for (const [phase, becomes] of [
      ['open', 'undoing'],
      ['ended', 'ended'],
      ['undone', 'undone'],
      ['undoing', 'undoing'],
    ] as const) {
      await write({ phase })
      await undoGone(host, journalOf())
      expect((await read())?.phase).toBe(becomes)
    }
    await write({})
    for (const more of [{ begun: [] }, { begun: undefined }, { lineage: undefined }])
      await undoGone(host, journalOf(more))
    await undoGone({ ...host, tasks: undefined }, journalOf())
    expect((await read())?.phase).toBe('open')
    expect(events).toEqual([])
  })

  it('M1 R11 undoes the call when it expires if the store is away now', async () => {
    for (const store of [{ ...host.store, records: undefined }, undefined]) {
      events = []
      await undoGone({ ...host, store } as unknown as OpenHost, journalOf())
      const error = expect.objectContaining({ code: 'SERVER_INTERNAL' })
      expect(events).toEqual([expect.objectContaining({ event: 'warning', error })])
    }
  })

  it('M1 is woken while its first turn parks it, and by nothing else', async () => {
    await keep({})
    const { alarm, owner } = guard()
    let answers = 0
    const engine: TaskHost['engine'] = {
      ...tasks.engine,
      async deliver(...given) {
        expect(given.slice(0, 2)).toEqual([alarm, owner])
        answers += 1
        return answers < 3 ? 'idle' : 'resumed'
      },
    }
    const waits: number[] = []
    const after = (ms: number, run: () => void) => {
      waits.push(ms)
      run()
      return () => {}
    }
    const platform = { ...host.platform, after }
    await undoGone({ ...host, platform, tasks: { ...tasks, engine } }, journalOf())
    expect(answers).toBe(3)
    expect(waits).toEqual([50, 50])
    const never = { ...engine, deliver: async () => 'idle' as const }
    await undoGone({ ...host, platform, tasks: { ...tasks, engine: never } }, journalOf())
    expect(waits).toHaveLength(22)
    expect(isOpen((await tasks.engine.get(alarm, owner))?.status)).toBe(true)
  })
})

describe('what is left to undo', () => {
  /** All of it, and of a call that ended well. */
  it.each<[string, Partial<Journal>, string[], string[], boolean]>([
    ['nothing began', { begun: undefined }, [], [], false],
    ['it has begun', { begun: begun('a') }, ['a'], [], true],
    ['it has run', { begun: begun('a'), entries: [entry('a')] }, ['a'], [], false],
    ['the last that began comes first', { begun: begun('a', 'b') }, ['b', 'a'], [], true],
    ['one was undone', { begun: begun('a', 'b'), entries: [undone('a')] }, ['b'], [], true],
    ['an undo failed', { begun: begun('a'), entries: [undone('a', failure)] }, ['a'], ['a'], false],
    [
      'a step has the name of an undo',
      { begun: begun('a'), entries: [entry('a.undo', { kind: 'step' })] },
      ['a'],
      [],
      false,
    ],
    ['the other one is running', { begun: begun('a', 'b'), entries: [entry('a')] }, ['b', 'a'], [], true],
  ])('M1 %s', (_name, more, left, tried, running) => {
    expect(leftToUndo(journalOf(more))).toEqual(left)
    expect(leftToUndo(withTried(journalOf(more)))).toEqual(tried)
    expect(mayRun(journalOf(more))).toBe(running)
  })
})

describe('the reply to a call that was undone', () => {
  const report = { undone: ['b'], failed: ['a'] }

  it('M1 says what was undone, and what was not, behind the content of a result', () => {
    const said = (undo: { undone: string[]; failed: string[] }): unknown => {
      const reply = withUndo(
        { kind: 'complete', result: { isError: true, content: [{ type: 'text', text: 'No' }] } },
        undo,
      )
      return (reply as unknown as { result: { content: { text: string }[] } }).result.content.map(
        ({ text }) => text,
      )
    }
    expect(said(report)).toEqual(['No', 'Undone: b. Not undone yet: a. The server tries again.'])
    expect(said({ undone: ['a', 'b'], failed: [] })).toEqual(['No', 'Undone: a, b.'])
    expect(said({ undone: [], failed: ['a'] })).toEqual(['No', 'Not undone yet: a. The server tries again.'])
  })

  it('M1 has it in the data of an error, beside what is there', () => {
    const cause = new Error('why')
    const error = new RondoError('LIMIT_ROUNDS', 'Too many', {
      data: { rounds: 3 },
      cause,
      headers: { 'x-a': '1' },
    })
    const reply = withUndo({ kind: 'error', error }, report) as Extract<Reply, { kind: 'error' }>
    expect(reply.error).toBeInstanceOf(RondoError)
    expect(reply.error).toMatchObject({
      code: 'LIMIT_ROUNDS',
      message: error.message,
      cause,
      headers: { 'x-a': '1' },
      data: { rounds: 3, undone: ['b'], notUndone: ['a'] },
    })
    const bare = withUndo({ kind: 'error', error: new RondoError('LIMIT_ROUNDS') }, report)
    expect((bare as typeof reply).error.data).toEqual({ undone: ['b'], notUndone: ['a'] })
  })

  it('M1 stays as it is if nothing was undone, or there is no place to say it', () => {
    class Special extends RondoError {}
    const replies: Reply[] = [
      { kind: 'complete', result: { messages: [] } },
      { kind: 'error', error: new Special('LIMIT_ROUNDS') },
      { kind: 'input_required', requestState: 's' },
    ]
    for (const reply of replies) expect(withUndo(reply, report)).toBe(reply)
    const whole: Reply = { kind: 'complete', result: { content: [] } }
    expect(withUndo(whole, undefined)).toBe(whole)
  })
})

/** What a task remembers from turn to turn: its records folded, the wire keys of its questions, and its answers. */

import { describe, expect, it } from 'vitest'
import type { Entry } from '../../journal/journal.ts'
import type { InputRequest } from '../../protocol/wire.ts'
import { sealEnvelope } from '../../seal/envelope.ts'
import { generateKey } from '../../seal/key-ring.ts'
import { createHost } from '../../serve/host.ts'
import type { InputSlot } from '../../store/input-slots.ts'
import { createMemoryStore } from '../../store/memory/store.ts'
import type { TaskHead } from '../../store/task-engine.ts'
import type { TaskHost } from '../host.ts'
import {
  endOfLife,
  type Folded,
  foldRecords,
  freeKey,
  MissingKey,
  markAnswer,
  type Noted,
  openPiece,
  ownerOf,
  park,
  placeOfTask,
  sealPiece,
  shownAs,
  type TaskPlan,
  type TaskRecord,
  toFlowCall,
  toolOfTask,
  unmarkAnswer,
} from './journal.ts'

const entry = (key: string, value = 1): Entry => ({ kind: 'step', key, at: 0, value })
const asked = (key: string, digest = 'd') => ({ key, digest })
const parked = (more: object = {}): TaskRecord => ({ parked: { asked: {}, reasks: {}, ...more } })
const attempt = (key: string, count: number, due: number): TaskRecord => ({ attempt: { key, count, due } })
const begun = (key: string): TaskRecord => ({ begun: { key, effectKey: key }, lineage: 'line' })

const EMPTY: Folded = {
  entries: [],
  parked: { asked: {}, reasks: {} },
  parks: 0,
  resting: false,
  deadlines: {},
  attempts: {},
  begun: [],
  lineage: undefined,
}

describe('the records of a task', () => {
  const noted: Noted = {
    reasks: { q: { misfits: 1 } },
    manual: 'm',
    kept: { k: { question: 'd', answer: 1 } },
    deadlines: { sleep: 7 },
    attempts: { step: 2 },
    begun: [{ key: 'first', effectKey: 'f' }],
    lineage: 'rounds',
  }
  const { deadlines, attempts, begun: before, lineage, ...rest } = noted

  it.each<[string, TaskRecord[], Noted | undefined, Partial<Folded>]>([
    ['a task that has just begun', [], undefined, {}],
    [
      'the rounds before the task',
      [],
      noted,
      { deadlines, attempts, begun: before, lineage, parked: { asked: {}, ...rest } },
    ],
    ['a result', [{ entry: entry('a') }], undefined, { entries: [entry('a')] }],
    [
      'a key that is recorded again',
      [{ entry: entry('a') }, { entry: entry('b') }, { entry: entry('a', 2) }],
      undefined,
      { entries: [entry('a', 2), entry('b')] },
    ],
    ['a deadline', [{ deadline: { key: 'a', due: 5 } }], undefined, { deadlines: { a: 5 } }],
    [
      'a deadline that is over',
      [{ deadline: { key: 'a', due: 5 } }, { entry: entry('a') }],
      undefined,
      { entries: [entry('a')] },
    ],
    [
      'a failed attempt',
      [attempt('a', 1, 5), attempt('a', 2, 9)],
      undefined,
      { deadlines: { a: 9 }, attempts: { a: 2 } },
    ],
    [
      'attempts that are over',
      [attempt('a', 1, 5), attempt('b', 1, 6), { entry: entry('a') }],
      undefined,
      { entries: [entry('a')], deadlines: { b: 6 }, attempts: { b: 1 } },
    ],
    [
      'an effect that can be undone',
      [begun('second')],
      noted,
      {
        deadlines,
        attempts,
        begun: [...(before ?? []), { key: 'second', effectKey: 'second' }],
        lineage: 'line',
        parked: { asked: {}, ...rest },
      },
    ],
    [
      'a turn that came to its end',
      [{ entry: entry('a') }, { rested: true }],
      undefined,
      { entries: [entry('a')], resting: true },
    ],
    [
      'a result after the end of a turn',
      [{ rested: true }, { entry: entry('a') }],
      undefined,
      { entries: [entry('a')], resting: false },
    ],
    [
      'what begins after the end of a turn',
      [{ rested: true }, { deadline: { key: 'a', due: 5 } }, attempt('b', 1, 6), begun('c')],
      undefined,
      {
        resting: true,
        deadlines: { a: 5, b: 6 },
        attempts: { b: 1 },
        begun: [{ key: 'c', effectKey: 'c' }],
        lineage: 'line',
      },
    ],
    [
      'a question that is shown while the turn goes on',
      [parked(), { opened: { asked: { q: asked('q') }, reasks: { q: { changes: 1 } } } }],
      undefined,
      { parks: 1, resting: false, parked: { asked: { q: asked('q') }, reasks: { q: { changes: 1 } } } },
    ],
    [
      'the last of two stops, with an answer that no longer counts',
      [{ entry: entry('a') }, { entry: entry('b') }, parked(), parked({ struck: ['a'], manual: 'm' })],
      undefined,
      {
        entries: [entry('b')],
        parks: 2,
        resting: true,
        parked: { asked: {}, reasks: {}, struck: ['a'], manual: 'm' },
      },
    ],
  ])('E9 yield %s', (_name, records, from, more) => {
    expect(foldRecords(records, from)).toEqual({ ...EMPTY, ...more })
  })

  it('E9 of one turn change nothing that an earlier turn was given', () => {
    foldRecords([begun('second')], noted)
    expect(noted.begun).toHaveLength(1)
  })
})

describe('the wire key of a question', () => {
  const open = (key: string, role?: 'offer' | 'hook'): InputSlot => ({
    kind: 'open',
    key,
    role,
    request: 'r',
  })
  const closed = (key: string): InputSlot => ({ kind: 'closed', key })
  const request = { method: 'roots/list' } as InputRequest
  const journal = { entries: [], reasks: {} }
  const stop = (questions: [key: string, digest: string][], slots: InputSlot[] = [], shown = {}, more = {}) =>
    park(
      questions.map(([key, digest]) => [key, { request, digest }] as const),
      { ...journal, ...more },
      { ...EMPTY, parked: { asked: shown, reasks: {} }, entries: [entry('a'), entry('b')] },
      slots,
    )

  it.each([
    [[], 'q'],
    [['q'], 'q~2'],
    [['q', 'q~2', 'q~3'], 'q~4'],
    [['q~2'], 'q'],
  ])('is one that the task has not used: %j', (taken, key) => {
    expect(freeKey('q', new Set(taken))).toBe(key)
  })

  it('R3 stays while the same question is open', () => {
    const shown = { q: asked('q', 'first'), 'q~2': asked('q', 'second'), r: asked('r', 'second') }
    const slots = [closed('q'), open('q~2'), open('r'), open('unknown')]
    const find = (key: string, digest: string) => shownAs({ asked: shown, reasks: {} }, slots, key, digest)
    expect(find('q', 'second')).toBe('q~2')
    expect(find('q', 'first')).toBeUndefined()
    expect(find('q', 'third')).toBeUndefined()
    expect(find('r', 'second')).toBe('r')
    expect(find('toString', 'second')).toBeUndefined()
  })

  it('is new for a question that is asked again, and for one of two with the same name', () => {
    const { inputs, record } = stop([['q', 'new']], [closed('q')], { q: asked('q', 'old') })
    expect([...inputs.keys()]).toEqual(['q~2'])
    expect(record).toMatchObject({ parked: { asked: { 'q~2': asked('q', 'new') } } })
    const both = stop([
      ['q', 'one'],
      ['q~2', 'two'],
      ['q', 'three'],
    ])
    expect([...both.inputs.keys()]).toEqual(['q', 'q~2', 'q~3'])
  })

  it('is not taken by a hook of that name', () => {
    expect([...stop([['q', 'd']], [open('q', 'hook')]).inputs.keys()]).toEqual(['q'])
  })

  it('is not opened again, and not closed, while its question stays the same', () => {
    const { inputs, close, record } = stop([['q', 'd']], [open('q')], { q: asked('q') })
    expect(inputs.size).toBe(0)
    expect(close).toEqual([])
    expect(record).toMatchObject({ parked: { asked: { q: asked('q') } } })
  })

  it('G2 closes with a question that the handler no longer asks, but not with its offers and hooks', () => {
    const slots = [open('q'), open('r'), closed('s'), open('offer', 'offer'), open('hook', 'hook')]
    expect(stop([['r', 'd']], slots, { q: asked('q'), r: asked('r') }).close).toEqual([open('q')])
  })

  it('G2 takes answers until its time is up', () => {
    const { until } = stop(
      [
        ['q', 'd'],
        ['r', 'd'],
      ],
      [open('r')],
      { r: asked('r') },
      { deadlines: { r: 9 } },
    )
    expect([...until]).toEqual([['r', 9]])
  })

  it('R2 the record of a stop has the answers that no longer count, and nothing that there is not', () => {
    expect(stop([], [], {}, { entries: [entry('a')] }).record).toEqual(parked({ struck: ['b'] }))
    expect(stop([], [], {}, { entries: [entry('a'), entry('b'), entry('c')] }).record).toEqual(parked())
    const kept = { k: { question: 'd', answer: 1 } }
    const whole = { entries: [entry('a'), entry('b')], manual: 'm', kept, reasks: { q: { changes: 1 } } }
    expect(stop([], [], {}, whole).record).toEqual(parked({ manual: 'm', kept, reasks: whole.reasks }))
  })
})

describe('an answer', () => {
  it.each([
    [{ action: 'accept' }, { action: 'accept' }],
    [
      { action: 'accept', _meta: { own: 1 } },
      { action: 'accept', _meta: { own: 1 } },
    ],
    [{ action: 'accept', _meta: { 'rondo/span': 'forged' } }, { action: 'accept' }],
    [{ action: 'accept', _meta: 'odd' }, { action: 'accept' }],
  ])('R7 is the same with and without the span that brought it: %j', (given, answer) => {
    expect(unmarkAnswer(markAnswer(given, 'span'))).toEqual({ answer, span: 'span' })
  })

  it('is as the client sent it if nothing is observed', () => {
    for (const given of [{ action: 'accept', _meta: { own: 1 } }, 'elicitation/create', null, [1]]) {
      expect(markAnswer(given, undefined)).toBe(given)
      expect(unmarkAnswer(given)).toEqual({ answer: given })
    }
    expect(markAnswer('elicitation/create', 'span')).toBe('elicitation/create')
    expect(unmarkAnswer({ a: 1, _meta: { 'rondo/span': 7 } })).toEqual({ answer: { a: 1 } })
  })
})

describe('a piece of a task', () => {
  const warnings: unknown[] = []
  const hostWith = (keys: string, maxPieceBytes = 2_000) =>
    createHost({
      audience: 'shop',
      keys,
      log: (event) => void warnings.push(event),
      store: createMemoryStore(),
      tasks: { maxPieceBytes },
    })
  const keys = generateKey('one')
  const host = hostWith(keys)
  const tasks = host.tasks as TaskHost
  const of = { id: 'task', owner: ownerOf(host, undefined) }

  it('R9 has at most tasks.maxPieceBytes bytes, and every one that is kept opens again', async () => {
    await host.keys.ready()
    const value = 'x'.repeat(400)
    const sealed = sealPiece(host, of, 'result', value)
    const exact = hostWith(keys, sealed.length)
    const below = hostWith(keys, sealed.length - 1)
    await Promise.all([exact.keys.ready(), below.keys.ready()])
    expect(
      openPiece(exact, exact.tasks as TaskHost, of, 'result', sealPiece(exact, of, 'result', value)),
    ).toBe(value)
    expect(() => sealPiece(below, of, 'result', value)).toThrow(
      expect.objectContaining({ code: 'LIMIT_STATE_BYTES' }),
    )
    expect(sealPiece({ ...below, tasks: undefined }, of, 'result', value)).toHaveLength(sealed.length)
  })

  it('E9 whose key is missing says nothing about its task, and the log says what to do', async () => {
    const other = hostWith(generateKey('two'))
    await Promise.all([host.keys.ready(), other.keys.ready()])
    warnings.length = 0
    const sealed = sealPiece(host, of, 'result', 1)
    expect(() => openPiece(other, other.tasks as TaskHost, of, 'result', sealed)).toThrow(MissingKey)
    expect(warnings).toEqual([
      expect.objectContaining({
        event: 'warning',
        task: 'task',
        message: expect.stringContaining('need the same RONDO_KEYS'),
      }),
    ])
    warnings.length = 0
    const wrong = () => openPiece(host, tasks, of, 'error', sealed)
    expect(wrong).toThrow(expect.objectContaining({ code: 'SERVER_INTERNAL' }))
    expect(wrong).not.toThrow(MissingKey)
    expect(warnings[0]).toMatchObject({ message: expect.stringMatching(/does not open: \w+$/) })
  })

  it.each([
    ['head', []],
    ['record', []],
    ['result', [of.owner.principal]],
    ['input q', [of.owner.principal]],
  ] as const)('E9 opens if another release of the service sealed it: %s', async (piece, owner) => {
    await host.keys.ready()
    const place = JSON.stringify(['task', 'task', piece, 'shop', ...owner])
    const { token } = sealEnvelope(host.keys.ring, place, '"value"')
    expect(openPiece(host, tasks, of, piece, token)).toBe('value')
  })

  it('names the flow and the tool of its task to the log, if the process can open it', async () => {
    await host.keys.ready()
    const plan = { flow: 'flow', round: 2, call: { target: 'pay' } }
    const head = (value: unknown) => ({ ...of, head: sealPiece(host, of, 'head', value) }) as TaskHead
    expect(placeOfTask(host, tasks, head(plan))).toEqual({ flow: 'flow', round: 2 })
    expect(placeOfTask(host, tasks, head({ ...plan, round: undefined }))).toBeUndefined()
    expect(placeOfTask(host, tasks, head({ ...plan, flow: undefined }))).toBeUndefined()
    expect(toolOfTask(host, tasks, head(plan))).toBe('pay')
    const other = hostWith(generateKey('two'))
    expect(toolOfTask(other, other.tasks as TaskHost, head(plan))).toBeUndefined()
    await other.keys.ready()
    warnings.length = 0
    expect(placeOfTask(other, other.tasks as TaskHost, head(plan))).toBeUndefined()
    expect(toolOfTask(other, other.tasks as TaskHost, head(plan))).toBeUndefined()
    expect(warnings).toEqual([])
  })
})

it('E9 a worker runs the call with which its task began', () => {
  const call = {
    method: 'tools/call',
    target: 'pay',
    args: {},
    protocolVersion: '2026-07-28',
    capabilities: {},
  } as const
  expect(toFlowCall({ call } as unknown as TaskPlan, 'task')).toEqual({ kind: 'flow', id: 'task', ...call })
})

it.each([
  [5_000, 9_000, 10_000, 15_000],
  [5_000, 20_000, 10_000, 20_000],
])(
  'a task that was created at %i and expires at %i lives at most %i ms, but not shorter: until %i',
  (createdAt, expiresAt, maxTtlMs, end) => {
    expect(endOfLife({ maxTtlMs } as TaskHost, { createdAt, expiresAt } as TaskHead)).toBe(end)
  },
)

import { describe, expect, it } from 'vitest'
import type { Entry } from '../../journal/journal.ts'
import { sealEnvelope } from '../../seal/envelope.ts'
import { generateKey, parseKeys } from '../../seal/key-ring.ts'
import type { StoredTask } from '../../store/operator.ts'
import { type Piece, placeOfPiece, type TaskPlan, type TaskRecord } from './journal.ts'
import { branchBefore, openTask, sealFailure } from './operate.ts'

const ring = parseKeys(generateKey('one'))
const of = { id: 'task', owner: { tenant: 'shop', principal: 'ada' } }
const seal = (piece: Piece, value: unknown): string =>
  sealEnvelope(ring, placeOfPiece('shop', of, piece), JSON.stringify(value)).token

const entry = (key: string, kind: Entry['kind'] = 'step'): TaskRecord =>
  ({ entry: { kind, key, at: 0, value: 1 } }) as TaskRecord
const begun = (key: string): TaskRecord => ({ begun: { key, effectKey: `key of ${key}` }, lineage: 'line' })
const shown: TaskRecord = {
  parked: { asked: { q: { key: 'q', digest: 'd' }, 'r~2': { key: 'r', digest: 'e' } }, reasks: {} },
}

const plan: TaskPlan = {
  flow: 'flow',
  seed: 'seed',
  startedAt: 1,
  round: 2,
  call: { method: 'tools/call', target: 'pay', args: {}, protocolVersion: '2026-07-28', capabilities: {} },
}

function stored(records: TaskRecord[], more: Partial<StoredTask> = {}, head: TaskPlan = plan): StoredTask {
  const journal = records.map((record) => seal('record', record))
  return {
    ...of,
    status: 'working',
    epoch: 4,
    head: seal('head', head),
    journal,
    slots: [],
    ...more,
  } as StoredTask
}

describe('a task that an operator opens', () => {
  it('M4 shows its plan, its results, and the names of the questions that its client was shown', () => {
    const opened = openTask(ring, stored([entry('a'), shown, entry('b')]))
    expect(opened).toEqual({
      kind: 'open',
      plan,
      entries: [entry('a'), entry('b')].map((record) => 'entry' in record && record.entry),
      asked: ['q', 'r'],
    })
  })

  it('M4 shows what it brought from the rounds before', () => {
    const noted = { reasks: {}, kept: { k: { question: 'd', answer: 1 } } }
    expect(openTask(ring, stored([], {}, { ...plan, noted }))).toMatchObject({ plan: { noted } })
  })

  it('M4 M5 shows its error if it failed, and its labels', () => {
    const error = seal('error', { code: 1 })
    const labels = seal('labels', [['order', '7']])
    const aside = { error: { code: 1 }, labels: [['order', '7']] }
    expect(openTask(ring, stored([], { status: 'failed', outcome: error, labels }))).toMatchObject(aside)
    const gone = { head: '', outcome: error, labels }
    expect(openTask(ring, stored([], { ...gone, status: 'failed' }))).toEqual({ kind: 'gone', ...aside })
    const result = { outcome: seal('result', 1), head: '' }
    expect(openTask(ring, stored([], { ...result, status: 'completed' }))).toEqual({ kind: 'gone' })
    // Its workers died too often.
    expect(openTask(ring, stored([], { head: '', status: 'failed' }))).toEqual({ kind: 'gone' })
  })

  it.each<[string, Partial<StoredTask>]>([
    ['head', { head: seal('record', plan) }],
    ['record', { journal: [seal('head', entry('a'))] }],
    ['labels', { labels: seal('error', []) }],
    ['error', { status: 'failed', outcome: seal('result', 1) }],
  ])('M4 I7 is refused if its %s was written by somebody else, and says which piece', (piece, more) => {
    expect(openTask(ring, stored([], more))).toEqual({ kind: 'refused', piece, reason: expect.any(String) })
  })

  it('M4 is refused to an operator without its key', () => {
    const other = parseKeys(generateKey('two'))
    expect(openTask(other, stored([]))).toEqual({ kind: 'refused', piece: 'head', reason: 'key' })
  })

  it('M4 that is not what it should be is a fault, and not a refusal', () => {
    expect(() => openTask(ring, stored([null as unknown as TaskRecord]))).toThrow(TypeError)
  })

  it('M4 gets the error with which an operator ends it', () => {
    const outcome = sealFailure(ring, of as StoredTask, 'Out of stock')
    expect(openTask(ring, stored([], { status: 'failed', outcome }))).toMatchObject({
      error: { code: -32603, message: 'Out of stock' },
    })
  })
})

describe('a task that an operator continues from before a step', () => {
  const branch = (task: StoredTask, from: string) => {
    const made = branchBefore(ring, task, from, 'again')
    return made && { ...made, opened: openTask(ring, { ...task, ...made }) }
  }

  it('M4 R7 has what it recorded before, under new keys, on the row that was read', () => {
    const task = stored([entry('a'), shown, entry('b', 'effect'), entry('c')])
    const made = branch(task, 'b')
    expect(made).toMatchObject({ epoch: 4, journal: task.journal.slice(0, 2) })
    expect(made?.opened).toEqual({
      kind: 'open',
      plan: { ...plan, rerun: 'again' },
      entries: [{ kind: 'step', key: 'a', at: 0, value: 1 }],
      asked: ['q', 'r'],
    })
    expect(branch(task, 'a')?.journal).toEqual([])
  })

  it.each(['sleep', 'form', 'hook', 'event', 'undo'] as const)(
    'M4 cannot be continued from before a %s',
    (kind) => {
      expect(branch(stored([entry('a', kind)]), 'a')).toBeUndefined()
    },
  )

  it('M4 cannot be continued from before what it has not recorded', () => {
    const attempt: TaskRecord = { attempt: { key: 'a', count: 1, due: 5 } }
    expect(branch(stored([attempt, shown, begun('a'), entry('b')]), 'a')).toBeUndefined()
  })

  it('M1 M4 keeps the intents of the effects that it keeps, and of no other', () => {
    const records = [
      begun('one'),
      entry('one', 'effect'),
      begun('two'),
      begun('three'),
      entry('three', 'effect'),
    ]
    const task = stored([...records, entry('two', 'effect')])
    const [first, second] = task.journal
    expect(branch(task, 'three')?.journal).toEqual([first, second])
    const last = branch(task, 'two')?.journal
    expect(last).toEqual([first, second, task.journal[3], task.journal[4]])
    expect(branch(task, 'one')?.journal).toEqual([])
  })

  it('M1 M4 has a line of history of its own if it keeps no effect that can be undone', () => {
    const noted = {
      reasks: { q: { changes: 1 } },
      begun: [
        { key: 'one', effectKey: '1' },
        { key: 'two', effectKey: '2' },
      ],
      lineage: 'line',
    }
    const task = stored([entry('one', 'effect'), entry('two', 'effect')], {}, { ...plan, noted })
    const notedBefore = (from: string) => {
      const opened = branch(task, from)?.opened
      return opened?.kind === 'open' && opened.plan.noted
    }
    expect(notedBefore('two')).toEqual({ ...noted, begun: [{ key: 'one', effectKey: '1' }] })
    expect(notedBefore('one')).toEqual({ reasks: noted.reasks })
    const none = branch(stored([entry('one')], {}, { ...plan, noted: { reasks: {} } }), 'one')?.opened
    expect(none).toMatchObject({ plan: { noted: { reasks: {} } } })
  })
})

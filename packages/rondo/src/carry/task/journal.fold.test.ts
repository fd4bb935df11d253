import { describe, expect, it } from 'vitest'
import { foldRecords, freshAnswers, type TaskRecord } from './journal.ts'

const kept = (digest: string) => ({ question: digest, answer: { action: 'accept' } })
const asked = {
  q: { key: 'q', digest: 'first' },
  'q~2': { key: 'q', digest: 'second' },
  r: { key: 'r', digest: 'third' },
}

describe('the records of a task', () => {
  it('R3 a question that is shown again has spent the answer that was kept for it', () => {
    const { parked } = foldRecords([
      { parked: { asked: {}, reasks: {}, kept: { q: kept('first'), r: kept('third') } } },
      { opened: { asked: { 'q~2': asked['q~2'] }, reasks: {} } },
    ])
    expect(parked.kept).toEqual({ r: kept('third') })
  })

  it('R3 a question that is shown again has no recorded answer until it is answered again', () => {
    const entry = (key: string, at: number) => ({
      entry: { kind: 'form', key, at, question: 'digest', answer: null } as const,
    })
    const shown = { opened: { asked: { 'q~2': asked['q~2'] }, reasks: {} } }
    const entriesOf = (...records: TaskRecord[]) =>
      foldRecords(records).entries.map(({ key, at }) => [key, at])
    expect(entriesOf(entry('q', 1), entry('r', 2), shown)).toEqual([['r', 2]])
    expect(entriesOf(entry('q', 1), entry('r', 2), shown, entry('q', 3))).toEqual([
      ['r', 2],
      ['q', 3],
    ])
  })

  it('R3 an answer counts only for the last time that its question was shown', () => {
    const parked = { asked, reasks: {} }
    const spent = new Map([
      ['q', 'spent'],
      ['r', 'fresh'],
      ['s', 'unasked'],
    ])
    expect(freshAnswers(parked, spent)).toEqual({ answers: { r: 'fresh' }, asked: { r: 'third' } })
    const both = new Map([...spent, ['q~2', 'fresh']])
    expect(freshAnswers(parked, both)).toEqual({
      answers: { q: 'fresh', r: 'fresh' },
      asked: { q: 'second', r: 'third' },
    })
  })
})

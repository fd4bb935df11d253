import { describe, expect, it } from 'vitest'
import { createRecord, type Entry, type Journal } from './journal.ts'

const empty: Journal = { startedAt: 1, seed: 'seed', entries: [], reasks: {}, moves: 0 }
const step = (key: string): Entry => ({ kind: 'step', key, at: 1, value: key })
const effect = (key: string): Entry => ({ kind: 'effect', key, at: 1, value: key })
const answer = { question: 'q', answer: 1 }

describe('the entries of a record', () => {
  it('journal 1 finds an entry by its key, with its place', () => {
    const record = createRecord({ ...empty, entries: [step('a'), step('b')] })
    expect(record.find('b')).toEqual({ entry: step('b'), index: 1 })
    expect(record.find('c')).toBeUndefined()
    expect(record.append(step('c'))).toBe(2)
    expect(record.find('c')).toEqual({ entry: step('c'), index: 2 })
    expect(record.size()).toBe(3)
  })

  it('journal 3 keeps the order, and returns a journal that later entries do not change', () => {
    const record = createRecord({ ...empty, entries: [step('b')] })
    record.append(step('a'))
    const journal = record.toJournal()
    record.append(step('c'))
    expect(journal.entries).toEqual([step('b'), step('a')])
    expect(record.toJournal().entries).toEqual([step('b'), step('a'), step('c')])
  })

  it('journal 2 removes an invalidated entry, and records another one under its key at the end', () => {
    const record = createRecord({ ...empty, entries: [step('a'), step('b')] })
    record.invalidate('a')
    expect(record.find('a')).toBeUndefined()
    expect(record.size()).toBe(1)
    expect(record.toJournal().entries).toEqual([step('b')])
    record.append(step('a'))
    expect(record.toJournal().entries).toEqual([step('b'), step('a')])
  })

  it('ignores the invalidation of a key without an entry', () => {
    const record = createRecord({ ...empty, entries: [step('a')] })
    record.invalidate('b')
    expect(record.toJournal()).toEqual({ ...empty, entries: [step('a')] })
  })

  it('R5 names the first effect that was not reached, and no step', () => {
    const record = createRecord({ ...empty, entries: [step('s'), effect('a'), effect('b')] })
    expect(record.unreachedEffect()).toBe('a')
    record.reach('a')
    expect(record.unreachedEffect()).toBe('b')
    record.reach('b')
    record.append(effect('c'))
    expect(record.unreachedEffect()).toBeUndefined()
  })
})

describe('the notes of a record', () => {
  it('counts misfits and changes of a question apart, in the journal that it returns only', () => {
    const journal = { ...empty, reasks: { a: { changes: 1 }, b: { misfits: 2, problem: 'old' } } }
    const record = createRecord(journal)
    expect(record.reask('c')).toEqual({})
    expect(record.noteMisfit('a', 'too long')).toBe(1)
    expect(record.noteMisfit('b', 'too short')).toBe(3)
    expect(record.noteChange('a')).toBe(2)
    expect(record.noteChange('c')).toBe(1)
    expect(record.noteMisfit('d', 'wrong')).toBe(1)
    expect(record.reask('a')).toEqual({ changes: 2, misfits: 1, problem: 'too long' })
    expect(record.toJournal().reasks).toEqual({
      a: { changes: 2, misfits: 1, problem: 'too long' },
      b: { misfits: 3, problem: 'too short' },
      c: { changes: 1 },
      d: { misfits: 1, problem: 'wrong' },
    })
    expect(journal.reasks).toEqual({ a: { changes: 1 }, b: { misfits: 2, problem: 'old' } })
  })

  it('forgets deadline, attempts and kept answer of a key that gets an entry', () => {
    const record = createRecord({
      ...empty,
      deadlines: { a: 5, b: 6 },
      attempts: { a: 1, b: 2 },
      kept: { a: answer, b: answer },
    })
    record.append(step('a'))
    expect(record.deadline('a')).toBeUndefined()
    expect(record.attempts('a')).toBe(0)
    expect(record.takeEarly('a')).toBeUndefined()
    expect(record.toJournal()).toMatchObject({ deadlines: { b: 6 }, attempts: { b: 2 }, kept: { b: answer } })
    record.append(step('b'))
    expect(JSON.parse(JSON.stringify(record.toJournal()))).toEqual({
      ...empty,
      entries: [step('a'), step('b')],
    })
  })

  it('adds no empty member to a journal', () => {
    expect(Object.keys(createRecord(empty).toJournal())).toEqual(Object.keys(empty))
  })

  it('fixes when an operation ends, and when its next attempt begins', () => {
    const record = createRecord(empty)
    expect(record.attempts('a')).toBe(0)
    record.fixDeadline('a', 5)
    record.noteAttempt('b', 1, 7)
    expect([record.deadline('a'), record.deadline('b')]).toEqual([5, 7])
    expect([record.attempts('a'), record.attempts('b')]).toEqual([0, 1])
    expect(record.toJournal()).toEqual({ ...empty, deadlines: { a: 5, b: 7 }, attempts: { b: 1 } })
  })

  it('lists effects in the order in which they began', () => {
    const [a, b] = [
      { key: 'a', effectKey: '1' },
      { key: 'b', effectKey: '2' },
    ]
    const record = createRecord({ ...empty, begun: [a] })
    record.noteBegun(b)
    expect(record.begun()).toEqual([a, b])
    expect(record.toJournal().begun).toEqual([a, b])
  })

  it('names the lineage once', () => {
    const record = createRecord(empty)
    record.nameLineage('first')
    record.nameLineage('second')
    expect(record.toJournal().lineage).toBe('first')
  })
})

describe('answers that are kept', () => {
  it('R3 hands out a kept answer once', () => {
    const record = createRecord(empty)
    record.keep('a', answer)
    expect(record.size()).toBe(1)
    expect(record.toJournal().kept).toEqual({ a: answer })
    expect([...record.early()]).toEqual([['a', answer]])
    expect(record.takeEarly('a')).toEqual(answer)
    expect(record.takeEarly('a')).toBeUndefined()
    expect(record.toJournal()).toEqual(empty)
  })

  it('R2 keeps no answer for a key that has an entry', () => {
    const record = createRecord({ ...empty, entries: [step('a')], kept: { a: answer, b: answer } })
    record.keep('a', answer)
    expect(record.size()).toBe(2)
    expect(record.takeEarly('a')).toBeUndefined()
    expect(record.toJournal().kept).toEqual({ b: answer })
  })
})

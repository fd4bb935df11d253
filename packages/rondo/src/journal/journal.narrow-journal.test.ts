import { describe, expect, it } from 'vitest'
import { sampleJournal } from '../../../../test/support/seal-fixtures.ts'
import { narrowJournal } from './journal.ts'

const ask = { kind: 'form', key: 'k', at: 1, question: 'q', answer: null }
const work = { kind: 'step', key: 'k', at: 1 }
const failure = { name: 'Error', message: 'm' }

describe('narrowJournal', () => {
  it('accepts a journal unchanged, including members of a later version', () => {
    expect(narrowJournal(sampleJournal)).toEqual(sampleJournal)
    const kept = { ...sampleJournal, kept: { a: { question: 'q', answer: { action: 'decline' } } } }
    expect(narrowJournal(kept)).toEqual(kept)
    const begun = { ...sampleJournal, begun: [{ key: 'k', effectKey: 'e' }], lineage: 'l' }
    expect(narrowJournal(begun)).toEqual(begun)
    const waiting = { ...sampleJournal, deadlines: { a: 5 }, attempts: { a: 1 } }
    expect(narrowJournal(waiting)).toEqual(waiting)
    const asked = { ...sampleJournal, reasks: { a: { misfits: 1, changes: 1, problem: 'p' }, b: {} } }
    expect(narrowJournal(asked)).toEqual(asked)
    const later = { ...sampleJournal, manual: 'm', later: { a: 1 } }
    expect(narrowJournal(later)).toEqual(later)
  })

  it.each([
    ['an answered question', ask],
    ['a question that expired', { ...ask, expired: true }],
    ['a step without a result', work],
    ['a sleep', { kind: 'sleep', key: 'k', at: 1 }],
    ['an effect that returned null', { ...work, kind: 'effect', value: null }],
    ['a failed step', { ...work, failure }],
    ['an event that did not come in time', { ...work, kind: 'event', expired: true }],
    ['a failure with a number as code', { ...work, failure: { ...failure, code: 5 } }],
    ['a failure meant for the client', { ...work, failure: { ...failure, code: 'E', open: true } }],
  ])('accepts %s', (_name, entry) => {
    expect(narrowJournal({ ...sampleJournal, entries: [entry] })?.entries).toEqual([entry])
  })

  it.each(['form', 'confirm', 'url', 'sampling', 'roots'])('accepts an answered %s', (kind) => {
    const entry = { ...ask, kind }
    expect(narrowJournal({ ...sampleJournal, entries: [entry] })?.entries).toEqual([entry])
  })

  it.each(['step', 'effect', 'hook', 'event', 'undo'])('accepts the result of a %s', (kind) => {
    const entry = { ...work, kind, value: 1 }
    expect(narrowJournal({ ...sampleJournal, entries: [entry] })?.entries).toEqual([entry])
  })

  it.each([
    ['a string', 'x'],
    ['an unknown kind', { ...ask, kind: 'push' }],
    ['the name of a prototype member as kind', { ...ask, kind: 'constructor' }],
    ['no key', { ...ask, key: undefined }],
    ['no time', { ...ask, at: undefined }],
    ['a question without its digest', { ...ask, question: undefined }],
    ['a question without an answer', { kind: 'url', key: 'k', at: 1, question: 'q' }],
    ['a step that expired', { ...work, expired: true }],
    ['an event whose expired is false', { ...work, kind: 'event', expired: false }],
    ['a question whose expired is false', { ...ask, expired: false }],
    ['a value and a failure', { ...work, value: 1, failure }],
    ['a failure that is text', { ...work, failure: 'Error' }],
    ['a failure without a name', { ...work, failure: { message: 'm' } }],
    ['a failure without a message', { ...work, failure: { name: 'Error' } }],
    ['a failure whose open is false', { ...work, failure: { ...failure, open: false } }],
    ['a failure whose code is an array', { ...work, failure: { ...failure, code: [] } }],
  ])('rejects an entry that is or has %s', (_name, entry) => {
    expect(narrowJournal({ ...sampleJournal, entries: [entry] })).toBeUndefined()
  })

  it.each([
    ['a journal that is null', null],
    ['a journal that is an array', []],
    ['one entry of two that is none', { ...sampleJournal, entries: [work, 'x'] }],
    [
      'one begun effect of two that is none',
      { ...sampleJournal, begun: [{ key: 'k', effectKey: 'e' }, 'x'] },
    ],
    ['entries that are an object', { ...sampleJournal, entries: {} }],
    ['a start that is a string', { ...sampleJournal, startedAt: '1' }],
    ['deadlines that are text', { ...sampleJournal, deadlines: { a: 'later' } }],
    ['attempts that are text', { ...sampleJournal, attempts: { a: 'two' } }],
    ['a lineage that is a number', { ...sampleJournal, lineage: 1 }],
    ['begun effects that are an object', { ...sampleJournal, begun: {} }],
    ['a begun effect that is text', { ...sampleJournal, begun: ['a'] }],
    ['a begun effect without a key', { ...sampleJournal, begun: [{ effectKey: 'e' }] }],
    ['a begun effect without its idempotency key', { ...sampleJournal, begun: [{ key: 'k' }] }],
    ['kept answers that are an array', { ...sampleJournal, kept: [] }],
    ['a kept answer that is text', { ...sampleJournal, kept: { a: 'x' } }],
    ['a kept answer without its question', { ...sampleJournal, kept: { a: { answer: 1 } } }],
    ['a kept answer that is absent', { ...sampleJournal, kept: { a: { question: 'q' } } }],
    ['no seed', { ...sampleJournal, seed: undefined }],
    ['negative moves', { ...sampleJournal, moves: -1 }],
    ['a manual state that is an object', { ...sampleJournal, manual: {} }],
    ['no reasks', { ...sampleJournal, reasks: undefined }],
    ['a reask that is a number', { ...sampleJournal, reasks: { a: 1 } }],
    ['misfits that are a fraction', { ...sampleJournal, reasks: { a: { misfits: 0.5 } } }],
    ['changes that are a string', { ...sampleJournal, reasks: { a: { changes: '1' } } }],
    ['a problem that is a number', { ...sampleJournal, reasks: { a: { problem: 1 } } }],
  ])('rejects %s', (_name, journal) => {
    expect(narrowJournal(journal)).toBeUndefined()
  })
})

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
    const later = { ...sampleJournal, manual: 'm', later: { a: 1 } }
    expect(narrowJournal(later)).toEqual(later)
  })

  it.each([
    ['an answered question', ask],
    ['a step without a result', work],
    ['an effect that returned null', { ...work, kind: 'effect', value: null }],
    ['a failed step', { ...work, failure }],
    ['an event that did not come in time', { ...work, kind: 'event', expired: true }],
    ['a failure meant for the client', { ...work, failure: { ...failure, code: 'E', open: true } }],
  ])('accepts %s', (_name, entry) => {
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
    ['a failure without a message', { ...work, failure: { name: 'Error' } }],
    ['a failure whose open is false', { ...work, failure: { ...failure, open: false } }],
    ['a failure whose code is an array', { ...work, failure: { ...failure, code: [] } }],
  ])('rejects an entry that is or has %s', (_name, entry) => {
    expect(narrowJournal({ ...sampleJournal, entries: [entry] })).toBeUndefined()
  })

  it.each([
    ['a journal that is an array', []],
    ['entries that are an object', { ...sampleJournal, entries: {} }],
    ['a start that is a string', { ...sampleJournal, startedAt: '1' }],
    ['deadlines that are text', { ...sampleJournal, deadlines: { a: 'later' } }],
    ['kept answers that are an array', { ...sampleJournal, kept: [] }],
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

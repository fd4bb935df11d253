import type { InputRequest, InputRequests, PendingCall } from 'rondo/client'
import { describe, expect, it } from 'vitest'
import { addGiven, responseFor } from './answers.ts'
import type { Options } from './command-line.ts'

const form = (properties: object, required: string[] = []): InputRequest => ({
  method: 'elicitation/create',
  params: { mode: 'form', message: 'm', requestedSchema: { type: 'object', properties, required } },
})
const name = form({ name: { type: 'string' } }, ['name'])
const two = form({ count: { type: 'integer' }, sure: { type: 'boolean' } })
const tags = form({ tags: { type: 'array', items: { enum: ['a', 'b', 'c'] } } })
const page: InputRequest = {
  method: 'elicitation/create',
  params: { mode: 'url', message: 'm', url: 'https://example.org/' },
}
const model: InputRequest = { method: 'sampling/createMessage', params: { messages: [], maxTokens: 1 } }

const pendingWith = (questions: InputRequests): PendingCall => ({
  version: 1,
  id: 'x',
  server: { target: 't' },
  protocolVersion: '2026-07-28',
  request: { method: 'resources/read', uri: 'a:b' },
  round: 1,
  questions,
  answers: {},
  startedAt: 0,
  askedAt: 0,
  workMs: 0,
  idleRounds: 0,
})
const optionsWith = (flags: readonly string[]): Options => ({
  flag: (option) => flags.includes(option),
  text: () => undefined,
  list: () => [],
  number: () => undefined,
})
const read = (words: string[], questions: InputRequests, flags: readonly string[] = []) =>
  addGiven(optionsWith(flags), words, pendingWith(questions)).answers

describe('answers on a command line', () => {
  const accept = (content: object) => ({ action: 'accept', content })

  it.each([
    [['who.name=Ada'], { who: name }, { who: accept({ name: 'Ada' }) }],
    [['name=Ada'], { who: name }, { who: accept({ name: 'Ada' }) }],
    [['who=Ada'], { who: name }, { who: accept({ name: 'Ada' }) }],
    [['name=Ada'], { name }, { name: accept({ name: 'Ada' }) }],
    [['who=decline'], { who: name }, { who: { action: 'decline' } }],
    [['who.name=decline'], { who: name }, { who: accept({ name: 'decline' }) }],
    [
      ['a.count=3', 'a.sure=yes', 'b.name=x'],
      { a: two, b: name },
      { a: accept({ count: 3, sure: true }), b: accept({ name: 'x' }) },
    ],
    [['t.tags=a', 't.tags=c'], { t: tags }, { t: accept({ tags: ['a', 'c'] }) }],
    [['a.b.name=x'], { a: two, 'a.b': name }, { 'a.b': accept({ name: 'x' }) }],
    [['page=accept'], { page }, { page: { action: 'accept' } }],
    [
      ['m:={"role":"assistant","content":{},"model":"x"}'],
      { m: model },
      { m: { role: 'assistant', content: {}, model: 'x' } },
    ],
  ])('%j answers %j with %j', (words, questions, answers) => {
    expect(read(words, questions as InputRequests)).toEqual(answers)
  })

  it.each([
    [['other.name=x'], { a: name, b: name }, /no question/],
    [['who=x'], {}, /no question "who": nothing is open/],
    [['who.nam=Ada'], { who: name }, /no field nam/],
    [['a.count=x'], { a: two }, /whole number/],
    [['a=5'], { a: two }, /expected accept/],
    [['who=accept'], { who: name }, /required/],
    [['page=yes'], { page }, /result object/],
    [['page=5', 'x'], { page }, /not name=value|result object/],
    [['who:={'], { who: name }, /not valid JSON/],
    [['m=hello'], { m: model }, /result object/],
  ])('%j is refused', (words, questions, sentence) => {
    expect(() => read(words, questions as InputRequests)).toThrow(sentence)
  })

  it.each(['decline', 'cancel'])('--%s applies to the named questions, or to all', (action) => {
    const questions = { a: name, b: two }
    expect(read([], questions, [action])).toEqual({ a: { action }, b: { action } })
    expect(read(['b'], questions, [action])).toEqual({ b: { action } })
    expect(() => read(['c'], questions, [action])).toThrow(/did not ask/)
  })
})

describe('an answer from a file', () => {
  const action = form({ action: { type: 'string' } })

  it('can fill in a form that has a field named action', () => {
    expect(responseFor('k', action, { action: 'stay' })).toEqual({
      action: 'accept',
      content: { action: 'stay' },
    })
    expect(responseFor('k', action, { action: 'accept', content: { action: 'go' } })).toEqual({
      action: 'accept',
      content: { action: 'go' },
    })
  })

  it('must have content if it accepts a form', () => {
    expect(() => responseFor('k', name, { action: 'accept' })).toThrow(/no field action/)
    expect(responseFor('k', form({}), 'accept')).toEqual({ action: 'accept', content: {} })
  })
})

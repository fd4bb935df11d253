import { describe, expect, it } from 'vitest'
import { kindOf, type QuestionKind } from '../protocol/common/request.ts'
import type { InputRequest } from '../protocol/wire.ts'
import { answerProblem, capabilitiesFor } from './question.ts'

const questions: Record<QuestionKind, InputRequest> = {
  form: { method: 'elicitation/create', params: { mode: 'form', message: '', requestedSchema: {} } },
  url: { method: 'elicitation/create', params: { mode: 'url', message: '', url: 'https://a.b' } },
  sampling: { method: 'sampling/createMessage', params: { messages: [], maxTokens: 1 } },
  roots: { method: 'roots/list' },
}

describe('kinds of questions', () => {
  it.each(Object.entries(questions))('recognises %s', (kind, question) => {
    expect(kindOf(question)).toBe(kind)
  })

  it.each([
    [['form'], { elicitation: { form: {} } }],
    [['url'], { elicitation: { url: {} } }],
    [['form', 'url', 'roots'], { elicitation: { form: {}, url: {} }, roots: {} }],
    [['sampling'], { sampling: {} }],
    [[], {}],
  ] as [QuestionKind[], object][])('C5 declares %j and nothing else', (kinds, capabilities) => {
    expect(capabilitiesFor(new Set(kinds))).toEqual(capabilities)
  })
})

describe('the shape of answers', () => {
  const text = { type: 'text', text: 'x' }
  it.each([
    ['form', { action: 'accept', content: { a: 'x', b: 1, c: true, d: ['x'], e: '' } }],
    ['form', { action: 'accept', content: {} }],
    ['form', { action: 'decline' }],
    ['form', { action: 'cancel' }],
    ['url', { action: 'accept' }],
    ['sampling', { role: 'assistant', content: text, model: 'm' }],
    ['sampling', { role: 'assistant', content: [text], model: 'm', stopReason: 'endTurn' }],
    ['roots', { roots: [{ uri: 'file:///a', name: 'a' }] }],
    ['roots', { roots: [] }],
  ] as [QuestionKind, unknown][])('A2 accepts for a %s: %j', (kind, answer) => {
    expect(answerProblem(questions[kind], answer)).toBeUndefined()
  })

  it.each([
    ['form', { action: 'accept' }],
    ['form', { action: 'yes', content: {} }],
    ['form', { content: {} }],
    ['form', { action: 'accept', content: { a: null } }],
    ['form', { action: 'accept', content: { a: { b: 1 } } }],
    ['form', { action: 'accept', content: { a: [1] } }],
    ['form', { action: 'accept', content: { a: Number.NaN } }],
    ['form', { action: 'accept', content: [] }],
    ['form', { action: 'decline', content: { a: 'x' } }],
    ['form', 'accept'],
    ['form', null],
    ['url', { action: 'accept', content: {} }],
    ['sampling', { role: 'system', content: text, model: 'm' }],
    ['sampling', { role: 'assistant', content: 'x', model: 'm' }],
    ['sampling', { role: 'assistant', content: text }],
    ['roots', { roots: 'x' }],
    ['roots', { roots: [{ name: 'a' }] }],
    ['roots', { action: 'accept' }],
  ] as [QuestionKind, unknown][])('A2 refuses for a %s: %j', (kind, answer) => {
    expect(answerProblem(questions[kind], answer)).toEqual(expect.any(String))
  })
})

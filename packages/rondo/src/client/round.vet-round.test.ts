import { describe, expect, it } from 'vitest'
import type { QuestionKind } from '../protocol/common/request.ts'
import type { ElicitFormParams, InputRequest, InputRequests } from '../protocol/wire.ts'
import { LIMITS, withLimits } from './limits.ts'
import { QUESTION_KINDS } from './question.ts'
import { vetRound } from './round.ts'

const all = new Set<QuestionKind>(QUESTION_KINDS)
const form = (message: string, requestedSchema: object = {}): InputRequest => ({
  method: 'elicitation/create',
  params: { mode: 'form', message, requestedSchema: { ...requestedSchema } },
})
const url = (address: string): InputRequest => ({
  method: 'elicitation/create',
  params: { mode: 'url', message: 'Open', url: address },
})
const repeat = (count: number): InputRequests =>
  Object.fromEntries(Array.from({ length: count }, (_, i) => [`q${i}`, form('?')]))

describe('checking a round', () => {
  it('M6 names an app only if that was declared, and only one whose URI is that of an app', () => {
    const drawn = (resourceUri: unknown, _meta = {}): InputRequest => {
      const { params } = form('?') as { readonly params: ElicitFormParams }
      return { method: 'elicitation/create', params: { ...params, _meta: { ..._meta, ui: { resourceUri } } } }
    }
    const vetted = (question: InputRequest, apps: boolean) =>
      vetRound({ questions: { q: question } }, LIMITS, all, apps).q
    expect(vetted(drawn('ui://tables/seats'), true)).toEqual(drawn('ui://tables/seats'))
    expect(vetted(drawn('ui://tables/seats'), false)).toEqual(form('?'))
    for (const uri of ['https://tables/seats', 'ui://', 'javascript:alert(1)', 7, undefined])
      expect(vetted(drawn(uri), true)).toEqual(form('?'))
    const { params } = vetted(drawn('https://tables', { kept: 1 }), true) as { params: ElicitFormParams }
    expect(params._meta).toEqual({ kept: 1 })
    const link = {
      method: 'elicitation/create',
      params: {
        mode: 'url',
        message: 'Open',
        url: 'https://example.com/',
        _meta: { ui: { resourceUri: 'ui://tables/seats' } },
      },
    } as InputRequest
    for (const apps of [true, false]) expect(vetted(link, apps)?.params).not.toHaveProperty('_meta')
  })

  it('T22 cleans what people read, and does not change what is sent back', () => {
    const asked = {
      'k\u0007ey': form('Red \u001b[31malert', {
        type: 'object',
        description: 'a\u0000b',
        properties: {
          title: { type: 'string', title: 'T\u202eitle', description: 'D\u0007', default: 'd\u0007' },
          pick: { oneOf: [{ const: 'c\u0007', title: 'C\u0007' }] },
          many: { type: 'array', items: { anyOf: [{ const: 'c\u0007', title: 'C\u0007' }] } },
          old: { enum: ['v\u0007'], enumNames: ['V\u0007'] },
        },
      }),
    }
    const before = JSON.stringify(asked)
    const { questions } = { questions: vetRound({ questions: asked }, LIMITS, all) }
    expect(questions['k\u0007ey']).toEqual(
      form('Red [31malert', {
        type: 'object',
        description: 'ab',
        properties: {
          title: { type: 'string', title: 'Title', description: 'D', default: 'd\u0007' },
          pick: { oneOf: [{ const: 'c\u0007', title: 'C' }] },
          many: { type: 'array', items: { anyOf: [{ const: 'c\u0007', title: 'C' }] } },
          old: { enum: ['v\u0007'], enumNames: ['V'] },
        },
      }),
    )
    expect(JSON.stringify(asked)).toBe(before)
  })

  it('C7 refuses a kind that has no handler', () => {
    const asked = { a: form('?'), b: { method: 'roots/list' } as InputRequest }
    expect(() => vetRound({ questions: asked }, LIMITS, new Set(['form']))).toThrowError(
      /INPUT_NO_HANDLER.*"b" \(roots\).*answers\.roots/,
    )
    expect(() => vetRound({ questions: { a: url('https://a.b') } }, LIMITS, new Set(['form']))).toThrowError(
      /INPUT_NO_HANDLER/,
    )
  })

  it('C14 T22 refuses an unsafe URL, and returns others as they will be opened', () => {
    expect(() => vetRound({ questions: { a: url('http://example.com') } }, LIMITS, all)).toThrowError(
      /PEER_LINK/,
    )
    const { a } = vetRound({ questions: { a: url('https://EXAMPLE.com') } }, LIMITS, all)
    expect(a?.params).toMatchObject({ url: 'https://example.com/' })
  })

  it.each([
    ['a state that is too long', { questions: {}, state: 'x'.repeat(101) }, 'LIMIT_CLIENT_STATE'],
    ['a state that is too long in bytes', { questions: {}, state: 'ü'.repeat(51) }, 'LIMIT_CLIENT_STATE'],
    ['too many questions', { questions: repeat(4) }, 'LIMIT_CLIENT_QUESTIONS'],
    ['a giant schema', { questions: { a: form('?', { x: 'y'.repeat(2_000) }) } }, 'LIMIT_CLIENT_QUESTIONS'],
  ])('T22 refuses %s', (_what, asked, code) => {
    const limits = withLimits({ maxStateBytes: 100, maxQuestions: 3, maxQuestionSize: 1_000 })
    expect(() => vetRound(asked, limits, all)).toThrowError(code)
  })

  it('accepts what is just within the limits', () => {
    const limits = withLimits({ maxStateBytes: 100, maxQuestions: 3, maxQuestionSize: 1_000 })
    expect(vetRound({ questions: repeat(3), state: 'ü'.repeat(50) }, limits, all)).toEqual(repeat(3))
  })
})

describe('the limits of a call', () => {
  it('replace those of the client where they are set', () => {
    expect(withLimits({ maxRounds: 3, timeoutMs: undefined })).toEqual({ ...LIMITS, maxRounds: 3 })
  })
})

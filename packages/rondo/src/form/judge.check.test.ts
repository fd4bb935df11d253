import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import type { Field } from './field.ts'
import { checkField, checkForm, judgeContent, normalizeValue, startValues } from './judge.ts'

const base = { name: 'f', title: 'Field', required: false, limits: {} } as const
const options = [
  { value: 'r', title: 'Red' },
  { value: 'g', title: 'Green' },
  { value: 'dark, red', title: 'Dark red' },
]
const text: Field = { ...base, type: 'text' }
const email: Field = { ...base, type: 'text', format: 'email' }
const moment: Field = { ...base, type: 'text', format: 'date-time' }
const short: Field = { ...base, type: 'text', limits: { min: 2, max: 3 } }
const number: Field = { ...base, type: 'number', limits: { min: -1, max: 10.5 } }
const integer: Field = { ...base, type: 'integer', limits: { min: 18 } }
const anyInteger: Field = { ...base, type: 'integer' }
const boolean: Field = { ...base, type: 'boolean' }
const choice: Field = { ...base, type: 'choice', options }
const choices: Field = { ...base, type: 'choices', options, limits: { min: 1, max: 2 } }
const anyChoices: Field = { ...base, type: 'choices', options }
const required = (field: Field): Field => ({ ...field, required: true })

describe('the input of a person is read:', () => {
  it.each<[string, Field, unknown, unknown]>([
    ['a text as it is', text, ' a b ', ' a b '],
    ['nothing', text, '', undefined],
    ['nothing in a required text', required(text), '', ''],
    ['an address with white space around it', email, ' a@b.c ', 'a@b.c'],
    ['a date and time in full', moment, '2026-07-28T09:30:00Z', '2026-07-28T09:30:00Z'],
    ['a date and time as people write it', moment, '2026-07-28 09:30+02:00', '2026-07-28T09:30:00+02:00'],
    ['characters of more than one UTF-16 unit', short, '👍👍👍', '👍👍👍'],
    ['a number', number, ' 3.5 ', 3.5],
    ['a number of another spelling', number, '+1e1', 10],
    ['a fraction', number, '.5', 0.5],
    ['a negative number', number, '-1', -1],
    ['a number already', number, 4, 4],
    ['an integer', integer, '18', 18],
    ['an integer with a point', integer, '18.0', 18],
    ['a blank number', number, '  ', undefined],
    ['yes', boolean, 'Yes', true],
    ['off', boolean, 'off', false],
    ['a boolean already', boolean, false, false],
    ['a choice by value', choice, 'r', 'r'],
    ['a choice by title', choice, 'Green', 'g'],
    ['a choice in another case', choice, ' RED ', 'r'],
    ['choices separated by commas', choices, 'r, Green', ['r', 'g']],
    ['a choice with a comma in it', choices, 'dark, red', ['dark, red']],
    ['choices as a list', choices, ['Red', 'g'], ['r', 'g']],
    ['a choice twice', choices, 'r,r', ['r']],
    ['no choices', anyChoices, '', undefined],
    ['no choices where they are required and none will do', required(anyChoices), '', []],
    ['an empty list', anyChoices, [], []],
    ['nothing given', number, undefined, undefined],
    ['null', number, null, undefined],
  ])('%s', (_name, field, input, value) => {
    expect(checkField(field, input)).toEqual({ ok: true, value })
  })

  it.each<[Field, unknown, string]>([
    [short, 'a', 'Field must have at least 2 characters'],
    [short, 'abcd', 'Field must have at most 3 characters'],
    [required(short), '', 'Field must have at least 2 characters'],
    [email, 'ada', 'Field must be an e-mail address, such as name@example.org'],
    [required(email), '', 'Field is required'],
    [moment, '2026-07-28 09:30', 'Field must be a date and time with its zone, such as 2026-07-28T09:30:00Z'],
    [text, 5, 'Field must be a text'],
    [text, ['a'], 'Field must be a text'],
    [number, 'three', 'Field must be a number'],
    [number, '3,5', 'Field must be a number'],
    [number, '0x10', 'Field must be a number'],
    [number, 'Infinity', 'Field must be a number'],
    [number, '1e999', 'Field must be a number'],
    [number, Number.NaN, 'Field must be a number'],
    [number, '-2', 'Field must be at least -1'],
    [number, '11', 'Field must be at most 10.5'],
    [integer, '18.5', 'Field must be a whole number'],
    [integer, '17', 'Field must be at least 18'],
    [anyInteger, '9007199254740993', 'Field must be a whole number'],
    [required(integer), '', 'Field is required'],
    [boolean, 'maybe', 'Field must be answered with yes or no'],
    [required(boolean), '', 'Field is required'],
    [required(boolean), undefined, 'Field is required'],
    [choice, 'Blue', 'Field must be one of: r (Red), g (Green), "dark, red" (Dark red)'],
    [choice, 'toString', 'Field must be one of: r (Red), g (Green), "dark, red" (Dark red)'],
    [choices, 'r,b', 'Field must be chosen from: r (Red), g (Green), "dark, red" (Dark red)'],
    [choices, [], 'Field needs at least 1 choice'],
    [choices, ['r', 'g', 'dark, red'], 'Field takes at most 2 choices'],
    [choices, 5, 'Field must be a list of these: r (Red), g (Green), "dark, red" (Dark red)'],
    [required(choices), '', 'Field needs at least 1 choice'],
  ])('%j refuses %j: %s', (field, input, message) => {
    expect(checkField(field, input)).toEqual({ ok: false, message })
  })

  it('a refusal lists the first of many choices', () => {
    const many = {
      ...choice,
      options: Array.from({ length: 40 }, (_, i) => ({ value: `${i}`, title: `No ${i}` })),
    }
    expect(checkField(many, 'x')).toEqual({
      ok: false,
      message: expect.stringMatching(/11 \(No 11\), and 28 more$/),
    })
  })

  it('but not guessed if two choices are alike', () => {
    const alike: Field = {
      ...choice,
      options: [
        { value: 'a', title: 'X' },
        { value: 'A', title: 'Y' },
      ],
    }
    expect(checkField(alike, 'A')).toEqual({ ok: true, value: 'A' })
    expect(checkField(alike, 'x')).toEqual({ ok: true, value: 'a' })
    expect(
      checkField(
        {
          ...alike,
          options: [
            { value: 'ab', title: 'X' },
            { value: 'AB', title: 'Y' },
          ],
        },
        'Ab',
      ).ok,
    ).toBe(false)
  })
})

describe('a whole form', () => {
  const fields: Field[] = [
    { ...text, name: 'name', title: 'Name', required: true, limits: { min: 1 } },
    { ...integer, name: 'age', title: 'Age', default: 30 },
    { ...boolean, name: 'agreed', title: 'Agreed' },
  ]

  it('returns the content to send, in the order of the fields', () => {
    expect(checkForm(fields, { agreed: 'n', age: '', name: 'Ada', other: 1 })).toEqual({
      ok: true,
      content: { name: 'Ada', agreed: false },
    })
  })

  it('names every field that is wrong', () => {
    expect(checkForm(fields, { age: '1' })).toEqual({
      ok: false,
      problems: [
        { name: 'name', message: 'Name is required' },
        { name: 'age', message: 'Age must be at least 18' },
      ],
    })
  })

  it('starts with the defaults', () => {
    expect(startValues(fields)).toEqual({ age: 30 })
    expect(checkForm(fields, { ...startValues(fields), name: 'Ada' })).toEqual({
      ok: true,
      content: { name: 'Ada', age: 30 },
    })
  })

  it('T9 reads no inherited values', () => {
    const inherited = { ...text, name: 'toString', required: true }
    expect(checkForm([inherited], {}).ok).toBe(false)
    expect(judgeContent([inherited], {}).ok).toBe(false)
  })

  it('is accepted by the server whenever it is accepted here', () => {
    const all = [text, email, moment, short, number, integer, boolean, choice, choices, anyChoices]
    const form = [...all, ...all.map(required)].map((field, i) => ({ ...field, name: `f${i}` }))
    const input = fc.oneof(
      fc.constantFrom(
        undefined,
        null,
        '',
        ' ',
        '5',
        '18',
        'yes',
        'Red',
        'r,g',
        'a@b',
        '2026-07-28 09:30Z',
        'ab',
        ['r'],
        [],
        5,
        true,
      ),
      fc.string(),
      fc.anything(),
    )
    let accepted = 0
    fc.assert(
      fc.property(fc.constantFrom(...form), input, (field, typed) => {
        const checked = checkForm([field], { [field.name]: typed })
        if (!checked.ok) return
        accepted++
        expect(judgeContent([field], checked.content)).toEqual(checked)
      }),
      { numRuns: 5000 },
    )
    expect(accepted).toBeGreaterThan(500)
  })
})

describe('the value that a host sends for a choice', () => {
  const twins: Field = {
    ...choice,
    options: [
      { value: 'a', title: 'Same' },
      { value: 'b', title: 'Same' },
      { value: 'Other', title: 'Third' },
      { value: 'c', title: 'Other' },
    ],
  }
  it.each<[string, Field, unknown, unknown]>([
    ['a value', choice, 'r', 'r'],
    ['a title', choice, 'Green', 'g'],
    ['a title with white space around it', choice, ' Green\n', 'g'],
    ['a title in another case, which does not count', choice, 'green', 'green'],
    ['a title that two options have', twins, 'Same', 'Same'],
    ['a value that is the title of another option', twins, 'Other', 'Other'],
    ['a number', choice, 1, 1],
    ['a list of titles and values', choices, ['Red', 'g'], ['r', 'g']],
    ['one title for a list', choices, 'Red', ['r']],
    ['one value with a comma for a list', choices, 'dark, red', ['dark, red']],
    ['titles with commas between', choices, 'Red,Dark red', ['r', 'dark, red']],
    ['a list as JSON', choices, ' ["Red", "dark, red"]', ['r', 'dark, red']],
    ['a list with a part that is not a choice', choices, 'Red,Blue', 'Red,Blue'],
    ['JSON with a part that is not a choice', choices, '["Red", 7]', '["Red", 7]'],
    ['invalid JSON', choices, '["Red"', '["Red"'],
    ['nothing', choices, '', ''],
    ['a text', text, 'Red', 'Red'],
  ])('%s', (_name, field, sent, value) => {
    expect(normalizeValue(field, sent)).toEqual(value)
  })

  it('is judged by its meaning, and a refusal lists the choices', () => {
    const fields = [
      { ...choice, name: 'one' },
      { ...choices, name: 'many' },
    ]
    expect(judgeContent(fields, { one: 'Red', many: 'Green, Red' })).toEqual({
      ok: true,
      content: { one: 'r', many: ['g', 'r'] },
    })
    expect(judgeContent(fields, { many: 'Red and Green' })).toEqual({
      ok: false,
      problems: [
        {
          name: 'many',
          message: 'Field must be a list of these: r (Red), g (Green), "dark, red" (Dark red)',
        },
      ],
    })
  })

  it('does not change when it is normalised again', () => {
    const word = fc.constantFrom('a', 'b', 'A', 'B', 'a,b', ' a', '["a"]', '', ',')
    const option = fc.record({ value: word, title: word })
    const field = fc.record({
      type: fc.constantFrom('choice' as const, 'choices' as const),
      options: fc.uniqueArray(option, { maxLength: 4, selector: ({ value }) => value }),
    })
    const sent = fc.oneof(word, fc.array(word, { maxLength: 3 }), fc.integer())
    let changed = 0
    fc.assert(
      fc.property(field, sent, (shape, value) => {
        const one = { ...base, ...shape }
        const once = normalizeValue(one, value)
        if (once !== value) changed++
        expect(normalizeValue(one, once)).toEqual(once)
      }),
      { numRuns: 5000 },
    )
    expect(changed).toBeGreaterThan(100)
  })
})

import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { readForm } from './form.ts'
import { judgeContent, startValues } from './judge.ts'

const form = (properties: object, required: unknown = []) =>
  readForm({ type: 'object', properties, required })
const field = (schema: unknown) => form({ f: schema }).fields[0]

describe('readForm reads', () => {
  const options = [
    { value: 'r', title: 'Red' },
    { value: 'g', title: 'Green' },
  ]
  const bare = { name: 'f', title: 'F', required: false, limits: {} }
  const titled = [
    { const: 'r', title: 'Red' },
    { const: 'g', title: 'Green' },
  ]
  it.each([
    ['a text', { type: 'string' }, { ...bare, type: 'text' }],
    [
      'a text with everything',
      {
        type: 'string',
        title: 'E-mail',
        description: 'Work\nor home',
        minLength: 3,
        maxLength: 50,
        format: 'email',
        default: 'a@b',
      },
      {
        ...bare,
        type: 'text',
        title: 'E-mail',
        description: 'Work\nor home',
        limits: { min: 3, max: 50 },
        format: 'email',
        default: 'a@b',
      },
    ],
    [
      'a number',
      { type: 'number', minimum: -1.5, maximum: 9, default: 0 },
      { ...bare, type: 'number', limits: { min: -1.5, max: 9 }, default: 0 },
    ],
    ['an integer', { type: 'integer', minimum: 1 }, { ...bare, type: 'integer', limits: { min: 1 } }],
    ['a boolean', { type: 'boolean', default: false }, { ...bare, type: 'boolean', default: false }],
    [
      'an enum',
      { type: 'string', enum: ['r', 'g'], default: 'g' },
      {
        ...bare,
        type: 'choice',
        options: [
          { value: 'r', title: 'r' },
          { value: 'g', title: 'g' },
        ],
        default: 'g',
      },
    ],
    ['titles', { type: 'string', oneOf: titled }, { ...bare, type: 'choice', options }],
    [
      'the older names',
      { type: 'string', enum: ['r', 'g'], enumNames: ['Red', 'Green'] },
      { ...bare, type: 'choice', options },
    ],
    [
      'too few of the older names',
      { type: 'string', enum: ['r', 'g'], enumNames: ['Red'] },
      { ...bare, type: 'choice', options: [options[0], { value: 'g', title: 'g' }] },
    ],
    [
      'a list',
      { type: 'array', items: { type: 'string', enum: ['r'] }, minItems: 0, maxItems: 1, default: ['r'] },
      {
        ...bare,
        type: 'choices',
        options: [{ value: 'r', title: 'r' }],
        limits: { min: 0, max: 1 },
        default: ['r'],
      },
    ],
    [
      'a list with titles',
      { type: 'array', items: { anyOf: titled } },
      { ...bare, type: 'choices', options },
    ],
    ['unknown keywords', { type: 'string', pattern: '(a+)+$', widget: {} }, { ...bare, type: 'text' }],
    ['an unknown format', { type: 'string', format: 'toString' }, { ...bare, type: 'text' }],
    [
      'limits that are not numbers',
      { type: 'string', minLength: 'x', maxLength: null },
      { ...bare, type: 'text' },
    ],
    ['null allowed by type', { type: ['string', 'null'] }, { ...bare, type: 'text' }],
    [
      'null allowed by anyOf',
      { title: 'T', anyOf: [{ type: 'integer', minimum: 1 }, { type: 'null' }] },
      { ...bare, title: 'T', type: 'integer', limits: { min: 1 } },
    ],
    ['null among choices', { anyOf: [...titled, { type: 'null' }] }, { ...bare, type: 'choice', options }],
    [
      'no type but an enum',
      { enum: ['r'] },
      { ...bare, type: 'choice', options: [{ value: 'r', title: 'r' }] },
    ],
    [
      'an empty choice',
      { enum: [''] },
      { ...bare, type: 'choice', options: [{ value: '', title: '(empty)' }] },
    ],
  ])('%s', (_name, schema, expected) => {
    expect(field(schema)).toEqual(expected)
    expect(form({ f: schema }).notes).toEqual([])
  })

  it('fields in order, with what is required', () => {
    const { fields } = form({ zulu: { type: 'string' }, alpha: { type: 'string' } }, ['alpha', 'none'])
    expect(fields.map(({ name, required }) => [name, required])).toEqual([
      ['zulu', false],
      ['alpha', true],
    ])
  })

  it.each([
    ['duplicate_of', 'Duplicate of'],
    ['duplicateOf', 'Duplicate of'],
    ['duplicateOfId', 'Duplicate of id'],
    ['DNSName', 'DNSName'],
    ['first-name', 'First name'],
    ['\u001b[2J', '[2J'],
    ['', '(no name)'],
  ])('the name of a field as its title if it has none: %j', (name, title) => {
    expect(form({ [name]: { type: 'string' } }).fields[0]).toMatchObject({ name, title })
  })
})

describe('a schema from a hostile or careless server', () => {
  it.each([
    ['an object', { type: 'object', properties: {} }, /type "object"/],
    ['a list of texts', { type: 'array', items: { type: 'string' } }, /a list of anything but/],
    ['no type', {}, /no known type/],
    ['no schema', true, /no known type/],
    ['a type of control characters', { type: '\u001b[2J' }, /type "\[2J"/],
  ])('has %s shown as a text, with a note', (_name, schema, reason) => {
    const { fields, notes } = form({ f: schema })
    expect(fields[0]).toMatchObject({ type: 'text', unsupported: expect.stringMatching(reason) })
    expect(notes).toEqual([`F: ${fields[0]?.unsupported}`])
  })

  it('is cut to a limited size, with a note', () => {
    const many = Object.fromEntries(Array.from({ length: 5000 }, (_, i) => [`f${i}`, { type: 'string' }]))
    expect(form(many)).toMatchObject({
      fields: { length: 200 },
      notes: [expect.stringMatching(/5000 fields/)],
    })
    const wide = form({ f: { enum: Array.from({ length: 300_000 }, (_, i) => `v${i}`) } })
    expect(wide.fields[0]?.options).toHaveLength(1000)
    expect(wide.notes).toEqual(['F: only 1000 of 300000 choices are shown'])
    const long = 'x'.repeat(1_000_000)
    const wordy = form({ f: { type: 'string', title: long, description: long }, [long]: { type: 'string' } })
    expect(JSON.stringify(wordy).length).toBeLessThan(5000)
    expect(form({ f: { enum: [long, 'a'] } }).fields[0]?.options).toEqual([{ value: 'a', title: 'a' }])
  })

  it('T9 has no field with a name that would change a prototype', () => {
    const { fields, notes } = readForm(
      JSON.parse('{"properties":{"__proto__":{"type":"string"},"a":{"type":"string"}}}'),
    )
    expect(fields.map(({ name }) => name)).toEqual(['a'])
    expect(notes).toHaveLength(1)
  })

  it('has a choice of numbers shown as any number, since choices are sent as texts', () => {
    expect(field({ type: 'number', enum: [1, 2] })).toMatchObject({ type: 'number' })
  })

  it('loses a default that does not fit', () => {
    expect(form({ f: { type: 'integer', default: '5' } })).toEqual({
      fields: [{ name: 'f', title: 'F', type: 'integer', limits: {}, required: false }],
      notes: ['F: its default does not fit'],
    })
  })

  it.each([undefined, null, 5, 'x', [], {}, { properties: [] }, { type: 'object' }])(
    'is not read as a form: %j',
    (schema) => {
      expect(readForm(schema)).toEqual({ fields: [], notes: ['The form has no fields'] })
    },
  )

  it('never makes readForm throw; defaults always fit; texts have no control characters', () => {
    const keyword = fc.constantFrom(
      'type',
      'enum',
      'enumNames',
      'oneOf',
      'anyOf',
      'items',
      'title',
      'default',
      'minimum',
      'minLength',
      'maxItems',
      'format',
      'const',
    )
    const value = fc.oneof(
      fc.jsonValue({ maxDepth: 3 }),
      fc.constantFrom(
        'string',
        'array',
        'integer',
        ['a'],
        [{ const: 'a' }],
        { enum: ['a'] },
        '\u001b[2J\u202e',
      ),
    )
    const schema = fc.dictionary(keyword, value)
    fc.assert(
      fc.property(fc.dictionary(fc.string(), fc.oneof(schema, fc.jsonValue())), (properties) => {
        const { fields, notes } = form(properties)
        const given = startValues(fields)
        const judged = judgeContent(
          fields.filter(({ name }) => Object.hasOwn(given, name)),
          given,
        )
        expect(judged).toEqual({ ok: true, content: given })
        const shown = fields.flatMap(({ title, options = [] }) => [title, ...options.map((one) => one.title)])
        for (const text of [...notes, ...shown]) expect(text).not.toMatch(/[\p{Cc}\p{Cs}\u202a-\u202e]/u)
      }),
      { numRuns: 2000 },
    )
  })
})

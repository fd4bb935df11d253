import { Validator } from '@cfworker/json-schema'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { hasAnEnd } from '../../../../../test/support/has-an-end.ts'
import type { JsonSchema } from '../../protocol/wire.ts'
import { compilePlainSchema } from './judge.ts'

const compile = (schema: JsonSchema) => compilePlainSchema(schema, 'The input schema')
const fits = (schema: JsonSchema, value: unknown): boolean => compile(schema)(value).ok
const say = (schema: JsonSchema, value: unknown): string[] => {
  const result = compile(schema)(value)
  return result.ok ? [] : result.problems.map(({ path, message }) => `${path}: ${message}`)
}

describe('the validator of plain JSON Schema', () => {
  const cases: [string, JsonSchema, unknown, boolean][] = [
    ['prefixItems', { prefixItems: [{ type: 'string' }], items: false }, ['a'], true],
    ['prefixItems that are too many', { prefixItems: [{ type: 'string' }], items: false }, ['a', 1], false],
    ['$defs and $ref', { $defs: { n: { type: 'number' } }, items: { $ref: '#/$defs/n' } }, [1, 'a'], false],
    ['$anchor', { $defs: { n: { $anchor: 'num', type: 'number' } }, items: { $ref: '#num' } }, [1], true],
    [
      'a recursive schema',
      { properties: { next: { $ref: '#' } }, maxProperties: 1 },
      { next: { next: {} } },
      true,
    ],
    [
      'a recursive schema, broken deep',
      { properties: { next: { $ref: '#' } }, maxProperties: 1 },
      { next: { a: 1, b: 2 } },
      false,
    ],
    ['escaped pointers', { $defs: { 'a/b %': { type: 'null' } }, $ref: '#/$defs/a~1b%20%25' }, null, true],
    ['dependentRequired', { dependentRequired: { a: ['b'] } }, { a: 1 }, false],
    ['if and then', JSON.parse('{"if":{"required":["a"]},"then":{"required":["b"]}}'), { a: 1 }, false],
    [
      'unevaluatedProperties',
      { allOf: [{ properties: { a: true } }], unevaluatedProperties: false },
      { a: 1, b: 1 },
      false,
    ],
    [
      'unevaluatedProperties behind a reference',
      { $ref: '#/$defs/a', unevaluatedProperties: false, $defs: { a: { properties: { a: true } } } },
      { a: 1 },
      true,
    ],
    [
      'unevaluatedItems after those of an alternative that fits',
      {
        anyOf: [{ prefixItems: [{ type: 'null' }, true] }, { prefixItems: [true] }],
        unevaluatedItems: false,
      },
      [1, 2],
      false,
    ],
    ['a uuid', { format: 'uuid' }, '123e4567-e89b-12d3-a456-42661417400', false],
    ['an IPv6 address', { format: 'ipv6' }, '::ffff:1.2.3.4', true],
    ['a text that is not an IPv6 address', { format: 'ipv6' }, '1::2::3', false],
    ['a time', { format: 'time' }, '24:00:00Z', false],
    ['a host name', { format: 'hostname' }, 'a-.example', false],
    ['an internationalized host name', { format: 'hostname' }, 'xn--mnchen-3ya.example', true],
    ['a host name that decodes to nothing', { format: 'hostname' }, 'xn--X', true],
    ['a leap second', { format: 'time' }, '23:59:60Z', true],
    ['a leap second in the middle of a day', { format: 'time' }, '12:00:60Z', false],
    ['an exact multiple of a fraction', { multipleOf: 0.01 }, 19.99, true],
    ['a multiple whose quotient overflows', { multipleOf: 0.5 }, 1e308, true],
    [
      '$dynamicAnchor, as a plain anchor',
      { $defs: { n: { $dynamicAnchor: 'num', type: 'null' } }, $ref: '#num' },
      1,
      false,
    ],
    ['a property called format', { properties: { format: { type: 'string' } } }, { format: 1 }, false],
    ['unknown keywords', { 'x-id': { id: 5, $ref: 'http://x' }, type: 'number' }, 1, true],
    [
      'a frozen schema',
      Object.freeze({ type: 'object', properties: Object.freeze({ a: Object.freeze({}) }) }),
      {},
      true,
    ],
    ['an inherited name', { type: 'object', required: ['toString'] }, {}, false],
    [
      'draft 7',
      { $schema: 'http://json-schema.org/draft-07/schema#', items: [{ type: 'string' }] },
      [1],
      false,
    ],
    ['2019-09', { $schema: 'https://json-schema.org/draft/2019-09/schema', type: 'string' }, 'a', true],
    ['a format', { type: 'string', format: 'date' }, '2026-02-30', false],
    ['an unknown format', { type: 'string', format: 'colour' }, 'red', true],
    ['a pattern beside an if', { pattern: '^a', if: { minLength: 2 }, else: false }, 'ab', true],
    ['a pattern beside an allOf', { pattern: '^a', allOf: [{ minLength: 3 }] }, 'ab', false],
    ['a pattern on a number', { pattern: '^a' }, 5, true],
  ]
  it.each(cases)('judges %s', (_name, schema, value, expected) => {
    expect(fits(schema, value)).toBe(expected)
  })

  it('does not change the schema', () => {
    const schema = {
      type: 'object',
      properties: { a: { pattern: 'a', $ref: '#/$defs/b' } },
      $defs: { b: {} },
    }
    const before = JSON.stringify(schema)
    compile(schema)({ a: 'a' })
    expect(JSON.stringify(schema)).toBe(before)
    expect(Reflect.ownKeys(schema.properties.a)).toEqual(['pattern', '$ref'])
  })

  it('says what is wrong in words', () => {
    const schema = {
      type: 'object',
      properties: { age: { type: 'integer', minimum: 18 }, 'a/b': { items: { enum: ['x'] } } },
      required: ['name'],
      additionalProperties: false,
    }
    expect(say(schema, { age: 3, 'a/b': ['y'], extra: 1 })).toEqual([
      ': Missing required property "name"',
      'age: 3 must be at least 18',
      '["a/b"][0]: The value must be one of "x"',
      'extra: This is not allowed here',
    ])
    expect(say({ type: 'object' }, 1)).toEqual([': The type must be object, not number'])
    expect(say({ oneOf: [true, true] }, 1)).toEqual([
      ': The value matches 2 alternatives instead of exactly one',
    ])
  })

  it('T8 reports at most ten problems of a value that has many', () => {
    expect(
      say(
        { items: { type: 'string' } },
        Array.from({ length: 50_000 }, (_, i) => i),
      ),
    ).toHaveLength(10)
  })

  it('judges a value that holds undefined as it would be sent', () => {
    const schema = { properties: { a: { type: 'string' } }, additionalProperties: false }
    expect(compile(schema)({ a: undefined })).toEqual({ ok: true, value: {} })
  })

  it('reports a value that cannot be checked as a problem and does not throw', () => {
    const cycle: Record<string, unknown> = {}
    cycle.a = { cycle, none: undefined }
    expect(fits({ additionalProperties: { additionalProperties: { type: 'object' } } }, cycle)).toBe(false)
    expect(fits({ $ref: '#' }, 1)).toBe(false)
  })
})

describe('the compiler of plain JSON Schemas', () => {
  const cases: [string, JsonSchema, RegExp][] = [
    ['a network reference', { $ref: 'https://example.com/schema.json' }, /nothing is fetched/],
    [
      'a network reference deep inside',
      { anyOf: [{ items: { $ref: 'http://x/y#/z' } }] },
      /nothing is fetched/,
    ],
    ['a file reference', { properties: { a: { $ref: 'other.json' } } }, /nothing is fetched/],
    [
      'a network reference by a relative name',
      { $id: 'https://example.com/a', $ref: 'b' },
      /nothing is fetched/,
    ],
    ['a reference to nothing', { $ref: '#/$defs/none' }, /where there is no schema/],
    ['a reference to an inherited name', { $ref: '#/constructor' }, /where there is no schema/],
    ['a reference out of the schema', { $ref: '#/type', type: 'object' }, /where there is no schema/],
    ['$dynamicRef', { $dynamicRef: '#meta' }, /\$dynamicRef/],
    ['an embedded $id', { $defs: { a: { $id: 'https://example.com/a' } } }, /its own \$id/],
    [
      'an unknown dialect',
      { $schema: 'https://example.com/dialect' },
      /dialect https:\/\/example\.com\/dialect/,
    ],
    ['a dialect that is not a string', { $schema: 4 }, /dialect 4/],
  ]
  it.each(cases)('refuses %s', (_name, schema, message) => {
    expect(() => compile(schema)).toThrow(TypeError)
    expect(() => compile(schema)).toThrow(message)
  })
})

describe('the cost of a validation', () => {
  it('T11b refuses a text before the pattern sees it, unless the schema allows for its length', () => {
    expect(fits({ pattern: '^a*$' }, 'a'.repeat(1000))).toBe(true)
    expect(say({ pattern: '^a*$' }, 'a'.repeat(1001))).toEqual([
      ': The text is too long: at most 1000 characters are allowed where a pattern applies',
    ])
    expect(fits({ pattern: '^a*$', maxLength: 5000 }, 'a'.repeat(4097))).toBe(true)
    expect(fits({ pattern: '^a*$', maxLength: 5 }, 'a'.repeat(6))).toBe(false)
    // Quadratic: a million characters would take minutes.
    expect(hasAnEnd(() => fits({ pattern: 'a*a*b' }, 'a'.repeat(1_000_000)))).toBe(false)
  })

  it('T11b refuses a name before a pattern sees it', () => {
    const schema = { patternProperties: { '^a*$': true } }
    expect(fits(schema, { ['a'.repeat(1000)]: 1 })).toBe(true)
    expect(fits(schema, { ['a'.repeat(1001)]: 1 })).toBe(false)
  })

  it('T11b finds equal items of a long list without comparing all pairs', () => {
    const list = (length: number): unknown[] => Array.from({ length }, (_, i) => ({ i, a: [] }))
    const schema = { uniqueItems: true }
    expect(
      fits(schema, [
        { a: 1, b: 2 },
        { b: 2, a: 1 },
      ]),
    ).toBe(false)
    expect(fits(schema, [1, '1', true, 'true', null, 'null', [], {}])).toBe(true)
    expect(hasAnEnd(() => fits(schema, list(100_000)))).toBe(true)
    expect(hasAnEnd(() => fits(schema, [...list(100_000), { a: [], i: 7 }]))).toBe(false)
  })
})

/** The engine of another project, which memoizes nothing. */
const oracle = (schema: JsonSchema, value: unknown): boolean =>
  new Validator(structuredClone(schema), '2020-12', false).validate(value).valid

const values = fc.letrec((tie) => ({
  value: fc.oneof(
    { maxDepth: 4 },
    fc.constantFrom(null, true, 0, 1, 2.5, 7, '', 'a', 'ab', 'op'),
    fc.array(tie('value'), { maxLength: 3 }),
    fc.dictionary(fc.constantFrom('a', 'b', 'op', 'left'), tie('value'), { maxKeys: 3 }),
  ),
})).value

const schemas = fc.letrec<{ schema: JsonSchema | boolean; object: JsonSchema }>((tie) => {
  const schema = tie('schema')
  const list = fc.array(schema, { minLength: 1, maxLength: 3 })
  const small = fc.integer({ min: 0, max: 3 })
  const one = <T>(name: string, value: fc.Arbitrary<T>): fc.Arbitrary<JsonSchema> =>
    value.map((given) => ({ [name]: given }))
  const part = fc.oneof(
    one(
      'type',
      fc.constantFrom('object', 'array', 'string', 'number', 'integer', 'null', ['string', 'null']),
    ),
    one('enum', fc.array(values, { minLength: 1, maxLength: 3 })),
    one('const', fc.constantFrom(1, 'a', 'op', true)),
    one('required', fc.uniqueArray(fc.constantFrom('a', 'b', 'op', 'left'), { maxLength: 2 })),
    one('properties', fc.dictionary(fc.constantFrom('a', 'b', 'op', 'left'), schema, { maxKeys: 3 })),
    one('patternProperties', fc.dictionary(fc.constantFrom('^a', 'b$', 'op'), schema, { maxKeys: 2 })),
    one('additionalProperties', schema),
    one('propertyNames', schema),
    one('dependentRequired', fc.constant({ a: ['b'] })),
    one('dependentSchemas', fc.dictionary(fc.constantFrom('a', 'left'), schema, { maxKeys: 1 })),
    one('items', schema),
    one('prefixItems', list),
    one('contains', schema),
    one('uniqueItems', fc.boolean()),
    one('minItems', small),
    one('maxItems', small),
    one('minProperties', small),
    one('maxProperties', small),
    one('minLength', small),
    one('maxLength', small),
    one('pattern', fc.constantFrom('^a', 'b$', '^.$')),
    one('minimum', small),
    one('exclusiveMaximum', small),
    one('multipleOf', fc.constantFrom(0.5, 2, 7)),
    one('allOf', list),
    one('anyOf', list),
    one('oneOf', list),
    one('not', schema),
    fc.tuple(schema, schema, schema).map(
      ([a, b, c]) =>
        Object.fromEntries([
          ['if', a],
          ['then', b],
          ['else', c],
        ]) as JsonSchema,
    ),
    one('$ref', fc.constantFrom('#/$defs/x', '#/$defs/y')),
  )
  return {
    object: fc.array(part, { maxLength: 3 }).map((parts) => Object.assign({}, ...parts) as JsonSchema),
    schema: fc.oneof(
      { maxDepth: 4 },
      { weight: 1, arbitrary: fc.boolean() },
      { weight: 8, arbitrary: tie('object') },
    ),
  }
})

/** Undefined for a reference that leads back to itself without a step into the value: it has no meaning. */
function judgedByBoth(schema: JsonSchema, value: unknown): { ours: boolean; theirs: boolean } | undefined {
  try {
    return { theirs: oracle(schema, value), ours: compilePlainSchema(schema, 'The schema')(value).ok }
  } catch {
    return undefined
  }
}

it('T11a memoization changes no verdict: an engine without it agrees', () => {
  let judged = 0
  const seen = { true: 0, false: 0 }
  fc.assert(
    fc.property(schemas.object, schemas.object, schemas.object, values, (root, x, y, value) => {
      const both = judgedByBoth({ ...root, $defs: { x, y } }, value)
      if (both === undefined) return
      judged++
      seen[`${both.ours}`]++
      expect(both.ours).toBe(both.theirs)
    }),
    { numRuns: 3000 },
  )
  expect(judged).toBeGreaterThan(1000)
  expect(Math.min(seen.true, seen.false)).toBeGreaterThan(100)
})

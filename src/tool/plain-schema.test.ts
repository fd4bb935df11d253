import { describe, expect, it } from 'vitest'
import { hasAnEnd } from '../../test/support/has-an-end.ts'
import type { JsonSchema } from '../protocol/wire.ts'
import { compilePlainSchema } from './plain-schema.ts'

const compile = (schema: JsonSchema) => compilePlainSchema(schema, 'The input schema')
const fits = async (schema: JsonSchema, value: unknown) => (await compile(schema)(value)).ok
const say = async (schema: JsonSchema, value: unknown) => {
  const result = await compile(schema)(value)
  return result.ok ? [] : result.problems.map(({ path, message }) => `${path}: ${message}`)
}

describe('plain JSON Schema', () => {
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
    ['a property called format', { properties: { format: { type: 'string' } } }, { format: 1 }, false],
    ['keywords nobody knows', { 'x-id': { id: 5, $ref: 'http://x' }, type: 'number' }, 1, true],
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
    ['a format nobody knows', { type: 'string', format: 'colour' }, 'red', true],
    ['a pattern beside an if', { pattern: '^a', if: { minLength: 2 }, else: false }, 'ab', true],
    ['a pattern beside an allOf', { pattern: '^a', allOf: [{ minLength: 3 }] }, 'ab', false],
    ['a pattern on a number', { pattern: '^a' }, 5, true],
  ]
  it.each(cases)('knows %s', async (_name, schema, value, expected) => {
    expect(await fits(schema, value)).toBe(expected)
  })

  it('does not touch the schema it was given', async () => {
    const schema = {
      type: 'object',
      properties: { a: { pattern: 'a', $ref: '#/$defs/b' } },
      $defs: { b: {} },
    }
    const before = JSON.stringify(schema)
    await compile(schema)({ a: 'a' })
    expect(JSON.stringify(schema)).toBe(before)
    expect(Reflect.ownKeys(schema.properties.a)).toEqual(['pattern', '$ref'])
  })

  it('says what is wrong in words', async () => {
    const schema = {
      type: 'object',
      properties: { age: { type: 'integer', minimum: 18 }, 'a/b': { items: { enum: ['x'] } } },
      required: ['name'],
      additionalProperties: false,
    }
    expect(await say(schema, { age: 3, 'a/b': ['y'], extra: 1 })).toEqual([
      ': Required is the property "name"',
      'age: 3 is less than 18',
      '["a/b"][0]: The value does not match any of ["x"]',
      'extra: This is not allowed here',
    ])
    expect(await say({ type: 'object' }, 1)).toEqual([': The type "number" is invalid. Expected "object"'])
    expect(await say({ oneOf: [true, true] }, 1)).toEqual([
      ': The value does not match exactly one subschema (2 matches)',
    ])
  })

  it('T8 reports at most ten problems of a value that has many', async () => {
    expect(
      await say(
        { items: { type: 'string' } },
        Array.from({ length: 50_000 }, (_, i) => i),
      ),
    ).toHaveLength(10)
  })

  it('judges a value with undefined in it as it would be sent', async () => {
    const schema = { properties: { a: { type: 'string' } }, additionalProperties: false }
    expect(await compile(schema)({ a: undefined })).toEqual({ ok: true, value: {} })
  })

  it('calls a value that cannot be checked a problem and does not throw', async () => {
    const cycle: Record<string, unknown> = {}
    cycle.a = { cycle, none: undefined }
    expect(await fits({ additionalProperties: { additionalProperties: { type: 'object' } } }, cycle)).toBe(
      false,
    )
    expect(await fits({ additionalProperties: { type: 'string' } }, { '\ud800': 'a' })).toBe(false)
    expect(await fits({ $ref: '#' }, 1)).toBe(false)
  })
})

describe('a plain JSON Schema that is refused', () => {
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
      'a dialect nobody knows',
      { $schema: 'https://example.com/dialect' },
      /dialect https:\/\/example\.com\/dialect/,
    ],
    ['a dialect that is no text', { $schema: 4 }, /dialect 4/],
  ]
  it.each(cases)('for %s', (_name, schema, message) => {
    expect(() => compile(schema)).toThrow(TypeError)
    expect(() => compile(schema)).toThrow(message)
  })
})

describe('what costs more than the length of the value', () => {
  it('T11 refuses a text before the pattern sees it, unless the schema allows for its length', async () => {
    expect(await fits({ pattern: '^a*$' }, 'a'.repeat(4096))).toBe(true)
    expect(await say({ pattern: '^a*$' }, 'a'.repeat(4097))).toEqual([': String is too long (4097 > 4096)'])
    expect(await fits({ pattern: '^a*$', maxLength: 5000 }, 'a'.repeat(4097))).toBe(true)
    expect(await fits({ pattern: '^a*$', maxLength: 5 }, 'a'.repeat(6))).toBe(false)
    // Quadratic: a million characters would take minutes.
    expect(await hasAnEnd(() => fits({ pattern: 'a*a*b' }, 'a'.repeat(1_000_000)))).toBe(false)
  })

  it('T11 leaves out the engine’s expression for "url"', async () => {
    await hasAnEnd(() => fits({ format: 'url' }, `http://${'a'.repeat(60)}!`))
  })

  it('T11 refuses a long list before all pairs are compared', async () => {
    const list = (length: number) => Array.from({ length }, (_, i) => ({ i }))
    const schema = { uniqueItems: true }
    expect(await fits(schema, list(1000))).toBe(true)
    expect(await fits(schema, [{ a: 1 }, { a: 1 }])).toBe(false)
    expect(await say(schema, list(1001))).toEqual([': Array has too many items (1001 > 1000)'])
    expect(await hasAnEnd(() => fits(schema, list(100_000)))).toBe(false)
  })
})

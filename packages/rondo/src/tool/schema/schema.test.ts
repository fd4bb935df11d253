import type { StandardJSONSchemaV1, StandardSchemaV1 } from '@standard-schema/spec'
import { toStandardJsonSchema } from '@valibot/to-json-schema'
import { type } from 'arktype'
import * as v from 'valibot'
import { describe, expect, expectTypeOf, it } from 'vitest'
import * as z from 'zod'
import type { Infer, Schema, StandardSchema } from '../context.ts'
import { compileSchema, droppingUnknown } from './schema.ts'

const person: Record<string, Schema> = {
  zod: z.object({ name: z.string().min(1), age: z.int().min(0).optional() }),
  valibot: toStandardJsonSchema(
    v.object({
      name: v.pipe(v.string(), v.minLength(1)),
      age: v.optional(v.pipe(v.number(), v.integer(), v.minValue(0))),
    }),
  ),
  arktype: type({ name: 'string >= 1', 'age?': 'number.integer >= 0' }),
  'plain JSON Schema': {
    type: 'object',
    properties: { name: { type: 'string', minLength: 1 }, age: { type: 'integer', minimum: 0 } },
    required: ['name'],
  },
}

describe.each(Object.entries(person))('a schema of %s', (_vendor, schema) => {
  const compiled = compileSchema(schema, 'input')

  it('has a JSON Schema for clients', () => {
    expect(compiled.json).toMatchObject({
      type: 'object',
      properties: { name: { type: 'string', minLength: 1 }, age: { type: 'integer', minimum: 0 } },
      required: ['name'],
    })
    expect(compiled.json).not.toHaveProperty('$schema')
  })

  it('accepts a value that matches', async () => {
    expect(await compiled.validate({ name: 'Ada', age: 36 })).toEqual({
      ok: true,
      value: { name: 'Ada', age: 36 },
    })
  })

  it.each([
    ['a missing field', { age: 1 }, /^(name)?$/],
    ['a wrong type', { name: 'Ada', age: 'old' }, /^age$/],
    ['a broken limit', { name: '', age: 1 }, /^name$/],
    ['a value that is not an object', 'Ada', /^$/],
  ])('returns the path of %s', async (_name, value, path) => {
    const result = await compiled.validate(value)
    expect(result).toEqual({
      ok: false,
      problems: expect.arrayContaining([
        { path: expect.stringMatching(path), message: expect.stringMatching(/\w/) },
      ]),
    })
  })
})

describe('Standard Schemas', () => {
  it('a schema returns the value that it produces', async () => {
    const schema = z.object({ n: z.string().pipe(z.coerce.number()), on: z.boolean().default(true) })
    expect(await compileSchema(schema, 'input').validate({ n: '4', extra: 1 })).toEqual({
      ok: true,
      value: { n: 4, on: true },
    })
  })

  it('compileSchema converts a schema for the output by its output type', () => {
    const schema = z.object({ on: z.boolean().default(true) })
    expect(compileSchema(schema, 'input').json.required).toBeUndefined()
    expect(compileSchema(schema, 'output').json).toMatchObject({ required: ['on'] })
    expect(compileSchema(z.string(), 'output').json).toEqual({ type: 'string' })
  })

  it('a schema may validate asynchronously', async () => {
    const schema = z.object({ name: z.string().refine(async (name) => name !== 'taken', 'is taken') })
    const { validate } = compileSchema(schema, 'input')
    expect(await validate({ name: 'free' })).toEqual({ ok: true, value: { name: 'free' } })
    expect(await validate({ name: 'taken' })).toEqual({
      ok: false,
      problems: [{ path: 'name', message: 'is taken' }],
    })
  })

  it('a problem has its path in JavaScript notation', async () => {
    const schema = z.object({ list: z.array(z.object({ 'first name': z.string() })) })
    const result = await compileSchema(schema, 'input').validate({ list: [{ 'first name': 1 }] })
    expect(!result.ok && result.problems[0]?.path).toBe('list[0]["first name"]')
  })

  it('a check reports at most ten problems', async () => {
    const { validate } = compileSchema(z.object({ list: z.array(z.string()) }), 'input')
    const result = await validate({ list: Array.from({ length: 500 }, (_, i) => i) })
    expect(!result.ok && result.problems.length).toBe(10)
  })
})

describe('a schema that cannot be used', () => {
  const fake = (vendor: string): Schema =>
    ({ '~standard': { version: 1, vendor, validate: (value: unknown) => ({ value }) } }) as unknown as Schema
  const cases: [string, () => Schema, RegExp][] = [
    ['valibot without its converter', () => v.object({}) as unknown as Schema, /toStandardJsonSchema/],
    ['an old zod', () => fake('zod'), /zod 4\.2 or later/],
    ['an old arktype', () => fake('arktype'), /2\.1\.28/],
    ['another library', () => fake('other'), /plain JSON Schema/],
    ['a date in zod', () => z.object({ at: z.date() }), /cannot be written as JSON Schema.*Date/],
    ['a date in valibot', () => toStandardJsonSchema(v.object({ at: v.date() })), /JSON Schema.*date/],
    ['an input that is not an object', () => z.string(), /must describe an object/],
    ['a plain input that is not an object', () => ({ type: 'array' }), /must describe an object/],
    ['nothing', () => undefined as unknown as Schema, /must be a Standard Schema/],
    ['a text', () => '{}' as unknown as Schema, /must be a Standard Schema/],
    ['a schema that contains itself', () => holdItself(), /not plain JSON/],
    ['a schema that is nested too deeply', () => nest(100), /at most 64 levels/],
    ['a pattern that is not a regular expression', () => plain({ pattern: '(' }), /not a regular expression/],
    ['a pattern for names that is not one', () => plain({ patternProperties: { '(': true } }), /not a reg/],
    ['a long pattern in a list', () => plain({ items: { pattern: 'a'.repeat(4001) } }), /longer than 4000/],
  ]
  const plain = (field: object): Schema => ({ type: 'object', properties: { field } })
  const holdItself = (): Schema => {
    const schema: Record<string, unknown> = { type: 'object' }
    schema.properties = { self: schema }
    return schema
  }
  const nest = (depth: number): Schema =>
    Array.from({ length: depth }).reduce<Record<string, unknown>>(
      (inner) => ({ type: 'object', properties: { inner } }),
      {},
    )

  it.each(cases)('%s is a TypeError that says what to do', (_name, make, message) => {
    expect(() => compileSchema(make(), 'input')).toThrow(TypeError)
    expect(() => compileSchema(make(), 'input')).toThrow(message)
  })
})

describe('unknown arguments are dropped:', () => {
  const check = (schema: Schema, value: unknown) =>
    droppingUnknown(compileSchema(schema, 'input')).validate(value)

  it.each<[string, Schema, unknown, unknown]>([
    ['zod', z.strictObject({ a: z.number() }), { a: 1, _host: 'x' }, { a: 1 }],
    [
      'plain JSON Schema',
      { type: 'object', properties: { a: { type: 'number' } }, additionalProperties: false },
      { a: 1, _host: 'x' },
      { a: 1 },
    ],
    [
      'names in alternatives and behind a reference',
      {
        type: 'object',
        allOf: [{ $ref: '#/$defs/b' }],
        anyOf: [{ properties: { c: {} } }],
        unevaluatedProperties: false,
        $defs: { b: { properties: { b: {} } } },
      },
      { b: 1, c: 2, e: 4 },
      { b: 1, c: 2 },
    ],
    ['a schema that takes further names', z.looseObject({ a: z.number() }), { a: 1, b: 2 }, { a: 1, b: 2 }],
    [
      'a schema that takes names by pattern',
      { type: 'object', patternProperties: { '^x-': {} } },
      { 'x-a': 1, b: 2 },
      { 'x-a': 1, b: 2 },
    ],
    ['no such name', z.strictObject({ a: z.number() }), { a: 1 }, { a: 1 }],
    ['an inherited name', z.strictObject({ a: z.number() }), { a: 1, toString: 1 }, { a: 1 }],
  ])('%s', async (_name, schema, sent, value) => {
    expect(await check(schema, sent)).toEqual({ ok: true, value })
  })

  it('but not those inside an argument', async () => {
    const schema = z.strictObject({ a: z.strictObject({ b: z.number() }) })
    expect(await check(schema, { a: { b: 1, c: 2 } })).toMatchObject({ ok: false })
    expect(await check(schema, 'text')).toMatchObject({ ok: false })
  })
})

describe('the type StandardSchema', () => {
  type Official<In, Out> = StandardSchemaV1<In, Out> & StandardJSONSchemaV1<In, Out>

  it('is interchangeable with the published specification', () => {
    expectTypeOf<Official<string, number>>().toExtend<StandardSchema<string, number>>()
    expectTypeOf<StandardSchema<string, number>>().toExtend<Official<string, number>>()
    expectTypeOf<Official<string, number>>().not.toExtend<StandardSchema<string, boolean>>()
    expectTypeOf<Infer<Official<string, number>>>().toEqualTypeOf<number>()
    expectTypeOf<Infer<StandardSchemaV1<string, number>>>().toEqualTypeOf<number>()
  })
})

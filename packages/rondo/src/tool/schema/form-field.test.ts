import { toStandardJsonSchema } from '@valibot/to-json-schema'
import { type } from 'arktype'
import * as v from 'valibot'
import { describe, expect, it } from 'vitest'
import * as z from 'zod'
import type { Schema } from '../context.ts'
import { compileForm } from './form.ts'

const titled = [
  { const: 'r', title: 'Red' },
  { const: 'g', title: 'Green' },
]

const field = (schema: Schema) => compileForm(schema).json.properties as Record<string, unknown>

describe('a field is written in the form schema:', () => {
  const cases: [string, Schema, unknown][] = [
    ['a literal', z.object({ f: z.literal('a') }), { type: 'string', enum: ['a'] }],
    ['literals', z.object({ f: z.literal(['a', 'b']) }), { type: 'string', enum: ['a', 'b'] }],
    [
      'a union of literals',
      z.object({ f: z.union([z.literal('a'), z.literal('b')]) }),
      { type: 'string', enum: ['a', 'b'] },
    ],
    [
      'a union of titled literals',
      z.object({
        f: z.union([z.literal('r').meta({ title: 'Red' }), z.literal('g').meta({ title: 'Green' })]),
      }),
      { type: 'string', oneOf: titled },
    ],
    [
      'titled literals in valibot',
      toStandardJsonSchema(
        v.object({
          f: v.union([v.pipe(v.literal('r'), v.title('Red')), v.pipe(v.literal('g'), v.title('Green'))]),
        }),
      ),
      { type: 'string', oneOf: titled },
    ],
    [
      'a list of titled literals',
      z.object({
        f: z
          .array(z.union([z.literal('r').meta({ title: 'Red' }), z.literal('g').meta({ title: 'Green' })]))
          .max(2),
      }),
      { type: 'array', items: { anyOf: titled }, maxItems: 2 },
    ],
    [
      'an enum with names',
      z.object({ f: z.enum(['r', 'g']).meta({ enumNames: ['Red', 'Green'] }) }),
      { type: 'string', enum: ['r', 'g'], enumNames: ['Red', 'Green'] },
    ],
    ['a nullable enum', z.object({ f: z.enum(['a']).nullable() }), { type: 'string', enum: ['a'] }],
    ['a nullable enum in arktype', type({ f: "'a' | 'b' | null" }), { type: 'string', enum: ['a', 'b'] }],
    [
      'a union of enums',
      z.object({ f: z.union([z.enum(['a']), z.enum(['b'])]) }),
      { type: 'string', enum: ['a', 'b'] },
    ],
    [
      'a shared enum',
      z.object({ f: z.enum(['a']).meta({ id: 'form-schema-shared' }) }),
      { type: 'string', enum: ['a'] },
    ],
    ['a literal true', z.object({ f: z.literal(true) }), { type: 'boolean' }],
    ['true or false', z.object({ f: z.union([z.literal(true), z.literal(false)]) }), { type: 'boolean' }],
    ['any integer', z.object({ f: z.int() }), { type: 'integer' }],
    [
      'a positive integer',
      z.object({ f: z.int().positive().lt(10) }),
      { type: 'integer', minimum: 1, maximum: 9 },
    ],
    ['a positive number', z.object({ f: z.number().positive() }), { type: 'number', minimum: 0 }],
    ['a date', z.object({ f: z.iso.date() }), { type: 'string', format: 'date' }],
    ['a date and time', z.object({ f: z.iso.datetime() }), { type: 'string', format: 'date-time' }],
    ['a pattern', z.object({ f: z.string().regex(/^\d{5}$/) }), { type: 'string' }],
    ['another format', z.object({ f: z.uuid() }), { type: 'string' }],
    ['another format in arktype', type({ f: 'string.uuid' }), { type: 'string', description: 'a UUID' }],
    ['a strict object', z.strictObject({ f: z.string() }), { type: 'string' }],
    [
      'an optional union',
      z.object({ f: z.union([z.literal('a'), z.literal('b')]).nullish() }),
      { type: 'string', enum: ['a', 'b'] },
    ],
    [
      'plain titles',
      { type: 'object', properties: { f: { type: 'string', oneOf: titled, default: 'r' } } },
      { type: 'string', oneOf: titled, default: 'r' },
    ],
    [
      'plain enum names',
      { type: 'object', properties: { f: { type: 'string', enum: ['r'], enumNames: ['Red'] } } },
      { type: 'string', enum: ['r'], enumNames: ['Red'] },
    ],
    [
      'a plain list',
      { type: 'object', properties: { f: { type: 'array', items: { anyOf: titled }, minItems: 1 } } },
      { type: 'array', items: { anyOf: titled }, minItems: 1 },
    ],
  ]
  it.each(cases)('%s', (_name, schema, json) => {
    expect(field(schema)).toEqual({ f: json })
  })
})

describe('a form refuses, with a TypeError that names the field:', () => {
  const plain = (f: object): Schema => ({ type: 'object', properties: { f } })
  const cases: [string, Schema, RegExp][] = [
    ['an object', z.object({ f: z.object({ a: z.string() }) }), /field "f".*a form is flat.*A field may be/],
    ['a list of texts', z.object({ f: z.array(z.string()) }), /field "f".*not of fixed choices/],
    ['a tuple', z.object({ f: z.tuple([z.string()]) }), /field "f".*not of fixed choices/],
    [
      'numbers to choose from',
      z.object({ f: z.union([z.literal(1), z.literal(2)]) }),
      /field "f".*not all strings/,
    ],
    ['numbers to choose from in arktype', type({ f: '1 | 2' }), /field "f".*not all strings/],
    ['text or number', z.object({ f: z.union([z.string(), z.number()]) }), /field "f".*type string,number/],
    ['anything', z.object({ f: z.any() }), /field "f".*no type/],
    ['a record', z.object({ f: z.record(z.string(), z.string()) }), /field "f".*flat/],
    [
      'a recursive field',
      z.object({
        get f() {
          return z.lazy(() => z.object({}))
        },
      }),
      /field "f"/,
    ],
    ['a default that does not fit', plain({ type: 'integer', default: 'x' }), /F: its default does not fit/],
    ['a plain pattern', plain({ type: 'string', pattern: 'a' }), /field "f".*it has "pattern"/],
    ['a plain exclusive bound', plain({ type: 'number', exclusiveMinimum: 1 }), /it has "exclusiveMinimum"/],
    [
      'a plain format',
      plain({ type: 'string', format: 'uuid' }),
      /it has the format "uuid".*email, uri, date/,
    ],
    ['a plain const', plain({ const: 'a' }), /it has "const"/],
    ['a plain anyOf', plain({ anyOf: [{ const: 'a', title: 'A' }] }), /it has "anyOf"/],
    ['a plain type list', plain({ type: ['string', 'null'] }), /field "f".*type string,null/],
    ['plain reference', plain({ $ref: '#/$defs/a' }), /field "f".*no type/],
    [
      'names that do not match',
      plain({ type: 'string', enum: ['a'], enumNames: [] }),
      /enumNames do not match/,
    ],
    ['no choices', plain({ type: 'string', enum: [] }), /not all strings/],
    ['no schema', plain(true as unknown as object), /it has no schema/],
    [
      'a rogue name',
      JSON.parse('{"type":"object","properties":{"__proto__":{"type":"string"}}}'),
      /"__proto__"/,
    ],
    ['no object', z.string(), /must describe an object/],
    ['an empty form', z.object({}), /ctx\.confirm/],
    ['an empty form in arktype', type({}), /ctx\.confirm/],
    [
      'too many fields',
      z.object(Object.fromEntries(Array.from({ length: 201 }, (_, i) => [`f${i}`, z.string()]))),
      /201 fields/,
    ],
    [
      'a valibot schema without its converter',
      v.object({ a: v.string() }) as unknown as Schema,
      /toStandardJsonSchema/,
    ],
    ['the format "password"', z.object({ f: z.string().meta({ format: 'password' }) }), /ctx\.visit/],
  ]
  it.each(cases)('%s', (_name, schema, message) => {
    expect(() => compileForm(schema)).toThrow(TypeError)
    expect(() => compileForm(schema)).toThrow(message)
  })
})

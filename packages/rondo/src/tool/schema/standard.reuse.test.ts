import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { z } from 'zod'
import type { Schema, StandardSchema } from '../context.ts'
import { compileForm } from './form.ts'
import { compileEvent } from './schema.ts'
import { isZod, keyOf } from './standard.ts'

/** The same schema in a shell that has no key: the control, which is converted and compiled by itself. */
function shelled(schema: StandardSchema): Schema {
  return { '~standard': schema['~standard'] }
}

function keyFor(schema: unknown): ReturnType<typeof keyOf> {
  return isZod(schema) ? keyOf(schema) : undefined
}

const resolution = () => z.object({ resolution: z.enum(['Fixed', 'Duplicate']) })
const isEven = (value: number): boolean => value % 2 === 0

describe('a schema that is created again', () => {
  it('is not converted again', () => {
    const [first, second] = [resolution(), resolution()]
    const form = compileForm(first)
    expect(compileForm(second)).toBe(form)
    expect(Object.hasOwn(second, '~standard')).toBe(false)
    expect(form.json).toEqual(compileForm(shelled(resolution())).json)
  })

  it('keeps its own functions, and shares the JSON', () => {
    const make = (limit: number) =>
      z.object({ count: z.number().refine((value) => value < limit, `Below ${limit}`) })
    const [low, high] = [compileForm(make(5)), compileForm(make(50))]
    expect(low.json).toBe(high.json)
    expect(low.validate({ count: 10 })).toMatchObject({
      ok: false,
      problems: [{ message: 'Count: Below 5' }],
    })
    expect(high.validate({ count: 10 })).toMatchObject({ ok: true })
  })

  it('is recognized with functions that outlive it', () => {
    const make = () => z.object({ count: z.number().refine(isEven) })
    const [, second, third] = [make(), make(), make()].map((schema) => compileForm(schema))
    expect(third).toBe(second)
    expect(third?.validate({ count: 3 })).toMatchObject({ ok: false })
    expect(third?.validate({ count: 4 })).toMatchObject({ ok: true, value: { count: 4 } })
  })

  it.each([
    ['recognized as a whole', () => z.object({ password: z.string() })],
    ['recognized by its JSON', () => z.object({ password: z.string().refine(() => true) })],
  ])('T5 may not ask for a secret because another one may, if it is %s', (_how, make) => {
    for (let round = 0; round < 3; round++) {
      expect(compileForm(make(), { allowSecretLike: 'It is the name of a dog' }).fields).toHaveLength(1)
      expect(() => compileForm(make())).toThrow('looks like a secret')
    }
  })

  it('R3 has another form if a default that a function computes has changed', () => {
    let today = 1
    const make = () => z.object({ day: z.number().default(() => today) })
    const field = (schema: Schema) => compileForm(schema).json.properties as { day: { default: number } }
    expect(field(make()).day.default).toBe(1)
    expect(field(make()).day.default).toBe(1)
    today = 2
    expect(field(make()).day.default).toBe(2)
    expect(compileForm(make()).validate({})).toMatchObject({ value: { day: 2 } })
    today = 3
    expect(compileForm(z.object({ day: z.number().default(2) })).validate({})).toMatchObject({
      value: { day: 2 },
    })
  })

  it('R3 is not remembered with a default that changed while it was converted', () => {
    let calls = 0
    const make = () => z.object({ count: z.number().default(() => ++calls) })
    compileForm(make())
    for (let value = 1; value < 6; value++) {
      const { json } = compileForm(z.object({ count: z.number().default(value) }))
      expect(json).toMatchObject({ properties: { count: { default: value } } })
    }
  })

  it('validates with asynchronous checks, transforms and defaults as the library does', async () => {
    const make = () =>
      z.object({
        name: z
          .string()
          .trim()
          .transform((text) => text.toUpperCase()),
        size: z.number().default(3),
        free: z.string().refine(async (value) => value !== 'taken', 'Taken'),
      })
    for (let round = 0; round < 3; round++) {
      const form = compileForm(make())
      expect(await form.validate({ name: ' ada ', free: 'yes' })).toMatchObject({
        ok: true,
        value: { name: 'ADA', size: 3, free: 'yes' },
        content: { name: ' ada ', free: 'yes' },
      })
      expect(await form.validate({ name: 'x', free: 'taken' })).toMatchObject({
        ok: false,
        problems: [{ message: 'Free: Taken' }],
      })
    }
  })
})

describe('the schema of a hook', () => {
  it('is not converted again, unless it has functions that were not seen before', () => {
    const make = (limit: number) => z.object({ count: z.number().max(limit) })
    const first = compileEvent(make(5))
    expect(compileEvent(make(5))).toBe(first)
    expect(compileEvent(make(6))).not.toBe(first)
    const refined = (limit: number) => z.object({ count: z.number().refine((value) => value < limit) })
    const [low, high] = [compileEvent(refined(5)), compileEvent(refined(50))]
    expect(low.validate({ count: 10 })).toMatchObject({ ok: false })
    expect(high.validate({ count: 10 })).toMatchObject({ ok: true })
  })
})

describe('keyOf', () => {
  it('R3 tells schemas with different checks of the author apart, however often it has seen both', () => {
    const isAda = (name: string) => name === 'Ada'
    const isEve = (name: string) => name === 'Eve'
    const make = (check: (name: string) => boolean) => z.object({ name: z.string().refine(check) })
    const exact = (check: (name: string) => boolean) => keyFor(make(check))?.exact
    for (const check of [isAda, isEve]) expect(exact(check)).toBeUndefined()
    expect(exact(isAda)).toBe(exact(isAda))
    expect(exact(isEve)).not.toBe(exact(isAda))
    expect(exact(isEve)).toBeDefined()
  })

  const isBelow = (limit: number) => (value: number) => value < limit
  const issue = (isRight: boolean, issues: { push(one: never): unknown }): void => {
    if (!isRight) issues.push({ code: 'custom', message: 'Too much', input: 0 } as never)
  }
  const codes: [string, (limit: number) => z.ZodType<number>][] = [
    ['refine', (limit) => z.number().refine(isBelow(limit))],
    [
      'superRefine',
      (limit) =>
        z.number().superRefine((value, ctx) => {
          if (value >= limit) ctx.addIssue('Too much')
        }),
    ],
    ['check', (limit) => z.number().check(({ value, issues }) => issue(value < limit, issues))],
    ['z.check', (limit) => z.number().check(z.check(({ value, issues }) => issue(value < limit, issues)))],
    ['z.refine', (limit) => z.number().check(z.refine((value) => (value as number) < limit))],
    [
      'z.superRefine',
      (limit) =>
        z.number().check(
          z.superRefine((value, ctx) => {
            if ((value as number) >= limit) ctx.addIssue('Too much')
          }),
        ),
    ],
    ['z.overwrite', (limit) => z.number().check(z.overwrite((value) => Math.min(value, limit - 1)))],
    ['transform', (limit) => z.number().transform((value) => Math.min(value, limit - 1))],
    ['a pipe', (limit) => z.number().pipe(z.transform((value: number) => Math.min(value, limit - 1)))],
    ['preprocess', (limit) => z.preprocess((value) => Math.min(Number(value), limit - 1), z.number())],
    [
      'codec',
      (limit) =>
        z.codec(z.number(), z.number(), {
          decode: (value) => Math.min(value, limit - 1),
          encode: (value) => value,
        }),
    ],
    [
      'a condition',
      (limit) => z.number().refine(() => false, { when: ({ value }) => (value as number) >= limit }),
    ],
  ]
  it.each(codes)(
    'R3 T1 %s: the code of one caller never judges the answer of another',
    async (_name, make) => {
      const judge = async (limit: number) => {
        const schema = z.object({ count: make(limit) })
        const control = await schema['~standard'].validate({ count: 10 })
        const want = control.issues ? { ok: false } : { ok: true, value: control.value }
        expect(await compileEvent(schema).validate({ count: 10 })).toMatchObject(want)
        expect(await compileForm(schema).validate({ count: 10 })).toMatchObject(want)
        expect(await compileForm(z.object({ count: make(limit) })).validate({ count: 10 })).toMatchObject(
          want,
        )
        return JSON.stringify(want)
      }
      for (let round = 0; round < 3; round++) expect(await judge(50)).not.toBe(await judge(5))
    },
  )

  it.each([
    ['list', (list: Record<string, string>) => z.enum(list)],
    ['literal', (list: Record<string, string>) => z.literal(Object.values(list))],
  ])('R3 knows the choices that a %s was created with, whatever became of them', (_name, make) => {
    const list: Record<string, string> = { a: 'a', b: 'b' }
    const changed = z.object({ choice: make(list) })
    const { def } = changed.shape.choice._zod
    if (def.type === 'literal') def.values.pop()
    else delete list.b
    compileEvent(changed)
    const later = compileEvent(z.object({ choice: make({ a: 'a' }) }))
    expect(later.validate({ choice: 'a' })).toMatchObject({ ok: true })
    expect(later.validate({ choice: 'b' })).toMatchObject({ ok: false })
  })

  it('R3 does not recognize a schema of a class of the author', () => {
    class Own {}
    expect(keyFor(z.object({ name: z.string() }))).toBeDefined()
    const inner = Object.assign(z.string(), { constructor: Own })
    expect(keyFor(z.object({ name: inner }))).toBeUndefined()
    expect(isZod(inner)).toBe(false)
  })

  /** A type of the author with the definition of another. */
  const Loud = z.core.$constructor<z.ZodString>('Loud', (inst, def) => {
    z.ZodString.init(inst, def)
    const parse = inst._zod.parse.bind(inst._zod)
    inst._zod.parse = (payload, ctx) => parse({ ...payload, value: `${payload.value}!` }, ctx)
  })
  const text = z.object({ a: z.string() })
  const pairs: [string, () => unknown, () => unknown][] = [
    [
      'a description',
      () => z.object({ a: z.string().describe('x') }),
      () => z.object({ a: z.string().describe('y') }),
    ],
    ['metadata', () => z.object({ a: z.string().meta({ title: 'x' }) }), () => z.object({ a: z.string() })],
    [
      'metadata of an ancestor',
      () => z.object({ a: z.string().meta({ title: 'x' }).min(1) }),
      () => z.object({ a: z.string().min(1) }),
    ],
    [
      'the order of fields',
      () => z.object({ a: z.string(), b: z.string() }),
      () => z.object({ b: z.string(), a: z.string() }),
    ],
    ['a bound', () => z.object({ a: z.number().min(1) }), () => z.object({ a: z.number().min(2) })],
    ['an exclusive bound', () => z.object({ a: z.number().gte(1) }), () => z.object({ a: z.number().gt(1) })],
    ['a pattern', () => z.object({ a: z.string().regex(/a/) }), () => z.object({ a: z.string().regex(/b/) })],
    [
      'its flags',
      () => z.object({ a: z.string().regex(/a/) }),
      () => z.object({ a: z.string().regex(/a/i) }),
    ],
    ['a choice', () => z.object({ a: z.enum(['x,y']) }), () => z.object({ a: z.enum(['x', 'y']) })],
    ['strictness', () => z.strictObject({ a: z.string() }), () => z.looseObject({ a: z.string() })],
    ['coercion', () => z.object({ a: z.coerce.number() }), () => z.object({ a: z.number() })],
    [
      'a default',
      () => z.object({ a: z.boolean().default(true) }),
      () => z.object({ a: z.boolean().default(false) }),
    ],
    ['a type', () => z.object({ a: z.literal('1') }), () => z.object({ a: z.literal(1) })],
    [
      'texts that run together',
      () => z.object({ a: z.string().meta({ title: "x,11.description:'y" }) }),
      () => z.object({ a: z.string().meta({ title: 'x', description: 'y' }) }),
    ],
    ['its class', () => z.object({ a: new Loud({ type: 'string' }) }), () => z.object({ a: z.string() })],
    [
      'names that run together',
      () => z.object({ 'a=': z.string(), b: z.string() }),
      () => z.object({ a: z.string(), '=b': z.string() }),
    ],
  ]
  it.each(pairs)('R3 differs with %s', (_name, one, other) => {
    expect(keyFor(one())?.text).toBe(keyFor(one())?.text)
    expect(keyFor(one())).toBeDefined()
    expect(keyFor(one())?.text).not.toBe(keyFor(other())?.text)
  })

  const unkeyed: [string, unknown][] = [
    ['a lazy schema', z.object({ a: z.lazy(() => z.string()) })],
    ['a value for errors', z.object({ a: z.string().catch(() => 'x') })],
    ['a custom schema', z.object({ a: z.custom(() => true) })],
    ['its own conversion', withConversion()],
    ['its own validation', withStandard()],
    ['an id', z.object({ a: z.string().meta({ id: 'a' }) })],
    ['a recursive shape', recursive()],
    ['metadata that is not data', z.object({ a: z.string().meta({ when: new Date() }) })],
    ['metadata with code', z.object({ a: z.string().meta({ note: { toJSON: () => 'x' } }) })],
    ['a default with code', z.object({ a: z.any().default({ toJSON: () => 'x' }) })],
    ['a field that is named by a symbol', z.object({ a: z.string(), [Symbol('b')]: z.string() })],
    ['a pattern with code', z.object({ a: z.string().regex(Object.assign(/a/, { test: () => true })) })],
    ['a pattern of a class', z.object({ a: z.string().regex(new (class extends RegExp {})('a')) })],
    ['a shell', shelled(text)],
    ['nothing', undefined],
    ['a getter that throws', throwing()],
    ['a very long list', z.object({ a: z.enum(Array.from({ length: 2_000 }, (_, i) => `choice ${i}`)) })],
  ]
  it.each(unkeyed)('is absent for a schema with %s', (_name, schema) => {
    expect(keyFor(schema)).toBeUndefined()
  })

  it('P1 a form from the cache is the form that a conversion makes, and judges alike', async () => {
    const fields = fc.dictionary(fc.constantFrom('a', 'b', 'c d', '=', ',1.a'), fieldOf(), {
      minKeys: 1,
      maxKeys: 3,
    })
    await fc.assert(
      fc.asyncProperty(fields, fc.boolean(), anAnswer(), async (made, isStrict, answer) => {
        const make = () => {
          const shape = Object.fromEntries(Object.entries(made).map(([name, field]) => [name, field()]))
          return isStrict ? z.strictObject(shape) : z.object(shape)
        }
        const control = compileForm(shelled(make()))
        for (let round = 0; round < 3; round++) {
          const form = compileForm(make())
          expect(form.json).toEqual(control.json)
          expect(await form.validate(answer)).toEqual(await control.validate(answer))
        }
      }),
      { numRuns: 300 },
    )
  })
})

function fieldOf(): fc.Arbitrary<() => z.ZodType> {
  const note = fc.constantFrom(undefined, 'x', 'y')
  const base = fc.oneof(
    fc.record({ min: fc.nat(3), max: fc.integer({ min: 3, max: 6 }) }).map(
      ({ min, max }) =>
        () =>
          z.string().min(min).max(max),
    ),
    fc.constantFrom(
      () => z.string().trim(),
      () => z.string().min(2, 'Too short'),
      () => z.email(),
      () => z.string().transform((text) => text.length),
      () => z.boolean(),
      () => z.int(),
    ),
    fc.integer({ min: -2, max: 2 }).map((bound) => () => z.number().gt(bound).refine(isEven)),
    fc.subarray(['x', 'y', 'x,y'], { minLength: 1 }).map((list) => () => z.enum(list)),
    fc.subarray(['x', 'y'], { minLength: 1 }).map((list) => () => z.array(z.enum(list)).min(1)),
  )
  return fc
    .tuple(base, note, fc.constantFrom('plain', 'optional', 'nullable', 'default'))
    .map(([make, description, wrapper]) => () => {
      const inner: z.ZodType = description === undefined ? make() : make().describe(description)
      if (wrapper === 'optional') return inner.optional()
      if (wrapper === 'nullable') return inner.nullable()
      return wrapper === 'default' && inner instanceof z.ZodBoolean ? inner.default(true) : inner
    })
}

function anAnswer(): fc.Arbitrary<unknown> {
  const value = fc.constantFrom('x', 'y', 'x,y', '', 'abcdef', 'a@b.de', true, 1, 2, 4.5, null, ['x'])
  return fc.dictionary(fc.constantFrom('a', 'b', 'c d', '=', ',1.a', 'other'), value)
}

function withConversion(): unknown {
  const schema = z.string()
  schema._zod.toJSONSchema = () => ({ type: 'string', title: 'mine' })
  return z.object({ a: schema })
}

function withStandard(): unknown {
  const schema = z.object({ a: z.string() })
  const own = { ...schema['~standard'], validate: () => ({ value: 'mine' }) }
  Object.defineProperty(schema, '~standard', { value: own })
  return schema
}

function recursive(): unknown {
  const Node = z.object({
    get next() {
      return z.array(Node)
    },
  })
  return Node
}

function throwing(): unknown {
  return z.object({
    get a(): z.ZodString {
      throw new Error('no')
    },
  })
}

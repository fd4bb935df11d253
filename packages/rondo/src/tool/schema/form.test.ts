import { toStandardJsonSchema } from '@valibot/to-json-schema'
import { type } from 'arktype'
import * as v from 'valibot'
import { describe, expect, it } from 'vitest'
import * as z from 'zod'
import { hasAnEnd } from '../../../../../test/support/has-an-end.ts'
import type { Schema } from '../context.ts'
import { compileForm } from './form.ts'
import type { Result } from './judge.ts'
import { compileEvent } from './schema.ts'

/** One form in every library, and what the client is sent for it. */
const wire = {
  type: 'object',
  properties: {
    name: {
      type: 'string',
      minLength: 2,
      maxLength: 20,
      title: 'Your name',
      description: 'As in your passport',
    },
    email: { type: 'string', format: 'email' },
    site: { type: 'string', format: 'uri' },
    age: { type: 'integer', minimum: 18, maximum: 120 },
    rate: { type: 'number', minimum: 0 },
    agreed: { type: 'boolean' },
    size: { type: 'string', enum: ['L', 'M'] },
    tags: { type: 'array', items: { type: 'string', enum: ['a', 'b', 'c'] }, minItems: 1, maxItems: 2 },
    note: { type: 'string' },
    nick: { type: 'string' },
  },
  required: ['name', 'email', 'site', 'age', 'rate', 'agreed', 'size', 'tags'],
}

const forms: Record<string, Schema> = {
  zod: z.object({
    name: z.string().min(2).max(20).meta({ title: 'Your name', description: 'As in your passport' }),
    email: z.email(),
    site: z.url(),
    age: z.int().min(18).max(120),
    rate: z.number().min(0),
    agreed: z.boolean(),
    size: z.enum(['L', 'M']),
    tags: z
      .array(z.enum(['a', 'b', 'c']))
      .min(1)
      .max(2),
    note: z.string().optional(),
    nick: z.string().nullable(),
  }),
  valibot: toStandardJsonSchema(
    v.object({
      name: v.pipe(
        v.string(),
        v.minLength(2),
        v.maxLength(20),
        v.title('Your name'),
        v.description('As in your passport'),
      ),
      email: v.pipe(v.string(), v.email()),
      site: v.pipe(v.string(), v.url()),
      age: v.pipe(v.number(), v.integer(), v.minValue(18), v.maxValue(120)),
      rate: v.pipe(v.number(), v.minValue(0)),
      agreed: v.boolean(),
      size: v.picklist(['L', 'M']),
      tags: v.pipe(v.array(v.picklist(['a', 'b', 'c'])), v.minLength(1), v.maxLength(2)),
      note: v.optional(v.string()),
      nick: v.nullable(v.string()),
    }),
  ),
  arktype: type({
    name: type('2 <= string <= 20').configure({
      title: 'Your name',
      description: 'As in your passport',
    } as object),
    email: 'string.email',
    site: 'string.url',
    age: '18 <= number.integer <= 120',
    rate: 'number >= 0',
    agreed: 'boolean',
    size: "'L' | 'M'",
    tags: type("('a' | 'b' | 'c')[]").atLeastLength(1).atMostLength(2),
    'note?': 'string',
    nick: 'string | null',
  }),
}

const content = {
  name: 'Ada',
  email: 'ada@example.org',
  site: 'https://example.org',
  age: 36,
  rate: 0.5,
  agreed: true,
  size: 'M',
  tags: ['a', 'c'],
}

describe.each(Object.entries(forms))('a form of %s', (_vendor, schema) => {
  const form = compileForm(schema)

  it('is sent to the client in the restricted form schema', () => {
    const { required, ...rest } = form.json as { required: string[] }
    expect(rest).toEqual({ type: wire.type, properties: wire.properties })
    expect([...required].sort()).toEqual([...wire.required].sort())
  })

  it('returns what the schema makes of the answer; a nullable field that is left out is null', async () => {
    expect(await form.validate({ ...content, unknown: 'dropped' })).toEqual({
      ok: true,
      value: { ...content, nick: null },
      content,
    })
  })

  it('B17 says what is wrong in sentences for the person who answered', async () => {
    const answer = {
      ...content,
      name: 'A',
      email: 'ada',
      site: 'example',
      age: 17,
      size: 'XL',
      tags: [],
      rate: '1',
    }
    const result = (await form.validate(answer)) as Extract<Result, { ok: false }>
    expect(Object.fromEntries(result.problems.map(({ path, message }) => [path, message]))).toEqual({
      name: 'Your name must have at least 2 characters',
      email: 'Email must be an e-mail address, such as name@example.org',
      site: 'Site must be a full URL, such as https://example.org/page',
      age: 'Age must be at least 18',
      rate: 'Rate must be a number',
      size: 'Size must be one of: L, M',
      tags: 'Tags needs at least 1 choice',
    })
  })

  it.each([undefined, null, 'text', 5, [], Object.create({ name: 'Ada' })])(
    'B17 takes %j for an empty answer',
    async (answer) => {
      const result = await form.validate(answer)
      expect(!result.ok && result.problems.map(({ message }) => message)).toContain('Your name is required')
    },
  )
})

describe('fields of a form', () => {
  it('a form keeps the order, titles and defaults of its fields', async () => {
    const schema = z.object({
      zulu: z.string().default('z'),
      alpha: z.boolean().default(false).meta({ title: 'First' }),
      mike: z.array(z.enum(['x', 'y'])).default(['y']),
    })
    expect(compileForm(schema).fields).toEqual([
      { name: 'zulu', title: 'Zulu', type: 'text', limits: {}, required: false, default: 'z' },
      { name: 'alpha', title: 'First', type: 'boolean', limits: {}, required: false, default: false },
      {
        name: 'mike',
        title: 'Mike',
        type: 'choices',
        limits: {},
        options: [
          { value: 'x', title: 'x' },
          { value: 'y', title: 'y' },
        ],
        required: false,
        default: ['y'],
      },
    ])
    expect(compileForm(schema).json.required).toBeUndefined()
    expect(await compileForm(schema).validate({})).toMatchObject({
      ok: true,
      value: { zulu: 'z', alpha: false, mike: ['y'] },
    })
  })

  it('B17 the schema itself checks a rule that a form cannot express', async () => {
    const schema = z
      .object({
        zip: z.string().regex(/^\d{5}$/, 'must be five digits'),
        from: z.int(),
        to: z.int(),
        n: z.number().positive(),
      })
      .refine((trip) => trip.from < trip.to, 'The trip must end after it starts')
    const form = compileForm(schema)
    expect(await form.validate({ zip: '123', from: 1, to: 2, n: 0 })).toEqual({
      ok: false,
      problems: [
        { path: 'zip', message: 'Zip: must be five digits' },
        { path: 'n', message: expect.stringMatching(/^N: /) },
      ],
    })
    expect(await form.validate({ zip: '12345', from: 2, to: 1, n: 1 })).toEqual({
      ok: false,
      problems: [{ path: '', message: 'The trip must end after it starts' }],
    })
  })

  it('B17 the schema may check asynchronously', async () => {
    const form = compileForm(
      z.object({ name: z.string().refine(async (name) => name !== 'taken', 'is taken') }),
    )
    expect(await form.validate({ name: 'taken' })).toEqual({
      ok: false,
      problems: [{ path: 'name', message: 'Name: is taken' }],
    })
  })

  it('B17 the form alone checks the fields of a plain schema', async () => {
    const form = compileForm({
      type: 'object',
      properties: { n: { type: 'integer', minimum: 3 } },
      required: ['n'],
    })
    expect(await form.validate({ n: 3, other: 1 })).toEqual({ ok: true, value: { n: 3 }, content: { n: 3 } })
    expect(await form.validate({ n: 2 })).toEqual({
      ok: false,
      problems: [{ path: 'n', message: 'N must be at least 3' }],
    })
    expect(await form.validate({ n: null })).toEqual({
      ok: false,
      problems: [{ path: 'n', message: 'N is required' }],
    })
  })

  it('compileForm compiles once for one schema, and once for schemas with the same JSON', async () => {
    const make = (word: string) => z.object({ a: z.string().refine((text) => text !== word, `not ${word}`) })
    const first = make('one')
    expect(compileForm(first)).toBe(compileForm(first))
    const second = compileForm(make('two'))
    expect(second.json).toBe(compileForm(first).json)
    expect(await second.validate({ a: 'two' })).toEqual({
      ok: false,
      problems: [{ path: 'a', message: 'A: not two' }],
    })
    expect(await compileForm(first).validate({ a: 'two' })).toMatchObject({ ok: true, value: { a: 'two' } })
  })

  it('R3 a field has the default that a function computes now, not that of an earlier schema', async () => {
    let today = 1
    const make = () => z.object({ day: z.number().default(() => today) })
    expect(compileForm(make()).json).toMatchObject({ properties: { day: { default: 1 } } })
    today = 2
    const later = compileForm(make())
    expect(later.json).toMatchObject({ properties: { day: { default: 2 } } })
    expect(await later.validate({})).toMatchObject({ value: { day: 2 } })
  })

  const codes: [string, (limit: number) => z.ZodType<number>][] = [
    ['a refinement', (limit) => z.number().refine((value) => value < limit)],
    ['a transform', (limit) => z.number().transform((value) => Math.min(value, limit - 1))],
  ]
  it.each(codes)('R3 T1 the code of its own call judges a field with %s', async (_name, make) => {
    const judge = async (limit: number) => {
      const schema = z.object({ count: make(limit) })
      const control = await schema['~standard'].validate({ count: 10 })
      const want = control.issues ? { ok: false } : { ok: true, value: control.value }
      expect(await compileEvent(schema).validate({ count: 10 })).toMatchObject(want)
      expect(await compileForm(schema).validate({ count: 10 })).toMatchObject(want)
      return JSON.stringify(want)
    }
    for (let round = 0; round < 3; round++) expect(await judge(50)).not.toBe(await judge(5))
  })

  it('T7 a form reads nothing else of an answer, however much it holds', async () => {
    const form = compileForm(z.object({ a: z.string() }))
    const junk = Object.fromEntries(Array.from({ length: 200_000 }, (_, i) => [`k${i}`, 'x'.repeat(20)]))
    const answer = { ...junk, a: 'yes' }
    expect(await hasAnEnd(() => form.validate(answer))).toEqual({
      ok: true,
      value: { a: 'yes' },
      content: { a: 'yes' },
    })
  })
})

describe('fields that ask for secrets', () => {
  it('T5 compileForm refuses them by name or by title, unless the author says why', () => {
    const byName = z.object({ apiKey: z.string() })
    const byTitle = z.object({ code: z.string().meta({ title: 'Your PIN' }) })
    expect(() => compileForm(byName)).toThrow(
      /"apiKey" looks like a secret \(api key\).*ctx\.visit.*allowSecretLike/,
    )
    expect(() => compileForm(byTitle)).toThrow(/"code" looks like a secret \(pin\)/)
    expect(() => compileForm(byName, { allowSecretLike: ' ' })).toThrow(TypeError)
    expect(compileForm(byName, { allowSecretLike: 'the name of a piano key' }).fields).toHaveLength(1)
    expect(() => compileForm(byName)).toThrow(TypeError)
  })

  it('T5 compileForm refuses them although the same form was allowed elsewhere', () => {
    const make = () => z.object({ password: z.string() })
    for (let round = 0; round < 3; round++) {
      expect(compileForm(make(), { allowSecretLike: 'It is the name of a dog' }).fields).toHaveLength(1)
      expect(() => compileForm(make())).toThrow('looks like a secret')
    }
  })

  it('T5 are recognised by text alone: a boolean or a choice may have such a name', () => {
    expect(
      compileForm(z.object({ resetPassword: z.boolean(), token: z.enum(['bearer', 'mac']) })).fields,
    ).toHaveLength(2)
    expect(() => compileForm(z.object({ pin: z.int() }))).toThrow(/pin/)
  })
})

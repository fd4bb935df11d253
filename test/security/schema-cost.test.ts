/**
 * Values that make a schema slow. Work is counted, not timed: the tests count every access to the value.
 */

import { randomBytes } from 'node:crypto'
import { Validator } from '@cfworker/json-schema'
import { toStandardJsonSchema } from '@valibot/to-json-schema'
import * as v from 'valibot'
import { describe, expect, it } from 'vitest'
import { z } from 'zod'
import { createServer } from '../../packages/rondo/src/index.ts'
import type { Schema } from '../../packages/rondo/src/tool/context.ts'
import { boundValue } from '../../packages/rondo/src/tool/schema/bound.ts'
import { compileForm } from '../../packages/rondo/src/tool/schema/form.ts'
import { compileSchema } from '../../packages/rondo/src/tool/schema/schema.ts'
import { callTool } from '../support/echo-service.ts'

const KEYS = `k:${randomBytes(32).toString('base64')}`

/** An expression: every operator has the same operands, and only `op` tells them apart. */
const OPERATORS = ['add', 'sub', 'mul', 'div']
const expression = {
  type: 'object',
  properties: { tree: { $ref: '#/$defs/node' } },
  required: ['tree'],
  $defs: {
    node: {
      oneOf: [
        { type: 'number' },
        ...OPERATORS.map((op) => ({
          type: 'object',
          properties: { op: { const: op }, l: { $ref: '#/$defs/node' } },
          required: ['op', 'l'],
        })),
      ],
    },
  },
}

interface Chain {
  op: string
  l: Chain | number | string
}

const chain = (depth: number, end: number | string = 1): Chain => ({
  op: 'add',
  l: depth === 1 ? end : chain(depth - 1, end),
})

/** The value, and how often it was accessed. */
function counted(value: object): { value: object; looks: () => number } {
  let looks = 0
  const watch = <T>(part: T): T => {
    if (typeof part !== 'object' || part === null) return part
    const inner: object = Object.fromEntries(Object.entries(part).map(([name, one]) => [name, watch(one)]))
    const count = <R>(result: R): R => {
      looks++
      return result
    }
    return new Proxy(inner, {
      get: (target, name) => count(Reflect.get(target, name)),
      ownKeys: (target) => count(Reflect.ownKeys(target)),
      has: (target, name) => count(Reflect.has(target, name)),
      getOwnPropertyDescriptor: (target, name) => count(Reflect.getOwnPropertyDescriptor(target, name)),
    }) as T
  }
  return { value: watch(value), looks: () => looks }
}

function looksOf(check: (value: unknown) => unknown, depth: number, end: number | string): number {
  const { value, looks } = counted({ tree: chain(depth, end) })
  check(value)
  return looks()
}

describe.each([
  ['that fits', 1],
  ['that fails at its deepest place', 'no'],
])('T11a an expression %s', (_name, end) => {
  it('costs time in proportion to its depth', () => {
    const { validate } = compileSchema(expression, 'input')
    const [short, long] = [looksOf(validate, 20, end), looksOf(validate, 60, end)]
    expect(short).toBeGreaterThan(20)
    expect(long / short).toBeLessThan(4)
  })

  it('control: takes exponential time in an engine without memoization', () => {
    const engine = new Validator(expression as never, '2020-12', false)
    const validate = (value: unknown): unknown => engine.validate(value)
    expect(looksOf(validate, 6, end) / looksOf(validate, 3, end)).toBeGreaterThan(16)
  })
})

describe('T11a a recursive union of a library', () => {
  const op = v.literal('add')
  const node: v.GenericSchema = v.lazy(() =>
    v.union([
      v.number(),
      v.object({ op, x: v.literal(1), l: node }),
      v.object({ op, y: v.literal(1), l: node }),
      v.object({ op, l: node }),
    ]),
  )
  const schema = v.object({ tree: node })
  const { validate } = compileSchema(toStandardJsonSchema(schema), 'input')

  it('receives a value that it can validate', async () => {
    expect(await validate({ tree: chain(4) })).toMatchObject({ ok: true })
  })

  it('never receives a value that it would try in billions of ways', () => {
    // Control: the library itself reads the value again in every alternative, at every level.
    const parse = (value: unknown): unknown => v.safeParse(schema, value)
    expect(looksOf(parse, 6, 1) / looksOf(parse, 3, 1)).toBeGreaterThan(16)
    expect(looksOf(validate, 60, 1) / looksOf(validate, 20, 1)).toBeLessThan(4)
    expect(validate({ tree: chain(40) })).toEqual({
      ok: false,
      problems: [{ path: '', message: 'The value is nested too deeply for the alternatives of this schema' }],
    })
  })

  it('receives a deep value if the library memoizes', async () => {
    const kept: z.ZodType = z.lazy(() =>
      z.union([z.number(), ...OPERATORS.map((op) => z.object({ op: z.literal(op), l: kept }))]),
    )
    const schema = compileSchema(z.object({ tree: kept }), 'input')
    expect(await schema.validate({ tree: chain(40) })).toMatchObject({ ok: true })
  })

  it('receives such a value if a constant selects the alternative', async () => {
    const picked: v.GenericSchema = v.lazy(() =>
      v.variant(
        'op',
        OPERATORS.map((op) => v.object({ op: v.literal(op), l: v.union([v.number(), picked]) })) as never,
      ),
    )
    const described = toStandardJsonSchema(v.object({ tree: picked }))
    const schema = compileSchema(described, 'input')
    expect(await schema.validate({ tree: chain(40) })).toMatchObject({ ok: true })
  })

  it('receives a long list', async () => {
    const item = z.union([z.object({ a: z.number() }), z.object({ b: z.string() }), z.string()])
    const schema = compileSchema(z.object({ list: z.array(item) }), 'input')
    const list = Array.from({ length: 50_000 }, (_, i) => (i % 2 ? { a: i } : { b: 'b' }))
    expect(await schema.validate({ list })).toMatchObject({ ok: true })
  })
})

describe('T11b a pattern of polynomial time', () => {
  // Takes minutes on 4 KiB without a limit.
  const pattern = /^[a-z]+ ?[a-z]+ ?[a-z]+$/
  const attack = `${'a'.repeat(4096)}!`
  let runs = 0
  const text = z
    .string()
    .regex(pattern)
    .refine(() => ++runs > 0)

  it.each<[string, Schema, unknown]>([
    [
      'plain JSON Schema',
      { type: 'object', properties: { a: { type: 'string', pattern: pattern.source } } },
      attack,
    ],
    ['zod', z.object({ a: text }), attack],
    ['zod, in a union', z.object({ a: z.union([z.number(), text, z.null()]) }), attack],
    ['zod, as the key of a record', z.object({ a: z.record(text, z.any()) }), { [attack.slice(0, 1020)]: 1 }],
  ])('is not matched against a long argument: %s', async (_name, schema, value) => {
    runs = 0
    const { validate } = compileSchema(schema, 'input')
    expect(await validate({ a: value })).toEqual({
      ok: false,
      problems: [
        {
          path: expect.stringMatching(/^a/),
          message: expect.stringMatching(/at most 1000 characters are allowed where a pattern applies$/),
        },
      ],
    })
    expect(runs).toBe(0)
  })

  it('is matched if the schema has a maxLength, or the text is encoded bytes', async () => {
    const allowing = compileSchema(z.object({ a: z.string().regex(/^a+$/).max(5000) }), 'input')
    expect(await allowing.validate({ a: 'a'.repeat(4096) })).toMatchObject({ ok: true })
    const bytes = compileSchema(z.object({ a: z.base64() }), 'input')
    expect(await bytes.validate({ a: 'YWFh'.repeat(50_000) })).toMatchObject({ ok: true })
  })

  it('is not matched against a long answer', async () => {
    runs = 0
    const form = compileForm(z.object({ a: text }))
    expect(await form.validate({ a: attack })).toMatchObject({
      ok: false,
      problems: [{ path: 'a', message: expect.stringMatching(/^A: .*at most 1000 characters/) }],
    })
    expect(runs).toBe(0)
    expect(await form.validate({ a: 'ab cd ef' })).toMatchObject({ ok: true })
    expect(runs).toBe(1)
  })
})

it('T11 the judge walks the schema of a library only where it has a pattern or a reference', () => {
  expect(
    boundValue({ anyOf: [{ type: 'string', maxLength: 5 }, { items: { type: 'null' } }] }),
  ).toBeUndefined()
  expect(boundValue({ anyOf: [{ not: { pattern: 'a' } }] })).toBeTypeOf('function')
  expect(boundValue({ patternProperties: { a: true } })).toBeTypeOf('function')
  expect(boundValue({ $defs: { a: { $ref: '#' } } })).toBeTypeOf('function')
})

describe('T11 at a server', () => {
  const call = async (limits: object, args: Record<string, unknown>): Promise<string> => {
    const server = createServer({ name: 'cost', version: '1', log: 'off', keys: KEYS, limits })
    server.tool('calc', { input: expression }, () => 'calculated')
    server.tool('say', { input: z.object({ text: z.string() }) }, ({ text }) => `${text.length}`)
    const { message, headers } = callTool('tree' in args ? 'calc' : 'say', args)
    const response = await server.fetch(
      new Request('http://localhost/mcp', { method: 'POST', headers, body: JSON.stringify(message) }),
    )
    await server.close()
    return response.text()
  }

  it('an expression of 60 levels gets a result', async () => {
    expect(await call({}, { tree: chain(60) })).toContain('calculated')
    expect(await call({}, { tree: chain(60, 'no') })).toContain('isError')
  })

  it('one text is limited by maxTextLength', async () => {
    expect(await call({ maxTextLength: 10 }, { text: 'x'.repeat(10) })).toContain('"10"')
    expect(await call({ maxTextLength: 10 }, { text: 'x'.repeat(11) })).toContain(
      'text: The text is longer than 10 characters',
    )
  })
})

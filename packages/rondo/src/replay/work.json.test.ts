import { describe, expect, it } from 'vitest'
import { whyNotJson } from './work.ts'

class Order {}
const nest = (levels: number, around: (inner: unknown) => unknown): unknown => {
  let value: unknown = 1
  for (let i = 0; i < levels; i++) value = around(value)
  return value
}
const nameless = Object.create(Object.create({}, { constructor: { value: undefined } }))
const numbered = Object.create({ constructor: { name: 7 } })

describe('a result that JSON keeps as it is', () => {
  it.each<[string, unknown]>([
    ['nothing', undefined],
    ['null', null],
    ['text, a number and a boolean', ['', 0, -1.5, false]],
    ['a member that is undefined', { a: undefined, b: 1 }],
    ['an object without a prototype', Object.assign(Object.create(null), { a: 1 })],
    ['an array of 1,000 levels', nest(1_000, (inner) => [inner])],
    ['an object of 1,000 levels', nest(1_000, (inner) => ({ inner }))],
  ])('can be recorded: %s', (_what, value) => {
    expect(whyNotJson(value)).toBeUndefined()
  })
})

describe('a result that JSON would change', () => {
  it.each<[unknown, string]>([
    [Number.NaN, 'the value itself is NaN'],
    [Number.POSITIVE_INFINITY, 'the value itself is Infinity'],
    [1n, 'the value itself is a bigint'],
    [() => {}, 'the value itself is a function'],
    [Symbol('x'), 'the value itself is a symbol'],
    [new Date(0), 'the value itself is a Date'],
    [new Order(), 'the value itself is a Order'],
    [new (class {})(), 'the value itself is an object of a class'],
    [nameless, 'the value itself is an object of a class'],
    [numbered, 'the value itself is an object of a class'],
    [[1, undefined], '[1] is a undefined'],
    [[[1], [2, [new Map()]]], '[1][1][0] is a Map'],
    [{ a: 1, b: { c: [new Set()] } }, 'b.c[0] is a Set'],
    [{ a: {}, b: Number.NaN }, 'b is NaN'],
    [{ [`${'k'.repeat(300)}`]: 1n }, `${'k'.repeat(200)} is a bigint`],
    [
      nest(1_001, (inner) => [inner]),
      `${'[0]'.repeat(1_000).slice(0, 200)} is nested deeper than 1000 levels`,
    ],
    [
      nest(1_001, (inner) => ({ i: inner })),
      `${'i.'.repeat(1_000).slice(0, 200)} is nested deeper than 1000 levels`,
    ],
    [
      {
        get a() {
          throw new Error('unreadable')
        },
      },
      'reading it throws',
    ],
  ])('is refused with its place: %#', (value, why) => {
    expect(whyNotJson(value)).toBe(why)
  })
})

/** The cases of a contract as data, and their `expect`: a contract whose checks cannot fail would accept every store. */

import { AssertionError } from 'node:assert'
import { describe, expect, it } from 'vitest'
import * as suite from './harness.ts'

describe('cases', () => {
  const log: string[] = []
  const cases = suite.collect('a store', () => {
    let count = 0
    suite.beforeEach(() => log.push(`open ${++count}`))
    suite.afterEach(() => log.push('close'))
    suite.it('passes', () => log.push('passes'))
    suite.describe('part', () => {
      suite.beforeEach(() => log.push('prepare'))
      suite.afterEach(() => log.push('tidy'))
      suite.it('fails', () => suite.expect(1, 'here').toBe(2))
    })
  })
  const run = async (at: number) => {
    log.length = 0
    const error = await cases[at]?.run().catch((reason: unknown) => reason)
    return { error, log: [...log] }
  }

  it('J3 have a group and a name, and run with the hooks around them, whether or not they fail', async () => {
    expect(cases.map(({ group, name }) => [group, name])).toEqual([
      ['a store', 'passes'],
      ['a store: part', 'fails'],
    ])
    expect(await run(0)).toEqual({ error: undefined, log: ['open 1', 'passes', 'close'] })
    const failed = await run(1)
    expect(failed.log).toEqual(['open 1', 'prepare', 'tidy', 'close'])
    expect(failed.error).toBeInstanceOf(AssertionError)
    expect(failed.error).toMatchObject({ actual: 1, expected: 2, message: 'here: expected 1 to be 2' })
  })

  it('J3 share no variables, however often and in whichever order they run', async () => {
    await run(1)
    expect((await run(0)).log[0]).toBe('open 1')
  })

  it('report a failure of closing, but not instead of their own', async () => {
    const close = () => Promise.reject(new Error('cannot close'))
    const [good, bad] = suite.collect('s', () => {
      suite.afterEach(close)
      suite.it('good', () => {})
      suite.it('bad', () => Promise.reject(new Error('its own')))
    })
    await expect(good?.run()).rejects.toThrow('cannot close')
    await expect(bad?.run()).rejects.toThrow('its own')
  })
})

describe('expect', () => {
  const different: [unknown, unknown][] = [
    [1, 2],
    [0, '0'],
    [null, undefined],
    [{ a: 1 }, { a: 2 }],
    [{ a: 1 }, { a: 1, b: 2 }],
    [{}, []],
    [[1, 2], [1]],
    [
      [1, 2],
      [2, 1],
    ],
    [new Map([['a', 1]]), new Map([['a', 2]])],
    [new Map([['a', undefined]]), new Map([['b', undefined]])],
    [new Map(), {}],
    [new Set(['a']), new Set(['b'])],
    [new Set(), new Map()],
    [{ deep: [{ a: new Map([['k', { v: 1 }]]) }] }, { deep: [{ a: new Map([['k', { v: 2 }]]) }] }],
  ]

  it.each(different)('tells %j and %j apart', (a, b) => {
    expect(() => suite.expect(a).toEqual(b)).toThrow(AssertionError)
    expect(() => suite.expect(b).toEqual(a)).toThrow(AssertionError)
    suite.expect(a).not.toEqual(b)
    suite.expect(structuredClone(a)).toEqual(a)
    expect(() => suite.expect(structuredClone(a)).not.toEqual(a)).toThrow(AssertionError)
  })

  it('matches a part of an object, but no other object, and no other list', () => {
    suite.expect({ a: 1, b: { c: [{ d: 1, e: 2 }] } }).toMatchObject({ b: { c: [{ d: 1 }] } })
    for (const [actual, wanted] of [
      [{ a: 1 }, { a: 2 }],
      [{ a: 1 }, { b: undefined, a: undefined }],
      [undefined, {}],
      [[1, 2], [1]],
      [{ a: new Map([['k', 1]]) }, { a: new Map() }],
    ])
      expect(() => suite.expect(actual).toMatchObject(wanted)).toThrow(AssertionError)
  })

  it('fails where a check does not hold', async () => {
    const fails: (() => unknown)[] = [
      () => suite.expect(Number.NaN).toBe(0),
      () => suite.expect(null).toBeUndefined(),
      () => suite.expect(['a']).toContain('b'),
      () => suite.expect(['a']).not.toContain('a'),
      () => suite.expect(['a']).toHaveLength(2),
      () => suite.expect(1).toBeGreaterThan(1),
      () => suite.expect(1).toBeLessThan(1),
      () => suite.expect(Promise.resolve()).rejects.toThrow(),
      () => suite.expect(Promise.reject(new Error('one'))).rejects.toThrow('two'),
      () => suite.expect(Promise.reject(new Error('one'))).rejects.toMatchObject({ code: 'X' }),
    ]
    for (const check of fails) await expect((async () => check())()).rejects.toBeInstanceOf(AssertionError)
    await suite.expect(Promise.reject(new Error('one'))).rejects.toThrow('on')
  })
})

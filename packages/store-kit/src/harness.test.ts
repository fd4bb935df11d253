/** The cases of a contract as data, and their checks: a contract whose checks cannot fail would accept every store. */

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
      suite.it('fails', () => suite.assertEqual(1, 2, 'here'))
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
    expect(failed.error).toMatchObject({ actual: 1, expected: 2, message: expect.stringMatching(/^here: /) })
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

describe('checks', () => {
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
    [new Uint8Array([1]), new Uint8Array([2])],
    [new Date(1), new Date(2)],
    [{ deep: [{ a: new Map([['k', { v: 1 }]]) }] }, { deep: [{ a: new Map([['k', { v: 2 }]]) }] }],
  ]

  it.each(different)('assertEqual tells %j and %j apart', (a, b) => {
    expect(() => suite.assertEqual(a, b)).toThrow(AssertionError)
    expect(() => suite.assertEqual(b, a)).toThrow(AssertionError)
    suite.assertEqual(structuredClone(a), a)
  })

  it('assertEqual ignores prototypes, and properties that are undefined', () => {
    suite.assertEqual(Object.assign(Object.create(null), { a: [{ b: 1 }] }), { a: [{ b: 1, c: undefined }] })
    suite.assertEqual(Buffer.from('a'), new Uint8Array([97]))
  })

  it('assertMatch accepts a part of an object, but no other object, and no other list', () => {
    suite.assertMatch({ a: 1, b: { c: [{ d: 1, e: 2 }] } }, { b: { c: [{ d: 1 }] } })
    for (const [actual, wanted] of [
      [{ a: 1 }, { a: 2 }],
      [{ a: 1 }, { b: undefined, a: undefined }],
      [undefined, {}],
      [[1, 2], [1]],
      [[1], [1, 2]],
      [{ a: new Map([['k', 1]]) }, { a: new Map() }],
    ])
      expect(() => suite.assertMatch(actual, wanted)).toThrow(AssertionError)
  })
})

import fc from 'fast-check'
import { describe, expect, it, onTestFinished, vi } from 'vitest'
import { createIdReader, readRequestId } from './request-id.ts'

describe('readRequestId', () => {
  it.each([
    ['N3 broken JSON', '{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"x":NaN}}', 5],
    [
      'N3 an id after the parameters',
      '{"method":"m","params":{"id":1,"a":[{"id":2}]},"id":"x\\"\\u0031"}',
      'x"1',
    ],
    ['N3 an unfinished message', `{"id": 7 ,"method":"m","params":${'['.repeat(5000)}`, 7],
    ['N3 an escaped name', '{"\\u0069d":3,"method":"m"}', 3],
    ['N3 a name between spaces', '{\n  "jsonrpc" : "2.0",\n  "id" : 4,\n  "method" : "m",', 4],
    [
      'N3 names that are escaped throughout',
      '{"\\u006d\\u0065\\u0074\\u0068\\u006f\\u0064":"m","\\u0069\\u0064":8,',
      8,
    ],
    ['two ids', '{"id":1,"id":2,"method":"m"}', null],
    ['two ids, one of them escaped', '{"id":1,"method":"m","\\u0069d":2}', null],
    ['a response', '{"id":1,"result":{"method":"m"}}', null],
    ['a batch', '[{"id":1,"method":"m"}]', null],
    ['a notification', '{"method":"m","params":{"id":1}}', null],
    ['an id in a string', '{"method":"\\"id\\":1,","params":"\\\\"}', null],
    ['an id that is no id', '{"id":{"a":1},"method":"m"}', null],
    ['an id that is a fraction', '{"id":1.5,"method":"m"}', null],
    ['an endless id', `{"id":"${'x'.repeat(5000)}","method":"m"}`, null],
    ['garbage', 'hello', null],
    ['closing brackets', ']}]}"id":1', null],
    ['nothing', '', null],
  ])('reads the id of %s', (_, text, id) => {
    expect(readRequestId(text)).toBe(id)
  })

  it.each([
    ['members', '"other1":1,'],
    ['ids', '"id":1,'],
  ])('N3 parses the id and little else, although a message has 10,000 %s', (_, member) => {
    const parse = vi.spyOn(JSON, 'parse')
    onTestFinished(() => parse.mockRestore())
    readRequestId(`{"id":1,"method":"m",${member.repeat(10_000)}`)
    expect(parse.mock.calls.length).toBeLessThan(5)
  })

  it('agrees with JSON.parse, however the bytes are cut', () => {
    const id = fc.oneof(fc.string({ unit: 'binary', maxLength: 8 }), fc.maxSafeInteger())
    fc.assert(
      fc.property(
        id,
        fc.jsonValue({ maxDepth: 2 }),
        fc.nat(3),
        fc.integer({ min: 1, max: 9 }),
        (id, params, at, step) => {
          const rest: [string, unknown][] = [
            ['jsonrpc', '2.0'],
            ['method', 'm'],
            ['params', params],
          ]
          rest.splice(at, 0, ['id', id])
          const bytes = new TextEncoder().encode(JSON.stringify(Object.fromEntries(rest)))
          const reader = createIdReader()
          for (let i = 0; i < bytes.length; i += step) reader.push(bytes.subarray(i, i + step))
          expect(reader.id()).toBe(JSON.parse(new TextDecoder().decode(bytes)).id)
        },
      ),
    )
  })
})

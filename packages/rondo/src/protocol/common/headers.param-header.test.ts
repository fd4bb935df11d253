import { describe, expect, it } from 'vitest'
import { paramHeaderValues, scanParamHeaders } from './headers.ts'

const object = (properties: object, more: object = {}) => ({ type: 'object', properties, ...more })

describe('scanning a schema for mirrored arguments', () => {
  it('finds annotated properties at any depth', () => {
    const schema = object({
      region: { type: 'string', 'x-mcp-header': 'Region' },
      plain: { type: 'string' },
      shard: object({ number: { type: 'integer', 'x-mcp-header': 'Shard' } }),
      dry: { type: 'boolean', 'x-mcp-header': 'Dry-Run' },
    })
    expect(scanParamHeaders(schema)).toEqual({
      kind: 'good',
      headers: [
        { header: 'Region', path: ['region'] },
        { header: 'Shard', path: ['shard', 'number'] },
        { header: 'Dry-Run', path: ['dry'] },
      ],
    })
  })

  it('accepts a property that has the name of a keyword', () => {
    const schema = object({ items: { type: 'string', 'x-mcp-header': 'Items' } })
    expect(scanParamHeaders(schema)).toEqual({
      kind: 'good',
      headers: [{ header: 'Items', path: ['items'] }],
    })
  })

  it('ignores values', () => {
    const schema = object({ a: { type: 'object', default: { 'x-mcp-header': 'Bad One' } } })
    expect(scanParamHeaders(schema)).toEqual({ kind: 'good', headers: [] })
  })

  it.each([
    ['an empty name', object({ a: { type: 'string', 'x-mcp-header': '' } })],
    ['a blank', object({ a: { type: 'string', 'x-mcp-header': 'My Region' } })],
    ['a colon', object({ a: { type: 'string', 'x-mcp-header': 'Region:Primary' } })],
    ['a control character', object({ a: { type: 'string', 'x-mcp-header': 'Region\t1' } })],
    ['another script', object({ a: { type: 'string', 'x-mcp-header': 'Région' } })],
    ['no string', object({ a: { type: 'string', 'x-mcp-header': 7 } })],
    ['an object', object({ a: { type: 'object', 'x-mcp-header': 'A' } })],
    ['an array', object({ a: { type: 'array', 'x-mcp-header': 'A' } })],
    ['null', object({ a: { type: 'null', 'x-mcp-header': 'A' } })],
    ['a number', object({ a: { type: 'number', 'x-mcp-header': 'A' } })],
    ['no type', object({ a: { 'x-mcp-header': 'A' } })],
    ['the root', { type: 'object', 'x-mcp-header': 'A' }],
    ['items', object({ a: { type: 'array', items: { type: 'string', 'x-mcp-header': 'A' } } })],
    ['a branch', { type: 'object', oneOf: [object({ a: { type: 'string', 'x-mcp-header': 'A' } })] }],
    ['a definition', object({}, { $defs: { a: { type: 'string', 'x-mcp-header': 'A' } } })],
    [
      'a name twice',
      object({ a: { type: 'string', 'x-mcp-header': 'A' }, b: { type: 'string', 'x-mcp-header': 'a' } }),
    ],
  ])('refuses an annotation with or on %s', (_what, schema) => {
    expect(scanParamHeaders(schema).kind).toBe('bad')
  })

  it('T22 refuses a schema that is nested very deep', () => {
    let schema: object = {}
    for (let depth = 0; depth < 100_000; depth++) schema = { not: schema }
    expect(scanParamHeaders(schema).kind).toBe('bad')
  })
})

describe('the headers of a call', () => {
  const headers = [
    { header: 'Region', path: ['region'] },
    { header: 'Shard', path: ['shard', 'number'] },
    { header: 'Dry', path: ['dry'] },
  ]

  it('mirrors strings, integers and booleans', () => {
    expect(paramHeaderValues(headers, { region: '東京', shard: { number: 7 }, dry: false })).toEqual({
      'Mcp-Param-Region': '=?base64?5p2x5Lqs?=',
      'Mcp-Param-Shard': '7',
      'Mcp-Param-Dry': 'false',
    })
  })

  it('has none for absent, null and other values', () => {
    expect(paramHeaderValues(headers, { region: null, shard: { number: 1.5 }, dry: ['x'] })).toEqual({})
    expect(paramHeaderValues([{ header: 'X', path: ['constructor', 'name'] }], {})).toEqual({})
  })
})

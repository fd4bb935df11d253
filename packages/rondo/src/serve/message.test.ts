import { readFileSync } from 'node:fs'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { callTool, createEchoService } from '../../../../test/support/echo-service.ts'
import { readMessage, readParsed } from './message.ts'

const service = createEchoService()

function codeOf(decoded: ReturnType<typeof readMessage>): string {
  return decoded.kind === 'refused' ? decoded.error.code : decoded.kind
}

/** A good call with one part of it replaced by any JSON value. */
const mutant = fc
  .tuple(
    fc.constantFrom(
      'jsonrpc',
      'id',
      'method',
      'params',
      'name',
      'arguments',
      '_meta',
      'inputResponses',
      'requestState',
    ),
    fc.jsonValue({ maxDepth: 4 }),
  )
  .map(([field, value]) => {
    const { message } = callTool('region', { region: 'eu' })
    const top = field in message
    return top
      ? { ...message, [field]: value }
      : { ...message, params: { ...(message.params as object), [field]: value } }
  })

describe('readMessage', () => {
  it('never throws, whatever the text', () => {
    fc.assert(
      fc.property(
        fc.oneof(
          fc.string(),
          fc.json(),
          mutant.map((m) => JSON.stringify(m)),
        ),
        (text) => {
          expect(['call', 'notification', 'refused']).toContain(readMessage(text, {}, service).kind)
          expect(['call', 'notification', 'refused']).toContain(readMessage(text, undefined, service).kind)
        },
      ),
    )
  })

  it('P19 changes no prototype, whatever the text', () => {
    const before = Object.getOwnPropertyNames(Object.prototype).length
    fc.assert(
      fc.property(fc.constantFrom('__proto__', 'constructor', 'prototype'), fc.jsonValue(), (name, value) => {
        for (const field of ['arguments', 'inputResponses', '_meta']) {
          const { message } = callTool('echo')
          const params = JSON.stringify({ ...(message.params as object), [field]: { x: value } })
          const text = JSON.stringify({ ...message, params: 0 }).replace('"params":0', `"params":${params}`)
          const { kind } = readMessage(text.replace('"x":', `"${name}":`), undefined, service)
          if (name === '__proto__') expect(kind).toBe('refused')
        }
        expect(Object.getOwnPropertyNames(Object.prototype)).toHaveLength(before)
        expect(({} as Record<string, unknown>).x).toBeUndefined()
      }),
    )
  })

  it.each([
    ['T8 nested too deep', '['.repeat(513) + ']'.repeat(513), 'LIMIT_JSON'],
    ['T8 too heavy', `[${'{},'.repeat(300_000)}{}]`, 'LIMIT_JSON'],
    ['a number that no double can hold', '{"id":1,"method":"m","params":{"a":1e999}}', 'PEER_PARAMS'],
    ['T10 an object with a duplicate key', '{"id":1,"id":2}', 'PEER_REQUEST'],
    ['T9 an object with a forbidden key', '{"__proto__":{}}', 'PEER_REQUEST'],
    ['not JSON', '{', 'PEER_PARSE'],
  ])('refuses text that is %s', (_, text, code) => {
    expect(codeOf(readMessage(text, undefined, service))).toBe(code)
  })

  it.each([
    ['a duplicate key', '{"id":1,"id":2}'],
    ['`__proto__`', '{"__proto__":{}}'],
    ['a batch', '[]'],
    ['a batch, a response', '{"jsonrpc":"2.0","id":1,"result":{}}'],
    ['its id is `null`', '{"jsonrpc":"2.0","id":null,"method":"ping"}'],
    ['The body is not JSON', '{'],
  ])('refuses with the code under which the reference lists: %s', (words, text) => {
    const sections = readFileSync('docs/reference/errors.md', 'utf8').split(/^### /m)
    const named = sections.filter((section) => section.replace(/\s+/g, ' ').includes(words))
    expect(named.map((section) => section.split('\n')[0])).toEqual([
      codeOf(readMessage(text, undefined, service)),
    ])
  })
})

describe('readParsed', () => {
  it('reads a parsed body as if it were text', () => {
    expect(codeOf(readParsed(callTool('echo').message, undefined, service))).toBe('call')
    expect(codeOf(readParsed(JSON.parse('{"__proto__":{}}'), undefined, service))).toBe('PEER_REQUEST')
    expect(codeOf(readParsed('text', undefined, service))).toBe('PEER_REQUEST')
  })

  it('refuses a body that is not JSON or too deep to serialize', () => {
    const loop: Record<string, unknown> = {}
    loop.loop = loop
    expect(codeOf(readParsed(loop, undefined, service))).toBe('LIMIT_JSON')
    expect(codeOf(readParsed({ n: 1n }, undefined, service))).toBe('LIMIT_JSON')
    expect(codeOf(readParsed(() => {}, undefined, service))).toBe('PEER_PARSE')
    const deep = JSON.parse('['.repeat(20_000) + ']'.repeat(20_000))
    expect(codeOf(readParsed(deep, undefined, service))).toBe('LIMIT_JSON')
  })
})

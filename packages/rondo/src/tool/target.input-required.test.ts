import { describe, expect, it } from 'vitest'
import { createRegistry } from './registry.ts'
import { inputRequired, isInputRequired } from './target.ts'

describe('inputRequired', () => {
  const form = { method: 'elicitation/create', params: { message: '?', requestedSchema: {} } }

  it.each([
    { requestState: 'state' },
    { inputRequests: { form } },
    { inputRequests: { form, roots: { method: 'roots/list' } }, requestState: '' },
  ])('accepts %j', (needs) => {
    expect(isInputRequired(inputRequired(needs as never))).toBe(true)
  })

  it.each([
    [{}, /takes inputRequests, requestState, or both/],
    [{ inputRequests: {} }, /leave them out, or add a request/],
    [{ inputRequests: { a: 5 } }, /"a" in the inputRequests of inputRequired\(\) is not an input request/],
    [{ inputRequests: { a: null } }, /"a" in the inputRequests of inputRequired\(\) is not an input request/],
    [{ inputRequests: { a: { method: 'elicitation/create' } } }, /and its params/],
    [{ inputRequests: { a: { method: 'tools/call', params: {} } } }, /one of elicitation\/create/],
    [{ requestState: 5 }, /must be a string: use JSON.stringify/],
  ])('refuses %j and says what to do', (needs, advice) => {
    expect(() => inputRequired(needs as never)).toThrow(advice)
  })
})

describe('a literal { resultType: "input_required" }', () => {
  const literal = { resultType: 'input_required', requestState: 'x' }
  const registry = createRegistry()
  registry.tool('tool', {}, (() => literal) as never)
  registry.prompt('prompt', {}, (() => literal) as never)
  registry.resource('a://b', { name: 'resource' }, (() => literal) as never)

  it.each([
    ['tools/call', 'tool'],
    ['prompts/get', 'prompt'],
    ['resources/read', 'a://b'],
  ] as const)('is refused by %s with a sentence that names inputRequired()', (method, name) => {
    expect(() => registry.find(method, name)?.finish(literal)).toThrow(/Return inputRequired\(\{/)
  })
})

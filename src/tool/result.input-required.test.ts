import { describe, expect, it } from 'vitest'
import { inputRequired, isInputRequired } from './result.ts'

describe('inputRequired', () => {
  const form = { method: 'elicitation/create', params: { message: '?', requestedSchema: {} } }

  it.each([
    { requestState: 'state' },
    { inputRequests: { form } },
    { inputRequests: { form, roots: { method: 'roots/list' } }, requestState: '' },
  ])('takes %j', (needs) => {
    expect(isInputRequired(inputRequired(needs as never))).toBe(true)
  })

  it.each([
    [{}, /takes inputRequests, requestState, or both/],
    [{ inputRequests: {} }, /leave it out, or ask something/],
    [{ inputRequests: { a: 5 } }, /"a" of inputRequired\(\) is no request/],
    [{ inputRequests: { a: null } }, /"a" of inputRequired\(\) is no request/],
    [{ inputRequests: { a: { method: 'elicitation/create' } } }, /and its params/],
    [{ inputRequests: { a: { method: 'tools/call', params: {} } } }, /one of elicitation\/create/],
    [{ requestState: 5 }, /must be a string: use JSON.stringify/],
  ])('says what to do about %j', (needs, advice) => {
    expect(() => inputRequired(needs as never)).toThrow(advice)
  })
})

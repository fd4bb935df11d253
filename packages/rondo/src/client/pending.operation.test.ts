import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import type { InputRequests } from '../protocol/wire.ts'
import {
  abandon,
  answer,
  ask,
  begin,
  deadlineOf,
  type FlowRequest,
  legOf,
  openQuestions,
  pauseOf,
} from './pending.ts'
import { parsePending } from './stored-pending.ts'

const request = { method: 'tools/call', name: 'book', arguments: { id: 1 } } as const
const beginning = {
  id: 'c1',
  server: { target: 'memory:', name: 's', version: '1' },
  protocolVersion: '2026-07-28',
  now: 1_000,
}
const begun = begin<FlowRequest>(request, beginning)
const limits = { maxRounds: 10 }
const questions: InputRequests = {
  a: { method: 'elicitation/create', params: { mode: 'form', message: 'A?', requestedSchema: {} } },
  b: { method: 'roots/list' },
}
const accept = { action: 'accept', content: {} } as const

describe('the steps of a call', () => {
  it('C3 sends the same request on every leg', () => {
    const leg = { kind: 'flow', method: 'tools/call', target: 'book', args: { id: 1 } }
    expect(legOf(begun)).toEqual(leg)
    const asked = ask(begun, { questions: {}, state: 's1', now: 2_000, tookMs: 5 }, limits)
    expect(legOf(asked)).toEqual({ ...leg, requestState: 's1' })
  })

  it('C1 sends nothing while a question is open', () => {
    const asked = ask(begun, { questions, now: 2_000, tookMs: 5 }, limits)
    expect(() => legOf(asked)).toThrowError(/INPUT_MISSING.*"a", "b"/)
    const half = answer(asked, 'a', accept)
    expect(() => legOf(half)).toThrowError(/INPUT_MISSING.*: "b"/)
    const full = answer(half, 'b', { roots: [] })
    expect(legOf(full)).toMatchObject({ inputResponses: { a: accept, b: { roots: [] } } })
  })

  it('C2 sends no state if the last round had none', () => {
    const first = ask(begun, { questions: {}, state: 's1', now: 2_000, tookMs: 5 }, limits)
    const second = ask(first, { questions, now: 3_000, tookMs: 5 }, limits)
    const leg = legOf(answer(answer(second, 'a', accept), 'b', { roots: [] }))
    expect(leg).not.toHaveProperty('requestState')
  })

  it('C2 returns every state unchanged', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary' }), (state) => {
        const asked = ask(begun, { questions: {}, state, now: 2_000, tookMs: 0 }, limits)
        expect(legOf(parsePending(JSON.stringify(asked))).requestState).toBe(state)
      }),
    )
  })

  it('C4 drops the answers of the last round', () => {
    const first = ask(begun, { questions, state: 's', now: 2_000, tookMs: 5 }, limits)
    const second = ask(answer(first, 'a', accept), { questions, now: 3_000, tookMs: 5 }, limits)
    expect(second.answers).toEqual({})
    expect(openQuestions(second)).toHaveLength(2)
  })

  it('C8 allows exactly maxRounds rounds', () => {
    let call = begun
    for (let round = 1; round <= 3; round++) {
      call = ask(call, { questions: {}, state: 's', now: 0, tookMs: 0 }, { maxRounds: 3 })
      expect(call.round).toBe(round)
    }
    expect(() => ask(call, { questions: {}, state: 's', now: 0, tookMs: 0 }, { maxRounds: 3 })).toThrowError(
      /LIMIT_CLIENT_ROUNDS/,
    )
  })

  it('C9 waits 50 ms doubling to 250 ms before rounds without a question, and not at all after one', () => {
    const pauses: number[] = []
    let call = begun
    for (let round = 0; round < 5; round++) {
      call = ask(call, { questions: {}, state: 's', now: 0, tookMs: 0 }, limits)
      pauses.push(pauseOf(call))
    }
    expect(pauses).toEqual([50, 100, 200, 250, 250])
    call = ask(call, { questions, now: 0, tookMs: 0 }, limits)
    expect(pauseOf(call)).toBe(0)
    call = ask(call, { questions: {}, state: 's', now: 0, tookMs: 0 }, limits)
    expect(pauseOf(call)).toBe(50)
  })

  it('C12 counts work against the deadline, and human time only with countHumanTime', () => {
    const asked = ask(begun, { questions, now: 1_300, tookMs: 300 }, limits)
    const muchLater = 90_000
    expect(deadlineOf(asked, { deadlineMs: 1_000, countHumanTime: false }, muchLater)).toBe(90_700)
    expect(deadlineOf(asked, { deadlineMs: 1_000, countHumanTime: true }, muchLater)).toBe(2_000)
  })

  it('C11 returns a call that survives JSON at every point', () => {
    const asked = ask(begun, { questions, state: 's', now: 2_000, tookMs: 5 }, limits)
    for (const call of [begun, asked, answer(asked, 'a', accept), abandon(asked)]) {
      expect(parsePending(JSON.stringify(call))).toEqual(call)
    }
  })
})

describe('answers to a pending call', () => {
  const asked = ask(begun, { questions, state: 's', now: 2_000, tookMs: 5 }, limits)

  it('are refused for a key that was not asked', () => {
    expect(() => answer(asked, 'c', accept)).toThrowError(/INPUT_ANSWER.*asked no question "c"/)
    expect(() => answer(asked, 'constructor', accept)).toThrowError(/INPUT_ANSWER/)
    expect(() => answer(asked, '__proto__', accept)).toThrowError(/INPUT_ANSWER/)
  })

  it('are refused if they have the shape of another kind', () => {
    expect(() => answer(asked, 'a', { roots: [] })).toThrowError(/INPUT_ANSWER/)
    expect(() => answer(asked, 'b', accept)).toThrowError(/INPUT_ANSWER/)
  })

  it('do not change the call they are added to', () => {
    answer(asked, 'a', accept)
    expect(asked.answers).toEqual({})
  })

  it('are refused once the call was abandoned', () => {
    const given = abandon(asked)
    expect(given).not.toHaveProperty('state')
    expect(() => answer(given, 'a', accept)).toThrowError(/INPUT_PENDING/)
    expect(() => legOf(given)).toThrowError(/INPUT_PENDING/)
  })
})

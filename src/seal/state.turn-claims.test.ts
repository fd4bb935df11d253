import { describe, expect, it } from 'vitest'
import {
  AUDIENCE,
  expectedFor,
  expectedTurnFor,
  ringOf,
  sampleClaims,
  turnClaims,
} from '../../test/support/seal-fixtures.ts'
import {
  type Claims,
  decodeClaims,
  type Expected,
  type ExpectedTurn,
  encodeClaims,
  openState,
  STATE_LIMITS,
  sealState,
} from './state.ts'

const ring = ringOf('a')

function reasonOf(sealed: Claims, expected: Expected | ExpectedTurn): string {
  const state = sealState(ring, AUDIENCE, sealed)
  if (state.kind !== 'sealed') throw new Error(state.kind)
  const opened = openState(ring, AUDIENCE, state.token, expected)
  return opened.kind === 'open' ? 'open' : opened.reason
}

describe('a state that does not come back with its request', () => {
  it('F2 opens for the turn it was sealed for, with the request inside', () => {
    const state = sealState(ring, AUDIENCE, turnClaims)
    if (state.kind !== 'sealed') throw new Error(state.kind)
    const opened = openState(ring, AUDIENCE, state.token, expectedTurnFor(turnClaims))
    expect(opened).toEqual({ kind: 'open', claims: turnClaims, keyId: 'a' })
  })

  it('P6 R1 refuses when any one binding differs, each with its own reason', () => {
    const expected = expectedTurnFor(turnClaims)
    const flips: [Partial<ExpectedTurn>, string][] = [
      [{}, 'open'],
      [{ now: turnClaims.issuedAt - STATE_LIMITS.clockSkewMs - 1 }, 'early'],
      [{ now: turnClaims.roundExpires }, 'expired'],
      [{ now: turnClaims.flowExpires }, 'flow-expired'],
      [{ principal: 'anonymous' }, 'principal'],
      [{ turn: 'another' }, 'turn'],
      [{ turn: '' }, 'turn'],
      [{ protocolVersion: '2026-07-28' }, 'protocol'],
    ]
    for (const [flip, reason] of flips) expect(reasonOf(turnClaims, { ...expected, ...flip })).toBe(reason)
  })

  it('B7 is refused as the requestState of a repeated request, and the other way round', () => {
    expect(reasonOf(turnClaims, expectedFor(turnClaims))).toBe('turn')
    expect(reasonOf(sampleClaims, { ...expectedTurnFor(sampleClaims), turn: 'any' })).toBe('turn')
    expect(reasonOf(sampleClaims, expectedTurnFor(sampleClaims))).toBe('turn')
    expect(reasonOf(sampleClaims, expectedFor(sampleClaims))).toBe('open')
  })

  it.each([
    ['no object', 7],
    ['no id', { ...turnClaims.turn, id: undefined }],
    ['an id of the request that is none', { ...turnClaims.turn, requestId: 1.5 }],
    ['no target', { ...turnClaims.turn, target: 1 }],
    ['arguments that are no object', { ...turnClaims.turn, args: [] }],
    ['a progress token that is none', { ...turnClaims.turn, progressToken: {} }],
    ['keys that are no texts', { ...turnClaims.turn, keys: [1] }],
  ])('takes no turn with %s', (_what, turn) => {
    const text = encodeClaims(turnClaims)
    expect(decodeClaims(text)).toEqual(turnClaims)
    expect(decodeClaims(JSON.stringify({ ...JSON.parse(text), turn }))).toBeUndefined()
  })

  it('keeps the progress token', () => {
    const told = { ...turnClaims, turn: { ...turnClaims.turn, progressToken: 'p' } } as Claims
    expect(decodeClaims(encodeClaims(told))).toEqual(told)
  })
})

import { describe, expect, it } from 'vitest'
import {
  AUDIENCE,
  expectedFor,
  NOW,
  ringOf,
  sampleClaims,
} from '../../../../../test/support/seal-fixtures.ts'
import type { FlowHost } from '../../carry/host.ts'
import { sealedStates } from '../../carry/token.ts'
import { type Claims, encodeClaims, openState, STATE_LIMITS, sealState } from '../../seal/state.ts'
import { createTurnMemory, type ExpectedTurn, openTurn, type TurnClaims } from './turn-state.ts'

const ring = ringOf('a')
const limits = { ...STATE_LIMITS, maxStoredBytes: 0 }
const host = { states: sealedStates, keys: { ring }, audience: AUDIENCE, limits } as unknown as FlowHost
const memory = createTurnMemory(0, () => NOW)

const turn: TurnClaims = {
  id: 'dHVybi1pZA',
  requestId: 7,
  target: 'update_work_item',
  args: { workItemId: 4522 },
  keys: ['duplicate_of'],
}

/** The sample flow for a client that does not repeat its request. */
const turnClaims: Claims = { ...sampleClaims, protocolVersion: '2025-11-25', extension: turn }

/** The responses that belong to `claims`, one second later. */
function expectedTurnFor({ issuedAt, principal, protocolVersion }: Claims, id = turn.id): ExpectedTurn {
  return { now: issuedAt + 1_000, principal, protocolVersion, turn: id }
}

function tokenOf(claims: Claims): string {
  const state = sealState(ring, AUDIENCE, claims)
  if (state.kind !== 'sealed') throw new Error(state.kind)
  return state.token
}

function open(sealed: Claims, expected: ExpectedTurn) {
  const answer = { index: 0, state: tokenOf(sealed), answer: { kind: 'result', result: {} } } as const
  return openTurn(host, memory, { turn: expected.turn, answers: [answer] }, expected)
}

async function reasonOf(sealed: Claims, expected: ExpectedTurn): Promise<string> {
  const opened = await open(sealed, expected)
  return opened.kind === 'open' ? 'open' : opened.reason
}

describe('a state that does not come back with its request', () => {
  it('F2 opens for the turn it was sealed for, with the request inside', async () => {
    const opened = await open(turnClaims, expectedTurnFor(turnClaims))
    expect(opened).toEqual({
      kind: 'open',
      claims: { ...turnClaims, asked: expect.objectContaining(turnClaims.asked) },
      request: turn,
      answers: expect.objectContaining({ duplicate_of: {} }),
      echoed: true,
    })
  })

  it('P6 R1 is refused when any one binding differs, each with its own reason', async () => {
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
    for (const [flip, reason] of flips)
      expect(await reasonOf(turnClaims, { ...expected, ...flip })).toBe(reason)
  })

  it('B7 is refused as the requestState of a repeated request, and the reverse', async () => {
    const repeated = (claims: Claims) => openState(ring, AUDIENCE, tokenOf(claims), expectedFor(claims))
    expect(repeated(turnClaims)).toMatchObject({ kind: 'refused', reason: 'turn' })
    expect(repeated(sampleClaims)).toMatchObject({ kind: 'open' })
    expect(await reasonOf(sampleClaims, expectedTurnFor(sampleClaims, 'any'))).toBe('turn')
    expect(await reasonOf(sampleClaims, expectedTurnFor(sampleClaims, ''))).toBe('turn')
  })

  it.each([
    ['that is not an object', 7],
    ['that is null', null],
    ['without an id', { ...turn, id: undefined }],
    ['whose request id is a fraction', { ...turn, requestId: 1.5 }],
    ['without a target', { ...turn, target: 1 }],
    ['whose arguments are not an object', { ...turn, args: [] }],
    ['whose progress token is an object', { ...turn, progressToken: {} }],
    ['whose keys are not strings', { ...turn, keys: [1] }],
  ])('is refused with a turn %s', async (_what, extension) => {
    expect(await reasonOf(turnClaims, expectedTurnFor(turnClaims))).toBe('open')
    expect(await reasonOf({ ...turnClaims, extension }, expectedTurnFor(turnClaims))).toBe('turn')
  })

  it('keeps the progress token and the last progress', async () => {
    const extension = { ...turn, progressToken: 'p', progress: 0.5 }
    const opened = await open({ ...turnClaims, extension }, expectedTurnFor(turnClaims))
    expect(opened).toMatchObject({ kind: 'open', request: extension })
  })

  it('is written as the member `turn` of the claims', () => {
    const { extension, ...plain } = turnClaims
    expect(JSON.parse(encodeClaims(turnClaims))).toEqual({ ...plain, turn: extension })
  })
})

import { describe, expect, it } from 'vitest'
import { createMemoryBlobs } from '../../../../test/support/memory-blobs.ts'
import { AUDIENCE, expectedFor, ringOf, sampleClaims } from '../../../../test/support/seal-fixtures.ts'
import type { Finding } from '../log/event.ts'
import { type Claims, STATE_LIMITS } from '../seal/state.ts'
import type { OpenedStored, StateCarrier, StateHost } from './host.ts'
import { createMigration, type MigrationMode, sealedWithHandles } from './migration.ts'
import { sealedStates } from './token.ts'

const MODES = ['stored', 'dual', 'sealed-first'] as const
const MAX = 2_000
const limits = { ...STATE_LIMITS, maxBytes: MAX, maxStoredBytes: 1_000_000 }
const hostOf = (key: string): StateHost => ({ audience: AUDIENCE, keys: { ring: ringOf(key) }, limits })
const host = hostOf('a')
const expected = expectedFor(sampleClaims)
const changed: Claims = { ...sampleClaims, round: 7 }

function start(mode: Exclude<MigrationMode, 'sealed'>, blobs = createMemoryBlobs()) {
  const findings: Finding[] = []
  const report = (finding: Finding) => void findings.push(finding)
  const states = createMigration({ mode, blobs, randomId: () => 'drawn', report })
  return { blobs, findings, states }
}

async function tokenOf(states: StateCarrier, claims = sampleClaims, name?: string): Promise<string> {
  const kept = await states.keep(host, claims, name)
  if (kept.kind !== 'sealed') throw new Error(kept.kind)
  return kept.token
}

function read(opened: OpenedStored) {
  if (opened.kind === 'open') return opened.claims
  return opened.kind === 'refused' ? opened.reason : opened
}

const open = async (
  states: StateCarrier,
  state: unknown,
  names?: readonly string[],
  from = host,
  asked = expected,
) => read(await states.open(from, state, asked, names))

describe.each(MODES)('F4 a state that is opened in the mode %s', (mode) => {
  it('F4 is refused without a look into the store if it is no text or too long', async () => {
    const { states, blobs } = start(mode)
    for (const state of [7, null, undefined]) expect(await open(states, state)).toBe('encoding')
    expect(await open(states, 'h1.'.padEnd(MAX + 1, 'A'))).toBe('size')
    expect(await open(states, undefined, ['short', 'A'.repeat(MAX + 1)])).toBe('size')
    expect(blobs.reads).toBe(0)
    expect(await open(states, 'h1.'.padEnd(MAX, 'A'))).toBe('missing')
    expect(await open(states, undefined, ['A'.repeat(MAX)])).toBe('missing')
    expect(blobs.reads).toBe(2)
  })

  it('F4 is missing if it is a handle without a row, which is no finding', async () => {
    const { states, findings } = start(mode)
    expect(await open(states, 'h1.unknown')).toBe('missing')
    expect(await open(states, 'h1.unknown', ['another'])).toBe('missing')
    expect(findings).toEqual([])
  })

  it('F4 is looked for under each of its names, up to the first that has a row', async () => {
    const { states } = start(mode)
    expect(await open(states, undefined, ['a', 'b'])).toBe('missing')
    await tokenOf(states, sampleClaims, 'b')
    expect(await open(states, undefined, ['a', 'b'])).toEqual(sampleClaims)
    await tokenOf(states, { ...sampleClaims, principal: 'anonymous' }, 'a')
    expect(await open(states, undefined, ['a', 'b'])).toBe('principal')
  })

  it('F4 is the row that a handle names, whatever else is named', async () => {
    const { states, blobs } = start(mode)
    const handle = await tokenOf(start('stored', blobs).states)
    await tokenOf(states, changed, 'other')
    expect(await open(states, handle, ['other'])).toEqual(sampleClaims)
  })

  it('F4 survives its process', () => {
    expect(start(mode).states.stores).toBe(true)
  })
})

describe('F4 a state that is sealed and stored', () => {
  it('F4 is read from its row under the name that it was given', async () => {
    for (const mode of ['dual', 'sealed-first'] as const) {
      const { states, blobs } = start(mode)
      const sealed = await tokenOf(states, sampleClaims, 'name')
      expect(blobs.rows.size).toBe(1)
      expect(await open(states, sealed, ['name'], hostOf('b'))).toEqual(sampleClaims)
      expect(await open(states, sealed, undefined, hostOf('b'))).toBe('key')
    }
  })

  it('F4 is the row in the mode stored, and the seal only if there is no row', async () => {
    const blobs = createMemoryBlobs()
    const { states } = start('stored', blobs)
    const sealed = await tokenOf(start('dual').states)
    expect(await open(states, sealed)).toEqual(sampleClaims)
    await tokenOf(states, changed, sealed)
    expect(await open(states, sealed)).toEqual(changed)
    const other = { ...expected, principal: 'anonymous' }
    expect(await open(states, sealed, undefined, hostOf('b'), other)).toBe('principal')
  })

  it('F4 is neither compared nor reported in the mode dual if both refuse it, and refused as the seal is', async () => {
    const { states, findings } = start('dual')
    const sealed = await tokenOf(states)
    expect(await open(states, sealed, undefined, host, { ...expected, principal: 'anonymous' })).toBe(
      'principal',
    )
    expect(await open(states, sealed, ['other'], hostOf('b'))).toBe('key')
    expect(findings).toEqual([])
  })

  it('F4 is read only once from a store that fails, and from its seal then', async () => {
    const { states, blobs, findings } = start('dual')
    const sealed = await tokenOf(states)
    blobs.broken = 'no route' as unknown as Error
    expect(await open(states, sealed)).toEqual(sampleClaims)
    expect(await open(states, sealed, undefined, hostOf('b'))).toBe('key')
    expect(findings).toEqual([
      { finding: 'store_failed', reason: 'string', count: 1, of: 2 },
      { finding: 'store_failed', reason: 'string', count: 2, of: 3 },
    ])
  })

  it('F4 is reported with its flow where the store could not keep it or its seal is too large', async () => {
    const { states, blobs, findings } = start('dual')
    const { flow } = sampleClaims
    blobs.broken = new RangeError('full')
    await tokenOf(states)
    blobs.broken = undefined
    const large = { ...sampleClaims, toolVersion: 'v'.repeat(MAX) }
    expect(await open(states, await tokenOf(states, large))).toEqual(large)
    expect(findings).toEqual([
      { finding: 'store_failed', reason: 'RangeError', flow, count: 1, of: 1 },
      { finding: 'spilled', flow, count: 1, of: 2 },
    ])
  })
})

it('F4 reports the size of a handle, and that of a journal that is too large for a row', async () => {
  const { states } = start('stored')
  expect(await states.keep(host, sampleClaims)).toEqual({
    kind: 'sealed',
    token: 'h1.drawn',
    bytes: 8,
    keyId: 'stored',
  })
  const small = { ...host, limits: { ...limits, maxStoredBytes: 512 } }
  expect(await states.keep(small, sampleClaims)).toEqual({ kind: 'too-large', bytes: expect.any(Number) })
})

/** A row as a release before this one stored it under the handle `h1.drawn`. */
const STORED = [
  'r1.AQKHsE5YIx-mY7_UEQ2pfSsbkD3XoxusiwTpFQk-dPRemDBoz-bzX2y2oBpp7GwExBnZKvka0G7jgZLyvx45sTPLtik',
  'eR1Da2snXz446wGl3dFOaE9ErFTlZABn8aLET3_yccfj6XTlf0_PwpjqZZlZMY-OZpREUqr2Pg68DTSPSsVv5bmuKUDqj9',
  '6u8QBggoWyJ7JDW9r8mf252hJv261oRJ03aOWpW3M9VlJi8JZWjtfCMZHj0ggTdjMmM2eECWwud4G4RJ9ODgzl8hJtlo-O',
  '9olegrLe9l-fdGguGYrkp_5-SpDz9xRTaMG2Ftk5g8UaC5FOXs4k6K5AV6v-SavNE_VbWA-AeayYe3D388Yoee1CKQPvbk',
  'K_j2yrOuKBPU76h636TABULMnn4vCMYc2xQFIJfYwHmZzyB02Uhf7SJuGGzGRRGwk0DxPTpfjo9URp7Ikrvo7fyUa-0FpR',
  '7SFQxVbgrkfUlOwtzxzvH1HgaxtM_JDER0rMxcCvPDKWZE2mrsPzc_ondO-8hO5-hncc1mUFFymaA9b5kUlsIMClpUL8EZ',
  'JqCVA-FbI4RekcxGkQu1v_DfyBCN4Nz27Zx6fElaIu4W3O5hxQd2NmczJsMW2LXEwkPfQUQdEp_w6HOXEBOINVrdqtEhNY',
  'qhIDAWx6QGFRY3l1kPRC8Y9I0EUX-BHG6R3osNB56esQ9YHl8AJhhrQ6BBMw9XdrYFe_Y32Kpx8zqpHsChuYBiiWTZqggl',
  'yBrOMPGnNTFTJEp5aO6B4Ezl3H4Mx9oNllRjGHu42NX',
].join('')

it('F4 opens a row that another release has stored', async () => {
  const { states, blobs } = start('stored')
  blobs.rows.set('vfs5zwmw73TlIPZeHLlMvT9G7ZQxuRr7G3s1oFZwzkI', {
    sealed: STORED,
    expiresAt: sampleClaims.roundExpires,
  })
  const journal = { ...sampleClaims.journal, entries: [], reasks: {} }
  expect(await open(states, 'h1.drawn')).toEqual({ ...sampleClaims, asked: {}, journal })
})

describe('F4 sealed', () => {
  it('F4 opens a handle of an earlier mode from the store, and reads nothing else there', async () => {
    const { blobs, states } = start('stored')
    const handle = await tokenOf(states)
    const now = sealedWithHandles(blobs)
    expect(await open(now, handle)).toEqual(sampleClaims)
    expect(await open(now, 'h1.'.padEnd(MAX, 'A'))).toBe('missing')
    expect(blobs.reads).toBe(2)
    expect(await open(now, await tokenOf(now))).toEqual(sampleClaims)
    expect(await open(now, 'h1.'.padEnd(MAX + 1, 'A'))).toBe('size')
    expect(blobs.reads).toBe(2)
    expect([now.stores, sealedStates.stores]).toEqual([false, false])
  })
})

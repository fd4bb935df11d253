import { describe, expect, it } from 'vitest'
import { createMemoryBlobs } from '../../../../test/support/memory-blobs.ts'
import { AUDIENCE, expectedFor, NOW, ringOf, sampleClaims } from '../../../../test/support/seal-fixtures.ts'
import type { Finding } from '../log/event.ts'
import { type Claims, STATE_LIMITS } from '../seal/state.ts'
import type { StateHost } from './host.ts'
import { createMigration, type MigrationMode } from './migration.ts'

const LIMITS = { ...STATE_LIMITS, maxStoredBytes: 1_000_000 }
const expected = expectedFor(sampleClaims)

function sealerWith(...keys: string[]): StateHost {
  return { audience: AUDIENCE, keys: { ring: ringOf(...keys) }, limits: LIMITS }
}

function start(mode: Exclude<MigrationMode, 'sealed'>, blobs = createMemoryBlobs()) {
  const findings: Finding[] = []
  let drawn = 0
  const continuation = createMigration({
    mode,
    blobs,
    randomId: () => `drawn-${drawn++}`,
    report: (finding) => findings.push(finding),
  })
  const keep = async (claims: Claims = sampleClaims, sealer = sealerWith('a')): Promise<string> => {
    const kept = await continuation.keep(sealer, claims)
    if (kept.kind !== 'sealed') throw new Error(kept.kind)
    return kept.token
  }
  const open = async (state: unknown, asked = expected, sealer = sealerWith('a')): Promise<unknown> => {
    const opened = await continuation.open(sealer, state, asked)
    return opened.kind === 'open' ? opened.claims : opened.reason
  }
  return { blobs, findings, continuation, keep, open }
}

const MODES = ['stored', 'dual', 'sealed-first'] as const

describe.each(MODES)('F4 %s', (mode) => {
  it('F4 opens what was kept', async () => {
    const { keep, open, findings, blobs } = start(mode)
    expect(await open(await keep())).toEqual(sampleClaims)
    expect(findings).toEqual([])
    expect(blobs.rows.size).toBe(1)
  })

  it('F4 P6 refuses another principal, another request, and an expired state, wherever it is kept', async () => {
    const { keep, open } = start(mode)
    const state = await keep()
    expect(await open(state, { ...expected, principal: 'anonymous' })).toBe('principal')
    expect(await open(state, { ...expected, request: 'other' })).toBe('request')
    expect(await open(state, { ...expected, now: sampleClaims.roundExpires })).toBe('expired')
    expect(await open(state)).toEqual(sampleClaims)
  })

  it('F4 P2 refuses what was not kept', async () => {
    const { keep, open } = start(mode)
    const state = await keep()
    const other = state.at(-1) === 'A' ? 'Q' : 'A'
    for (const forged of ['', 'h1.', 'h1.drawn-9', 7, undefined, state.slice(0, -1) + other, `${state}A`]) {
      expect(await open(forged)).toBeTypeOf('string')
    }
    expect(await open('h1.'.padEnd(LIMITS.maxBytes + 1, 'A'))).toBe('size')
  })

  it('F4 stores neither the state nor its content in plain text', async () => {
    const { keep, blobs } = start(mode)
    const state = await keep()
    const seen = JSON.stringify([...blobs.rows])
    for (const secret of [state, state.slice(3), 'Duplicate', sampleClaims.flow]) {
      expect(seen).not.toContain(secret)
    }
    expect([...blobs.rows.values()].map(({ expiresAt }) => expiresAt)).toEqual([sampleClaims.roundExpires])
  })
})

describe('F4 stored', () => {
  it('F4 returns a short handle and needs no key', async () => {
    const { keep, open } = start('stored')
    const state = await keep()
    expect(state).toBe('h1.drawn-0')
    expect(await open(state, expected, sealerWith('another'))).toEqual(sampleClaims)
  })

  it('F4 refuses a journal that is too large for a row', async () => {
    const { continuation } = start('stored')
    const limits = { ...LIMITS, maxStoredBytes: 512 }
    const kept = await continuation.keep({ ...sealerWith('a'), limits }, sampleClaims)
    expect(kept.kind).toBe('too-large')
  })

  it('F4 fails if the store fails', async () => {
    const { keep, open, blobs } = start('stored')
    const state = await keep()
    blobs.broken = new Error('no route')
    await expect(keep()).rejects.toThrow('no route')
    await expect(open(state)).rejects.toThrow('no route')
  })
})

describe('F4 dual', () => {
  it('F4 reports a row that differs from the seal, counts it, and uses the row', async () => {
    const { keep, open, blobs, findings } = start('dual')
    for (const count of [1, 2]) {
      const state = await keep({ ...sampleClaims, issuedAt: NOW + count })
      blobs.rows.clear()
      const changed = { ...sampleClaims, round: 7 }
      await start('stored', blobs).continuation.keep(sealerWith('a'), changed, state)
      expect(await open(state)).toEqual(changed)
      expect(findings.at(-1)).toEqual({ finding: 'differs', flow: sampleClaims.flow, count, of: count * 2 })
    }
  })

  it('F4 continues with the seal if the store has no row or fails', async () => {
    const { keep, open, blobs, findings } = start('dual')
    const state = await keep()
    blobs.rows.clear()
    expect(await open(state)).toEqual(sampleClaims)
    expect(findings.at(-1)).toMatchObject({ finding: 'not_stored', reason: 'missing', count: 1 })
    blobs.broken = new RangeError('full')
    expect(await open(state)).toEqual(sampleClaims)
    expect(await open(await keep())).toEqual(sampleClaims)
    expect(findings.slice(1)).toMatchObject([
      { finding: 'store_failed', reason: 'RangeError', count: 1 },
      { finding: 'store_failed', reason: 'RangeError', count: 2 },
      { finding: 'store_failed', reason: 'RangeError', count: 3 },
    ])
  })

  it('F4 continues with the store if the seal does not open, and reports why', async () => {
    const { keep, open, findings } = start('dual')
    const state = await keep()
    expect(await open(state, expected, sealerWith('b'))).toEqual(sampleClaims)
    expect(findings).toMatchObject([{ finding: 'not_sealed', reason: 'key', flow: sampleClaims.flow }])
  })
})

describe('F4 sealed-first', () => {
  it('F4 reads the store only if the key of the seal is gone', async () => {
    const { keep, open, blobs, findings } = start('sealed-first')
    const state = await keep()
    const tampered = state.slice(0, -2) + (state.endsWith('AA') ? 'BA' : 'AA')
    expect(await open(state)).toEqual(sampleClaims)
    expect(await open(tampered)).toBeTypeOf('string')
    expect(await open(state, { ...expected, principal: 'anonymous' })).toBe('principal')
    expect(blobs.reads).toBe(0)
    expect(await open(state, expected, sealerWith('b'))).toEqual(sampleClaims)
    expect(await open(state, { ...expected, principal: 'anonymous' }, sealerWith('b'))).toBe('key')
    expect(blobs.reads).toBe(2)
    expect(findings).toMatchObject([{ finding: 'fell_back', reason: 'key', count: 1 }])
  })

  it('F4 P14 returns a handle if the journal is too large for a seal', async () => {
    const { keep, open, findings } = start('sealed-first')
    const large = { ...sampleClaims, toolVersion: 'v'.repeat(LIMITS.maxBytes) }
    const state = await keep(large)
    expect(state.length).toBeLessThan(64)
    expect(await open(state)).toEqual(large)
    expect(findings).toMatchObject([{ finding: 'spilled', flow: sampleClaims.flow, count: 1 }])
  })
})

describe('F4 changing modes', () => {
  it('F4 opens in each mode the states of the modes before and after it', async () => {
    const blobs = createMemoryBlobs()
    for (const before of MODES) {
      const state = await start(before, blobs).keep({ ...sampleClaims, flow: before })
      for (const after of MODES) {
        expect([before, after, await start(after, blobs).open(state)]).toEqual([
          before,
          after,
          { ...sampleClaims, flow: before },
        ])
      }
    }
  })
})

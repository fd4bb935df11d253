import crypto from 'node:crypto'
import { syncBuiltinESMExports } from 'node:module'
import { describe, expect, it, vi } from 'vitest'
import { AUDIENCE, ringOf } from '../../../../test/support/seal-fixtures.ts'
import { drawBytes } from '../lib/random.ts'
import { createKeyTable, deriveShared, openEnvelope, sealEnvelope } from './envelope.ts'

const HOUR = 3_600_000
const MAX = 64 * 1024
const HEADER = Buffer.of(1, 2, 0, 0, 0, 1)

function counting() {
  let derived = 0
  const table = createKeyTable((...given) => {
    derived += 1
    return deriveShared(...given)
  })
  return { table, derived: () => derived }
}

function rawOf(token: string): Buffer {
  return Buffer.from(token.slice(3), 'base64url')
}

describe('the key that seals', () => {
  const { mint: key } = ringOf('a')

  it('is the same for an hour, and another one afterwards', () => {
    const { table, derived } = counting()
    const at = (now: number) => table.mint(key, HEADER, drawBytes, now)
    const first = at(5)
    expect(at(HOUR + 4)).toBe(first)
    expect(derived()).toBe(1)
    const second = at(HOUR + 5)
    expect(second.salt).not.toEqual(first.salt)
    expect(at(HOUR + 6)).toBe(second)
    expect(derived()).toBe(2)
  })

  it.each([
    ['steps back', -1],
    ['is no number', Number.NaN],
  ])('is another one if the clock %s', (_name, now) => {
    const { table } = counting()
    const first = table.mint(key, HEADER, drawBytes, 0)
    expect(table.mint(key, HEADER, drawBytes, now)).not.toBe(first)
  })

  it('seals at most 2^20 tokens', () => {
    const { table, derived } = counting()
    for (let tokens = 0; tokens < 2 ** 20; tokens++) table.mint(key, HEADER, drawBytes, 0)
    expect(derived()).toBe(1)
    table.mint(key, HEADER, drawBytes, 0)
    expect(derived()).toBe(2)
  })

  it('is another one for each key of the ring, and differs between processes', () => {
    const { table } = counting()
    const [one, other] = [ringOf('a').mint, ringOf('b').mint]
    expect(table.mint(one, HEADER, drawBytes, 0)).not.toBe(table.mint(other, HEADER, drawBytes, 0))
    const elsewhere = counting().table.mint(one, HEADER, drawBytes, 0)
    expect(elsewhere.salt).not.toEqual(table.mint(one, HEADER, drawBytes, 0).salt)
  })
})

describe('the keys that were opened', () => {
  const { mint: key } = ringOf('a')

  it('T8 a key is kept once its commitment was checked, and salts that a caller makes up displace none', () => {
    const { table, derived } = counting()
    const genuine = table.find(key, HEADER, Buffer.alloc(16, 1))
    table.keep(key, genuine)
    expect(derived()).toBe(1)
    for (let made = 0; made < 2_000; made++) table.find(key, HEADER, drawBytes(16))
    expect(derived()).toBe(2_001)
    expect(table.find(key, HEADER, Buffer.alloc(16, 1))).toBe(genuine)
    expect(derived()).toBe(2_001)
  })

  it('T8 control: a table that kept every salt would forget the genuine ones', () => {
    const { table, derived } = counting()
    table.keep(key, table.find(key, HEADER, Buffer.alloc(16, 1)))
    for (let made = 0; made < 2_000; made++) table.keep(key, table.find(key, HEADER, drawBytes(16)))
    const before = derived()
    table.find(key, HEADER, Buffer.alloc(16, 1))
    expect(derived()).toBe(before + 1)
  })

  it('a key stays while it is used, however many others there are', () => {
    const { table, derived } = counting()
    const used = Buffer.alloc(16, 1)
    table.keep(key, table.find(key, HEADER, used))
    for (let other = 0; other < 2_000; other++) {
      table.keep(key, table.find(key, HEADER, drawBytes(16)))
      table.find(key, HEADER, used)
    }
    expect(derived()).toBe(2_001)
  })
})

describe('tokens of one key', () => {
  const ring = ringOf('a')

  it('T8 the ring derives their key once, however many tokens with made-up salts are refused', () => {
    const { token } = sealEnvelope(ring, AUDIENCE, 'x')
    const elsewhere = ringOf('a')
    const derivations = vi.spyOn(crypto, 'hkdfSync')
    syncBuiltinESMExports()
    const derived = (text: string, kind: string): number => {
      derivations.mockClear()
      expect(openEnvelope(elsewhere, AUDIENCE, text, MAX)).toMatchObject({ kind })
      return derivations.mock.calls.length
    }
    try {
      expect([derived(token, 'open'), derived(token, 'open')]).toEqual([1, 0])
      for (let made = 0; made < 1_100; made++) {
        const raw = rawOf(token)
        raw.set(drawBytes(16), 6)
        expect(derived(`r1.${raw.toString('base64url')}`, 'refused')).toBe(1)
      }
      expect(derived(token, 'open')).toBe(0)
    } finally {
      derivations.mockRestore()
      syncBuiltinESMExports()
    }
  })

  it('share a salt and never a nonce', () => {
    const raws = Array.from({ length: 2_000 }, () => rawOf(sealEnvelope(ring, AUDIENCE, 'x').token))
    const parts = (from: number, to: number) => new Set(raws.map((raw) => raw.toString('hex', from, to)))
    expect(parts(6, 22).size).toBe(1)
    expect(parts(22, 34).size).toBe(raws.length)
  })

  it('never share a nonce with those of a copy of the process, which has the same key and the same generator', () => {
    sealEnvelope(ring, AUDIENCE, 'x')
    const same = (bytes: Buffer) => bytes.fill(7)
    const filled = vi.spyOn(crypto, 'randomFillSync').mockImplementation(same as never)
    syncBuiltinESMExports()
    try {
      const raws = [1, 2].map(() => rawOf(sealEnvelope(ring, AUDIENCE, 'x').token))
      const parts = (from: number, to: number) => new Set(raws.map((raw) => raw.toString('hex', from, to)))
      expect(parts(6, 22).size).toBe(1)
      expect(parts(22, 34).size).toBe(2)
    } finally {
      filled.mockRestore()
      syncBuiltinESMExports()
    }
  })

  it('B4 open on an instance that has never seen their salt, and after the key that sealed them was replaced', () => {
    const tokens = [0, HOUR, 2 * HOUR].map(
      (now) => sealEnvelope(ring, AUDIENCE, 'x', drawBytes, () => now).token,
    )
    expect(new Set(tokens.map((token) => rawOf(token).toString('hex', 6, 22))).size).toBe(3)
    for (const token of tokens) {
      expect(openEnvelope(ring, AUDIENCE, token, MAX)).toMatchObject({ kind: 'open' })
      expect(openEnvelope(ringOf('b', 'a'), AUDIENCE, token, MAX)).toMatchObject({ kind: 'open' })
    }
  })

  it.each([
    ['the nonce', 22, 34, 'tag'],
    ['the ciphertext', 66, 322, 'tag'],
    ['the tag', 322, 338, 'tag'],
  ] as const)('B4 the ring refuses %s of another token of the same key', (_name, from, to, reason) => {
    const [one, other] = ['x', 'y'].map((data) => rawOf(sealEnvelope(ring, AUDIENCE, data).token))
    if (!one || !other) throw new Error('No token')
    other.copy(one, from, from, to)
    const opened = openEnvelope(ring, AUDIENCE, `r1.${one.toString('base64url')}`, MAX)
    expect(opened).toMatchObject({ kind: 'refused', reason })
  })
})

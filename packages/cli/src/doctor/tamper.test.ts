import { describe, expect, it } from 'vitest'
import { expiryOf, forgeries, readState, respellings, varyArguments } from './tamper.ts'

const b64 = (value: unknown) => Buffer.from(JSON.stringify(value)).toString('base64url')
const opaque = `r1.${Buffer.from(Array.from({ length: 100 }, (_, i) => (i * 37) % 256)).toString('base64url')}`

describe('reading a state', () => {
  it.each([
    ['{"step":2}', 'json', { step: 2 }],
    ['2', 'json', 2],
    [Buffer.from('{"step":2}').toString('base64'), 'base64', { step: 2 }],
    [b64({ step: 2 }), 'base64', { step: 2 }],
    [`v1.${b64({ p: 1, exp: 9 })}.c2lnbmF0dXJl`, 'part', { p: 1, exp: 9 }],
    [`${b64({ alg: 'HS256' })}.${b64({ sub: 'ada' })}.c2ln`, 'part', { sub: 'ada' }],
    ['step=2&user=ada', 'text', 'step=2&user=ada'],
  ])('reads %s as %s', (state, how, value) => expect(readState(state)).toMatchObject({ how, value }))

  it.each([opaque, 'r', '', 'c2VjcmV0', '4f1c9d2ab3', 'x'.repeat(40)])(
    'finds nothing readable in %s',
    (state) => {
      expect(readState(state)).toBeUndefined()
    },
  )

  it('writes changed content back in the same place and alphabet', () => {
    const state = `v1.${b64({ p: 1 })}.sig`
    expect(readState(state)?.write('{"p":2}')).toBe(`v1.${b64({ p: 2 })}.sig`)
    const padded = Buffer.from('{"a":12}').toString('base64')
    expect(padded).toMatch(/=$/)
    expect(readState(padded)?.write('{"a":13}')).toBe(Buffer.from('{"a":13}').toString('base64'))
  })

  it.each([
    [{ exp: 1_790_000_000 }, 1_790_000_000_000],
    [{ expiresAt: '2026-12-24T00:00:00Z' }, Date.UTC(2026, 11, 24)],
    [{ a: 1 }, undefined],
    [5, undefined],
  ])('finds the expiry of %j: %s', (value, time) => expect(expiryOf(value)).toBe(time))
})

describe('a changed state', () => {
  it('differs from the genuine one and from every other', () => {
    for (const state of [opaque, '{"stage":"asked","amount":5}', `v1.${b64({ p: 1 })}.sig`, '1', '']) {
      const all = [...forgeries(state, readState(state)), ...respellings(state, readState(state))]
      expect(all).not.toContain(state)
      expect(forgeries(state, readState(state)).length).toBeGreaterThanOrEqual(2)
    }
  })

  it('has other content if the state is readable', () => {
    const state = '{"stage":"asked","amount":5}'
    const changed = forgeries(state, readState(state)).flatMap((one) => {
      try {
        return [JSON.parse(one) as unknown]
      } catch {
        return []
      }
    })
    const edits = [
      { stage: 'asEed', amount: 5 },
      { stage: 'asked', amount: 6 },
    ]
    expect(changed).toEqual(expect.arrayContaining(edits))
    expect(changed).not.toContainEqual({ stage: 'asked', amount: 5 })
  })

  it('changes the signed content of an envelope, or a significant part of its signature', () => {
    const sig = 'ab'.repeat(16)
    const state = JSON.stringify({ payload: 'c3RhZ2U', sig })
    const changed = forgeries(state, readState(state))
      .slice(0, 2)
      .map((one) => JSON.parse(one))
    expect(changed[0].payload).not.toBe('c3RhZ2U')
    expect(Buffer.from(changed[1].sig, 'hex').equals(Buffer.from(sig, 'hex'))).toBe(false)
  })

  it('is respelled with spaces or an unknown member, and keeps its content', () => {
    const state = Buffer.from('{"payload":"x","sig":"y"}').toString('base64url')
    const said = respellings(state, readState(state)).map((one) => readState(one)?.value)
    expect(said).toContainEqual({ payload: 'x', sig: 'y', doctor: 1 })
    expect(said).toContainEqual({ payload: 'x', sig: 'y' })
    const texts = forgeries(state, readState(state)).map((one) => Buffer.from(one, 'base64url').toString())
    expect(texts.filter((text) => text.includes('doctor') || text.includes('\n'))).toEqual([])
  })

  it('differs in its bytes if the state is opaque', () => {
    const bytes = (one: string) => Buffer.from(one.slice(3), 'base64url').toString('hex')
    for (const one of forgeries(opaque, undefined)) expect(bytes(one)).not.toBe(bytes(opaque))
  })

  it('keeps its bytes if it is only respelled', () => {
    const lax = (one: string) => Buffer.from(one.trim().slice(3), 'base64').toString('hex')
    const others = respellings(opaque, undefined)
    expect(others.length).toBeGreaterThanOrEqual(4)
    for (const one of others) expect(lax(one).slice(0, 190)).toBe(lax(opaque).slice(0, 190))
  })
})

describe('other arguments', () => {
  it('change one value at a time, within the limits of the schema', () => {
    const properties = {
      id: { type: 'integer', maximum: 5 },
      name: { type: 'string' },
      sure: { type: 'boolean' },
      kind: { enum: ['a', 'b'] },
      mail: { type: 'string', format: 'email' },
    }
    expect(varyArguments({ id: 5, name: 'x', sure: true, kind: 'a' }, { properties })).toEqual([
      { id: 4, name: 'x', sure: true, kind: 'a' },
      { id: 5, name: 'x1', sure: true, kind: 'a' },
      { id: 5, name: 'x', sure: false, kind: 'a' },
      { id: 5, name: 'x', sure: true, kind: 'b' },
    ])
    expect(varyArguments({}, { type: 'object' })).toEqual([])
  })
})

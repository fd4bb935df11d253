import { type } from 'arktype'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import * as z from 'zod'
import { hasAnEnd } from '../../test/support/has-an-end.ts'
import { findPatternDanger } from './pattern-danger.ts'

const EVIL = [
  '^(a+)+$',
  '^(a*)*$',
  '(a+)*b',
  '^(a|a)*$',
  '^(a|aa)+$',
  '^(a|a?)+$',
  '^([a-zA-Z]+)*$',
  '^(\\w+\\s?)*$',
  '^(\\s*\\w+\\s*)*$',
  '^(.*,)*$',
  '^(.*a){20}$',
  '^(a?b?)*c$',
  '^((ab)*)*$',
  '^(?:\\d+|[a-f0-9]+)*$',
  '^(\\w|\\d)+!$',
  '^(a{1,3}){5,}$',
  '^(a{1,3}){1,40}$',
  '^(a{2}|a{3})*$',
  '^(?<name>[a-z]+-?)*$',
  '^(?:x(?:y+)+)z$',
  '^(?=(a+)+$)b',
  '^(([a-z])+.)+[A-Z]([a-z])+$',
  '^([a-zA-Z0-9])(([\\-.]|[_]+)?([a-zA-Z0-9]+))*(@){1}[a-z0-9]+[.]{1}(([a-z]{2,3})|([a-z]{2,3}[.]{1}[a-z]{2,3}))$',
  '^(\\u0061|a)*$',
  '^(漢+)*字$',
  '^(?:(?:|)a)*$',
]

const FINE = [
  '',
  '^[a-z0-9_-]{1,64}$',
  '^a+$',
  '^\\w+(\\s+\\w+)*$',
  '^(?:[^,]*,)*[^,]*$',
  '^(\\d{1,3}\\.){3}\\d{1,3}$',
  '^(a|b)*$',
  '^(?:ab|ac)*$',
  '^(?:(?!-->)[\\s\\S])*-->$',
  '^(\\w+\\b)+$',
  '^[A-Z]{2}-\\d{4,}$',
  '^(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\\.)+[a-z]{2,}$',
  '^(a+){2}$',
  '^(foo|bar|baz){0,5}$',
  '^\\p{L}+(?: \\p{L}+)*$',
  '^(["\'])[^"\']*\\1$',
  '^a{0}b*?c+?$',
  '^{}]$',
]

describe('patterns', () => {
  it.each(EVIL)('T11 refuses %s', (pattern) => {
    expect(findPatternDanger(pattern)).toMatch(/exponential/)
  })

  it.each(FINE)('T11 accepts %s', (pattern) => {
    expect(findPatternDanger(pattern)).toBeUndefined()
  })

  it('T11 accepts what zod and arktype write for their own formats', () => {
    const object = z.object({
      email: z.email(),
      uuid: z.uuid(),
      date: z.iso.date(),
      time: z.iso.datetime({ offset: true }),
      duration: z.iso.duration(),
      ip: z.union([z.ipv4(), z.ipv6(), z.cidrv4(), z.cidrv6()]),
      base64: z.base64url(),
      jwt: z.jwt(),
      emoji: z.emoji(),
      host: z.hostname(),
      phone: z.e164(),
      id: z.union([z.nanoid(), z.cuid2(), z.ulid(), z.xid(), z.ksuid()]),
    })
    const other = type({
      email: 'string.email',
      date: 'string.date.iso',
      ip: 'string.ip',
      version: 'string.semver',
    })
    const text = JSON.stringify([
      z.toJSONSchema(object),
      other['~standard'].jsonSchema.input({ target: 'draft-2020-12' }),
    ])
    const patterns = [...text.matchAll(/"pattern":("(?:[^"\\]|\\.)*")/g)].map((match) =>
      JSON.parse(match[1] ?? ''),
    )
    expect(patterns.length).toBeGreaterThan(15)
    for (const pattern of patterns)
      expect([pattern, findPatternDanger(pattern)]).toEqual([pattern, undefined])
  })

  it('T11 is right about what it refuses: each character more doubles the time', () => {
    const cost = (pattern: string, length: number) => {
      const expression = new RegExp(pattern, 'u')
      const start = process.cpuUsage()
      expression.test(`${'a'.repeat(length)}!`)
      const { user, system } = process.cpuUsage(start)
      return user + system
    }
    for (const pattern of ['^(a+)+$', '^(a|a)*$', '^(\\w|\\d|[a-f])+$']) {
      expect(findPatternDanger(pattern)).toMatch(/exponential/)
      expect(cost(pattern, 22)).toBeGreaterThan(16 * (cost(pattern, 12) + 1))
    }
    hasAnEnd(() => /^\w+(\s+\w+)*$/u.test(`${'a'.repeat(22)}!`))
  })

  it('refuses what is no regular expression, too long, or too large', () => {
    expect(findPatternDanger('(')).toBe('is not a regular expression')
    expect(findPatternDanger('a'.repeat(4001))).toMatch(/longer than 4000/)
    expect(findPatternDanger('(?:(?:(?:abcde){9}){9}){9}')).toMatch(/too large/)
    expect(findPatternDanger('('.repeat(40) + '){12}'.repeat(40))).toMatch(/too large/)
    expect(findPatternDanger('('.repeat(800) + ')'.repeat(800))).toBeUndefined()
  })

  it('T11 never throws and has an end, whatever the pattern', () => {
    const piece = fc.constantFrom(
      ...'abc().|*+?[]{}^$\\-d1,=!:<>',
      '(?:',
      '(?=',
      '\\w',
      '[a-c]',
      '{2,9}',
      '{3}',
      '\\p{L}',
    )
    fc.assert(
      fc.property(fc.array(piece, { maxLength: 40 }), (parts) => {
        hasAnEnd(() => findPatternDanger(parts.join('')))
      }),
      { numRuns: 3000 },
    )
  })

  it('T11 has an end on a large loop of alternatives', () => {
    const words = Array.from({ length: 300 }, (_, i) => `w${i.toString(36)}`).join('|')
    hasAnEnd(() => findPatternDanger(`^(?:${words})*$`))
  })
})

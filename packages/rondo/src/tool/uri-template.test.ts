import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { hasAnEnd } from '../../../../test/support/has-an-end.ts'
import { parseTemplate } from './uri-template.ts'

type Values = Readonly<Record<string, string | undefined>>

/** The other direction, as RFC 6570 defines it: the URI for these values. A variable without a value is left out. */
function expand(template: string, values: Values): string {
  return template.replace(/\{([+#/.?&]?)([^{}]*)\}/g, (_, operator: string, list: string) => {
    const encode = operator === '+' || operator === '#' ? encodeReserved : encodeValue
    const given = list.split(',').flatMap((name) => {
      const value = values[name]
      if (value === undefined) return []
      return [operator === '?' || operator === '&' ? `${name}=${encode(value)}` : encode(value)]
    })
    const separator = operator === '?' ? '&' : '/.&'.includes(operator || '-') ? operator : ','
    return given.length === 0 ? '' : (operator === '+' ? '' : operator) + given.join(separator)
  })
}

const encodeValue = (text: string): string =>
  encodeURIComponent(text).replace(/[!'()*]/g, (sign) => `%${sign.charCodeAt(0).toString(16).toUpperCase()}`)
const encodeReserved = (text: string): string =>
  text.replace(/%[0-9A-Fa-f]{2}|[^A-Za-z0-9._~:/?#[\]@!$&'()*+,;=-]/gu, (found) =>
    found.length === 3 ? found.toUpperCase() : encodeURIComponent(found),
  )

const match = (template: string, uri: string) => parseTemplate(template).match(uri)

describe('matching a URI template', () => {
  const cases: [string, string, Record<string, string> | undefined][] = [
    ['note://all', 'note://all', {}],
    ['note://all', 'note://all/', undefined],
    ['note://{id}', 'note://7', { id: '7' }],
    ['note://{id}', 'note://', undefined],
    ['note://{id}', 'other://7', undefined],
    ['note://{id}', 'note://a%20b%C3%A9', { id: 'a bé' }],
    ['note://{id}', 'note://caf\u00e9', { id: 'café' }],
    ['note://caf\u00e9/{id}', 'note://caf%c3%a9/1', { id: '1' }],
    [
      'db://{host}:{port}/{table}',
      'db://example.org:5432/users',
      { host: 'example.org', port: '5432', table: 'users' },
    ],
    ['f://{name}.json', 'f://a.json.json', { name: 'a.json' }],
    ['f://{name}.{ext}', 'f://a.tar.gz', { name: 'a', ext: 'tar.gz' }],
    ['f://{+path}/x{b}', 'f://p/xq/xr', { path: 'p/xq', b: 'r' }],
    ['f://{a,b}', 'f://1,2', { a: '1', b: '2' }],
    ['f://{a,b}', 'f://1', { a: '1' }],
    ['f://{a,b}', 'f://1,2,3', undefined],
    ['f://{+path}', 'f://a/b/c?d#e', { path: 'a/b/c?d#e' }],
    ['f://x{#part}', 'f://x#top', { part: 'top' }],
    ['f://x{#part}', 'f://x', {}],
    ['f://x{/a,b}', 'f://x/1/2', { a: '1', b: '2' }],
    ['f://x{/a,b}', 'f://x/1', { a: '1' }],
    ['f://x{/a,b}', 'f://x', {}],
    ['f://x{/a,b}', 'f://x/1/2/3', undefined],
    ['f://{a}{.ext}', 'f://x.png', { a: 'x', ext: 'png' }],
    ['f://x{?q,n}', 'f://x', {}],
    ['f://x{?q,n}', 'f://x?q=1&n=2', { q: '1', n: '2' }],
    ['f://x{?q,n}', 'f://x?n=2&q=1', { q: '1', n: '2' }],
    ['f://x{?q,n}', 'f://x?q=', { q: '' }],
    ['f://x{?q,n}', 'f://x?q=a%26n%3D1+2', { q: 'a&n=1+2' }],
    ['f://x{?q,n}', 'f://x?q=1&q=2', undefined],
    ['f://x{?q,n}', 'f://x?q=1&admin=1', undefined],
    ['f://x{?q}{&n}', 'f://x?q=1&n=2', { q: '1', n: '2' }],
    ['f://x?fixed=1{&n}', 'f://x?fixed=1&n=2', { n: '2' }],
    ['f://x?id={id}', 'f://x?id=1&admin=true', undefined],
    ['f://{id}{?q}{#part}', 'f://7?q=x?y#z', { id: '7', q: 'x?y', part: 'z' }],
    ['f://[::1]/{id}', 'f://[::1]/7', { id: '7' }],
  ]
  it.each(cases)('matches %s against %s', (template, uri, values) => {
    expect(match(template, uri)).toEqual(values)
  })

  it.each([
    ['f://docs/{name}', 'f://docs/a/b'],
    ['f://docs/{name}', 'f://docs/..'],
    ['f://docs/{name}', 'f://docs/%2e%2E'],
    ['f://docs/{name}', 'f://docs/a%2Fb'],
    ['f://docs/{name}', 'f://docs/..%2F..%2Fetc%2Fpasswd'],
    ['f://docs/{name}', 'f://docs/..%5C..'],
    ['f://docs/{name}', 'f://docs/a\\b'],
    ['f://docs/{name}', 'f://docs/a%00.txt'],
    ['f://docs/{name}', 'f://docs/a?b'],
    ['f://docs{/a,b}', 'f://docs/x/..'],
    ['f://docs/{+path}', 'f://docs/a/../../etc'],
    ['f://docs/{+path}', 'f://docs/a/%2e%2e/b'],
    ['f://docs/{+path}', 'f://docs/a/..%2fb'],
    ['f://docs/{+path}', 'f://docs/..'],
  ])('does not let %s leave its folder through %s', (template, uri) => {
    expect(match(template, uri)).toBeUndefined()
  })

  it.each([
    ['an overlong encoding', 'f://%C0%AF'],
    ['a lone continuation byte', 'f://%80'],
    ['an encoded surrogate', 'f://%ED%A0%80'],
    ['a triplet cut off', 'f://a%4'],
    ['a percent sign alone', 'f://100%'],
    ['a lone surrogate', 'f://\ud800'],
    ['a blank', 'f://a b'],
    ['a line break', 'f://a\n'],
    ['8 KiB and more', `f://${'a'.repeat(8192)}`],
    ['something that is no text', undefined as unknown as string],
  ])('does not match %s', (_name, uri) => {
    expect(match('f://{a}', uri)).toBeUndefined()
    expect(match('f://{+a}', uri)).toBeUndefined()
  })
})

describe('a template', () => {
  it.each([
    ['', /non-empty/],
    ['f://{a', /brace/],
    ['f://a}', /brace/],
    ['f://{{a}}', /brace/],
    ['f://{}', /name of a variable/],
    ['f://{a b}', /name of a variable/],
    ['f://{a,}', /name of a variable/],
    ['f://{__proto__}', /name of a variable/],
    ['f://{a*}', /level 4/],
    ['f://{a:3}', /level 4/],
    ['f://{;a}', /operator ";"/],
    ['f://{a}/{a}', /"a" twice/],
    ['f://{a}{b}', /nothing before \{b\}/],
    ['f://{/a}{+b}', /nothing before \{\+b\}/],
    ['f://x{?a}/y', /after its query/],
    ['f://x{?a}{/b}', /after its query/],
    [`f://${'x'.repeat(2048)}`, /2048 characters/],
    [`f://{${Array.from({ length: 51 }, (_, i) => `v${i}`).join()}}`, /more than 50/],
  ])('%s is refused with a TypeError', (template, message) => {
    expect(() => parseTemplate(template)).toThrow(TypeError)
    expect(() => parseTemplate(template)).toThrow(message)
  })

  it('names its variables in order', () => {
    expect(Object.keys(match('f://{b}/{+a}{?c,d.e}', 'f://1/2?c=3&d.e=4') ?? {})).toEqual([
      'b',
      'a',
      'c',
      'd.e',
    ])
  })

  // Examples of the RFC, sections 3.2.2 to 3.2.9, for levels 1 to 3.
  it.each([
    ['{var}', 'value'],
    ['{hello}', 'Hello%20World%21'],
    ['{+hello}', 'Hello%20World!'],
    ['{+path}/here', '/foo/bar/here'],
    ['here?ref={+path}', 'here?ref=/foo/bar'],
    ['X{#var}', 'X#value'],
    ['X{#hello}', 'X#Hello%20World!'],
    ['map?{x,y}', 'map?1024,768'],
    ['{x,hello,y}', '1024,Hello%20World%21,768'],
    ['{+x,hello,y}', '1024,Hello%20World!,768'],
    ['{+path,x}/here', '/foo/bar,1024/here'],
    ['{#path,x}/here', '#/foo/bar,1024/here'],
    ['X{.var}', 'X.value'],
    ['X{.x,y}', 'X.1024.768'],
    ['{/var}', '/value'],
    ['{/var,x}/here', '/value/1024/here'],
    ['{?x,y}', '?x=1024&y=768'],
    ['{?x,y,empty}', '?x=1024&y=768&empty='],
    ['?fixed=yes{&x}', '?fixed=yes&x=1024'],
    ['{&x,y,empty}', '&x=1024&y=768&empty='],
    ['{x,undef}', '1024'],
  ])('%s expands to %s', (template, uri) => {
    const values = { var: 'value', hello: 'Hello World!', path: '/foo/bar', x: '1024', y: '768', empty: '' }
    expect(expand(template, values)).toBe(uri)
  })
})

describe('the law of templates', () => {
  const text = (filter: (value: string) => boolean) =>
    fc
      .string({ unit: 'grapheme', minLength: 1, maxLength: 12 })
      .filter((value) => filter(value) && !/\0/.test(value))
  const isSegment = (value: string) => !/[/\\]/.test(value) && value !== '.' && value !== '..'
  const segment = text(isSegment)
  const path = text((value) => !/[\\%]/.test(value) && value.split('/').every(isSegment))
  const free = fc.string({ unit: 'grapheme', maxLength: 12 }).filter((value) => !/\0/.test(value))
  const optional = (values: fc.Arbitrary<string>) => fc.option(values, { nil: undefined, freq: 3 })

  it.each([
    ['f://{a}', { a: segment }],
    ['f://{a}/x/{b}', { a: segment, b: segment }],
    ['f://{a}:{b}@{c}', { a: segment, b: segment, c: segment }],
    ['f://{a,b,c}', { a: segment, b: segment, c: segment }],
    ['f://{+a}', { a: path }],
    [
      'f://{a}{/b}{?c,d}{&e}{#f}',
      {
        a: segment,
        b: optional(segment),
        c: optional(free),
        d: optional(free),
        e: optional(free),
        f: optional(text((value) => !value.includes('%'))),
      },
    ],
    ['f://x{/a,b}', { a: segment, b: segment }],
    ['f://{a}{.b}', { a: text((value) => isSegment(value) && !value.includes('.')), b: segment }],
  ] as [string, Record<string, fc.Arbitrary<string | undefined>>][])(
    'match(expand(values)) returns the values for %s',
    (template, shape) => {
      const { match } = parseTemplate(template)
      fc.assert(
        fc.property(fc.record(shape), (values) => {
          expect(match(expand(template, values))).toEqual(JSON.parse(JSON.stringify(values)))
        }),
        { numRuns: 500 },
      )
    },
  )

  it('T11 matching ends in time, whatever the template and the URI', () => {
    const names = Array.from({ length: 40 }, (_, i) => `v${i}`)
    const templates = [
      `f://${names.map((name) => `{+${name}}a`).join('')}!`,
      `f://${names.map((name) => `{${name}}-`).join('')}!`,
      `f://x{/${names.join()}}!`,
      `f://x{?${names.join()}}#!`,
      'f://x{+a,b,c,d,e,f,g}!',
    ]
    const uris = ['a', '-', '/a', '&v1=1', '?', ','].map(
      (piece) => `f://x${piece.repeat(8000 / piece.length)}`,
    )
    for (const template of templates) {
      const { match } = parseTemplate(template)
      for (const uri of uris) {
        hasAnEnd(() => match(uri))
      }
    }
  })

  it('T11 matching never throws, whatever the URI', () => {
    const template = parseTemplate('f://{a}/{+b}{.c}{?d,e}{#f}')
    const piece = fc.constantFrom(
      ...'f:/?#&=.,%a-',
      'f://',
      '%41',
      '%',
      '%2F',
      '..',
      'd=',
      'é',
      '\ud800',
      '\0',
    )
    fc.assert(
      fc.property(fc.array(piece), (pieces) => {
        const values = template.match(`f://${pieces.join('')}`)
        if (values !== undefined) for (const value of Object.values(values)) expect(value).not.toContain('\0')
      }),
      { numRuns: 3000 },
    )
  })
})

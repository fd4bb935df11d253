import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { hasAnEnd } from '../../../../test/support/has-an-end.ts'
import { copyParsed, type Guarded, JSON_LIMITS, parseGuarded } from './json.ts'

const reasonOf = (result: Guarded): string => (result.kind === 'ok' ? 'ok' : result.reason)

/** A JSON value whose objects are lists of entries, so that it can contain a key twice. */
type Tree =
  | { kind: 'leaf'; value: string | number | boolean | null }
  | { kind: 'array'; items: Tree[] }
  | { kind: 'object'; entries: [string, Tree][] }

/**
 * No single backslash: JSON.parse of Node 24 and later confuses it with any other key of one escaped character if it has
 * seen an object with that key before, so two parses of one text may differ.
 */
const KEYS = ['a', 'b', 'ab', '', 'é', '"', '\\\\', 'a\\', '\u0000', '😀', 'k'.repeat(9), 'k'.repeat(11)]
const ROGUE_KEYS = ['__proto__']
const HARMLESS_KEYS = ['constructor', 'prototype', 'toString', '7']

const { tree } = fc.letrec<{ tree: Tree }>((tie) => ({
  tree: fc.oneof(
    { maxDepth: 5 },
    fc
      .oneof(fc.string({ unit: 'binary' }), fc.double({ noNaN: true, noDefaultInfinity: true }), fc.boolean())
      .map((value): Tree => ({ kind: 'leaf', value })),
    fc.array(tie('tree'), { maxLength: 4 }).map((items): Tree => ({ kind: 'array', items })),
    fc
      .array(
        fc.tuple(
          fc.oneof(
            { weight: 30, arbitrary: fc.constantFrom(...KEYS) },
            {
              weight: 30,
              arbitrary: fc.string({ unit: 'binary', maxLength: 4 }).filter((key) => key !== '\\'),
            },
            { weight: 1, arbitrary: fc.constantFrom(...ROGUE_KEYS) },
            { weight: 2, arbitrary: fc.constantFrom(...HARMLESS_KEYS) },
          ),
          tie('tree'),
        ),
        { maxLength: 20 },
      )
      .map((entries): Tree => ({ kind: 'object', entries })),
  ),
}))

/** Writes a tree with random white space and with random characters escaped. */
function write(node: Tree, coin: () => number): string {
  const blank = () => ['', ' ', '\n\t', '\r '][coin() % 4] ?? ''
  const text = (value: string) =>
    `"${[
      ...JSON.stringify(value)
        .slice(1, -1)
        .matchAll(/\\u[0-9a-f]{4}|\\.|[\s\S]/g),
    ]
      .map(([c]) =>
        c.length === 1 && coin() % 4 === 0 ? `\\u${c.charCodeAt(0).toString(16).padStart(4, '0')}` : c,
      )
      .join('')}"`
  const list = (open: string, parts: string[], close: string) =>
    open + parts.map((part) => blank() + part + blank()).join(',') + blank() + close
  if (node.kind === 'array') {
    return list(
      '[',
      node.items.map((item) => write(item, coin)),
      ']',
    )
  }
  if (node.kind === 'object') {
    return list(
      '{',
      node.entries.map(([key, item]) => `${text(key)}${blank()}:${blank()}${write(item, coin)}`),
      '}',
    )
  }
  return typeof node.value === 'string' ? text(node.value) : JSON.stringify(node.value)
}

function measure(node: Tree): { depth: number; twice: boolean; rogue: boolean } {
  if (node.kind === 'leaf') return { depth: 0, twice: false, rogue: false }
  const names = node.kind === 'object' ? node.entries.map(([key]) => key) : []
  const inner = (node.kind === 'object' ? node.entries.map(([, item]) => item) : node.items).map(measure)
  return {
    depth: 1 + Math.max(0, ...inner.map((one) => one.depth)),
    twice: new Set(names).size < names.length || inner.some((one) => one.twice),
    rogue: names.some((name) => ROGUE_KEYS.includes(name)) || inner.some((one) => one.rogue),
  }
}

const coins = fc.infiniteStream(fc.nat(1000)).map((stream) => () => stream.next().value as number)

describe('the laws of the guard', () => {
  it('N5 P18 accepts exactly what is within the limits and has no duplicate or forbidden key', () => {
    const seen = new Map<string, number>()
    fc.assert(
      fc.property(tree, coins, fc.nat({ max: 6 }), (node, coin, depth) => {
        const text = write(node, coin)
        const facts = measure(node)
        const fits = facts.depth <= depth && !facts.twice && !facts.rogue
        const result = parseGuarded(text, { depth })
        seen.set(reasonOf(result), (seen.get(reasonOf(result)) ?? 0) + 1)
        expect(result.kind === 'ok').toBe(fits)
        if (result.kind === 'ok') expect(result.value).toEqual(JSON.parse(text))
        else expect(result.reason).not.toBe('syntax')
      }),
      { numRuns: 3000 },
    )
    expect([...seen.keys()].sort()).toEqual(['depth', 'duplicate', 'forbidden-key', 'ok'])
  })

  it('P18 agrees with JSON.parse on every text, and never throws', () => {
    const piece = fc.constantFrom(
      ...'{}[],:"\\ 0ea\u0061tnul',
      '"a":',
      '\\u0061',
      '\\"',
      'true',
      '1e5',
      '\ud800',
    )
    fc.assert(
      fc.property(
        fc.oneof(
          fc.array(piece).map((parts) => parts.join('')),
          fc.json(),
        ),
        (text) => {
          const result = parseGuarded(text)
          let parsed: unknown
          try {
            parsed = JSON.parse(text)
          } catch {
            expect(result.kind).toBe('refused')
            return
          }
          if (result.kind === 'ok') expect(result.value).toEqual(parsed)
          else expect(['duplicate', 'forbidden-key', 'number']).toContain(result.reason)
        },
      ),
      { numRuns: 5000, examples: [['1e500']] },
    )
  })

  it('P19 returns no value that changes a prototype when it is merged', () => {
    const merged = (text: string) => {
      const result = parseGuarded(text)
      if (result.kind === 'refused') return undefined
      return Object.assign({}, result.value)
    }
    fc.assert(
      fc.property(fc.constantFrom(...ROGUE_KEYS, ...HARMLESS_KEYS), tree, coins, (key, node, coin) => {
        const text = write({ kind: 'object', entries: [[key, node]] }, coin)
        const copy = merged(text)
        if (copy !== undefined) expect(Object.getPrototypeOf(copy)).toBe(Object.prototype)
      }),
    )
    // Negative control: the same merge without the guard changes it.
    const hostile = '{"__proto__":{"action":"accept"}}'
    expect((Object.assign({}, JSON.parse(hostile)) as { action?: string }).action).toBe('accept')
    expect(merged(hostile)).toBeUndefined()
  })
})

const table = (rows: number): unknown =>
  Array.from({ length: rows }, (_, i) => ({ id: i, name: `Row ${i}`, amount: i / 4, open: i % 3 === 0 }))

describe('the weight of a text', () => {
  const repeat = (part: (i: number) => string): string => {
    const parts: string[] = []
    for (let i = 0, length = 0; length < 300_000; i++) {
      parts.push(part(i))
      length += (parts[i]?.length ?? 0) + 1
    }
    return `[${parts.join()}]`
  }
  const name = (i: number): string => `k${i.toString(36)}`
  const shuffled = (i: number): string => {
    const left = ['"a":1', '"b":1', '"c":1', '"d":1', '"e":1', '"f":1', '"g":1', '"h":1']
    let order = i * 7919
    const picked: string[] = []
    while (left.length > 0) {
      picked.push(...left.splice(order % left.length, 1))
      order = Math.floor(order / 3) + 5 * i
    }
    return `{${picked.join()}}`
  }
  const shapes: [string, (i: number) => string][] = [
    ['empty objects', () => '{}'],
    ['empty arrays', () => '[]'],
    ['arrays in arrays', () => '[[[[]]]]'],
    ['arrays of one number', () => '[1]'],
    ['objects in objects', () => '{"a":{"a":{"a":{}}}}'],
    ['objects with a key each', (i) => `{"${name(i)}":{}}`],
    ['objects with a number as key', (i) => `{"${99_999 + i}":1}`],
    ['objects with keys in another order each', shuffled],
    ['fractions among texts', (i) => (i % 2 ? '1.5' : '""')],
    ['short texts', (i) => `"${name(i)}"`],
    ['short texts of two bytes per character', (i) => `"中${name(i)}"`],
    ['rows', (i) => JSON.stringify({ id: i, name: `Row ${i}`, amount: i / 4, open: true })],
  ]
  setFlagsFromString('--expose-gc')
  const collect = runInNewContext('gc') as () => void
  const heap = (): number => {
    collect()
    return process.memoryUsage().heapUsed
  }

  it.each(shapes)('N2 is at least what %s take in memory', (_name, part) => {
    const bytes = Buffer.from(repeat(part))
    const kept: unknown[] = []
    const before = heap()
    // Several, so that what else the process does hardly counts.
    for (let i = 0; i < 4; i++) kept.push(JSON.parse(bytes.toString()))
    const each = (heap() - before) / kept.length
    const result = parseGuarded(bytes.toString(), { weight: Number.POSITIVE_INFINITY })
    const weight = result.kind === 'ok' ? result.weight : 0
    expect(kept).toHaveLength(4)
    expect(weight).toBeGreaterThan(0.9 * each)
  })

  it('is the same whatever text came before', () => {
    const text = JSON.stringify(table(50))
    const weigh = (): unknown => parseGuarded(text)
    const first = weigh()
    parseGuarded(repeat(shuffled))
    expect(weigh()).toEqual(first)
    expect(weigh()).toEqual(first)
  })

  it('N2 refuses a text that weighs more than it may, and says so', () => {
    const text = `[${'{},'.repeat(1_000)}{}]`
    expect(parseGuarded(text, { weight: 50_000 })).toMatchObject({ kind: 'refused', reason: 'weight' })
    expect(parseGuarded(text, { weight: 100_000 })).toMatchObject({ kind: 'ok' })
  })
})

describe('the limits of the guard', () => {
  const nested = (depth: number) => '['.repeat(depth) + ']'.repeat(depth)
  const wide = (keys: number) => `{${Array.from({ length: keys }, (_, i) => `"k${i}":${i}`).join()}}`
  const cases: [string, string, string][] = [
    ['T8 depth at the limit', nested(JSON_LIMITS.depth), 'ok'],
    ['T8 depth past the limit', nested(JSON_LIMITS.depth + 1), 'depth'],
    ['T8 depth past the limit in objects', '{"a":'.repeat(513) + 1 + '}'.repeat(513), 'depth'],
    ['T8 many arrays that do not nest', `[${'[],'.repeat(1000)}[]]`, 'ok'],
    ['N5 40,000 keys', wide(40_000), 'ok'],
    ['N5 a table of 30,000 rows with four columns', JSON.stringify(table(30_000)), 'ok'],
    ['N5 a megabyte of text', JSON.stringify({ text: 'x'.repeat(1_048_576) }), 'ok'],
    ['N5 a key of 100,000 characters', `{"${'x'.repeat(100_000)}":1}`, 'ok'],
    ['N5 keys that every object inherits', '{"constructor":1,"prototype":{"toString":2}}', 'ok'],
    [
      'N5 exponents, and numbers with many digits',
      `[1e308,-1E+308,1e-999,${'9'.repeat(308)},0.${'1'.repeat(999)}]`,
      'ok',
    ],
    ['a number beyond all doubles', '{"a":[1e999]}', 'number'],
    ['a number beyond all doubles, negative', '[-1E+999]', 'number'],
    ['a number beyond all doubles, written out', `[${'9'.repeat(310)}]`, 'number'],
    ['a number beyond all doubles that is the last of an object', `{"a":${'9'.repeat(310)}}`, 'number'],
    ['a number beyond all doubles that stands alone', '9'.repeat(310), 'number'],
    ['a text that only looks like one', '["1e999"]', 'ok'],
    ['T10 a key twice', '{"a":1,"a":1}', 'duplicate'],
    ['T10 a key twice, once escaped', '{"a":1,"\\u0061":2}', 'duplicate'],
    ['T10 a key twice, first escaped', '{"\\u0061":1,"a":2}', 'duplicate'],
    ['T10 a key twice, both escaped', '{"\\u0061":1,"\\u0061":2}', 'duplicate'],
    ['T10 a key twice with an object between', '{"a":{"b":1,"a":[{"a":1}]},"c":1,"a":2}', 'duplicate'],
    ['T10 a key twice among many', `${wide(50).slice(0, -1)},"k3":1}`, 'duplicate'],
    ['T10 a key twice among many, escaped', `${wide(50).slice(0, -1)},"k\\u0033":1}`, 'duplicate'],
    ['T10 a key twice within an array', '[{"a":1},{"a":1,"a":2}]', 'duplicate'],
    ['T10 one key in two objects', '[{"a":1},{"a":{"a":2}}]', 'ok'],
    ['T10 keys that differ in case or escapes only', '{"a":1,"A":2,"\\\\u0061":3,"a/":4,"a\\\\":5}', 'ok'],
    ['T10 strings that are not keys', '{"a":["a","a","__proto__"],"b":"a"}', 'ok'],
    ['T9 __proto__', '{"x":{"__proto__":{}}}', 'forbidden-key'],
    ['T9 __proto__ escaped', '{"\\u005f_proto__":1}', 'forbidden-key'],
    ['T9 keys that only look forbidden', '{"__proto_":1,"__Proto__":1,"_proto__":1,"proto":1}', 'ok'],
    ['a text that is not JSON', '{"a":', 'syntax'],
    ['a string without its closing quote', '["a', 'syntax'],
    ['a bad escape in a key', '{"\\x":1}', 'syntax'],
    ['too many closing brackets', ']]]}}', 'syntax'],
    ['an empty text', '', 'syntax'],
    ['a byte order mark', '\ufeff{}', 'syntax'],
    ['a bare value', '"a"', 'ok'],
  ]
  it.each(cases)('%s', (_name, text, reason) => {
    expect(reasonOf(parseGuarded(text))).toBe(reason)
  })

  it('P18 forgets the keys of an object when it ends, and those of a text that was refused', () => {
    const many = JSON.stringify(Object.fromEntries(Array.from({ length: 30 }, (_, i) => [`key${i}`, i])))
    const few = '{"key0":1}'
    for (const text of [`[${many},${many}]`, `{"a":${many},"b":${many},"c":${few}}`])
      expect(parseGuarded(text).kind).toBe('ok')
    expect(parseGuarded(`[${many},{${many.slice(1, -1)},"key7":1}]`)).toMatchObject({ reason: 'duplicate' })
    expect(parseGuarded(`[[${many}`)).toMatchObject({ kind: 'refused' })
    for (const text of [many, few, `[${few},[${few},${many}]]`]) expect(parseGuarded(text).kind).toBe('ok')
  })

  it('reports a value that is not a string as a syntax error', () => {
    expect(reasonOf(parseGuarded(undefined as unknown as string))).toBe('syntax')
  })

  it('names a duplicate key, escaped and shortened', () => {
    const key = `${'\n'.repeat(3)}${'x'.repeat(300)}`
    const result = parseGuarded(`{${JSON.stringify(key)}:1,${JSON.stringify(key)}:2}`)
    expect(result).toEqual({
      kind: 'refused',
      reason: 'duplicate',
      detail: expect.not.stringContaining('\n'),
    })
    expect(result.kind === 'refused' && result.detail.length).toBeLessThan(140)
  })
})

describe('hostile input of several megabytes', () => {
  const hostile: [string, string, string][] = [
    ['T8 a depth bomb of 4 MB', '['.repeat(4e6), 'depth'],
    ['T8 200,000 keys', `{${Array.from({ length: 2e5 }, (_, i) => `"${i}":1`).join()}}`, 'weight'],
    ['T8 a megabyte of empty objects', `[${'{},'.repeat(350_000)}{}]`, 'weight'],
    ['T8 one key 10,000 times', `{${'"a":1,'.repeat(1e4)}"a":1}`, 'duplicate'],
    ['T8 keys of one hash', `[${'{"Aa":1,"BB":2},'.repeat(4e3)}{}]`, 'ok'],
    ['T8 4 MB of backslashes in one string', `"${'\\\\'.repeat(2e6)}"`, 'ok'],
    ['T8 a million escaped quotes', `"${'\\"'.repeat(1e6)}"`, 'ok'],
  ]
  it.each(hostile)('%s', (_name, text, reason) => {
    expect(hasAnEnd(() => reasonOf(parseGuarded(text)))).toBe(reason)
  })
})

describe('copyParsed', () => {
  it('returns what the text of the value would become, and shares nothing with it', () => {
    const check = (value: unknown): void => {
      const text = JSON.stringify(value)
      const parsed: unknown = JSON.parse(text)
      const copy = copyParsed(parsed)
      expect(JSON.stringify(copy)).toBe(text)
      const seen = new Set<unknown>()
      const visit = (one: unknown, mayHave: boolean): void => {
        if (typeof one !== 'object' || one === null) return
        expect(seen.has(one)).toBe(false)
        if (mayHave) seen.add(one)
        for (const member of Object.values(one)) visit(member, mayHave)
      }
      visit(parsed, true)
      visit(copy, false)
    }
    fc.assert(fc.property(fc.jsonValue(), check))
    check(JSON.parse('{"__proto__":{"a":[1]},"b":{"__proto__":null}}'))
    let deep: unknown = { end: [] }
    for (let level = 0; level < 500; level++) deep = level % 2 ? [deep] : { deep }
    check(deep)
  })

  it('changes the prototype of no object', () => {
    const copy = copyParsed(JSON.parse('{"__proto__":{"isAdmin":true}}'))
    expect(Object.getPrototypeOf(copy)).toBe(Object.prototype)
    expect(copy.isAdmin).toBeUndefined()
  })
})

/** Enforces the imports and names of ARCHITECTURE.md. Each rule is shown to report a tree that breaks it. */

import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join, relative, sep } from 'node:path'
import { describe, expect, it } from 'vitest'
import {
  checkArchitecture,
  checkVersionNames,
  checkWalls,
  countLines,
  isTest,
  LONG_LINES,
  type SourceTree,
  versionNames,
} from './support/check-architecture.ts'
import { readSubpaths } from './support/package-exports.ts'
import { scanImports } from './support/scan-imports.ts'

function readTree(root: string): SourceTree {
  const files = readdirSync(root, { recursive: true, withFileTypes: true }).filter(
    (entry) =>
      entry.isFile() &&
      /\.tsx?$/.test(entry.name) &&
      !/[/\\](node_modules|dist|template)([/\\]|$)/.test(entry.parentPath),
  )
  const path = (entry: (typeof files)[number]) => join(entry.parentPath, entry.name)
  return new Map(
    files.map((entry) => [
      relative(root, path(entry)).split(sep).join('/'),
      readFileSync(path(entry), 'utf8'),
    ]),
  )
}

const tree = readTree('packages/rondo/src')

describe('the source tree', () => {
  it('contains the files that the checks expect', () => {
    expect(tree.size).toBeGreaterThan(5)
    expect([...tree.values()].flatMap((text) => scanImports(text).imports).length).toBeGreaterThan(5)
  })

  it('T24 follows the rules of ARCHITECTURE.md', () => {
    const long = [...tree].filter(([path, text]) => !isTest(path) && countLines(text) > LONG_LINES)
    if (long.length > 0) {
      console.log(
        `hint: over ${LONG_LINES} lines: ${long.map(([path, text]) => `${path} ${countLines(text)}`).join(', ')}`,
      )
    }
    expect(checkArchitecture(tree)).toEqual([])
  })
})

describe('the packages on top of rondo', () => {
  const packages = readdirSync('packages').filter((name) =>
    existsSync(join('packages', name, 'package.json')),
  )
  const others = packages.filter((name) => name !== 'rondo')
  const exported = new Set([...readSubpaths().map(({ specifier }) => specifier), 'rondo/internal'])

  it.each(others)('%s uses only what rondo exports, and no file of another package', (name) => {
    expect(checkWalls(name, readTree(join('packages', name)), exported)).toEqual([])
  })

  it.each(others)('%s names no revision', (name) => {
    const names = versionNames(tree)
    expect(names).toContain('2026-07-28')
    // The console's page offers a choice of revisions, and loads nothing of the runtime.
    const code = [...readTree(join('packages', name))].filter(([path]) => !path.startsWith('console/'))
    expect(checkVersionNames(new Map(code), names)).toEqual([])
  })

  it('T24 a package that climbs over the wall is reported', () => {
    const check = (name: string, from: string) =>
      checkWalls(
        name,
        new Map([['src/a.ts', `import { x } from '${from}'\nx()\n`]]),
        new Set(['rondo', 'rondo/internal']),
      )
    expect(check('gateway', 'rondo')).toEqual([])
    expect(check('cli', 'rondo/internal')).toEqual([])
    expect(check('gateway', 'rondo/internal')).toEqual(['gateway: src/a.ts may not import rondo/internal'])
    expect(check('cli', 'rondo/serve')).toEqual([
      'cli: src/a.ts imports rondo/serve, which no package exports',
    ])
    expect(check('cli', '../../rondo/src/index.ts')).toEqual([
      'cli: src/a.ts imports ../../rondo/src/index.ts, which is not in its package',
    ])
  })
})

describe('a tree that breaks a rule is reported', () => {
  const from = (path: string) => `import { x } from '${path}'\nx()\n`
  const leaf = 'export const x = () => 1\n'
  const revision = (name: string) =>
    Object.fromEntries(
      ['client', 'codec', 'decode', 'encode'].map((file) => [`protocol/${name}/${file}.ts`, leaf]),
    )
  const cases: [string, Record<string, string>, RegExp][] = [
    [
      'carry imports serve',
      { 'carry/a.ts': from('../serve/b.ts'), 'serve/b.ts': leaf },
      /carry\/ may not import serve/,
    ],
    [
      'replay imports seal',
      { 'replay/a.ts': from('../seal/b.ts'), 'seal/b.ts': leaf },
      /replay\/ may not import seal/,
    ],
    [
      'tool imports journal',
      { 'tool/a.ts': from('../journal/b.ts'), 'journal/b.ts': leaf },
      /tool\/ may not import journal/,
    ],
    [
      'client imports tool',
      { 'client/a.ts': from('../tool/b.ts'), 'tool/b.ts': leaf },
      /client\/ may not import tool/,
    ],
    [
      'protocol imports tool',
      { ...revision('rev-1'), 'protocol/rev-1/a.ts': from('../../tool/b.ts'), 'tool/b.ts': leaf },
      /protocol\/ may not/,
    ],
    [
      'a file outside of a revision names it',
      {
        ...revision('rev-1'),
        'protocol/rev-1/codec.ts': "export const VERSIONS = ['2026-07-28', '2026-01-01'] as const\n",
        'serve/a.ts': "export const [date, version] = ['2027-01-01', '2026-01-01']\n",
      },
      /^serve\/a\.ts: names the revision 2026-01-01$/,
    ],
    [
      'a revision lacks a file that the others have',
      {
        'protocol/rev-1/client.ts': leaf,
        'protocol/rev-1/codec.ts': "export const x = '2026-07-28'\n",
        'protocol/rev-1/decode.ts': leaf,
      },
      /^protocol\/rev-1\/ has no encode\.ts$/,
    ],
    [
      'a revision imports another',
      { ...revision('rev-1'), ...revision('rev-2'), 'protocol/rev-2/a.ts': from('../rev-1/codec.ts') },
      /a revision may not import another/,
    ],
    [
      'serve imports a revision',
      { ...revision('rev-1'), 'serve/a.ts': from('../protocol/rev-1/codec.ts') },
      /may know revisions only through protocol\/revisions\.ts/,
    ],
    [
      'the common folder imports a revision',
      { ...revision('rev-1'), 'protocol/common/a.ts': from('../rev-1/codec.ts') },
      /may know revisions only through protocol\/revisions\.ts/,
    ],
    [
      'carry imports drafts',
      { 'carry/a.ts': from('../drafts/b.ts'), 'drafts/b.ts': leaf },
      /carry\/ may not import drafts/,
    ],
    [
      'a file that is not allowed to attach drafts imports them',
      { 'serve/a.ts': from('../drafts/b.ts'), 'drafts/b.ts': leaf },
      /serve\/a\.ts: may not attach drafts/,
    ],
    ['form imports lib', { 'form/a.ts': from('../lib/b.ts'), 'lib/b.ts': leaf }, /form\/ may not import lib/],
    ['lib imports errors', { 'lib/a.ts': from('../errors.ts'), 'errors.ts': leaf }, /lib\/ is a leaf/],
    [
      'errors imports lib',
      { 'errors.ts': from('./lib/b.ts'), 'lib/b.ts': leaf },
      /error table may import nothing/,
    ],
    ['lib imports options', { 'lib/a.ts': from('../options.ts'), 'options.ts': leaf }, /lib\/ is a leaf/],
    [
      'options imports lib',
      { 'options.ts': from('./lib/b.ts'), 'lib/b.ts': leaf },
      /options\.ts: may import nothing but errors\.ts/,
    ],
    [
      'a folder imports an entry',
      { 'serve/a.ts': from('../index.ts'), 'index.ts': leaf },
      /serve\/ may not import entry/,
    ],
    [
      'an unknown folder',
      { 'magic/a.ts': from('../lib/b.ts'), 'lib/b.ts': leaf },
      /not in the table of allowed imports/,
    ],
    ['form imports node', { 'form/a.ts': from('node:fs') }, /form\/ does no I\/O/],
    ['replay imports node', { 'replay/a.ts': from('node:fs') }, /replay\/ does no I\/O/],
    [
      'journal imports a package',
      { 'journal/a.ts': from('zod') },
      /journal\/ may not import the package zod/,
    ],
    ['seal imports a package', { 'seal/a.ts': from('jose') }, /seal\/ may not import the package jose/],
    [
      'a type import counts',
      { 'lib/a.ts': "import type { X } from '../errors.ts'\nexport const y: X = 1\n", 'errors.ts': leaf },
      /is a leaf/,
    ],
    [
      'a dynamic import counts',
      { 'replay/a.ts': "export const f = () => import('node:fs')\n" },
      /does no I\/O/,
    ],
    [
      'a re-export counts',
      { 'replay/a.ts': "export { x } from 'zod'\nexport const y = 1\n" },
      /the package zod/,
    ],
    ['a computed import', { 'lib/a.ts': 'export const f = (x: string) => import(x)\n' }, /name is computed/],
    ['a missing file', { 'lib/a.ts': from('./b.ts') }, /which does not exist/],
    [
      'a cycle',
      { 'lib/a.ts': from('./b.ts'), 'lib/b.ts': from('./c.ts'), 'lib/c.ts': from('./a.ts') },
      /^cycle: .*a\.ts → .*b\.ts → .*c\.ts → .*a\.ts$/,
    ],
    [
      'a knot of types',
      Object.fromEntries(
        ['a', 'b', 'c', 'd', 'e'].map((name, at, all) => [
          `lib/${name}.ts`,
          `import type { X } from './${all[(at + 1) % 5]}.ts'\nexport const y: X = 1\n`,
        ]),
      ),
      /^knot of 5 files: lib\/a\.ts, lib\/b\.ts, lib\/c\.ts, lib\/d\.ts, lib\/e\.ts$/,
    ],
    [
      'the port imports what uses it',
      { 'serve/port.ts': from('./a.ts'), 'serve/a.ts': leaf },
      /port\.ts: may import nothing of serve/,
    ],
    [
      'an entrance imports a session',
      { 'serve/http/a.ts': from('../../session/b.ts'), 'session/b.ts': leaf },
      /may know sessions only through serve\/port\.ts/,
    ],
    [
      'a barrel',
      { 'lib/a.ts': "export * from './b.ts'\nexport type { Y } from './b.ts'\n", 'lib/b.ts': leaf },
      /is a barrel/,
    ],
    [
      'one name for two exported types',
      { 'lib/a.ts': 'export interface Turn {}\n', 'carry/b.ts': 'export type Turn = 1\n' },
      /^Turn is an exported type of lib\/a\.ts and carry\/b\.ts$/,
    ],
    ['a file named utils', { 'lib/utils.ts': leaf }, /says nothing about a role/],
    ['a folder named core', { 'serve/core/a.ts': leaf }, /says nothing about a role/],
    ['a file name in camel case', { 'lib/fooBar.ts': leaf }, /not kebab-case/],
    [
      'a file that switches the compiler off',
      { 'lib/a.ts': `// @ts-ignore\n${leaf}` },
      /switches the compiler off/,
    ],
  ]
  it.each(cases)('%s', (_name, files, problem) => {
    const problems = checkArchitecture(new Map(Object.entries(files)))
    expect(problems).toEqual([expect.stringMatching(problem)])
  })

  it('reports nothing for a tree that follows all rules', () => {
    const files = {
      'index.ts': "export { x } from './serve/a.ts'\n",
      'errors.ts': leaf,
      'options.ts': from('./errors.ts'),
      'serve/a.ts': `${from('../carry/b.ts')}export { x }\n`,
      'carry/b.ts': `${from('../lib/c.ts')}import '../errors.ts'\n`,
      'lib/c.ts': `${leaf}${'x()\n'.repeat(299)}`,
      'lib/c.test.ts': `${from('../carry/b.ts')}${'x()\n'.repeat(298)}`,
    }
    expect(checkArchitecture(new Map(Object.entries(files)))).toEqual([])
  })
})

describe('the scan for imports', () => {
  const sources = (text: string) => scanImports(text).imports.map((one) => one.from)

  it('finds every form of import', () => {
    const text = [
      "import a from 'a'",
      "import b, { c as d, type E } from 'b'",
      'import * as f from "c"',
      "import type { G } from 'd'",
      "import 'e'",
      "export * from 'f'",
      "export * as h from 'g'",
      "export { type I, j as k } from 'h'",
      "export type { L } from 'i'",
      "const m = await import('j')",
      "type N = import('k').N",
      "import {\n  o, // one\n  /* two */ p,\n} from 'l'",
    ].join('\n')
    expect(sources(text)).toEqual([...'abcdefghijkl'])
  })

  it('is not misled by comments, strings, templates and regular expressions', () => {
    const text = [
      "// import a from 'a'",
      "/* import 'b' */",
      'const s = "import c from \'c\'"',
      "const t = `import d from 'd' @{x ? `import('e')` : { y: `@{'f'}` }} export * from 'g'`".replaceAll(
        '@',
        '$',
      ),
      'const r = /[`\'"/]import/.test(s) ? 1 / 2 : 3',
      "const from = 'h'; export { from }; export const list = ['from', 'i']",
      'import.meta.url; loader.import("j")',
      "import real from 'real'",
    ].join('\n')
    expect(sources(text)).toEqual(['real'])
  })
})

/**
 * exports.json lists what the package exports, so that a change of the interface is a change of that file. Needs the
 * build (`npm test` builds first).
 */

import { existsSync, readFileSync } from 'node:fs'
import { resolve } from 'node:path'
import { pathToFileURL } from 'node:url'
import { describe, expect, it } from 'vitest'
import { markedCode } from '../scripts/fill-docs.ts'
import { readDocComments, readExample } from './support/doc-comments.ts'
import { readSubpaths } from './support/package-exports.ts'
import { findUnnamedTypes } from './support/public-types.ts'
import { type ExportedNames, readExports } from './support/scan-imports.ts'

const listed = JSON.parse(readFileSync('test/exports.json', 'utf8')) as Record<string, ExportedNames>
const subpaths = readSubpaths()

describe('the exports of the package', () => {
  it('match test/exports.json', () => {
    expect(subpaths.length).toBeGreaterThan(0)
    expect(subpaths.map(({ specifier }) => specifier).sort()).toEqual(Object.keys(listed).sort())
  })

  it.each(subpaths)('$specifier has an entry file that exports the listed names', ({ specifier, source }) => {
    expect(existsSync(source)).toBe(true)
    expect(readExports(readFileSync(source, 'utf8'))).toEqual(listed[specifier])
  })

  it.each(subpaths)(
    '$specifier can be imported from the build, and exports the listed values',
    async ({ specifier, built, types }) => {
      expect(existsSync(built), `${built} is missing: npm run build`).toBe(true)
      expect(existsSync(types)).toBe(true)
      const module = (await import(pathToFileURL(resolve(built)).href)) as object
      expect(Object.keys(module).sort()).toEqual(listed[specifier]?.values)
    },
  )
})

describe('the values that an entry exports', () => {
  it.each(subpaths)('$specifier documents each of its values', ({ source, specifier }) => {
    const comments = readDocComments(source)
    expect([...comments.keys()].sort()).toEqual(listed[specifier]?.values)
    expect([...comments].filter(([, comment]) => !comment).map(([name]) => name)).toEqual([])
  })

  /** `npm run types` compiles the regions of that file. */
  const compiled = new Map([['examples/exports.ts', readFileSync('examples/exports.ts', 'utf8')]])

  it.each(subpaths)('$specifier shows a compiled example of each of its values', ({ source }) => {
    for (const [name, comment = ''] of readDocComments(source)) {
      const region = markedCode(compiled, 'examples/exports.ts', name)
      expect(region, `examples/exports.ts#${name}`).toBeDefined()
      expect(readExample(comment), `@example of ${name}`).toBe(region)
    }
  })

  it('control: the example of a comment is read as it is compiled', () => {
    const comments = readDocComments('in.ts', (file) =>
      file === 'in.ts'
        ? "export { a, b } from './a.ts'"
        : `
        /**
         * Says what a is.
         *
         * @example
         * \`\`\`ts
         * if (x) {
         *   a()
         * }
         * \`\`\`
         */
        export function a() {}
        /** Says what b is. */
        export function b() {}`,
    )
    expect(readExample(comments.get('a') ?? '')).toBe('if (x) {\n  a()\n}')
    expect(readExample(comments.get('b') ?? '')).toBeUndefined()
  })

  it('control: a value without a doc comment directly above it is found', () => {
    const files: Record<string, string> = {
      'in.ts': "export { a, b as c, d, E, type F, g } from './a.ts'",
      'a.ts': `/** The file. */
        import type { X } from './x.ts'
        export const a = 1
        /** Says what b is. */
        export const b = 2
        // A note.
        export function d() {}
        /** */
        export class E {}
        export interface F {}
        /** An older remark. */
        // A note.
        export const g = 3`,
    }
    const comments = readDocComments('in.ts', (file) => files[file] ?? '')
    expect(Object.fromEntries(comments)).toEqual({
      a: undefined,
      c: 'Says what b is.',
      d: undefined,
      E: '',
      g: undefined,
    })
  })
})

describe('the types in public signatures', () => {
  /**
   * Authors of a store import its types from `rondo/store`, those of an extension from `rondo/extension`, those who
   * write an observer from `rondo/otel`. The
   * client and the forms run in a browser, where the others do not.
   */
  const besideOf = (source: string): string[] =>
    /client|form/.test(source)
      ? []
      : ['index', 'store', 'extension', 'otel'].map((entry) => `packages/rondo/src/${entry}.ts`)

  it.each(subpaths)(
    '$specifier, rondo or rondo/store exports every type of a parameter or a result',
    ({ source }) => {
      const { unnamed, seen } = findUnnamedTypes(source, besideOf(source))
      expect(unnamed).toEqual([])
      expect(seen).toBeGreaterThan(0)
    },
  )

  it('rondo exports at most 70 types, a list that can be read', () => {
    expect(listed.rondo?.types.length).toBeLessThanOrEqual(70)
  })

  it('control: reports parameters and results whose types cannot be imported, even behind other types', () => {
    const files: Record<string, string> = {
      'in.ts': "export { make, type Made } from './a.ts'",
      'beside.ts': "export type { Beside } from './b.ts'",
      'a.ts': `import type { Beside, Far } from './b.ts'
        type Own<T> = T | Far | Near
        export interface Near { x: Promise<string>; on(near: NearGiven): void }
        export interface Made extends Base { own: Own<Made>; beside(): Beside }
        export interface Base { readonly listen: (heard: Promise<Heard>) => void }
        export function make(given: Given): Made { const inside: Inside = given; return inside as never }
        export type Given = 1
        export type Heard = 1
        export type NearGiven = 1
        export type Inside = 1`,
      'b.ts': `export type Far = (far: Farther) => Farther
        export type Beside = () => Hidden
        export type Farther = 1
        export type Hidden = 1`,
    }
    const { unnamed } = findUnnamedTypes('in.ts', ['beside.ts'], (file) => files[file] ?? '')
    expect(unnamed).toEqual(['Farther (b.ts)', 'Given (a.ts)', 'Heard (a.ts)', 'NearGiven (a.ts)'])
  })
})

describe('the reader of exports', () => {
  it('finds values and types in every form', () => {
    const source = `
      // export const no = 1
      export { a, type B, c as d } from './x.ts'
      export type { E, F as G } from './y.ts'
      export const h = 1
      export async function i() {}
      export class J {}
      export interface K {}
      export type L = string
    `.replace(/^ {6}/gm, '')
    expect(readExports(source)).toEqual({
      values: ['J', 'a', 'd', 'h', 'i'],
      types: ['B', 'E', 'G', 'K', 'L'],
    })
  })

  it('refuses a file with `export *`', () => {
    expect(() => readExports("export * from './x.ts'")).toThrow(TypeError)
  })
})

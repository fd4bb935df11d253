/**
 * The rules that keep the documentation true, as functions of a set of files. Each returns its problems, one sentence
 * each; the tests also assert that there was something to check.
 */

import { posix } from 'node:path'
import { readAnchors, readFences, readLinks } from './markdown.ts'

type Files = ReadonlyMap<string, string>

const isMarkdown = (path: string): boolean => path.endsWith('.md')

export function checkLinks(files: Files): { checked: number; problems: string[] } {
  const problems: string[] = []
  let checked = 0
  const folders = new Set([...files.keys()].flatMap((path) => ancestors(path)))
  for (const [page, text] of files) {
    if (!isMarkdown(page)) continue
    for (const link of readLinks(text)) {
      if (/^[a-z][a-z0-9+.-]*:/i.test(link)) continue
      checked++
      const [path = '', anchor] = decodeURI(link).split('#')
      const target = path === '' ? page : posix.join(posix.dirname(page), path).replace(/\/$/, '')
      const targetText = files.get(target)
      if (targetText === undefined && !folders.has(target)) problems.push(`${page}: ${link} does not exist`)
      else if (anchor && !readAnchors(targetText ?? '').has(anchor))
        problems.push(`${page}: ${link} has no such heading`)
    }
  }
  return { checked, problems }
}

function ancestors(path: string): string[] {
  const parts = path.split('/').slice(0, -1)
  return parts.map((_, i) => parts.slice(0, i + 1).join('/'))
}

/** Examples import the sources; a reader imports the package. */
function asReaderSees(code: string): string {
  return code
    .replace(/(['"])(?:\.\.\/)+src\/index\.ts\1/g, '$1rondo$1')
    .replace(/(['"])(?:\.\.\/)+src\/([a-z-]+)\.ts\1/g, '$1rondo/$2$1')
    .trimEnd()
}

function region(text: string, name: string): string | undefined {
  const lines = text.split('\n')
  const start = lines.findIndex((line) => line.trim() === `// #region ${name}`)
  const length = lines.slice(start + 1).findIndex((line) => line.trim() === '// #endregion')
  if (start < 0 || length < 0) return undefined
  const body = lines.slice(start + 1, start + 1 + length)
  const indent = Math.min(...body.filter((line) => line.trim() !== '').map((line) => line.search(/\S/)))
  return body.map((line) => line.slice(indent)).join('\n')
}

/** Blocks marked `<!-- from examples/x.ts -->` or `<!-- from examples/x.ts#name -->` are that file, or that region. */
export function checkExamples(files: Files): { checked: number; problems: string[] } {
  const problems: string[] = []
  let checked = 0
  for (const [page, text] of files) {
    if (!isMarkdown(page)) continue
    for (const { mark, code, language } of readFences(text)) {
      const source = /^from (\S+?)(?:#(\S+))?$/.exec(mark ?? '')
      if (source === null) {
        const mustBeMarked = page === 'README.md' && /^(ts|js|typescript|javascript)$/.test(language)
        if (mustBeMarked) problems.push(`${page}: a ${language} block is not taken from a file in examples/`)
        continue
      }
      checked++
      const [, path = '', name] = source
      const file = files.get(path)
      const wanted = file === undefined || name === undefined ? file : region(file, name)
      if (wanted === undefined) problems.push(`${page}: there is no ${path}${name ? `#${name}` : ''}`)
      else if (asReaderSees(wanted) !== code.trimEnd())
        problems.push(`${page}: a block differs from ${source[0].slice(5)}`)
    }
  }
  return { checked, problems }
}

const MACHINE_PATH = /(?<![\w.:/~-])\/(?:work|home|root|Users|mnt)\/[\w.-]+|\b[A-Z]:\\Users\\/
const REGISTRY_HOST = /\bregistry\.[a-z0-9-]+\.[a-z]+|\bverdaccio\b|\bartifactory\b|\bjfrog\b/i

/** Pages and the lock file contain no path of a machine and no host name of a registry. */
export function checkMachine(files: Files): string[] {
  const checked = [...files].filter(([path]) => isMarkdown(path) || path === 'package-lock.json')
  return checked.flatMap(([path, text]) =>
    text.split('\n').flatMap((line, i) => {
      const found = MACHINE_PATH.exec(line) ?? REGISTRY_HOST.exec(line)
      return found ? [`${path}:${i + 1}: ${found[0]}`] : []
    }),
  )
}

/** Both lists must contain the same names. */
export function compareNames(what: string, inDocs: readonly string[], inCode: readonly string[]): string[] {
  const problems: string[] = []
  for (const name of inCode) if (!inDocs.includes(name)) problems.push(`${what} ${name} is not documented`)
  for (const name of inDocs)
    if (!inCode.includes(name)) problems.push(`${what} ${name} is documented but does not exist`)
  if (new Set(inDocs).size !== inDocs.length) problems.push(`a ${what} is documented twice`)
  return problems
}

/** Names of the properties and methods of an interface, read from its source: those at its own depth. */
export function readInterface(source: string, name: string): string[] | undefined {
  const start = new RegExp(`\\binterface ${name}\\b[^{]*\\{`).exec(source)
  if (start === null) return undefined
  const text = source.slice(start.index + start[0].length).replace(/\/\*[\s\S]*?\*\/|\/\/[^\n]*/g, '')
  const names: string[] = []
  let depth = 0
  for (const line of text.split('\n')) {
    const property = depth === 0 ? /^\s*(?:readonly\s+)?(\w+)\??\s*[:(<]/.exec(line)?.[1] : undefined
    if (property) names.push(property)
    for (const mark of line) {
      if ('{(['.includes(mark)) depth++
      if ('})]'.includes(mark)) depth--
      if (depth < 0) return names
    }
  }
  return undefined
}

interface OptionTable {
  readonly types: readonly string[]
  /** Properties that readers need not know. */
  readonly hidden: readonly string[]
  readonly rows: readonly { readonly name: string; readonly initial: string }[]
}

/** Tables of a page that follow `<!-- options A B -hidden -->`. */
export function readOptionTables(markdown: string): OptionTable[] {
  const tables = markdown.matchAll(/^<!-- options ([\w/ -]+) -->\n\n((?:\|.*\n)+)/gm)
  return [...tables].map(([, words = '', table = '']) => {
    const names = words.split(' ')
    const rows = table.matchAll(/^\| `(\w+)` *\| *([^|]*?) *\|/gm)
    return {
      types: names.filter((name) => !name.startsWith('-')),
      hidden: names.filter((name) => name.startsWith('-')).map((name) => name.slice(1)),
      rows: [...rows].map(([, name = '', initial = '']) => ({ name, initial })),
    }
  })
}

const UNITS: Readonly<Record<string, number>> = {
  s: 1_000,
  minute: 60_000,
  hour: 3_600_000,
  KiB: 1_024,
  MiB: 1_048_576,
}

/** `3`, `5 minutes`, `64 KiB` as a number; NaN for anything else. */
export function readQuantity(text: string): number {
  const [, amount, unit] = /^(\d+)(?: (\w+?)s?)?$/.exec(text) ?? []
  return Number(amount) * (unit === undefined ? 1 : (UNITS[unit] ?? Number.NaN))
}

/** Each table has exactly the properties of its types: `Name`, or `folder/Name` where two folders have that name. */
export function checkOptions(files: Files, page: string): string[] {
  return readOptionTables(files.get(page) ?? '').flatMap(({ types, hidden, rows }) => {
    const found = types.map((type) => findInterface(files, type))
    const missing = types.filter((_, i) => found[i] === undefined)
    if (missing.length > 0) return missing.map((type) => `there is no interface ${type}`)
    const inDocs = rows.map(({ name }) => name)
    const inCode = found.flatMap((names) => names ?? []).filter((name) => !hidden.includes(name))
    return compareNames(`option of ${types.join(', ')}`, inDocs, inCode)
  })
}

function findInterface(files: Files, type: string): string[] | undefined {
  const [name = '', folder = ''] = type.split('/').reverse()
  for (const [path, text] of files) {
    if (!path.startsWith(`src/${folder}`) || !/(?<!\.test)\.ts$/.test(path)) continue
    const names = readInterface(text, name)
    if (names) return names
  }
  return undefined
}

/** Each row of the table of threats names tests, and at least one of them quotes its number. */
export function checkThreats(files: Files, page: string): { checked: number; problems: string[] } {
  const rows = [...(files.get(page) ?? '').matchAll(/^\| (T\d+) .*\|(.*)\|$/gm)]
  const problems = rows.flatMap(([, number = '', cell = '']) => {
    const tests = readLinks(cell).map((path) => files.get(path) ?? '')
    return tests.some((text) => new RegExp(`\\b${number}\\b`).test(text))
      ? []
      : [`${number} has no test that quotes it`]
  })
  return { checked: rows.length, problems }
}

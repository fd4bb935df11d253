/**
 * The rules that keep the documentation true, as functions of a set of files. Each returns its problems, one sentence
 * each; the tests also assert that there was something to check.
 */

import { posix } from 'node:path'
import type { OptionSet } from '../../packages/rondo/src/options.ts'
import { markedCode } from '../../scripts/fill-docs.ts'
import { readMark, type TableMark } from '../../scripts/reference.ts'
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
      else if (anchor) {
        const anchors = readAnchors(targetText ?? '')
        if (!anchors.has(anchor)) problems.push(`${page}: ${link} has no such heading`)
        else if (anchors.has(`${anchor}-1`)) problems.push(`${page}: ${link} is the anchor of two headings`)
      }
    }
  }
  return { checked, problems }
}

function ancestors(path: string): string[] {
  const parts = path.split('/').slice(0, -1)
  return parts.map((_, i) => parts.slice(0, i + 1).join('/'))
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
        if (/^(ts|js|typescript|javascript)$/.test(language))
          problems.push(`${page}: a ${language} block is not taken from a file in examples/`)
        continue
      }
      checked++
      const [, path = '', name] = source
      const wanted = markedCode(files, path, name)
      if (wanted === undefined) problems.push(`${page}: there is no ${path}${name ? `#${name}` : ''}`)
      else if (wanted !== code.trimEnd()) problems.push(`${page}: a block differs from ${source[0].slice(5)}`)
    }
  }
  return { checked, problems }
}

const MACHINE_PATH = /(?<![\w.:/~-])\/(?:work|home|root|Users|mnt)\/[\w.-]+|\b[A-Z]:\\Users\\/
const REGISTRY_HOST = /\bregistry\.[a-z0-9-]+\.[a-z]+|\bverdaccio\b|\bartifactory\b|\bjfrog\b/i

/** Pages and lock files contain no path of a machine and no host name of a registry. */
export function checkMachine(files: Files): string[] {
  const checked = [...files].filter(([path]) => isMarkdown(path) || path.endsWith('package-lock.json'))
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
    const property = depth === 0 ? /^\s*(?:readonly\s+)?([a-z_]\w*)\??\s*[:(<]/.exec(line)?.[1] : undefined
    if (property) names.push(property)
    for (const mark of line) {
      if ('{(['.includes(mark)) depth++
      if ('})]'.includes(mark)) depth--
      if (depth < 0) return names
    }
  }
  return undefined
}

interface OptionTable extends TableMark {
  readonly rows: readonly { readonly name: string; readonly initial: string }[]
}

/** Tables of a page that follow `<!-- options definition: A B -hidden -->` or `<!-- members A -hidden -->`. */
export function readOptionTables(markdown: string): OptionTable[] {
  const tables = markdown.matchAll(/^<!-- (?:options|members) ([\w/:. -]+) -->\n\n((?:\|.*\n)+)/gm)
  return [...tables].map(([, words = '', table = '']) => {
    const rows = table.matchAll(/^\| `(\w+)(?:\([^`]*)?` *\| *([^|]*?) *\|/gm)
    return {
      ...readMark(words),
      rows: [...rows].map(([, name = '', initial = '']) => ({ name, initial })),
    }
  })
}

const UNITS: Readonly<Record<string, number>> = {
  ms: 1,
  s: 1_000,
  minute: 60_000,
  hour: 3_600_000,
  day: 86_400_000,
  KiB: 1_024,
  MiB: 1_048_576,
}

/** `3`, `10,000`, `5 minutes`, `64 KiB` as a number; NaN for anything else. */
export function readQuantity(text: string): number {
  const [, amount, unit] = /^(\d+)(?: (ms|\w+?)s?)?$/.exec(text.replaceAll(',', '')) ?? []
  return Number(amount) * (unit === undefined ? 1 : (UNITS[unit] ?? Number.NaN))
}

/** Interfaces that are no options of a user: what a store or its tests receive, and what errors and benches are made from. */
const NOT_FOR_USERS = new Set([
  'BenchOptions',
  'ContractEngineOptions',
  'EngineOptions',
  'RondoErrorOptions',
  'ServeOptions',
  'StoreContractOptions',
  // Documented with the context.
  'ApprovalOptions',
  'ConfirmOptions',
  'EffectOptions',
  'HookOptions',
])

/** Every type of a public entry that is an object of options has a table. */
export function checkPublicOptions(
  tables: readonly OptionTable[],
  types: readonly string[],
): { checked: number; problems: string[] } {
  const documented = new Set(tables.flatMap((table) => table.types.map((type) => type.split('/').at(-1))))
  const options = [...new Set(types)].filter(
    (type) => /(?:Options|Definition)$/.test(type) && !NOT_FOR_USERS.has(type),
  )
  const problems = options.filter((type) => !documented.has(type)).map((type) => `${type} has no table`)
  return { checked: options.length, problems }
}

/** Each row of a table with a definition states the default that the definition has. */
export function checkDefaults(
  tables: readonly OptionTable[],
  definitions: readonly OptionSet[],
): { checked: number; problems: string[] } {
  let checked = 0
  const problems = tables.flatMap(({ of, rows }) => {
    const sets = definitions.filter((set) => set.of.replace(': ', '.') === of)
    if (of !== '' && sets.length === 0) return [`${of} is not defined`]
    return rows.flatMap(({ name, initial }) => {
      const options = sets.flatMap((set) => set.table[name] ?? [])
      if (of !== '' && options.length === 0) return [`${of}: there is no option ${name}`]
      checked += options.length
      return options
        .filter((option) => !isDefault(initial, option.initial))
        .map(
          (option) =>
            `${of}: ${name} is documented as "${initial}", and the definition has ${JSON.stringify(option.initial)}`,
        )
    })
  })
  return { checked, problems }
}

/** A default that the code works out later is described in words, and not as a number or a boolean. */
function isDefault(documented: string, initial: unknown): boolean {
  if (initial === Number.POSITIVE_INFINITY) return documented === 'never'
  if (typeof initial === 'number') return readQuantity(documented) === initial
  if (typeof initial === 'boolean' || typeof initial === 'string') return documented === `\`${initial}\``
  return Number.isNaN(readQuantity(documented)) && !/^`(?:true|false)`$/.test(documented)
}

/** Each table has exactly the properties of its types: `Name`, or `folder/Name` where two folders have that name. */
export function checkOptions(files: Files, page: string): string[] {
  const tables = readOptionTables(files.get(page) ?? '')
  const documented = tables.flatMap(({ types }) => types.map((type) => type.split('/').at(-1) ?? ''))
  return tables.flatMap(({ types, hidden, rows }) => {
    const found = types.map((type) => findInterface(files, type))
    const missing = types.filter((_, i) => found[i] === undefined)
    if (missing.length > 0) return missing.map((type) => `there is no interface ${type}`)
    const inDocs = rows.map(({ name }) => name)
    const own = found.flatMap((names) => names ?? [])
    const inherited = types.flatMap((type) => inheritedNames(files, type, documented))
    const inCode = [...own, ...inherited].filter((name) => !hidden.includes(name))
    return compareNames(`option of ${types.join(', ')}`, inDocs, inCode)
  })
}

function findInterface(files: Files, type: string): string[] | undefined {
  return findSource(files, type, readInterface)
}

function findSource<T>(files: Files, type: string, read: (source: string, name: string) => T | undefined) {
  const [name = '', folder = ''] = type.split('/').reverse()
  for (const [path, text] of files) {
    if (!new RegExp(`^packages/[^/]+/src/${folder}`).test(path) || !/(?<!\.test)\.ts$/.test(path)) continue
    const found = read(text, name)
    if (found) return found
  }
  return undefined
}

/** Names that a type has from the interfaces it extends, unless those have a table on the same page. */
function inheritedNames(files: Files, type: string, documented: readonly string[]): string[] {
  return (findSource(files, type, readParents) ?? []).flatMap(({ parent, keys }) => {
    if (keys !== undefined)
      return findSource(files, keys, readNames) ?? [`of ${keys}, which is not a list of names`]
    if (documented.includes(parent)) return []
    return [...(findInterface(files, parent) ?? []), ...inheritedNames(files, parent, documented)]
  })
}

/** The parents after `extends`, and for `Pick<Parent, Keys>` the type that lists the names. */
function readParents(source: string, name: string): { parent: string; keys?: string }[] | undefined {
  const clause = new RegExp(`\\binterface ${name}\\b(?:<[^{]*>)?\\s+extends\\s+([^{]*)\\{`).exec(source)?.[1]
  const parents = clause?.matchAll(
    /(?:(Pick|Omit|Partial|Required)<\s*)?([A-Z]\w*)(?:\s*,\s*([^>]*?)\s*,?\s*>|>)?/g,
  )
  if (parents === undefined) return undefined
  return Array.from(parents, ([, how, parent = '', keys]) => (how === 'Pick' ? { parent, keys } : { parent }))
}

/** The strings of `type Name = 'a' | 'b'`; a list that is written in place is its own name. */
function readNames(source: string, name: string): string[] | undefined {
  const list = name.includes("'")
    ? name
    : new RegExp(`\\btype ${name} =([^;{}]*?)\\n\\n`).exec(`${source}\n\n`)?.[1]
  return list === undefined ? undefined : Array.from(list.matchAll(/'(\w+)'/g), ([, key = '']) => key)
}

/** Each row of the table of threats names test files, and each of them quotes the row's number. */
export function checkThreats(files: Files, page: string): { checked: number; problems: string[] } {
  const cells = new Map<string, string>()
  for (const [, number = '', cell = ''] of (files.get(page) ?? '').matchAll(
    /^\| ([TR]\d+[a-z]?) .*\|(.*)\|$/gm,
  ))
    cells.set(number, (cells.get(number) ?? '') + cell)
  const problems = [...cells].flatMap(([number, cell]) => {
    const paths = Array.from(cell.matchAll(/`([^`]+\.ts)`/g), ([, path = '']) => path)
    if (paths.length === 0) return [`${number} names no test`]
    return paths
      .filter((path) => !new RegExp(`\\b${number}\\b`).test(files.get(path) ?? ''))
      .map((path) => `${number} is not quoted by ${path}`)
  })
  return { checked: cells.size, problems }
}

/** Commands by name, each with the names of its options. */
export type CommandTable = ReadonlyMap<string, ReadonlySet<string>>

/**
 * Each `rondo …` and `npm run …` in a shell block, a transcript or inline code names a command and options that exist.
 * Commands of other programs, and output, are not checked.
 */
export function checkCommands(
  files: Files,
  commands: CommandTable,
  scripts: ReadonlySet<string>,
): { checked: number; problems: string[] } {
  const problems: string[] = []
  let checked = 0
  for (const [page, text] of files) {
    if (!isMarkdown(page)) continue
    const blocks = readFences(text).filter(({ language }) => /^(sh|text|)$/.test(language))
    const lines = blocks.flatMap(({ code }) => code.split('\n'))
    const inline = Array.from(text.matchAll(/`([^`\n]+)`/g), ([, code = '']) => code)
    for (const line of [...lines, ...inline]) {
      for (const [, name = ''] of line.matchAll(/\bnpm run ([\w:-]+)/g)) {
        checked++
        if (!scripts.has(name)) problems.push(`${page}: there is no script "${name}"`)
      }
      const [, name = '', rest = ''] = /(?:^|(?<!create)[ (])rondo ([a-z]+)\b([^#&|]*)/.exec(line) ?? []
      if (name === '') continue
      checked++
      const options = commands.get(name)
      if (options === undefined) problems.push(`${page}: there is no command "rondo ${name}"`)
      const own = rest.replace(/ -- .*|"[^"]*"/g, '')
      for (const [, option = ''] of own.matchAll(/\s--([a-z][\w-]*)/g))
        if (options && !options.has(option))
          problems.push(`${page}: "rondo ${name}" has no option --${option}`)
    }
  }
  return { checked, problems }
}

/** The pages that the package contains, and the files they may link to there. */
export function packedFiles(files: Files): Map<string, string> {
  const { files: patterns } = JSON.parse(files.get('packages/rondo/package.json') ?? '{}') as {
    files: string[]
  }
  const isPacked = (path: string): boolean =>
    patterns.some((pattern) => path === pattern || path.startsWith(`${pattern}/`))
  return new Map([...files].filter(([path]) => isPacked(path)))
}

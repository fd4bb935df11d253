/**
 * The rules of ARCHITECTURE.md ("Who may import whom") as a function of a source tree (a map from paths below
 * `src/` to texts). Returns the problems found, one sentence each; the caller asserts that the tree is not empty.
 */

import { posix } from 'node:path'
import { type Scan, scanImports } from './scan-imports.ts'

export type SourceTree = ReadonlyMap<string, string>

/** Folders that a folder may import besides itself, `errors.ts` and `options.ts`. `entry` are the files at the top of `src`. */
const ARROWS: Readonly<Record<string, readonly string[]>> = {
  mount: ['serve', 'carry', 'log', 'replay', 'seal', 'store', 'tool', 'journal', 'protocol', 'form', 'lib'],
  drafts: [
    'client',
    'serve',
    'session',
    'carry',
    'log',
    'replay',
    'seal',
    'store',
    'tool',
    'journal',
    'protocol',
    'form',
    'lib',
  ],
  oauth: ['serve', 'store', 'tool', 'protocol', 'lib'],
  session: ['serve', 'carry', 'log', 'replay', 'seal', 'store', 'tool', 'journal', 'protocol', 'form', 'lib'],
  serve: [
    'drafts',
    'session',
    'carry',
    'log',
    'replay',
    'seal',
    'store',
    'tool',
    'journal',
    'protocol',
    'form',
    'lib',
  ],
  carry: ['log', 'replay', 'seal', 'store', 'tool', 'journal', 'protocol', 'form', 'lib'],
  log: ['replay', 'journal', 'protocol', 'form', 'lib'],
  replay: ['tool', 'journal', 'protocol', 'form', 'lib'],
  seal: ['tool', 'journal', 'protocol', 'lib'],
  store: ['tool', 'journal', 'protocol', 'lib'],
  tool: ['protocol', 'form', 'lib'],
  journal: ['protocol', 'lib'],
  protocol: ['lib'],
  client: ['drafts', 'protocol', 'form', 'lib'],
  testing: [
    'serve',
    'session',
    'carry',
    'log',
    'replay',
    'seal',
    'store',
    'tool',
    'journal',
    'protocol',
    'client',
    'form',
    'lib',
  ],
  telemetry: ['protocol', 'lib'],
  form: [],
  lib: [],
}
const LEAVES = new Set(['form', 'lib'])
const NO_NODE = new Set(['replay', 'journal', 'form'])
const NO_PACKAGE = new Set(['replay', 'journal', 'seal', 'form'])
const FORBIDDEN_NAMES = /^(utils?|helpers?|core|manager|managers|impl|types)$/
const KEBAB = /^[a-z0-9]+(-[a-z0-9]+)*$/
const FORBIDDEN_TEXT: readonly [RegExp, string][] = [[/@ts-(ignore|nocheck)\b/, 'switches the compiler off']]
/** A source file longer than this is printed as a hint: does it hold two concepts? */
export const LONG_LINES = 300

export const isTest = (path: string): boolean => path.endsWith('.test.ts')
/** Files at the top of `src` that are no entries: anything but a leaf may import them. */
const SHARED = new Set(['errors.ts', 'options.ts'])
const isEntry = (path: string): boolean => !path.includes('/') && !SHARED.has(path)

function folderOf(path: string): string {
  if (SHARED.has(path)) return path.slice(0, -'.ts'.length)
  return path.includes('/') ? (path.split('/')[0] ?? '') : 'entry'
}

export function countLines(text: string): number {
  return text.split('\n').length - (text.endsWith('\n') ? 1 : 0)
}

function checkNames(path: string): string[] {
  const segments = path.replace(/\.(test\.)?ts$/, '').split('/')
  return segments.flatMap((segment) => {
    const name = segment.split('.')[0] ?? ''
    if (FORBIDDEN_NAMES.test(name)) return [`${path}: "${name}" says nothing about a role`]
    return segment.split('.').every((part) => KEBAB.test(part))
      ? []
      : [`${path}: "${segment}" is not kebab-case`]
  })
}

function checkText(path: string, text: string): string[] {
  return FORBIDDEN_TEXT.flatMap(([pattern, what]) => (pattern.test(text) ? [`${path}: ${what}`] : []))
}

function checkPackage(path: string, folder: string, from: string): string[] {
  const builtIn = from.startsWith('node:')
  if (builtIn && NO_NODE.has(folder)) return [`${path}: ${folder}/ does no I/O and may not import ${from}`]
  if (!builtIn && NO_PACKAGE.has(folder)) return [`${path}: ${folder}/ may not import the package ${from}`]
  return []
}

/** The list of published revisions. */
const CODEC_LIST = 'protocol/revisions.ts'
/** The client keeps sessions of older servers in their wire format; a draft is written as the difference from a revision. */
const SPEAKS_REVISIONS = new Set(['client', 'drafts'])
const REVISION = /^protocol\/(rev-[^/]+)\//

/** A revision is a folder that can be added or removed alone; what two of them share is in `protocol/common`. */
function checkRevision(path: string, target: string): string[] {
  const [from, to] = [path, target].map((one) => REVISION.exec(one)?.[1])
  if (to === undefined || from === to) return []
  if (from !== undefined) return [`${path}: a revision may not import another (${target})`]
  return path === CODEC_LIST || SPEAKS_REVISIONS.has(folderOf(path))
    ? []
    : [`${path}: may know revisions only through ${CODEC_LIST}, but imports ${target}`]
}

/** The folder of a published revision or of a draft. */
const REVISION_FOLDER = /^(?:protocol\/rev-|drafts\/draft-)[^/]+\//
const VERSION_LITERAL = /(['"])(\d{4}-\d{2}-\d{2}|DRAFT-[\w-]+)\1/g

/** The versions that the codecs of the tree name. */
export function versionNames(tree: SourceTree): ReadonlySet<string> {
  const codecs = [...tree].filter(([path]) => REVISION_FOLDER.test(path) && path.endsWith('/codec.ts'))
  return new Set(
    codecs.flatMap(([, text]) => [...text.matchAll(VERSION_LITERAL)].map(([, , name = '']) => name)),
  )
}

/** Revisions are named in their own folders only; any other file imports the name. */
export function checkVersionNames(tree: SourceTree, names: ReadonlySet<string>): string[] {
  return [...tree].flatMap(([path, text]) =>
    isTest(path) || REVISION_FOLDER.test(path)
      ? []
      : [...text.matchAll(VERSION_LITERAL)].flatMap(([, , name = '']) =>
          names.has(name) ? [`${path}: names the revision ${name}`] : [],
        ),
  )
}

/** The files that every revision has, so that two of them can be compared. */
const REVISION_FILES = ['client.ts', 'codec.ts', 'decode.ts', 'encode.ts']

function checkRevisionFiles(tree: SourceTree): string[] {
  const folders = new Set([...tree.keys()].flatMap((path) => REVISION_FOLDER.exec(path)?.[0] ?? []))
  return [...folders].flatMap((folder) =>
    REVISION_FILES.filter((name) => !tree.has(folder + name)).map((name) => `${folder} has no ${name}`),
  )
}

/** The only files that import drafts, each with what it attaches. To delete `drafts/`, edit these and no other. */
const ATTACHES_DRAFTS: Readonly<Record<string, string>> = {
  'serve/options.ts': 'the drafts of a server, with their options',
  'client/dialect.ts': 'the dialects of both drafts, and what a client declares to take part',
}

function checkDraft(path: string, target: string): string[] {
  if (folderOf(target) !== 'drafts' || ['drafts', 'entry'].includes(folderOf(path))) return []
  return Object.hasOwn(ATTACHES_DRAFTS, path) ? [] : [`${path}: may not attach drafts (${target})`]
}

/** The seam between entrances, service and sessions. It holds types, and imports nothing that uses them. */
const PORT = 'serve/port.ts'

/** The only files of `serve/` that import sessions; all others know them through the port. */
const ATTACHES_SESSIONS: Readonly<Record<string, string>> = {
  'serve/server.ts': 'the service for older clients',
  'serve/options.ts': 'the options of sessions',
}

function checkSeam(path: string, target: string): string[] {
  const to = folderOf(target)
  if (path === PORT && (to === 'serve' || to === 'session'))
    return [`${path}: may import nothing of serve/ and session/ (${target})`]
  if (to !== 'session' || folderOf(path) !== 'serve' || Object.hasOwn(ATTACHES_SESSIONS, path)) return []
  return [`${path}: may know sessions only through ${PORT} (${target})`]
}

function checkArrow(path: string, target: string): string[] {
  const from = folderOf(path)
  const to = folderOf(target)
  if (from === 'entry' || from === to) return []
  if (from === 'errors') return [`${path}: the error table may import nothing, but imports ${target}`]
  if (SHARED.has(`${to}.ts`))
    return LEAVES.has(from) ? [`${path}: ${from}/ is a leaf and may not import ${target}`] : []
  if (from === 'options') return [`${path}: may import nothing but errors.ts, and imports ${target}`]
  const allowed = ARROWS[from]
  if (allowed === undefined) return [`${path}: the folder ${from}/ is not in the table of allowed imports`]
  return allowed.includes(to) ? [] : [`${path}: ${from}/ may not import ${to} (${target})`]
}

/** One name, one thing: a reader who meets a type by its name knows which one it is. */
function checkTypeNames(tree: SourceTree): string[] {
  const files = new Map<string, string[]>()
  for (const [path, text] of tree) {
    if (isTest(path)) continue
    for (const [, name = ''] of text.matchAll(/^export (?:type|interface|class) (\w+)/gm))
      files.set(name, [...(files.get(name) ?? []), path])
  }
  return [...files].flatMap(([name, paths]) =>
    paths.length > 1 ? [`${name} is an exported type of ${paths.join(' and ')}`] : [],
  )
}

/** Files by the files they import; checks each import on the way. */
function checkImports(tree: SourceTree, scans: ReadonlyMap<string, Scan>) {
  const problems: string[] = []
  const graph = new Map<string, string[]>()
  const withTypes = new Map<string, string[]>()
  for (const [path, scan] of scans) {
    const targets: string[] = []
    const all: string[] = []
    if (scan.computed > 0) problems.push(`${path}: imports a module whose name is computed`)
    if (scan.barrel && !isEntry(path)) problems.push(`${path}: is a barrel, it only re-exports`)
    for (const { from, typeOnly } of scan.imports) {
      if (!from.startsWith('.')) {
        problems.push(...checkPackage(path, folderOf(path), from))
        continue
      }
      const target = posix.join(posix.dirname(path), from)
      if (!tree.has(target)) problems.push(`${path}: imports ${from}, which does not exist`)
      else {
        all.push(target)
        if (!typeOnly) targets.push(target)
        const arrow = checkArrow(path, target)
        problems.push(...arrow, ...checkRevision(path, target), ...checkSeam(path, target))
        if (arrow.length === 0) problems.push(...checkDraft(path, target))
      }
    }
    graph.set(path, targets)
    withTypes.set(path, all)
  }
  return { problems, graph, withTypes }
}

/** Types of a few files may refer to each other: such imports do not exist at run time. */
const MAX_KNOT = 4

/** One sentence for each group of more files than that which all reach each other, by Tarjan's algorithm. */
function findKnots(graph: ReadonlyMap<string, readonly string[]>): string[] {
  const numbers = new Map<string, number>()
  const open: string[] = []
  const knots: string[] = []
  /** Returns the lowest number of an open file that is reached from here. */
  const visit = (path: string): number => {
    const number = numbers.size
    numbers.set(path, number)
    open.push(path)
    let lowest = number
    for (const target of graph.get(path) ?? []) {
      if (!numbers.has(target)) lowest = Math.min(lowest, visit(target))
      else if (open.includes(target)) lowest = Math.min(lowest, numbers.get(target) ?? number)
    }
    if (lowest === number) {
      const knot = open.splice(open.indexOf(path))
      if (knot.length > MAX_KNOT) knots.push(`knot of ${knot.length} files: ${knot.sort().join(', ')}`)
    }
    return lowest
  }
  for (const path of graph.keys()) if (!numbers.has(path)) visit(path)
  return knots
}

/** One sentence per cycle, by depth-first search: a file that is reached again while it is still open closes one. */
function findCycles(graph: ReadonlyMap<string, readonly string[]>): string[] {
  const done = new Set<string>()
  const open: string[] = []
  const cycles: string[] = []
  const visit = (path: string): void => {
    if (done.has(path)) return
    const start = open.indexOf(path)
    if (start >= 0) return void cycles.push(`cycle: ${[...open.slice(start), path].join(' → ')}`)
    open.push(path)
    for (const target of graph.get(path) ?? []) visit(target)
    open.pop()
    done.add(path)
  }
  for (const path of graph.keys()) visit(path)
  return cycles
}

/** Tests may import anything; their names and texts are checked too. */
export function checkArchitecture(tree: SourceTree): string[] {
  const problems = [...tree].flatMap(([path, text]) => [...checkNames(path), ...checkText(path, text)])
  const code = [...tree].filter(([path]) => !isTest(path))
  const scans = new Map(code.map(([path, text]) => [path, scanImports(text)]))
  const imports = checkImports(tree, scans)
  return [
    ...problems,
    ...checkTypeNames(tree),
    ...checkVersionNames(tree, versionNames(tree)),
    ...checkRevisionFiles(tree),
    ...imports.problems,
    ...findCycles(imports.graph),
    ...findKnots(imports.withTypes),
  ]
}

/** Packages that may use `rondo/internal`: they are released with exactly the same version. */
const INSIDERS = new Set(['cli', 'restate', 'store-kit'])

/** The imports of a package that are neither its own files nor exported by another one. `tree`: paths below the package. */
export function checkWalls(name: string, tree: SourceTree, exported: ReadonlySet<string>): string[] {
  const code = [...tree].filter(([path]) => !isTest(path))
  return code.flatMap(([path, text]) =>
    scanImports(text, path.endsWith('x') ? 'tsx' : 'ts').imports.flatMap(({ from }) => {
      if (from.startsWith('.'))
        return posix.join(posix.dirname(path), from).startsWith('..')
          ? [`${name}: ${path} imports ${from}, which is not in its package`]
          : []
      if (!/^(rondo|@rondo)(\/|$)/.test(from)) return []
      if (!exported.has(from)) return [`${name}: ${path} imports ${from}, which no package exports`]
      return from === 'rondo/internal' && !INSIDERS.has(name)
        ? [`${name}: ${path} may not import ${from}`]
        : []
    }),
  )
}

/**
 * Writes the generated parts of the reference from the source: doc comments, the table of errors, and the commands.
 *
 * A mark is a comment on a line of its own:
 * - `<!-- options createSqliteStore: SqliteStoreOptions -->`, before a table: the name of a definition (`defineOptions`), and the
 *   interfaces whose members are its rows; `-name` leaves one out. The last sentence of a comment states the default ("Default: 10 s.").
 * - `<!-- members Client -->`, before a table: the members of interfaces, with the names of their parameters.
 * - `<!-- names METRIC -->`, before a table: the names of telemetry in these constants.
 * - `<!-- threats -->`, before a table: the tests of each threat, as `test/threats.json` lists them.
 * - `<!-- errors STATE_ -->` to `<!-- /errors -->`: the errors with this prefix, or `thrown` for those that only the client throws.
 * - `<!-- event slow SlowEvent -->` to `<!-- /event -->`: a log event, with the comment and the members of its interfaces.
 * - `<!-- exits -->`, `<!-- files -->`, `<!-- variables -->` and `<!-- group Connecting -->`, before a table: exit codes, files, variables, and the
 *   options that commands share.
 * - `<!-- command call -->` to `<!-- /command -->`: what a command does, what it prints, and its own options.
 *
 * In a comment, `@see docs/guide/05-keys.md#anchor` becomes a link with the heading as its text, and links are relative to the root.
 * Everything else on a page is written by hand.
 */

import { posix } from 'node:path'
import { parseSync } from 'oxc-parser'
import { CALL_OPTIONS, JSON_OPTION } from '../packages/cli/src/call-setup.ts'
import { EXITS, type OptionTable } from '../packages/cli/src/command-line.ts'
import { CONNECT_OPTIONS } from '../packages/cli/src/connection.ts'
import { FILES, SEAL_OPTIONS, VARIABLES } from '../packages/cli/src/home.ts'
import { COMMANDS } from '../packages/cli/src/main.ts'
import { ERRORS } from '../packages/rondo/src/errors.ts'
import { readAnchors, readHeadings } from '../test/support/markdown.ts'

type Files = ReadonlyMap<string, string>

export const ERRORS_SOURCE = 'packages/rondo/src/errors.ts'
const NAMES_SOURCE = 'packages/rondo/src/telemetry/otel.ts'
const EVENTS_SOURCE = 'packages/rondo/src/log/event.ts'

/** All pages with generated parts, with these parts written anew. */
export function fillReference(files: Files): Map<string, string> {
  const pages = [...files].filter(([path]) => /^docs\/.*\.md$/.test(path))
  return new Map(
    pages.flatMap(([path, text]) => {
      const filled = fillPage(files, path, text)
      return filled === undefined ? [] : [[path, filled]]
    }),
  )
}

const TABLE =
  /^<!-- (options|members|names|threats|exits|files|variables|group)(?: (.+))? -->\n\n(?:\|.*\n)*/gm
const BLOCK = /^<!-- (errors|command|event) (.+?) -->\n[\s\S]*?^<!-- \/\1 -->\n/gm

/** The text of a page without its generated parts, or undefined if it has none. */
export function handWritten(text: string): string | undefined {
  const rest = text.replace(BLOCK, '').replace(TABLE, '')
  return rest === text ? undefined : rest
}

function fillPage(files: Files, path: string, text: string): string | undefined {
  if (handWritten(text) === undefined) return undefined
  const links = createLinks(files, path)
  return text
    .replace(TABLE, (_, kind: string, words: string | undefined) => {
      const mark = words === undefined ? kind : `${kind} ${words}`
      return `<!-- ${mark} -->\n\n${tableOf(files, links, kind, words ?? '')}`
    })
    .replace(BLOCK, (_, kind: string, name: string) => {
      const body = BLOCKS[kind as keyof typeof BLOCKS](files, links, name)
      return `<!-- ${kind} ${name} -->\n\n${body}\n\n<!-- /${kind} -->\n`
    })
}

const BLOCKS = {
  errors: errorsOf,
  command: (_: Files, links: Links, name: string) => commandOf(links, name),
  event: eventOf,
}

function tableOf(files: Files, links: Links, kind: string, words: string): string {
  if (kind === 'exits')
    return toTable(
      ['code', 'meaning'],
      Object.values(EXITS).map(({ code, meaning }) => [`${code}`, meaning]),
    )
  if (kind === 'files') return wordRows('file', FILES)
  if (kind === 'variables') return wordRows('variable', VARIABLES)
  if (kind === 'threats') return threatRows(files)
  if (kind === 'names') return namesOf(files, links, words)
  if (kind === 'group') return optionRows(GROUPS[words as keyof typeof GROUPS] ?? {})
  const { types, hidden } = readMark(words)
  const docs = types.flatMap((type) => findDocs(files, type)).filter(({ name }) => !hidden.includes(name))
  const meaning = (doc: MemberDoc): string => links.relative(doc.meaning) + links.see(doc.see)
  if (kind === 'options')
    return toTable(
      ['option', 'default', 'meaning'],
      docs.map((doc) => [`\`${doc.name}\``, doc.initial, meaning(doc)]),
    )
  const rest = (doc: MemberDoc): string =>
    doc.initial === '' || doc.isRequired ? '' : ` Default: ${doc.initial}.`
  return toTable(
    ['member', 'meaning'],
    docs.map((doc) => [`\`${doc.name}${doc.parameters ?? ''}\``, meaning(doc) + rest(doc)]),
  )
}

function toTable(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[]): string =>
    `| ${cells.map((cell) => cell.replaceAll('|', '\\|')).join(' | ')} |\n`
  return line(head) + line(head.map(() => '---')) + rows.map(line).join('')
}

// Members of interfaces

export interface MemberDoc {
  readonly name: string
  /** The names of the parameters of a method, as `(name, options?)`. */
  readonly parameters?: string
  readonly isRequired: boolean
  /** The default as its comment states it, or `required`; empty if the comment states none. */
  readonly initial: string
  readonly meaning: string
  /** Paths of pages, with an anchor if there is one. */
  readonly see: readonly string[]
}

interface Parameter {
  readonly name?: string
  readonly optional?: boolean
}
interface Node {
  readonly type: string
  readonly start: number
  readonly id?: { readonly name?: string }
  readonly key?: { readonly name?: string }
  readonly value?: { readonly value?: unknown }
  readonly optional?: boolean
  readonly params?: readonly Parameter[]
  readonly body?: { readonly body: readonly Node[] }
  readonly declaration?: Node | null
  readonly declarations?: readonly { readonly id: { readonly name: string }; readonly init: Node }[]
  readonly properties?: readonly Node[]
  readonly expression?: Node
}

/** The members of an interface with their comments, or undefined if the source does not declare it. */
export function readMemberDocs(source: string, name: string): MemberDoc[] | undefined {
  if (!source.includes(`interface ${name}`)) return undefined
  const { declared, commentOf } = parse(source)
  const found = declared.find((node) => node.type === 'TSInterfaceDeclaration' && node.id?.name === name)
  return found?.body?.body.flatMap((member, i, members) => {
    const { key, optional = false } = member
    // An overloaded method has one row: the comment of the first signature, the parameters of the last.
    const isSame = (other: Node): boolean => other.key?.name === key?.name
    if (key?.name === undefined || members.findIndex(isSame) < i) return []
    const params = members.findLast(isSame)?.params
    const isMethod = member.type === 'TSMethodSignature'
    return [
      {
        name: key.name,
        ...(isMethod && { parameters: `(${(params ?? []).map(sayParameter).join(', ')})` }),
        isRequired: !optional,
        ...readComment(commentOf(member), optional || isMethod ? '' : 'required'),
      },
    ]
  })
}

const sayParameter = ({ name = '…', optional }: Parameter): string => (optional ? `${name}?` : name)

function parse(source: string): { declared: readonly Node[]; commentOf: (node: Node) => string } {
  const { program, comments } = parseSync('source.ts', source)
  const body = program.body as unknown as readonly Node[]
  return {
    declared: body.map((node) => node.declaration ?? node),
    commentOf({ start }) {
      const last = comments.findLast(({ type, end }) => type === 'Block' && end <= start)
      const between = source.slice(last?.end ?? 0, start).replace(/\/\/[^\n]*|\bexport\s*$/g, '')
      return last?.value.startsWith('*') && between.trim() === '' ? last.value.slice(1) : ''
    },
  }
}

function readComment(comment: string, fallback: string): Pick<MemberDoc, 'initial' | 'meaning' | 'see'> {
  const text = comment.replace(/^\s*\*? ?/gm, ' ')
  const see = Array.from(text.matchAll(/@see\s+(\S+)/g), ([, path = '']) => path)
  const words = text
    .replace(/@see\s+\S+/g, '')
    .replace(/\s+/g, ' ')
    .trim()
  const [, meaning = words, initial = fallback] = /^(.*?) ?Default: (.*)\.$/.exec(words) ?? []
  return { initial, meaning, see }
}

/** The comment above a table. */
export interface TableMark {
  /** The name of the definition; empty if there is none. */
  readonly of: string
  readonly types: readonly string[]
  /** Members that readers need not know. */
  readonly hidden: readonly string[]
}

export function readMark(words: string): TableMark {
  const [, of = '', rest = ''] = /^(?:([\w.]+): )?(.*)$/.exec(words) ?? []
  const names = rest.split(' ')
  return {
    of,
    types: names.filter((one) => !one.startsWith('-')),
    hidden: names.filter((one) => one.startsWith('-')).map((one) => one.slice(1)),
  }
}

/** `Name`, or `folder/Name` where two folders have that name. */
function findDocs(files: Files, type: string): MemberDoc[] {
  const [name = '', folder = ''] = type.split('/').reverse()
  for (const [path, text] of files) {
    if (!new RegExp(`^packages/[^/]+/src/${folder}`).test(path) || !/(?<!\.test)\.ts$/.test(path)) continue
    const docs = readMemberDocs(text, name)
    if (docs) return [...docs, ...pickedDocs(files, text, name)]
  }
  throw new Error(`There is no interface ${type}`)
}

/** The members that an interface takes over with `extends Pick<Parent, 'a' | 'b'>`. */
function pickedDocs(files: Files, source: string, name: string): MemberDoc[] {
  const [, parent, keys = ''] =
    new RegExp(`\\binterface ${name}\\b[^{]*?\\bPick<\\s*(\\w+),([^>]*)>`).exec(source) ?? []
  const names = Array.from(keys.matchAll(/'(\w+)'/g), ([, key = '']) => key)
  if (parent === undefined || names.length === 0) return []
  const docs = findDocs(files, parent)
  return names.flatMap((key) => docs.filter((doc) => doc.name === key))
}

function threatRows(files: Files): string {
  const tests = JSON.parse(files.get('test/threats.json') ?? '{}') as Record<string, string[]>
  const rows = Object.entries(tests).map(([threat, paths]) => [
    threat,
    paths.map((path) => `\`${path}\``).join(', '),
  ])
  return toTable(['#', 'tests'], rows)
}

// Telemetry

function namesOf(files: Files, links: Links, words: string): string {
  const { declared, commentOf } = parse(files.get(NAMES_SOURCE) ?? '')
  const constants = declared.flatMap((node) => node.declarations ?? [])
  const rows = words.split(' ').flatMap((name) => {
    const properties = constants.find(({ id }) => id.name === name)?.init.expression?.properties
    if (properties === undefined) throw new Error(`There are no names ${name}`)
    return properties.map((node) => {
      const { meaning } = readComment(commentOf(node), '')
      return [`\`${node.value?.value}\``, links.relative(meaning)]
    })
  })
  return toTable(['name', 'meaning'], rows)
}

// Log events

/** The first sentence of the interface's comment is the heading. */
function eventOf(files: Files, links: Links, words: string): string {
  const [name, ...types] = words.split(' ')
  const source = files.get(EVENTS_SOURCE) ?? ''
  const { declared, commentOf } = parse(source)
  const found = declared.find((node) => node.id?.name === types[0])
  if (found === undefined) throw new Error(`There is no event ${types[0]}`)
  const [head = '', ...paragraphs] = commentOf(found)
    .replace(/^\s*\* ?/gm, '')
    .trim()
    .split(/\n\s*\n/)
    .map((paragraph) => links.relative(paragraph.replace(/\s+/g, ' ')))
  const title = `${head.charAt(0).toLowerCase()}${head.slice(1)}`.replace(/\.$/, '')
  const mark = `${types.join(' ')} -event`
  const table = `<!-- members ${mark} -->\n\n${tableOf(files, links, 'members', mark).trimEnd()}`
  return [`## \`${name}\`: ${title}`, ...paragraphs, table].join('\n\n')
}

// Errors

interface ErrorRow {
  readonly rpc: number
  readonly http: number
  readonly sentence: string
  readonly open?: true
}

const isThrown = (code: string, { rpc }: ErrorRow): boolean =>
  rpc === 0 && /^(?:PEER|INPUT|LIMIT_CLIENT)_/.test(code)

/** A section for each error: what is sent, the paragraphs of its comment, and the remedy in the last one. */
function errorsOf(files: Files, links: Links, which: string): string {
  const { declared, commentOf } = parse(files.get(ERRORS_SOURCE) ?? '')
  const table = declared.flatMap((node) => node.declarations ?? []).find(({ id }) => id.name === 'ERRORS')
  const rows = (table?.init.expression?.properties ?? []).map(
    (node) => [node.key?.name ?? '', commentOf(node)] as const,
  )
  const sections = rows.flatMap(([code, comment]) => {
    const row: ErrorRow = ERRORS[code as keyof typeof ERRORS]
    const isWanted = which === 'thrown' ? isThrown(code, row) : code.startsWith(which) && !isThrown(code, row)
    if (!isWanted) return []
    const paragraphs = comment
      .replace(/^\s*\* ?/gm, '')
      .trim()
      .split(/\n\s*\n/)
      .map((paragraph) => links.relative(paragraph.replace(/^Remedy:/, '**What to do.**')))
    return [[`### ${code}`, sayWire(row), ...paragraphs].join('\n\n')]
  })
  if (sections.length === 0) throw new Error(`There is no error ${which}`)
  return sections.join('\n\n')
}

function sayWire({ rpc, http, sentence, open }: ErrorRow): string {
  if (rpc === 0) return `Never sent. _${sentence}._`
  return `${rpc}, HTTP ${http}. _${sentence}${open ? '_, or details.' : '._'}`
}

// Commands

const ownCalling = Object.fromEntries(
  Object.entries(CALL_OPTIONS).filter(
    ([name]) => !(name in { ...CONNECT_OPTIONS, ...SEAL_OPTIONS, ...JSON_OPTION }),
  ),
)
const GROUPS = {
  Calling: ownCalling,
  Connecting: CONNECT_OPTIONS,
  Sealing: SEAL_OPTIONS,
  Output: JSON_OPTION,
} satisfies Record<string, OptionTable>

function commandOf(links: Links, name: string): string {
  const command = COMMANDS.find((one) => one.name === name)
  if (command === undefined) throw new Error(`There is no command ${name}`)
  const { usage, summary, details = [], table, json, see, options } = command
  const groups = Object.entries(GROUPS).filter(([, group]) =>
    Object.keys(group).every((option) => options[option] === group[option as keyof typeof group]),
  )
  const shared = new Set(groups.flatMap(([, group]) => Object.keys(group)))
  const own = Object.fromEntries(Object.entries(options).filter(([option]) => !shared.has(option)))
  const shownIn = groups.map(([group]) => `[${group}](#${group.toLowerCase()})`).join(', ')
  return [
    `### \`rondo ${name} ${usage}\``,
    `${summary.charAt(0).toUpperCase()}${summary.slice(1)}.${links.see(see === undefined ? [] : [see])}`,
    ...details,
    ...(table === undefined ? [] : [wordRows(table.name, table.rows).trimEnd()]),
    ...(json === undefined ? [] : [`JSON: ${json}.`]),
    ...(shownIn === '' ? [] : [`Options: ${shownIn}.`]),
    ...(Object.keys(own).length === 0 ? [] : [optionRows(own).trimEnd()]),
  ].join('\n\n')
}

function wordRows(head: string, rows: Readonly<Record<string, string>>): string {
  return toTable(
    [head, 'meaning'],
    Object.entries(rows).map(([words, meaning]) => [
      words.replace(/[^,]+(?=,|$)/g, (word) => word.replace(/\S.*/, '`$&`')),
      meaning,
    ]),
  )
}

function optionRows(options: OptionTable): string {
  return toTable(
    ['option', 'meaning'],
    Object.entries(options).map(([name, { value, help, multiple }]) => [
      `\`--${name}${value === undefined ? '' : ` ${value}`}\``,
      multiple ? `${help}; may be repeated` : help,
    ]),
  )
}

// Links

interface Links {
  /** Turns links that are relative to the root into links that work on the page. */
  relative(text: string): string
  see(targets: readonly string[]): string
}

function createLinks(files: Files, page: string): Links {
  const hrefOf = (target: string): string => {
    const [path = '', anchor] = target.split('#')
    const href = path === page ? '' : posix.relative(posix.dirname(page), path)
    return anchor === undefined ? href : `${href}#${anchor}`
  }
  return {
    relative: (text) => text.replace(/\]\((docs\/[^)]+)\)/g, (_, target: string) => `](${hrefOf(target)})`),
    see(targets) {
      const links = targets.map((target) => {
        const [path = '', anchor] = target.split('#')
        const text = files.get(path) ?? ''
        const at = anchor === undefined ? 0 : [...readAnchors(text)].indexOf(anchor)
        return `[${readHeadings(text)[at] ?? path}](${hrefOf(target)})`
      })
      return links.length === 0 ? '' : ` See ${links.join(', ')}.`
    },
  }
}

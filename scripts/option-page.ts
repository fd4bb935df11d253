/**
 * Writes the tables of docs/reference/options.md from the doc comments of the options.
 *
 * A table follows `<!-- options createSqliteStore: SqliteStoreOptions -->`: the name of a definition (`defineOptions`), and the
 * interfaces whose members are its rows; `-name` leaves one out. The last sentence of a comment states the default
 * ("Default: 10 s."), and `@see docs/guide/05-keys.md#anchor` becomes a link. Everything else on the page is written by hand.
 */

import { posix } from 'node:path'
import { readAnchors, readHeadings } from '../test/support/markdown.ts'

export const OPTIONS_PAGE = 'docs/reference/options.md'

export interface OptionDoc {
  readonly name: string
  /** The default as its comment states it, or `required`; empty if the comment states none. */
  readonly initial: string
  readonly meaning: string
  /** Paths of pages, with an anchor if there is one. */
  readonly see: readonly string[]
}

const MEMBER =
  /\s*(?:\/\*\*((?:(?!\*\/)[\s\S])*)\*\/\s*)?(?:\/\/[^\n]*\n\s*)?(?:readonly\s+)?([a-z_]\w*)(\??)\s*[:(<]/y

/** The members of an interface at its own depth, with their comments. */
export function readOptionDocs(source: string, name: string): OptionDoc[] | undefined {
  const start = new RegExp(`\\binterface ${name}\\b[^{]*\\{`).exec(source)
  if (start === null) return undefined
  const docs: OptionDoc[] = []
  let depth = 1
  for (let i = start.index + start[0].length; i < source.length && depth > 0; ) {
    MEMBER.lastIndex = i
    const member = depth === 1 && source[i - 1] === '\n' ? MEMBER.exec(source) : null
    if (member) {
      docs.push(toDoc(member[2] ?? '', member[3] !== '?', member[1] ?? ''))
      // The bracket or colon that ends the match is read below.
      i = MEMBER.lastIndex - 1
    }
    const skipped = /\/\*[\s\S]*?\*\/|\/\/[^\n]*|'[^'\n]*'/y
    skipped.lastIndex = i
    if (skipped.exec(source)) i = skipped.lastIndex
    else {
      if ('{([<'.includes(source[i] ?? '')) depth += 1
      if ('})]'.includes(source[i] ?? '') || (source[i] === '>' && source[i - 1] !== '=')) depth -= 1
      i += 1
    }
  }
  return docs
}

function toDoc(name: string, isRequired: boolean, comment: string): OptionDoc {
  const text = comment.replace(/^\s*\*? ?/gm, ' ')
  const see = Array.from(text.matchAll(/@see\s+(\S+)/g), ([, path = '']) => path)
  const words = text
    .replace(/@see\s+\S+/g, '')
    .replace(/\s+/g, ' ')
    .trim()
  const [, meaning = words, initial = isRequired ? 'required' : ''] =
    /^(.*?) ?Default: (.*)\.$/.exec(words) ?? []
  return { name, initial, meaning, see }
}

/** The comment above a table. */
export interface OptionMark {
  /** The name of the definition; empty if there is none. */
  readonly of: string
  readonly types: readonly string[]
  /** Members that readers need not know. */
  readonly hidden: readonly string[]
}

export function readMark(words: string): OptionMark {
  const [, of = '', rest = ''] = /^(?:([\w.]+): )?(.*)$/.exec(words) ?? []
  const names = rest.split(' ')
  return {
    of,
    types: names.filter((one) => !one.startsWith('-')),
    hidden: names.filter((one) => one.startsWith('-')).map((one) => one.slice(1)),
  }
}

/** The page with its tables written anew. */
export function fillOptions(files: ReadonlyMap<string, string>): string {
  const page = files.get(OPTIONS_PAGE) ?? ''
  return page.replace(/^<!-- options (.+) -->\n\n(?:\|.*\n)*/gm, (_, words: string) => {
    const { types, hidden } = readMark(words)
    const rows = types
      .flatMap((type) => findDocs(files, type))
      .filter(({ name }) => !hidden.includes(name))
      .map(
        (doc) => `| \`${doc.name}\` | ${cell(doc.initial)} | ${cell(doc.meaning)}${linksOf(files, doc)} |\n`,
      )
    return `<!-- options ${words} -->\n\n| option | default | meaning |\n| --- | --- | --- |\n${rows.join('')}`
  })
}

const cell = (text: string): string => text.replaceAll('|', '\\|')

function linksOf(files: ReadonlyMap<string, string>, { see }: OptionDoc): string {
  const links = see.map((target) => {
    const [path = '', anchor] = target.split('#')
    const text = files.get(path) ?? ''
    const at = anchor === undefined ? 0 : [...readAnchors(text)].indexOf(anchor)
    return `[${readHeadings(text)[at] ?? path}](${posix.relative(posix.dirname(OPTIONS_PAGE), path)}${anchor ? `#${anchor}` : ''})`
  })
  return links.length === 0 ? '' : ` See ${links.join(', ')}.`
}

/** `Name`, or `folder/Name` where two folders have that name. */
function findDocs(files: ReadonlyMap<string, string>, type: string): OptionDoc[] {
  const [name = '', folder = ''] = type.split('/').reverse()
  for (const [path, text] of files) {
    if (!new RegExp(`^packages/[^/]+/src/${folder}`).test(path) || !/(?<!\.test)\.ts$/.test(path)) continue
    const docs = readOptionDocs(text, name)
    if (docs) return [...docs, ...pickedDocs(files, text, name)]
  }
  throw new Error(`There is no interface ${type}`)
}

/** The members that an interface takes over with `extends Pick<Parent, 'a' | 'b'>`. */
function pickedDocs(files: ReadonlyMap<string, string>, source: string, name: string): OptionDoc[] {
  const [, parent, keys = ''] =
    new RegExp(`\\binterface ${name}\\b[^{]*?\\bPick<\\s*(\\w+),([^>]*)>`).exec(source) ?? []
  const names = Array.from(keys.matchAll(/'(\w+)'/g), ([, key = '']) => key)
  if (parent === undefined || names.length === 0) return []
  const docs = findDocs(files, parent)
  return names.flatMap((key) => docs.filter((doc) => doc.name === key))
}

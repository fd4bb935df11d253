/** Finds the value exports of an entry file that have no doc comment, which is all an editor shows on hover. */

import { readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { parseSync } from 'oxc-parser'

interface Named {
  readonly name: string
}
interface Declaration {
  readonly id?: Named
  readonly declarations?: readonly { readonly id: Named }[]
}
interface Statement {
  readonly type: string
  readonly start: number
  readonly exportKind?: string
  readonly source?: { readonly value: string } | null
  readonly specifiers?: readonly {
    readonly local: Named
    readonly exported: Named
    readonly exportKind: string
  }[]
  readonly declaration?: Declaration | null
}

/** The comment of every value that `entry` exports, by name. `undefined`: the value has none. */
export function readDocComments(
  entry: string,
  read: (file: string) => string = (file) => readFileSync(file, 'utf8'),
): Map<string, string | undefined> {
  const found = new Map<string, string | undefined>()
  for (const node of parse(entry, read).body) {
    if (node.type !== 'ExportNamedDeclaration' || node.exportKind === 'type' || !node.source) continue
    const file = join(dirname(entry), node.source.value)
    for (const { local, exported, exportKind } of node.specifiers ?? [])
      if (exportKind !== 'type') found.set(exported.name, commentOf(file, local.name, read))
  }
  return found
}

/** The code in a comment's `@example`. */
export function readExample(comment: string): string | undefined {
  return /^@example\n```ts\n(.*?)\n```$/ms.exec(comment)?.[1]
}

function commentOf(file: string, name: string, read: (file: string) => string): string | undefined {
  const { body, comments } = parse(file, read)
  const node = body.find(({ declaration }) => declaresIn(declaration).includes(name))
  if (!node) throw new Error(`${file} does not declare ${name}`)
  const text = read(file)
  const last = comments.findLast(({ end }) => end <= node.start)
  const isDoc =
    last?.type === 'Block' && last.value.startsWith('*') && text.slice(last.end, node.start).trim() === ''
  return isDoc
    ? last.value
        .slice(1)
        .replace(/^[ \t]*\* ?/gm, '')
        .trim()
    : undefined
}

const declaresIn = (node: Declaration | null | undefined): string[] =>
  [...(node?.declarations ?? []).map(({ id }) => id.name), node?.id?.name].filter(
    (name) => name !== undefined,
  )

function parse(file: string, read: (file: string) => string) {
  const { program, comments } = parseSync(file, read(file), { lang: 'ts' })
  return { body: program.body as unknown as readonly Statement[], comments }
}

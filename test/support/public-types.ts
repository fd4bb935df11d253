/**
 * Finds types that users have to name but cannot import: those of parameters and results in the signatures that an
 * entry file exports. A type that is only the shape of a property, a member of a union or a base needs no name of its
 * own: `ServerOptions['limits']` and `Extract<LogEvent, { event: 'slow' }>` name it. It is searched in turn.
 */

import { readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { parseSync } from 'oxc-parser'

type Node = { readonly type: string; readonly [key: string]: unknown }
interface Place {
  readonly file: string
  readonly name: string
}
interface Module {
  readonly declared: ReadonlyMap<string, Node>
  readonly exported: ReadonlySet<string>
  readonly imported: ReadonlyMap<string, Place>
}

const modules = new Map<string, Module>()

/** Names as `Type (file)`; those that an entry in `beside` exports count as named. `seen` counts the declarations that were read. */
export function findUnnamedTypes(
  entry: string,
  beside: readonly string[],
  read: (file: string) => string = (file) => readFileSync(file, 'utf8'),
): { unnamed: string[]; seen: number } {
  const named = readPlaces(entry, read)
  const known = new Set([entry, ...beside].flatMap((file) => readPlaces(file, read)).map(toId))
  const unnamed = new Set<string>()
  const seen = new Set<string>()
  const todo = [...named]
  for (let place = todo.pop(); place; place = todo.pop()) {
    if (seen.has(toId(place))) continue
    seen.add(toId(place))
    const { file, name } = place
    const module = readModule(file, read)
    const node = module.declared.get(name)
    if (!node) throw new Error(`${file} does not declare ${name}`)
    for (const [used, inSignature] of typesIn(node)) {
      const there = module.imported.get(used) ?? { file, name: used }
      const isOurs = there.file !== file || module.declared.has(used)
      if (!isOurs || known.has(toId(there))) continue
      const isPrivate = there.file === file && !module.exported.has(used)
      if (inSignature && !isPrivate) unnamed.add(`${there.name} (${there.file})`)
      else todo.push(there)
    }
  }
  return { unnamed: [...unnamed].sort(), seen: seen.size }
}

const toId = ({ file, name }: Place): string => `${file}#${name}`

/** The names that an entry file re-exports, and the files that they come from. */
function readPlaces(entry: string, read: (file: string) => string): Place[] {
  return bodyOf(entry, read).flatMap((node) => {
    const from = (node.source as { value: string } | null)?.value
    if (node.type !== 'ExportNamedDeclaration' || !from?.startsWith('.')) return []
    const file = join(dirname(entry), from)
    return (node.specifiers as { local: { name: string } }[]).map(({ local }) => ({ file, name: local.name }))
  })
}

function readModule(file: string, read: (file: string) => string): Module {
  const known = modules.get(file)
  if (known) return known
  const declared = new Map<string, Node>()
  const exported = new Set<string>()
  const imported = new Map<string, Place>()
  for (const node of bodyOf(file, read)) {
    if (node.type === 'ImportDeclaration') {
      const from = (node.source as { value: string }).value
      for (const specifier of node.specifiers as { local: Named; imported?: Named }[])
        if (from.startsWith('.'))
          imported.set(specifier.local.name, {
            file: join(dirname(file), from),
            name: (specifier.imported ?? specifier.local).name,
          })
      continue
    }
    const declaration = (node.type === 'ExportNamedDeclaration' ? node.declaration : node) as Node | null
    for (const [name, own] of namesOf(declaration)) {
      declared.set(name, own)
      if (node.type === 'ExportNamedDeclaration') exported.add(name)
    }
  }
  const module = { declared, exported, imported }
  modules.set(file, module)
  return module
}

interface Named {
  readonly name: string
}

function namesOf(node: Node | null): [string, Node][] {
  if (node?.type === 'VariableDeclaration')
    return (node.declarations as (Node & { id: Named })[]).map((own) => [own.id.name, own.id as never])
  const id = node?.id as Named | undefined
  return node && id?.name ? [[id.name, node]] : []
}

function bodyOf(file: string, read: (file: string) => string): Node[] {
  return parseSync(file, read(file), { lang: 'ts' }).program.body as unknown as Node[]
}

/**
 * The names of types in a declaration, without its type parameters and without the bodies of functions. True: the type
 * is part of a parameter or a result.
 */
function typesIn(declaration: Node): Map<string, boolean> {
  const found = new Map<string, boolean>()
  const own = new Set<string>()
  const add = (type: unknown, inSignature: boolean): void => {
    const { type: kind, name } = type as Node
    if (kind === 'Identifier') found.set(String(name), found.get(String(name)) || inSignature)
  }
  const visit = (node: unknown, inSignature: boolean): void => {
    if (Array.isArray(node)) for (const item of node) visit(item, inSignature)
    else if (isNode(node) && !isPrivate(node)) {
      if (node.type === 'TSTypeParameter') own.add((node.name as Named).name)
      if (node.type === 'TSTypeReference') add(node.typeName, inSignature)
      if (HERITAGE.has(node.type)) add(node.expression, inSignature)
      for (const [key, value] of Object.entries(node))
        if (!isHidden(node, key, value))
          visit(value, inSignature || (key in SIGNATURE && 'returnType' in node))
    }
  }
  visit(declaration, false)
  for (const name of own) found.delete(name)
  return found
}

const HERITAGE = new Set(['TSInterfaceHeritage', 'TSClassImplements'])
const SIGNATURE = { params: true, returnType: true }

const isNode = (value: unknown): value is Node =>
  typeof value === 'object' && value !== null && typeof (value as Node).type === 'string'

const isPrivate = (node: Node): boolean => (node.key as Node | undefined)?.type === 'PrivateIdentifier'

const isHidden = (node: Node, key: string, value: unknown): boolean =>
  (key === 'body' && (value as Node | null)?.type === 'BlockStatement') ||
  (node.type === 'PropertyDefinition' && (key === 'value' || key === 'key'))

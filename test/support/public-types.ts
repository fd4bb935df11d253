/**
 * Finds types that appear in the signatures of an entry file but are not exported there. A type that is private to its
 * file is searched in turn; one that its file exports has a name that users must be able to import.
 */

import { readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { parseSync, Visitor } from 'oxc-parser'

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

/** Names as `Type (file)`; those that `beside` exports count as named. `seen` counts the declarations that were read. */
export function findUnnamedTypes(
  entry: string,
  beside: string,
  read: (file: string) => string = (file) => readFileSync(file, 'utf8'),
): { unnamed: string[]; seen: number } {
  const named = readPlaces(entry, read)
  const known = new Set([...named, ...readPlaces(beside, read)].map(toId))
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
    for (const used of typesIn(node)) {
      const there = module.imported.get(used) ?? { file, name: used }
      const isOurs = there.file !== file || module.declared.has(used)
      if (!isOurs) continue
      if (there.file === file && !module.exported.has(used)) todo.push(there)
      else if (!known.has(toId(there))) unnamed.add(`${there.name} (${there.file})`)
    }
  }
  return { unnamed: [...unnamed].sort(), seen: seen.size }
}

const toId = ({ file, name }: Place): string => `${file}#${name}`

/** What an entry file re-exports, and from where. */
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

/** The names of types in a declaration, without its type parameters and without the bodies of functions. */
function typesIn(node: Node): Set<string> {
  const found = new Set<string>()
  const own = new Set<string>()
  const add = (name: unknown): void => {
    const root = name as Node | undefined
    if (root?.type === 'Identifier') found.add(String(root.name))
  }
  const program = { type: 'Program', body: [withoutBodies(node)], sourceType: 'module', hashbang: null }
  new Visitor({
    TSTypeParameter: (parameter) => void own.add((parameter.name as unknown as Named).name),
    TSTypeReference: (reference) => add(reference.typeName),
    TSInterfaceHeritage: (heritage) => add(heritage.expression),
    TSClassImplements: (heritage) => add(heritage.expression),
  }).visit(program as never)
  return new Set([...found].filter((name) => !own.has(name)))
}

function withoutBodies(node: unknown): unknown {
  if (Array.isArray(node)) return node.map(withoutBodies)
  if (typeof node !== 'object' || node === null) return node
  const { type } = node as Node
  const isHidden = (key: string, value: unknown): boolean =>
    (key === 'body' && (value as Node | null)?.type === 'BlockStatement') ||
    (type === 'PropertyDefinition' && key === 'value') ||
    (key === 'key' && type === 'PropertyDefinition')
  const isPrivate = (item: unknown): boolean => ((item as Node)?.key as Node)?.type === 'PrivateIdentifier'
  return Object.fromEntries(
    Object.entries(node).map(([key, value]) => [
      key,
      isHidden(key, value)
        ? null
        : withoutBodies(Array.isArray(value) ? value.filter((item) => !isPrivate(item)) : value),
    ]),
  )
}

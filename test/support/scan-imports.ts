/** Reads the imports, re-exports and exports of a TypeScript source from its syntax tree. */

import { parseSync, Visitor } from 'oxc-parser'

export interface Import {
  readonly from: string
  readonly kind: 'import' | 're-export' | 'dynamic'
  /** Only types are imported: the import does not exist at run time. */
  readonly typeOnly: boolean
}

export interface Scan {
  readonly imports: readonly Import[]
  /** The number of `import(…)` that name their module by something other than a string literal. */
  readonly computed: number
  /** The file only re-exports. */
  readonly barrel: boolean
}

function parse(source: string, lang: 'ts' | 'tsx' = 'ts') {
  const { program, errors } = parseSync(`source.${lang}`, source, { lang })
  const [error] = errors
  if (error) throw new SyntaxError(error.message)
  return program
}

export function scanImports(source: string, lang?: 'ts' | 'tsx'): Scan {
  const program = parse(source, lang)
  const found: (Import & { at: number })[] = []
  let computed = 0
  const add = (kind: Import['kind'], at: number, name: { value: string } | null, typeOnly = false): void => {
    if (name) found.push({ from: name.value, kind, typeOnly, at })
  }
  new Visitor({
    ImportDeclaration: (node) => add('import', node.start, node.source, node.importKind === 'type'),
    ExportAllDeclaration: (node) => add('re-export', node.start, node.source, node.exportKind === 'type'),
    ExportNamedDeclaration: (node) => add('re-export', node.start, node.source, node.exportKind === 'type'),
    TSImportType: (node) => add('dynamic', node.start, node.source, true),
    ImportExpression: (node) => {
      const name = node.source
      if (name.type === 'Literal' && typeof name.value === 'string')
        add('dynamic', node.start, { value: name.value })
      else computed++
    },
  }).visit(program)
  found.sort((a, b) => a.at - b.at)
  const imports = found.map(({ from, kind, typeOnly }) => ({ from, kind, typeOnly }))
  const reExports = (type: string) => type === 'ExportAllDeclaration' || type === 'ExportNamedDeclaration'
  const barrel =
    imports.some(({ kind }) => kind === 're-export') &&
    program.body.every(
      (node) =>
        (reExports(node.type) && 'source' in node && node.source) || node.type === 'ImportDeclaration',
    )
  return { imports, computed, barrel }
}

export interface ExportedNames {
  readonly values: readonly string[]
  readonly types: readonly string[]
}

/** The names that an entry file exports. Throws on `export *`, which would keep the list of names in another file. */
export function readExports(source: string): ExportedNames {
  const values = new Set<string>()
  const types = new Set<string>()
  for (const node of parse(source).body) {
    if (node.type === 'ExportAllDeclaration')
      throw new TypeError('An entry file must list the names it exports: replace "export *".')
    if (node.type !== 'ExportNamedDeclaration') continue
    for (const { exported, exportKind } of node.specifiers) {
      const isType = node.exportKind === 'type' || exportKind === 'type'
      ;(isType ? types : values).add(exported.type === 'Identifier' ? exported.name : String(exported.value))
    }
    const declared = node.declaration
    if (!declared) continue
    if (declared.type === 'VariableDeclaration') {
      for (const { id } of declared.declarations) if (id.type === 'Identifier') values.add(id.name)
    } else if ('id' in declared && declared.id?.type === 'Identifier') {
      ;(declared.type.startsWith('TS') ? types : values).add(declared.id.name)
    }
  }
  return { values: [...values].sort(), types: [...types].sort() }
}

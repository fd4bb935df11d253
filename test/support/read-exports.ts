/** The names an entry file exports, values and types apart, read from its text. */

export interface ExportedNames {
  readonly values: readonly string[]
  readonly types: readonly string[]
}

const CLAUSE = /\bexport\s+(type\s+)?\{([^}]*)\}/g
const DECLARED =
  /^export\s+(?:declare\s+)?(?:abstract\s+|async\s+)?(const|let|function\*?|class|interface|type|enum)\s+(\w+)/gm

/** Throws on `export *`: then the list of names would not be in this file. */
export function readExports(source: string): ExportedNames {
  const text = source.replace(/\/\*[\s\S]*?\*\/|^\s*\/\/[^\n]*/gm, '')
  if (/\bexport\s*\*/.test(text))
    throw new TypeError('an entry file names what it exports; it has no "export *"')
  const values = new Set<string>()
  const types = new Set<string>()
  for (const [, typeOnly, names = ''] of text.matchAll(CLAUSE)) {
    for (const item of names.split(',').map((name) => name.trim())) {
      if (item === '') continue
      const isType = typeOnly !== undefined || item.startsWith('type ')
      const name =
        item
          .replace(/^type /, '')
          .split(/\s+as\s+/)
          .at(-1) ?? ''
      ;(isType ? types : values).add(name)
    }
  }
  for (const [, kind, name = ''] of text.matchAll(DECLARED)) {
    ;(kind === 'interface' || kind === 'type' ? types : values).add(name)
  }
  return { values: [...values].sort(), types: [...types].sort() }
}

/**
 * Finds what a TypeScript source imports and re-exports, without a compiler.
 *
 * The text is cut into words, strings and marks; comments, template literals and regular expressions are skipped, so
 * that nothing inside them counts. Then the few forms in which a module can be named are read off the sequence.
 */

type Token = { readonly kind: 'word' | 'string' | 'mark'; readonly text: string }

export interface Import {
  readonly from: string
  readonly kind: 'import' | 're-export' | 'dynamic'
}

export interface Scan {
  readonly imports: readonly Import[]
  /** `import(…)` of something that is not a string literal. */
  readonly computed: number
  /** True if the file does nothing but hand on what others export. */
  readonly barrel: boolean
}

const SPACE = /\s+/y
const COMMENT = /\/\/[^\n]*|\/\*[\s\S]*?\*\//y
const WORD = /[\p{ID_Start}$_#][\p{ID_Continue}$\u200c\u200d]*|\d[\w.]*/uy
const STRING = /'(?:[^'\\\n]|\\[\s\S])*'|"(?:[^"\\\n]|\\[\s\S])*"/y
const REGEX = /\/(?:[^/\\[\n]|\\.|\[(?:[^\]\\\n]|\\.)*\])+\/[a-z]*/y
/** After one of these words a slash begins a regular expression; after any other word or a closing bracket it divides. */
const BEFORE_REGEX = new Set([
  'return',
  'typeof',
  'case',
  'in',
  'of',
  'do',
  'else',
  'void',
  'delete',
  'await',
  'yield',
])

function regexMayFollow(last: Token | undefined): boolean {
  if (last === undefined) return true
  if (last.kind === 'word') return BEFORE_REGEX.has(last.text)
  return last.kind === 'mark' && !')]}'.includes(last.text)
}

/** Where the literal text of a template ends that begins at `at`, and whether a `${` ended it. */
function skipTemplateText(source: string, at: number): { at: number; inside: boolean } {
  let i = at
  for (; i < source.length; i++) {
    if (source[i] === '\\') i++
    else if (source[i] === '`') return { at: i + 1, inside: false }
    else if (source[i] === '$' && source[i + 1] === '{') return { at: i + 2, inside: true }
  }
  return { at: i, inside: false }
}

/** A word, a string, a comment or blanks at `at`: its length, and the token it makes, if any. */
function readPlain(
  source: string,
  at: number,
  last: Token | undefined,
): { length: number; token?: Token } | undefined {
  const take = (pattern: RegExp): string | undefined => {
    pattern.lastIndex = at
    return pattern.exec(source)?.[0]
  }
  const skipped = take(SPACE) ?? take(COMMENT)
  if (skipped !== undefined) return { length: skipped.length }
  const string = take(STRING)
  if (string !== undefined)
    return { length: string.length, token: { kind: 'string', text: string.slice(1, -1) } }
  const word = take(WORD)
  if (word !== undefined) return { length: word.length, token: { kind: 'word', text: word } }
  const regex = regexMayFollow(last) ? take(REGEX) : undefined
  if (regex !== undefined) return { length: regex.length, token: { kind: 'string', text: '' } }
  return undefined
}

function tokenize(source: string): Token[] {
  const tokens: Token[] = []
  /** For each open template literal, how many braces are open inside its current `${…}`. */
  const templates: number[] = []
  let at = 0
  const goOnInTemplate = (): void => {
    const text = skipTemplateText(source, at)
    at = text.at
    if (text.inside) templates.push(0)
  }
  while (at < source.length) {
    const plain = readPlain(source, at, tokens.at(-1))
    if (plain !== undefined) {
      at += plain.length
      if (plain.token) tokens.push(plain.token)
      continue
    }
    const mark = source[at++] ?? ''
    const depth = templates.at(-1)
    if (mark === '`') {
      tokens.push({ kind: 'string', text: '' })
      goOnInTemplate()
    } else if (mark === '}' && depth === 0) {
      templates.pop()
      goOnInTemplate()
    } else {
      if (depth !== undefined && mark === '{') templates[templates.length - 1] = depth + 1
      if (depth !== undefined && mark === '}') templates[templates.length - 1] = depth - 1
      tokens.push({ kind: 'mark', text: mark })
    }
  }
  return tokens
}

/** Where a clause (`{ a, b as c }`, `* as x`, `type { T }`, `x, { y }`) beginning at `i` ends, and the module it names. */
function readFrom(tokens: readonly Token[], i: number): { from: string; next: number } | undefined {
  for (let j = i; j < tokens.length; j++) {
    const token = tokens[j]
    if (token === undefined) return undefined
    const named = tokens[j + 1]
    if (token.kind === 'word' && token.text === 'from' && named?.kind === 'string') {
      return { from: named.text, next: j + 2 }
    }
    const inClause = token.kind === 'word' || token.kind === 'string' || '{},*'.includes(token.text)
    if (!inClause) return undefined
  }
  return undefined
}

function opensReExport(token: Token | undefined, after: Token | undefined): boolean {
  const opens = (t: Token | undefined) => t?.kind === 'mark' && (t.text === '{' || t.text === '*')
  return opens(token) || (token?.text === 'type' && opens(after))
}

function isStatementStart(tokens: readonly Token[], i: number): boolean {
  const before = tokens[i - 1]
  return before === undefined || before.kind !== 'mark' || before.text !== '.'
}

/** The statement or call at `i` that names a module, and where it ends. */
function readNaming(
  tokens: readonly Token[],
  i: number,
): { import: Import | 'computed'; next: number } | undefined {
  const word = tokens[i]
  const next = tokens[i + 1]
  if (word?.kind !== 'word' || next === undefined || !isStatementStart(tokens, i)) return undefined
  if (word.text === 'export' && opensReExport(next, tokens[i + 2])) {
    const clause = readFrom(tokens, i + 1)
    return clause && { import: { from: clause.from, kind: 're-export' }, next: clause.next }
  }
  if (word.text !== 'import') return undefined
  if (next.kind === 'string') return { import: { from: next.text, kind: 'import' }, next: i + 2 }
  if (next.kind === 'mark' && next.text === '(') {
    const named = tokens[i + 2]
    const literal = named?.kind === 'string' && named.text !== ''
    return { import: literal ? { from: named.text, kind: 'dynamic' } : 'computed', next: i + 3 }
  }
  const clause = readFrom(tokens, i + 1)
  return clause && { import: { from: clause.from, kind: 'import' }, next: clause.next }
}

export function scanImports(source: string): Scan {
  const tokens = tokenize(source)
  const imports: Import[] = []
  let computed = 0
  let other = 0
  for (let i = 0; i < tokens.length; ) {
    const naming = readNaming(tokens, i)
    if (naming === undefined) {
      if (tokens[i]?.text !== ';') other++
      i++
      continue
    }
    if (naming.import === 'computed') computed++
    else imports.push(naming.import)
    i = naming.next
  }
  const barrel = other === 0 && imports.some((one) => one.kind === 're-export')
  return { imports, computed, barrel }
}

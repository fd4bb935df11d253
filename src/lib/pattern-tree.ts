/**
 * The tree of a regular expression, as far as its running time depends on it: what repeats, what are alternatives, what
 * matches one character. Groups lose their names and numbers. `wall` stands for what cannot be followed as a plain
 * automaton: assertions, lookaround, back references. The text must have passed `new RegExp`.
 */

export type PatternTree =
  | { readonly kind: 'atom'; readonly text: string }
  | { readonly kind: 'wall'; readonly inner?: PatternTree }
  | { readonly kind: 'sequence'; readonly items: readonly PatternTree[] }
  | { readonly kind: 'choice'; readonly items: readonly PatternTree[] }
  | { readonly kind: 'repeat'; readonly item: PatternTree; readonly min: number; readonly max: number }

const ESCAPE =
  /\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|u\{[0-9a-fA-F]+\}|c[A-Za-z]|[pP]\{[^}]*\}|k<[^>]*>|[1-9][0-9]*|[\s\S])/y
const CLASS = /\[(?:[^\]\\]|\\[\s\S])*\]/y
const COUNT = /\{([0-9]+)(,([0-9]*))?\}/y
const GROUP = /\((?:\?(?:<?[=!]|<[^>]*>|[a-z-]*:))?/y

interface Reader {
  readonly text: string
  readonly unicode: boolean
  at: number
}

export function readPattern(text: string, unicode: boolean): PatternTree {
  return readChoice({ text, unicode, at: 0 })
}

function readChoice(reader: Reader): PatternTree {
  const items: PatternTree[] = [readSequence(reader)]
  while (reader.text[reader.at] === '|') {
    reader.at++
    items.push(readSequence(reader))
  }
  return items.length === 1 && items[0] !== undefined ? items[0] : { kind: 'choice', items }
}

function readSequence(reader: Reader): PatternTree {
  const items: PatternTree[] = []
  while (reader.at < reader.text.length) {
    const next = reader.text[reader.at]
    if (next === '|' || next === ')') break
    items.push(readRepeat(reader, readItem(reader)))
  }
  return { kind: 'sequence', items }
}

function readItem(reader: Reader): PatternTree {
  const { text } = reader
  switch (text[reader.at]) {
    case '(':
      return readGroup(reader)
    case '[':
      return { kind: 'atom', text: take(reader, CLASS) }
    case '\\':
      return readEscape(take(reader, ESCAPE))
    case '^':
    case '$':
      reader.at++
      return { kind: 'wall' }
  }
  const code = reader.unicode ? text.codePointAt(reader.at) : text.charCodeAt(reader.at)
  const char = String.fromCodePoint(code ?? 0)
  reader.at += char.length
  // Outside of unicode mode a lone brace or bracket stands for itself.
  return { kind: 'atom', text: /[{}\]]/.test(char) ? `\\${char}` : char }
}

function readGroup(reader: Reader): PatternTree {
  const opening = take(reader, GROUP)
  const inner = readChoice(reader)
  reader.at++
  return /[=!]$/.test(opening) ? { kind: 'wall', inner } : inner
}

function readEscape(text: string): PatternTree {
  return /^\\([bB]|[1-9]|k<)/.test(text) ? { kind: 'wall' } : { kind: 'atom', text }
}

function readRepeat(reader: Reader, item: PatternTree): PatternTree {
  const bounds = readBounds(reader)
  if (bounds === undefined) return item
  // Lazy repetition finds another match first, but tries as many before it fails.
  if (reader.text[reader.at] === '?') reader.at++
  return { kind: 'repeat', item, ...bounds }
}

function readBounds(reader: Reader): { min: number; max: number } | undefined {
  const next = reader.text[reader.at]
  if (next === '*' || next === '+' || next === '?') {
    reader.at++
    return { min: next === '+' ? 1 : 0, max: next === '?' ? 1 : Number.POSITIVE_INFINITY }
  }
  COUNT.lastIndex = reader.at
  const count = next === '{' ? COUNT.exec(reader.text) : null
  if (count === null) return undefined
  reader.at = COUNT.lastIndex
  const min = Number(count[1])
  if (count[2] === undefined) return { min, max: min }
  return { min, max: count[3] === '' ? Number.POSITIVE_INFINITY : Number(count[3]) }
}

/** What the sticky expression finds here; one character if it finds nothing, so that reading always goes on. */
function take(reader: Reader, expression: RegExp): string {
  expression.lastIndex = reader.at
  const found = expression.exec(reader.text)?.[0] ?? reader.text[reader.at] ?? ''
  reader.at += Math.max(1, found.length)
  return found
}

/**
 * Reads the text of a URI template: RFC 6570, levels 1 to 3 without `{;…}`. What the reading cannot tell apart later (two
 * variables with nothing between them) is refused here, with every error of syntax, as a TypeError.
 */

import { misuse } from '../errors.ts'

type Operator = '' | '+' | '#' | '/' | '.' | '?' | '&'

export type TemplatePart =
  | { readonly kind: 'literal'; readonly text: string }
  | { readonly kind: 'expression'; readonly operator: Operator; readonly names: readonly string[] }

const MAX_TEMPLATE = 2_048
const MAX_VARIABLES = 50
const NAME = /^(?:[A-Za-z0-9_]|%[0-9A-Fa-f]{2})+(?:\.(?:[A-Za-z0-9_]|%[0-9A-Fa-f]{2})+)*$/
const ROGUE_NAMES = new Set(['__proto__', 'constructor', 'prototype'])

export function readTemplate(template: string): TemplatePart[] {
  const fail = (why: string): TypeError => misuse(`The URI template ${JSON.stringify(template)} ${why}`)
  if (typeof template !== 'string' || template === '') throw fail('must be a text that is not empty')
  if (template.length > MAX_TEMPLATE) throw misuse(`A URI template may have ${MAX_TEMPLATE} characters`)
  const parts: TemplatePart[] = []
  for (const text of template.split(/(\{[^{}]*\})/)) {
    if (text === '') continue
    if (text.startsWith('{') && text.endsWith('}') && text.length > 1)
      parts.push(readExpression(text.slice(1, -1), fail))
    else if (/[{}]/.test(text)) throw fail('has a brace without its partner')
    else parts.push({ kind: 'literal', text: encodeReserved(text) })
  }
  const names = parts.flatMap((part) => (part.kind === 'expression' ? part.names : []))
  const twice = names.find((name, i) => names.indexOf(name) !== i)
  if (twice !== undefined) throw fail(`has the variable "${twice}" twice`)
  if (names.length > MAX_VARIABLES) throw fail(`has more than ${MAX_VARIABLES} variables`)
  assertSeparable(parts, fail)
  return parts
}

function readExpression(text: string, fail: (why: string) => TypeError): TemplatePart {
  const [, sign = '', list = ''] = /^([^A-Za-z0-9_%]?)(.*)$/s.exec(text) ?? []
  if (!['', '+', '#', '/', '.', '?', '&'].includes(sign))
    throw fail(`has the operator "${sign}", which is not supported`)
  const names = list.split(',')
  for (const name of names) {
    if (/[*:]/.test(name)) throw fail(`has "${name}": the modifiers of level 4 are not supported`)
    if (!NAME.test(name) || ROGUE_NAMES.has(name))
      throw fail(`has "${name}" where the name of a variable is expected`)
  }
  return { kind: 'expression', operator: sign as Operator, names }
}

function assertSeparable(parts: readonly TemplatePart[], fail: (why: string) => TypeError): void {
  for (const [i, part] of parts.entries()) {
    const next = parts[i + 1]
    if (part.kind === 'literal' || next === undefined) continue
    const isOpen = next.kind === 'expression' && (next.operator === '' || next.operator === '+')
    if (isOpen)
      throw fail(`has nothing before {${next.operator}${next.names.join()}} to tell where it begins`)
    if (part.operator !== '?' && part.operator !== '&') continue
    const continues = next.kind === 'literal' ? next.text.startsWith('#') : '&#'.includes(next.operator)
    if (!continues) throw fail('goes on after its query; only {&…} and a fragment may follow')
  }
}

const TRIPLET_OR_ILLEGAL = /%[0-9A-Fa-f]{2}|[^A-Za-z0-9._~:/?#[\]@!$&'()*+,;=-]/gu

/** Percent-encodes what may not be in a URI at all; reserved characters and triplets stay. */
export function encodeReserved(text: string): string {
  return text.replace(TRIPLET_OR_ILLEGAL, (found) =>
    found.length === 3 ? found.toUpperCase() : encodeURIComponent(found),
  )
}

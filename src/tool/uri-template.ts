/** URI templates (RFC 6570): which resources a template stands for, and the URI for given values. */

import { createMatcher, type TemplateValues } from './template-match.ts'
import { encodeReserved, readTemplate, type TemplatePart } from './template-parts.ts'

export interface UriTemplate {
  /** The names of the variables, in order. */
  readonly variables: readonly string[]
  /** The values in a URI that fits the template; undefined if it does not. */
  match(uri: string): TemplateValues | undefined
  /** The URI for these values. A variable without a value is left out. */
  expand(values: Readonly<Record<string, string | undefined>>): string
}

export function parseTemplate(template: string): UriTemplate {
  const parts = readTemplate(template)
  return {
    variables: parts.flatMap((part) => (part.kind === 'expression' ? part.names : [])),
    match: createMatcher(parts),
    expand: (values) => parts.map((part) => expandPart(part, values)).join(''),
  }
}

function expandPart(part: TemplatePart, values: Readonly<Record<string, string | undefined>>): string {
  if (part.kind === 'literal') return part.text
  const { operator } = part
  const given = part.names.flatMap((name) => {
    const value = Object.hasOwn(values, name) ? values[name] : undefined
    return value === undefined ? [] : [[name, value] as const]
  })
  if (given.length === 0) return ''
  switch (operator) {
    case '':
      return given.map(([, value]) => encodeValue(value)).join(',')
    case '+':
    case '#':
      return (operator === '#' ? '#' : '') + given.map(([, value]) => encodeReserved(value)).join(',')
    case '/':
    case '.':
      return given.map(([, value]) => operator + encodeValue(value)).join('')
    case '?':
    case '&':
      return operator + given.map(([name, value]) => `${name}=${encodeValue(value)}`).join('&')
  }
}

/** Encodes all but the unreserved characters. */
function encodeValue(text: string): string {
  return encodeURIComponent(text).replace(
    /[!'()*]/g,
    (sign) => `%${sign.charCodeAt(0).toString(16).toUpperCase()}`,
  )
}

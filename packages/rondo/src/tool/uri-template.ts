/**
 * URI templates (RFC 6570, levels 1 to 3 without `{;…}`): the values that a URI has for the variables of a template. A template
 * that could not be matched without ambiguity (two variables with nothing between them) is a TypeError, as is every error of
 * syntax. Matching takes time proportional to the URI's length (T11): a pass from the end notes for every part where the
 * rest of the template fits; a pass forward lets each variable take the shortest text after which the rest still fits.
 *
 * 1. `{var}`, `{/var}` and `{.var}` hold no slash, backslash or NUL, not even percent-encoded, and are not `.` or `..`;
 *    `{+var}` may hold slashes, but no segment `.` or `..`. A handler that reads a file by them stays in its folder.
 * 2. Percent-encoding must be complete and strict UTF-8. Query parameters may come in any order; a URI with a parameter that
 *    the template does not name, or that occurs twice, does not match.
 */

import { misuse } from '../errors.ts'
import { UNSAFE_NAMES } from '../form/form.ts'

interface UriTemplate {
  /** Returns the values in a URI that matches the template; undefined if it does not. */
  match(uri: string): TemplateValues | undefined
}

type Operator = '' | '+' | '#' | '/' | '.' | '?' | '&'

type Expression<T extends string> = T extends `${string}{${infer E}}${infer Rest}`
  ? E | Expression<Rest>
  : never
type NameList<E extends string> = E extends `${Exclude<Operator, ''>}${infer List}` ? List : E
type NameIn<List extends string> = List extends `${infer Name},${infer Rest}` ? Name | NameIn<Rest> : List
type FirstName<List extends string> = List extends `${infer Name},${string}` ? Name : List
/** Variables that a URI of the template always has. */
type AlwaysThere<E extends string> = E extends `${Exclude<Operator, '' | '+'>}${string}`
  ? never
  : FirstName<NameList<E>>

/** The names of the variables of a template, read from its text; any name where the text is not known at compile time. */
export type VariableName<T extends string> = string extends T ? string : NameIn<NameList<Expression<T>>>

/** The values a handler receives. Variables in a query, path or list extension may be missing from the URI. */
export type TemplateParams<T extends string> = string extends T
  ? Readonly<Record<string, string>>
  : { readonly [K in AlwaysThere<Expression<T>>]: string } & {
      readonly [K in Exclude<VariableName<T>, AlwaysThere<Expression<T>>>]?: string
    }

export function parseTemplate(template: string): UriTemplate {
  return { match: createMatcher(readTemplate(template)) }
}

type TemplatePart =
  | { readonly kind: 'literal'; readonly text: string }
  | { readonly kind: 'expression'; readonly operator: Operator; readonly names: readonly string[] }

const MAX_TEMPLATE = 2_048
const MAX_VARIABLES = 50
const NAME = /^(?:[A-Za-z0-9_]|%[0-9A-Fa-f]{2})+(?:\.(?:[A-Za-z0-9_]|%[0-9A-Fa-f]{2})+)*$/

function readTemplate(template: string): TemplatePart[] {
  const fail = (why: string): TypeError => misuse(`The URI template ${JSON.stringify(template)} ${why}`)
  if (typeof template !== 'string' || template === '') throw fail('must be a non-empty string')
  if (template.length > MAX_TEMPLATE)
    throw misuse(`A URI template may be at most ${MAX_TEMPLATE} characters long`)
  const parts: TemplatePart[] = []
  for (const text of template.split(/(\{[^{}]*\})/)) {
    if (text === '') continue
    if (text.startsWith('{') && text.endsWith('}') && text.length > 1)
      parts.push(readExpression(text.slice(1, -1), fail))
    else if (/[{}]/.test(text)) throw fail('has an unbalanced brace')
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
    if (!NAME.test(name) || UNSAFE_NAMES.has(name))
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
      throw fail(`has nothing before {${next.operator}${next.names.join()}} that marks where it begins`)
    if (part.operator !== '?' && part.operator !== '&') continue
    const continues = next.kind === 'literal' ? next.text.startsWith('#') : '&#'.includes(next.operator)
    if (!continues) throw fail('continues after its query; only {&…} and a fragment may follow')
  }
}

const TRIPLET_OR_ILLEGAL = /%[0-9A-Fa-f]{2}|[^A-Za-z0-9._~:/?#[\]@!$&'()*+,;=-]/gu

/** Percent-encodes what a URI may not contain; reserved characters and triplets stay. */
function encodeReserved(text: string): string {
  return text.replace(TRIPLET_OR_ILLEGAL, (found) =>
    found.length === 3 ? found.toUpperCase() : encodeURIComponent(found),
  )
}

type TemplateValues = Record<string, string>

const MAX_URI = 8_192

type Step =
  | { readonly kind: 'literal'; readonly text: string }
  | {
      readonly kind: 'variable'
      readonly name: string
      readonly prefix: string
      readonly optional: boolean
      /** The characters that a value may have before decoding. */
      readonly within: Set<string>
      readonly accepts: (value: string) => boolean
    }
  | { readonly kind: 'query'; readonly names: ReadonlySet<string>; readonly starts: ReadonlySet<string> }

const UNRESERVED = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~%'
// Clients may leave these unencoded. An ampersand in a path would hide where a query begins.
const IN_SEGMENT = new Set(`${UNRESERVED}!$'()*+,;=:@`)
const IN_LIST = new Set(`${UNRESERVED}!$'()*+;=:@`)
const ANYWHERE = new Set(`${UNRESERVED}!$'()*+,;=:@/?#[]&`)

const isSegment = (value: string): boolean => !/[/\\\0]/.test(value) && value !== '.' && value !== '..'
const isPath = (value: string): boolean =>
  !/[\\\0]/.test(value) && value.split('/').every((segment) => segment !== '.' && segment !== '..')
const isText = (value: string): boolean => !value.includes('\0')

function createMatcher(parts: readonly TemplatePart[]): (uri: string) => TemplateValues | undefined {
  const steps = toSteps(parts)
  const start = steps[0]?.kind === 'literal' ? steps[0].text : ''
  return (uri) => {
    const text = normalise(uri)
    if (text === undefined || !text.startsWith(start)) return undefined
    const fits = findFits(steps, text)
    return fits[0]?.[0] === 1 ? walk(steps, fits, text) : undefined
  }
}

function toSteps(parts: readonly TemplatePart[]): Step[] {
  const steps: Step[] = []
  for (const part of parts) {
    if (part.kind === 'literal') steps.push(part)
    else if (part.operator === '?' || part.operator === '&') addQuery(steps, part.operator, part.names)
    else {
      const { operator, names } = part
      const isFree = operator === '+' || operator === '#'
      const first = operator === '+' ? '' : operator
      const separator = operator === '/' || operator === '.' ? operator : ','
      for (const [i, name] of names.entries()) {
        steps.push({
          kind: 'variable',
          name,
          prefix: i === 0 ? first : separator,
          optional: i > 0 || first !== '',
          within: isFree ? ANYWHERE : names.length > 1 ? IN_LIST : IN_SEGMENT,
          accepts: operator === '+' ? isPath : operator === '#' ? isText : isSegment,
        })
      }
    }
  }
  return steps
}

/** `{?a}{&b}` is one query. */
function addQuery(steps: Step[], start: '?' | '&', names: readonly string[]): void {
  const last = steps.at(-1)
  if (last?.kind !== 'query') steps.push({ kind: 'query', names: new Set(names), starts: new Set(start) })
  else {
    const all = new Set([...last.names, ...names])
    steps.splice(-1, 1, { kind: 'query', names: all, starts: new Set([...last.starts, start]) })
  }
}

function normalise(uri: string): string | undefined {
  if (typeof uri !== 'string' || uri.length > MAX_URI || hasControls(uri)) return undefined
  if (/%(?![0-9A-Fa-f]{2})/.test(uri)) return undefined
  try {
    return encodeReserved(uri)
  } catch {
    return undefined
  }
}

function hasControls(text: string): boolean {
  for (let i = 0; i < text.length; i++)
    if (text.charCodeAt(i) <= 0x20 || text.charCodeAt(i) === 0x7f) return true
  return false
}

/** For each step, and for the end of the template, the positions in the URI from which the rest matches. */
function findFits(steps: readonly Step[], uri: string): Uint8Array[] {
  const end = new Uint8Array(uri.length + 1)
  end[uri.length] = 1
  const fits: Uint8Array[] = [end]
  for (const step of steps.toReversed()) fits.unshift(findFit(step, fits[0] ?? end, uri))
  return fits
}

function findFit(step: Step, next: Uint8Array, uri: string): Uint8Array {
  const here = new Uint8Array(uri.length + 1)
  if (step.kind === 'query') return findQueryFit(step, next, here, uri)
  if (step.kind === 'literal') {
    for (let at = 0; at <= uri.length; at++) {
      if (next[at + step.text.length] === 1 && uri.startsWith(step.text, at)) here[at] = 1
    }
    return here
  }
  const inside = new Uint8Array(uri.length + 1)
  for (let at = uri.length - 1; at >= 0; at--) {
    if (step.within.has(uri.charAt(at)) && (next[at + 1] === 1 || inside[at + 1] === 1)) inside[at] = 1
  }
  for (let at = 0; at <= uri.length; at++) {
    const begins = inside[at + step.prefix.length] === 1 && uri.startsWith(step.prefix, at)
    if (begins || (step.optional && next[at] === 1)) here[at] = 1
  }
  return here
}

/** A query extends to the end or to the fragment, parameter by parameter. */
function findQueryFit(
  step: Step & { kind: 'query' },
  next: Uint8Array,
  here: Uint8Array,
  uri: string,
): Uint8Array {
  const end = endOfQuery(uri)
  const first = uri.indexOf('?')
  if (next[end] !== 1) return here
  here[end] = 1
  // Whether the rest matches from each ampersand on, from the last to the first.
  const rest = new Uint8Array(uri.length + 1)
  rest[end] = 1
  for (let at = end - 1, stop = end; at >= 0; at--) {
    const isStart = at === first
    if (uri[at] !== '&' && !isStart) continue
    const isKnown = rest[stop] === 1 && step.names.has(nameOf(uri.slice(at + 1, stop)))
    if (isKnown && uri[at] === '&') rest[at] = 1
    if (isKnown && step.starts.has(uri.charAt(at))) here[at] = 1
    if (isStart) break
    stop = at
  }
  return here
}

function endOfQuery(uri: string): number {
  const fragment = uri.indexOf('#')
  return fragment < 0 ? uri.length : fragment
}

function nameOf(parameter: string): string {
  const sign = parameter.indexOf('=')
  return sign < 0 ? parameter : parameter.slice(0, sign)
}

function walk(steps: readonly Step[], fits: readonly Uint8Array[], uri: string): TemplateValues | undefined {
  const values: [string, string][] = []
  let at = 0
  for (const [i, step] of steps.entries()) {
    const next = fits[i + 1]
    if (step.kind === 'literal') at += step.text.length
    else if (step.kind === 'query') {
      const end = endOfQuery(uri)
      for (const parameter of at === end ? [] : uri.slice(at + 1, end).split('&')) {
        const name = nameOf(parameter)
        const value = decode(parameter.slice(name.length + 1))
        if (value === undefined || !isText(value)) return undefined
        values.push([name, value])
      }
      at = end
    } else {
      const start = at + step.prefix.length
      let stop = start
      if (uri.startsWith(step.prefix, at)) {
        while (
          stop < uri.length &&
          step.within.has(uri.charAt(stop)) &&
          (stop === start || next?.[stop] !== 1)
        )
          stop++
      }
      if (stop === start || next?.[stop] !== 1) continue
      const value = decode(uri.slice(start, stop))
      if (value === undefined || !step.accepts(value)) return undefined
      values.push([step.name, value])
      at = stop
    }
  }
  const found = Object.fromEntries(values)
  return Object.keys(found).length === values.length ? found : undefined
}

/** Strict: returns undefined for a triplet that is incomplete or not UTF-8. */
function decode(text: string): string | undefined {
  try {
    return decodeURIComponent(text)
  } catch {
    return undefined
  }
}

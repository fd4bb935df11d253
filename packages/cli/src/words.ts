/**
 * The words after the name of a command: a server, and arguments.
 *
 * A server is a URL, a file that exports one, or a command that starts one. A target is plain JSON and is stored with a pending
 * call; it never contains values of the environment.
 *
 * `name=value` is converted to the type in the tool's schema. `name:=json` passes the value as
 * JSON, whatever the schema says; `a.b=1` sets a property of an object. The schema comes from the server and is not trusted:
 * it is only read, and references are followed within its own `$defs` only.
 */

import { existsSync, readFileSync, statSync } from 'node:fs'
import { resolve } from 'node:path'
import type { JsonSchema } from 'rondo/client'
import { isRecord } from 'rondo/internal'
import { usageError } from './command-line.ts'
import { type Io, readStdin } from './io.ts'

export type NamedTarget =
  | { readonly kind: 'url'; readonly url: string }
  | { readonly kind: 'file'; readonly path: string }
  | {
      readonly kind: 'command'
      readonly command: string
      readonly args: readonly string[]
      readonly cwd: string
    }

const SCRIPT = /\.[cm]?[jt]s$/

/** Takes the target from the first word, or from what follows `--`, and returns it with the remaining words. */
export function takeTarget(
  words: readonly string[],
  rest: readonly string[] | undefined,
  cwd: string,
): { target: NamedTarget; words: readonly string[] } {
  if (rest !== undefined) {
    const [command, ...args] = rest
    if (command === undefined) throw usageError('No command follows "--"')
    return { target: { kind: 'command', command, args, cwd }, words }
  }
  const [text, ...others] = words
  if (text === undefined) {
    throw usageError('Name a server: a URL, a file that exports one, or a command after "--"')
  }
  return { target: readTarget(text, cwd), words: others }
}

/** Parses a target from one word. */
export function readTarget(text: string, cwd: string): NamedTarget {
  if (/^https?:\/\//i.test(text)) {
    if (!URL.canParse(text)) throw usageError(`Invalid URL: ${text}`)
    if (new URL(text).username !== '') throw usageError('Pass credentials with --header, not in the URL')
    return { kind: 'url', url: text }
  }
  if (/^[a-z][a-z0-9+.-]*:\/\//i.test(text)) {
    throw usageError(`A server URL must use http or https, not ${text.split(':')[0]}`)
  }
  const path = resolve(cwd, text)
  const isFile = existsSync(path) && statSync(path).isFile()
  if (isFile && SCRIPT.test(text)) return { kind: 'file', path }
  const [command, ...args] = splitCommand(text)
  if (command === undefined) throw usageError('The name of the server must not be empty')
  if (args.length === 0 && SCRIPT.test(command)) throw usageError(`No such file: ${path}`)
  if (args.length === 0 && /^[\w.-]+:\d+(?:\/|$)/.test(command))
    throw usageError(`A server URL begins with http:// or https://: http://${command}`)
  return { kind: 'command', command, args, cwd }
}

/** The target as text for people. */
export function sayTarget(target: NamedTarget): string {
  switch (target.kind) {
    case 'url':
      return target.url
    case 'file':
      return target.path
    case 'command':
      return [target.command, ...target.args].join(' ')
  }
}

/** Parses a stored target; undefined if it is invalid. */
export function parseTarget(value: unknown): NamedTarget | undefined {
  if (!isRecord(value)) return undefined
  const { kind, url, path, command, args, cwd } = value
  if (kind === 'url' && typeof url === 'string') return { kind, url }
  if (kind === 'file' && typeof path === 'string') return { kind, path }
  if (kind !== 'command' || typeof command !== 'string' || typeof cwd !== 'string') return undefined
  const isList = Array.isArray(args) && args.every((one) => typeof one === 'string')
  return isList ? { kind, command, args, cwd } : undefined
}

const PART = /\s+|'([^']*)'|"((?:[^"\\]|\\[\s\S])*)"|\\([\s\S])|([^\s'"\\]+)/y

/**
 * Splits a quoted command into words: single quotes, double quotes and backslashes work as in a shell. No shell runs, and
 * nothing is expanded.
 */
export function splitCommand(text: string): string[] {
  const words: string[] = []
  let word: string | undefined
  PART.lastIndex = 0
  while (PART.lastIndex < text.length) {
    const part = PART.exec(text)
    if (part === null) throw usageError(`The command has an unclosed quote or a trailing backslash: ${text}`)
    const [whole, single, double, escaped, plain] = part
    const piece = single ?? double?.replace(/\\(["\\$`])/g, '$1') ?? escaped ?? plain
    if (piece !== undefined) word = (word ?? '') + piece
    else if (word !== undefined && whole !== '') {
      words.push(word)
      word = undefined
    }
  }
  if (word !== undefined) words.push(word)
  return words
}

type Args = Record<string, unknown>

const MAX_HOPS = 8

/** The arguments of the words, on top of `base`. */
export function readArgs(words: readonly string[], schema: JsonSchema, base: Args = {}): Args {
  const args = structuredClone(base)
  for (const word of words) {
    const { name, text, json } = splitWord(word)
    const path = pathOf(name, schema)
    const part = schemaAt(path, schema)
    setAt(args, path, json ? parseJson(name, text) : convert(name, text, part, schema), isList(part, schema))
  }
  checkNames(args, schema)
  return args
}

export function splitWord(word: string): { name: string; text: string; json: boolean } {
  const at = word.indexOf('=')
  if (at < 1) throw usageError(`"${word}" is not name=value`)
  const json = word[at - 1] === ':'
  return { name: word.slice(0, json ? at - 1 : at), text: word.slice(at + 1), json }
}

/** A property whose name contains dots takes precedence over a path. */
function pathOf(name: string, schema: JsonSchema): string[] {
  const { properties } = resolveRef(schema, schema)
  return isRecord(properties) && Object.hasOwn(properties, name) ? [name] : name.split('.')
}

function schemaAt(path: readonly string[], root: JsonSchema): JsonSchema {
  let part = resolveRef(root, root)
  for (const name of path) {
    const { properties } = part
    const next = isRecord(properties) && Object.hasOwn(properties, name) ? properties[name] : undefined
    part = isRecord(next) ? resolveRef(next, root) : {}
  }
  return part
}

function resolveRef(schema: JsonSchema, root: JsonSchema): JsonSchema {
  let now = schema
  for (let hops = 0; hops < MAX_HOPS; hops++) {
    const [, place, name] =
      /^#\/(\$defs|definitions)\/([^/]+)$/.exec(typeof now.$ref === 'string' ? now.$ref : '') ?? []
    if (place === undefined || name === undefined) return now
    const defs = root[place]
    const next = isRecord(defs) && Object.hasOwn(defs, name) ? defs[name] : undefined
    if (!isRecord(next)) return now
    now = next
  }
  return now
}

function setAt(args: Args, path: readonly string[], value: unknown, append: boolean): void {
  const [name = '', ...below] = path
  if (name === '__proto__') throw usageError('An argument cannot be named __proto__')
  const old = Object.hasOwn(args, name) ? args[name] : undefined
  if (below.length > 0) {
    const child: Args = isRecord(old) ? old : {}
    args[name] = child
    setAt(child, below, value, append)
  } else args[name] = append && Array.isArray(old) && Array.isArray(value) ? [...old, ...value] : value
}

function typesOf(schema: JsonSchema, root: JsonSchema, hops = 0): string[] {
  const { type, anyOf, oneOf } = resolveRef(schema, root)
  if (typeof type === 'string') return [type]
  if (Array.isArray(type)) return type.filter((one) => typeof one === 'string')
  const choices = hops < MAX_HOPS ? ([anyOf, oneOf].find(Array.isArray) ?? []) : []
  return choices.flatMap((one) => (isRecord(one) ? typesOf(one, root, hops + 1) : []))
}

function isList(schema: JsonSchema, root: JsonSchema): boolean {
  return typesOf(schema, root).includes('array')
}

function convert(name: string, text: string, schema: JsonSchema, root: JsonSchema): unknown {
  if (Array.isArray(schema.enum) && schema.enum.includes(text)) return text
  const types = typesOf(schema, root)
  for (const type of types) {
    const value = tryConvert(type, name, text, schema, root)
    if (value !== undefined) return value
  }
  if (types.length === 0) {
    const value = tryJson(text)
    return value === undefined ? text : value
  }
  throw usageError(`${name} must be of type ${types.join(' or ')}, not "${text}"`)
}

const YES_NO: ReadonlyMap<string, boolean> = new Map([
  ['true', true],
  ['yes', true],
  ['false', false],
  ['no', false],
])

function tryConvert(type: string, name: string, text: string, schema: JsonSchema, root: JsonSchema): unknown {
  switch (type) {
    case 'string':
      return text
    case 'number':
    case 'integer': {
      const value = text.trim() === '' ? Number.NaN : Number(text)
      return Number.isFinite(value) && (type === 'number' || Number.isSafeInteger(value)) ? value : undefined
    }
    case 'boolean':
      return YES_NO.get(text.toLowerCase())
    case 'null':
      return text === 'null' ? null : undefined
    case 'array': {
      const whole = text.startsWith('[') ? tryJson(text) : undefined
      if (Array.isArray(whole)) return whole
      const items = isRecord(schema.items) ? resolveRef(schema.items, root) : {}
      return text === '' ? [] : text.split(',').map((one) => convert(name, one, items, root))
    }
    case 'object': {
      const value = tryJson(text)
      return isRecord(value) ? value : undefined
    }
  }
  return undefined
}

function checkNames(args: Args, schema: JsonSchema): void {
  const { properties, required, additionalProperties } = resolveRef(schema, schema)
  const known = isRecord(properties) ? Object.keys(properties) : []
  const list = known.length === 0 ? 'it takes no arguments' : `its arguments are ${known.join(', ')}`
  const unknown = Object.keys(args).filter((name) => !known.includes(name))
  if (unknown.length > 0 && additionalProperties === false) {
    throw usageError(`The tool has no argument ${unknown.join(', ')}; ${list}`)
  }
  const names: unknown[] = Array.isArray(required) ? required : []
  const missing = names.filter((name) => typeof name === 'string' && !Object.hasOwn(args, name))
  if (missing.length > 0)
    throw usageError(`Missing required arguments: ${missing.map((name) => `${name}=…`).join(' ')}`)
}

/** Parses the value of `name:=json`. */
export function parseJson(name: string, text: string): unknown {
  const value = tryJson(text)
  if (value === undefined) throw usageError(`The value of ${name} is not valid JSON: ${text}`)
  return value
}

function tryJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

/** Reads the JSON object in the file that an option names; `-` is stdin. */
export async function readJsonObject(io: Io, option: string, name: string): Promise<Record<string, unknown>> {
  const text = name === '-' ? await readStdin(io) : readText(io, option, name)
  const value = tryJson(text)
  if (!isRecord(value))
    throw usageError(`${option}: ${name === '-' ? 'stdin' : name} must contain a JSON object`)
  return value
}

function readText(io: Io, option: string, name: string): string {
  try {
    return readFileSync(resolve(io.cwd, name), 'utf8')
  } catch (error) {
    throw usageError(`${option}: ${(error as Error).message}`)
  }
}

/**
 * A server as the user names it: a URL, a file that exports one, or a command that starts one. A target is plain JSON and is
 * stored with a pending call; it never contains values of the environment.
 */

import { existsSync, statSync } from 'node:fs'
import { resolve } from 'node:path'
import { isRecord } from '../lib/json.ts'
import { usageError } from './command-line.ts'

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

/**
 * Defines what a command is: its name, options, action and exit codes. Parses a command line by its table of options, and
 * maps errors to exit codes. `main.ts` has the table of all commands.
 */

import { parseArgs } from 'node:util'
import { type ErrorCode, RondoError } from 'rondo'
import { isRecord, nearest } from 'rondo/internal'
import { type Io, shellWord } from './io.ts'

export interface Options {
  flag(name: string): boolean
  text(name: string): string | undefined
  list(name: string): readonly string[]
  /** A number of at least 0. */
  number(name: string): number | undefined
}

interface ReadLine {
  readonly words: readonly string[]
  readonly rest: readonly string[] | undefined
  readonly options: Options
}

export function readLine(args: readonly string[], table: OptionTable): ReadLine {
  const end = args.indexOf('--')
  const own = end < 0 ? args : args.slice(0, end)
  const { values, positionals } = parse(
    own.map((word) => (Object.hasOwn(table, word.slice(2)) ? word : mask(word))),
    table,
  )
  return {
    words: positionals.map(unmask),
    rest: end < 0 ? undefined : args.slice(end + 1),
    options: readOptions(values),
  }
}

/** A task id is random and may begin with a dash, as a number may. An option of the command is an option, however long. */
const ID = /^-(?:[\w-]{20,}|[\d.]+)$/
const MASK = '\0'
const mask = (word: string): string => (ID.test(word) ? `${MASK}${word}` : word)
const unmask = (word: string): string => (word.startsWith(MASK) ? word.slice(MASK.length) : word)

function parse(args: string[], table: OptionTable) {
  const options = Object.fromEntries(
    Object.entries(table).map(([name, { type, multiple, short }]) => [
      name,
      { type, multiple: multiple ?? false, ...(short && { short }) },
    ]),
  )
  try {
    return parseArgs({ args, options, allowPositionals: true, strict: true })
  } catch (error) {
    // Node's message names the option; its advice about "--" would be wrong here.
    const [sentence = ''] = String((error as Error).message).split(/\. To specify|\n/)
    const unknown = /^Unknown option '--([^']+)'/.exec(sentence)?.[1]
    if (unknown === undefined) throw usageError(sentence)
    const near = nearest(unknown, Object.keys(table))
    const advice = near === undefined ? '--help lists the options' : `Did you mean "--${near}"?`
    throw usageError(`${sentence}. ${advice}`)
  }
}

function readOptions(values: Readonly<Record<string, unknown>>): Options {
  return {
    flag: (name) => values[name] === true,
    text: (name) => (typeof values[name] === 'string' ? unmask(values[name]) : undefined),
    list: (name) => (Array.isArray(values[name]) ? values[name].map(unmask) : []),
    number(name) {
      const given = values[name]
      if (typeof given !== 'string') return undefined
      const text = unmask(given)
      const value = text.trim() === '' ? Number.NaN : Number(text)
      if (!(value >= 0)) throw usageError(`--${name} takes a number of at least 0, not "${text}"`)
      return value
    },
  }
}

export interface Invocation {
  readonly io: Io
  /** The words after the command, without options. */
  readonly words: readonly string[]
  /** The words after `--`: a command that starts a server. */
  readonly rest: readonly string[] | undefined
  readonly options: Options
}

export interface Command {
  readonly name: string
  /** Words after the name, as the help shows them. */
  readonly usage: string
  readonly summary: string
  /** Paragraphs with code in backticks, for the command's own help and for docs/reference/cli.md. */
  readonly details?: readonly string[]
  /** Words that the command takes, or ids that it prints, each with its meaning. `name` says what a word is. */
  readonly table?: { readonly name: string; readonly rows: Readonly<Record<string, string>> }
  /** The document that `--json` prints. */
  readonly json?: string
  /** The page that shows how to use the command. */
  readonly see?: string
  readonly options: OptionTable
  run(invocation: Invocation): Promise<Exit>
}

interface OptionRow {
  readonly type: 'boolean' | 'string'
  readonly multiple?: boolean
  readonly short?: string
  /** The placeholder of the value in the help. */
  readonly value?: string
  readonly help: string
}

export type OptionTable = Readonly<Record<string, OptionRow>>

/** Ends a command with a sentence for the user and an exit code. */
export class CommandError extends Error {
  readonly exit: Exit

  constructor(exit: Exit, message: string, options?: { cause?: unknown }) {
    super(message, options)
    this.name = 'CommandError'
    this.exit = exit
  }
}

export function usageError(message: string): CommandError {
  return new CommandError('usage', message)
}

/** An error for a tool name that the server does not have. */
export function noTool(name: string, tools: readonly { readonly name: string }[]): CommandError {
  return usageError(
    `The server has no tool "${name}"${suggest(
      name,
      tools.map((tool) => tool.name),
    )}`,
  )
}

const EXIT_BY_CODE: Partial<Record<ErrorCode, Exit>> = {
  PEER_UNREACHABLE: 'unreachable',
  LIMIT_CLIENT_TIMEOUT: 'unreachable',
  LIMIT_CLIENT_DEADLINE: 'unreachable',
  STORE_UNAVAILABLE: 'unreachable',
  STORE_SCHEMA: 'stored',
  PEER_LOGIN: 'refused',
  PEER_LINK: 'refused',
  INPUT_REFUSED: 'refused',
  INPUT_NO_HANDLER: 'refused',
  INPUT_PENDING: 'stored',
  INPUT_ANSWER: 'answers',
  INPUT_MISSING: 'answers',
}

/** The port that an option names. */
export function readPort({ text }: Pick<Options, 'text'>): number | undefined {
  const given = text('port')
  if (given === undefined) return undefined
  if (/^\d{1,5}$/.test(given) && Number(given) <= 65_535) return Number(given)
  throw usageError(`--port takes a whole number from 0 to 65535, not "${given}"`)
}

/** The exit for a thrown value. */
export function exitOf(error: unknown): Exit {
  if (error instanceof CommandError) return error.exit
  if (!(error instanceof RondoError)) return 'fault'
  const exit = EXIT_BY_CODE[error.code]
  if (exit !== undefined) return exit
  return error.code.startsWith('LIMIT_CLIENT_') ? 'refused' : 'server'
}

/** An error in one sentence, and in a second one the command to run if the server requires credentials. */
export function sayError(
  error: Error,
  url: string = '<server>',
): { readonly message: string; readonly advice?: string } {
  const { message } = error
  if (!(error instanceof RondoError) || !isRecord(error.data)) return { message }
  const { status, challenges, server, scopes } = error.data
  if (error.code === 'PEER_LOGIN') return { message, advice: `Log in: ${sayLogin(server, scopes, url)}` }
  if (error.code !== 'PEER_HTTP' || (status !== 401 && status !== 403)) return { message }
  const [challenge] = Array.isArray(challenges) ? challenges : []
  const { error: reason, scope } = (challenge?.params ?? {}) as Partial<Record<string, string>>
  const what = status === 401 ? 'The server requires a login' : 'The server refused these credentials'
  const login = sayLogin(url, status === 403 ? scope?.split(' ') : undefined, url)
  return {
    message: `[${error.code}] ${what} (HTTP status ${status}${reason === undefined ? '' : `, ${reason}`})`,
    advice: `Pass a token with --bearer. Or log in: ${login}`,
  }
}

function sayLogin(server: unknown, scopes: unknown, url: string): string {
  // A server chose the scopes, and people copy the command.
  const words = Array.isArray(scopes) && scopes.length > 0 ? ` --scope ${shellWord(scopes.join(' '))}` : ''
  const named = typeof server === 'string' ? server : url
  return `rondo login ${named === '<server>' ? named : shellWord(named)}${words}`
}

const SHOWN = 12

/** Suggests the closest name, or lists the names. */
export function suggest(name: string, names: readonly string[]): string {
  const near = nearest(name, names)
  if (near !== undefined) return `. Did you mean "${near}"?`
  if (names.length === 0) return '; there are no others'
  const more = names.length > SHOWN ? ` and ${names.length - SHOWN} more` : ''
  return `. Choose from ${names.slice(0, SHOWN).join(', ')}${more}`
}

/** Scripts rely on these codes; the help and docs/reference/cli.md print this table. */
export const EXITS = {
  done: { code: 0, meaning: 'done' },
  failed: { code: 1, meaning: 'the tool returned an error, or a check failed' },
  usage: { code: 2, meaning: 'the command line is invalid; nothing was called' },
  pending: {
    code: 3,
    meaning: 'the call is pending under the printed id: the server asks a question, or runs a task',
  },
  answers: { code: 4, meaning: 'an answer is missing, unused, or invalid' },
  server: { code: 5, meaning: 'the server returned a protocol error or an invalid response' },
  unreachable: { code: 6, meaning: 'the server cannot be reached, or timed out' },
  refused: {
    code: 7,
    meaning: 'the command refused: a limit, a policy, an unsafe URL, or a question it cannot answer',
  },
  stored: {
    code: 8,
    meaning: 'the pending call, task or store does not exist, is in use, or cannot be read',
  },
  fault: { code: 70, meaning: 'internal error' },
  interrupted: { code: 130, meaning: 'interrupted; Ctrl-C at a question also cancels the question' },
} as const

export type Exit = keyof typeof EXITS

/** Reads a command line by a table of options. What is wrong with it is said in one sentence. */

import { parseArgs } from 'node:util'
import { usageError } from './command-error.ts'
import type { OptionTable } from './option-table.ts'

export interface Options {
  flag(name: string): boolean
  text(name: string): string | undefined
  list(name: string): readonly string[]
  /** A number of at least 0. */
  number(name: string): number | undefined
}

export interface ReadLine {
  readonly words: readonly string[]
  readonly rest: readonly string[] | undefined
  readonly options: Options
}

export function readLine(args: readonly string[], table: OptionTable): ReadLine {
  const end = args.indexOf('--')
  const own = end < 0 ? args : args.slice(0, end)
  const { values, positionals } = parse(own.map(mask), table)
  return {
    words: positionals.map(unmask),
    rest: end < 0 ? undefined : args.slice(end + 1),
    options: readOptions(values),
  }
}

/** Ids of tasks are random and may begin with a dash; no option is so long. */
const ID = /^-[\w-]{20,}$/
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
    // Node's own sentence names the option; its advice about "--" would mislead here.
    const [sentence = ''] = String((error as Error).message).split(/\. To specify|\n/)
    throw usageError(sentence)
  }
}

function readOptions(values: Readonly<Record<string, unknown>>): Options {
  return {
    flag: (name) => values[name] === true,
    text: (name) => (typeof values[name] === 'string' ? unmask(values[name]) : undefined),
    list: (name) => (Array.isArray(values[name]) ? values[name].map(unmask) : []),
    number(name) {
      const text = values[name]
      if (typeof text !== 'string') return undefined
      const value = text.trim() === '' ? Number.NaN : Number(text)
      if (!(value >= 0)) throw usageError(`--${name} takes a number of at least 0, not "${text}"`)
      return value
    },
  }
}

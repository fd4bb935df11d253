/**
 * Objects of options. One definition lists the names, the check and the default of each option:
 *
 *     const OPTIONS = defineOptions('createSqliteStore', {
 *       file: text(),
 *       busyMs: number(10_000),
 *     } satisfies OptionsOf<SqliteStoreOptions>)
 *
 *     const { file, busyMs } = OPTIONS.read(given)
 *
 * The interface has the types and the doc comments. `satisfies` makes a name that is missing on either side a compile error.
 * `scripts/fill-docs.ts` writes docs/reference/options.md from the doc comments, and a test compares the defaults that they
 * state with those of the definitions.
 */

import { didYouMean, misuse } from './errors.ts'

/** `T` is the type of the value after reading: `undefined` is part of it if the option may be omitted and has no default. */
export interface Option<T> {
  readonly initial: T
  /** Describes valid values if this one is invalid: "a number of 0 or more". */
  mustBe?(value: unknown): string | undefined
}

export type OptionDefinitions = Readonly<Record<string, Option<unknown>>>

/** A definition of all options of an interface, and of no others. */
export type OptionsOf<T> = { readonly [K in keyof T]-?: Option<T[K]> }

/** Options after reading, with their defaults. */
export type OptionValues<D extends OptionDefinitions> = { readonly [K in keyof D]: D[K]['initial'] }

export interface OptionSet<D extends OptionDefinitions = OptionDefinitions> {
  /** The function that takes these options, as error messages name it. */
  readonly of: string
  readonly table: D
  /** Throws if an option does not exist, is null, or has an invalid value. */
  assert(given: unknown, of?: string): void
  /** Checks the options, and returns them with their defaults. */
  read(given: unknown, of?: string): OptionValues<D>
  /** Like `read`, for an object that has other options too; these are ignored. */
  pick(given: object, of?: string): OptionValues<D>
}

/** The defaults of all options. */
export function defaultsOf<D extends OptionDefinitions>(table: D): OptionValues<D> {
  const entries = Object.entries(table).map(([name, { initial }]) => [name, initial])
  return Object.fromEntries(entries) as OptionValues<D>
}

const sets: OptionSet[] = []

/** All definitions of the modules that are loaded, for the tests that compare them with their documentation. */
export function definedOptions(): readonly OptionSet[] {
  return sets
}

/** `others` maps names that other libraries use to the option that they mean. */
export function defineOptions<D extends OptionDefinitions>(
  name: string,
  table: D,
  others: Readonly<Record<string, string>> = {},
): OptionSet<D> {
  const assert = (given: unknown, of = name): void => assertOptions(of, given, table, others)
  const read = (given: unknown, of?: string): OptionValues<D> => {
    assert(given, of)
    const values = (given ?? {}) as Readonly<Record<string, unknown>>
    const entries = Object.entries(table).map(([key, { initial }]) => [key, values[key] ?? initial])
    return Object.fromEntries(entries) as OptionValues<D>
  }
  const set: OptionSet<D> = {
    of: name,
    table,
    assert,
    read,
    pick: (given, of) =>
      read(Object.fromEntries(Object.entries(given).filter(([key]) => Object.hasOwn(table, key))), of),
  }
  sets.push(set)
  return set
}

function assertOptions(
  of: string,
  given: unknown,
  table: OptionDefinitions,
  others: Readonly<Record<string, string>>,
): void {
  if (given === undefined) return
  if (typeof given !== 'object' || given === null)
    throw misuse(`${of} takes an object with options; got ${given === null ? 'null' : `a ${typeof given}`}.`)
  for (const [name, value] of Object.entries(given)) {
    if (value === undefined) continue
    const option = Object.hasOwn(table, name) ? table[name] : undefined
    if (option === undefined) {
      const meant = Object.hasOwn(others, name) ? ` Did you mean "${others[name]}"?` : didYouMean(name, table)
      throw misuse(`${of} has no option "${name}".${meant}`)
    }
    if (value === null) throw misuse(`${pathOf(of, name)} is null. Leave it out for its default.`)
    const wanted = option.mustBe?.(value)
    if (wanted === undefined) continue
    const unset = Number.isNaN(value) ? ' Is an environment variable missing?' : ''
    throw misuse(`${pathOf(of, name)} must be ${wanted}; got ${show(value)}.${unset}`)
  }
}

/** `createServer: tasks` is an option itself, so its own options follow a dot. */
function pathOf(of: string, name: string): string {
  return `${of}${of.includes(': ') ? '.' : ': '}${name}`
}

/** Objects and functions are named by their type: they may hold secrets, and are seldom readable. */
function show(value: unknown): string {
  if (typeof value === 'string') return JSON.stringify(value)
  if (typeof value === 'object') return Array.isArray(value) ? 'a list' : 'an object'
  return typeof value === 'function' ? 'a function' : String(value)
}

export interface Range {
  readonly min?: number
  readonly max?: number
  /** Refuses Infinity. */
  readonly finite?: true
  readonly whole?: true
}

export function number(initial: number, range?: Range): Option<number>
export function number(initial?: undefined, range?: Range): Option<number | undefined>
export function number(
  initial?: number,
  { min = 0, max = Number.POSITIVE_INFINITY, finite, whole }: Range = {},
): Option<number | undefined> {
  const kind = whole ? 'whole number' : finite ? 'finite number' : 'number'
  const wanted =
    max === Number.POSITIVE_INFINITY ? `a ${kind} of ${min} or more` : `a ${kind} from ${min} to ${max}`
  const isValid = (value: unknown): boolean =>
    typeof value === 'number' &&
    value >= min &&
    value <= max &&
    (!finite || Number.isFinite(value)) &&
    (!whole || Number.isInteger(value))
  return { initial, mustBe: (value) => (isValid(value) ? undefined : wanted) }
}

/** A text such as 'false', from an environment variable, is refused: it would count as true. */
export function flag(initial: boolean): Option<boolean>
export function flag(initial?: undefined): Option<boolean | undefined>
export function flag(initial?: boolean): Option<boolean | undefined> {
  return { initial, mustBe: (value) => (typeof value === 'boolean' ? undefined : 'true or false') }
}

export function text(initial: string): Option<string>
export function text(initial?: undefined): Option<string | undefined>
export function text(initial?: string): Option<string | undefined> {
  return { initial, mustBe: (value) => (typeof value === 'string' ? undefined : 'a string') }
}

export function oneOf<const T extends string>(values: readonly T[], initial: T): Option<T>
export function oneOf<const T extends string>(values: readonly T[]): Option<T | undefined>
export function oneOf<const T extends string>(values: readonly T[], initial?: T): Option<T | undefined> {
  return {
    initial,
    mustBe: (value) =>
      (values as readonly unknown[]).includes(value) ? undefined : `one of ${values.join(', ')}`,
  }
}

/** A function. */
export function callable<T>(initial?: T): Option<T> {
  return {
    initial: initial as T,
    mustBe: (value) => (typeof value === 'function' ? undefined : 'a function'),
  }
}

/** An option whose value is checked where it is used. */
export function unchecked<T>(initial?: T): Option<T> {
  return { initial: initial as T }
}

/** The clock in ms since the epoch. It reads the global when it is called, because a test may replace that. */
export const clock: Option<() => number> = callable(() => Date.now())

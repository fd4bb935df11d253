/** The limits of a client: time, sizes and counts that a server may use up. */

import { defaultsOf, flag, number, type OptionsOf } from '../options.ts'

/** Limits on what a server may use up. Every limit has an option and an error of its own (R9). */
export interface Limits {
  /** How often a call may be answered and sent again; then `LIMIT_CLIENT_ROUNDS`. Other clients allow 10 too. Default: 10. */
  readonly maxRounds: number
  /** The time for one request; progress restarts it. Then `LIMIT_CLIENT_TIMEOUT`. Default: 2 minutes. */
  readonly timeoutMs: number
  /** The time for all requests of a call; then `LIMIT_CLIENT_DEADLINE`. Default: 10 minutes. */
  readonly deadlineMs: number
  /** Counts the time people take to answer, and the time a call is stored, towards the deadline. Default: `false`. */
  readonly countHumanTime: boolean
  /** Bytes of one response; then `LIMIT_CLIENT_BYTES`. All pages of a list together may be twice as large. Default: 16 MiB. */
  readonly maxResponseBytes: number
  /** Bytes of one `requestState`; then `LIMIT_CLIENT_STATE`. Default: 1 MiB. */
  readonly maxStateBytes: number
  /** Questions in one round; then `LIMIT_CLIENT_QUESTIONS`. Default: 32. */
  readonly maxQuestions: number
  /**
   * Size of all questions of a round, schemas included: characters of their strings and keys, plus 8 for every value. Then
   * `LIMIT_CLIENT_QUESTIONS`. Default: 262,144.
   */
  readonly maxQuestionSize: number
  /** Pages of one list; then `LIMIT_CLIENT_PAGES`. Default: 100. */
  readonly maxPages: number
}

export const LIMIT_OPTIONS: OptionsOf<Limits> = {
  maxRounds: number(10),
  timeoutMs: number(120_000),
  deadlineMs: number(600_000),
  countHumanTime: flag(false),
  maxResponseBytes: number(16 * 1_048_576),
  maxStateBytes: number(1_048_576),
  maxQuestions: number(32),
  maxQuestionSize: number(262_144),
  maxPages: number(100),
}

/**
 * The limits of a client that sets none of its own: how long it waits, how often it may be asked, and how much it reads.
 *
 * @example
 * ```ts
 * const client = await connect('https://tables.example.com/mcp', { timeoutMs: 2 * LIMITS.timeoutMs })
 * ```
 */
export const LIMITS: Limits = defaultsOf(LIMIT_OPTIONS)

export type CallLimits = Pick<Limits, 'maxRounds' | 'timeoutMs' | 'deadlineMs' | 'countHumanTime'>

/** Applies the given limits over `base`; other options are ignored. */
export function withLimits(given: Partial<Limits>, base: Limits = LIMITS): Limits {
  const own = Object.entries(given).filter(([name, value]) => name in LIMITS && value !== undefined)
  return { ...base, ...Object.fromEntries(own) }
}

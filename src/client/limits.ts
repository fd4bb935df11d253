/** How much of a server our client puts up with. Every bound has an option and an error of its own (R9). */

export interface Limits {
  /** How often one call may be answered and sent again. 10, as in other clients. */
  readonly maxRounds: number
  /** Milliseconds one request may take. Progress from the server starts it anew. Two minutes. */
  readonly timeout: number
  /** Milliseconds a whole call may take, all rounds together. Ten minutes. */
  readonly deadline: number
  /** Whether the deadline also counts the time people take to answer, and the time a call lies pending. No. */
  readonly countHumanTime: boolean
  /** Bytes of one answer. 16 MiB. */
  readonly maxResponseBytes: number
  /** Bytes of one `requestState`. 1 MiB. */
  readonly maxStateBytes: number
  /** Questions in one round. 32. */
  readonly maxQuestions: number
  /** Size of all questions of a round, schemas included: characters of their strings and keys, plus 8 for every value. 256 Ki. */
  readonly maxQuestionSize: number
  /** Pages of one list. 100. */
  readonly maxPages: number
}

export const LIMITS: Limits = {
  maxRounds: 10,
  timeout: 120_000,
  deadline: 600_000,
  countHumanTime: false,
  maxResponseBytes: 16 * 1_048_576,
  maxStateBytes: 1_048_576,
  maxQuestions: 32,
  maxQuestionSize: 262_144,
  maxPages: 100,
}

/** The given limits over the defaults. A limit that is no number of at least zero is a mistake of the caller. */
export function withLimits(given: Partial<Limits>, base: Limits = LIMITS): Limits {
  const limits: Record<string, unknown> = { ...base }
  for (const name of Object.keys(LIMITS)) {
    const value = (given as Record<string, unknown>)[name]
    if (value === undefined) continue
    if (name !== 'countHumanTime' && !(typeof value === 'number' && value >= 0)) {
      throw new TypeError(`${name} must be a number of at least 0, not ${String(value)}`)
    }
    limits[name] = value
  }
  return limits as unknown as Limits
}

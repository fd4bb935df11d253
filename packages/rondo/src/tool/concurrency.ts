/** The options `concurrency` and `dedupe` of a tool: how many calls may run at once, and which calls are the same. */

import { misuse } from '../errors.ts'
import { defineOptions, number, type OptionsOf, unchecked } from '../options.ts'
import type { Principal } from '../protocol/call.ts'
import { HOOK_MS, inTime } from './hook.ts'
import type { Compiled } from './schema/standard.ts'

export interface ConcurrencyOptions<A = never> {
  /**
   * Returns a text; calls with the same text share the limit. It receives the arguments as the handler does, and the caller: for a limit
   * per tenant, return the tenant. Default: all calls of the tool share the limit.
   */
  key?: (args: A, caller: { readonly principal: Principal | undefined }) => string | Promise<string>
  /** The number of calls that may run at once, on all instances together. Default: 1. */
  limit?: number
  /**
   * `queue`: a further call waits as a task, in the order in which the calls came; if its client cannot follow a task, it is refused.
   * `refuse`: it ends with `LIMIT_CONCURRENCY`. Default: `queue`.
   */
  otherwise?: 'queue' | 'refuse'
  /**
   * `hold`: a call that waits for an answer, an event or a time still counts. `release`: it makes room for others, and queues again
   * afterwards. Default: `hold`.
   */
  whileWaiting?: 'hold' | 'release'
}

const CONCURRENCY = defineOptions('concurrency', {
  key: unchecked<ConcurrencyOptions['key']>(),
  limit: number(1, { min: 1, max: 1_000, finite: true }),
  otherwise: unchecked<'queue' | 'refuse'>('queue'),
  whileWaiting: unchecked<'hold' | 'release'>('hold'),
} satisfies OptionsOf<ConcurrencyOptions>)

type Caller = { readonly principal: Principal | undefined }

/** A function of the arguments and the caller that returns a key. Rejects with a `TypeError` that names it if it does not. */
export type KeyOf = (args: Readonly<Record<string, unknown>>, caller: Caller) => Promise<string>

export interface Concurrency {
  readonly keyOf: KeyOf
  readonly limit: number
  readonly queues: boolean
  readonly releases: boolean
}

export function concurrencyOf(
  of: string,
  given: ConcurrencyOptions | undefined,
  input: Compiled | undefined,
): Concurrency | undefined {
  if (given === undefined) return undefined
  const { key, limit, otherwise, whileWaiting } = CONCURRENCY.read(given, `${of}: concurrency`)
  if (!Number.isInteger(limit))
    throw misuse(`concurrency.limit of ${of} must be a whole number; got ${limit}.`)
  assertOneOf(of, 'otherwise', otherwise, ['queue', 'refuse'])
  assertOneOf(of, 'whileWaiting', whileWaiting, ['hold', 'release'])
  return {
    keyOf: key === undefined ? async () => '' : keyFunction(`concurrency.key of ${of}`, key, input),
    limit,
    queues: otherwise === 'queue',
    releases: whileWaiting === 'release',
  }
}

function assertOneOf(of: string, name: string, value: unknown, allowed: readonly string[]): void {
  if (allowed.some((one) => one === value)) return
  const words = allowed.map((one) => `'${one}'`).join(' or ')
  throw misuse(`concurrency.${name} of ${of} must be ${words}; got ${JSON.stringify(value)}.`)
}

/** `args` are those that the schema returns, as the handler gets them. */
export function keyFunction(
  what: string,
  fn: (args: never, caller: Caller) => unknown,
  input: Compiled | undefined,
): KeyOf {
  if (typeof fn !== 'function')
    throw misuse(`${what} must be a function of the arguments that returns a text.`)
  return async (args, caller) => {
    const checked = await input?.validate(args)
    const value: unknown = checked?.ok ? checked.value : args
    const key: unknown = await inTime(Promise.resolve(fn(value as never, caller)), HOOK_MS, what)
    if (typeof key === 'string') return key
    throw misuse(
      `${what} must return a text; got ${key === null ? 'null' : `a value of the type ${typeof key}`}.`,
    )
  }
}

/** Parts of answering that are the same in every era: lists, completion, targets that do not exist. */

import type { LogEvent } from '../carry/flow-host.ts'
import { isStoreFault, RondoError } from '../errors.ts'
import type { CompleteCall, FlowCall, Line, Listing } from '../protocol/call.ts'
import type { Reply } from '../protocol/reply.ts'
import type { Catalog } from '../tool/catalog.ts'
import type { Registry } from '../tool/registry.ts'
import type { Every } from './every.ts'

const MAX_COMPLETIONS = 100

export function unknownTarget({ method, target }: FlowCall): Reply {
  if (method === 'resources/read') {
    return { kind: 'error', error: new RondoError('PEER_RESOURCE', undefined, { data: { uri: target } }) }
  }
  const detail = `Unknown ${method === 'tools/call' ? 'tool' : 'prompt'}: ${target}`
  return { kind: 'error', error: new RondoError('PEER_PARAMS', detail) }
}

/** What was thrown, as a reply. What nobody foresaw is logged, and what the operator has to look after. */
export function toErrorReply(error: unknown, log: (event: LogEvent) => void): Reply {
  if (!(error instanceof RondoError)) log({ event: 'warning', message: 'A request failed inside', error })
  else if (isStoreFault(error)) log({ event: 'warning', message: 'The store failed a request', error })
  const known =
    error instanceof RondoError ? error : new RondoError('SERVER_INTERNAL', undefined, { cause: error })
  return { kind: 'error', error: known }
}

export function answerList(
  catalog: Catalog,
  listing: Listing,
  cursor: string | undefined,
  log: (event: LogEvent) => void,
): Reply {
  try {
    return { kind: 'serialized', json: catalog.page(listing, cursor) }
  } catch (error) {
    return toErrorReply(error, log)
  }
}

export async function answerComplete(
  registry: Registry,
  { ref, argument, context }: CompleteCall,
  log: (event: LogEvent) => void,
): Promise<Reply> {
  const completer = registry.completer(ref, argument.name)
  try {
    const found = completer ? await completer(argument.value, context) : []
    const values = found.slice(0, MAX_COMPLETIONS)
    const completion = { values, total: found.length, hasMore: found.length > values.length }
    return { kind: 'complete', result: { completion } }
  } catch (error) {
    return toErrorReply(error, log)
  }
}

export interface SlowWatch {
  readonly slowCallMs: number
  readonly every: Every
  log(event: LogEvent): void
}

/**
 * Says once that a call is taking long, unless it waits for an answer: a handler that never ends would otherwise leave no
 * trace. The call goes on.
 */
export async function watchSlow<T>(
  { slowCallMs, every, log }: SlowWatch,
  { method, target }: FlowCall,
  line: Line & { readonly waiting?: boolean },
  work: Promise<T>,
): Promise<T> {
  if (slowCallMs === 0) return work
  const stop = every(slowCallMs, () => {
    if (line.waiting === true) return
    stop()
    const seconds = Math.round(slowCallMs / 1000)
    log({
      event: 'warning',
      message: `A call of "${target}" (${method}) is still running after ${seconds} s and waits for no answer`,
    })
  })
  try {
    return await work
  } finally {
    stop()
  }
}

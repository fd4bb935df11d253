/**
 * The steps that extensions put around calls. A step runs once for each request and once for each turn of a task, outside of
 * the replay: never again in development mode's second run. Without steps, a call does not pass through here.
 *
 * around 1: `next` runs the call at most once, however often a step calls it, and never after the steps have replied.
 * around 2: A step that throws a `RondoError` or a `ToolError` replies with it. Any other error is a fault of the extension: a
 * request fails, a turn is retried.
 * around 3: An error of the call itself passes through the steps unchanged, because its kind decides whether a task is retried.
 * around 4: A step that does not settle fails the call. The time in which the call itself runs does not count.
 * around 5: A turn ends after its call, even if a step does not wait for it: no effect runs in a task that has ended.
 */

import { misuse, RondoError, ToolError } from '../errors.ts'
import { isRecord } from '../lib/json.ts'
import type { Call, ListenCall, OlderCall, Principal } from '../protocol/call.ts'
import { methodOf } from '../protocol/common/json-rpc.ts'
import type { OlderReply, Reply } from '../protocol/reply.ts'
import { HOOK_MS } from '../tool/hook.ts'
import { errorResult } from '../tool/target.ts'

/** A request or a turn, as the steps around it see it. */
export interface CallFacts {
  /** `request`; or `turn`: a worker runs a task, without a request. */
  readonly kind: 'request' | 'turn'
  /** The JSON-RPC method; in a turn, that of the request that began the task. */
  readonly method: string
  /** The name of the tool or prompt, or the URI of the resource. */
  readonly target?: string
  /** The arguments of a tool or prompt, or the params of a method that an extension defines. */
  readonly args: Readonly<Record<string, unknown>>
  /** The cursor of a list request. */
  readonly cursor?: string
  /** True if the call began in an earlier request. */
  readonly continues: boolean
  /** The caller. Absent if anonymous. */
  readonly principal?: Principal
  /** The name and version that the client reports. */
  readonly client?: { readonly name: string; readonly version: string; readonly title?: string }
  /** The revision of the client. */
  readonly protocolVersion: string
  /** The id of the flow. A request has it only inside its sealed state, so it is known in turns alone. */
  readonly flow?: string
  /** The id of the task that runs, or that the request names. */
  readonly task?: string
  /** The number of the turn, which grows with every turn. */
  readonly turn?: number
}

/** The reply to a call, independent of revisions. */
export type CallReply =
  | OlderReply
  /** Nothing to reply yet: the turn ended before its task did, or the reply takes another way. Only `next` returns it. */
  | { readonly kind: 'pending' }

/** One step, with the name of its extension. */
export interface CallStep {
  readonly name: string
  readonly run: (call: CallFacts, next: () => Promise<CallReply>) => Promise<CallReply>
}

/** An ending that is no reply. */
export const PENDING: CallReply = { kind: 'pending' }

/** Converts the end of a call to the reply that the steps see, and back. */
interface EndingForm<E> {
  readonly toReply: (ending: E) => CallReply
  readonly fromReply: (reply: Reply) => E
}

/** Runs a request inside the steps, if there are any. Rejects if a step fails, or the call itself. */
export function aroundRequest<E>(
  steps: readonly CallStep[],
  call: PlainCall,
  principal: Principal | undefined,
  run: () => Promise<E>,
  form: EndingForm<E>,
): Promise<E> {
  return steps.length === 0 ? run() : runAround(steps, factsOfRequest(call, principal), run, form)
}

/** For calls that end with a reply. */
export const AS_REPLY: {
  readonly toReply: (reply: OlderReply) => CallReply
  readonly fromReply: (reply: Reply) => Reply
} = { toReply: (reply) => reply, fromReply: (reply) => reply }

/**
 * Runs a call inside the steps, the first outermost. Resolves with what `run` resolved with if the steps return its reply, and
 * with a reply of theirs otherwise.
 */
export async function runAround<E>(
  steps: readonly CallStep[],
  facts: CallFacts,
  run: () => Promise<E>,
  { toReply, fromReply }: EndingForm<E>,
  stepMs: number = HOOK_MS,
): Promise<E> {
  let ran: { readonly ending: E; readonly reply: CallReply } | undefined
  let failed: { readonly error: unknown } | undefined
  let running: Promise<CallReply> | undefined
  let over = false
  const begin = async (): Promise<CallReply> => {
    if (over) throw misuse('A step around a call called next after it had replied')
    try {
      const ending = await run()
      ran = { ending, reply: toReply(ending) }
      return ran.reply
    } catch (error) {
      failed = { error }
      throw error
    }
  }
  const call = (): Promise<CallReply> => {
    running = begin()
    return running
  }
  const through = steps.reduceRight<() => Promise<CallReply>>(
    (inner, step) => async () => checked(step.name, await runStep(step, facts, inner, stepMs)),
    call,
  )
  const replied = async (): Promise<CallReply> => {
    try {
      return await through()
    } finally {
      over = true
      if (facts.kind === 'turn') await running?.catch(() => {})
    }
  }
  try {
    const reply = await replied()
    if (reply === ran?.reply) return ran.ending
    if (reply.kind === 'pending') throw misuse('A step around a call returned "pending" without calling next')
    return fromReply(reply as Reply)
  } catch (error) {
    if (failed !== undefined && error === failed.error) throw error
    return fromReply(thrownReply(facts, error))
  }
}

/** Rejects if the step does not settle in time, before it calls `next` or after that has settled. */
function runStep(
  { name, run }: CallStep,
  facts: CallFacts,
  next: () => Promise<CallReply>,
  ms: number,
): Promise<CallReply> {
  return new Promise((resolve, reject) => {
    let timer: ReturnType<typeof setTimeout> | undefined
    let over = false
    const wait = (): void => {
      const late = (): void =>
        reject(misuse(`around of the extension "${name}" did not settle within ${ms} ms`))
      if (!over) timer = setTimeout(late, ms)
    }
    const untimed = async (): Promise<CallReply> => {
      clearTimeout(timer)
      return await next().finally(wait)
    }
    const step = async (): Promise<CallReply> => run(facts, onceOnly(untimed))
    wait()
    step()
      .finally(() => {
        over = true
        clearTimeout(timer)
      })
      .then(resolve, reject)
  })
}

function onceOnly<T>(run: () => Promise<T>): () => Promise<T> {
  let running: Promise<T> | undefined
  return () => {
    if (running === undefined) {
      running = run()
      // A step that does not await it must not cause an unhandled rejection.
      running.catch(() => {})
    }
    return running
  }
}

function thrownReply({ kind, method }: CallFacts, error: unknown): Reply {
  // A store that is away must not end a task.
  if (kind === 'turn' && error instanceof RondoError && error.code.startsWith('STORE_')) throw error
  if (error instanceof RondoError && error.rpc !== 0) return { kind: 'error', error }
  if (!(error instanceof ToolError)) throw error
  if (method === 'tools/call') return { kind: 'complete', result: errorResult(error.message) }
  return { kind: 'error', error: new RondoError('SERVER_HANDLER', error.message) }
}

const KINDS: ReadonlySet<unknown> = new Set<CallReply['kind']>([
  'complete',
  'cacheable',
  'input_required',
  'task_created',
  'task',
  'tasks',
  'task_failed',
  'error',
  'pending',
])

function checked(name: string, reply: unknown): CallReply {
  if (isRecord(reply) && KINDS.has(reply.kind)) {
    const isWhole =
      reply.kind === 'error'
        ? reply.error instanceof RondoError
        : isRecord(reply.result) || !(reply.kind === 'complete' || reply.kind === 'cacheable')
    if (isWhole) return reply as unknown as CallReply
  }
  throw misuse(
    `The extension "${name}" returned no reply from around: return await next(), or { kind: 'complete', result }.`,
  )
}

type PlainCall = Exclude<Call | OlderCall, ListenCall>

/** A request, as the steps see it. */
function factsOfRequest(call: PlainCall, principal: Principal | undefined): CallFacts {
  return {
    kind: 'request',
    method: methodOf(call),
    target: call.kind === 'flow' ? call.target : undefined,
    args: call.kind === 'flow' || call.kind === 'custom' ? call.args : {},
    cursor: call.kind === 'list' || call.kind === 'tasks' ? call.cursor : undefined,
    continues: call.kind === 'flow' && (call.requestState ?? call.inputResponses) !== undefined,
    principal,
    client: call.clientInfo,
    protocolVersion: call.protocolVersion,
    task: call.kind === 'task' ? call.taskId : undefined,
  }
}

/** What a server tells its observer about requests that run no handler. Rounds and turns are observed in `carry/round.ts`. */

import type { FlowHost } from '../carry/host.ts'
import { RondoError } from '../errors.ts'
import { isThenable } from '../lib/json.ts'
import type { Call, ListenCall, OlderCall } from '../protocol/call.ts'
import type { Observed, ObservedOperation } from '../protocol/observer.ts'
import type { OlderReply } from '../protocol/reply.ts'

type PlainCall = Exclude<Call | OlderCall, ListenCall>

/** Answers a request that runs no handler, observed. `answer` gets the name of its span. */
export function observeRequest<R extends OlderReply>(
  { observer, platform }: Pick<FlowHost, 'observer' | 'platform'>,
  call: PlainCall,
  answer: (span?: string) => R | Promise<R>,
): R | Promise<R> {
  const observed = observer?.begin?.(toOperation(call, platform.now()))
  if (!observed) return answer()
  const done = (reply: R): R => {
    observed.end(endOf(reply))
    return reply
  }
  const failed = (error: unknown): never => {
    observed.end(errorEnd(error))
    throw error
  }
  try {
    const reply = observed.run(() => answer(observed.span))
    return isThenable(reply) ? Promise.resolve(reply).then(done, failed) : done(reply)
  } catch (error) {
    return failed(error)
  }
}

function toOperation(call: PlainCall, began: number): ObservedOperation {
  const { id: requestId, protocolVersion, trace } = call
  const task = call.kind === 'task' ? { task: call.taskId } : {}
  return { kind: 'request', method: methodOf(call), requestId, protocolVersion, trace, began, ...task }
}

function methodOf(call: PlainCall): string {
  switch (call.kind) {
    case 'flow':
      return call.method
    case 'list':
      return call.listing === 'templates' ? 'resources/templates/list' : `${call.listing}/list`
    case 'discover':
      return 'server/discover'
    case 'complete':
      return 'completion/complete'
    case 'task':
      return `tasks/${call.action}`
    case 'tasks':
      return 'tasks/list'
  }
}

function endOf(reply: OlderReply): Parameters<Observed['end']>[0] {
  if (reply.kind === 'error') return errorEnd(reply.error)
  return reply.kind === 'task_failed' ? { code: 'task_failed', rpc: reply.error.code } : {}
}

function errorEnd(error: unknown): Parameters<Observed['end']>[0] {
  return error instanceof RondoError ? { code: error.code, rpc: error.rpc } : { code: 'SERVER_INTERNAL' }
}

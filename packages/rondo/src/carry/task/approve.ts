/**
 * Approvals in a task: what a request is bound to, what the task says while it waits, and what its result says afterwards.
 *
 * The result of a tool that asked for an approval says whether it was executed, in words and in `_meta`, under the name and with
 * the values of the proposed extension (SEP-2848).
 */

import { RondoError } from '../../errors.ts'
import type { Approvals } from '../../replay/input.ts'
import type { Target } from '../../tool/target.ts'
import type { FlowHost } from '../host.ts'
import type { TaskPlan } from './journal.ts'

const META_KEY = 'io.modelcontextprotocol/tool-approval'

const WORDS = {
  'approved-executed': 'Approved, and executed.',
  'execution-error': 'Approved, but the execution failed.',
  'denied-not-executed': 'Not approved: what needed the approval was not executed.',
} as const

/** The approvals of one turn. */
export interface TaskApprovals extends Approvals {
  /** What the task waits for at this hook, if that is an approval. */
  waitsAt(hook: string): string | undefined
  /** The result, with what became of the approval if the handler has learned that. */
  mark(result: Readonly<Record<string, unknown>>): Readonly<Record<string, unknown>>
}

interface Asking {
  readonly host: FlowHost
  readonly plan: TaskPlan
  readonly target: Target
  readonly task: string
}

export function approvalsOf({ host, plan, target, task }: Asking): TaskApprovals {
  const { flow, principal: caller, call } = plan
  const { args } = call
  const waiting = new Map<string, string>()
  const learned = new Map<string, 'approved' | 'denied'>()
  const approver = () => {
    if (host.approver) return host.approver
    throw new RondoError('SERVER_NO_APPROVER')
  }
  return {
    bound: [
      target.name,
      args ?? null,
      caller ? [caller.issuer ?? '', caller.subject, caller.client ?? ''] : null,
    ],
    open: (id, asked) =>
      orLater(host, () =>
        approver().open({ ...asked, id, flow, task, tool: target.name, args, ...(caller && { caller }) }),
      ),
    use: (id, attempt, expired) => orLater(host, () => approver().use(id, attempt, expired)),
    available: () => host.approver !== undefined,
    waits: (hook, what) => void waiting.set(hook, what),
    learned: (key, verdict) => void learned.set(key, verdict),
    waitsAt: (hook) => waiting.get(hook),
    mark(result) {
      if (learned.size === 0) return result
      const isError = result.isError === true
      const verdicts = [...learned]
      const isDenied = verdicts.every(([, verdict]) => verdict === 'denied')
      const isMixed = !isDenied && verdicts.some(([, verdict]) => verdict === 'denied')
      const outcome = isDenied ? 'denied-not-executed' : isError ? 'execution-error' : 'approved-executed'
      // The message of an uncaught denial says so already.
      const isSaid = isDenied && isError
      const words = isMixed
        ? `${verdicts.map(([key, verdict]) => `The approval "${key}" was ${verdict === 'denied' ? 'not ' : ''}given.`).join(' ')} What needed one that was not given was not executed.`
        : WORDS[outcome]
      const content = Array.isArray(result.content) ? result.content : undefined
      const approval = { outcome, ...(learned.size > 1 && { approvals: Object.fromEntries(learned) }) }
      return {
        ...result,
        ...(content && !isSaid && { content: [...content, { type: 'text', text: words }] }),
        _meta: { ...(result._meta as object | undefined), [META_KEY]: approval },
      }
    },
  }
}

/** A failure says nothing about the decision: it is never recorded as one, and the turn is retried. */
async function orLater<T>(host: FlowHost, ask: () => Promise<T>): Promise<T> {
  try {
    return await ask()
  } catch (error) {
    if (error instanceof RondoError) throw error
    host.log({ event: 'warning', message: 'Approvals cannot be reached; the turn is retried', error })
    throw new RondoError('STORE_UNAVAILABLE', 'approvals cannot be reached', { cause: error })
  }
}

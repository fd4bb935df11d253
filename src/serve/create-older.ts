/**
 * What is served to clients of earlier eras: the same tools through the same registry. Up to 2025-11-25 questions are
 * pushed; in the draft they come in rounds. Who cannot be asked reads why in a result.
 */

import { concludeUnaskable } from '../carry/conclude.ts'
import type { FlowHost, TaskHost } from '../carry/flow-host.ts'
import type { TurnsOptions } from '../carry/keep-turn.ts'
import { type AskingLine, runPushed } from '../carry/push.ts'
import { answerTask } from '../carry/task-call.ts'
import { type AskNow, awaitTask, respondToTask } from '../carry/task-result.ts'
import { runRound } from '../carry/token.ts'
import { RondoError } from '../errors.ts'
import type { FlowCall, Principal, TaskCall } from '../protocol/call.ts'
import { DRAFT_VERSION } from '../protocol/draft-2026-v1/version.ts'
import type { Reply } from '../protocol/reply.ts'
import { VERSIONS } from '../protocol/rev-2025-11-25/version.ts'
import { createCatalog } from '../tool/catalog.ts'
import type { Registry } from '../tool/registry.ts'
import { answerComplete, answerList, toErrorReply, unknownTarget } from './answer-call.ts'
import type { ChangeBus } from './change-bus.ts'
import { createTurnsService } from './create-turns.ts'
import type { Era } from './options.ts'
import type { Service } from './service.ts'
import type { Older } from './session/older.ts'
import { resolveSessions, type SessionOptions } from './session/options.ts'
import { createSessionTable } from './session/session-table.ts'

interface OlderOptions {
  readonly host: FlowHost
  readonly registry: Registry
  readonly serverInfo: Service['serverInfo']
  readonly instructions?: string
  readonly pageSize: number
  readonly changes: ChangeBus
  readonly eras: readonly Era[]
  readonly sessions: SessionOptions
  /** False closes the drafts in which questions come in turns. */
  readonly turns?: TurnsOptions | false
}

const TASK_SUPPORT = { never: 'forbidden', auto: 'optional', always: 'required' } as const

/** Nothing where all earlier eras are closed. */
export function createOlder(options: OlderOptions): Older | undefined {
  const { host, registry, pageSize, changes, eras } = options
  const versions = [
    ...(eras.includes('2025-11-25') ? VERSIONS : []),
    ...(eras.includes(DRAFT_VERSION) ? [DRAFT_VERSION] : []),
  ]
  if (versions.length === 0) return undefined
  const sessions = createSessionTable(resolveSessions(options.sessions, host.platform), changes)
  const catalog = createCatalog(olderRows(registry), { pageSize, stamp: {} })
  return {
    versions,
    sessions,
    turns: options.turns === false ? undefined : createTurnsService(host, registry, options.turns),
    greet: (protocolVersion, session) => greet(options, protocolVersion, session),
    async answer(call, principal, line, unaskable) {
      if (call.kind === 'list') return answerList(catalog, call.listing, call.cursor)
      if (call.kind === 'complete') return answerComplete(registry, call)
      if (call.kind === 'task') return answerTaskCall(host, call, principal, line)
      return answerFlow(host, registry, call, principal, line, unaskable)
    },
    changed: (listing) => catalog.forget(listing),
  }
}

async function answerFlow(
  host: FlowHost,
  registry: Registry,
  call: FlowCall,
  principal: Principal | undefined,
  line: AskingLine,
  unaskable: string | undefined,
): Promise<Reply> {
  const target = registry.find(call.method, call.target)
  if (!target) return unknownTarget(call)
  const run = call.protocolVersion === DRAFT_VERSION ? runRound : runPushed
  try {
    const reply = await run(host, target, call, principal, line)
    const cannotAsk = reply.kind === 'error' && reply.error.code === 'PEER_CAPABILITY'
    return cannotAsk ? concludeUnaskable(target, reply.error, unaskable) : reply
  } catch (error) {
    return toErrorReply(error, host.log)
  }
}

/** In the draft questions are the answer of `tasks/result`; at 2025-11-25 they are pushed while it waits. */
async function answerTaskCall(
  host: FlowHost,
  call: TaskCall,
  principal: Principal | undefined,
  line: AskingLine,
): Promise<Reply> {
  const { tasks } = host
  if (!tasks) return { kind: 'error', error: new RondoError('PEER_METHOD') }
  try {
    if (call.action === 'respond') return await respondToTask(host, tasks, call, principal)
    if (call.action === 'result') {
      const pushes = call.protocolVersion !== DRAFT_VERSION
      return await awaitTask(host, tasks, call, principal, line, pushes ? askOn(line) : undefined)
    }
    if (call.action === 'cancel') return await cancelTask(host, tasks, call, principal)
    return await answerTask(host, tasks, call, principal)
  } catch (error) {
    return toErrorReply(error, host.log)
  }
}

const ANSWER_TIMEOUT_MS = 24 * 60 * 60_000

function askOn(line: AskingLine): AskNow {
  return async (questions) => {
    const asked = await line.ask(questions, { timeoutMs: ANSWER_TIMEOUT_MS, alive: () => {} })
    if (asked.kind === 'answers') return asked.answers
    return asked.kind === 'refused' ? asked.error : new RondoError('PEER_REQUEST', 'The call was cancelled')
  }
}

/** These dialects answer a cancellation with the task. */
async function cancelTask(
  host: FlowHost,
  tasks: TaskHost,
  call: TaskCall,
  principal: Principal | undefined,
): Promise<Reply> {
  const reply = await answerTask(host, tasks, call, principal)
  return reply.kind === 'error' ? reply : answerTask(host, tasks, { ...call, action: 'get' }, principal)
}

/** Rows as they were: a tool's output is an object, or it is not described. */
function olderRows(registry: Registry): Pick<Registry, 'rows'> {
  return {
    rows: (listing) =>
      registry.rows(listing).map((row) => {
        const output = row.outputSchema as { readonly type?: unknown } | undefined
        const plain =
          output !== undefined && output.type !== 'object' ? { ...row, outputSchema: undefined } : row
        const mode =
          listing === 'tools' ? registry.find('tools/call', String(row.name))?.task.mode : undefined
        return mode === undefined ? plain : { ...plain, execution: { taskSupport: TASK_SUPPORT[mode] } }
      }),
  }
}

function greet(
  { host, registry, serverInfo, instructions }: OlderOptions,
  protocolVersion: string,
  session: boolean,
): Readonly<Record<string, unknown>> {
  const changes = session ? { listChanged: true } : {}
  const rows = (listing: 'tools' | 'prompts' | 'resources' | 'templates'): number =>
    registry.rows(listing).length
  const reads = rows('resources') + rows('templates') > 0
  return {
    protocolVersion,
    capabilities: {
      tools: rows('tools') > 0 ? changes : undefined,
      prompts: rows('prompts') > 0 ? changes : undefined,
      resources: reads ? { ...changes, ...(session ? { subscribe: true } : {}) } : undefined,
      completions: rows('prompts') + rows('templates') > 0 ? {} : undefined,
      logging: {},
      tasks: host.tasks && { cancel: {}, requests: { tools: { call: {} } } },
    },
    serverInfo,
    instructions,
  }
}

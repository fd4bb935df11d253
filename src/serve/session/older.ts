/**
 * What is served to clients of earlier eras: the same tools through the same registry. Up to 2025-11-25 questions are
 * pushed; in the draft they come in rounds. Who cannot be asked reads why in a result.
 */

import type { FlowHost } from '../../carry/host.ts'
import { type AskingLine, type Hand, runPushed } from '../../carry/push.ts'
import { concludeUnaskable } from '../../carry/round.ts'
import { runRound } from '../../carry/token.ts'
import { RondoError } from '../../errors.ts'
import type { FlowCall, Listing, OlderCall, Principal, TaskCall } from '../../protocol/call.ts'
import type { Codecs, SessionDialect } from '../../protocol/codec.ts'
import type { OlderReply, Reply } from '../../protocol/reply.ts'
import type { InputRequests } from '../../protocol/wire.ts'
import { createCatalog, type Registry } from '../../tool/registry.ts'
import type { Target } from '../../tool/target.ts'
import type { ChangeBus } from '../http/subscription.ts'
import {
  answerComplete,
  answerList,
  type Service,
  type SlowWatch,
  toErrorReply,
  unknownTarget,
  watchSlow,
} from '../service.ts'
import { resolveSessions, type SessionOptions } from './options.ts'
import type { Posted, PostOptions } from './post.ts'
import type { Session } from './session.ts'
import { createSessionTable, type SessionTable } from './table.ts'
import { answerTaskCall } from './task-call.ts'

interface OlderOptions {
  readonly host: FlowHost
  readonly registry: Registry
  readonly serverInfo: Service['serverInfo']
  readonly instructions?: string
  readonly pageSize: number
  readonly changes: ChangeBus
  readonly slow: SlowWatch
  readonly codecs: Codecs
  readonly sessions: SessionOptions
  /** Attaches a draft. */
  readonly attach?: AttachDraft
}

/** Each is opened to be shown, so a page is short. */
const TASKS_PER_PAGE = 50

const TASK_SUPPORT = { never: 'forbidden', late: 'forbidden', auto: 'optional', always: 'required' } as const

/** Nothing where all earlier eras are closed. */
export function createOlder(options: OlderOptions): Older | undefined {
  const { host, registry, pageSize, changes, codecs } = options
  const versions = codecs.sessionVersions
  if (versions.length === 0) return undefined
  const onError = (error: unknown): void =>
    host.log({ event: 'warning', message: 'A session could not be swept', error })
  const sessions = createSessionTable(
    resolveSessions(options.sessions, { ...host.platform, onError }),
    changes,
  )
  const catalog = createCatalog(olderRows(registry), { pageSize, stamp: {} })
  const draft = options.attach?.(host, registry, (target, call) =>
    taskMismatch(host, codecs.session(call.protocolVersion), target, call),
  )
  return {
    codecs,
    versions,
    sessions,
    draft,
    greet: (protocolVersion, greeting) => greet(options, protocolVersion, greeting),
    async answer(call, principal, line, unaskable) {
      if (call.kind === 'list') return answerList(catalog, call.listing, call.cursor, host.log)
      if (call.kind === 'complete') return answerComplete(registry, call, host.log)
      if (call.kind === 'task' || call.kind === 'tasks') {
        const shown = Math.min(pageSize, TASKS_PER_PAGE)
        const hand = call.kind === 'task' ? draft?.handTask(call) : undefined
        return answerTaskCall(host, call, principal, line, {
          dialect: codecs.session(call.protocolVersion),
          pageSize: shown,
          unaskable,
          hand,
        })
      }
      const means = { dialect: codecs.session(call.protocolVersion), unaskable, hand: draft?.hand(call) }
      const flow = answerFlow(host, registry, call, principal, line, means)
      return watchSlow(options.slow, call, line, flow)
    },
    changed: (listing) => catalog.forget(listing),
  }
}

/** How a client can be asked. */
interface Means {
  readonly dialect: SessionDialect
  readonly unaskable?: string
  readonly hand?: Hand
}

async function answerFlow(
  host: FlowHost,
  registry: Registry,
  call: FlowCall,
  principal: Principal | undefined,
  line: AskingLine,
  { dialect, unaskable, hand }: Means,
): Promise<Reply> {
  const target = registry.find(call.method, call.target)
  if (!target) return unknownTarget(call)
  const mismatch = taskMismatch(host, dialect, target, call)
  if (mismatch !== undefined) return { kind: 'error', error: new RondoError('PEER_METHOD', mismatch) }
  try {
    const reply = dialect.rounds
      ? await runRound({ host, target, call, principal, line })
      : await runPushed({ host, target, call, principal, line }, { hand })
    const cannotAsk = reply.kind === 'error' && reply.error.code === 'PEER_CAPABILITY'
    return cannotAsk ? concludeUnaskable(target, reply.error, unaskable) : reply
  } catch (error) {
    return toErrorReply(error, host.log)
  }
}

/**
 * What tools say of themselves in `execution.taskSupport` binds since there are tasks. In the draft a tool that begins in
 * rounds may become a task later (D9), so there the wish alone is no mistake.
 */
function taskMismatch(
  { tasks }: FlowHost,
  dialect: SessionDialect,
  { name, task }: Target,
  call: FlowCall,
): string | undefined {
  if (!tasks || call.method !== 'tools/call' || !dialect.tasks) return undefined
  if (task.mode === 'always' && !call.task) return `"${name}" runs only as a task: call it with \`task\``
  if (TASK_SUPPORT[task.mode] !== 'forbidden' || !call.task || dialect.rounds) return undefined
  return `"${name}" does not run as a task: call it without \`task\``
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
  { host, registry, serverInfo, instructions, codecs }: OlderOptions,
  protocolVersion: string,
  { session, known, tasks }: Greeting,
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
      tasks:
        host.tasks && tasks && codecs.session(protocolVersion).tasks
          ? { list: known ? {} : undefined, cancel: {}, requests: { tools: { call: {} } } }
          : undefined,
    },
    serverInfo,
    instructions,
  }
}

/*
 * The seam between the entrances and what serves clients of earlier eras; the counterpart of `Service`.
 */

/** What a draft adds to sessions over HTTP. Its sessions are sealed into their ids, so every instance knows them. */
export interface SessionDraft {
  /** The names by which clients declare it among their experimental capabilities. */
  readonly experimental: readonly string[]
  /** True if the message begins a session of the draft, or belongs to one. */
  takes(options: PostOptions, posted: Posted): boolean
  /** Serves such a message. Rejects with what is wrong with the request as a whole. */
  post(options: PostOptions, posted: Posted): Promise<void>
  /** This instance's part of a session; undefined for a session that is not this principal's. */
  open(
    options: PostOptions,
    request: Pick<Posted, 'headers' | 'principal' | 'outlet'>,
  ): Promise<Session | undefined>
  /** What a client waits for that resumes a stream of another instance after this event; see `Session.awaitAnswer`. */
  awaits(session: Session, eventId: string): string | undefined
  /** Lets any instance take the responses, where the client of the call brings back what it needs. */
  hand(call: FlowCall): Hand | undefined
  handTask(
    call: TaskCall,
  ):
    | ((call: TaskCall, principal: Principal | undefined, questions: InputRequests) => ReturnType<Hand>)
    | undefined
}

/** `mismatch` says why a call cannot be made as its client wants it, with a task or without. */
export type AttachDraft = (
  host: FlowHost,
  registry: Registry,
  mismatch: (target: Target, call: FlowCall) => string | undefined,
) => SessionDraft

/** What `initialize` offers depends on it. */
export interface Greeting {
  /** Without a session nothing is told that no request asked for. */
  readonly session: boolean
  /** The caller can be told from all others: it is authenticated, or the one client of this process. */
  readonly known: boolean
  /** Its tasks are served. */
  readonly tasks: boolean
}

export interface Older {
  readonly codecs: Codecs
  /** What `initialize` may agree on, the preferred one first. */
  readonly versions: readonly string[]
  readonly sessions: SessionTable
  /** The result of `initialize`. */
  greet(protocolVersion: string, greeting: Greeting): Readonly<Record<string, unknown>>
  /** Never rejects. `unaskable` says why nobody can be asked, where the client's capabilities are not the reason. */
  answer(
    call: OlderCall,
    principal: Principal | undefined,
    line: AskingLine,
    unaskable?: string,
  ): Promise<OlderReply>
  readonly draft?: SessionDraft
  /** Something was declared or removed. */
  changed(listing: Listing): void
}

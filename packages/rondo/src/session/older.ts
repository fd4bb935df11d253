/**
 * The service for clients of earlier eras: the same tools through the same registry. Up to 2025-11-25 questions are pushed
 * on the stream of the call; in the draft they come in rounds. If a client cannot be asked, its call ends with an `isError`
 * result that says why. The handshake reads `initialize` and decides what the session keeps of it.
 */

import type { FlowHost } from '../carry/host.ts'
import { type AskingLine, type MakePortable, type PushOptions, runPushed } from '../carry/push.ts'
import { observeRequest, unaskableReply } from '../carry/report.ts'
import { observeTask } from '../carry/task/call.ts'
import { runRound } from '../carry/token.ts'
import { RondoError } from '../errors.ts'
import { createEvery } from '../lib/clock.ts'
import type {
  FlowCall,
  InitializeCall,
  Listing,
  OlderCall,
  PeerFacts,
  Principal,
  TaskCall,
} from '../protocol/call.ts'
import type { Codecs, SessionDialect } from '../protocol/codec.ts'
import { type RequestHeaders, versionHeader } from '../protocol/common/headers.ts'
import { claimedVersion, isInitialize, rememberedCapabilities } from '../protocol/common/request.ts'
import type { OlderReply, Reply, TaskState } from '../protocol/reply.ts'
import type { InputRequests } from '../protocol/wire.ts'
import { digest } from '../seal/envelope.ts'
import { toErrorReply, unknownTarget } from '../serve/failure.ts'
import type { Fleet } from '../serve/fleet.ts'
import type { ChangeBus } from '../serve/http/subscription.ts'
import { complete, createCatalog } from '../serve/listing.ts'
import type { Service } from '../serve/service.ts'
import type { Registry } from '../tool/registry.ts'
import type { Target } from '../tool/target.ts'
import type { Posted, PostOptions } from './exchange.ts'
import { resolveSessions, type SessionOptions } from './options.ts'
import type { Session } from './session.ts'
import { createSharedSessions, type SharedSessions } from './shared.ts'
import { createSessionTable, type SessionTable } from './table.ts'
import { answerTaskCall } from './task-call.ts'

/** What a draft adds to sessions over HTTP. Its session ids contain the sealed session, so every instance knows it. */
export interface SessionDraft {
  /** Names of the experimental capabilities with which clients declare the draft. */
  readonly experimental: readonly string[]
  /** True if the message begins a session of the draft, or belongs to one. */
  takes(options: PostOptions, posted: Posted): boolean
  /** Serves such a message. Rejects if the request as a whole is wrong. */
  post(options: PostOptions, posted: Posted): Promise<void>
  /** Opens this instance's part of a session; undefined if the session belongs to another principal. */
  open(
    options: PostOptions,
    request: Pick<Posted, 'headers' | 'principal' | 'outlet'>,
  ): Promise<Session | undefined>
  /** The turn that a client waits for when it resumes another instance's stream after this event; see `SessionStreams.awaitAnswer`. */
  awaits(session: Session, eventId: string): string | undefined
  /** Seals the call into its questions, so that any instance can accept the responses; undefined if the client does not echo states. */
  hand(call: FlowCall): MakePortable | undefined
  /** The same for the questions of a task. */
  handTask(
    call: TaskCall,
  ):
    | ((
        call: TaskCall,
        principal: Principal | undefined,
        questions: InputRequests,
      ) => ReturnType<MakePortable>)
    | undefined
}

/** `mismatch` says why a call cannot run the way its client asked for, with a task or without. */
export type AttachDraft = (
  host: FlowHost,
  registry: Registry,
  mismatch: (target: Target, call: FlowCall) => string | undefined,
) => SessionDraft

/** What serves older clients, as the entrances see it; the counterpart of `Service`. */
export interface Older {
  readonly codecs: Codecs
  /** The versions that `initialize` may agree on, the preferred one first. */
  readonly versions: readonly string[]
  readonly sessions: SessionTable
  /** Sessions over HTTP. */
  readonly shared: SharedSessions
  /** The result of `initialize`. */
  greet(protocolVersion: string, greeting: Greeting): Readonly<Record<string, unknown>>
  /** Never rejects. `unaskable` says why nobody can be asked, unless the reason is missing capabilities. */
  answer(
    call: OlderCall,
    principal: Principal | undefined,
    line: AskingLine,
    unaskable?: string,
  ): Promise<OlderReply>
  /** Continues a call that another instance began. Never rejects. */
  continue(
    call: FlowCall,
    principal: Principal | undefined,
    line: AskingLine,
    from: PushOptions['from'],
  ): Promise<OlderReply>
  readonly draft?: SessionDraft
  /** Notifies the client of a session of changes of its task, from `task` on. */
  notifyOfTask(session: Session, task: TaskState, call: OlderCall, principal: Principal | undefined): void
  /** Called when something was declared or removed. */
  changed(listing: Listing): void
  /** Counts a request that failed because of the store, and logs it if the log does not say yet that the store fails. */
  storeFailed(error: RondoError): void
}

interface OlderOptions extends GreetOptions {
  readonly pageSize: number
  readonly changes: ChangeBus
  readonly sessions: SessionOptions
  readonly attach?: AttachDraft
  readonly fleet?: Fleet
}

/** Pages of tasks are short, because every task on them has to be unsealed. */
const TASKS_PER_PAGE = 50

const TASK_SUPPORT = { never: 'forbidden', late: 'forbidden', auto: 'optional', always: 'required' } as const

/** Returns undefined if the server accepts no earlier era. */
export function createOlder(options: OlderOptions): Older | undefined {
  const { host, registry, pageSize, changes, codecs, fleet } = options
  const versions = codecs.sessionVersions
  if (versions.length === 0) return undefined
  const every = createEvery(() => {})
  const onError = (error: unknown): void =>
    host.log({ event: 'warning', message: 'Sweeping a session failed', error })
  const sessions = createSessionTable(
    resolveSessions(options.sessions, {
      ...host.platform,
      onError,
      elsewhere: fleet && ((session, json) => fleet.mention({ kind: 'note', session, json })),
    }),
    changes,
    (phase, { id, facts: { protocolVersion } }) =>
      host.log({ event: 'session', phase, session: digest(id).slice(0, 16), protocolVersion }),
  )
  const catalog = createCatalog(olderRows(host, registry), { pageSize })
  const draft = options.attach?.(host, registry, (target, call) =>
    taskMismatch(host, codecs.session(call.protocolVersion), target, call),
  )
  return {
    codecs,
    versions,
    sessions,
    shared: createSharedSessions(host, sessions, fleet, every),
    draft,
    greet: (protocolVersion, greeting) => greet(options, protocolVersion, greeting),
    async answer(call, principal, line, unaskable) {
      if (call.kind === 'list') {
        return observeRequest(host, call, () => catalog.list(call.listing, call.cursor))
      }
      if (call.kind === 'complete') {
        const answer = (): Promise<Reply> =>
          complete(registry, call).catch((error: unknown) => toErrorReply(error, host))
        return observeRequest(host, call, answer)
      }
      if (call.kind === 'task' || call.kind === 'tasks') {
        const shown = Math.min(pageSize, TASKS_PER_PAGE)
        const hand = call.kind === 'task' ? draft?.handTask(call) : undefined
        const dialect = codecs.session(call.protocolVersion)
        const terms = { dialect, pageSize: shown, unaskable, hand }
        return observeRequest(host, call, (observed) =>
          answerTaskCall(host, call, principal, line, { ...terms, observed }),
        )
      }
      const means = { dialect: codecs.session(call.protocolVersion), unaskable, hand: draft?.hand(call) }
      return answerFlow(host, registry, call, principal, line, means)
    },
    continue: (call, principal, line, from) =>
      answerFlow(host, registry, call, principal, line, {
        dialect: codecs.session(call.protocolVersion),
        from,
      }),
    notifyOfTask(session, task, { capabilities, protocolVersion }, principal) {
      const { tasks } = host
      if (!tasks || hasEnded(task)) return
      const { encodeTaskStatus } = codecs.session(protocolVersion)
      session.followTask(task.taskId, (report) =>
        observeTask(host, tasks, task, principal, capabilities, (now) =>
          report(now && encodeTaskStatus(now), now === undefined || hasEnded(now)),
        ),
      )
    },
    changed: (listing) => catalog.invalidate(listing),
    storeFailed: (error) => void toErrorReply(error, host),
  }
}

function hasEnded({ status }: TaskState): boolean {
  return status !== 'working' && status !== 'input_required'
}

/** How the client of a call can be asked. */
interface Means {
  readonly dialect: SessionDialect
  /** Why it cannot be asked, if so. */
  readonly unaskable?: string
  readonly hand?: MakePortable
  readonly from?: PushOptions['from']
}

async function answerFlow(
  host: FlowHost,
  registry: Registry,
  call: FlowCall,
  principal: Principal | undefined,
  line: AskingLine,
  { dialect, unaskable, hand, from }: Means,
): Promise<Reply> {
  const target = registry.find(call.method, call.target)
  if (!target) return unknownTarget(call)
  const mismatch = taskMismatch(host, dialect, target, call)
  if (mismatch !== undefined) return { kind: 'error', error: new RondoError('PEER_METHOD', mismatch) }
  try {
    const reply = dialect.rounds
      ? await runRound({ host, target, call, principal, line })
      : await runPushed({ host, target, call, principal, line }, { hand, from })
    const cannotAsk = reply.kind === 'error' && reply.error.code === 'PEER_CAPABILITY'
    return cannotAsk ? unaskableReply(target, reply.error, unaskable) : reply
  } catch (error) {
    return toErrorReply(error, host)
  }
}

/**
 * Where the version has tasks, `execution.taskSupport` of a tool is binding. In the draft a tool that begins in rounds may
 * become a task later (D9), so there `task` is not an error.
 */
function taskMismatch(
  { tasks }: FlowHost,
  dialect: SessionDialect,
  { name, task }: Target,
  call: FlowCall,
): string | undefined {
  if (!tasks || call.method !== 'tools/call' || !dialect.tasks) return undefined
  if (task.mode === 'always' && !call.task && !tasks.tools)
    return `"${name}" runs only as a task: send the call with \`task\``
  if (TASK_SUPPORT[task.mode] !== 'forbidden' || !call.task || dialect.rounds) return undefined
  return `"${name}" does not run as a task: send the call without \`task\``
}

/** Rows in the form of earlier eras, which describe the output of a tool only if it is an object. */
function olderRows({ tasks }: FlowHost, registry: Registry): Pick<Registry, 'rows'> {
  // With the tools, a call without `task` becomes a task as well.
  const support = tasks?.tools ? { ...TASK_SUPPORT, always: 'optional' } : TASK_SUPPORT
  return {
    rows: (listing) =>
      registry.rows(listing).map((row) => {
        const output = row.outputSchema as { readonly type?: unknown } | undefined
        const plain =
          output !== undefined && output.type !== 'object' ? { ...row, outputSchema: undefined } : row
        const mode =
          listing === 'tools' ? registry.find('tools/call', String(row.name))?.task.mode : undefined
        return mode === undefined ? plain : { ...plain, execution: { taskSupport: support[mode] } }
      }),
  }
}

/** What the server can do for the client that it greets. */
export interface Greeting {
  /** False if there is no session: then the server sends nothing that no request asked for. */
  readonly session: boolean
  /** True if the caller can be told apart from all others: it is authenticated, or the only client of this process. */
  readonly known: boolean
  /** True if tasks are served to it. */
  readonly tasks: boolean
}

export interface GreetOptions {
  readonly host: FlowHost
  readonly registry: Registry
  readonly serverInfo: Service['serverInfo']
  readonly instructions?: string
  readonly codecs: Codecs
}

/** Declared capabilities up to this many characters are kept as they are; of longer ones, only what decides what can be asked. */
const MAX_DECLARED = 2_048
const MAX_NAME = 128

/** `initialize` has the same form in every version that it can agree on. */
export function readInitialize({ codecs }: Older, message: unknown): InitializeCall {
  const decoded = codecs.session('').decode(message, { protocolVersion: '', capabilities: {} })
  if (decoded.kind === 'refused') throw decoded.error
  if (decoded.kind === 'session' && decoded.call.kind === 'initialize') return decoded.call
  throw new RondoError('PEER_REQUEST', 'initialize must be a request with an id')
}

/** What a session keeps of `initialize`: no more than it needs, however much was sent. */
export function factsOf(
  { draft }: Older,
  { capabilities, clientInfo }: InitializeCall,
  protocolVersion: string,
): PeerFacts {
  const small = JSON.stringify(capabilities).length <= MAX_DECLARED
  const kept = small ? capabilities : rememberedCapabilities(capabilities, draft?.experimental)
  const info = Object.entries(clientInfo ?? {}).map(([name, text]) => [name, text.slice(0, MAX_NAME)])
  // Copied, because a slice of a string keeps the whole string in memory.
  const copy = JSON.parse(JSON.stringify({ kept, info: Object.fromEntries(info) }))
  return { protocolVersion, capabilities: copy.kept, clientInfo: clientInfo && copy.info }
}

/** The result of `initialize`. */
function greet(
  { host, registry, serverInfo, instructions, codecs }: GreetOptions,
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

/** Whether a message is of an earlier era. */
export type IsOlder = (message: unknown, headers: RequestHeaders | undefined) => boolean

interface EraOptions {
  /** Versions of the new era. */
  readonly modern: readonly string[]
  /** Versions of the earlier eras. */
  readonly older: readonly string[]
  /** Those of `older` that a request may claim for itself. */
  readonly drafts: readonly string[]
  /** A message that names no version and no session is of an earlier era. */
  readonly unnamed: boolean
}

/**
 * Recognizes messages of earlier eras. The body decides: a request that claims a version in its `_meta` is of 2026-07-28
 * or later, unless it claims a draft. Without a claim it is of an earlier era if it begins a session, belongs to one, or
 * names such a version in its header. A header of the new era without a claim in the body is refused by that era.
 */
export function createOlderTest({ modern, older, drafts, unnamed }: EraOptions): IsOlder {
  return (message, headers) => {
    const header = headers && versionHeader(headers)
    if (header !== undefined && modern.includes(header)) return false
    const claim = claimedVersion(message)
    if (claim !== undefined) return drafts.some((version) => version === claim)
    if (header !== undefined) return older.includes(header)
    return unnamed || headers?.['mcp-session-id'] !== undefined || isInitialize(message)
  }
}

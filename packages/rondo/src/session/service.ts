/**
 * The service for clients of earlier eras: the same tools through the same registry. Up to 2025-11-25 questions are pushed
 * on the stream of the call; in the draft they come in rounds. If a client cannot be asked, its call ends with an `isError`
 * result that says why.
 */

import { AS_REPLY, aroundRequest } from '../carry/around.ts'
import type { FlowHost } from '../carry/host.ts'
import { type AskingLine, type MakePortable, type PushOptions, runPushed } from '../carry/push.ts'
import { observeRequest, unaskableReply } from '../carry/report.ts'
import { observeTask } from '../carry/task/call.ts'
import { runRound } from '../carry/token.ts'
import { RondoError } from '../errors.ts'
import { createEvery } from '../lib/clock.ts'
import type { FlowCall, Listing, OlderCall, Principal } from '../protocol/call.ts'
import type { SessionDialect } from '../protocol/codec.ts'
import type { OlderReply, Reply, TaskState } from '../protocol/reply.ts'
import { digest } from '../seal/envelope.ts'
import { toErrorReply, unknownTarget } from '../serve/failure.ts'
import type { Fleet } from '../serve/fleet.ts'
import { complete, createCatalog, watchResource } from '../serve/listing.ts'
import type { ChangeBus, OlderService, ServedExtensions } from '../serve/port.ts'
import type { RowsFor } from '../tool/forward.ts'
import type { Registry } from '../tool/registry.ts'
import type { Target } from '../tool/target.ts'
import { createEntrance } from './entrance.ts'
import { createOlderTest, type GreetOptions, greet } from './handshake.ts'
import type { AttachDraft, Older } from './older.ts'
import { resolveSessions, type SessionOptions } from './options.ts'
import { SessionPeer } from './peer.ts'
import { createSharedSessions } from './shared.ts'
import { createSessionTable } from './table.ts'
import { answerTaskCall } from './task-call.ts'

interface OlderOptions extends GreetOptions {
  readonly pageSize: number
  readonly changes: ChangeBus
  readonly sessions: SessionOptions
  readonly attach?: AttachDraft
  readonly fleet?: Fleet
  readonly extensions: ServedExtensions
}

/** Pages of tasks are short, because every task on them has to be unsealed. */
const TASKS_PER_PAGE = 50

const TASK_SUPPORT = { never: 'forbidden', late: 'forbidden', auto: 'optional', always: 'required' } as const

/** Returns undefined if the server accepts no earlier era. */
export function createOlder(options: OlderOptions): OlderService | undefined {
  const { host, registry, pageSize, changes, codecs, fleet, extensions } = options
  const versions = codecs.sessionVersions
  if (versions.length === 0) return undefined
  const every = createEvery(() => {})
  const onError = (error: unknown): void =>
    host.log({ event: 'warning', message: 'Sweeping a session, or notifying it of a task, failed', error })
  const sessions = createSessionTable(
    resolveSessions(options.sessions, {
      ...host.platform,
      onError,
      elsewhere: fleet && ((session, json) => fleet.announce({ kind: 'note', session, json })),
    }),
    changes,
    (phase, { id, facts: { protocolVersion } }) =>
      host.log({ event: 'session', phase, session: digest(id).slice(0, 16), protocolVersion }),
  )
  const catalog = createCatalog(olderRows(host, registry), { pageSize })
  const draft = options.attach?.(host, registry, (target, call) =>
    taskMismatch(host, codecs.session(call.protocolVersion), target, call),
  )
  const answer: Older['answer'] = async (call, principal, line, unaskable) => {
    if (call.kind === 'list') {
      const { rowsFor } = host
      if (rowsFor === undefined)
        return observeRequest(host, call, () => catalog.list(call.listing, call.cursor))
      const rows: RowsFor = async (...given) =>
        (await rowsFor(...given)).map((row) => toOlderRow(host, registry, call.listing, row))
      const list = (): Promise<Reply> =>
        catalog.listFor(rows, call, principal).catch((error: unknown) => toErrorReply(error, host))
      return observeRequest(host, call, list)
    }
    if (call.kind === 'complete') {
      const answer = (): Promise<Reply> =>
        complete(registry, call, principal).catch((error: unknown) => toErrorReply(error, host))
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
    if (call.kind === 'custom') {
      const serve = (): Promise<Reply> =>
        extensions.serve(call, principal, line).catch((error: unknown) => toErrorReply(error, host))
      return observeRequest(host, call, serve)
    }
    const means = { dialect: codecs.session(call.protocolVersion), unaskable, hand: draft?.hand(call) }
    return answerFlow(host, registry, call, principal, line, means)
  }
  const around = (
    call: OlderCall,
    principal: Principal | undefined,
    run: () => Promise<OlderReply>,
  ): Promise<OlderReply> =>
    aroundRequest<OlderReply>(host.steps, call, principal, run, AS_REPLY).catch((error: unknown) =>
      toErrorReply(error, host),
    )
  const older: Older = {
    codecs,
    versions,
    sessions,
    shared: createSharedSessions(host, sessions, fleet, every),
    draft,
    greet: (protocolVersion, greeting) => greet(options, protocolVersion, greeting),
    answer: (call, principal, line, unaskable) =>
      around(call, principal, () => answer(call, principal, line, unaskable)),
    continue: (call, principal, line, from) =>
      around(call, principal, () =>
        answerFlow(host, registry, call, principal, line, {
          dialect: codecs.session(call.protocolVersion),
          from,
        }),
      ),
    watchResource: (uri, principal, changed) => watchResource(registry, uri, principal, changed),
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
    storeFailed: (error) => void toErrorReply(error, host),
  }
  return {
    overHttp: (context, stateless) => ({
      isOlder: createOlderTest({
        modern: context.service.supportedVersions,
        older: versions,
        drafts: codecs.draftVersions,
        unnamed: stateless,
      }),
      ...createEntrance({ ...context, older, sessions: !stateless }),
    }),
    overStdio: (client) => new SessionPeer({ ...client, older }),
    changed: (listing) => catalog.invalidate(listing),
    async close() {
      await sessions.endAll()
      await older.shared.close()
    },
  }
}

function hasEnded({ status }: TaskState): boolean {
  return status !== 'working' && status !== 'input_required'
}

/** The ways in which the client of a call can be asked. */
interface Means {
  readonly dialect: SessionDialect
  /** The reason why it cannot be asked, if so. */
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
 * If the version has tasks, `execution.taskSupport` of a tool is binding. In the draft a tool that begins in rounds may
 * become a task later (D9), so there `task` is not an error.
 */
function taskMismatch(
  { tasks }: FlowHost,
  dialect: SessionDialect,
  { name, task }: Target,
  call: FlowCall,
): string | undefined {
  if (!tasks || !dialect.tasks) return undefined
  if (task.mode === 'always' && !call.task && !tasks.tools)
    return `"${name}" runs only as a task: send the call with \`task\``
  if (TASK_SUPPORT[task.mode] !== 'forbidden' || !call.task || dialect.rounds) return undefined
  return `"${name}" does not run as a task: send the call without \`task\``
}

/** Rows in the form of earlier eras. */
function olderRows(host: FlowHost, registry: Registry): Pick<Registry, 'rows'> {
  return { rows: (listing) => registry.rows(listing).map((row) => toOlderRow(host, registry, listing, row)) }
}

/** Earlier eras describe the output of a tool only if it is an object, and say whether it runs as a task. */
function toOlderRow({ tasks }: FlowHost, registry: Registry, listing: Listing, row: Row): Row {
  // With the tools, a call without `task` becomes a task as well.
  const support = tasks?.tools ? { ...TASK_SUPPORT, always: 'optional' } : TASK_SUPPORT
  const output = row.outputSchema as { readonly type?: unknown } | undefined
  const plain = output !== undefined && output.type !== 'object' ? { ...row, outputSchema: undefined } : row
  const mode = listing === 'tools' ? registry.find('tools/call', String(row.name))?.task.mode : undefined
  return mode === undefined ? plain : { ...plain, execution: { taskSupport: support[mode] } }
}

type Row = Readonly<Record<string, unknown>>

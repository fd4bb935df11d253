/**
 * A call becomes a task: its journal moves from the token into the store, and a worker continues from there. A task never
 * becomes a call again (D9). The second half keeps a round where there is a store: as a task, or with its journal stored.
 */

import { RondoError } from '../../errors.ts'
import { type Journal, narrowJournal } from '../../journal/journal.ts'
import { canonicalJson } from '../../lib/json.ts'
import { nameCapabilities } from '../../protocol/common/request.ts'
import { type Reply, TASKS_EXTENSION } from '../../protocol/reply.ts'
import type { RunReport } from '../../replay/run-state.ts'
import { openEnvelope, sealEnvelope } from '../../seal/envelope.ts'
import { tagsOf } from '../../seal/tag.ts'
import type { BlobStore } from '../../store/store.ts'
import { createTaskId, isOpen, type TaskView } from '../../store/task-engine.ts'
import type { Target } from '../../tool/target.ts'
import {
  followsTask,
  type Pause,
  placeOf as placeOfRound,
  type Replied,
  type Round,
  solicited,
  taskHostFor,
} from '../carrier.ts'
import type { FlowHost, FlowStore, TaskHost } from '../host.ts'
import { spansOf } from '../report.ts'
import { concludeRefused, logRound } from '../round.ts'
import { needOfTarget, noteScopes } from '../scope.ts'
import { epochOf } from '../single-use.ts'
import { guardTask } from '../undo.ts'
import { toTaskState } from './call.ts'
import { ownerOf, type PieceOf, sealPiece, type TaskPlan, type TaskRecord } from './journal.ts'
import { toHandleReply } from './tools.ts'

/** Begins a task with the first request if the tool says so, or refuses a client that cannot follow it. */
export function beginAtOnce(round: Round, brings: boolean): Reply | Promise<Reply> | undefined {
  const { target, beginning } = round
  const tasks = taskHostFor(round)
  if (tasks && target.task.mode !== 'late') return beginTask(round, tasks, beginning.journal, brings)
  return target.task.mode === 'always' ? concludeRefused(round, undefined, cannotFollow(target)) : undefined
}

/** Continues a call as a task that waits for a permit, before its handler runs; undefined if it cannot become one. */
export function queueAsTask(round: Round): Promise<Reply> | undefined {
  const tasks = taskHostFor(round)
  return tasks && beginTask(round, tasks, round.beginning.journal, true)
}

function cannotFollow({ name }: Target): RondoError {
  const data = { requiredCapabilities: { extensions: { [TASKS_EXTENSION]: {} } } }
  const detail = `"${name}" runs only as a task, and this client lacks the capability ${nameCapabilities(data.requiredCapabilities)} to follow one. Nothing was done.`
  return new RondoError('PEER_CAPABILITY', detail, { data })
}

/** The lifetime of the task: that of the tool, or a shorter one if the client asks for it. */
function ttlOf({ call, target }: Round, tasks: TaskHost): number {
  const ttlMs = target.task.ttlMs ?? tasks.ttlMs
  return call.task?.ttlMs === undefined ? ttlMs : Math.min(ttlMs, call.task.ttlMs)
}

/** Answers that came with this request and that no run has used. Unasked ones are kept too: the question decides if they count. */
function broughtBy({ call, beginning }: Round): TaskPlan['brought'] {
  const { anchored, asked } = beginning
  const answers = solicited(beginning, call.inputResponses)
  return answers && { answers: answers as Readonly<Record<string, unknown>>, asked, unasked: !anchored }
}

/** Continues a call as a task after a run. */
export function continueAsTask(round: Round, { journal }: RunReport): Promise<Reply> {
  const tasks = taskHostFor(round)
  if (!tasks) throw new RondoError('SERVER_INTERNAL', 'This call cannot continue as a task')
  return beginTask(round, tasks, journal, false)
}

/**
 * The bytes for the id of the task, if its flow is known: a request that is sent again finds the task that it began (I5). Like the
 * key of an effect it depends on the answers of the flow, not on step results (R7): another branch is another task (I4).
 */
function branchOf({ host, call, beginning }: Round): Uint8Array | undefined {
  if (call.requestState === undefined) return undefined
  const { entries, kept, manual, seed } = beginning.kept ?? beginning.journal
  const given = entries.flatMap((entry) =>
    'question' in entry ? [[entry.key, entry.question, entry.answer]] : [],
  )
  const brought = solicited(beginning, call.inputResponses)
  return host.platform.derive(
    seed,
    `task:${canonicalJson([given, kept ?? {}, manual ?? null, brought ?? {}])}`,
  )
}

/** `brings`: the request's own responses have not been used yet. */
async function beginTask(
  round: Round,
  tasks: TaskHost,
  { entries, reasks, manual, deadlines, attempts, begun, lineage, kept }: Journal,
  brings: boolean,
): Promise<Reply> {
  const { host, call, target, principal, beginning } = round
  await host.keys.ready()
  const id = createTaskId(noteScopes(await needOfTarget(target, call.args)), branchOf(round))
  const owner = ownerOf(host, principal)
  const { method, args, protocolVersion, capabilities, clientInfo, relatedTaskIds } = call
  const plan: TaskPlan = {
    flow: beginning.flow,
    seed: beginning.journal.seed,
    startedAt: beginning.journal.startedAt,
    round: beginning.round,
    toolVersion: target.version,
    spans: spansOf(round),
    epoch: beginning.journal.epoch ?? (await epochOf(host, true)),
    principal,
    noted: { reasks, manual, deadlines, attempts, begun, lineage, kept },
    brought: brings ? broughtBy(round) : undefined,
    call: { method, target: call.target, args, protocolVersion, capabilities, clientInfo, relatedTaskIds },
  }
  const ttlMs = ttlOf(round, tasks)
  const twin = await findTwin(round, tasks, { id, owner })
  if (twin) {
    logRound(round, undefined, { outcome: 'task', task: twin.id })
    const task = toTaskState(host, tasks, owner, twin)
    return followsTask(call) ? { kind: 'task_created', task } : toHandleReply(target, task)
  }
  await guardTask(round, { ...beginning.journal, begun, lineage }, { id, owner })
  const creating = tasks.engine.create({
    id,
    owner,
    head: sealPiece(host, { id, owner }, 'head', { ...plan, ttlMs } satisfies TaskPlan),
    ttlMs,
    pollMs: target.task.pollMs ?? tasks.pollMs,
    // If this reply is lost, a call with a state is sent again with the same state, so its keys stay the same (R6).
    known: call.requestState !== undefined,
    tool: toolIn(host, tasks, call.target),
    journal: entries.map((entry) => sealPiece(host, { id, owner }, 'record', { entry } satisfies TaskRecord)),
  })
  const view = await creating.catch(async (error) => {
    // A task that was refused must not keep its caller from calling again.
    if (target.dedupe) await host.store?.permits?.release(dedupeHolder(id)).catch(() => {})
    throw error
  })
  logRound(round, undefined, { outcome: 'task', task: id })
  const task = toTaskState(host, tasks, owner, view)
  return followsTask(call) ? { kind: 'task_created', task } : toHandleReply(target, task)
}

const dedupeHolder = (task: string): string => `dedupe ${task}`

/** Concurrent calls may find a task that ends meanwhile. */
const MAX_TWINS = 3

/**
 * The open task of an identical call of the same caller, if the tool has `dedupe`; otherwise this task is the one that later calls
 * find, while it is open.
 */
async function findTwin(
  { host, call, target, principal }: Round,
  { engine, maxTtlMs }: TaskHost,
  { id, owner }: PieceOf,
): Promise<TaskView | undefined> {
  const permits = host.store?.permits
  // Anonymous callers cannot be told apart, and must not get each other's tasks.
  if (!target.dedupe || !permits || principal === undefined) return undefined
  const key = await target.dedupe(call.args, { principal })
  const value = JSON.stringify([host.audience, call.target, owner.principal, key])
  const tags = tagsOf(host.keys.ring, 'dedupe', value)
  for (let tries = 0; tries < MAX_TWINS; tries++) {
    const taken = await permits.acquire({
      holder: dedupeHolder(id),
      tags,
      limit: 1,
      holdMs: maxTtlMs,
      task: id,
    })
    if (taken.kind === 'held' || taken.task === undefined) return undefined
    // It may not be created yet, or have ended since.
    const view = taken.task === id ? undefined : await engine.get(taken.task, owner)
    if (view && isOpen(view.status)) return view
  }
  throw new RondoError('STORE_BUSY', 'The same call is just beginning elsewhere. Retry in 1 s', {
    data: { retryAfterMs: 1_000 },
  })
}

/** The tool as the store names it. */
function toolIn({ keys }: FlowHost, { toolAs }: TaskHost, name: string): string | undefined {
  return toolAs === 'tag' ? tagsOf(keys.ring, 'tool', name)[0] : toolAs && name
}

// A round is kept in the store if there is one. A call that took long or many rounds, or whose journal does not fit a token,
// continues as a task if its client can follow one. Otherwise the journal is stored and the token carries its id instead;
// that token is bound and expires like any other, and the stored journal expires with it.

export async function sealWithStore<S extends { readonly kind: string }>(
  round: Round,
  pause: Pause,
  { blobs }: FlowStore,
  seal: (journal: Journal) => Promise<S>,
): Promise<S | Replied> {
  const { host, beginning, line, target } = round
  const { report, facts } = pause
  const follows = taskHostFor(round) !== undefined
  // A client that has gone would never learn of the task.
  const mayLeave = follows && pause.journal.manual === undefined && !line.closed
  const isLate = beginning.round >= host.limits.promoteRounds
  const promoted =
    (follows && facts.moved === 'time') || (mayLeave && isLate) ? await tryAsTask(round, report) : undefined
  if (promoted) return promoted
  const journal = {
    ...pause.journal,
    epoch: pause.journal.epoch ?? (await epochOf(host, target.once || pause.journal.lineage !== undefined)),
  }
  const sealed = await seal(journal)
  if (sealed.kind !== 'too-large') return sealed
  const task = mayLeave && !isLate ? await tryAsTask(round, report) : undefined
  return task ?? (await seal(await spill(host, blobs, journal, beginning.flowExpires)))
}

/** Returns nothing if the caller has too many tasks: the call then continues in rounds. */
async function tryAsTask(round: Round, report: RunReport): Promise<Replied | undefined> {
  try {
    return { kind: 'replied', reply: await continueAsTask(round, report) }
  } catch (error) {
    if (error instanceof RondoError && error.code === 'LIMIT_TASKS') return undefined
    throw error
  }
}

/** The largest journal that is stored. */
const MAX_BYTES = 16 * 1024 * 1024

function placeOf({ audience }: FlowHost, id: string): string {
  return JSON.stringify(['spill', id, audience])
}

/** Stores the journal until `expiresAt`; returns the one that stands for it in the token. */
async function spill(
  host: FlowHost,
  blobs: BlobStore,
  journal: Journal,
  expiresAt: number,
): Promise<Journal> {
  const id = host.platform.randomId()
  const { token } = sealEnvelope(host.keys.ring, placeOf(host, id), JSON.stringify(journal))
  if (token.length > MAX_BYTES) {
    const detail = `The sealed journal has ${token.length} bytes; at most ${MAX_BYTES} can be stored. Return less from steps.`
    throw new RondoError('LIMIT_STATE_BYTES', detail)
  }
  await blobs.put(id, token, expiresAt)
  return { ...journal, entries: [], reasks: {}, kept: undefined, manual: undefined, spilled: id }
}

/** Replaces a journal that the token only names by the stored one. Throws `STATE_INVALID` if it is gone or does not open. */
export async function unspill(round: Round): Promise<Round> {
  const { host, beginning } = round
  const { spilled: id = '', moves } = beginning.journal
  const sealed = await host.store?.blobs.get(id)
  const opened = sealed && openEnvelope(host.keys.ring, placeOf(host, id), sealed, MAX_BYTES)
  const stored =
    opened && opened.kind === 'open'
      ? narrowJournal(JSON.parse(opened.plaintext.toString('utf8')))
      : undefined
  if (!stored) throw new RondoError('STATE_INVALID', 'The stored journal is gone or does not open')
  return { ...round, beginning: { ...beginning, journal: { ...stored, moves } } }
}

/** The error of a state that is too large for a client, and cannot be stored. */
export function tooLarge({ host, target }: Round, bytes: number, journal: Journal): RondoError {
  const { maxBytes } = host.limits
  const way = host.store ? '' : 'pass a store to the server (createServer({ store })), '
  const detail =
    `The requestState of "${target.name}" would have ${bytes} bytes; at most ${maxBytes} are allowed (limits.maxBytes). ` +
    `${describeLargest(journal)}Return less from steps (an id instead of a document), ${way}or raise the limit.`
  return new RondoError('LIMIT_STATE_BYTES', detail)
}

function describeLargest({ entries }: Journal): string {
  const sizes = entries.map((entry) => ({ entry, bytes: JSON.stringify(entry).length }))
  const [largest] = sizes.sort((a, b) => b.bytes - a.bytes)
  if (largest === undefined) return ''
  const { entry, bytes } = largest
  const what = 'question' in entry ? 'answer to the question' : entry.kind
  return `Of the ${entries.length} entries of its journal, the ${what} "${entry.key}" is the largest, with ${bytes} bytes. `
}

export function warnSize(round: Round, bytes: number): void {
  const { host, target } = round
  const message = `The requestState of ${target.name} has ${bytes} bytes; some proxies and clients refuse bodies of that size`
  host.log({ event: 'warning', message, ...placeOfRound(round) })
}

/**
 * A client resumes a stream at another instance than the one that began it.
 *
 * resume 1  A call that only waits continues here, from what was kept of it in the store (`kept.ts`): nobody runs it, so that
 *           it does not matter whether the first instance lives.
 * resume 2  As long as the first instance lives and runs the call, it keeps it, and its events are relayed (`records.ts`). If it
 *           is gone, the call continues here when its lease has run out.
 * resume 3  The session's own stream begins anew here; since changes may have been missed, everything counts as changed.
 */

import type { FlowHost } from '../carry/host.ts'
import { limitAt } from '../carry/push.ts'
import { type Need, withNeed } from '../carry/scope.ts'
import { nextRound } from '../carry/token.ts'
import { withRecorded } from '../carry/undo.ts'
import { RondoError } from '../errors.ts'
import { weighJson } from '../lib/json.ts'
import type { FlowCall, FlowMethod, Principal, TaskCall } from '../protocol/call.ts'
import type { OlderReply } from '../protocol/reply.ts'
import type { InputRequests } from '../protocol/wire.ts'
import { internalError } from '../serve/failure.ts'
import { openStream, SSE_COMMENT, toEvent } from '../serve/http/line.ts'
import { FREE_WEIGHT } from '../serve/limits.ts'
import type { Outlet } from '../serve/port.ts'
import { type CallRecord, claimsOfCall, isParked } from './kept.ts'
import type { SessionLine } from './line.ts'
import type { PostOptions } from './older.ts'
import { createParcel, type Parcel } from './parcel.ts'
import type { OpenRecord } from './records.ts'
import { callerLimit, type Session } from './session.ts'
import type { ResumeParts } from './shared.ts'
import { readEventId } from './stream.ts'
import { GENERAL } from './streams.ts'

/** A GET with a `Last-Event-ID`. */
export interface Resuming {
  readonly options: PostOptions
  readonly session: Session
  readonly eventId: string
  readonly principal: Principal | undefined
  readonly outlet: Outlet
}

/** Streams of a caller that are looked for at once. Every instance is asked, and the store is read until one is found. */
const MAX_RESUMING = 64

/** How long an instance may take to say that it has a stream; no longer than a lease. */
const WANTED_MS = 3_000
/** Like `WANTED_MS`, for an instance with a call that only waits and events that the client has missed: nothing can run twice. */
const PARKED_MS = 1_000
const PARKED_LOOKS = 5
const LOOK_MS = 200

/** Resolves with false if there is nothing to resume. */
export async function resumeElsewhere(parts: ResumeParts, given: Resuming): Promise<boolean> {
  const { share } = given.session
  if (parts.resuming.of(share) >= callerLimit(given.session, MAX_RESUMING))
    throw new RondoError('STORE_BUSY', 'Too many streams are being looked for at once')
  parts.resuming.add(share, 1)
  try {
    return await findStream(parts, given)
  } finally {
    parts.resuming.add(share, -1)
  }
}

async function findStream(parts: ResumeParts, resuming: Resuming): Promise<boolean> {
  const { host, fleet, kept, relays } = parts
  const { session, eventId, outlet, options, principal } = resuming
  const place = readEventId(eventId)
  if (place === undefined || !session.portable) return false
  const { stream, number: after } = place
  if (stream.startsWith(GENERAL)) return beginAnew(resuming)
  const relay = host.platform.randomId()
  const began = performance.now()
  for (let looks = 0; ; looks++) {
    const found = await kept.find(session, stream)
    if (outlet.gone) return true
    const waited = performance.now() - began
    if (found) await options.access.admit([], principal, found.value.scopes)
    if (found?.value.response !== undefined) {
      sendResponse(resuming, stream, after, found.value.response)
      return true
    }
    const first = looks > 0 && (await relays.peek(relay))
    if (first) {
      await options.access.admit([], principal, first.scopes)
      const stopKeepAlive = openStream(outlet, options.stream)
      outlet.write(SSE_COMMENT)
      void relays.read(session, stream, relay, outlet).catch(options.onError).finally(stopKeepAlive)
      return true
    }
    if (found && isFree(host, found, after, isSilent(looks, waited, host.leaseMs))) {
      const taken = await kept.take(session, stream, found, after)
      if (taken) {
        await continueHere(parts, resuming, stream, after, taken)
        return true
      }
    }
    if (isOver(waited, host.leaseMs, found)) return false
    if (looks === 0) await fleet.tell({ kind: 'wanted', session: session.name, stream, after, relay })
    await relays.news(stream, Math.min(LOOK_MS, host.leaseMs / PARKED_LOOKS))
  }
}

/** True if the holder of a call that only waits would have said by now that it lives. */
export function isSilent(looks: number, waitedMs: number, leaseMs: number): boolean {
  return looks >= PARKED_LOOKS && waitedMs >= Math.min(PARKED_MS, leaseMs)
}

/** True if the search has taken long enough. A call that was found becomes free when its holder's lease runs out. */
export function isOver(
  waitedMs: number,
  leaseMs: number,
  found: OpenRecord<CallRecord> | undefined,
): boolean {
  return waitedMs > Math.min(WANTED_MS, leaseMs) + (found ? leaseMs : 0)
}

/** True if the call can be taken over from its holder, if it has one. `silent`: the holder does not say that it lives. */
function isFree(
  { leaseMs, platform }: FlowHost,
  { value, quietMs }: OpenRecord<CallRecord>,
  after: number,
  silent: boolean,
): boolean {
  if (value.holder === '' || quietMs >= leaseMs) return true
  if (!isParked(value, platform.now())) return false
  // Only the holder can send what came before the questions.
  const { questions } = value
  return silent || questions.length === 0 || questions.some(({ event }) => event <= after + 1)
}

function beginAnew({ session, outlet, options }: Resuming): boolean {
  const primed = options.older.codecs.session(session.facts.protocolVersion).primesStreams
  const request = { primed, streams: true, responses: 0, batch: false, onLost: () => {} }
  session.streams.open(request, outlet, options.stream)
  session.notify({ kind: 'everything' })
  return true
}

function sendResponse({ outlet, options }: Resuming, stream: string, after: number, json: string): void {
  const stopKeepAlive = openStream(outlet, options.stream)
  outlet.write(`id: ${stream}-${after + 1}\n${toEvent(json)}`)
  stopKeepAlive()
  outlet.end()
}

async function continueHere(
  parts: ResumeParts,
  { options, session, principal, outlet }: Resuming,
  stream: string,
  after: number,
  taken: CallRecord,
): Promise<void> {
  const { older, inFlight, access, onError } = options
  const { protocolVersion } = taken
  const dialect = older.codecs.session(protocolVersion)
  const [need] = await access.admit([toCall(session, taken)], principal, taken.scopes)
  const parcel = toParcel(options, session, toCall(session, taken), need)
  // Objects that live as long as the call must not refer to the arguments that it came with.
  const record = { ...taken, request: { ...taken.request, args: {} } }
  const { request } = record
  const ready = parcel?.call ?? toCall(session, record)
  let line: SessionLine | undefined
  const wish = {
    primed: dialect.primesStreams,
    streams: true,
    responses: 1,
    batch: false,
    name: () => stream,
    after,
    scopes: record.scopes,
    onLost: () => line?.cancel(),
  }
  session.leave(request.id)
  const channel = session.streams.open(wish, outlet, options.stream)
  channel.beat()
  const { id, target, progressToken } = request
  const scopes = (): readonly string[] => record.scopes
  const terms = { id, target, args: parcel?.args, progressToken, protocolVersion, scopes }
  const hold = parts.kept.hold(session, channel, terms, record)
  const begun = session.resume(request.id, channel, dialect, parcel?.pack, hold)
  begun.ready = parcel?.unpack
  begun.continueFrom(record.progress)
  line = begun
  begun.scopes = record.scopes
  hold.attach(begun)
  const active = { call: ready, line: begun }
  inFlight.enter(active)
  begun.onClose(() => channel.respond(undefined))
  // The client left while the call was being taken over, and cannot come back.
  if (!channel.open) begun.cancel()
  const finish = async (reply: OlderReply): Promise<void> => {
    session.finish(request.id, begun)
    if (begun.closed) return
    const json = dialect.encodeReply(request.id, reply)
    if (await hold.settle(json)) channel.respond(json)
    else channel.respond(undefined)
  }
  run(parts, options, ready, principal, begun, record, after)
    .catch(
      (error: unknown): OlderReply =>
        error instanceof RondoError ? { kind: 'error', error } : internalError(error, onError),
    )
    .then(finish)
    .catch(onError)
    .finally(() => {
      inFlight.leave(active)
      parcel?.end()
    })
}

function toParcel(
  { service: { loads } }: PostOptions,
  { share }: Session,
  call: FlowCall | TaskCall,
  need: Need | undefined,
): Parcel | undefined {
  if (call.kind !== 'flow') return undefined
  const admitted = need ? withNeed(call, need) : call
  const weight = weighJson(JSON.stringify(call.args))
  return createParcel(admitted, weight > FREE_WEIGHT ? loads?.open(share) : undefined, weight)
}

function toCall(
  session: Session,
  { request, task, protocolVersion, claims }: CallRecord,
): FlowCall | TaskCall {
  const { id, target, args, progressToken } = request
  const facts = { ...session.facts, protocolVersion, logLevel: session.level }
  if (task !== undefined) return { ...facts, kind: 'task', action: 'result', id, taskId: task, progressToken }
  const method = (JSON.parse(claims ?? '{}').method ?? 'tools/call') as FlowMethod
  return { ...facts, kind: 'flow', id, method, target, args, progressToken }
}

async function run(
  { host }: ResumeParts,
  { older }: PostOptions,
  call: FlowCall | TaskCall,
  principal: Principal | undefined,
  line: SessionLine,
  record: CallRecord,
  seen: number,
): Promise<OlderReply> {
  if (call.kind === 'task') {
    line.recall(record.questions, record.answers, seen)
    return older.answer(call, principal, line)
  }
  const claims = claimsOfCall(record)
  if (claims === undefined) throw new RondoError('STATE_INVALID', 'A kept call does not open')
  const limit = record.due === undefined ? undefined : limitAt(host.platform, record.due)
  const timeoutMs = Math.max(0, record.until - host.platform.now())
  const pending = () =>
    line
      .askAgain(record.questions, record.answers, seen, { timeoutMs, enough: limit?.signal })
      .finally(limit?.stop)
  const methods = Object.fromEntries(
    record.questions.map(({ key, json }) => [
      key,
      JSON.parse(json).method as InputRequests[string]['method'],
    ]),
  )
  const beginning = nextRound(host, claims)
  const isAsked = record.questions.length > 0
  // Otherwise it waits for answers first.
  if (!isAsked) await line.ready?.()
  const from = {
    beginning: await withRecorded(host, beginning),
    answers: undefined,
    progress: record.progress,
    pending: isAsked ? pending : undefined,
    methods,
  }
  return older.continue(call, principal, line, from)
}

/**
 * Calls of older clients that wait for an answer, kept in the store, so that any instance can take the answer, and another
 * continues the call if the one that asked dies.
 *
 * kept 1  The record of a call is named after its stream, and sealed for its session and its owner.
 * kept 2  An answer is in the store before it is acknowledged; the first one to a question wins (R2).
 * kept 3  An instance shows that it lives by touching the records of its calls. A call whose holder is silent for a lease is
 *         continued by the instance at which the client resumes its stream, from the journal in the record (R6, R7). Of any
 *         number that try, one succeeds; a holder that was only slow finds out, and drops the call without a word.
 * kept 4  The response to such a call is in the store before it is sent, for a client that lost its stream meanwhile.
 * kept 5  Before a holder resumes the handler, it says so in the record. Until then nobody runs the call, so another
 *         instance may take it over without waiting for a lease.
 */

import type { FlowHost } from '../carry/host.ts'
import { deliverAnswers } from '../carry/task/call.ts'
import { isStoreFault, RondoError } from '../errors.ts'
import { isRecord } from '../lib/json.ts'
import type { PeerAnswer, Principal, RequestId } from '../protocol/call.ts'
import { type Claims, decodeClaims, encodeClaims } from '../seal/state.ts'
import type { Fleet } from '../serve/fleet.ts'
import type { CallKeeper, SessionLine } from './line.ts'
import type { SentQuestion } from './question.ts'
import type { NextRecord, OpenRecord, RecordGuess, SealedRecords } from './records.ts'
import type { Session } from './session.ts'

/** The request that a kept call began with. */
export interface KeptRequest {
  readonly id: RequestId
  readonly target: string
  readonly args: Readonly<Record<string, unknown>>
  readonly progressToken?: RequestId
}

/** The record of a call. */
export interface CallRecord {
  readonly session: string
  readonly owner: string
  /** The scopes that an answer needs. */
  readonly scopes: readonly string[]
  readonly request: KeptRequest
  readonly protocolVersion: string
  /** The tag of the process that has the call; empty if nobody has. */
  readonly holder: string
  /** Names the take-over by the holder, who may have the call again while an earlier run of its own has not ended. */
  readonly take?: string
  /** The task whose questions these are. */
  readonly task?: string
  readonly claims?: string
  readonly progress?: number
  readonly due?: number
  /** True once the holder has what it needs and runs the handler. */
  readonly started?: boolean
  /** When the questions time out, ms since the epoch. */
  readonly until: number
  readonly questions: readonly SentQuestion[]
  /** How many questions the call has named so far: no id is used again. */
  readonly named?: number
  readonly answers: Readonly<Record<string, PeerAnswer>>
  /** The response, once there is one. */
  readonly response?: string
}

/** A call that is kept, as the instance that has it sees it. */
export interface CallHold extends CallKeeper {
  /** The line of the call. */
  attach(line: SessionLine): void
  /** Keeps the response. Resolves with false if another instance has the call by now. Never rejects. */
  settle(json: string): Promise<boolean>
}

export interface KeptCalls {
  /** The hold of a call on its stream; `taken` is the record of one that was taken over. */
  hold(session: Session, stream: NamedStream, call: HoldTerms, taken?: CallRecord): CallHold
  /** Takes an answer to a question of any instance. False if no such question is open. */
  answer(
    session: Session,
    principal: Principal | undefined,
    id: RequestId,
    answer: PeerAnswer,
    admit: (scopes: readonly string[]) => unknown,
  ): Promise<boolean>
  find(session: Session, stream: string): Promise<OpenRecord<CallRecord> | undefined>
  /** Takes over a call whose holder is gone. `seen` is the number of the last event that the client has seen. */
  take(
    session: Session,
    stream: string,
    found: OpenRecord<CallRecord>,
    seen: number,
  ): Promise<CallRecord | undefined>
  /** Resolves when nothing is left to write. */
  flush(): Promise<void>
  close(): void
}

/** A stream, which is named when its call is first kept. */
interface NamedStream {
  readonly name: string
}

interface HoldTerms extends Omit<KeptRequest, 'args'> {
  /** The arguments, which may be kept as text; absent for a task. */
  readonly args?: () => KeptRequest['args']
  readonly scopes: () => readonly string[]
  readonly protocolVersion: string
}

/** A question of a kept call is named after its stream. */
const QUESTION_ID = /^(c_[\w-]{1,60})\.\d{1,9}$/

const callRecord = (stream: string): string => `call ${stream}`

export function createKeptCalls(
  host: FlowHost,
  fleet: Fleet,
  records: SealedRecords,
  every: (ms: number, tick: () => void) => () => void,
): KeptCalls {
  const { now } = host.platform
  const held = new Map<string, HeldCall>()
  /** Streams whose news could not be read, because the store was away. */
  const stale = new Set<string>()
  const writing = new Set<Promise<unknown>>()
  let stopTouching: (() => void) | undefined

  const later = (work: Promise<unknown>): void => {
    const settled = work
      .catch((error) => {
        if (isStoreFault(error) && host.storeWatch?.isSaid()) return
        host.log({ event: 'warning', message: 'A waiting call could not be kept', error })
      })
      .finally(() => writing.delete(settled))
    writing.add(settled)
  }
  const touch = (): void => {
    if (held.size > 0) later(records.touch([...held.keys()].map(callRecord)))
    for (const stream of [...stale]) later(deliver(stream))
  }
  const enroll = (stream: string, call: HeldCall): void => {
    held.set(stream, call)
    stopTouching ??= every(Math.max(50, host.leaseMs / 3), touch)
  }
  const belongsTo = (session: Session, record: CallRecord | undefined): record is CallRecord =>
    record?.session === session.name && record.owner === session.owner
  const find: KeptCalls['find'] = async (session, stream) => {
    const found = await records.get(callRecord(stream), narrowCall)
    return belongsTo(session, found?.value) ? found : undefined
  }

  /** Gives the line the answers that reached other instances. */
  const deliver = async (stream: string): Promise<void> => {
    const holding = held.get(stream)
    stale.delete(stream)
    if (!holding) return
    const { session, line } = holding
    try {
      const record = await begin(session, stream)
      if (record === undefined) return
      if (record.holder === session.tag)
        for (const [id, answer] of Object.entries(record.answers)) session.answer(id, answer)
      else {
        // Not if the call has come back to this instance meanwhile.
        if (held.get(stream)?.line === line) held.delete(stream)
        line?.leave()
      }
    } catch (error) {
      stale.add(stream)
      throw error
    }
  }
  /** The record of a call that is held here, marked as started if nothing is missing. */
  const begin = async (session: Session, stream: string): Promise<CallRecord | undefined> => {
    let last = (await find(session, stream))?.value
    if (last === undefined || last.started || !isComplete(last)) return last
    const edit = (record: CallRecord | undefined): NextRecord<CallRecord> | undefined => {
      last = record
      if (record?.holder !== session.tag || record.response !== undefined) return undefined
      return { value: { ...record, started: true }, ttlMs: record.until - now() + session.resumeMs }
    }
    await records.change(callRecord(stream), session, edit, narrowCall)
    return last
  }
  fleet.onNews(async (news) => {
    if (news.kind === 'call') await deliver(news.call)
    // News were lost: there may be answers.
    else if (news.kind === 'change' && news.change.kind === 'everything')
      for (const stream of [...held.keys()]) await deliver(stream)
  })

  /** All answers to a task at once: one after the other, the instance that asked would ask for the rest again. */
  const answerTask = async (
    { task, questions, answers }: CallRecord,
    principal: Principal | undefined,
  ): Promise<void> => {
    if (task === undefined || !host.tasks) return
    const given = questions.flatMap(({ id, key }) => {
      const answer = answers[id]
      return answer?.kind === 'result' ? [[key, answer.result] as const] : []
    })
    if (given.length === questions.length)
      await deliverAnswers(host, host.tasks, task, principal, Object.fromEntries(given))
  }

  /** Tells the instance that has the call, or its task, that there is an answer. */
  const pass = async (
    stream: string,
    record: CallRecord,
    principal: Principal | undefined,
  ): Promise<void> => {
    await answerTask(record, principal)
    await fleet.tell({ kind: 'call', call: stream })
  }

  return {
    hold(session, stream, terms, taken) {
      const { id, target, progressToken, scopes, protocolVersion } = terms
      const { tag, owner, name } = session
      const place = (): string => callRecord(stream.name)
      // A record of an earlier release does not say how many.
      const asked = (taken?.questions ?? []).map((one) => Number(one.id.split('.')[1]))
      let count = Math.max(taken?.named ?? 0, ...asked)
      let isKept = taken !== undefined
      let isDropped = false
      let line: SessionLine | undefined
      /** The record without what is large: a call that waits must not hold it in memory. */
      let known: RecordGuess<CallRecord> | undefined = taken ? undefined : { value: undefined, version: 0 }
      const isHeld = ({ holder, take }: CallRecord): boolean => holder === tag && take === taken?.take
      const mine = (record: CallRecord | undefined): boolean =>
        record !== undefined && isHeld(record) && record.response === undefined
      const change = (edit: (record: CallRecord) => NextRecord<CallRecord>) =>
        records.change<CallRecord>(
          place(),
          session,
          (record) => (record && mine(record) ? edit(record) : undefined),
          narrowCall,
          known,
        )
      const isTaken = async (): Promise<boolean> => {
        try {
          const found = await find(session, stream.name)
          return found !== undefined && !isHeld(found.value)
        } catch {
          return false
        }
      }
      return {
        isKept: () => isKept,
        isTaken,
        catchUp: () => later(deliver(stream.name)),
        attach(given) {
          line = given
          if (isKept) enroll(stream.name, { session, line, known })
        },
        name: (many) =>
          Array.from({ length: many }, () => {
            count += 1
            return `${stream.name}.${count}`
          }),
        async park({ kept, task }, questions, until) {
          const value: CallRecord = {
            session: name,
            owner,
            scopes: scopes(),
            request: { id, target, args: terms.args?.() ?? {}, progressToken },
            protocolVersion,
            holder: tag,
            take: taken?.take,
            task,
            claims: kept && encodeClaims(kept.claims),
            progress: kept?.progress,
            due: kept?.due,
            started: kept !== undefined && questions.length === 0,
            until,
            questions,
            named: count,
            answers: {},
          }
          const next = { value, ttlMs: until - now() + session.resumeMs }
          let isTaken = false
          const outcome = await records.change<CallRecord>(
            place(),
            session,
            (record) => {
              isTaken = record !== undefined && !mine(record)
              if (isDropped || isTaken || (isKept && record === undefined)) return undefined
              return next
            },
            narrowCall,
            known,
          )
          if (outcome === 'limit') throw new RondoError('LIMIT_PARKED')
          if (isTaken) line?.leave()
          if (outcome === 'unchanged' && !isDropped)
            throw new RondoError('STATE_INVALID', 'Another instance has this call')
          isKept = true
          known = known && { value: withoutContent(value), version: known.version }
          // Cancelled while it was being kept: nobody may continue it, and nobody would end its record.
          if (isDropped) return void (await this.drop())
          enroll(stream.name, { session, line, known })
        },
        async settle(json) {
          held.delete(stream.name)
          const storing = change((record) => ({
            value: { ...withoutContent(record), response: json },
            ttlMs: Math.max(session.resumeMs, host.leaseMs),
            ended: true,
          }))
          // Without room for the response nothing is kept: nobody may run the call again.
          const stored = storing.then((outcome) =>
            outcome === 'limit' ? records.remove(place()).then(() => outcome) : outcome,
          )
          later(stored)
          try {
            const outcome = await stored
            // A record that expired while the handler ran says nothing about other instances.
            return outcome !== 'unchanged' || (await find(session, stream.name)) === undefined
          } catch {
            // Only a client that loses its stream now would miss the response.
            return true
          }
        },
        async drop() {
          isDropped = true
          if (!isKept) return true
          held.delete(stream.name)
          // Not if another instance has the call by now. Marked first, so that none takes it meanwhile.
          const mark = (record: CallRecord) => ({
            value: { ...withoutContent(record), task: undefined, started: true },
            ttlMs: host.leaseMs,
          })
          const marking = change(mark)
          later(marking.then((outcome) => (outcome === 'stored' ? records.remove(place()) : undefined)))
          try {
            return (await marking) !== 'unchanged' || (await find(session, stream.name)) === undefined
          } catch {
            // Whoever undoes the call fails too, and its alarm does so later.
            return true
          }
        },
        release() {
          held.delete(stream.name)
          const free = (record: CallRecord) => ({
            value: { ...record, holder: '' },
            ttlMs: record.until - now() + session.resumeMs,
          })
          later(
            records.change<CallRecord>(
              place(),
              session,
              (record) => (record && mine(record) ? free(record) : undefined),
              narrowCall,
            ),
          )
        },
      }
    },
    async answer(session, principal, id, answer, admit) {
      const stream = typeof id === 'string' ? QUESTION_ID.exec(id)?.[1] : undefined
      if (stream === undefined || !session.streams.mayExist(stream)) return false
      const before = await find(session, stream)
      if (before === undefined) return false
      await admit(before.value.scopes)
      const guess = { value: before.value, version: before.version }
      let after: CallRecord | undefined
      /** The record, if it has an answer already. */
      let repeated: CallRecord | undefined
      const isHere = ({ holder }: CallRecord): boolean => holder === session.tag && held.has(stream)
      const outcome = await records.change<CallRecord>(
        callRecord(stream),
        session,
        (record) => {
          // Not what an earlier try would have stored, before somebody else's answer was there.
          after = undefined
          repeated = undefined
          const question = belongsTo(session, record) && record.questions.find((one) => one.id === id)
          if (!record || !question) return undefined
          if (Object.hasOwn(record.answers, id)) {
            repeated = record
            return undefined
          }
          const answered = { ...record, answers: { ...record.answers, [id]: answer } }
          const started = isHere(record) && isComplete(answered)
          after = started ? { ...answered, started } : answered
          return { value: after, ttlMs: record.until - now() + session.resumeMs }
        },
        narrowCall,
        guess,
      )
      if (outcome === 'limit') throw new RondoError('STORE_BUSY', 'The store has no room for the answer')
      // Whoever stored it may have failed before the instance that waits for it was told.
      if (repeated) await (isHere(repeated) ? deliver(stream) : pass(stream, repeated, principal))
      if (after === undefined) return true
      if (isHere(after)) {
        const { known } = held.get(stream) ?? {}
        // Not if another instance has the call: then what is known here must stay outdated.
        if (known) known.version = guess.version
        session.answer(id, answer)
      } else await pass(stream, after, principal)
      return true
    },
    find,
    async take(session, stream, { value, version }, seen) {
      let event = seen
      const unseen = value.questions.map((question) =>
        question.event > seen && !Object.hasOwn(value.answers, question.id)
          ? { ...question, event: ++event }
          : question,
      )
      const taken: CallRecord = {
        ...value,
        holder: session.tag,
        // Not a number: an older release writes the record without it, and counting would begin anew.
        take: host.platform.randomId(),
        questions: unseen,
        // A call that was kept before an effect has no questions, and runs as soon as it is taken.
        started: value.started === true || isComplete(value),
      }
      const next = { value: taken, ttlMs: value.until - now() + session.resumeMs }
      const outcome = await records.put(callRecord(stream), session, next, version)
      if (outcome !== 'stored') return undefined
      // The former holder of the call may still be alive, and must learn that it lost it.
      fleet.announce({ kind: 'call', call: stream })
      return taken
    },
    async flush() {
      await Promise.all(writing)
    },
    close() {
      stopTouching?.()
      stopTouching = undefined
    },
  }
}

/** A call that this instance has, by its stream. */
interface HeldCall {
  readonly session: Session
  readonly line?: SessionLine
  readonly known?: RecordGuess<CallRecord>
}

/** The record of a call whose journal, arguments and questions nobody needs. */
function withoutContent(record: CallRecord): CallRecord {
  const request = { ...record.request, args: {} }
  return { ...record, request, claims: undefined, questions: [], answers: {} }
}

/** True if the handler can go on: nothing is missing, or the client has refused. */
function isComplete({ questions, answers }: CallRecord): boolean {
  const given = Object.values(answers)
  return (
    questions.length > 0 && (given.length >= questions.length || given.some(({ kind }) => kind === 'error'))
  )
}

/** True if nobody runs the call: it waits for answers, or for a task. */
export function isParked({ task, started, until, due = until }: CallRecord, now: number): boolean {
  return task !== undefined || (!started && now < Math.min(until, due))
}

/** The claims of a call that another instance kept. Undefined if it cannot be continued. */
export function claimsOfCall({ claims }: CallRecord): Claims | undefined {
  return claims === undefined ? undefined : decodeClaims(claims)
}

function narrowCall(value: unknown): CallRecord | undefined {
  return isRecord(value) && isRecord(value.answers) && Array.isArray(value.questions)
    ? (value as unknown as CallRecord)
    : undefined
}

/**
 * The model that every schedule is compared with. It sees what a handler sees, what the outside world sees and what is sent,
 * and knows nothing of the runtime's insides.
 *
 * judge 1: An answer counts for the question, the call and the branch that it was given for, and the first one stays.
 * judge 2: A run sees the results of the run before it again, with the same values and in the same order.
 * judge 3: Work whose result was acknowledged does not run again.
 * judge 4: An effect has one key: for the same call, name and answers always the same, and never that of another effect.
 * judge 5: No new effect runs while the run has not reached one that is recorded.
 * judge 6: Of all requests with one state of a single-use tool one is processed, and its repetitions get the same reply.
 * judge 7: A state is of no use with other arguments, for another caller, or after the store's epoch has ended.
 * judge 8: A failed attempt that was recorded counts: the next one has the next number, and after the last one the work has failed.
 * judge 9: What can be undone of a call that ended without success is undone in the end, under one key, the last effect first.
 *          Nothing of a call that ended well is undone.
 * judge 10: A request for approval is approved by as many people as it needs, who have said so, and never by the caller.
 * judge 11: Of calls that run one at a time, a run begins an effect only on the last grant that the store has given.
 * judge 12: The result of a call is that of an uninterrupted run, and every call ends.
 * judge 13: The call of an older client that was asked, or has begun an effect, continues when its client resumes its stream.
 * judge 14: An undo waits until its effect has ended, up to two leases after the end of the call, and knows whether it has run.
 * judge 15: A task sleeps by the clock of the store for as long as it was meant to, whatever the clocks of its workers say.
 */

import type { CallPlan, Plan } from './plan.ts'
import { type AskKind, commonKeys, has, type Program, rerun, type Seen } from './program.ts'
import { FAST_MS, hashText, type Process, SLOW_MS, type World } from './world.ts'

/** One request as its client sends it. Copies of it and retries with the same content are other requests. */
export interface Sent {
  readonly id: string
  readonly sentAt: number
  readonly call: CallPlan
  readonly branch: string
  readonly state: string | undefined
  /** The answers as text: distinguishes requests with the same state. */
  readonly answers: string
  /** It must not be processed. */
  readonly hostile?: 'other arguments' | 'another caller'
}

interface Result extends Seen {
  readonly at: number
  readonly release: number
  readonly effect: boolean
  readonly effectKey?: string
  readonly text?: string
}

interface Journal {
  readonly results: Map<string, Result>
  readonly order: Result[]
  /** The release that all runs so far had; -1 if there were two. */
  release: number | undefined
}

/** One execution of a handler. */
export interface Run {
  readonly id: string
  readonly call: CallPlan
  readonly flow: string
  /** Of a task: the round in which it began. A process that stood still may begin another one from an earlier round. */
  readonly round: number
  /** The caller, as `ctx` has it: the same object for as long as one process has the call of an older client. */
  readonly principal: unknown
  readonly release: number
  readonly process: Process
  readonly at: number
  /** The number of the grant on which it runs; -1 without one. */
  readonly grant: number
  /** Absent in a task, and in the call of an older client. */
  readonly request: Sent | undefined
  /** Its results are those of its parent and its own: it is no run of a task. */
  readonly inherits: boolean
  /** The run that sealed the state of the request, or the run before it in the call of an older client. */
  readonly parent: Run | undefined
  /** All runs before it are known, back to the first. */
  readonly whole: boolean
  /** The first run of its flow. */
  readonly isFirst: boolean
  readonly seen: Result[]
  /** Effects that the handler has called, with the number of results that it had seen. */
  readonly called: Map<string, number>
  /** Work that ended before the reply left. */
  readonly done: Set<string>
  /** Recorded attempts that failed, by key. */
  readonly failed: Map<string, number>
  /** The answers that the handler has received, by key. */
  readonly received: Map<string, string>
  /** The questions that the handler has asked. */
  readonly asked: Set<string>
  digest?: string
  /** Its reply has left the process. */
  replied: boolean
}

/** The operation that a result belongs to. */
export interface About {
  readonly kind?: AskKind
  readonly text?: string
  /** Of an effect: the answers that the handler had when it called the effect. */
  readonly branch?: string
  /** Of work: whether all of its attempts fail. */
  readonly fails?: boolean
  readonly approval?: { readonly text: string; readonly quorum: number }
}

/** An effect that can be undone, as the world outside sees it. */
interface Undoable {
  readonly call: CallPlan
  readonly key: string
  /** The effects whose outcome the handler had seen when it called this one. */
  readonly after: ReadonlySet<string | undefined>
  happened: boolean
  undone: boolean
  /** The runs in which it is running. */
  readonly running: Set<Run>
  /** Where it has succeeded, and when. */
  succeeded?: { readonly at: number; readonly process: Process }
}

export interface Judge {
  /** Each begins with the name of a check. */
  readonly problems: string[]
  /** What was checked, by name: a judge that saw nothing proves nothing. */
  readonly checks: Map<string, number>
  begin(
    call: CallPlan,
    place: Pick<Run, 'flow' | 'round' | 'principal'>,
    release: number,
    request: Sent | undefined,
  ): Run
  /** The store gives a permit to a flow that runs in this process. A grant ends all grants before it. */
  granted(flow: string, process: Process): void
  /** A handler asks a client. */
  asks(run: Run, text: string): void
  saw(run: Run, seen: Seen, about: About): void
  /** A handler begins to sleep, or finds itself asleep. */
  sleeps(run: Run, key: string, ms: number): void
  /** An operation begins outside: a step, or an effect with its key. */
  works(
    run: Run,
    key: string,
    attempt: number,
    effectKey: string | undefined,
    branch: string,
    options?: { readonly once: boolean; readonly undo: boolean },
  ): void
  /** An attempt of a step or an effect has ended. `final`: there is no other. */
  attempted(run: Run, key: string, attempt: number, final: boolean): void
  /** An attempt of an effect has ended. */
  worked(run: Run, effectKey: string, succeeded: boolean): void
  /** An effect has changed the world outside. */
  happened(effectKey: string): void
  /** An undo function begins. `ran`: whether the runtime knows that the effect has run. */
  undoes(run: Run, key: string, undoKey: string, effectKey: string, ran: 'yes' | 'maybe'): void
  undone(effectKey: string): void
  votes(text: string, person: string, approves: boolean): void
  /** The client of this call is gone, or has cancelled it. */
  left(call: CallPlan): void
  /** An operator has ended the task of this call, or has continued it. */
  operated(call: CallPlan, kind: 'cancel' | 'fail' | 'retry'): void
  /** False while something is left that has to be undone. */
  settled(): boolean
  returned(run: Run, digest: string): void
  replied(sent: Sent, message: Message): void
  restored(): void
  /** A client has got the result of its call. */
  ended(sent: Pick<Sent, 'call' | 'branch'>, message: Message): Promise<void>
  /** How many answers were acknowledged so far. */
  readonly acknowledgements: number
  /** A piece of a stream leaves the process: what the run that asks this question knows is in the store. */
  pushed(text: string): void
  /** An older client has resumed its stream, or could not, this long after it broke. */
  resumed(call: CallPlan, refused?: { readonly afterMs: number; readonly why: string }): void
  /** The client has an acknowledgement for this answer. */
  acknowledged(call: CallPlan, branch: string, key: string, text: string, value: string): void
  /** A client is asked. `since`: the acknowledgements it had when it sent the request. */
  asked(call: CallPlan, branch: string, key: string, text: string, since: number): void
  /** The schedule is over. */
  close(): void
  fail(problem: string): void
}

export interface Message {
  readonly result?: Readonly<Record<string, unknown>>
  readonly error?: { readonly code: number; readonly message: string }
}

/** The answer of a client to a question: decided by the call, the question and the branch alone. */
export function answerTo(call: string, branch: string, text: string, kind: 'boolean' | 'string'): string {
  const drawn = hashText(`${call} ${text}`)
  if (kind === 'boolean') return String(drawn % 3 !== 0)
  return drawn % 9 === 0 ? 'decline' : `${call}/${hashText(text).toString(36)}/${branch}`
}

/** A failed attempt is recorded within this time, or never. */
const RECORDED_MS = 60_000
/** How a call ends that a new release cannot continue, and one whose state counts no more. */
const CHANGED = 'This tool changed while the call was open. Start the call again'
const REFUSED = 'Invalid or expired requestState'
/** How a call ends whose journal is full. */
const FULL = 'This call takes more steps than the server allows'
/** How a call ends whose question has changed more often than `limits.maxReasks`. */
const REWORDED = 'This tool asks a different question on every round and cannot finish the call'
const MAX_REASKS = 3
/** An undo waits for an effect that is running until this long after the end of its call. */
const AWAITED_MS = 30_000
/** Nodes whose parts run side by side. */
const PARALLEL: ReadonlySet<string> = new Set(['all', 'race', 'offer'])
/** The outcome of an effect that can be undone is recorded within this many replies of the store. */
const OUTCOME_CROSSINGS = 12
/** An effect with `once` begins this many replies of the store after its slot was claimed, the check of its permit included. */
const CLAIM_REPLIES = 3
/** A client that resumes its stream after this time finds its call. */
const SOON_MS = 30_000
/** A client waits this long for an acknowledgement. */
const LATE_MS = 40_000
/** How a task ends that an operator has failed. */
const FAILED = 'The task could not be finished'
/** How the call of an older client ends that the store has failed, or whose process stood still as it claimed an effect. */
const AWAY = 'The server cannot reach its store'
const ELSEWHERE = 'This call is running elsewhere'
/** No lease and no hold of a process that stood still this long ago can be left. */
const STALE_MS = 120_000

export function createJudge(world: World, plan: Plan): Judge {
  const problems: string[] = []
  const checks = new Map<string, number>()
  const sealed = new Map<string, Run>()
  const runs = new Map<string, Run[]>()
  /** Results that tasks have recorded. */
  const recorded = new Map<string, Journal>()
  const keys = new Map<string, string>()
  const effects = new Map<string, string>()
  /** `storedAt`: nobody who claims the slot from then on runs its effect. */
  const once = new Map<string, { running: Set<Run>; storedAt: number }>()
  const replies = new Map<string, { answers: string; reply: string }>()
  const acknowledgements = new Map<string, { value: string; number: number }>()
  const texts = new Map<string, Set<string>>()
  /** The runs of older clients' calls that are in the store, by flow and round. */
  const pushed = new Map<string, Run>()
  const mayFail =
    plan.noise.storeFails > 0 || plan.faults.some(({ kind }) => kind === 'crash' || kind === 'freeze')
  /** Nothing is so slow, or fails, that an older client's call may be given up before its client is back. */
  const isCalm = plan.noise.slow === 0 && !mayFail
  let acknowledged = 0
  let restoredAt = Number.POSITIVE_INFINITY
  const sealedAt = new Map<string, number>()
  /** When the first state of a flow was handed out: it belongs to the epoch of that time, or to none. */
  const begunAt = new Map<string, number>()
  /** Calls whose process stood still as it read the epoch for their first state: nothing of them counts as single use. */
  const withoutEpoch = new Set<string>()
  const undoables = new Map<string, Undoable>()
  /** The key of each undo, by that of its effect. */
  const undoKeys = new Map<string, string>()
  const endings = new Map<string, 'well' | 'without success'>()
  /** When an operator has retried a task that one had ended; infinite until then. A run that began before records nothing. */
  const operated = new Map<string, number>()
  /** Questions whose answer may have reached a task that had ended, by call and text: it was acknowledged, and lost. */
  const unanswered = new Set<string>()
  /** When a call was left by its client, or ended by an operator. */
  const endedAt = new Map<string, number>()
  /** When an operator failed the task of a call. */
  const failedAt = new Map<string, number>()
  /** The effects that a call which ended well has kept. */
  const kept = new Set<string>()
  /** The effects that a program has undone before it ended well. */
  const given = new Set<Undoable>()
  const votes = new Map<string, Map<string, boolean>>()
  /** When a sleep that began in a task is over. */
  const asleep = new Map<string, number>()
  const grants: { readonly flow: string; readonly process: Process; readonly at: number }[] = []
  const changes = plan.faults.some(({ kind }) => kind === 'deploy')
  /** By call: what both of its releases have in common, from the beginning on. */
  const common = new Map(plan.calls.map(({ id, releases }) => [id, commonKeys(...releases)]))
  /** Longer than a reply of the store may take. */
  const replyMs = (plan.noise.slow > 0 ? SLOW_MS : FAST_MS) + 1
  const failures = new Map<string, { readonly at: number; readonly process: Process }>()
  const counts = ({ tool, undoes }: CallPlan): boolean => tool === 'single' || tool === 'alone' || undoes

  const fail = (problem: string): void => {
    if (problems.length < 20) problems.push(`${problem} (${((world.now % 86_400_000) / 1000).toFixed(3)} s)`)
  }
  const check = (name: string, holds: boolean, problem: () => string): void => {
    checks.set(name, (checks.get(name) ?? 0) + 1)
    if (!holds) fail(`${name}: ${problem()}`)
  }
  /** At this time it held what it believed to hold, and nothing has happened to it since. */
  const isWell = ({ alive, frozenUntil, brokenAt }: Process, at: number): boolean =>
    alive && at - Math.max(frozenUntil, brokenAt) >= STALE_MS
  /** It may act on what is no longer true: it stood still, or a fault of the store cost it a lease. */
  const mayBeStale = (process: Process): boolean => !isWell(process, world.now)
  const journalOf = ({ flow, round }: Run): Journal => {
    const name = `${flow} ${round}`
    const known: Journal = recorded.get(name) ?? { results: new Map(), order: [], release: undefined }
    recorded.set(name, known)
    return known
  }
  const usesOnce = (program: Program): boolean => JSON.stringify(program).includes('"once":true')

  return {
    problems,
    checks,
    fail,
    begin(call, { flow, round, principal }, release, request) {
      const process = world.current as Process
      const id = `${call.id}#${(runs.get(call.id) ?? []).length}`
      const before = runs.get(call.id) ?? []
      const parent = call.older
        ? parentOf(before, { flow, round, principal })
        : request?.state === undefined
          ? undefined
          : sealed.get(request.state)
      const isFirst = call.older ? !before.some((one) => one.flow === flow) : request?.state === undefined
      const run: Run = {
        ...{ id, call, flow, round, principal, release, process, request, parent },
        inherits: request !== undefined || call.older,
        at: world.now,
        grant: grants.findLastIndex((one) => one.flow === flow && one.process === process),
        whole: (request !== undefined || call.older) && (isFirst || parent?.whole === true),
        isFirst,
        seen: [],
        called: new Map(),
        done: new Set(),
        failed: new Map(parent?.failed),
        received: new Map(),
        asked: new Set(),
        replied: false,
      }
      runs.set(call.id, [...before, run])
      const hostile = request?.hostile
      check('bound', hostile === undefined, () => `${run.id} runs on a state that was sent with ${hostile}`)
      if (request?.state === undefined || call.tool !== 'single') return run
      const { state } = request
      const other = before.find(
        (one) => one.request?.state === state && !one.replied && isWell(one.process, world.now),
      )
      check('held', other === undefined, () => `${run.id} runs while ${other?.id} processes the same state`)
      check(
        'epoch',
        (sealedAt.get(state) ?? world.now) >= restoredAt || request.sentAt < restoredAt,
        () => `${run.id} runs on a state of an epoch that has ended`,
      )
      return run
    },
    granted(flow, process) {
      grants.push({ flow, process, at: world.now })
    },
    asks(run, text) {
      run.asked.add(text)
    },
    saw(run, { key, value, derived = false }, about) {
      const { kind, text, branch } = about
      /** What was asked: a client, or somebody who approves. Asked in other words, it is asked again. */
      const asked = text ?? about.approval?.text
      const effectKey = branch === undefined ? undefined : keys.get(`${run.call.id} ${key} ${branch}`)
      const result: Result = {
        key,
        value,
        effectKey,
        text: asked,
        effect: branch !== undefined,
        release: run.release,
        at: world.now,
      }
      const slot = once.get(effectKey ?? '')
      // Whoever claimed the slot of a process that stood still has not learned of its result yet.
      const lateMs = mayBeStale(run.process) ? CLAIM_REPLIES * replyMs : 0
      if (slot) slot.storedAt = Math.min(slot.storedAt, world.now + lateMs)
      const place = run.seen.length
      run.seen.push(result)
      if (text !== undefined && !key.endsWith('.peek')) judgeAnswer(run, key, value, kind, text)
      if (about.approval) judgeApproval(run, value, about.approval)
      // The clock of a worker is off by as much as the reply took that told it the time of the store: at the beginning, and at the end.
      const until = asleep.get(`${run.flow} ${key}`)
      if (until !== undefined && !run.inherits)
        check('slept', world.now > until - 2 * replyMs, () => `${run.id} sees ${key} before ${until}`)
      if (about.fails !== undefined)
        check('retried', about.fails === (value === '!failed'), () => `${run.id} sees ${key}=${value}`)
      const isSame = (one: Result): boolean => one.text === asked && (!derived || one.release === run.release)
      const before = run.parent?.seen ?? []
      if (run.inherits) {
        const known = before.find((one) => one.key === key)
        if (known && isSame(known))
          check(
            'recorded',
            known.value === value,
            () => `${run.id} sees ${key}=${value} after ${known.value}`,
          )
        const expected = before[place]
        if (expected && run.parent?.release === run.release)
          check(
            'order',
            expected.key === key,
            () => `${run.id} sees ${key} where ${expected.key} was seen before`,
          )
        return
      }
      const journal = journalOf(run)
      // Another release may ask in another order: from then on only recorded values are compared.
      if (journal.release !== run.release) journal.release = journal.release === undefined ? run.release : -1
      // An alarm runs on a record to which several processes have added what they knew, in their order: the values are the same,
      // and what follows from the order is not.
      const isAlarm = run.call.undoes && endings.get(run.call.id) === 'without success'
      const isMixed = journal.release === -1 || isAlarm
      const known = journal.results.get(key)
      if (known && isSame(known) && !(derived && isMixed))
        check('recorded', known.value === value, () => `${run.id} sees ${key}=${value} after ${known.value}`)
      if (!known || !isSame(known)) journal.results.set(key, result)
      const expected = journal.order[place]
      if (isMixed) return
      if (!expected) journal.order.push(result)
      else
        check(
          'order',
          expected.key === key,
          () => `${run.id} sees ${key} where ${expected.key} was seen before`,
        )
    },
    sleeps(run, key, ms) {
      const name = `${run.flow} ${key}`
      // A process that stood still may have learned late of the time of the store.
      const isJudged = !run.inherits && !mayBeStale(run.process)
      if (!asleep.has(name)) asleep.set(name, isJudged ? world.now + ms : Number.NEGATIVE_INFINITY)
    },
    works(run, key, attempt, effectKey, branch, { once: isOnce, undo } = { once: false, undo: false }) {
      const stale = mayBeStale(run.process)
      judgeAttempt(run, key, attempt)
      const past = run.inherits ? (run.parent?.seen ?? []) : [...journalOf(run).results.values()]
      // A process that stood still may go on with what it had, although another one has taken the task or the older client's call over.
      const isAhead = stale && (run.call.older || !run.inherits)
      // The reply that gave it the task may have been on its way while an operator failed and retried the task.
      const failed = failedAt.get(run.call.id) ?? Number.NEGATIVE_INFINITY
      const claimed = run.at - failed < replyMs ? Math.min(run.at, failed) : run.at
      const known = past.filter(({ at }) => !isAhead && (run.inherits || at < claimed))
      // A full journal does not keep the work that filled it.
      const isKept = plan.maxEntries === undefined && !isAhead && run.parent?.done.has(key)
      const again = known.some((one) => one.key === key) || isKept
      check('acknowledged', !again, () => `${run.id} runs ${key} again, whose result was recorded`)
      if (effectKey === undefined) return
      judgeAlone(run, key)
      const skipped = known.find((one) => one.effect && !run.called.has(one.key))
      check('diverged', !skipped, () => `${run.id} begins ${key} although it has not reached ${skipped?.key}`)
      const anchored = !run.isFirst || !run.inherits
      // A call is stored before its first effect, and before the first that can be undone. What follows is stored with its next question.
      const isStored = [...pushed.values()].some(({ flow }) => flow === run.flow)
      const isFirstUndoable = undo && ![...undoables.values()].some((one) => one.call === run.call)
      if (run.call.older && run.parent && (!isStored || isFirstUndoable)) keepPushed(run.parent)
      check('anchored', anchored, () => `${run.id} begins ${key} in the first round of its flow`)
      const logical = `${run.call.id} ${key} ${branch}`
      const keyBefore = keys.get(logical) ?? effectKey
      keys.set(logical, effectKey)
      const isLate = undoKeys.has(effectKey) && isWell(run.process, world.now)
      check('undo final', !isLate, () => `${run.id} begins ${key} again, which is being undone`)
      if (undo && !undoables.has(effectKey))
        undoables.set(effectKey, {
          call: run.call,
          key,
          after: new Set(run.seen.slice(0, run.called.get(key)).map((one) => one.effectKey)),
          happened: false,
          undone: false,
          running: new Set(),
        })
      undoables.get(effectKey)?.running.add(run)
      check(
        'same key',
        keyBefore === effectKey,
        () => `${run.id} runs ${key} under ${effectKey} after ${keyBefore}`,
      )
      const effectBefore = effects.get(effectKey) ?? logical
      effects.set(effectKey, logical)
      // A new release continues an effect whose intent is recorded, even if it calls it with other answers.
      const continues = changes && undo && undoables.get(effectKey)?.key === key
      check(
        'own key',
        effectBefore === logical || continues,
        () => `${run.id} runs ${logical} under the key of ${effectBefore}`,
      )
      if (!isOnce) return
      const isOver = (begunAt.get(run.flow) ?? world.now) < restoredAt
      const isAfter = !stale && world.now - restoredAt > CLAIM_REPLIES * replyMs
      check('epoch', !isOver || !isAfter, () => `${run.id} begins ${key} after its epoch has ended`)
      const slot = once.get(effectKey) ?? { running: new Set(), storedAt: Number.POSITIVE_INFINITY }
      once.set(effectKey, slot)
      check('once', world.now < slot.storedAt, () => `${run.id} runs ${key} again, whose result was stored`)
      // Who stands still in the middle of an effect loses its slot, and cannot be stopped any more.
      const other = [...slot.running].find((one) => isWell(one.process, world.now))
      check('once', !other, () => `${run.id} runs ${key} while ${other?.id} does`)
      slot.running.add(run)
    },
    attempted(run, key, attempt, final) {
      if (run.replied) return
      if (final) return void run.done.add(key)
      run.failed.set(key, attempt)
      if (run.at < (operated.get(run.call.id) ?? 0)) return
      failures.set(`${run.flow} ${run.round} ${key} ${attempt}`, { at: world.now, process: run.process })
    },
    worked(run, effectKey, succeeded) {
      once.get(effectKey)?.running.delete(run)
      const one = undoables.get(effectKey)
      one?.running.delete(run)
      if (one && succeeded) one.succeeded = { at: world.now, process: run.process }
    },
    happened(effectKey) {
      const one = undoables.get(effectKey)
      if (one) one.happened = true
    },
    undoes(run, key, undoKey, effectKey, ran) {
      const one = undoables.get(effectKey)
      const before = undoKeys.get(effectKey) ?? undoKey
      undoKeys.set(effectKey, undoKey)
      check('undo key', undoKey === before, () => `${run.id} undoes ${key} under ${undoKey} after ${before}`)
      // A process that dies between the intent and the effect leaves an undo of something that never began.
      check(
        'undo began',
        one !== undefined || ran === 'maybe',
        () => `${run.id} undoes ${key}, which never began`,
      )
      check('undo kept', !kept.has(effectKey), () => `${run.id} undoes ${key} of a call that ended well`)
      const later = [...undoables.values()].find(
        (other) => other.after.has(effectKey) && isLeft(other) && isReached(other),
      )
      if (one) judgeWait(run, one, ran)
      check('undo order', !later, () => `${run.id} undoes ${key} before ${later?.key}`)
    },
    undone(effectKey) {
      const one = undoables.get(effectKey)
      if (one) one.undone = true
    },
    votes(text, person, approves) {
      votes.set(text, (votes.get(text) ?? new Map()).set(person, approves))
    },
    left(call) {
      if (!endedAt.has(call.id)) endedAt.set(call.id, world.now)
      if (!endings.has(call.id)) endings.set(call.id, 'without success')
    },
    operated(call, kind) {
      check(`operator ${kind}`, true, () => '')
      operated.set(call.id, kind === 'retry' ? world.now : Number.POSITIVE_INFINITY)
      if (kind === 'retry') {
        endings.delete(call.id)
        endedAt.delete(call.id)
      } else {
        endings.set(call.id, 'without success')
        endedAt.set(call.id, world.now)
        if (kind === 'fail') failedAt.set(call.id, world.now)
        forgetFailures(call)
      }
    },
    settled() {
      return leftovers().length === 0
    },
    returned(run, digest) {
      run.digest = digest
    },
    replied(sent, message) {
      const { call, state, answers } = sent
      const mine = (runs.get(call.id) ?? []).filter((run) => run.request === sent)
      for (const run of mine) run.replied = true
      const token = message.result?.requestState
      const own = mine.at(-1)
      if (typeof token === 'string' && !sealedAt.has(token)) {
        sealedAt.set(token, world.now)
        if (own && state === undefined && own.process.frozenUntil > own.at) withoutEpoch.add(call.id)
        if (own && !begunAt.has(own.flow)) begunAt.set(own.flow, world.now)
        // A second run of the same state may have lost to the first, whose reply this is.
        const alone = (runs.get(call.id) ?? []).filter((run) => run.request?.state === state).length === 1
        if (own && (!counts(call) || state === undefined || alone)) sealed.set(token, own)
      }
      if (call.tool !== 'single' || state === undefined || message.error) return
      const reply = JSON.stringify(message.result)
      const first = replies.get(state)
      if (!first) return void replies.set(state, { answers, reply })
      check(
        'single use',
        first.answers === answers,
        () => `${sent.id} is accepted after other answers to its state`,
      )
      if (first.answers === answers)
        check('same reply', first.reply === reply, () => `${sent.id} gets another reply than before`)
    },
    restored() {
      restoredAt = Math.min(restoredAt, world.now)
    },
    async ended({ call, branch }, { result, error }) {
      const hasNoEpoch =
        (restoredAt <= world.now || withoutEpoch.has(call.id)) &&
        (counts(call) || call.releases.some(usesOnce))
      const refusedFork = call.tool === 'single' && call.habits.has('fork')
      const [block] = (result?.content ?? []) as readonly { readonly text?: string }[]
      const isStopped = / ![0-9a-f]+$/.test(block?.text ?? '')
      endings.set(call.id, error || result?.isError ? 'without success' : 'well')
      if (error || (result?.isError && !isStopped)) {
        const why = error?.message ?? JSON.stringify(result?.content)
        // A task fails after five turns in a row that died with nothing recorded.
        const deaths = plan.faults.filter(
          ({ kind }) => kind === 'kill' || kind === 'freeze' || kind === 'crash',
        ).length
        if (why === 'The task could not be finished' && deaths >= 5) return
        // The reply of a run that was stopped, whose journal was full, or whose program had changed, is lost, its effects are
        // undone, and the same request again takes another course.
        const mayStop =
          plan.maxEntries !== undefined ||
          hasChanged(call) ||
          (runs.get(call.id) ?? []).some(({ digest }) => digest?.startsWith('!'))
        const isUndone = call.undoes && mayStop
        // An operator has failed it; or its effects were undone before it was retried, so it cannot end well.
        if (operated.has(call.id) && (why === FAILED || (why === REFUSED && call.undoes))) return
        const isAway = call.older && mayFail && (why.includes(AWAY) || why.includes(ELSEWHERE))
        const isRight =
          isAway ||
          (why === CHANGED && hasChanged(call)) ||
          (why === REWORDED && mayReword(call)) ||
          (why.includes(FULL) && plan.maxEntries !== undefined) ||
          (why === REFUSED && (hasNoEpoch || refusedFork || isUndone || isGivenUp(call)))
        check('ends well', isRight, () => `${call.id}${branch} ends with ${why}`)
        return
      }
      const [id, digest] = String(block?.text).split(' ')
      const run = (runs.get(call.id) ?? []).find((one) => one.id === id)
      check(
        'result',
        run?.digest === digest,
        () => `${call.id} ends with ${block?.text}, not with ${run?.digest}`,
      )
      if (!run) return
      if (!isStopped) keep(run)
      const { digest: plain, problem } = await rerun(run.call.releases[run.release as 0 | 1], run.seen)
      check('result', plain === digest, () => `${run.id} ends with ${digest}: ${problem ?? plain}`)
    },
    close() {
      const [first] = leftovers()
      if (undoables.size > 0) check('undone', !first, () => `${first?.call.id} leaves ${first?.key} behind`)
    },
    get acknowledgements() {
      return acknowledged
    },
    pushed(text) {
      for (const [question] of text.matchAll(/Q\[[^\]]*\]/g)) {
        const asking = [...runs.values()]
          .flat()
          .findLast(({ call, asked }) => call.older && asked.has(question))
        if (asking) keepPushed(asking)
      }
    },
    resumed(call, refused) {
      const isKept = [...pushed.values()].some((run) => run.call === call)
      if (!isKept || (refused && (refused.afterMs > SOON_MS || !isCalm))) return
      check('resumed', !refused, () => `${call.id} could not be resumed: ${refused?.why}`)
    },
    acknowledged(call, branch, key, text, value) {
      if (world.now < (operated.get(call.id) ?? 0) + LATE_MS) return void unanswered.add(`${call.id} ${text}`)
      const name = `${call.id} ${branch} ${key} ${text}`
      if (!acknowledgements.has(name)) acknowledgements.set(name, { value, number: ++acknowledged })
    },
    asked(call, branch, key, text, since) {
      const variants = (texts.get(`${call.id} ${key}`) ?? new Set()).add(text)
      texts.set(`${call.id} ${key}`, variants)
      // A question that was reworded meanwhile is another one, and asking again is right.
      if (variants.size > 1) return
      const given = acknowledgements.get(`${call.id} ${branch} ${key} ${text}`)
      const again = given !== undefined && given.number <= since
      check('asked once', !again, () => `${call.id}${branch} is asked ${key} again after ${given?.value}`)
    },
  }

  /**
   * The run before this one in the call of an older client: what it knew is still in the process that has the call, or in the store.
   * A process that stood still goes on with what it knew, until it finds out that another one has the call.
   */
  function parentOf(
    before: readonly Run[],
    { flow, round, principal }: Pick<Run, 'flow' | 'round' | 'principal'>,
  ): Run | undefined {
    const isBefore = (one: Run): boolean => one.flow === flow && one.round === round - 1
    return (
      before.findLast((one) => isBefore(one) && one.principal === principal) ??
      pushed.get(`${flow} ${round - 1}`)
    )
  }

  /**
   * The store has failed a process that ran the call of an older client. It has given the call up, which is being undone; one that
   * continues the call, because the first could not say so any more, finds out before its next effect.
   */
  function isGivenUp({ id, older, undoes }: CallPlan): boolean {
    const isFailed = (runs.get(id) ?? []).some(({ process, at }) => process.brokenAt >= at)
    return older && undoes && isFailed
  }

  /**
   * Work whose result died with its process has run again, with another result. If the program takes another course from there, it may
   * call an effect whose intent is recorded after other answers than before, which is refused.
   */
  function isTorn({ id, undoes }: CallPlan): boolean {
    const seen = (runs.get(id) ?? []).flatMap((run) => run.seen.map((one) => ({ ...one, flow: run.flow })))
    const values = new Map(seen.map(({ flow, key, value }) => [`${flow} ${key}`, value]))
    return undoes && seen.some(({ flow, key, value }) => values.get(`${flow} ${key}`) !== value)
  }

  /** Two releases have run the call, or it is torn. */
  function hasChanged(call: CallPlan): boolean {
    const releases = new Set((runs.get(call.id) ?? []).map(({ release }) => release))
    return releases.size > 1 || isTorn(call)
  }

  /** While instances of two releases serve a call in turn, each asks the question in its own words (R3). */
  function mayReword({ id }: CallPlan): boolean {
    const isReworded = [...texts].some(([name, variants]) => name.startsWith(`${id} `) && variants.size > 1)
    const all = runs.get(id) ?? []
    const turns = all.filter(({ release }, at) => release !== (all[at - 1]?.release ?? release))
    return isReworded && turns.length > MAX_REASKS
  }

  function keepPushed(run: Run): void {
    const name = `${run.flow} ${run.round}`
    if (!pushed.has(name)) pushed.set(name, run)
  }

  /** After an attempt whose failure was recorded comes the next one. */
  function judgeAttempt(run: Run, key: string, attempt: number): void {
    const before = failures.get(`${run.flow} ${run.round} ${key} ${attempt}`)
    if (run.whole || run.failed.has(key)) {
      const next = (run.failed.get(key) ?? 0) + 1
      check('attempt', attempt === next, () => `${run.id} runs attempt ${attempt} of ${key}, not ${next}`)
    }
    if (run.inherits || !before) return
    // The failure was recorded by now if its process has been well since; if not, it does not count.
    const isRecorded =
      run.at - before.at > RECORDED_MS && isWell(before.process, before.at) && !mayBeStale(run.process)
    check('attempt', !isRecorded, () => `${run.id} runs attempt ${attempt} of ${key} again`)
  }

  function judgeAlone(run: Run, key: string): void {
    if (run.call.tool !== 'alone') return
    const { flow, grant, process } = run
    const later = grants.slice(grant + 1).find((one) => {
      // The effect was admitted while the reply of the store was on its way to a process that, for its own call, may have frozen.
      const arrived = Math.max(one.at, one.flow === flow ? process.frozenUntil : 0)
      return world.now - arrived > replyMs
    })
    const holds = grant >= 0 && !later
    check('alone', holds, () => `${run.id} begins ${key} after ${later?.flow ?? 'no grant'} got the permit`)
  }

  /** A failure that was not recorded yet is not: the task has ended. */
  function forgetFailures(call: CallPlan): void {
    const flows = new Set((runs.get(call.id) ?? []).map(({ flow }) => flow))
    for (const [name, { at }] of failures) {
      if (flows.has(name.split(' ')[0] ?? '') && world.now - at < RECORDED_MS) failures.delete(name)
    }
  }

  /** The undo of a worker waits for an effect that runs in a living process, and is told that one has succeeded there. */
  function judgeWait(run: Run, { key, running, succeeded }: Undoable, ran: 'yes' | 'maybe'): void {
    const mustWait = world.now - (endedAt.get(run.call.id) ?? Number.NEGATIVE_INFINITY) < AWAITED_MS
    const other = [...running].find((one) => isWell(one.process, world.now) && (mustWait || one === run))
    // One that has an outcome may run once more, in a process that has lost its task.
    check('undo waits', ran === 'yes' || !other, () => `${run.id} undoes ${key} while ${other?.id} runs it`)
    // Where branches run side by side, one whose result cannot be recorded any more stops the run before another has ended.
    const isParallel = has(run.call.releases[run.release as 0 | 1], ({ op }) => PARALLEL.has(op))
    if (!succeeded || isParallel || !isWell(succeeded.process, succeeded.at)) return
    const isKnown = mustWait || world.now - succeeded.at > OUTCOME_CROSSINGS * replyMs
    check('undo knows', !isKnown || ran === 'yes', () => `${run.id} does not know that ${key} has run`)
  }

  function judgeApproval(run: Run, value: string, { text, quorum }: NonNullable<About['approval']>): void {
    const cast = votes.get(text) ?? new Map<string, boolean>()
    if (value === '!ApprovalDenied') {
      const denied = [...cast].some(([person, approves]) => !approves && person !== run.call.principal)
      return check('approval', denied, () => `${run.id} was denied ${text}, and nobody did`)
    }
    if (value.startsWith('!')) return check('approval', false, () => `${run.id} got ${value} for ${text}`)
    const people = new Set(value.split('+'))
    const fits = people.size >= quorum && [...people].every((person) => cast.get(person) === true)
    check('approval', fits, () => `${run.id} was approved by ${value}; the votes are ${[...cast]}`)
    check('approval', !people.has(run.call.principal), () => `${run.id} was approved by its caller`)
  }

  function isLeft({ happened, undone }: Undoable): boolean {
    return happened && !undone
  }

  /** The effects of a run that ended well are there to stay, or were undone by the program. */
  function keep(run: Run): void {
    const program = run.call.releases[run.release as 0 | 1]
    const undoes = program.some(({ op }) => op === 'undo')
    for (const { key, effectKey = '' } of run.seen) {
      const one = undoables.get(effectKey)
      if (!one) continue
      if (undoes) given.add(one)
      else {
        kept.add(effectKey)
        check('undo kept', !one.undone, () => `${run.id} ended well, and ${key} was undone`)
      }
    }
  }

  /** Every release gets to this effect with the same results: a new one may have lost the function that undoes another. */
  function isReached({ call, key }: Undoable): boolean {
    return !changes || common.get(call.id)?.has(key) === true
  }

  /** Effects that have to be undone and are not. */
  function leftovers(): Undoable[] {
    return [...undoables.values()].filter((one) => {
      const { call } = one
      if (!isReached(one)) return false
      if (given.has(one)) return isLeft(one)
      if (endings.get(call.id) !== 'without success' || !isLeft(one)) return false
      // A task whose client is gone may have ended well.
      return !(runs.get(call.id) ?? []).some(({ digest }) => digest !== undefined && !digest.startsWith('!'))
    })
  }

  function judgeAnswer(run: Run, key: string, value: string, kind: AskKind | undefined, text: string): void {
    const { call, request } = run
    run.received.set(key, value)
    const plain = value === '!declined' ? 'decline' : value
    const branches = request ? [request.branch] : call.habits.has('fork') ? ['', 'b'] : ['']
    const possible = branches.map((branch) =>
      answerTo(call.id, branch, text, kind === 'confirm' ? 'boolean' : 'string'),
    )
    // The client answers again, with something else: that is the first answer if the other one was lost.
    const again = kind === 'confirm' ? String(possible[0] !== 'true') : 'late'
    const fits =
      possible.includes(plain) ||
      (branches[0] === 'b' && plain === answerTo(call.id, '', text, 'string')) ||
      (unanswered.has(`${call.id} ${text}`) && plain === again)
    check('answer', fits, () => `${run.id} got ${value} for ${text}, to which ${possible} was answered`)
  }
}

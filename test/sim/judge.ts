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
 * judge 8: The result of a call is that of an uninterrupted run, and every call ends.
 */

import type { CallPlan, Plan } from './plan.ts'
import { type AskKind, type Program, rerun, type Seen } from './program.ts'
import { hashText, type Process, type World } from './world.ts'

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
  readonly release: number
  readonly process: Process
  readonly at: number
  /** Absent in a task. */
  readonly request: Sent | undefined
  /** The run that sealed the state of the request. */
  readonly parent: Run | undefined
  readonly seen: Result[]
  /** Effects that the handler has called. */
  readonly called: Set<string>
  /** Work that ended before the reply left. */
  readonly done: Set<string>
  /** The answers that the handler has received, by key. */
  readonly received: Map<string, string>
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
}

export interface Judge {
  /** Each begins with the name of a check. */
  readonly problems: string[]
  /** What was checked, by name: a judge that saw nothing proves nothing. */
  readonly checks: Map<string, number>
  begin(call: CallPlan, flow: string, release: number, request: Sent | undefined): Run
  saw(run: Run, seen: Seen, about: About): void
  /** An operation begins outside: a step, or an effect with its key. */
  works(run: Run, key: string, effectKey: string | undefined, branch: string, once: boolean): void
  /** A step or an effect has ended. */
  worked(run: Run, key: string, effectKey?: string): void
  returned(run: Run, digest: string): void
  replied(sent: Sent, message: Message): void
  restored(): void
  /** A client has got the result of its call. */
  ended(sent: Pick<Sent, 'call' | 'branch'>, message: Message): Promise<void>
  /** The client has an acknowledgement for this answer. */
  acknowledged(call: CallPlan, branch: string, key: string, text: string, value: string): void
  /** A client is asked. `since`: the acknowledgements it had when it sent the request. */
  asked(call: CallPlan, branch: string, key: string, text: string, since: number): void
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

/** No lease and no hold of a process that stood still this long ago can be left. */
const STALE_MS = 120_000

export function createJudge(world: World, plan: Plan): Judge {
  const problems: string[] = []
  const checks = new Map<string, number>()
  const sealed = new Map<string, Run>()
  const runs = new Map<string, Run[]>()
  /** Results that tasks have recorded, by flow. */
  const recorded = new Map<string, Journal>()
  const keys = new Map<string, string>()
  const effects = new Map<string, string>()
  const once = new Map<string, { running: Set<Run>; seen: boolean }>()
  const replies = new Map<string, { answers: string; reply: string }>()
  const acknowledgements = new Map<string, { value: string; number: number }>()
  const texts = new Map<string, Set<string>>()
  const unreliable = plan.noise.storeFails > 0 || plan.faults.some(({ kind }) => kind === 'crash')
  let acknowledged = 0
  let restoredAt = Number.POSITIVE_INFINITY
  const sealedAt = new Map<string, number>()

  const fail = (problem: string): void => {
    if (problems.length < 20) problems.push(`${problem} (${((world.now % 86_400_000) / 1000).toFixed(3)} s)`)
  }
  const check = (name: string, holds: boolean, problem: () => string): void => {
    checks.set(name, (checks.get(name) ?? 0) + 1)
    if (!holds) fail(`${name}: ${problem()}`)
  }
  /** The process may act on what is no longer true: it stood still, or a fault of the store cost it a lease. */
  const mayBeStale = (process: Process): boolean => unreliable || world.now - process.frozenUntil < STALE_MS
  const journalOf = (flow: string): Journal => {
    const known: Journal = recorded.get(flow) ?? { results: new Map(), order: [], release: undefined }
    recorded.set(flow, known)
    return known
  }
  const usesOnce = (program: Program): boolean => JSON.stringify(program).includes('"once":true')

  return {
    problems,
    checks,
    fail,
    begin(call, flow, release, request) {
      const process = world.current as Process
      const id = `${call.id}#${(runs.get(call.id) ?? []).length}`
      const parent = request?.state === undefined ? undefined : sealed.get(request.state)
      const run: Run = {
        ...{ id, call, flow, release, process, request, parent },
        at: world.now,
        seen: [],
        called: new Set(),
        done: new Set(),
        received: new Map(),
        replied: false,
      }
      const before = runs.get(call.id) ?? []
      runs.set(call.id, [...before, run])
      const hostile = request?.hostile
      check('bound', hostile === undefined, () => `${run.id} runs on a state that was sent with ${hostile}`)
      if (request?.state === undefined || call.tool !== 'single') return run
      const { state } = request
      const other = before.find(
        (one) =>
          one.request?.state === state && !one.replied && one.process.alive && !mayBeStale(one.process),
      )
      check('held', other === undefined, () => `${run.id} runs while ${other?.id} processes the same state`)
      check(
        'epoch',
        (sealedAt.get(state) ?? world.now) >= restoredAt || request.sentAt < restoredAt,
        () => `${run.id} runs on a state of an epoch that has ended`,
      )
      return run
    },
    saw(run, { key, value, derived = false }, { kind, text, branch }) {
      const result: Result = {
        key,
        value,
        text,
        effect: branch !== undefined,
        release: run.release,
        at: world.now,
      }
      const slot = once.get(keys.get(`${run.call.id} ${key} ${branch}`) ?? '')
      if (slot) slot.seen = true
      const place = run.seen.length
      run.seen.push(result)
      if (text !== undefined && !key.endsWith('.peek')) judgeAnswer(run, key, value, kind, text)
      const isSame = (one: Result): boolean => one.text === text && (!derived || one.release === run.release)
      const before = run.parent?.seen ?? []
      if (run.request) {
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
      const journal = journalOf(run.flow)
      // Another release may ask in another order: from then on only recorded values are compared.
      if (journal.release !== run.release) journal.release = journal.release === undefined ? run.release : -1
      const isMixed = journal.release === -1
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
    works(run, key, effectKey, branch, isOnce) {
      const stale = mayBeStale(run.process)
      const past = run.request ? (run.parent?.seen ?? []) : [...journalOf(run.flow).results.values()]
      const known = past.filter(({ at }) => run.request || (at < run.at && !stale))
      const again = known.some((one) => one.key === key) || run.parent?.done.has(key)
      check('acknowledged', !again, () => `${run.id} runs ${key} again, whose result was recorded`)
      if (effectKey === undefined) return
      const skipped = known.find((one) => one.effect && !run.called.has(one.key))
      check('diverged', !skipped, () => `${run.id} begins ${key} although it has not reached ${skipped?.key}`)
      const anchored = run.request === undefined || run.request.state !== undefined
      check('anchored', anchored, () => `${run.id} begins ${key} in the first round of its flow`)
      const logical = `${run.call.id} ${key} ${branch}`
      const keyBefore = keys.get(logical) ?? effectKey
      keys.set(logical, effectKey)
      check(
        'same key',
        keyBefore === effectKey,
        () => `${run.id} runs ${key} under ${effectKey} after ${keyBefore}`,
      )
      const effectBefore = effects.get(effectKey) ?? logical
      effects.set(effectKey, logical)
      check(
        'own key',
        effectBefore === logical,
        () => `${run.id} runs ${logical} under the key of ${effectBefore}`,
      )
      if (!isOnce) return
      const slot = once.get(effectKey) ?? { running: new Set(), seen: false }
      once.set(effectKey, slot)
      check('once', !slot.seen || stale, () => `${run.id} runs ${key} again, whose result was stored`)
      const other = [...slot.running].find((one) => one.process.alive && !mayBeStale(one.process))
      check('once', !other, () => `${run.id} runs ${key} while ${other?.id} does`)
      slot.running.add(run)
    },
    worked(run, key, effectKey = '') {
      if (!run.replied) run.done.add(key)
      once.get(effectKey)?.running.delete(run)
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
        // A second run of the same state may have lost to the first, whose reply this is.
        const alone = (runs.get(call.id) ?? []).filter((run) => run.request?.state === state).length === 1
        if (own && (call.tool !== 'single' || alone)) sealed.set(token, own)
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
      const changed = plan.faults.some(({ kind }) => kind === 'deploy')
      const restored = restoredAt <= world.now && (call.tool === 'single' || call.releases.some(usesOnce))
      const refusedFork = call.tool === 'single' && call.habits.has('fork')
      if (error || result?.isError) {
        const why = error?.message ?? JSON.stringify(result?.content)
        // A task fails after five turns in a row that died with nothing recorded.
        const deaths = plan.faults.filter(
          ({ kind }) => kind === 'kill' || kind === 'freeze' || kind === 'crash',
        ).length
        if (why === 'The task could not be finished' && deaths >= 5) return
        check('ends well', changed || restored || refusedFork, () => `${call.id}${branch} ends with ${why}`)
        return
      }
      const [block] = (result?.content ?? []) as readonly { readonly text?: string }[]
      const [id, digest] = String(block?.text).split(' ')
      const run = (runs.get(call.id) ?? []).find((one) => one.id === id)
      check(
        'result',
        run?.digest === digest,
        () => `${call.id} ends with ${block?.text}, not with ${run?.digest}`,
      )
      if (!run) return
      const { digest: plain, problem } = await rerun(run.call.releases[run.release as 0 | 1], run.seen)
      check('result', plain === digest, () => `${run.id} ends with ${digest}: ${problem ?? plain}`)
    },
    acknowledged(call, branch, key, text, value) {
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

  function judgeAnswer(run: Run, key: string, value: string, kind: AskKind | undefined, text: string): void {
    const { call, request } = run
    run.received.set(key, value)
    const plain = value === '!declined' ? 'decline' : value
    const branches = request ? [request.branch] : call.habits.has('fork') ? ['', 'b'] : ['']
    const possible = branches.map((branch) =>
      answerTo(call.id, branch, text, kind === 'confirm' ? 'boolean' : 'string'),
    )
    const fits =
      possible.includes(plain) || (branches[0] === 'b' && plain === answerTo(call.id, '', text, 'string'))
    check('answer', fits, () => `${run.id} got ${value} for ${text}, to which ${possible} was answered`)
  }
}

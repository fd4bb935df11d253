/**
 * The way of an approval through a run. A hook waits for the decision, a step makes the request durable, and another reads the
 * decision when the hook was woken. The event of the hook only wakes: who decided, and whether that still holds, is asked of
 * the approver, and recorded.
 *
 * approve 1: The handler goes on only after a verdict `approved` was recorded. Whatever else is found denies.
 * approve 2: Names in the journal contain the digest of everything that is shown. A reworded request has other names, so it is
 *            asked again, and a decision about the earlier words is never read.
 * approve 3: A decision that became void before it was used is not used: the request waits again, under another hook.
 */

import { ApprovalDenied, ApprovalExpired, EventExpired, misuse, RondoError } from '../errors.ts'
import { canonicalJson, isRecord } from '../lib/json.ts'
import { defineOptions, type OptionsOf, unchecked } from '../options.ts'
import type { Approval, ApprovalOptions, ApprovalVerdict, Decision } from '../tool/approval.ts'
import { leaveFor, openHook } from './hook.ts'
import type { Approvals, AskedApproval } from './input.ts'
import { type RunState, takeName } from './run-state.ts'
import { checkDuration } from './wait.ts'
import { whyNotJson, work } from './work.ts'

const OPTIONS = defineOptions('approve', {
  from: unchecked(),
  message: unchecked(),
  details: unchecked(),
  within: unchecked(),
  quorum: unchecked(),
  denials: unchecked(),
  allowSelf: unchecked(),
  escalate: unchecked(),
  remind: unchecked(),
  passNote: unchecked(),
} satisfies OptionsOf<ApprovalOptions>)

const DAY_MS = 86_400_000
const MIN_REMIND_MS = 60_000
/** A hook and its event are recorded under longer names. */
const MAX_KEY = 64
const MAX_TEXT = 4_000
const MAX_GROUPS = 20
const MAX_QUORUM = 50
/** A decision that becomes void again and again. */
const MAX_ATTEMPTS = 20
/** Wordings of one request in a flow. */
const MAX_WORDINGS = 3

export async function approve(run: RunState, key: string, options: ApprovalOptions): Promise<Approval> {
  const { withinMs, ...asked } = readOptions(key, options)
  const { hooks, approvals } = run
  if (!hooks || !approvals) return leaveFor(run, `the approval "${key}"`, `approval:${key}`)
  if (!approvals.available()) {
    const detail = `Nobody can be asked for the approval "${key}": pass createApprovals(…) of @rondo/approvals to server.use, or to rondo.use on an official server.`
    run.turn.refuse(new RondoError('SERVER_NO_APPROVER', detail))
    return new Promise(() => {})
  }
  const { escalate: _, remindMs: __, ...shown } = asked
  const id = run.platform.digest(canonicalJson([approvals.bound, run.flow, key, shown]))
  const name = `approval:${key}:${id.slice(0, 12)}`
  if (!takeName(run, `approval:${key}`, 'hook')) return new Promise(() => {})
  refuseRewording(run, key, name)
  let until = Number.POSITIVE_INFINITY
  for (let attempt = 1; attempt <= MAX_ATTEMPTS; attempt++) {
    const hookName = `${name}:${attempt}`
    // All hooks of a request close when the first one does.
    const within = Math.min(withinMs, Math.max(0, until - run.platform.now()))
    const hook = await openHook(run, hookName, { within })
    until = (await work(run, 'step', `${hookName}:asked`, async () => {
      const closes = run.record.deadline(`${hookName}.received`) ?? run.platform.now() + within
      await approvals.open(id, { ...asked, key, attempt, hook: hook.id, until: closes })
      return closes
    })) as number
    approvals.waits(
      hookName,
      `Waiting for approval by ${asked.from.join(', ')}, until ${new Date(until).toISOString()}`,
    )
    const expired = await hook.received().then(
      () => false,
      (error) => {
        if (error instanceof EventExpired) return true
        throw error
      },
    )
    const verdict = (await work(run, 'step', `${hookName}:used`, () =>
      approvals.use(id, attempt, expired),
    )) as ApprovalVerdict
    if (verdict.kind === 'reopened' && !expired) continue
    return conclude(key, verdict, approvals)
  }
  approvals.learned(key, 'denied')
  throw new ApprovalExpired(key)
}

function conclude(key: string, verdict: ApprovalVerdict, approvals: Approvals): Approval {
  if (verdict.kind === 'approved' && verdict.by.length > 0) {
    approvals.learned(key, 'approved')
    return { by: verdict.by as readonly [Decision, ...Decision[]] }
  }
  approvals.learned(key, 'denied')
  if (verdict.kind === 'denied') throw new ApprovalDenied(key, verdict.by)
  throw new ApprovalExpired(key)
}

/** Ends the call if the same request has other words in every turn: people would be asked for ever. */
function refuseRewording(run: RunState, key: string, name: string): void {
  if (run.record.find(`${name}:1`)) return
  const prefix = `approval:${key}:`
  const wordings = run.record
    .toJournal()
    .entries.filter(
      (entry) => entry.key.startsWith(prefix) && /^[\w-]{12}:1$/.test(entry.key.slice(prefix.length)),
    )
  if (wordings.length < MAX_WORDINGS) return
  const detail = `The approval "${key}" has other words or details in every turn. Keep clocks and random values out of them.`
  run.turn.refuse(new RondoError('REPLAY_QUESTION_CHANGES', detail))
}

type ReadOptions = Omit<AskedApproval, 'attempt' | 'hook' | 'until' | 'key'> & { readonly withinMs: number }

function readOptions(key: string, options: ApprovalOptions): ReadOptions {
  const what = `The approval ${JSON.stringify(key)}`
  if (typeof key !== 'string' || key === '' || key.length > MAX_KEY || !isRecord(options))
    throw misuse(
      `ctx.approve takes a name of at most ${MAX_KEY} characters and an object: ctx.approve('deploy', { from, message }).`,
    )
  OPTIONS.assert(options, what)
  const { message, details = {}, quorum = 1, denials = 1, allowSelf = false, passNote = false } = options
  if (typeof message !== 'string' || message.trim() === '' || message.length > MAX_TEXT)
    throw misuse(`${what} needs a message of at most ${MAX_TEXT} characters.`)
  const notJson = isRecord(details) ? whyNotJson(details) : 'it is not an object'
  if (notJson !== undefined) throw misuse(`The details of ${what} must be a plain JSON object: ${notJson}.`)
  for (const [name, count] of Object.entries({ quorum, denials }))
    if (!Number.isInteger(count) || count < 1 || count > MAX_QUORUM)
      throw misuse(`${name} of ${what} must be a whole number from 1 to ${MAX_QUORUM}; got ${String(count)}.`)
  if (typeof allowSelf !== 'boolean' || typeof passNote !== 'boolean')
    throw misuse(`allowSelf and passNote of ${what} must be true or false.`)
  const { escalate, remind } = options
  return {
    from: readGroups(`from of ${what}`, options.from),
    message,
    details: details as Readonly<Record<string, unknown>>,
    quorum,
    denials,
    allowSelf,
    passNote,
    withinMs: checkDuration(`within of ${what}`, options.within ?? DAY_MS),
    ...(escalate && {
      escalate: {
        afterMs: checkDuration(`escalate.after of ${what}`, escalate.after),
        to: readGroups(`escalate.to of ${what}`, escalate.to),
      },
    }),
    ...(remind !== undefined && { remindMs: readRemind(`remind of ${what}`, remind) }),
  }
}

function readRemind(what: string, given: unknown): number {
  const ms = checkDuration(what, given)
  if (ms >= MIN_REMIND_MS) return ms
  throw misuse(`${what} must be at least a minute: it is how often approvers get a message.`)
}

function readGroups(what: string, given: unknown): readonly string[] {
  const groups = typeof given === 'string' ? [given] : given
  const isGroup = (one: unknown): boolean => typeof one === 'string' && /^[^\p{C}]{1,200}$/u.test(one)
  if (Array.isArray(groups) && groups.length > 0 && groups.length <= MAX_GROUPS && groups.every(isGroup))
    return groups
  throw misuse(`${what} must be the name of a group, or a list of up to ${MAX_GROUPS} names.`)
}

/**
 * Tries on a server's `requestState` what an attacker would try, in this order: read it, modify it, encode it differently,
 * and use it with other arguments, with another tool, as another user, twice, or too late. A careful server shows nothing
 * to the first and refuses the others.
 */

import type { Client, Tool, ToolRequest } from 'rondo/client'
import { sleep, systemClock } from 'rondo/internal'
import {
  type AttackOutcome,
  attempt,
  begin,
  type CheckId,
  type DoctorFinding,
  decline,
  fail,
  type ProbeTarget,
  pass,
  skip,
  type ToolRound,
  warn,
} from './probe.ts'
import { expiryOf, forgeries, readState, respellings, varyArguments } from './tamper.ts'

interface StateExam extends ProbeTarget {
  readonly tool: Tool
  /** Other arguments for the same tool; derived from the schema unless given. */
  readonly otherArguments?: Readonly<Record<string, unknown>>
  /** Another tool that asks. */
  readonly otherTool?: ToolRequest
  /** The server, connected to as another user. */
  readonly otherUser?: Client
  /** The time to wait before using a state, to see it expire. */
  readonly waitMs?: number
  readonly now: () => number
}

interface Exam extends StateExam {
  /** A first round with a state. */
  readonly first: ToolRound
  /** The outcome of declining a question with a genuine state. */
  readonly honest: AttackOutcome
  /** The outcomes of all attacks. */
  readonly seen: AttackOutcome[]
}

interface AttackNotes {
  readonly id: CheckId
  /** The attempt, as in "other arguments". */
  readonly tried: string
  /** The problem if the server accepts it. */
  readonly fault: string
  readonly advice: string
  /** The verdict if the server accepts it. Default: fail. */
  readonly accepted?: 'warn' | 'fail'
}

const HUGE = 256 * 1024

/** A declined call that ends with an error. One that blames the state is refused for an unaltered one: no call can be finished. */
function judgeNo(message: string): DoctorFinding {
  if (/requestState/i.test(message))
    return fail(
      'state-no',
      `a genuine state is refused: ${message}`,
      'If several instances serve this address, give all of them the same keys and the same name.',
    )
  const advice = 'End a declined call with a result, not with an error.'
  return warn('state-no', `declining leads to an error: ${message}`, advice)
}

export async function checkState(given: StateExam): Promise<DoctorFinding[]> {
  const first = await begin(given, given.request)
  if (typeof first === 'string') {
    return [
      skip('state', first, 'Name a tool that asks, and arguments that make it ask: --tool NAME name=value'),
    ]
  }
  const honest = await decline(given, first)
  if (honest.kind === 'refused' || honest.kind === 'broken') {
    return [judgeNo(honest.message), skip('state', 'a genuine response cannot be told apart from an attack')]
  }
  const exam: Exam = { ...given, first, honest, seen: [] }
  const findings: DoctorFinding[] =
    first.round > 1 ? [pass('state', `first appears in round ${first.round}`)] : []
  for (const [id, check] of ATTACKS) findings.push(...(await attempt(id, exam.signal, () => check(exam))))
  const refusals = judgeRefusals(exam.seen)
  return refusals === undefined ? findings : [...findings, refusals]
}

const ATTACKS: readonly [CheckId, (exam: Exam) => Promise<DoctorFinding | readonly DoctorFinding[]>][] = [
  ['state-no', checkNo],
  ['state-readable', async (exam) => checkReadable(exam)],
  ['state-tampered', checkTampered],
  ['state-arguments', checkArguments],
  ['state-tool', checkOtherTool],
  ['state-user', checkOtherUser],
  ['state-replay', checkReplay],
  ['state-expiry', checkExpiry],
  ['state-size', checkHuge],
]

/** A server must accept that a question is declined, and must not repeat it. */
async function checkNo(exam: Exam): Promise<DoctorFinding> {
  let outcome = exam.honest
  let times = 0
  while (outcome.kind === 'asks' && outcome.again && times < 3) {
    times += 1
    outcome = await decline(exam, outcome.pending)
  }
  if (times === 0) return pass('state-no', 'a declined question is not asked again')
  const detail = `a declined question is asked again${times > 1 ? ` (${times} times)` : ''}`
  const advice = 'End the call when the user declines; do not repeat the question.'
  return times > 1 ? fail('state-no', detail, advice) : warn('state-no', detail, advice)
}

const HOW = {
  json: 'it is plain JSON',
  base64: 'it is JSON in base64',
  part: 'one part of it is JSON in base64, perhaps signed, but not encrypted',
  text: 'it is plain text',
} as const

function checkReadable({ first }: Exam): DoctorFinding {
  const readable = readState(first.state ?? '')
  if (readable === undefined) return pass('state-readable', 'its content is not readable')
  return warn(
    'state-readable',
    `anyone who holds the state can read it: ${HOW[readable.how]}`,
    'Encrypt the state, or leave out what the client must not know.',
  )
}

async function checkTampered(exam: Exam): Promise<DoctorFinding[]> {
  const { honest } = exam
  const first = await freshRound(exam)
  const state = first.state ?? ''
  const tryAll = async (states: readonly string[]): Promise<AttackOutcome[]> => {
    const outcomes: AttackOutcome[] = []
    for (const one of states) outcomes.push(await attack(exam, { ...first, state: one }))
    return outcomes
  }
  const changed = judge(
    {
      id: 'state-tampered',
      tried: 'a modified state',
      fault: 'a modified state is accepted',
      advice: 'Seal or sign the state, and refuse one that does not verify.',
    },
    await tryAll(forgeries(state, readState(state))),
    honest,
  )
  if (changed.verdict === 'fail') return [changed, skip('state-spelling', 'the state is not protected')]
  const spelling = judge(
    {
      id: 'state-spelling',
      tried: 'the same state in another encoding',
      fault: 'another encoding of the same state is accepted',
      advice: 'Decode strictly: encode the content again and compare it with the state.',
      accepted: 'warn',
    },
    await tryAll(respellings(state, readState(state))),
    honest,
  )
  return [changed, spelling]
}

async function checkArguments(exam: Exam): Promise<DoctorFinding> {
  const { request, tool, otherArguments } = exam
  const args = request.arguments ?? {}
  const variants = otherArguments ? [otherArguments] : varyArguments(args, tool.inputSchema)
  if (variants.length === 0)
    return skip('state-arguments', `${tool.name} has no arguments that can be varied`)
  for (const variant of variants) {
    const other = { ...request, arguments: variant }
    // If the tool refuses these arguments anyway, the attack would prove nothing.
    if (typeof (await begin(exam, other)) === 'string') continue
    const outcome = await attack(exam, { ...(await freshRound(exam)), request: other })
    const notes: AttackNotes = {
      id: 'state-arguments',
      tried: 'a state used with other arguments',
      fault: 'a state is accepted with other arguments than it was issued for',
      advice: 'Bind the state to a digest of the arguments, so that only what was confirmed is done.',
    }
    return judge(notes, [outcome], exam.honest)
  }
  return skip(
    'state-arguments',
    'no other arguments make the tool ask',
    'Pass some that do: --other name=value',
  )
}

async function checkOtherTool(exam: Exam): Promise<DoctorFinding> {
  const { otherTool } = exam
  const advice = 'Name another tool that asks: --other-tool NAME, with --other-tool-arg name=value'
  if (otherTool === undefined) return skip('state-tool', 'no other tool was named', advice)
  const own = await begin(exam, otherTool)
  if (typeof own === 'string') return skip('state-tool', own, advice)
  const { questions } = own
  const forged = { ...(await freshRound(exam)), request: otherTool, questions }
  const notes: AttackNotes = {
    id: 'state-tool',
    tried: 'a state used with another tool',
    fault: `a state of ${exam.request.name} is accepted by ${otherTool.name}`,
    advice: 'Bind the state to the method and the name of the tool.',
  }
  return judge(notes, [await attack(exam, forged)], exam.honest)
}

async function checkOtherUser(exam: Exam): Promise<DoctorFinding> {
  const { otherUser } = exam
  if (otherUser === undefined) {
    return skip(
      'state-user',
      'no second user was given',
      'Pass the headers of another user: --other-header "Name: value"',
    )
  }
  const notes: AttackNotes = {
    id: 'state-user',
    tried: 'a state used by another user',
    fault: 'a state of one user is accepted from another',
    advice: 'Bind the state to the authenticated principal.',
  }
  return judge(
    notes,
    [await attack(exam, await freshRound(exam), { ...exam, client: otherUser })],
    exam.honest,
  )
}

/** Sends the same request twice: it must be refused or lead to the same result, since a client resends a state after a lost response. */
async function checkReplay(exam: Exam): Promise<DoctorFinding> {
  const asked = await begin(exam, exam.request)
  if (typeof asked === 'string') return skip('state-replay', asked)
  const first = await decline(exam, asked)
  const second = await decline(exam, asked)
  if (second.kind === 'refused') return pass('state-replay', 'a state is accepted only once')
  if (second.kind === 'broken') {
    return warn(
      'state-replay',
      `sent twice, the second response is invalid: ${second.message}`,
      'Return the same result for a repeated request.',
    )
  }
  if (resultOf(first) === resultOf(second))
    return pass('state-replay', 'sent twice, it leads to the same result')
  const advice = 'Return the same result for a repeated request, or accept a state only once.'
  return warn('state-replay', 'sent twice, it leads to different results', advice)
}

function resultOf(outcome: AttackOutcome): string {
  if (outcome.kind === 'complete') return outcome.result
  return outcome.kind === 'asks' ? JSON.stringify(outcome.pending.questions) : outcome.kind
}

const DAY_MS = 24 * 60 * 60 * 1000

async function checkExpiry(exam: Exam): Promise<DoctorFinding> {
  const { first, waitMs, now, signal } = exam
  if (waitMs !== undefined) return waitAndSend(exam, waitMs, signal)
  const readable = readState(first.state ?? '')
  if (readable === undefined) {
    return skip('state-expiry', 'the lifetime is not visible', 'To see the state expire: --wait SECONDS')
  }
  const ends = expiryOf(readable.value)
  const advice = 'Let the state expire after minutes or hours.'
  if (ends === undefined) return warn('state-expiry', 'the state has no expiry time', advice)
  const left = ends - now()
  const detail = `the state expires in ${Math.round(left / 1000)} s`
  return left > DAY_MS ? warn('state-expiry', detail, advice) : pass('state-expiry', detail)
}

async function waitAndSend(exam: Exam, waitMs: number, signal: AbortSignal): Promise<DoctorFinding> {
  const asked = await begin(exam, exam.request)
  if (typeof asked === 'string') return skip('state-expiry', asked)
  await sleep(systemClock, waitMs, signal)
  const notes: AttackNotes = {
    id: 'state-expiry',
    tried: `a state ${waitMs / 1000} s old`,
    fault: `a state is still accepted after ${waitMs / 1000} s`,
    advice: 'If this is too long for your users, let the state expire sooner.',
    accepted: 'warn',
  }
  return judge(notes, [await attack(exam, asked)], exam.honest)
}

async function checkHuge(exam: Exam): Promise<DoctorFinding> {
  const outcome = await decline(exam, { ...exam.first, state: 'A'.repeat(HUGE) })
  const alive = typeof (await begin(exam, exam.request)) !== 'string'
  const detail = `a state of ${HUGE / 1024} KiB`
  const advice = 'Limit the size of what is read and decoded.'
  if (!alive) return fail('state-size', `the server stops working after ${detail}`, advice)
  if (isAccepted(outcome, exam.honest)) return warn('state-size', `${detail} is not refused`, advice)
  return pass('state-size', `${detail} is refused`)
}

/** True if the server continued from the state. `honest` is what it does with a genuine one. */
function isAccepted(outcome: AttackOutcome, honest: AttackOutcome): boolean {
  if (outcome.kind === 'asks') return !outcome.again || (honest.kind === 'asks' && honest.again)
  return outcome.kind === 'complete' && !isAccident(outcome, honest)
}

/** True if the tool failed because of the state: not accepted, but only by chance. */
function isAccident(outcome: AttackOutcome, honest: AttackOutcome): boolean {
  if (outcome.kind !== 'complete' || !outcome.isError) return false
  return honest.kind !== 'complete' || outcome.result !== honest.result
}

/** Judges a group of attacks, each of which must be refused. */
function judge(notes: AttackNotes, outcomes: readonly AttackOutcome[], honest: AttackOutcome): DoctorFinding {
  const { id, tried, fault, advice } = notes
  const accepted = outcomes.filter((outcome) => isAccepted(outcome, honest)).length
  if (accepted > 0) {
    const detail = outcomes.length === 1 ? fault : `${fault} (${accepted} of ${outcomes.length} tries)`
    return (notes.accepted === 'warn' ? warn : fail)(id, detail, advice)
  }
  const broken = outcomes.find((outcome) => outcome.kind === 'broken')
  if (broken !== undefined || outcomes.some((outcome) => isAccident(outcome, honest))) {
    const detail = `${tried}: ${broken?.message ?? 'the tool failed'}`
    return warn(id, detail, 'Refuse an invalid state with a JSON-RPC error.')
  }
  if (outcomes.some((outcome) => outcome.kind === 'asks')) {
    return warn(id, `${tried}: not refused; the call started over`, 'Refuse an invalid state with an error.')
  }
  return pass(id, `${tried}: refused${outcomes.length > 1 ? ` (${outcomes.length} tries)` : ''}`)
}

/** Different refusals tell an attacker which checks a state has passed. */
function judgeRefusals(outcomes: readonly AttackOutcome[]): DoctorFinding | undefined {
  const refusals = outcomes.filter((outcome) => outcome.kind === 'refused')
  if (refusals.length < 2) return undefined
  const texts = new Set(refusals.map(({ code, message }) => `${code} ${message}`))
  if (texts.size === 1) return pass('state-errors', `all refusals are alike: ${[...texts][0]}`)
  return warn(
    'state-errors',
    `refusals differ: ${[...texts].join(' / ')}`,
    'Use one error for every reason, and write the reason to your log only.',
  )
}

/** A first round with an unused state: one that the server accepts only once would be refused for the wrong reason. */
async function freshRound(exam: Exam): Promise<ToolRound> {
  const asked = await begin(exam, exam.request)
  return typeof asked === 'string' ? exam.first : asked
}

/** Sends one forged call and records the outcome. */
async function attack(exam: Exam, forged: ToolRound, target: ProbeTarget = exam): Promise<AttackOutcome> {
  const outcome = await decline(target, forged)
  exam.seen.push(outcome)
  return outcome
}

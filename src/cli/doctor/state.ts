/**
 * What an attacker would try on the `requestState` of a server, in order: read it, change it, spell it differently, use it
 * for other arguments, another tool, another user, twice, too late. A server that is careful refuses all but the first, and
 * shows nothing there.
 */

import type { Client } from '../../client/client.ts'
import type { ToolRequest } from '../../client/pending.ts'
import { sleep, systemClock } from '../../lib/clock.ts'
import type { Tool } from '../../protocol/wire.ts'
import { type AskedRound, type AttackOutcome, begin, type Patient, sendNo } from './patient.ts'
import { attempt, type Finding, fail, pass, skip, warn } from './report.ts'
import { expiryOf, forgeries, readState, respellings, varyArguments } from './tamper.ts'

const HUGE = 256 * 1024

export async function checkState(given: StateExam): Promise<Finding[]> {
  const first = await begin(given, given.request)
  if (typeof first === 'string') {
    return [
      skip('state', first, 'Name a tool that asks, and arguments that make it ask: --tool NAME name=value'),
    ]
  }
  const honest = await sendNo(given, first)
  if (honest.kind === 'refused' || honest.kind === 'broken') {
    const advice = 'End a declined call with a result, not with an error.'
    return [
      warn('state-no', `declining leads to an error: ${honest.message}`, advice),
      skip('state', 'an honest response cannot be told from an attack'),
    ]
  }
  const exam: Exam = { ...given, first, honest, seen: [] }
  const findings: Finding[] = first.round > 1 ? [pass('state', `first appears in round ${first.round}`)] : []
  for (const [id, check] of CHECKS) findings.push(...(await attempt(id, exam.signal, () => check(exam))))
  const refusals = judgeRefusals(exam.seen)
  return refusals === undefined ? findings : [...findings, refusals]
}

const CHECKS: readonly [string, (exam: Exam) => Promise<Finding | readonly Finding[]>][] = [
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

/** A no must count: the same question again is a question too many. */
async function checkNo(exam: Exam): Promise<Finding> {
  let outcome = exam.honest
  let times = 0
  while (outcome.kind === 'asks' && outcome.again && times < 3) {
    times += 1
    outcome = await sendNo(exam, outcome.pending)
  }
  if (times === 0) return pass('state-no', 'a declined question is not asked again')
  const detail = `a declined question is asked again${times > 1 ? ` (${times} times)` : ''}`
  const advice = 'End the call when the user declines; do not repeat the question.'
  return times > 1 ? fail('state-no', detail, advice) : warn('state-no', detail, advice)
}

async function checkTampered(exam: Exam): Promise<Finding[]> {
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
      tried: 'modified state',
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
      taken: 'warn',
    },
    await tryAll(respellings(state, readState(state))),
    honest,
  )
  return [changed, spelling]
}

async function checkArguments(exam: Exam): Promise<Finding> {
  const { request, tool, otherArguments } = exam
  const args = request.arguments ?? {}
  const variants = otherArguments ? [otherArguments] : varyArguments(args, tool.inputSchema)
  if (variants.length === 0)
    return skip('state-arguments', `${tool.name} has no arguments that can be varied`)
  for (const variant of variants) {
    const other = { ...request, arguments: variant }
    // Refused by itself, it would prove nothing.
    if (typeof (await begin(exam, other)) === 'string') continue
    const outcome = await attack(exam, { ...(await freshRound(exam)), request: other })
    const notes = {
      id: 'state-arguments',
      tried: 'state used with other arguments',
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

async function checkOtherTool(exam: Exam): Promise<Finding> {
  const { otherTool } = exam
  const advice = 'Name another tool that asks: --other-tool NAME, with --other-tool-arg name=value'
  if (otherTool === undefined) return skip('state-tool', 'no other tool was named', advice)
  const own = await begin(exam, otherTool)
  if (typeof own === 'string') return skip('state-tool', own, advice)
  const { questions } = own
  const forged = { ...(await freshRound(exam)), request: otherTool, questions }
  const notes = {
    id: 'state-tool',
    tried: 'state used with another tool',
    fault: `a state of ${exam.request.name} is accepted by ${otherTool.name}`,
    advice: 'Bind the state to the method and the name of the tool.',
  }
  return judge(notes, [await attack(exam, forged)], exam.honest)
}

async function checkOtherUser(exam: Exam): Promise<Finding> {
  const { otherUser } = exam
  if (otherUser === undefined) {
    return skip(
      'state-user',
      'no second user was named',
      'Pass the header of one: --other-header "Name: value"',
    )
  }
  const notes = {
    id: 'state-user',
    tried: 'state used by another user',
    fault: 'a state of one user is accepted from another',
    advice: 'Bind the state to the authenticated principal.',
  }
  return judge(
    notes,
    [await attack(exam, await freshRound(exam), { ...exam, client: otherUser })],
    exam.honest,
  )
}

async function checkHuge(exam: Exam): Promise<Finding> {
  const outcome = await sendNo(exam, { ...exam.first, state: 'A'.repeat(HUGE) })
  const alive = typeof (await begin(exam, exam.request)) !== 'string'
  const detail = `a state of ${HUGE / 1024} KiB`
  const advice = 'Limit the size of what is read and decoded.'
  if (!alive) return fail('state-size', `the server stops working after ${detail}`, advice)
  if (isTaken(outcome, exam.honest)) return warn('state-size', `${detail} is not refused`, advice)
  return pass('state-size', `${detail} is refused`)
}

const HOW = {
  json: 'it is plain JSON',
  base64: 'it is JSON in base64',
  part: 'one part of it is JSON in base64, perhaps signed, but not encrypted',
  text: 'it is plain text',
} as const

function checkReadable({ first }: Exam): Finding {
  const readable = readState(first.state ?? '')
  if (readable === undefined) return pass('state-readable', 'its content is not readable')
  return warn(
    'state-readable',
    `anyone who holds the state can read it: ${HOW[readable.how]}`,
    'Encrypt the state, or leave out what the client must not know.',
  )
}

/** The same request twice: refused, or the same answer. A state may be sent again when a reply was lost. */
async function checkReplay(exam: Exam): Promise<Finding> {
  const asked = await begin(exam, exam.request)
  if (typeof asked === 'string') return skip('state-replay', asked)
  const first = await sendNo(exam, asked)
  const second = await sendNo(exam, asked)
  if (second.kind === 'refused') return pass('state-replay', 'a state is accepted once')
  if (second.kind === 'broken') {
    return warn(
      'state-replay',
      `the second time: ${second.message}`,
      'Return the same result for a repeated request.',
    )
  }
  if (answerOf(first) === answerOf(second))
    return pass('state-replay', 'sent twice, it leads to the same result')
  const advice = 'Return the same result for a repeated request, or accept a state only once.'
  return warn('state-replay', 'sent twice, it leads to different results', advice)
}

function answerOf(outcome: AttackOutcome): string {
  if (outcome.kind === 'complete') return outcome.result
  return outcome.kind === 'asks' ? JSON.stringify(outcome.pending.questions) : outcome.kind
}

const DAY_MS = 24 * 60 * 60 * 1000

async function checkExpiry(exam: Exam): Promise<Finding> {
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

async function waitAndSend(exam: Exam, waitMs: number, signal: AbortSignal): Promise<Finding> {
  const asked = await begin(exam, exam.request)
  if (typeof asked === 'string') return skip('state-expiry', asked)
  await sleep(systemClock, waitMs, signal)
  const notes = {
    id: 'state-expiry',
    tried: `a state ${waitMs / 1000} s old`,
    fault: `a state is still accepted after ${waitMs / 1000} s`,
    advice: 'If this is too long for your users, let the state expire sooner.',
    taken: 'warn',
  } as const
  return judge(notes, [await attack(exam, asked)], exam.honest)
}

interface AttackNotes {
  readonly id: string
  /** What was tried, as in "other arguments". */
  readonly tried: string
  /** What is wrong if it was taken. */
  readonly fault: string
  readonly advice: string
  /** How bad it is if it was taken. */
  readonly taken?: 'warn' | 'fail'
}

/** The server went on from the state it was given. `honest` is what it does with a genuine one. */
function isTaken(outcome: AttackOutcome, honest: AttackOutcome): boolean {
  if (outcome.kind === 'asks') return !outcome.again || (honest.kind === 'asks' && honest.again)
  return outcome.kind === 'complete' && !isStumble(outcome, honest)
}

/** The tool failed over the state: refused after a fashion, but by chance. */
function isStumble(outcome: AttackOutcome, honest: AttackOutcome): boolean {
  if (outcome.kind !== 'complete' || !outcome.isError) return false
  return honest.kind !== 'complete' || outcome.result !== honest.result
}

/** Judges a group of attacks on the state: each must be refused. */
function judge(notes: AttackNotes, outcomes: readonly AttackOutcome[], honest: AttackOutcome): Finding {
  const { id, tried, fault, advice } = notes
  const taken = outcomes.filter((outcome) => isTaken(outcome, honest)).length
  if (taken > 0) {
    const detail = outcomes.length === 1 ? fault : `${fault} (${taken} of ${outcomes.length} tries)`
    return (notes.taken === 'warn' ? warn : fail)(id, detail, advice)
  }
  const broken = outcomes.find((outcome) => outcome.kind === 'broken')
  if (broken !== undefined || outcomes.some((outcome) => isStumble(outcome, honest))) {
    const detail = `${tried}: ${broken?.message ?? 'the tool failed'}`
    return warn(id, detail, 'Refuse an invalid state with a JSON-RPC error.')
  }
  if (outcomes.some((outcome) => outcome.kind === 'asks')) {
    return warn(id, `${tried}: not refused; the call started over`, 'Refuse an invalid state with an error.')
  }
  return pass(id, `${tried}: refused${outcomes.length > 1 ? ` (${outcomes.length} tries)` : ''}`)
}

/** Refusals that differ tell an attacker which check a state has passed. */
function judgeRefusals(outcomes: readonly AttackOutcome[]): Finding | undefined {
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

interface StateExam extends Patient {
  readonly tool: Tool
  /** Other arguments for the same tool; made up from the schema unless given. */
  readonly otherArguments?: Readonly<Record<string, unknown>>
  /** Another tool that asks. */
  readonly otherTool?: ToolRequest
  /** The same server as somebody else sees it. */
  readonly otherUser?: Client
  /** Wait this long before using a state, to see it expire. */
  readonly waitMs?: number
  readonly now: () => number
}

interface Exam extends StateExam {
  /** A first round. */
  readonly first: AskedRound
  /** What an honest no leads to. */
  readonly honest: AttackOutcome
  /** Every answer to an attack. */
  readonly seen: AttackOutcome[]
}

/** A first round whose state nobody has used yet: one that counts once would be refused for the wrong reason. */
async function freshRound(exam: Exam): Promise<AskedRound> {
  const asked = await begin(exam, exam.request)
  return typeof asked === 'string' ? exam.first : asked
}

/** Sends one forged call and remembers the answer. */
async function attack(exam: Exam, forged: AskedRound, patient: Patient = exam): Promise<AttackOutcome> {
  const outcome = await sendNo(patient, forged)
  exam.seen.push(outcome)
  return outcome
}

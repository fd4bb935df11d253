/**
 * What an attacker would try on the `requestState` of a server, in order: read it, change it, spell it differently, use it
 * for other arguments, another tool, another user, twice, too late. A server that is careful refuses all but the first, and
 * shows nothing there.
 */

import { isTaken, judge, judgeRefusals } from './attack.ts'
import { attack, type Exam, freshRound, type StateExam } from './exam.ts'
import { attempt, type Finding, fail, pass, skip, warn } from './finding.ts'
import { begin, type Outcome, sendNo } from './patient.ts'
import { readState } from './readable-state.ts'
import { checkExpiry, checkReadable, checkReplay } from './state-life.ts'
import { forgeries, respellings } from './tamper.ts'
import { varyArguments } from './vary-arguments.ts'

const HUGE = 256 * 1024

export async function checkState(given: StateExam): Promise<Finding[]> {
  const first = await begin(given, given.request)
  if (typeof first === 'string') {
    return [
      skip('state', first, 'Name a tool that asks, with arguments for which it does: --tool NAME name=value'),
    ]
  }
  const honest = await sendNo(given, first)
  if (honest.kind === 'refused' || honest.kind === 'broken') {
    const advice = 'Let a declined question end the call with a result, not with an error.'
    return [
      warn('state-no', `a no ends in an error: ${honest.message}`, advice),
      skip('state', 'an honest answer cannot be told from an attack'),
    ]
  }
  const exam: Exam = { ...given, first, honest, seen: [] }
  const findings: Finding[] = first.round > 1 ? [pass('state', `comes with round ${first.round}`)] : []
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
  if (times === 0) return pass('state-no', 'a no is taken as one')
  const detail = `a no is asked again${times > 1 ? `, and again (${times} times)` : ''}`
  const advice = 'End the call when the user declined; do not ask the same again.'
  return times > 1 ? fail('state-no', detail, advice) : warn('state-no', detail, advice)
}

async function checkTampered(exam: Exam): Promise<Finding[]> {
  const { honest } = exam
  const first = await freshRound(exam)
  const state = first.state ?? ''
  const tryAll = async (states: readonly string[]): Promise<Outcome[]> => {
    const outcomes: Outcome[] = []
    for (const one of states) outcomes.push(await attack(exam, { ...first, state: one }))
    return outcomes
  }
  const changed = judge(
    {
      id: 'state-tampered',
      tried: 'changed state',
      fault: 'a changed state is taken as genuine',
      advice: 'Seal or sign the state, and refuse what does not verify.',
    },
    await tryAll(forgeries(state, readState(state))),
    honest,
  )
  if (changed.verdict === 'fail') return [changed, skip('state-spelling', 'not protected at all')]
  const spelling = judge(
    {
      id: 'state-spelling',
      tried: 'the same state spelt differently',
      fault: 'other spellings of a state are taken as genuine',
      advice: 'Decode strictly: compare the state with what encoding its content again returns.',
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
    return skip('state-arguments', `${tool.name} takes no arguments that can be varied`)
  for (const variant of variants) {
    const other = { ...request, arguments: variant }
    // Refused by itself, it would prove nothing.
    if (typeof (await begin(exam, other)) === 'string') continue
    const outcome = await attack(exam, { ...(await freshRound(exam)), request: other })
    const notes = {
      id: 'state-arguments',
      tried: 'state used with other arguments',
      fault: 'a state works for other arguments than it was made for',
      advice: 'Bind the state to a digest of the arguments: what was confirmed is what is done.',
    }
    return judge(notes, [outcome], exam.honest)
  }
  return skip('state-arguments', 'no other arguments lead to a question', 'Give some: --other name=value')
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
    fault: `a state of ${exam.request.name} works for ${otherTool.name}`,
    advice: 'Bind the state to the method and the name of the tool.',
  }
  return judge(notes, [await attack(exam, forged)], exam.honest)
}

async function checkOtherUser(exam: Exam): Promise<Finding> {
  const { otherUser } = exam
  if (otherUser === undefined) {
    return skip(
      'state-user',
      'no second user was given',
      'Give the header of one: --other-header "Name: value"',
    )
  }
  const notes = {
    id: 'state-user',
    tried: 'state used by another user',
    fault: 'a state of one user works for another',
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
  const advice = 'Bound the size of what is read and decoded.'
  if (!alive) return fail('state-size', `${detail} stops the server`, advice)
  if (isTaken(outcome, exam.honest)) return warn('state-size', `${detail} is not refused`, advice)
  return pass('state-size', `${detail} is refused`)
}

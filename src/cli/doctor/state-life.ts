/** What a state shows to its holder, and how long and how often it can be used. */

import { sleep, systemClock } from '../../client/clock.ts'
import { judge } from './attack.ts'
import { attack, type Exam } from './exam.ts'
import { type Finding, pass, skip, warn } from './finding.ts'
import { begin, type Outcome, sendNo } from './patient.ts'
import { expiryOf, readState } from './readable-state.ts'

const HOW = {
  json: 'it is plain JSON',
  base64: 'it is JSON in base64',
  part: 'one part of it is JSON in base64, signed perhaps, but not encrypted',
  text: 'it is plain text',
} as const

export function checkReadable({ first }: Exam): Finding {
  const readable = readState(first.state ?? '')
  if (readable === undefined) return pass('state-readable', 'nothing in it can be read')
  return warn(
    'state-readable',
    `anybody who holds the state can read it: ${HOW[readable.how]}`,
    'Encrypt the state, or keep out of it what the client should not know.',
  )
}

/** The same request twice: refused, or the same answer. A state may be sent again when a reply was lost. */
export async function checkReplay(exam: Exam): Promise<Finding> {
  const asked = await begin(exam, exam.request)
  if (typeof asked === 'string') return skip('state-replay', asked)
  const first = await sendNo(exam, asked)
  const second = await sendNo(exam, asked)
  if (second.kind === 'refused') return pass('state-replay', 'a state counts once')
  if (second.kind === 'broken') {
    return warn(
      'state-replay',
      `the second time: ${second.message}`,
      'Answer a repeated request like the first.',
    )
  }
  if (answerOf(first) === answerOf(second))
    return pass('state-replay', 'sent twice, it gives the same answer')
  const advice = 'Make a repeated request give the same answer, or let a state count once.'
  return warn('state-replay', 'sent twice, it gives another answer', advice)
}

function answerOf(outcome: Outcome): string {
  if (outcome.kind === 'complete') return outcome.result
  return outcome.kind === 'asks' ? JSON.stringify(outcome.pending.questions) : outcome.kind
}

const DAY_MS = 24 * 60 * 60 * 1000

export async function checkExpiry(exam: Exam): Promise<Finding> {
  const { first, waitMs, now, signal } = exam
  if (waitMs !== undefined) return waitAndSend(exam, waitMs, signal)
  const readable = readState(first.state ?? '')
  if (readable === undefined) {
    return skip('state-expiry', 'nothing can be seen from outside', 'See it expire: --wait SECONDS')
  }
  const ends = expiryOf(readable.value)
  const advice = 'Give the state a time to live, minutes or hours, and refuse it afterwards.'
  if (ends === undefined) return warn('state-expiry', 'nothing in the state says when it ends', advice)
  const left = ends - now()
  const detail = `it says that it ends in ${Math.round(left / 1000)} s`
  return left > DAY_MS ? warn('state-expiry', detail, advice) : pass('state-expiry', detail)
}

async function waitAndSend(exam: Exam, waitMs: number, signal: AbortSignal): Promise<Finding> {
  const asked = await begin(exam, exam.request)
  if (typeof asked === 'string') return skip('state-expiry', asked)
  await sleep(systemClock, waitMs, signal)
  const notes = {
    id: 'state-expiry',
    tried: `a state ${waitMs / 1000} s old`,
    fault: `a state that is ${waitMs / 1000} s old is still taken`,
    advice: 'Give the state a time to live shorter than this, if this is too long for your users.',
    taken: 'warn',
  } as const
  return judge(notes, [await attack(exam, asked)], exam.honest)
}

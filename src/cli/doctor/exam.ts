/** An examination of the state under way: what is examined, what an honest client sees, what attacks led to. */

import type { Client } from '../../client/client.ts'
import type { ToolRequest } from '../../client/flow-request.ts'
import type { Tool } from '../../protocol/result.ts'
import { type Asked, begin, type Outcome, type Patient, sendNo } from './patient.ts'

export interface StateExam extends Patient {
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

export interface Exam extends StateExam {
  /** A first round. */
  readonly first: Asked
  /** What an honest no leads to. */
  readonly honest: Outcome
  /** Every answer to an attack. */
  readonly seen: Outcome[]
}

/** A first round whose state nobody has used yet: one that counts once would be refused for the wrong reason. */
export async function freshRound(exam: Exam): Promise<Asked> {
  const asked = await begin(exam, exam.request)
  return typeof asked === 'string' ? exam.first : asked
}

/** Sends one forged call and remembers the answer. */
export async function attack(exam: Exam, forged: Asked, patient: Patient = exam): Promise<Outcome> {
  const outcome = await sendNo(patient, forged)
  exam.seen.push(outcome)
  return outcome
}

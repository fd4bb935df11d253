import { kindOf } from '../question.ts'
import type { RoundPolicy } from '../round-policy.ts'

/** Refuses every round in which a server wants to use the client's model. */
export function refuseSampling(): RoundPolicy {
  return ({ questions }) => {
    const key = Object.keys(questions).find((one) => {
      const question = questions[one]
      return question !== undefined && kindOf(question) === 'sampling'
    })
    return key === undefined ? undefined : { kind: 'refuse', reason: `"${key}" asks for sampling` }
  }
}

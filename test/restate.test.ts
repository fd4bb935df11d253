/** The contract of engines, and what only Restate needs, on a real node of it. */

import { restateCases } from './support/restate/cases.ts'
import { describeRestate, itRuns } from './support/restate/cases-in-process.ts'

describeRestate('J3 an engine on Restate', () => {
  itRuns(
    restateCases(() => {
      throw new Error('The cases run in another process')
    }),
  )
})

/** Cases on Restate as tests: a process with a new enough Node runs them. Skipped with a warning where that is missing. */

import { type ChildProcess, fork } from 'node:child_process'
import { afterAll, describe, it } from 'vitest'
import type { ContractCase } from '../../../packages/store-kit/src/index.ts'
import { processFile } from '../process-file.ts'
import { restateNode } from './node.ts'
import { hasRestate } from './server.ts'

const canRunRestate: boolean = hasRestate && restateNode !== undefined

/** A suite that needs Restate; with `CI=true` it fails if that is missing. */
export function describeRestate(name: string, body: () => void): void {
  if (canRunRestate) return void describe(name, body)
  const missing = `${hasRestate ? 'Node 22' : 'Restate'} is missing: run scripts/ensure-restate.sh --download`
  if (process.env.CI === 'true') {
    describe(name, () => {
      it('Restate can be started', () => {
        throw new Error(`${missing}; with CI=true that is a failure`)
      })
    })
    return
  }
  console.warn(`\n*** SKIPPED: ${name}. ${missing} ***\n`)
  describe.skip(name, body)
}

interface Outcome {
  readonly index: number
  readonly failure?: string
}

/** Runs the cases one after the other in one process, which starts one Restate for all of them. */
export function itRuns(cases: readonly ContractCase[]): void {
  let child: ChildProcess | undefined
  const runner = () => {
    child ??= fork(processFile('test/support/restate/case-runner.ts'), [], {
      execPath: restateNode,
      execArgv: [],
    })
    return child
  }
  const run = (index: number) =>
    new Promise<void>((resolve, reject) => {
      const process = runner()
      const settle = ({ index: done, failure }: Outcome) => {
        if (done !== index) return
        process.off('message', settle).off('exit', died)
        if (failure === undefined) resolve()
        else reject(new Error(failure))
      }
      const died = (code: number | null) => reject(new Error(`The process of the cases ended with ${code}`))
      process.on('message', settle).once('exit', died)
      process.send(index)
    })
  afterAll(async () => {
    if (child === undefined) return
    const gone = new Promise((resolve) => child?.once('exit', resolve))
    child.disconnect()
    await gone
  })
  for (const [index, one] of cases.entries()) it(`${one.group}: ${one.name}`, () => run(index))
}

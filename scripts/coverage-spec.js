#!/usr/bin/env node
/**
 * Compares test/requirements.md with the last test report and prints which requirement has a passing test.
 *
 * A test quotes an id if a title (of the test or of a `describe` around it) begins with it, or contains it in
 * parentheses: `B7 refuses …`, `B3 B4 refuses …`, `refuses … (B7)`. Only ids of the known sections count; laws (P1) and
 * threats (T8) may be among them.
 *
 * Exit code 1: an id is `done` without a passing test (or with a failing one), the list lacks or repeats an id or has an
 * unknown one, a test quotes an unknown id, or the report is missing or contains no test.
 */

import { readFileSync } from 'node:fs'
import { parseArgs } from 'node:util'

const HELP = `Usage: npm run coverage:spec -- [options]

  --report FILE  the JSON report of a test run (test-report.json)
  --list FILE    the list of requirements (test/requirements.md)
  --quiet        print only totals and problems
  --help         this text

"vitest run" writes the report for whatever it ran: run all tests first ("npm test" does).`

/** The number of ids in each section: A1 to A6, and so on. */
const SECTIONS = {
  A: 6,
  B: 21,
  C: 15,
  D: 10,
  E: 9,
  F: 5,
  G: 7,
  H: 9,
  I: 8,
  J: 3,
  K: 5,
  L: 6,
  M: 6,
  N: 5,
  R: 11,
}
const ROW = /^\|\s*([A-Z]\d+)\s*\|(.*)\|\s*([^|]*?)\s*\|\s*$/
const RUN_AT_START = /^[A-Z]\d+(?:[\s,]+[A-Z]\d+)*(?![\w-])/
const RUN_IN_PARENTHESES = /\(([A-Z]\d+(?:[\s,]+[A-Z]\d+)*)\)/g

function expectedIds() {
  return Object.entries(SECTIONS).flatMap(([letter, count]) =>
    Array.from({ length: count }, (_, i) => `${letter}${i + 1}`),
  )
}

/** The sections of the list, in order, and the problems found in it. */
function readList(markdown) {
  const known = new Set(expectedIds())
  const sections = []
  const seen = new Set()
  const problems = []
  for (const line of markdown.split('\n')) {
    if (line.startsWith('## ')) sections.push({ title: line.slice(3).trim(), rows: [] })
    const match = ROW.exec(line)
    if (!match) continue
    const [, id, text, state] = match
    if (!known.has(id)) problems.push(`the list has an unknown id: ${id}`)
    else if (seen.has(id)) problems.push(`the list has ${id} twice`)
    else sections.at(-1)?.rows.push({ id, text: text.trim(), state })
    seen.add(id)
    if (state !== 'done' && state !== 'open')
      problems.push(`${id} has the state "${state}": write done or open`)
  }
  for (const id of known) if (!seen.has(id)) problems.push(`the list lacks ${id}`)
  return { sections: sections.filter((section) => section.rows.length > 0), problems }
}

/** The ids that one title quotes, of any section. */
function idsInTitle(title) {
  const runs = [RUN_AT_START.exec(title)?.[0], ...[...title.matchAll(RUN_IN_PARENTHESES)].map((m) => m[1])]
  return runs.flatMap((run) => run?.match(/[A-Z]\d+/g) ?? [])
}

/** Passing and failing tests by id, from the JSON report. */
function readReport(json) {
  const counts = new Map()
  let total = 0
  for (const file of json.testResults ?? []) {
    for (const test of file.assertionResults ?? []) {
      if (test.status !== 'passed' && test.status !== 'failed') continue
      total++
      const ids = new Set([...(test.ancestorTitles ?? []), test.title].flatMap(idsInTitle))
      for (const id of ids) {
        const count = counts.get(id) ?? { passed: 0, failed: 0 }
        count[test.status]++
        counts.set(id, count)
      }
    }
  }
  return { counts, total }
}

function judge(row, count) {
  const { passed, failed } = count ?? { passed: 0, failed: 0 }
  const tests = passed === 1 ? '1 passing test' : `${passed} passing tests`
  if (row.state !== 'done') {
    return { mark: passed + failed > 0 ? `open but has tests (${tests}, ${failed} failing)` : 'open' }
  }
  if (failed > 0)
    return { mark: `done, but ${failed} failing`, problem: `${row.id} is done and has a failing test` }
  if (passed === 0) return { mark: 'done, but no test', problem: `${row.id} is done and has no passing test` }
  return { mark: `done with ${tests}` }
}

/** The text to print, and the problems found. */
function compare(list, report) {
  const problems = [...list.problems]
  if (report.total === 0) problems.push('the report contains no test')
  const known = new Set(expectedIds())
  for (const id of report.counts.keys()) {
    if (id[0] in SECTIONS && !known.has(id)) problems.push(`a test quotes an id that does not exist: ${id}`)
  }
  const lines = []
  const totals = []
  for (const { title, rows } of list.sections) {
    lines.push('', title)
    for (const row of rows) {
      const { mark, problem } = judge(row, report.counts.get(row.id))
      lines.push(`  ${row.id.padEnd(4)} ${mark.padEnd(28)} ${clip(row.text, 76)}`.trimEnd())
      if (problem) problems.push(problem)
    }
    const done = rows.filter((row) => row.state === 'done').length
    const tested = rows.filter((row) => (report.counts.get(row.id)?.passed ?? 0) > 0).length
    totals.push({ title, ids: rows.length, done, tested })
  }
  return { lines, totals, problems }
}

function clip(text, length) {
  return text.length <= length ? text : `${text.slice(0, length - 1).trimEnd()}…`
}

function printTotals(totals) {
  const sum = (key) => totals.reduce((total, row) => total + row[key], 0)
  const rows = [...totals, { title: 'All', ids: sum('ids'), done: sum('done'), tested: sum('tested') }]
  const width = Math.max(...rows.map((row) => row.title.length))
  console.log(`\n${'section'.padEnd(width)}   ids  done  with a passing test`)
  for (const { title, ids, done, tested } of rows) {
    console.log(
      `${title.padEnd(width)}  ${String(ids).padStart(4)}  ${String(done).padStart(4)}  ${String(tested).padStart(4)}`,
    )
  }
}

function fail(message) {
  console.error(`coverage:spec: ${message}`)
  process.exit(1)
}

function load(file, parse, hint) {
  let text
  try {
    text = readFileSync(file, 'utf8')
  } catch {
    fail(`there is no ${file}. ${hint}`)
  }
  try {
    return parse(text)
  } catch (error) {
    return fail(`${file} cannot be read: ${error.message}`)
  }
}

function main() {
  const { values } = parseArgs({
    options: {
      report: { type: 'string', default: 'test-report.json' },
      list: { type: 'string', default: 'test/requirements.md' },
      quiet: { type: 'boolean', default: false },
      help: { type: 'boolean', default: false },
    },
  })
  if (values.help) return console.log(HELP)
  const list = load(values.list, readList, 'It lists the requirements.')
  const json = load(values.report, JSON.parse, 'Run the tests first: npx vitest run')
  const report = readReport(json)
  const { lines, totals, problems } = compare(list, report)
  if (!values.quiet) console.log(lines.join('\n'))
  printTotals(totals)
  console.log(`\n${report.total} tests in the report`)
  for (const problem of problems) console.error(`problem: ${problem}`)
  if (problems.length > 0) fail(`${problems.length} problem${problems.length === 1 ? '' : 's'}`)
}

main()

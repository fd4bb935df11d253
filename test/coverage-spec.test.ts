/** `npm run coverage:spec` on invented lists and reports. */

import { spawnSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, describe, expect, it } from 'vitest'

const REAL_LIST = readFileSync('test/requirements.md', 'utf8')
const OPEN_LIST = REAL_LIST.replaceAll(/\| done( +\|)$/gm, '| open$1')
const dir = mkdtempSync(join(tmpdir(), 'rondo-coverage-'))
afterAll(() => rmSync(dir, { recursive: true, force: true }))

interface Test {
  title: string
  status?: 'passed' | 'failed' | 'skipped'
  under?: string[]
}

function report(tests: readonly Test[]): string {
  const assertionResults = tests.map(({ title, status = 'passed', under = [] }) => ({
    title,
    status,
    ancestorTitles: under,
    fullName: [...under, title].join(' '),
  }))
  return JSON.stringify({ testResults: [{ name: 'x.test.ts', assertionResults }] })
}

function run(list: string, reportText: string | undefined, ...flags: string[]) {
  const listFile = join(dir, 'list.md')
  const reportFile = join(dir, reportText === undefined ? 'missing.json' : 'report.json')
  writeFileSync(listFile, list)
  if (reportText !== undefined) writeFileSync(reportFile, reportText)
  const args = ['scripts/coverage-spec.js', '--list', listFile, '--report', reportFile, ...flags]
  const { status, stdout, stderr } = spawnSync(process.execPath, args, { encoding: 'utf8' })
  return { status, out: stdout, err: stderr }
}

/** The list with one id set to done. */
function withDone(...ids: string[]): string {
  let list = OPEN_LIST
  for (const id of ids) {
    const next = list.replace(new RegExp(`^(\\| ${id} +\\|.*\\| )open( +\\|)$`, 'm'), '$1done$2')
    if (next === list) throw new Error(`no open row for ${id}`)
    list = next
  }
  return list
}

function lineOf(out: string, id: string): string {
  return out.split('\n').find((line) => line.trimStart().startsWith(`${id} `)) ?? ''
}

describe('coverage:spec', () => {
  it('passes if each id that is done has a passing test, and counts the tests', () => {
    const tests = report([{ title: 'B7 refuses other arguments' }, { title: 'B3 B7 refuses garbage' }])
    const { status, out, err } = run(withDone('B7', 'B3'), tests)
    expect(err).toBe('')
    expect(status).toBe(0)
    expect(lineOf(out, 'B7')).toContain('done with 2 passing tests')
    expect(lineOf(out, 'B3')).toContain('done with 1 passing test')
    expect(lineOf(out, 'B4')).toContain('open')
    expect(out).toContain('2 tests in the report')
  })

  it('finds ids in parentheses, in the titles of describe blocks, and among ids of other kinds', () => {
    const tests = report([
      { title: 'refuses other arguments (B7)' },
      { title: 'is small', under: ['R9 the limits'] },
      { title: 'T2 B5, P6 refuses another principal' },
    ])
    const { status, out } = run(withDone('B7', 'R9', 'B5'), tests)
    expect(status).toBe(0)
    expect(lineOf(out, 'R9')).toContain('done with 1 passing test')
  })

  it('reports an open id that has tests', () => {
    const { status, out } = run(OPEN_LIST, report([{ title: 'B7 refuses other arguments' }]))
    expect(status).toBe(0)
    expect(lineOf(out, 'B7')).toContain('open but has tests')
  })

  it('prints its options', () => {
    const { status, out } = run(OPEN_LIST, undefined, '--help')
    expect(status).toBe(0)
    expect(out).toContain('--report FILE')
  })

  const one = report([{ title: 'B7 refuses other arguments' }])
  const cases: [string, string, string | undefined, string][] = [
    ['a done id without a test', withDone('B4'), one, 'B4 is done and has no passing test'],
    ['an id that no title starts with', withDone('B4'), report([{ title: 'as B4 wants' }]), 'B4 is done'],
    ['an id that is part of a word', withDone('B4'), report([{ title: 'B4x refuses' }]), 'B4 is done'],
    [
      'a done id whose test is skipped',
      withDone('B4'),
      report([{ title: 'B4 x', status: 'skipped' }, { title: 'y' }]),
      'B4 is done',
    ],
    [
      'a done id with a failing test',
      withDone('B7'),
      report([{ title: 'B7 x' }, { title: 'B7 y', status: 'failed' }]),
      'failing test',
    ],
    ['a missing report', OPEN_LIST, undefined, 'Run the tests first'],
    ['a report that is not JSON', OPEN_LIST, 'x', 'cannot be read'],
    ['a report without tests', OPEN_LIST, report([]), 'contains no test'],
    [
      'a report with skipped tests only',
      OPEN_LIST,
      report([{ title: 'x', status: 'skipped' }]),
      'contains no test',
    ],
    ['a repeated id', `${OPEN_LIST}\n| B7 | again | open |\n`, one, 'has B7 twice'],
    ['an unknown id', `${OPEN_LIST}\n| B22 | new | open |\n`, one, 'unknown id: B22'],
    ['a missing id', OPEN_LIST.replace(/^\| B7 .*\n/m, ''), one, 'lacks B7'],
    ['an unknown state', OPEN_LIST.replace(/^(\| B7 .*\| )open/m, '$1almost'), one, 'write done or open'],
    ['an unknown id in a test', OPEN_LIST, report([{ title: 'B22 flies' }]), 'does not exist: B22'],
  ]
  it.each(cases)('fails on %s', (_name, list, reportText, message) => {
    const { status, err } = run(list, reportText)
    expect(err).toContain(message)
    expect(status).toBe(1)
  })
})

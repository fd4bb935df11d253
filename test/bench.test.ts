/** The bench compares like with like, and checks the responses. Speed itself is not tested. */

import { readdirSync, readFileSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { drive } from '../bench/load/drive.ts'
import { playFlow } from '../bench/load/flow.ts'
import { LEGS, prepareLegs } from '../bench/load/legs.ts'
import { fillPage } from '../bench/print-table.ts'
import { start as startBare } from '../bench/server/bare.ts'
import { start as startOfficial } from '../bench/server/official.ts'
import { startRules, startRulesInline, startSurvey } from '../bench/server/programs.ts'
import { start as startRondo } from '../bench/server/rondo.ts'
import { fellBehind, median, medianRatio } from '../bench/stat.ts'
import { openBareSqlite } from '../bench/task/bare-sqlite.ts'
import { openRondo } from '../bench/task/rondo.ts'
import type { Subject, Work } from '../bench/task/subject.ts'
import { openSqlite } from '../packages/rondo/src/store/sqlite/database.ts'

const SERVERS = { rondo: startRondo, official: startOfficial, bare: startBare }

describe.each(Object.entries(SERVERS))('the bench of %s', (_name, start) => {
  it('checks the response of every leg, and stops at one that belongs to another request', async () => {
    const { url, close } = await start(20)
    try {
      const legs = await prepareLegs(url)
      for (const leg of LEGS) {
        await drive(url, 40, legs[leg])
        const swapped = (index: number) => ({ ...legs[leg](index), check: legs[leg](index + 1).check })
        await expect(drive(url, 1, swapped)).rejects.toThrow(/^Unexpected response/)
      }
    } finally {
      await close()
    }
  })
})

describe('the bench of whole calls', () => {
  const rules = {
    tool: 'update_work_item',
    args: { workItemId: 7, fields: { 'System.State': 'Resolved' } },
    answer: (key: string) => (key === 'resolution' ? { resolution: 'Duplicate' } : { duplicateOfId: 1 }),
    expected: 'Bug #7 resolved as Duplicate of Bug #1. State set to Resolved and duplicate link created.',
  }
  const survey = (tool: string) => ({
    tool,
    args: { count: 3 },
    answer: () => ({ resolution: 'Fixed' }),
    expected: tool === 'walk' ? '3 entries' : '3 answers',
  })

  it.each([
    ['the guide as written', startRules, rules],
    ['the guide with schemas in the handler', startRulesInline, rules],
    ['hoisted questions', startSurvey, survey('survey')],
    ['inline questions', startSurvey, survey('survey_inline')],
    ['steps', startSurvey, survey('walk')],
  ])('plays %s, and stops at another result', async (_name, start, flow) => {
    const { url, close } = await start(1)
    try {
      const { first, last } = await playFlow(url, 1, flow)
      await drive(url, 5, () => first)
      await drive(url, 5, () => last)
      await expect(drive(url, 1, () => ({ ...first, check: last.check }))).rejects.toThrow(/^Unexpected/)
      await expect(playFlow(url, 1, { ...flow, expected: 'no' })).rejects.toThrow(/^Unexpected/)
    } finally {
      await close()
    }
  })
})

describe('the task bench', () => {
  /** The shape of the rows, without what differs from one to the next. */
  const SHAPES = `SELECT DISTINCT status, tenant, length(id) AS id, length(principal) AS principal, length(head) AS head,
    length(inputs) AS inputs, length(outcome) AS outcome, message, poll_ms, expires_at - created_at AS ttl, revision,
    failures, worker, due_at, known, bytes FROM task ORDER BY status, revision`

  /** However slow the machine is. */
  const runSome = async (subject: Subject, work: Work): Promise<void> => {
    let done = 0
    for (let tries = 0; done === 0 && tries < 50; tries++) done += (await subject.run(work, 50)).count
    expect(done).toBeGreaterThan(0)
  }

  it('writes the same rows by hand as the engine does', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'rondo-bench-'))
    const shapes = async (name: string, open: (file: string) => Promise<Subject>) => {
      const file = join(folder, name)
      const subject = await open(file)
      for (const work of ['complete', 'resume', 'get'] as const) {
        await runSome(subject, work)
        await subject.settle()
      }
      await subject.close()
      const connection = openSqlite(file)
      const rows = connection.prepare(SHAPES).all()
      connection.close()
      return rows
    }
    const ours = await shapes('rondo', (file) => openRondo({ kind: 'sqlite', file }, 1))
    expect(ours.map(({ status }) => status)).toEqual(['completed', 'completed', 'input_required'])
    expect(await shapes('bare', (file) => openBareSqlite(file, false))).toEqual(ours)
    expect(await shapes('grouped', (file) => openBareSqlite(file, true))).toEqual(ours)
    await rm(folder, { recursive: true })
  })
})

describe('the figures of the bench', () => {
  it('the figures are medians', () => {
    expect(median([9, 1, 2])).toBe(2)
    expect(median([4, 1, 2, 9])).toBe(3)
    expect(medianRatio([2, 8, 30], [1, 2, 3])).toBe(4)
  })
})

describe('the bench of sleeping tasks', () => {
  const seconds = 10
  /** The delays of tasks that are due one per millisecond, if one takes `ms` of a worker that can do one at a time. */
  const latenessAt = (ms: number) =>
    Array.from({ length: seconds * 1000 }, (_, i) => 20 + i * Math.max(0, ms - 1))

  it('calls a worker saturated that gets later and later, and no other', () => {
    expect([0.5, 1, 1.02].map((ms) => fellBehind(latenessAt(ms), seconds * 1000))).toEqual([
      false,
      false,
      false,
    ])
    expect([1.05, 1.5, 4].map((ms) => fellBehind(latenessAt(ms), seconds * 1000))).toEqual([true, true, true])
    const pause = latenessAt(1).map((late, i) => (i > 5000 && i < 5400 ? late + 400 : late))
    expect(fellBehind(pause, seconds * 1000)).toBe(false)
  })

  it('fills the tables of a page that have a mark, and nothing else', () => {
    const table = { title: 'T', mark: 'one', columns: ['a', 'to'], rows: [['x', '1']] }
    const page = 'before\n<!-- one -->\nold\n<!-- /one -->\nafter\n'
    const filled = 'before\n<!-- one -->\n\n| a | to |\n| - | -: |\n| x |  1 |\n\n<!-- /one -->\nafter\n'
    expect(fillPage(page, [table, { ...table, mark: 'two' }, { ...table, mark: undefined }])).toBe(filled)
    expect(fillPage(filled, [table])).toBe(filled)
  })
})

it('every table of the pages is written by a bench, and every bench that has a place for its table finds it', () => {
  const files = readdirSync('bench', { recursive: true, encoding: 'utf8' })
  const sources = files.filter((name) => name.endsWith('.ts') && !name.startsWith('dist'))
  const code = sources.map((name) => readFileSync(join('bench', name), 'utf8')).join('\n')
  const pages = ['performance', 'capacity'].map((name) => readFileSync(`docs/reference/${name}.md`, 'utf8'))
  const places = pages.flatMap((page) => [...page.matchAll(/<!-- ([a-z-]+) -->/g)].map(([, name]) => name))
  expect(places.length).toBeGreaterThan(20)
  expect(places.filter((name) => !code.includes(`'${name}'`))).toEqual([])
  const marked = [...code.matchAll(/\bmark: '([^']+)'/g)].map(([, name]) => name)
  expect(marked.filter((name) => !places.includes(name))).toEqual([])
})

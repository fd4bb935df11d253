/** The bench compares like with like, and checks the responses. Speed itself is not tested. */

import { readdirSync, readFileSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { createServer as createHttpServer } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { drive } from '../bench/load/drive.ts'
import { playFlow } from '../bench/load/flow.ts'
import { LEGS, prepareLegs } from '../bench/load/legs.ts'
import { openOutside, type Parked } from '../bench/load/outside.ts'
import { fillPage } from '../bench/print-table.ts'
import { start as startBare } from '../bench/server/bare.ts'
import { start as startByHand } from '../bench/server/by-hand.ts'
import { listenOnLoopback } from '../bench/server/listen-on-loopback.ts'
import { start as startOfficial } from '../bench/server/official.ts'
import { startRules, startRulesInline, startSurvey } from '../bench/server/programs.ts'
import { start as startRondo } from '../bench/server/rondo.ts'
import { start as startTask } from '../bench/server/rondo-task.ts'
import { fellBehind, median, medianRatio } from '../bench/stat.ts'
import { openBareSqlite } from '../bench/task/bare-sqlite.ts'
import { openRondo } from '../bench/task/rondo.ts'
import type { Subject, Work } from '../bench/task/subject.ts'
import { QUESTION_KEY, resultFor, TOOL } from '../bench/work.ts'
import { openSqlite } from '../packages/rondo/src/store/sqlite/database.ts'

const SERVERS = { rondo: startRondo, official: startOfficial, 'by-hand': startByHand, bare: startBare }

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

describe('the server by hand', () => {
  const params = {
    name: TOOL,
    arguments: { id: 1 },
    _meta: {
      'io.modelcontextprotocol/protocolVersion': '2026-07-28',
      'io.modelcontextprotocol/clientCapabilities': { elicitation: { form: {} } },
    },
  }
  const message = { jsonrpc: '2.0', id: 1, method: 'tools/call', params }
  const headers = {
    'content-type': 'application/json',
    'mcp-protocol-version': '2026-07-28',
    'mcp-method': 'tools/call',
    'mcp-name': TOOL,
  }
  const { 'mcp-name': _name, ...unnamed } = headers
  const answered = { [QUESTION_KEY]: { action: 'accept', content: { resolution: 'Fixed' } } }
  const noElicitation = { ...params._meta, 'io.modelcontextprotocol/clientCapabilities': {} }

  const outcomesOf = async (start: typeof startByHand): Promise<unknown[]> => {
    const { url, close } = await start(1)
    const post = async (body: unknown, sent: Record<string, string> = headers, method = 'POST') => {
      const text = typeof body === 'string' ? body : JSON.stringify(body)
      const response = await fetch(url, { method, headers: sent, body: method === 'GET' ? undefined : text })
      const { id, error, result } = JSON.parse(await response.text())
      const { resultType, isError, requestState } = result ?? {}
      return { outcome: [response.status, id, error?.code, resultType, isError], requestState }
    }
    const call = (changed: object) => post({ ...message, params: { ...params, ...changed } })
    try {
      const { requestState } = await call({})
      const inputResponses = answered
      const replies = [
        await call({}),
        await call({ inputResponses, requestState }),
        await call({ inputResponses, requestState, arguments: { id: 2 } }),
        await call({ inputResponses, requestState: `${requestState}A` }),
        await call({ inputResponses: {}, requestState }),
        await call({ arguments: { id: 'one' } }),
        await post({ ...message, params: { ...params, name: 'other' } }, { ...headers, 'mcp-name': 'other' }),
        await call({ _meta: noElicitation }),
        await call({ _meta: {} }),
        await post({ ...message, id: undefined, jsonrpc: '1.0' }),
        await post('{'),
        await post(message, { ...headers, origin: 'https://elsewhere.example' }),
        await post(message, { ...headers, 'content-type': 'text/plain' }),
        await post(message, { ...headers, 'mcp-protocol-version': '2025-11-25' }),
        await post(message, { ...headers, 'mcp-method': 'tools/list' }),
        await post(message, { ...headers, 'mcp-name': 'other' }),
        await post(message, unnamed),
        await post('', headers, 'GET'),
      ]
      return replies.map(({ outcome }) => outcome)
    } finally {
      await close()
    }
  }

  it('accepts and refuses the requests that Rondo accepts and refuses', async () => {
    const ours = await outcomesOf(startRondo)
    expect(ours.slice(0, 2)).toEqual([
      [200, 1, undefined, 'input_required', undefined],
      [200, 1, undefined, 'complete', undefined],
    ])
    expect(await outcomesOf(startByHand)).toEqual(ours)
  })
})

describe('the public bench', () => {
  it.each(Object.entries(SERVERS))('calls, asks and answers from outside: %s', async (_name, start) => {
    const { url, close } = await start(1)
    try {
      const outside = openOutside(url)
      await drive(url, 5, outside.plain)
      const parked: Parked[] = []
      await drive(url, 5, (id) => outside.ask(id, (one) => void parked.push(one)))
      await drive(url, 5, () => outside.answer(parked.pop()))
      expect(parked).toEqual([])
      expect(await outside.task(1)).toBeUndefined()
      const swapped = (id: number) => ({ ...outside.plain(id), check: outside.plain(id + 1).check })
      await expect(drive(url, 1, swapped)).rejects.toThrow('unexpected result')
      await expect(
        drive(url, 1, (id) => ({ ...outside.ask(id, () => {}), request: outside.plain(id).request })),
      ).rejects.toThrow('unexpected result')
    } finally {
      await close()
    }
  })

  it('follows a task to its end, and reads results that come as events', async () => {
    const { url, close } = await startTask(1)
    try {
      expect(await openOutside(url).task(1)).toBeGreaterThan(0)
    } finally {
      await close()
    }
    const events = createHttpServer((_req, res) => {
      res.setHeader('Content-Type', 'text/event-stream')
      const result = { resultType: 'complete', content: [{ type: 'text', text: resultFor(3, 'Fixed') }] }
      res.write(': soon\n\n')
      res.end(`event: message\ndata: ${JSON.stringify({ jsonrpc: '2.0', id: 3, result })}\n\n`)
    })
    const listening = await listenOnLoopback(events)
    try {
      await drive(listening.url, 1, () => openOutside(listening.url).plain(3))
    } finally {
      await listening.close()
    }
  })

  it('says what a server that does not take part responded', async () => {
    const refusing = createHttpServer((_req, res) => {
      res.writeHead(400, { 'Content-Length': 2 }).end('no')
    })
    const { url, close } = await listenOnLoopback(refusing)
    try {
      await expect(drive(url, 1, openOutside(url).plain)).rejects.toThrow('HTTP 400: no')
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
    for (const grouped of [false, true]) {
      const bare = await shapes(`bare-${grouped}`, (file) => openBareSqlite(file, grouped))
      expect(bare.map(({ status }) => status)).toEqual(['completed', 'completed', 'input_required'])
      // On a slow machine an answer may arrive before its task has parked, so the engine may write more shapes.
      expect(ours).toEqual(expect.arrayContaining(bare))
    }
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
  const names = ['docs/reference/performance.md', 'docs/reference/capacity.md', 'bench/public.md']
  const pages = names.map((name) => readFileSync(name, 'utf8'))
  const places = pages.flatMap((page) => [...page.matchAll(/<!-- ([a-z-]+) -->/g)].map(([, name]) => name))
  expect(places.length).toBeGreaterThan(20)
  expect(places.filter((name) => !code.includes(`'${name}'`))).toEqual([])
  const marked = [...code.matchAll(/\bmark: '([^']+)'/g)].map(([, name]) => name)
  expect(marked.filter((name) => !places.includes(name))).toEqual([])
})

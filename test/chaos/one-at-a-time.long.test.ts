/** Tasks that run one at a time while the processes that run them are killed (M3). */

import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { appendFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createServer, generateKey } from 'rondo'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { describePostgres } from '../support/postgres.ts'
import { startPostgres, type TestPostgres } from '../support/postgres-server.ts'
import { processFile } from '../support/process-file.ts'
import { createPostgresDatabase } from '../support/store/postgres-database.ts'
import { createSqliteDatabase } from '../support/store/sqlite-database.ts'
import { type Database, until } from '../support/store/store-harness.ts'
import { send, settled } from '../support/task-client.ts'

const TASKS = 60
const KILLS = 4
const KEYS = ['a', 'b', 'c']
const closing: (() => Promise<unknown>)[] = []
afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close()
})

interface Report {
  readonly completed: number
  readonly killed: number
  readonly entered: number
  /** Entries while another process, which was alive, had entered and not left. */
  readonly overlaps: number
}

async function run(database: Database, tasks: number, kills: number, mode = ''): Promise<Report> {
  closing.push(() => database.close())
  const folder = mkdtempSync(join(tmpdir(), 'rondo-permits-'))
  closing.push(async () => rmSync(folder, { recursive: true }))
  const log = join(folder, 'log')
  writeFileSync(log, '')
  const keys = generateKey('k')
  const start = async (): Promise<ChildProcess> => {
    const child = fork(processFile('test/support/permit-process.ts'), [
      JSON.stringify(database.address),
      log,
      keys,
      mode,
    ])
    await once(child, 'message')
    return child
  }
  const kill = async (child: ChildProcess): Promise<void> => {
    if (child.exitCode !== null || child.signalCode !== null) return
    const gone = once(child, 'exit')
    child.kill('SIGKILL')
    await gone
    appendFileSync(log, `killed - ${child.pid}\n`)
  }
  const store = database.open()
  const server = createServer({
    name: 'permits',
    version: '1',
    keys,
    log: 'off',
    store,
    tasks: { concurrency: 0 },
  })
  closing.push(() => server.close())
  server.tool('work', { task: 'always', concurrency: {} }, () => 'elsewhere')
  const ids: string[] = []
  for (let i = 0; i < tasks; i++) {
    const created = await send(server, 'tools/call', {
      name: 'work',
      arguments: { key: KEYS[i % KEYS.length] },
    })
    ids.push(String(created.result?.taskId))
    await send(server, 'tasks/get', { taskId: ids.at(-1) })
  }
  // The tasks are there before anybody runs them, so that processes compete for them however slow this one is.
  const children = await Promise.all([start(), start(), start()])
  closing.push(() => Promise.all(children.map(kill)))
  for (const child of children) child.send('begin')
  let killed = 0
  const lines = () => readFileSync(log, 'utf8').trimEnd().split('\n')
  for (let i = 0; i < kills; i++) {
    const before = lines().length
    const exits = () => lines().filter((line) => line.startsWith('exit')).length
    await until(
      'somebody is inside',
      () => exits() >= tasks || (lines().length > before + 4 && isInside(lines())),
    )
    if (exits() >= tasks) break
    killed += 1
    const at = i % children.length
    await kill(children[at] as ChildProcess)
    const next = await start()
    children[at] = next
    next.send('begin')
  }
  let completed = 0
  for (const id of ids) if ((await settled(server, id)).status === 'completed') completed += 1
  const { entered, overlaps } = readLog(lines())
  return { completed, killed, entered, overlaps }
}

function isInside(lines: readonly string[]): boolean {
  return [...readLog(lines).inside.values()].some((pids) => pids.size > 0)
}

function readLog(lines: readonly string[]) {
  const inside = new Map<string, Set<string>>()
  let [entered, overlaps] = [0, 0]
  for (const line of lines) {
    const [what = '', key = '', pid = ''] = line.split(' ')
    if (what === 'killed') for (const pids of inside.values()) pids.delete(pid)
    else {
      const pids = inside.get(key) ?? new Set()
      inside.set(key, pids)
      if (what === 'exit') pids.delete(pid)
      else {
        entered += 1
        if (pids.size > 0) overlaps += 1
        pids.add(pid)
      }
    }
  }
  return { entered, overlaps, inside }
}

function describeKills(open: () => Database | Promise<Database>): void {
  it('M3 no two processes are inside the work of one key, whichever is killed, and every task ends', {
    timeout: 300_000,
  }, async () => {
    const report = await run(await open(), TASKS, KILLS)
    expect(report).toMatchObject({ completed: TASKS, overlaps: 0 })
    expect(report.entered).toBeGreaterThanOrEqual(TASKS)
    expect(report.killed).toBeGreaterThan(0)
  })
}

describe('tasks that run one at a time, on SQLite', () => {
  describeKills(createSqliteDatabase)

  it('control: a store that grants every permit is noticed', { timeout: 120_000 }, async () => {
    expect((await run(await createSqliteDatabase(), 45, 0, 'open')).overlaps).toBeGreaterThan(0)
  })
})

describePostgres('tasks that run one at a time, on PostgreSQL', () => {
  let server: TestPostgres
  beforeAll(async () => {
    server = await startPostgres({ fsync: false })
  })
  afterAll(() => server.stop())
  describeKills(() => createPostgresDatabase(server))
})

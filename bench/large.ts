/**
 * Things that grow: a round by the entries of its journal, a task by those of its own, a list by its tools, a client by the
 * tasks that it follows. What each unit adds should not depend on how many there are.
 */

import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createServer, type Server } from 'rondo'
import { type Client, connect } from 'rondo/client'
import { createSqliteStore } from 'rondo/sqlite'
import { z } from 'zod'
import type { RunBench, Settings, Table } from './bench.ts'
import { httpRequest } from './load/http-request.ts'
import { playAll } from './programs.ts'
import { type Effort, type Exchanges, race } from './race.ts'
import { pinLoad, spawnServer } from './server/spawn-server.ts'
import { fixed, median } from './stat.ts'
import { SECRET } from './work.ts'

/** One row: how many there are, and what all of them cost. */
interface Row {
  readonly count: number
  readonly micros: readonly number[]
}

const FULL = { entries: [1, 10, 100, 1_000], taskEntries: [100, 1_000, 10_000], tools: [1, 10, 100, 1_000] }
const FOLLOWED = [10, 100, 1_000]

export const run: RunBench = async (settings) => {
  pinLoad()
  const effort: Effort = settings.quick
    ? { warmUp: 200, rounds: 2, requests: 100 }
    : { warmUp: 1_000, rounds: 5, requests: 400 }
  const times = settings.quick ? 1 : 3
  const journals = await measureJournals(effort, settings)
  const lists = await measureLists(effort, settings)
  const tasks = await measureTasks(times, settings)
  const followed = await measureFollowing(times, settings)
  const tables = [
    toTable(
      'The last round of a call by the entries of its journal: server CPU',
      'entries',
      journals,
      'large-rounds',
    ),
    toTable('tools/list by the number of tools: server CPU', 'tools', lists, 'large-lists'),
    toTable(
      'A task that runs steps, by their number: CPU of server and client',
      'entries',
      tasks.run,
      'large-tasks',
    ),
    toTable('The turn that replays them: CPU of server and client', 'entries', tasks.resume, 'large-turns'),
    toTable(
      'A client that follows tasks to their end, by their number: CPU of server and client',
      'tasks',
      followed,
      'large-followed',
    ),
  ]
  return { tables, data: { journals, lists, tasks, followed } }
}

function toTable(title: string, unit: string, rows: readonly Row[], mark: string): Table {
  const [first] = rows
  const each = ({ count, micros }: Row): string => {
    if (first === undefined || count === first.count) return '–'
    return fixed((median(micros) - median(first.micros)) / (count - first.count), 1)
  }
  return {
    title,
    mark,
    columns: [unit, 'µs', 'each further one µs'],
    rows: rows.map((row) => [String(row.count), fixed(median(row.micros)), each(row)]),
  }
}

async function measureJournals(effort: Effort, settings: Settings): Promise<Row[]> {
  const server = await spawnServer('survey', 1)
  try {
    const exchanges: Record<string, Exchanges> = {}
    for (const count of FULL.entries) {
      const answer = (): object => ({ resolution: 'Fixed' })
      const flow = { tool: 'walk', args: { count }, answer, expected: `${count} entries` }
      exchanges[count] = (await playAll(server.url, 1, () => flow)).last
    }
    const cases = FULL.entries.map(String)
    const costs = await race('journals', [{ server, exchanges }], cases, effort, settings)
    return FULL.entries.map((count) => ({ count, micros: costs[count]?.survey ?? [] }))
  } finally {
    await server.stop()
  }
}

async function measureLists(effort: Effort, settings: Settings): Promise<Row[]> {
  const rows: Row[] = []
  for (const count of FULL.tools) {
    const server = await spawnServer('rondo', count)
    try {
      const exchanges = { list: () => listing(server.url, count) }
      const costs = await race(`a list of ${count}`, [{ server, exchanges }], ['list'], effort, settings)
      rows.push({ count, micros: costs.list.rondo })
    } finally {
      await server.stop()
    }
  }
  return rows
}

function listing(url: URL, count: number): ReturnType<Exchanges> {
  const _meta = {
    'io.modelcontextprotocol/protocolVersion': '2026-07-28',
    'io.modelcontextprotocol/clientCapabilities': {},
  }
  return {
    request: httpRequest(url, { id: 1, method: 'tools/list', name: '', params: { _meta } }),
    check({ body }) {
      const { result } = JSON.parse(body) as { result?: { tools?: readonly unknown[] } }
      if (result?.tools?.length !== count) throw new Error(`Unexpected response: ${body.slice(0, 200)}`)
    },
  }
}

/** Server and client in this process, with tasks in a file. */
async function withTasks<T>(
  declare: (server: Server) => void,
  use: (client: Client) => Promise<T>,
): Promise<T> {
  const folder = mkdtempSync(join(tmpdir(), 'rondo-bench-'))
  const server = createServer({
    name: 'large',
    version: '1.0.0',
    keys: `bench:${SECRET}`,
    log: 'off',
    store: createSqliteStore({ file: join(folder, 'tasks.db') }),
    limits: { maxEntries: 20_000 },
    tasks: { maxOpen: 10_000, concurrency: 64, pollMs: 500, maxJournalBytes: 2 ** 26 },
    maxSubscriptions: 10_000,
    maxSubscriptionsPerCaller: 10_000,
  })
  declare(server)
  const { url } = await server.listen({ port: 0, signals: false })
  const answers = { elicitation: { form: () => ({ action: 'accept' as const, content: { go: 'yes' } }) } }
  const client = await connect(url, { answers })
  try {
    return await use(client)
  } finally {
    await client.close()
    await server.close()
    rmSync(folder, { recursive: true, force: true })
  }
}

async function cpuOf(act: () => Promise<void>): Promise<number> {
  const before = process.cpuUsage()
  await act()
  const { user, system } = process.cpuUsage(before)
  return user + system
}

const Go = z.object({ go: z.string() })

async function measureTasks(times: number, { progress }: Settings): Promise<{ run: Row[]; resume: Row[] }> {
  const declare = (server: Server): void => {
    server.tool('walk', { input: z.object({ count: z.int() }), task: 'always' }, async ({ count }, ctx) => {
      // A hundred at once, so that the disk does not decide how long it takes.
      for (let i = 0; i < count; i += 100) {
        await Promise.all(Array.from({ length: 100 }, (_, j) => ctx.step(`step ${i + j}`, () => j)))
      }
      await ctx.ask('go', { message: 'Go on?', schema: Go })
      return `${count} entries`
    })
  }
  return withTasks(declare, async (client) => {
    const [first, second]: Row[][] = [[], []]
    for (const count of FULL.taskEntries) {
      const [running, resuming]: number[][] = [[], []]
      for (let time = 0; time < times; time++) {
        progress(`a task with ${count} entries: ${time + 1} of ${times}`)
        let begun = process.cpuUsage()
        let asked = 0
        const result = await client.callTool(
          'walk',
          { count },
          {
            deadlineMs: 600_000,
            onRound: () => {
              const { user, system } = process.cpuUsage(begun)
              asked = user + system
              begun = process.cpuUsage()
              return undefined
            },
          },
        )
        const { user, system } = process.cpuUsage(begun)
        assertText(result, `${count} entries`)
        running?.push(asked)
        resuming?.push(user + system)
      }
      first?.push({ count, micros: running ?? [] })
      second?.push({ count, micros: resuming ?? [] })
    }
    return { run: first ?? [], resume: second ?? [] }
  })
}

function measureFollowing(times: number, { progress }: Settings): Promise<Row[]> {
  const declare = (server: Server): void => {
    server.tool('nap', { task: 'always' }, async (_args, ctx) => {
      await ctx.sleep('nap', '2 s')
      return 'awake'
    })
  }
  return withTasks(declare, async (client) => {
    const nap = async (): Promise<void> => {
      assertText(await client.callTool('nap'), 'awake')
    }
    await nap()
    const rows: Row[] = []
    for (const count of FOLLOWED) {
      const micros: number[] = []
      for (let time = 0; time < times; time++) {
        progress(`following ${count} tasks: ${time + 1} of ${times}`)
        micros.push(await cpuOf(async () => void (await Promise.all(Array.from({ length: count }, nap)))))
      }
      rows.push({ count, micros })
    }
    return rows
  })
}

function assertText(result: { readonly content?: readonly unknown[] }, expected: string): void {
  const [{ text } = { text: undefined }] = (result.content ?? []) as readonly { text?: string }[]
  if (text !== expected) throw new Error(`Unexpected result: ${JSON.stringify(result)}`)
}

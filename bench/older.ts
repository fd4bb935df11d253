/**
 * The cost of a call of an older client (2025-11-25), as most hosts send today, beside the official server of the SDK's first version:
 * a plain call and one with a question over HTTP, without and with a store, and a plain call over stdio. The official client sends
 * the calls over HTTP, and the CPU time of the server process is counted.
 */

import { type ChildProcess, spawn } from 'node:child_process'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import { ElicitRequestSchema } from '@modelcontextprotocol/sdk/types.js'
import { type Aim, aimTable } from './aim.ts'
import type { RunBench, Table } from './bench.ts'
import { messageOf } from './message-of.ts'
import type { OlderMessage } from './older/child.ts'
import { fixed, median, medianRatio } from './stat.ts'
import { linkCheckout } from './task/before.ts'
import { openPostgresServer, openSqliteFiles } from './task/database.ts'
import type { StoreAddress } from './task/subject.ts'
import { resultFor } from './work.ts'

const CHILD = fileURLToPath(new URL('./older/child.js', import.meta.url))

interface Effort {
  readonly rounds: number
  readonly warmUp: number
  readonly calls: number
}

/** A server in a process of its own. */
interface Subject {
  readonly name: string
  readonly child: string
  readonly server: 'rondo' | 'official'
  readonly address?: StoreAddress
}

interface Running {
  /** Sends so many calls; returns the CPU time of the server for one, in µs. */
  cost(tool: string, calls: number): Promise<number>
  stop(): Promise<void>
}

interface Case {
  readonly what: string
  readonly transport: 'http' | 'stdio'
  readonly tool: 'plain' | 'ask'
  /** The aim for the official server's CPU time ÷ ours. */
  readonly least: number
  readonly mostMicros?: number
  readonly address?: () => StoreAddress
}

type Costs = Map<string, number[]>

export const run: RunBench = async ({ quick, against, part, progress }) => {
  const effort: Effort = quick
    ? { rounds: 3, warmUp: 400, calls: 300 }
    : { rounds: 7, warmUp: 1_000, calls: 800 }
  const [sqlite, postgres] = await Promise.all([openSqliteFiles(), openPostgresServer()])
  const before = against === undefined ? undefined : await linkCheckout(against)
  const cases: Case[] = [
    { what: 'stdio, plain call', transport: 'stdio', tool: 'plain', least: 1.2 },
    { what: 'HTTP, plain call', transport: 'http', tool: 'plain', least: 1, mostMicros: 150 },
    { what: 'HTTP, one question', transport: 'http', tool: 'ask', least: 2.5 },
  ]
  for (const databases of [sqlite, ...(postgres ? [postgres] : [])]) {
    const what = `HTTP, one question, with ${databases.name}`
    cases.push({ what, transport: 'http', tool: 'ask', least: 1, address: databases.create })
  }
  try {
    const measured: [Case, Costs][] = []
    for (const one of cases.filter(({ transport }) => (part ?? transport) === transport)) {
      progress(`older: ${one.what}`)
      const subjects: Subject[] = [
        { name: 'official v1', child: CHILD, server: 'official' },
        { name: 'rondo', child: CHILD, server: 'rondo', address: one.address?.() },
      ]
      if (before) {
        const child = before.file('older/child.js')
        subjects.push({ name: 'before', child, server: 'rondo', address: one.address?.() })
      }
      measured.push([one, await measure(one, subjects, effort)])
    }
    const data = measured.map(([{ what }, costs]) => ({ what, ...Object.fromEntries(costs) }))
    return { tables: [aimTable(measured.flatMap(aimsOf), 'older-aims'), costTable(measured)], data }
  } finally {
    await before?.remove()
    await Promise.all([sqlite.close(), postgres?.close()])
  }
}

async function measure(
  { transport, tool }: Case,
  subjects: readonly Subject[],
  effort: Effort,
): Promise<Costs> {
  const costs: Costs = new Map(subjects.map(({ name }) => [name, []]))
  const running = await Promise.all(
    subjects.map(async (subject) => {
      const server = transport === 'http' ? await startHttp(subject) : await startStdio(subject)
      return { name: subject.name, server }
    }),
  )
  try {
    for (const { server } of running) await server.cost(tool, effort.warmUp)
    for (let round = 0; round < effort.rounds; round++)
      for (const { name, server } of running) costs.get(name)?.push(await server.cost(tool, effort.calls))
  } finally {
    await Promise.all(running.map(({ server }) => server.stop()))
  }
  return costs
}

function aimsOf([{ what, least, mostMicros }, costs]: [Case, Costs]): Aim[] {
  const [ours = [], official = []] = [costs.get('rondo'), costs.get('official v1')]
  const ratio: Aim = {
    what: `${what}: official v1 ÷ rondo`,
    found: medianRatio(official, ours),
    unit: '×',
    least,
  }
  const micros: Aim = { what, found: median(ours), unit: ' µs', most: mostMicros }
  return mostMicros === undefined ? [ratio] : [ratio, micros]
}

function costTable(measured: readonly [Case, Costs][]): Table {
  const names = [...(measured[0]?.[1].keys() ?? [])]
  return {
    title: 'Server CPU of one call of an older client, µs',
    mark: 'older',
    columns: ['call', ...names],
    rows: measured.map(([{ what }, costs]) => [
      what,
      ...names.map((name) => fixed(median(costs.get(name) ?? []))),
    ]),
  }
}

function spawnChild({ child, server, address }: Subject, transport: string): ChildProcess {
  const pipe = transport === 'stdio' ? 'pipe' : 'ignore'
  return spawn(process.execPath, [child, server, transport, JSON.stringify(address ?? null)], {
    stdio: [pipe, pipe, 'inherit', 'ipc'],
  })
}

type Used = Extract<OlderMessage, { kind: 'used' }>

async function usedBy(child: ChildProcess): Promise<number> {
  const told = messageOf<Used>(child, 'used')
  child.send('cpu')
  return (await told).micros
}

const HTTP_CLIENTS = 8

async function startHttp(subject: Subject): Promise<Running> {
  const child = spawnChild(subject, 'http')
  const { url = '' } = await messageOf<Extract<OlderMessage, { kind: 'listening' }>>(child, 'listening')
  const clients = await Promise.all(Array.from({ length: HTTP_CLIENTS }, () => connectClient(url)))
  let next = 0
  return {
    async cost(tool, calls) {
      const began = await usedBy(child)
      let left = calls
      await Promise.all(
        clients.map(async (client) => {
          while (left-- > 0) await callTool(client, tool, next++)
        }),
      )
      return ((await usedBy(child)) - began) / calls
    },
    async stop() {
      await Promise.all(clients.map((client) => client.close()))
      child.disconnect()
    },
  }
}

async function connectClient(url: string): Promise<Client> {
  const client = new Client({ name: 'bench', version: '1.0.0' }, { capabilities: { elicitation: {} } })
  client.setRequestHandler(ElicitRequestSchema, async () => ({
    action: 'accept' as const,
    content: { resolution: 'Fixed' },
  }))
  await client.connect(new StreamableHTTPClientTransport(new URL(url)))
  return client
}

async function callTool(client: Client, name: string, id: number): Promise<void> {
  const { content } = await client.callTool({ name, arguments: { id } })
  const [first] = content as readonly { text?: string }[]
  if (first?.text !== resultFor(id, 'Fixed')) throw new Error(`Unexpected result: ${JSON.stringify(content)}`)
}

/** Calls that are open at the same time over stdio. */
const STDIO_CALLS = 8

async function startStdio(subject: Subject): Promise<Running> {
  const child = spawnChild(subject, 'stdio')
  const [stdin, stdout] = [child.stdin, child.stdout]
  if (stdin === null || stdout === null) throw new Error('The server has no standard streams')
  await messageOf(child, 'listening')
  const open = new Map<number, (result: { content?: readonly { text?: string }[] }) => void>()
  createInterface({ input: stdout }).on('line', (line) => {
    const { id, result } = JSON.parse(line)
    open.get(id)?.(result ?? {})
    open.delete(id)
  })
  const send = (message: object): void =>
    void stdin.write(`${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`)
  let next = 0
  const request = (
    method: string,
    params: (id: number) => object,
  ): Promise<readonly [number, { content?: readonly { text?: string }[] }]> => {
    const id = next++
    const response = new Promise<{ content?: readonly { text?: string }[] }>((resolve) =>
      open.set(id, resolve),
    )
    send({ id, method, params: params(id) })
    return response.then((result) => [id, result] as const)
  }
  const clientInfo = { name: 'bench', version: '1.0.0' }
  await request('initialize', () => ({ protocolVersion: '2025-11-25', capabilities: {}, clientInfo }))
  send({ method: 'notifications/initialized' })
  return {
    async cost(tool, calls) {
      const began = await usedBy(child)
      let left = calls
      await Promise.all(
        Array.from({ length: STDIO_CALLS }, async () => {
          while (left-- > 0) {
            const [id, { content }] = await request('tools/call', (id) => ({ name: tool, arguments: { id } }))
            if (content?.[0]?.text !== resultFor(id, 'Fixed'))
              throw new Error(`Unexpected result: ${JSON.stringify(content)}`)
          }
        }),
      )
      return ((await usedBy(child)) - began) / calls
    },
    async stop() {
      child.disconnect()
    },
  }
}

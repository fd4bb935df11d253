/**
 * The cost of a question while nobody answers it: memory per parked question, for clients of 2026-07-28 (rounds,
 * and tasks) and of 2025-11-25 (a session each, and an open stream), and what remains after the clients have gone.
 */

import { Agent, type ClientRequest, type IncomingMessage, request } from 'node:http'
import type { RunBench } from './bench.ts'
import {
  type ServerName,
  type ServerProcess,
  type SessionServerName,
  spawnServer,
} from './server/spawn-server.ts'
import { fixed } from './stat.ts'
import { TOOL } from './work.ts'

interface Case {
  readonly label: string
  readonly server: ServerName | SessionServerName
  park(url: URL, id: number, held: ClientRequest[]): Promise<void>
}

interface Figures {
  readonly label: string
  readonly parkedBytes: number
  readonly parkedRssBytes: number
  readonly leftBytes: number
}

const CASES: readonly Case[] = [
  { label: 'Rondo, rounds', server: 'rondo', park: ask },
  { label: 'Rondo, task on SQLite', server: 'rondo-task', park: asTask },
  { label: 'Rondo, pushed', server: 'rondo', park: pushed },
  { label: 'official 2.4, pushed', server: 'official-session', park: pushed },
]
const AT_ONCE = 20
const WARM_UP = 400

const agent = new Agent({ keepAlive: true, maxSockets: AT_ONCE })

export const run: RunBench = async ({ quick, progress }) => {
  const count = quick ? 200 : 1_000
  const figures: Figures[] = []
  for (const one of CASES) {
    progress(`parked: ${one.label}`)
    figures.push(await measure(one, count))
  }
  const kB = (bytes: number): string => fixed(bytes / 1_024, 1)
  const table = {
    title: `Memory of a server per question that waits (${count} of them), kB`,
    mark: 'parked',
    columns: ['server', 'heap and buffers', 'resident', 'left when the clients have gone'],
    rows: figures.map(({ label, parkedBytes, parkedRssBytes, leftBytes }) => [
      label,
      kB(parkedBytes),
      kB(parkedRssBytes),
      kB(leftBytes),
    ]),
  }
  return { tables: [table], data: { count, figures } }
}

async function measure({ label, server, park }: Case, count: number): Promise<Figures> {
  const child = await spawnServer(server, 1, { execArgv: ['--expose-gc'] })
  try {
    const warm: ClientRequest[] = []
    const held: ClientRequest[] = []
    await parkAll(child, park, WARM_UP, warm)
    const before = await child.usage()
    await parkAll(child, park, count, held)
    const parked = await child.usage()
    for (const open of held) open.destroy()
    const left = await settled(child)
    for (const open of warm) open.destroy()
    return {
      label,
      parkedBytes: (parked.heapBytes - before.heapBytes) / count,
      parkedRssBytes: (parked.rssBytes - before.rssBytes) / count,
      leftBytes: (left - before.heapBytes) / count,
    }
  } finally {
    agent.destroy()
    await child.stop()
  }
}

async function parkAll(
  { url }: Pick<ServerProcess, 'url'>,
  park: Case['park'],
  count: number,
  held: ClientRequest[],
): Promise<void> {
  for (let id = 0; id < count; id += AT_ONCE) {
    const some = Array.from({ length: Math.min(AT_ONCE, count - id) }, (_, i) => park(url, id + i, held))
    await Promise.all(some)
  }
}

/** The heap size once it no longer shrinks; a server may need some time to notice that clients have gone. */
async function settled(child: Pick<ServerProcess, 'usage'>): Promise<number> {
  let last = (await child.usage()).heapBytes
  for (let look = 0; look < 10; look++) {
    await new Promise((resolve) => setTimeout(resolve, 200))
    const { heapBytes } = await child.usage()
    if (heapBytes > last * 0.99) return heapBytes
    last = heapBytes
  }
  return last
}

interface Sent {
  readonly message: object
  readonly headers?: Readonly<Record<string, string>>
  /** Keeps the response open, on its own connection. */
  readonly held?: ClientRequest[]
}

function send(url: URL, { message, headers, held }: Sent): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    const body = JSON.stringify({ jsonrpc: '2.0', ...message })
    const sent = request(url, {
      method: 'POST',
      agent: held ? false : agent,
      headers: {
        'Content-Type': 'application/json',
        Accept: 'application/json, text/event-stream',
        'Content-Length': Buffer.byteLength(body),
        ...headers,
      },
    })
    held?.push(sent)
    sent.on('error', (error) => (held && sent.destroyed ? undefined : reject(error)))
    sent.on('response', resolve)
    sent.end(body)
  })
}

/** Reads until `text` has arrived, and returns what was read; a response that is not kept open is read to its end. */
function until(response: IncomingMessage, text: string, whole: boolean): Promise<string> {
  return new Promise((resolve, reject) => {
    let read = ''
    const check = (): void => {
      if (read.includes(text)) resolve(read)
      else reject(new Error(`Unexpected response: ${response.statusCode} ${read.slice(0, 300)}`))
    }
    response.on('data', (chunk: Buffer) => {
      read += chunk.toString()
      if (!whole && read.includes(text)) resolve(read)
    })
    response.on('error', () => {})
    response.on('end', check)
  })
}

async function ask(url: URL, id: number): Promise<void> {
  await until(
    await sendModern(url, id, 'tools/call', TOOL, { name: TOOL, arguments: { id } }),
    'requestState',
    true,
  )
}

function sendModern(
  url: URL,
  id: number,
  method: string,
  name: string,
  params: object,
  extensions = {},
): Promise<IncomingMessage> {
  const _meta = {
    'io.modelcontextprotocol/protocolVersion': '2026-07-28',
    'io.modelcontextprotocol/clientCapabilities': { elicitation: {}, extensions },
  }
  const headers = { 'MCP-Protocol-Version': '2026-07-28', 'Mcp-Method': method, 'Mcp-Name': name }
  return send(url, { message: { id, method, params: { ...params, _meta } }, headers })
}

const TASKS = { 'io.modelcontextprotocol/tasks': {} }
const MAX_LOOKS = 1_000

async function asTask(url: URL, id: number): Promise<void> {
  const params = { name: TOOL, arguments: { id } }
  const created = await until(await sendModern(url, id, 'tools/call', TOOL, params, TASKS), 'taskId', true)
  const { taskId } = (JSON.parse(created) as { result: { taskId: string } }).result
  for (let look = 0; look < MAX_LOOKS; look++) {
    const seen = await until(
      await sendModern(url, id, 'tasks/get', taskId, { taskId }, TASKS),
      'status',
      true,
    )
    if (seen.includes('"input_required"')) return
    await new Promise((resolve) => setTimeout(resolve, 2))
  }
  throw new Error('The task did not reach its question')
}

async function pushed(url: URL, id: number, held: ClientRequest[]): Promise<void> {
  const clientInfo = { name: 'bench', version: '1.0.0' }
  const greeting = { protocolVersion: '2025-11-25', capabilities: { elicitation: {} }, clientInfo }
  const begun = await send(url, { message: { id: 'i', method: 'initialize', params: greeting } })
  await until(begun, 'protocolVersion', true)
  const headers = {
    'Mcp-Session-Id': String(begun.headers['mcp-session-id']),
    'MCP-Protocol-Version': '2025-11-25',
  }
  const ready = await send(url, { message: { method: 'notifications/initialized' }, headers })
  await until(ready, '', true)
  const params = { name: TOOL, arguments: { id } }
  const call = await send(url, { message: { id, method: 'tools/call', params }, headers, held })
  await until(call, 'elicitation/create', false)
}

/**
 * The cost of a bridge: CPU of client, bridge and server for a plain call and for a call with a question, over stdio to a server
 * on HTTP. `rondo bridge`, mcp-remote and supergateway take the same path in the same rounds; without a bridge the same client calls the
 * same server. Then the memory of held calls, and the CPU of a long list.
 *
 * The client is this process. A peer that cannot pass a call on at a revision has a dash there.
 */

import { readFileSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { type Client, connect } from 'rondo/client'
import { type Aim, aimTable } from './aim.ts'
import type { Report, RunBench, Settings, Table } from './bench.ts'
import { pinLoad, type ServerProcess, spawnServer } from './server/spawn-server.ts'
import { fixed, median, percentile } from './stat.ts'
import { resultFor, TOOL } from './work.ts'

const PATHS = ['direct', 'rondo', 'mcp-remote', 'supergateway'] as const
type Path = (typeof PATHS)[number]
const REVISIONS = ['2025-11-25', '2026-07-28'] as const
type Revision = (typeof REVISIONS)[number]
const KINDS = ['plain', 'question'] as const
type Kind = (typeof KINDS)[number]

const FULL = { warmUp: 500, rounds: 7, calls: 300, held: 2_000, lists: 5 }
const QUICK = { warmUp: 200, rounds: 3, calls: 100, held: 300, lists: 3 }
type Effort = typeof FULL

/** Longer, and a bridge has lost the call. */
const PATIENCE_MS = 30_000
const LISTED = 10_000

/** The CPU and wall time of one call in one round, in microseconds. */
interface Cost {
  readonly client: number
  readonly bridge: number
  readonly server: number
  readonly p50: number
}

interface Racer {
  readonly path: Path
  readonly revision: Revision
  readonly client: Client
  /** The CPU time of the bridge so far; 0 without one. */
  cpu(): number
}

export const run: RunBench = async (settings) => {
  const effort = settings.quick ? QUICK : FULL
  if (!pinLoad()) settings.progress('client and servers share their cores (no taskset)')
  const calls = await measureCalls(effort, settings)
  const heldBytes = await measureHeld(effort, settings)
  const listMicros = await measureList(effort, settings)
  return toReport(calls, heldBytes, listMicros, effort)
}

type Costs = Readonly<Record<Revision, Record<Kind, Record<Path, Cost[] | undefined>>>>

async function measureCalls(effort: Effort, settings: Settings): Promise<Costs> {
  const home = await mkdtemp(join(tmpdir(), 'rondo-bench-'))
  const server = await spawnServer('rondo', 1)
  const costs = {} as Record<Revision, Record<Kind, Record<Path, Cost[] | undefined>>>
  try {
    for (const revision of REVISIONS) {
      const racers: Racer[] = []
      try {
        for (const path of PATHS) {
          const racer = await open(path, revision, server.url, home)
          if (racer) racers.push(racer)
        }
        costs[revision] = { plain: {} as never, question: {} as never }
        for (const kind of KINDS)
          costs[revision][kind] = await raceCalls(racers, kind, server, effort, settings)
      } finally {
        await Promise.all(racers.map(({ client }) => client.close()))
      }
    }
    return costs
  } finally {
    await server.stop()
    await rm(home, { recursive: true })
  }
}

const { resolve } = createRequire(import.meta.url)
/** The program of a package, which its package.json names. */
function programOf(name: string, bin: string): string {
  const manifest = resolve(`${name}/package.json`)
  const { bin: bins } = JSON.parse(readFileSync(manifest, 'utf8')) as { bin: Record<string, string> }
  return join(dirname(manifest), bins[bin] ?? '')
}

const PROGRAMS: Readonly<Record<Exclude<Path, 'direct'>, (url: string) => readonly string[]>> = {
  rondo: (url) => [programOf('@rondo/cli', 'rondo'), 'bridge', '--ask', 'host', url],
  'mcp-remote': (url) => [programOf('mcp-remote', 'mcp-remote'), url, '--transport', 'http-only'],
  supergateway: (url) => [
    programOf('supergateway', 'supergateway'),
    '--streamableHttp',
    url,
    '--logLevel',
    'none',
  ],
}

/** Connects a client, through a bridge or directly. Undefined if the bridge does not get a client of this revision connected. */
async function open(path: Path, revision: Revision, url: URL, home: string): Promise<Racer | undefined> {
  const answers = {
    elicitation: { form: () => ({ action: 'accept', content: { resolution: 'Fixed' } }) as const },
  }
  const options = { answers, mode: revision, timeoutMs: PATIENCE_MS }
  if (path === 'direct') return { path, revision, client: await connect(url.href, options), cpu: () => 0 }
  const file = join(home, `${path}-${revision}.pid`)
  // The shell writes its process id, which is then that of the bridge.
  const args = ['-c', 'echo $$ > "$0"; exec "$@"', file, process.execPath, ...PROGRAMS[path](url.href)]
  const env = { ...(process.env as Record<string, string>), RONDO_HOME: home, MCP_REMOTE_CONFIG_DIR: home }
  const client = await connect({ command: 'sh', args, env, stderr: () => {} }, options).catch(() => undefined)
  if (client === undefined) return undefined
  const pid = Number(readFileSync(file, 'utf8'))
  return { path, revision, client, cpu: () => cpuOf(pid) }
}

/** Linux counts in hundredths of a second. */
const TICK_MICROS = 10_000
const USER_TIME = 11

/** The CPU time of another process, in microseconds. */
function cpuOf(pid: number): number {
  const stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
  return (Number(fields[USER_TIME]) + Number(fields[USER_TIME + 1])) * TICK_MICROS
}

async function raceCalls(
  racers: readonly Racer[],
  kind: Kind,
  server: ServerProcess,
  { warmUp, rounds, calls }: Effort,
  { progress }: Settings,
): Promise<Record<Path, Cost[] | undefined>> {
  const able: Racer[] = []
  for (const racer of racers) {
    progress(`${racer.revision}, ${kind}: ${racer.path} warms up`)
    const isAble = await repeat(racer.client, kind, warmUp).then(
      () => true,
      () => false,
    )
    if (isAble) able.push(racer)
  }
  const costs = Object.fromEntries(able.map(({ path }) => [path, [] as Cost[]])) as Record<
    Path,
    Cost[] | undefined
  >
  for (let round = 1; round <= rounds; round++) {
    progress(`${racers[0]?.revision}, ${kind}: round ${round} of ${rounds}`)
    // Another one is first in every round.
    const order = [...able.slice(round % able.length), ...able.slice(0, round % able.length)]
    for (const racer of order) costs[racer.path]?.push(await measureOne(racer, kind, server, calls))
  }
  return costs
}

async function measureOne(
  { client, cpu }: Racer,
  kind: Kind,
  server: ServerProcess,
  calls: number,
): Promise<Cost> {
  const [bridge, { cpuMicros: before }, own] = [cpu(), await server.usage(), process.cpuUsage()]
  const times = await repeat(client, kind, calls)
  const { user, system } = process.cpuUsage(own)
  const { cpuMicros: after } = await server.usage()
  return {
    client: (user + system) / calls,
    bridge: (cpu() - bridge) / calls,
    server: (after - before) / calls,
    p50: percentile(
      times.toSorted((a, b) => a - b),
      0.5,
    ),
  }
}

/** Calls one after the other, and checks every result. Returns the wall time of each, in microseconds. */
async function repeat(client: Client, kind: Kind, calls: number): Promise<number[]> {
  const times: number[] = []
  for (let id = 1; id <= calls; id++) {
    const began = performance.now()
    const args = kind === 'plain' ? { id, resolution: 'Fixed' } : { id }
    const { content } = await client.callTool(TOOL, args)
    times.push((performance.now() - began) * 1000)
    const [block] = content as readonly { readonly text?: string }[]
    if (block?.text !== resultFor(id, 'Fixed'))
      throw new Error(`Unexpected result: ${JSON.stringify(content)}`)
  }
  return times
}

/** The memory of a gateway for each call that it holds. */
async function measureHeld({ held }: Effort, { progress }: Settings): Promise<number> {
  const server = await spawnServer('gateway-holding', 1, { execArgv: ['--expose-gc'] })
  const client = await connect(server.url.href)
  try {
    const start = async (id: number): Promise<void> => {
      const request = { method: 'tools/call', name: TOOL, arguments: { id } } as const
      const { status } = await client.start(request, { accepts: ['form'] })
      if (status !== 'input_required') throw new Error(`A call that asks is ${status}`)
    }
    const batch = 50
    // The first calls load code and open the connection.
    for (let id = 0; id < 2 * batch; id++) await start(id)
    const { heapBytes } = await server.usage()
    for (let begun = 0; begun < held; begun += batch) {
      progress(`${begun} of ${held} held calls`)
      await Promise.all(Array.from({ length: batch }, (_, i) => start(1_000 + begun + i)))
    }
    return ((await server.usage()).heapBytes - heapBytes) / held
  } finally {
    await client.close()
    await server.stop()
  }
}

/** The CPU time of a gateway for one list of all tools. */
async function measureList({ lists }: Effort, { progress }: Settings): Promise<number> {
  progress(`${LISTED} tools`)
  const server = await spawnServer('gateway', LISTED)
  const client = await connect(server.url.href)
  try {
    const micros: number[] = []
    for (let i = 0; i < lists; i++) {
      const { cpuMicros } = await server.usage()
      const tools = await client.listTools({ fresh: true })
      if (tools.length !== LISTED) throw new Error(`${tools.length} tools were listed`)
      micros.push((await server.usage()).cpuMicros - cpuMicros)
    }
    return median(micros)
  } finally {
    await client.close()
    await server.stop()
  }
}

const of = (costs: readonly Cost[] | undefined, part: (cost: Cost) => number): number =>
  costs === undefined || costs.length === 0 ? Number.NaN : median(costs.map(part))
const all = ({ client, bridge, server }: Cost): number => client + bridge + server

function toReport(costs: Costs, heldBytes: number, listMicros: number, effort: Effort): Report {
  const aims = aimsOf(costs, heldBytes, listMicros)
  const tables = [aimTable(aims, 'gateway-aims'), costTable(costs)]
  return { tables, data: { effort, costs, heldBytes, listMicros } }
}

function aimsOf(costs: Costs, heldBytes: number, listMicros: number): readonly Aim[] {
  const older = costs['2025-11-25']
  const half = (kind: Kind, peer: Path): Aim => ({
    what: `CPU of the bridge, ${sayKind(kind)}, of that of ${peer}`,
    found: of(older[kind].rondo, ({ bridge }) => bridge) / of(older[kind][peer], ({ bridge }) => bridge),
    most: 0.5,
    unit: '×',
  })
  const sum = (kind: Kind, revision: Revision): Aim => ({
    what: `client, bridge and server, ${sayKind(kind)} at ${revision}, of client and server`,
    found: of(costs[revision][kind].rondo, all) / of(costs[revision][kind].direct, all),
    most: 2.2,
    unit: '×',
  })
  const more = (revision: Revision): Aim => ({
    what: `p50 of a plain call at ${revision}, more than directly`,
    found:
      (of(costs[revision].plain.rondo, ({ p50 }) => p50) -
        of(costs[revision].plain.direct, ({ p50 }) => p50)) /
      1000,
    most: 1,
    unit: ' ms',
  })
  return [
    ...KINDS.flatMap((kind) => [half(kind, 'mcp-remote'), half(kind, 'supergateway')]),
    ...REVISIONS.flatMap((revision) => [...KINDS.map((kind) => sum(kind, revision)), more(revision)]),
    { what: 'memory of a held call', found: heldBytes / 1000, unit: ' kB', most: 30 },
    { what: `CPU of a list of ${LISTED} tools`, found: listMicros / 1000, unit: ' ms', most: 50 },
  ]
}

const sayKind = (kind: Kind): string => (kind === 'plain' ? 'plain call' : 'call with a question')

function costTable(costs: Costs): Table {
  const rows = REVISIONS.flatMap((revision) =>
    KINDS.flatMap((kind) =>
      PATHS.map((path) => {
        const found = costs[revision][kind][path]
        const figures = [
          ({ client }: Cost) => client,
          ({ bridge }: Cost) => bridge,
          ({ server }: Cost) => server,
          all,
          ({ p50 }: Cost) => p50,
        ]
        return [`${revision}, ${sayKind(kind)}, ${path}`, ...figures.map((one) => fixed(of(found, one)))]
      }),
    ),
  )
  return {
    title: 'µs for each call: CPU of each process, and wall time',
    mark: 'gateway',
    columns: ['client of, call, path', 'client', 'bridge', 'server', 'all', 'p50'],
    rows,
  }
}

/** The cost of importing: CPU time and memory of fresh processes, one after the other. */

import { spawnSync } from 'node:child_process'
import type { Report, RunBench } from './bench.ts'
import { fixed, median, medianRatio } from './stat.ts'

const SUBJECTS: Readonly<Record<string, readonly string[]>> = {
  nothing: [],
  rondo: ['rondo'],
  'rondo and zod': ['rondo', 'zod'],
  'rondo/client': ['rondo/client'],
  'official server': ['@modelcontextprotocol/server'],
  'official server and node entrance': ['@modelcontextprotocol/server', '@modelcontextprotocol/node'],
  'official client': ['@modelcontextprotocol/client'],
}
const BASE = 'official server'

interface Cost {
  readonly cpuMs: number
  readonly rssMb: number
}

const SCRIPT = `
  const before = process.cpuUsage()
  for (const name of process.argv.slice(1)) await import(name)
  const { user, system } = process.cpuUsage(before)
  process.stdout.write(JSON.stringify({ cpuMs: (user + system) / 1e3, rssMb: process.memoryUsage.rss() / 1e6 }))
`

export const run: RunBench = async ({ quick, progress }) => {
  const rounds = quick ? 5 : 15
  const costs = new Map<string, Cost[]>(Object.keys(SUBJECTS).map((name) => [name, []]))
  for (let round = 0; round < rounds; round++) {
    progress(`import: round ${round + 1} of ${rounds}`)
    for (const [name, modules] of Object.entries(SUBJECTS)) costs.get(name)?.push(importOnce(modules))
  }
  return toReport(costs)
}

function importOnce(modules: readonly string[]): Cost {
  const args = ['--input-type=module', '--eval', SCRIPT, '--', ...modules]
  const { status, stdout } = spawnSync(process.execPath, args, {
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  if (status !== 0) throw new Error(`Importing ${modules.join(', ')} failed`)
  return JSON.parse(stdout) as Cost
}

function toReport(costs: ReadonlyMap<string, readonly Cost[]>): Report {
  const cpuOf = (name: string): readonly number[] => (costs.get(name) ?? []).map(({ cpuMs }) => cpuMs)
  const rows = [...costs].map(([name, list]) => [
    name,
    fixed(median(cpuOf(name)), 1),
    `${fixed(100 * medianRatio(cpuOf(name), cpuOf(BASE)))} %`,
    fixed(median(list.map(({ rssMb }) => rssMb))),
  ])
  const table = {
    title: 'Importing, in a fresh process',
    mark: 'import',
    columns: ['import', 'CPU ms', `of the ${BASE}`, 'RSS MB'],
    rows,
  }
  return { tables: [table], data: Object.fromEntries(costs) }
}

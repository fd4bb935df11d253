/**
 * `npm run bench`: measures and prints tables. Compare figures only within one run: machines vary from minute to
 * minute.
 */

import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { cpus } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import type { Report, RunBench } from './bench.ts'
import { fillPage, printTable } from './print-table.ts'

/** A new bench is a file in this folder and a line here. */
const BENCHES: Readonly<Record<string, () => Promise<{ run: RunBench }>>> = {
  capacity: () => import('./capacity.ts'),
  client: () => import('./client.ts'),
  core: () => import('./core.ts'),
  engines: () => import('./engines.ts'),
  felt: () => import('./felt.ts'),
  fleet: () => import('./fleet.ts'),
  gateway: () => import('./gateway.ts'),
  identity: () => import('./identity.ts'),
  import: () => import('./import.ts'),
  large: () => import('./large.ts'),
  older: () => import('./older.ts'),
  parked: () => import('./parked.ts'),
  sdk: () => import('./sdk.ts'),
  tasks: () => import('./tasks.ts'),
}

/** The pages with tables that a bench writes. */
const PAGES = ['docs/reference/performance.md', 'docs/reference/capacity.md']

const HELP = `Usage: npm run bench -- [options] [name …]

  ${Object.keys(BENCHES).join(', ')}: what to measure (all)

  --quick   fewer requests and rounds: a quick check, not a measurement
  --only DATABASE
            capacity, tasks: on this database alone, sqlite or postgres
  --part NAME
            tasks: this part alone: rates, lone, server, parked or sleeping
            core: forms, which is what the log, spans and tokens add
            felt: ends, asks, follow, wal, disk or stream
            older: http or stdio
  --against DIR
            core, felt, older, tasks: run the build of another checkout beside this one, in the same rounds
  --update  write the tables that the pages performance and capacity have marks for into these pages
  --json    every figure as JSON on stdout, instead of tables
  --help    this text`

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    quick: { type: 'boolean', default: false },
    only: { type: 'string' },
    part: { type: 'string' },
    update: { type: 'boolean', default: false },
    against: { type: 'string' },
    json: { type: 'boolean', default: false },
    help: { type: 'boolean', default: false },
  },
})

async function main(): Promise<void> {
  const names = positionals.length > 0 ? positionals : Object.keys(BENCHES)
  const unknown = names.find((name) => !Object.hasOwn(BENCHES, name))
  if (unknown !== undefined) throw new TypeError(`Unknown bench "${unknown}".\n\n${HELP}`)
  if (values.against !== undefined && !existsSync(join(values.against, 'packages/rondo/dist/index.js'))) {
    throw new TypeError(`${values.against} has no build: run "npm ci && npm run build" there.`)
  }
  const machine = { date: new Date().toISOString(), node: process.version, cpu: cpus()[0]?.model }
  const reports: Record<string, Report> = {}
  for (const name of names) {
    const bench = await BENCHES[name]?.()
    if (bench === undefined) continue
    const report = await bench.run({ ...values, progress })
    reports[name] = report
    progress('')
    if (!values.json) for (const table of report.tables) console.log(`${printTable(table)}\n`)
    if (values.update)
      for (const page of PAGES) writeFileSync(page, fillPage(readFileSync(page, 'utf8'), report.tables))
  }
  if (values.json) {
    const data = Object.fromEntries(Object.entries(reports).map(([name, report]) => [name, report.data]))
    console.log(JSON.stringify({ ...machine, quick: values.quick, ...data }, undefined, 2))
  } else {
    console.log(`Node ${machine.node}, ${machine.cpu}, ${machine.date}`)
  }
}

/** One line that is overwritten on a terminal; nothing in a pipe. */
function progress(text: string): void {
  if (process.stderr.isTTY) process.stderr.write(`\r\u001b[2K${text}`)
}

if (values.help) console.log(HELP)
else await main()

/**
 * `npm run bench`: measures and prints tables. Compare figures only within one run: machines vary from minute to
 * minute. The tables of a bench are printed and written as soon as it is done; one that fails does not stop the others.
 */

import { fork } from 'node:child_process'
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { cpus } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { BENCHES, type Report, type Table } from './bench.ts'
import type { FromBench } from './child.ts'
import { messageOf } from './message-of.ts'
import { fillPage, printTable } from './print-table.ts'

/** The pages with tables that a bench writes. */
const PAGES = ['docs/reference/performance.md', 'docs/reference/capacity.md', 'bench/public.md']

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
  --url URL public: measure the server at this address, beside a bare one; bench/public.md says which tool it needs
  --second URL
            public: another instance of that server
  --restart COMMAND
            public: a command that restarts that server
  --header 'Name: value'
            public: a header for each request to that server; may be given several times
  --against DIR
            core, felt, older, tasks: run the build of another checkout beside this one, in the same rounds
  --update  write the tables that performance.md, capacity.md and bench/public.md have marks for into these pages
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
    url: { type: 'string' },
    second: { type: 'string' },
    restart: { type: 'string' },
    header: { type: 'string', multiple: true },
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
  const data: Record<string, unknown> = {}
  const failed: string[] = []
  for (const [index, name] of names.entries()) {
    const label = `${name} (${index + 1} of ${names.length})`
    const began = performance.now()
    progress(`${label}: begins`, true)
    try {
      const report = await measure(name, (text) => progress(`${label}: ${text}`))
      if (!values.json) for (const table of report.tables) console.log(`${printTable(table)}\n`)
      if (values.update) fillPages(report.tables)
      data[name] = report.data
    } catch (error) {
      failed.push(name)
      console.error(error)
    }
    const outcome = failed.includes(name) ? 'failed' : 'done'
    progress(`${label}: ${outcome} after ${Math.round((performance.now() - began) / 1_000)} s`, true)
  }
  if (values.json) console.log(JSON.stringify({ ...machine, quick: values.quick, ...data }, undefined, 2))
  else console.log(`Node ${machine.node}, ${machine.cpu}, ${machine.date}`)
  if (failed.length > 0) throw new Error(`These benches failed: ${failed.join(', ')}`)
}

const CHILD = fileURLToPath(new URL('./child.js', import.meta.url))

/** Runs a bench in a process of its own, whose cores and memory are not those of another bench. */
async function measure(name: string, onProgress: (text: string) => void): Promise<Report> {
  const child = fork(CHILD, [name, JSON.stringify(values)])
  child.on('message', (message: FromBench) => {
    if (message.kind === 'progress') onProgress(message.text)
  })
  const { report } = await messageOf<Extract<FromBench, { kind: 'done' }>>(child, 'done')
  child.disconnect()
  return report
}

function fillPages(tables: readonly Table[]): void {
  for (const page of PAGES) writeFileSync(page, fillPage(readFileSync(page, 'utf8'), tables))
}

const PIPE_MS = 30_000
let writtenAt = Number.NEGATIVE_INFINITY

/** One line that is overwritten on a terminal, except for what is `kept`; in a pipe, a line from time to time. */
function progress(text: string, kept = false): void {
  if (process.stderr.isTTY) {
    process.stderr.write(`\r\u001b[2K${text}${kept ? '\n' : ''}`)
  } else if (kept || performance.now() - writtenAt > PIPE_MS) {
    writtenAt = performance.now()
    process.stderr.write(`${new Date().toISOString().slice(11, 19)} ${text}\n`)
  }
}

if (values.help) console.log(HELP)
else await main()

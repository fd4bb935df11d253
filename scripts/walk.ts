/**
 * `npm run walk`: the files that one call passes through on the server, in the order in which it first enters them.
 *
 * The program is the README's: one `tools/call` that asks a question, and its retry. A process of its own serves it over
 * `node:http` from sources compiled file by file; this one calls it with our client. The call is made twice in that
 * process, so that what is loaded or compiled once does not count, and the second call is measured. V8's precise coverage
 * counts the lines; a second process, whose functions report when they are entered, records the order and how often the
 * call returns to a file from another one.
 */

import { type ChildProcess, execFileSync, fork } from 'node:child_process'
import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { SourceMap, type SourceMapPayload } from 'node:module'
import { join, relative, resolve } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { parseArgs } from 'node:util'
import { parseSync, Visitor } from 'oxc-parser'
import { connect } from '../packages/rondo/src/client.ts'

const SOURCES = 'packages/rondo/src'
const CARRIERS = ['token', 'task', 'push'] as const
type Carrier = (typeof CARRIERS)[number]

const HELP = `Usage: npm run walk -- [options]

  --carrier token|task|push  what carries the journal between the two legs (token)
  --json                     print JSON instead of a table
  --update                   write the table of the token carrier into ARCHITECTURE.md
  --help                     this text`

/** What a reader opens, in this order; everything else on the path is a leaf. */
const SPINE = [
  'serve/http/node.ts',
  'serve/http/exchange.ts',
  'protocol/rev-2026-07-28/decode.ts',
  'serve/service.ts',
  'carry/token.ts',
  'carry/round.ts',
  'replay/replay.ts',
  'replay/turn.ts',
  'replay/ask.ts',
  'seal/state.ts',
  'protocol/rev-2026-07-28/encode.ts',
]

export interface WalkedFile {
  readonly path: string
  readonly lines: number
  readonly executedLines: number
  /** How often the call entered this file from another one, after the first time. */
  readonly reentries: number
  readonly spine: boolean
}

interface ScriptCoverage {
  readonly url: string
  readonly functions: readonly {
    readonly ranges: readonly { startOffset: number; endOffset: number; count: number }[]
  }[]
}

const MARKED = /(<!-- walk -->\n)[\s\S]*?(<!-- \/walk -->)/

/** Replaces the block between the two `walk` comments of ARCHITECTURE.md. */
function updateDocs(table: string): void {
  const page = readFileSync('ARCHITECTURE.md', 'utf8')
  if (!MARKED.test(page))
    throw new Error('ARCHITECTURE.md has no block between <!-- walk --> and <!-- /walk -->.')
  const block = `\`\`\`text\n${table}\n\`\`\`\n`
  writeFileSync(
    'ARCHITECTURE.md',
    page.replace(MARKED, (_, open, close) => open + block + close),
  )
}

/** Compiles the packages file by file, beside a link to the installed packages. */
function compile(): string {
  const folder = mkdtempSync(join(resolve('node_modules'), '.walk-'))
  const flags = [
    '--noEmit',
    'false',
    '--sourceMap',
    '--rootDir',
    'packages',
    '--outDir',
    join(folder, 'packages'),
  ]
  execFileSync(
    resolve('node_modules/.bin/tsc'),
    [
      '-p',
      'tsconfig.build.json',
      '--emitDeclarationOnly',
      'false',
      '--declaration',
      'false',
      '--isolatedDeclarations',
      'false',
      ...flags,
    ],
    { stdio: 'inherit' },
  )
  writeFileSync(join(folder, 'package.json'), '{"type":"module"}')
  symlinkSync(resolve('node_modules'), join(folder, 'node_modules'))
  return folder
}

/** A copy of the compiled files in which every function reports that it was entered. */
function instrument(folder: string): void {
  const root = join(folder, SOURCES)
  for (const name of readdirSync(root, { recursive: true, encoding: 'utf8' })) {
    if (!name.endsWith('.js')) continue
    const path = join(root, name)
    const source = readFileSync(path, 'utf8')
    const inserts: { at: number; text: string }[] = []
    const call = `globalThis.__enter?.(${JSON.stringify(name)})`
    const body = (block: { start: number } | null): void => {
      if (block) inserts.push({ at: block.start + 1, text: `${call};` })
    }
    new Visitor({
      FunctionDeclaration: (node) => body(node.body),
      FunctionExpression: (node) => body(node.body),
      ArrowFunctionExpression: (node) => {
        if (node.body.type === 'BlockStatement') return body(node.body)
        inserts.push({ at: node.body.start, text: `(${call},` }, { at: node.body.end, text: ')' })
      },
    }).visit(parseSync(name, source, { preserveParens: true }).program)
    inserts.sort((a, b) => b.at - a.at)
    let text = source
    for (const { at, text: inserted } of inserts) text = text.slice(0, at) + inserted + text.slice(at)
    writeFileSync(path, text)
  }
}

function received<T>(child: ChildProcess, what?: object): Promise<T> {
  return new Promise((done, failed) => {
    child.once('message', (message) => done(message as T))
    child.once('exit', (code) => failed(new Error(`The measured server ended with exit code ${code}.`)))
    if (what) child.send(what)
  })
}

/** Serves from `folder` in a process of its own, makes the call twice, and returns what was recorded of the second. */
async function record<T>(folder: string, carrier: Carrier): Promise<T> {
  const child = fork(
    fileURLToPath(new URL('walk-server.js', import.meta.url)),
    [pathToFileURL(join(folder, SOURCES, '/')).href, carrier],
    { execArgv: [] },
  )
  try {
    const { url } = await received<{ url: string }>(child)
    const client = await connect(url, {
      mode: carrier === 'push' ? '2025-11-25' : '2026-07-28',
      tasks: carrier === 'task' ? 'poll' : false,
      answers: { elicitation: () => ({ action: 'accept', content: { resolution: 'Fixed' } }) },
    })
    try {
      await client.callTool('resolve_bug', { id: 1 })
      await received(child, { kind: 'start' })
      const result = await client.callTool('resolve_bug', { id: 2 })
      const text = JSON.stringify(result.content)
      if (!text.includes('resolved as Fixed'))
        throw new Error(`The measured call returned something else: ${text}`)
      return await received<T>(child, { kind: 'take' })
    } finally {
      await client.close()
    }
  } finally {
    child.kill()
  }
}

/** The lines of the original that were executed, by file. */
function executedLines(folder: string, coverage: readonly ScriptCoverage[]): Map<string, number> {
  const counts = new Map<string, number>()
  for (const { url, functions } of coverage) {
    const file = fileURLToPath(url)
    const text = readFileSync(file, 'utf8')
    // The innermost range decides: outer ones come first in the report of each function.
    const hit = new Uint8Array(text.length)
    const ranges = functions.flatMap((one) => one.ranges)
    ranges.sort((a, b) => a.startOffset - b.startOffset || b.endOffset - a.endOffset)
    for (const { startOffset, endOffset, count } of ranges)
      hit.fill(count > 0 ? 1 : 0, startOffset, endOffset)
    const map = new SourceMap(JSON.parse(readFileSync(`${file}.map`, 'utf8')) as SourceMapPayload)
    const lines = new Set<number>()
    let offset = 0
    text.split('\n').forEach((line, at) => {
      for (let column = 0; column < line.length; column++) {
        if (!hit[offset + column] || line[column] === ' ') continue
        const entry = map.findEntry(at, column)
        if ('originalLine' in entry) lines.add(entry.originalLine)
      }
      offset += line.length + 1
    })
    // What runs when a module is loaded was counted before the call began, so only functions are left here.
    if (lines.size > 0) counts.set(sourcePath(folder, file), lines.size)
  }
  return counts
}

const sourcePath = (folder: string, file: string): string =>
  relative(join(folder, SOURCES), file).replaceAll('\\', '/').replace(/\.js$/, '.ts')

export async function walk(carrier: Carrier): Promise<WalkedFile[]> {
  const folder = compile()
  const reporting = `${folder}-reporting`
  try {
    const coverage = await record<ScriptCoverage[]>(folder, carrier)
    const executed = executedLines(folder, coverage)
    cpSync(folder, reporting, { recursive: true, verbatimSymlinks: true })
    instrument(reporting)
    const entered = await record<string[]>(reporting, carrier)
    const visits = new Map<string, number>()
    for (const name of entered) {
      const path = name.replaceAll('\\', '/').replace(/\.js$/, '.ts')
      visits.set(path, (visits.get(path) ?? 0) + 1)
    }
    return [...visits].map(([path, times]) => ({
      path,
      lines: readFileSync(join(SOURCES, path), 'utf8').trimEnd().split('\n').length,
      executedLines: executed.get(path) ?? 0,
      reentries: times - 1,
      spine: SPINE.includes(path),
    }))
  } finally {
    rmSync(folder, { recursive: true, force: true })
    rmSync(reporting, { recursive: true, force: true })
  }
}

export function toTable(files: readonly WalkedFile[]): string {
  const width = Math.max(...files.map(({ path }) => path.length)) + 2
  const row = (name: string, ...cells: (string | number)[]): string =>
    `${name.padEnd(width)}${cells.map((cell) => String(cell).padStart(12)).join('')}`
  const sum = (list: readonly WalkedFile[]): [number, number, number] => [
    list.reduce((total, one) => total + one.lines, 0),
    list.reduce((total, one) => total + one.executedLines, 0),
    list.reduce((total, one) => total + one.reentries, 0),
  ]
  const spine = files.filter((one) => one.spine)
  return [
    row('file (* spine)', 'lines', 'executed', 're-entries'),
    ...files.map((one) =>
      row(`${one.spine ? '*' : ' '} ${one.path}`, one.lines, one.executedLines, one.reentries),
    ),
    '',
    row(`${files.length} files`, ...sum(files)),
    row(`${spine.length} of them the spine`, ...sum(spine)),
  ].join('\n')
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const { values } = parseArgs({
    options: {
      carrier: { type: 'string', default: 'token' },
      json: { type: 'boolean', default: false },
      update: { type: 'boolean', default: false },
      help: { type: 'boolean', default: false },
    },
  })
  const carrier = CARRIERS.find((one) => one === values.carrier)
  if (values.help) console.log(HELP)
  else if (carrier === undefined) {
    console.error(`Unknown carrier "${values.carrier}": use one of ${CARRIERS.join(', ')}.`)
    process.exitCode = 2
  } else if (values.update) {
    updateDocs(toTable(await walk('token')))
  } else {
    const files = await walk(carrier)
    console.log(values.json ? JSON.stringify(files, null, 2) : toTable(files))
  }
}

/**
 * `npm run walk`: the files that one call passes through, in the order in which it first enters them; and the lines of source
 * in each package.
 *
 * The program is the README's (`examples/01-ask.ts`), as it is deployed: a question, its answer, an effect, the log. A process
 * of its own runs it from sources compiled file by file, and a client calls it over HTTP: ours, or for `push` the official one
 * of the time before rounds. The call is made twice, so that what is loaded or compiled once does not count, and the second
 * call is measured: in the process of the server, or in that of the client. V8's precise coverage counts the lines; a second
 * pair of processes, whose functions report when they are entered, records the order and how often the call returns to a file
 * from another one.
 */

import { type ChildProcess, execFileSync, fork } from 'node:child_process'
import { once } from 'node:events'
import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { SourceMap, type SourceMapPayload } from 'node:module'
import { join, relative, resolve } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { parseArgs } from 'node:util'
import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import { ElicitRequestSchema } from '@modelcontextprotocol/sdk/types.js'
import { transformSync } from 'esbuild'
import { parseSync, Visitor } from 'oxc-parser'
import { generateKey } from 'rondo'
import { connect } from 'rondo/client'

const SOURCES = 'packages/rondo/src'
const PROGRAM = 'examples/01-ask.ts'
const CARRIERS = ['token', 'task', 'push', 'client'] as const
type Carrier = (typeof CARRIERS)[number]

const HELP = `Usage: npm run walk -- [options]

  --carrier token|task|push|client  what carries the journal between question and answer (token);
                                    client: the files of our client instead of the server's, in rounds
  --lines                           print the lines of source in each package instead
  --json                            print JSON instead of a table
  --update                          write the table of the token carrier, and the sums of all, into ARCHITECTURE.md
  --help                            this text`

/** The files that a reader opens, in this order; everything else on the path is a leaf. */
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

interface WalkedFile {
  readonly path: string
  readonly lines: number
  readonly executedLines: number
  /** The number of times that the call entered this file from another one, after the first time. */
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
async function updateDocs(compiled: Compiled): Promise<void> {
  const page = readFileSync('ARCHITECTURE.md', 'utf8')
  if (!MARKED.test(page))
    throw new Error('ARCHITECTURE.md has no block between <!-- walk --> and <!-- /walk -->.')
  let table = ''
  for (const carrier of CARRIERS) {
    const files = await walk(compiled, carrier)
    table += carrier === 'token' ? `${toTable(files)}\n` : `\n${carrier}: ${files.length} files`
  }
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

/** Replaces text that must be there once, so that a change of the program is noticed. */
function replaceOnce(text: string, found: string, by: string): string {
  if (text.split(found).length !== 2) throw new Error(`${PROGRAM} should contain once: ${found}`)
  return text.replace(found, () => by)
}

/** Writes the README's program beside the compiled files; for `task`, with a store and a tool that always runs as a task. */
function writeProgram(folder: string, carrier: Carrier): string {
  let source = replaceOnce(readFileSync(PROGRAM, 'utf8'), "'rondo'", `'./${SOURCES}/index.js'`)
  if (carrier === 'task') {
    source = replaceOnce(source, "version: '1.0.0' }", "version: '1.0.0', store: createMemoryStore() }")
    source = replaceOnce(source, "'Resolve a bug',", "'Resolve a bug', task: 'always',")
    source = `import { createMemoryStore } from './${SOURCES}/store/memory/store.js'\n${source}`
  }
  const path = join(folder, 'program.js')
  writeFileSync(path, transformSync(source, { loader: 'ts', format: 'esm' }).code)
  return path
}

interface Measured {
  readonly child: ChildProcess
  /** Resolves with the next message. */
  received<T>(what?: object): Promise<T>
}

/** Runs `walk-process.js`; what it writes to stderr is shown if it ends early. */
function start(folder: string, ...role: string[]): Measured {
  const child = fork(
    fileURLToPath(new URL('walk-process.js', import.meta.url)),
    [pathToFileURL(join(folder, SOURCES, '/')).href, ...role],
    {
      execArgv: [],
      env: { ...process.env, NODE_ENV: 'production', PORT: '0', RONDO_KEYS: generateKey('walk') },
      stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
    },
  )
  let errors = ''
  child.stderr?.setEncoding('utf8').on('data', (text: string) => {
    errors += text
  })
  const ended = once(child, 'exit').then(([code]): never => {
    throw new Error(`The measured process ended with exit code ${code}.\n${errors}`)
  })
  ended.catch(() => {})
  return {
    child,
    async received<T>(what?: object): Promise<T> {
      const message = once(child, 'message')
      if (what) child.send(what)
      const [got] = await Promise.race([message, ended])
      return got as T
    },
  }
}

/** Calls the tool for one bug, and answers its question. */
type CallTool = (id: number) => Promise<unknown>

const ANSWER = { action: 'accept' as const, content: { resolution: 'Fixed' } }

async function connectOurs(url: string, isTask: boolean): Promise<[CallTool, () => Promise<void>]> {
  const client = await connect(url, {
    mode: '2026-07-28',
    tasks: isTask ? 'poll' : false,
    answers: { elicitation: () => ANSWER },
  })
  return [(id) => client.callTool('resolve_bug', { id }), () => client.close()]
}

/** Our client opts into the draft in which earlier revisions take turns, and so is never asked by push. */
async function connectOfficial(url: string): Promise<[CallTool, () => Promise<void>]> {
  const client = new Client(
    { name: 'walk', version: '1.0.0' },
    { capabilities: { elicitation: { form: {} } } },
  )
  client.setRequestHandler(ElicitRequestSchema, () => ANSWER)
  await client.connect(new StreamableHTTPClientTransport(new URL(url)))
  return [(id) => client.callTool({ name: 'resolve_bug', arguments: { id } }), () => client.close()]
}

/** Runs the program from `folder`, makes the call twice, and returns what was recorded of the second. */
async function record<T>(folder: string, carrier: Carrier): Promise<T> {
  const server = start(folder, 'server', pathToFileURL(writeProgram(folder, carrier)).href)
  let measured = server
  let close = async (): Promise<void> => {}
  try {
    const { url } = await server.received<{ url: string }>()
    let call: CallTool
    if (carrier === 'client') {
      measured = start(folder, 'client', url)
      await measured.received()
      call = (id) => measured.received({ kind: 'call', id })
    } else {
      ;[call, close] =
        carrier === 'push' ? await connectOfficial(url) : await connectOurs(url, carrier === 'task')
    }
    await call(1)
    await measured.received({ kind: 'start' })
    const text = JSON.stringify(await call(2))
    if (!text.includes('resolved as Fixed'))
      throw new Error(`The measured call returned something else: ${text}`)
    return await measured.received<T>({ kind: 'take' })
  } finally {
    await close()
    measured.child.kill()
    server.child.kill()
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
    // Code that runs when a module is loaded was counted before the call began, so only functions are left here.
    if (lines.size > 0) counts.set(sourcePath(folder, file), lines.size)
  }
  return counts
}

const sourcePath = (folder: string, file: string): string =>
  relative(join(folder, SOURCES), file).replaceAll('\\', '/').replace(/\.js$/, '.ts')

/** The packages, compiled twice: as they are, and with functions that report. */
interface Compiled {
  readonly plain: string
  readonly reporting: string
}

async function withCompiled<T>(use: (compiled: Compiled) => Promise<T>): Promise<T> {
  const plain = compile()
  const reporting = `${plain}-reporting`
  try {
    cpSync(plain, reporting, { recursive: true, verbatimSymlinks: true })
    instrument(reporting)
    return await use({ plain, reporting })
  } finally {
    rmSync(plain, { recursive: true, force: true })
    rmSync(reporting, { recursive: true, force: true })
  }
}

async function walk({ plain, reporting }: Compiled, carrier: Carrier): Promise<WalkedFile[]> {
  const executed = executedLines(plain, await record<ScriptCoverage[]>(plain, carrier))
  const entered = await record<string[]>(reporting, carrier)
  const visits = new Map<string, number>()
  for (const name of entered) {
    const path = name.replaceAll('\\', '/').replace(/\.js$/, '.ts')
    visits.set(path, (visits.get(path) ?? 0) + 1)
  }
  return [...visits].map(([path, times]) => ({
    path,
    lines: countLines(join(SOURCES, path)),
    executedLines: executed.get(path) ?? 0,
    reentries: times - 1,
    spine: SPINE.includes(path),
  }))
}

const countLines = (path: string): number => readFileSync(path, 'utf8').trimEnd().split('\n').length

interface PackageLines {
  readonly name: string
  readonly files: number
  readonly lines: number
}

/** The source in each package, without its tests, the console's page, and the template for new projects. */
function packageLines(): PackageLines[] {
  const sums = new Map<string, { name: string; files: number; lines: number }>()
  const tracked = execFileSync('git', ['ls-files', 'packages'], { encoding: 'utf8' }).trim().split('\n')
  for (const path of tracked) {
    if (!/\.(?:ts|tsx|js)$/.test(path) || /\.test\.ts$/.test(path)) continue
    if (/^packages\/(?:cli\/console|create-rondo\/template)\//.test(path)) continue
    const name = path.split('/')[1] ?? ''
    const sum = sums.get(name) ?? { name, files: 0, lines: 0 }
    sum.files += 1
    sum.lines += countLines(path)
    sums.set(name, sum)
  }
  const packages = [...sums.values()].sort((a, b) => b.lines - a.lines)
  const total = (of: (one: PackageLines) => number): number => packages.reduce((sum, one) => sum + of(one), 0)
  return [...packages, { name: 'all', files: total((one) => one.files), lines: total((one) => one.lines) }]
}

function linesTable(): string {
  const row = (...[name, files, lines]: (string | number)[]): string =>
    `${String(name).padEnd(16)}${String(files).padStart(8)}${String(lines).padStart(10)}`
  return [
    row('package', 'files', 'lines'),
    ...packageLines().map(({ name, files, lines }) => row(name, files, lines)),
  ].join('\n')
}

function toTable(files: readonly WalkedFile[]): string {
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
    ...(spine.length > 0 ? [row(`${spine.length} of them the spine`, ...sum(spine))] : []),
  ].join('\n')
}

const { values } = parseArgs({
  options: {
    carrier: { type: 'string', default: 'token' },
    lines: { type: 'boolean', default: false },
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
} else if (values.lines) {
  console.log(values.json ? JSON.stringify(packageLines(), null, 2) : linesTable())
} else if (values.update) {
  await withCompiled(updateDocs)
} else {
  const files = await withCompiled((compiled) => walk(compiled, carrier))
  console.log(values.json ? JSON.stringify(files, null, 2) : toTable(files))
}

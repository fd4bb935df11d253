/**
 * Calls a server of ours with clients of others, and prints what worked: `npm run clients`, with `--update` into
 * docs/reference/clients.md. Every cell is a process of its own with a time limit.
 */

import { execFile, execFileSync } from 'node:child_process'
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { createServer as createHttpServer } from 'node:http'
import { dirname, join } from 'node:path'
import { promisify } from 'node:util'
import { createServer } from 'rondo'
import { z } from 'zod'

const FOLDER = import.meta.dirname
const PAGE = 'docs/reference/clients.md'
const TIMEOUT_MS = 60_000

if (!existsSync(join(FOLDER, 'node_modules'))) {
  const args = ['ci', '--prefix', FOLDER, '--no-audit', '--no-fund', '--ignore-scripts', '--legacy-peer-deps']
  execFileSync('npm', args, { stdio: ['ignore', 'ignore', 'inherit'] })
}
const { CLIENTS } = await import('./clients.js')
const run = promisify(execFile)

const Resolution = z.object({ resolution: z.enum(['Fixed', 'Duplicate', 'By Design']) })
const Original = z.object({ duplicateOf: z.int() })
const input = z.object({ id: z.int() })

function createTracker() {
  const server = createServer({ name: 'tracker', version: '1.0.0', log: 'off' })
  const ask = (ctx, id) =>
    ctx.ask('resolution', { message: `How was bug #${id} resolved?`, schema: Resolution })
  const original = (ctx) => ctx.ask('original', { message: 'Of which bug?', schema: Original })
  server.tool('plain', { input }, ({ id }) => `Bug #${id} is open.`)
  server.tool('ask', { input }, async ({ id }, ctx) => `${id} ${(await ask(ctx, id)).resolution}`)
  server.tool('ask_again', { input }, async ({ id }, ctx) => {
    const { resolution } = await ask(ctx, id)
    const { duplicateOf } = await original(ctx)
    return `${id} ${resolution} ${duplicateOf}`
  })
  server.tool('ask_both', { input }, async ({ id }, ctx) => {
    const [{ resolution }, { duplicateOf }] = await Promise.all([ask(ctx, id), original(ctx)])
    return `${id} ${resolution} ${duplicateOf}`
  })
  return server
}

const CELLS = [
  ['plain', 'plain call', 'Bug #7 is open.'],
  ['ask', 'a question', '7 Duplicate'],
  ['ask_again', 'one after another', '7 Duplicate 1'],
  ['ask_both', 'two at once', '7 Duplicate 1'],
]

async function tryCell(client, url, tool, expected) {
  const { stdout } = await run(process.execPath, [join(FOLDER, 'call.js'), client, url, tool], {
    timeout: TIMEOUT_MS,
  }).catch((error) => ({
    stdout: JSON.stringify({ error: error.killed ? 'no end within 60 s' : String(error) }),
  }))
  const { result, error } = JSON.parse(stdout.trim().split('\n').at(-1) || '{"error":"no output"}')
  if (result?.includes(expected)) return 'yes'
  const reason = error ?? result ?? ''
  if (/cannot be asked|elicitation/i.test(reason)) return 'cannot be asked, and is told so'
  return `no: ${reason.slice(0, 80)}`
}

const server = createTracker()
const handle = server.nodeHandler()
const revisions = new Set()
const http = createHttpServer((req, res) => {
  const revision = req.headers['mcp-protocol-version']
  if (revision !== undefined) revisions.add(revision)
  handle(req, res)
})
await new Promise((resolve) => http.listen(0, '127.0.0.1', resolve))
const url = `http://127.0.0.1:${http.address().port}/mcp`

const rows = []
for (const [name, { package: packed }] of Object.entries(CLIENTS)) {
  revisions.clear()
  const cells = []
  for (const [tool, , expected] of CELLS) cells.push(await tryCell(name, url, tool, expected))
  rows.push([name, versionOf(packed), [...revisions].sort().at(-1) ?? '–', ...cells])
  console.error(rows.at(-1).join(' | '))
}
http.close()
http.closeAllConnections()
await server.close()

/** The version that is installed beside this file, or at the root. */
function versionOf(name) {
  for (let folder = FOLDER; ; folder = dirname(folder)) {
    const file = join(folder, 'node_modules', name, 'package.json')
    if (existsSync(file)) return JSON.parse(readFileSync(file, 'utf8')).version
  }
}

const line = (cells) =>
  `| ${cells.map((cell) => cell.replaceAll('|', '\\|').replaceAll('\n', ' ')).join(' | ')} |`
const head = ['client', 'version', 'revision', ...CELLS.map(([, title]) => title)]
const table = [line(head), line(head.map(() => '---')), ...rows.map(line)].join('\n')
const written = `${table}\n\nTried on ${new Date().toISOString().slice(0, 10)} with Node ${process.versions.node}, over HTTP.`
console.log(written)
if (process.argv.includes('--update')) {
  const page = readFileSync(PAGE, 'utf8')
  writeFileSync(
    PAGE,
    page.replace(/(<!-- clients -->\n)[\s\S]*?(<!-- \/clients -->)/, `$1\n${written}\n\n$2`),
  )
}

/**
 * Tries what is promised for runtimes other than Node. The binaries are downloaded from the npm registry into
 * node_modules/.cache.
 *
 *   npm run test:runtimes
 *
 * Bun and Deno: a question that one process asks is answered at another, the first one being gone; a client asks and answers at a
 * server of every revision. workerd: the tests of `test/deploy.test.ts` that need it.
 */

import { execFile, execFileSync, spawn, spawnSync } from 'node:child_process'
import { existsSync, mkdirSync, readFileSync } from 'node:fs'
import { dirname, resolve } from 'node:path'
import { createInterface } from 'node:readline'
import { promisify } from 'node:util'
import { createServer, generateKey } from 'rondo'
import { connect } from 'rondo/client'
import { z } from 'zod'

const VERSIONS = { bun: '1.4.4', deno: '2.9.6', workerd: '1.20261110.1' }
const FOLDER = resolve('node_modules/.cache/rondo-runtimes')
const BINARIES = {
  bun: '@oven/bun-linux-x64/bin/bun',
  deno: '@deno/linux-x64-glibc/deno',
  workerd: '@cloudflare/workerd-linux-64/bin/workerd',
}
const ARGS = { bun: ['run'], deno: ['run', '--allow-all', '--quiet'] }
const MODES = ['2026-07-28', '2025-11-25']
const TIMEOUT_MS = 120_000

const run = promisify(execFile)

function obtain(name) {
  const program = resolve(FOLDER, 'node_modules', BINARIES[name])
  const installed = resolve(FOLDER, 'node_modules', name, 'package.json')
  const isThere =
    existsSync(program) && JSON.parse(readFileSync(installed, 'utf8')).version === VERSIONS[name]
  if (isThere) return program
  mkdirSync(FOLDER, { recursive: true })
  const args = ['install', '--no-save', '--no-audit', '--no-fund', '--ignore-scripts', '--prefix', FOLDER]
  const wanted = Object.entries(VERSIONS).map(([each, version]) => `${each}@${version}`)
  execFileSync('npm', [...args, ...wanted], { stdio: ['ignore', 'ignore', 'inherit'] })
  if (!existsSync(program)) throw new Error(`${name} is not available for this system`)
  return program
}

/** Starts the server under a runtime, and resolves when it listens. */
function serve(program, args, keys) {
  const env = { ...process.env, RONDO_KEYS: keys }
  const child = spawn(program, [...args, 'test/runtimes/serve.js'], {
    env,
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  return new Promise((resolve, reject) => {
    child.once('error', reject)
    child.once('exit', (code) => reject(new Error(`The server ended with code ${code}`)))
    createInterface(child.stdout).once('line', (port) => {
      child.removeAllListeners('exit')
      resolve({ url: `http://127.0.0.1:${port}/mcp`, child })
    })
  })
}

function kill(child) {
  return new Promise((resolve) => {
    child.once('exit', resolve)
    child.kill('SIGKILL')
  })
}

/** One process asks and dies; another one, which has the same keys, completes the call. */
async function serveTwice(program, args) {
  const keys = generateKey('k')
  const first = await serve(program, args, keys)
  const second = await serve(program, args, keys)
  try {
    const asking = await connect(first.url)
    const request = { method: 'tools/call', name: 'resolve_bug', arguments: { id: 7 } }
    const step = await asking.round(request)
    assert(step.requestState !== undefined, step)
    await asking.close()
    await kill(first.child)
    const answering = await connect(second.url)
    const inputResponses = { resolution: { action: 'accept', content: { resolution: 'Fixed' } } }
    const { requestState } = step
    const last = await answering.round(request, { inputResponses, requestState })
    await answering.close()
    assert(JSON.stringify(last).includes('Bug #7 resolved as Fixed.'), last)
  } finally {
    await kill(second.child)
  }
}

async function callEach(program, args) {
  const server = createServer({ name: 'node', version: '1.0.0', log: 'off' })
  const schema = z.object({ resolution: z.enum(['Fixed', 'Duplicate']) })
  server.tool('resolve_bug', { input: z.object({ id: z.int() }) }, async ({ id }, ctx) => {
    const { resolution } = await ctx.ask('resolution', { message: 'How was it resolved?', schema })
    return `Bug #${id} resolved as ${resolution}.`
  })
  const { url } = await server.listen({ port: 0, signals: false })
  try {
    for (const mode of MODES) {
      const { stdout } = await run(program, [...args, 'test/runtimes/call.js', url, mode], {
        timeout: TIMEOUT_MS,
      })
      assert(stdout.trim() === 'Bug #7 resolved as Fixed.', stdout)
    }
  } finally {
    await server.close()
  }
}

function assert(isTrue, found) {
  if (!isTrue) throw new Error(`Unexpected result: ${JSON.stringify(found)}`)
}

const checks = []
for (const name of ['bun', 'deno']) {
  checks.push([name, 'serves rounds, another process continues', serveTwice])
  checks.push([name, 'calls servers of 2026-07-28 and 2025-11-25', callEach])
}
let failed = false
for (const [name, what, check] of checks) {
  try {
    await check(obtain(name), ARGS[name])
    console.log(`${name} ${VERSIONS[name]}: ${what}`)
  } catch (error) {
    failed = true
    console.error(`${name} ${VERSIONS[name]} FAILED: ${what}\n${error.stack}`)
  }
}
const env = { ...process.env, PATH: `${dirname(obtain('workerd'))}:${process.env.PATH}` }
const tests = ['node_modules/vitest/vitest.mjs', 'run', 'test/deploy.test.ts', '-t', 'runtime of Workers']
if (spawnSync(process.execPath, tests, { env, stdio: 'inherit' }).status !== 0) failed = true
else console.log(`workerd ${VERSIONS.workerd}: the tests that need it passed`)
process.exitCode = failed ? 1 : 0

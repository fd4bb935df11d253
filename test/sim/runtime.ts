/**
 * Builds the runtime from its sources for a simulated world: its timers, clocks and random bytes are those of the world, and
 * nothing else of it is replaced. A control weakens one place of one file.
 */

import { createHash } from 'node:crypto'
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join, resolve } from 'node:path'
import { pathToFileURL } from 'node:url'
import type { createApprovals } from '@rondo/approvals'
import { build, type Plugin } from 'esbuild'
import type * as rondo from 'rondo'
import type { createPostgresStore } from 'rondo/postgres'
import type { createSqliteStore } from 'rondo/sqlite'
import type { createMemoryStore } from '../../packages/rondo/src/store/memory/store.ts'
import type { World } from './world.ts'

export interface Runtime
  extends Pick<typeof rondo, 'createServer' | 'generateKey' | 'parseKeys' | 'RondoError' | 'ToolError'> {
  readonly createApprovals: typeof createApprovals
  readonly createMemoryStore: typeof createMemoryStore
  readonly createSqliteStore: typeof createSqliteStore
  readonly createPostgresStore: typeof createPostgresStore
}

/** A text that occurs exactly once in a file, and its replacement. The path is relative to packages/rondo/src. */
export interface Edit {
  readonly file: string
  readonly from: string
  readonly to: string
}

const SOURCES = resolve('packages/rondo/src')
const ENTRY = `
export { createServer, generateKey, parseKeys, RondoError, ToolError } from ${JSON.stringify(join(SOURCES, 'index.ts'))}
export { createMemoryStore } from ${JSON.stringify(join(SOURCES, 'store/memory/store.ts'))}
export { createSqliteStore } from ${JSON.stringify(join(SOURCES, 'sqlite.ts'))}
export { createPostgresStore } from ${JSON.stringify(join(SOURCES, 'postgres.ts'))}
export { createApprovals } from ${JSON.stringify(resolve('packages/approvals/src/index.ts'))}`

/** Random bytes also come from the kernel, unless that fails: here it fails. */
const NO_KERNEL: Edit = {
  file: 'lib/random.ts',
  from: "device ??= openSync('/dev/urandom', 'r')",
  to: "throw 'no kernel'",
}

const CRYPTO = `
export * from 'node:crypto'
export const randomFillSync = (bytes) => __sim.fill(bytes)
export const randomBytes = (size) => __sim.fill(Buffer.alloc(size))
export const randomUUID = () => randomBytes(16).toString('hex')`

/** Loads the runtime, with the edit if there is one. */
export async function loadRuntime(edit?: Edit): Promise<Runtime> {
  // Beside the packages, which it loads by name.
  const cache = resolve('node_modules/.cache')
  mkdirSync(cache, { recursive: true })
  const folder = mkdtempSync(join(cache, 'rondo-sim-'))
  const file = join(folder, 'runtime.mjs')
  try {
    writeFileSync(file, await bundle(edit))
    return await import(pathToFileURL(file).href)
  } finally {
    rmSync(folder, { recursive: true })
  }
}

/** Changes with the code of the runtime, and with that of the simulator. */
export async function runtimeDigest(): Promise<string> {
  const hash = createHash('sha256').update(await bundle())
  const folder = resolve('test/sim')
  for (const name of readdirSync(folder).sort()) hash.update(readFileSync(join(folder, name)))
  return hash.digest('hex')
}

const TIMERS = [
  'setTimeout',
  'clearTimeout',
  'setInterval',
  'clearInterval',
  'setImmediate',
  'clearImmediate',
]

async function bundle(edit?: Edit): Promise<Uint8Array> {
  const { outputFiles } = await build({
    stdin: { contents: ENTRY, resolveDir: SOURCES },
    bundle: true,
    write: false,
    format: 'esm',
    platform: 'node',
    target: 'node20.19',
    tsconfig: 'tsconfig.json',
    define: {
      globalThis: '__sim.globals',
      'Date.now': '__sim.now',
      'performance.now': '__sim.elapsed',
      'Math.random': '__sim.random',
      ...Object.fromEntries(TIMERS.map((name) => [name, `__sim.globals.${name}`])),
    },
    banner: { js: `const __sim = globalThis[Symbol.for('rondo.sim')];` },
    plugins: [edits(edit ? [NO_KERNEL, edit] : [NO_KERNEL]), externals],
  })
  return outputFiles[0]?.contents ?? new Uint8Array()
}

function edits(list: readonly Edit[]): Plugin {
  return {
    name: 'edits',
    setup({ onLoad }) {
      for (const { file, from, to } of list) {
        const path = join(SOURCES, file)
        onLoad({ filter: new RegExp(`^${path.replaceAll(/[./]/g, '\\$&')}$`) }, () => {
          const parts = readFileSync(path, 'utf8').split(from)
          if (parts.length !== 2)
            throw new Error(`${file} has the text to replace ${parts.length - 1} times: ${from}`)
          return { contents: parts.join(to), loader: 'ts' }
        })
      }
    },
  }
}

/** Packages are loaded from where they are installed; random bytes come from the world. */
const externals: Plugin = {
  name: 'externals',
  setup({ onResolve, onLoad }) {
    const { resolve: find } = createRequire(join(SOURCES, 'index.ts'))
    onResolve({ filter: /^node:crypto$/ }, ({ namespace }) =>
      namespace === 'sim' ? { path: 'node:crypto', external: true } : { path: 'crypto', namespace: 'sim' },
    )
    onLoad({ filter: /./, namespace: 'sim' }, () => ({ contents: CRYPTO }))
    onResolve({ filter: /^[a-z@]/ }, ({ path, kind }) => {
      if (kind === 'entry-point' || path.startsWith('rondo')) return undefined
      return { path: path.startsWith('node:') ? path : pathToFileURL(find(path)).href, external: true }
    })
  },
}

interface Timer {
  cancel(): void
  ref(): Timer
  unref(): Timer
}

let world: World | undefined
let began = 0

/** Runs every copy of the runtime in this world from now on. */
export function enter(next: World): void {
  world = next
  began = next.now
}

function here(): World {
  if (!world) throw new Error('The runtime started a timer outside of a world')
  return world
}

function start(ms: number, run: () => void): Timer {
  const timer = { cancel: here().schedule(ms, here().current, run), ref: () => timer, unref: () => timer }
  return timer
}

function every(run: () => void, ms: number): Timer {
  const tick = (): void => {
    timer.cancel = here().schedule(ms, here().current, tick)
    run()
  }
  const timer = start(ms, tick)
  return timer
}

type Callback = (...args: unknown[]) => void
const cancel = (timer?: Timer): void => timer?.cancel()

/** The clocks, timers and random bytes of the runtime, in the place where every copy of it looks for them. */
const port = {
  globals: Object.assign(Object.create(globalThis), {
    setTimeout: (run: Callback, ms = 0, ...args: unknown[]) => start(ms, () => run(...args)),
    setInterval: every,
    setImmediate: (run: Callback, ...args: unknown[]) => start(0, () => run(...args)),
    clearTimeout: cancel,
    clearInterval: cancel,
    clearImmediate: cancel,
  }),
  now: () => Math.floor(here().now + (here().current?.skewMs ?? 0)),
  elapsed: () => here().now - began,
  random: () => here().dice('runtime').next(),
  fill<T extends Uint8Array>(bytes: T): T {
    const dice = here().dice('runtime')
    for (let i = 0; i < bytes.length; i++) bytes[i] = dice.int(0, 255)
    return bytes
  },
}
Object.assign(globalThis, { [Symbol.for('rondo.sim')]: port })

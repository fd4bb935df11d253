/**
 * The client without Node: bundled for a browser, and run without Node's globals. Needs the build.
 */

import {
  mkdirSync,
  mkdtempSync,
  readFileSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { dirname, join, resolve } from 'node:path'
import vm from 'node:vm'
import { build as esbuild } from 'esbuild'
import { createServer as createRondo } from 'rondo'
import { build as vite } from 'vite'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import webpack from 'webpack'

const scratch = realpathSync(mkdtempSync(join(tmpdir(), 'rondo-browser-')))
const entry = join(scratch, 'page.js')
const MINUTES = 300_000

const PAGE = `
  import { connect, sealPending } from 'rondo/client'
  globalThis.page = {
    async call(url) {
      const elicitation = () => ({ action: 'accept', content: { confirm: true } })
      const client = await connect(url, { answers: { elicitation } })
      const { content } = await client.callTool('ask')
      await client.close()
      return content[0].text
    },
    start: () => connect({ command: 'node' }).then(() => 'started', (error) => error.message),
  }
`

beforeAll(() => {
  mkdirSync(join(scratch, 'node_modules'))
  symlinkSync(resolve('packages/rondo'), join(scratch, 'node_modules/rondo'))
  writeFileSync(join(scratch, 'package.json'), '{"type":"module"}')
  writeFileSync(entry, PAGE)
})

afterAll(() => rmSync(scratch, { recursive: true, force: true }))

async function withEsbuild(): Promise<string> {
  const { outputFiles } = await esbuild({
    entryPoints: [entry],
    bundle: true,
    platform: 'browser',
    format: 'iife',
    write: false,
    logLevel: 'silent',
  })
  return outputFiles[0]?.text ?? ''
}

async function withVite(): Promise<string> {
  const outDir = join(scratch, 'vite')
  await vite({
    root: scratch,
    configFile: false,
    logLevel: 'error',
    build: {
      outDir,
      minify: false,
      lib: { entry, formats: ['iife'], name: 'page_', fileName: () => 'page.js' },
    },
  })
  return readFileSync(join(outDir, 'page.js'), 'utf8')
}

function withWebpack(): Promise<string> {
  const path = join(scratch, 'webpack')
  return new Promise((done, fail) => {
    const compiler = webpack({
      mode: 'production',
      target: 'web',
      context: scratch,
      entry,
      output: { path, filename: 'page.js' },
      optimization: { minimize: false },
    })
    if (!compiler) return fail(new Error('webpack returned no compiler'))
    compiler.run((error, stats) => {
      if (error) return fail(error)
      if (stats?.hasErrors()) return fail(new Error(stats.toString({ errors: true })))
      compiler.close(() => done(readFileSync(join(path, 'page.js'), 'utf8')))
    })
  })
}

interface Page {
  call(url: string): Promise<string>
  start(): Promise<string>
}

/** Runs a bundle with the globals of a browser: no process, no Buffer, no require. */
function open(bundle: string): Page {
  const { fetch, Request, Response, Headers, URL, AbortController, AbortSignal, TextDecoder, TextEncoder } =
    globalThis
  const web = {
    fetch,
    Request,
    Response,
    Headers,
    URL,
    AbortController,
    AbortSignal,
    TextDecoder,
    TextEncoder,
  }
  const { setTimeout, clearTimeout, crypto, ReadableStream, Event, EventTarget, queueMicrotask } = globalThis
  const context = vm.createContext({
    ...web,
    ...{ setTimeout, clearTimeout, crypto, ReadableStream, Event, EventTarget, queueMicrotask },
  })
  vm.runInContext(`globalThis.self = globalThis.window = globalThis;${bundle}`, context)
  return (context as { page: Page }).page
}

/** Node modules that a bundle would load. */
const nodeModules = (text: string) => text.match(/(?:from|import|require)\s*\(?\s*["']node:\w+["']/g) ?? []

describe.each([
  ['esbuild', withEsbuild],
  ['vite', withVite],
  ['webpack', withWebpack],
])('the client bundled by %s for a browser', (_name, bundle) => {
  it(
    'imports no Node module, and calls a server that asks',
    async () => {
      const text = await bundle()
      expect(nodeModules(text)).toEqual([])
      const page = open(text)
      const rondo = createRondo({ name: 'web', version: '1.0.0', log: 'off' })
      rondo.tool('ask', {}, async (_args, ctx) => ((await ctx.confirm('sure', 'Sure?')) ? 'yes' : 'no'))
      const server = createServer(rondo.nodeHandler())
      await new Promise<void>((listening) => server.listen(0, '127.0.0.1', listening))
      try {
        const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/mcp`
        expect(await page.call(url)).toBe('yes')
        expect(await page.start()).toContain('connect to a URL')
      } finally {
        server.closeAllConnections()
        server.close()
        await rondo.close()
      }
    },
    MINUTES,
  )
})

it('control: the check finds Node modules in a bundle that has some', async () => {
  const { outputFiles } = await esbuild({
    entryPoints: [resolve('packages/rondo/dist/client.js')],
    logLevel: 'silent',
    bundle: true,
    platform: 'node',
    format: 'esm',
    write: false,
  })
  expect(nodeModules(outputFiles[0]?.text ?? '').length).toBeGreaterThan(0)
})

describe('the client on Node', () => {
  it('loads no Node module before the client is used', () => {
    const seen = new Map<string, readonly string[]>()
    const walk = (file: string): void => {
      if (seen.has(file)) return
      const names = readFileSync(file, 'utf8').matchAll(
        /^(?:import|export)\s(?:[^'"]*?from\s)?["']([^"']+)["']/gm,
      )
      const imported = Array.from(names, ([, name = '']) => name)
      seen.set(file, imported)
      for (const name of imported) if (name.startsWith('.')) walk(resolve(dirname(file), name))
    }
    walk(resolve('packages/rondo/dist/client.js'))
    const foreign = [...seen.values()].flat().filter((name) => !name.startsWith('.'))
    expect(new Set(foreign)).toEqual(new Set(['eventsource-parser']))
  })
})

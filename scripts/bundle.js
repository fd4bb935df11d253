/**
 * Makes the JavaScript of the package: one file for each entrance, and shared chunks for what several of them use, so that
 * an error thrown in one is an instance of the class another exports. Not minified: what is installed can be read.
 * docs/decisions/0009 says why files are put together at all.
 */

import { readFileSync } from 'node:fs'
import { resolve } from 'node:path'
import { build } from 'esbuild'

const { exports: subpaths, bin } = JSON.parse(readFileSync('package.json', 'utf8'))
const entrances = [
  ...Object.values(subpaths).flatMap((target) => target.default ?? []),
  bin.rondo,
  // Runs in a process of its own.
  './dist/cli/serve-file.js',
]

/** In browsers the client has `fetch` and nothing of Node. */
const forBrowsers = {
  name: 'for-browsers',
  setup({ onResolve }) {
    onResolve({ filter: /\/platform\.ts$/ }, ({ path, resolveDir }) => ({
      path: resolve(resolveDir, path.replace('platform.ts', 'platform-browser.ts')),
    }))
  },
}

await build({
  entryPoints: { 'client.browser': 'src/client.ts' },
  outdir: 'dist',
  bundle: true,
  format: 'esm',
  platform: 'browser',
  target: 'es2022',
  packages: 'external',
  plugins: [forBrowsers],
  sourcemap: true,
  sourcesContent: true,
})

await build({
  entryPoints: entrances.map((path) => path.replace(/^(\.\/)?dist\//, 'src/').replace(/\.js$/, '.ts')),
  outdir: 'dist',
  outbase: 'src',
  chunkNames: 'chunk/[name]-[hash]',
  bundle: true,
  splitting: true,
  format: 'esm',
  platform: 'node',
  target: 'node20.19',
  packages: 'external',
  sourcemap: true,
  sourcesContent: true,
})

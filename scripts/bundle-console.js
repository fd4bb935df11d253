/** Builds the page of the console, `console/`, into dist/console: a script, a style sheet and the page itself. */

import { copyFileSync, mkdirSync } from 'node:fs'
import { dirname, join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { build } from 'esbuild'

const root = resolve(dirname(fileURLToPath(import.meta.url)), '..')
const outdir = join(root, 'dist', 'console')

mkdirSync(outdir, { recursive: true })
await build({
  entryPoints: [
    { in: join(root, 'console', 'main.tsx'), out: 'console' },
    { in: join(root, 'console', 'console.css'), out: 'console' },
  ],
  outdir,
  bundle: true,
  minify: true,
  format: 'esm',
  platform: 'browser',
  target: 'es2022',
  jsx: 'automatic',
  jsxImportSource: 'preact',
  legalComments: 'none',
})
copyFileSync(join(root, 'console', 'index.html'), join(outdir, 'index.html'))

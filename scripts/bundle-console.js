/** Builds the page of the console from `console/`: a script, a style sheet and the page itself. */

import { readFileSync } from 'node:fs'
import { basename, dirname, join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { build } from 'esbuild'

const folder = join(resolve(dirname(fileURLToPath(import.meta.url)), '..'), 'console')

/** The files by their names; nothing is written. */
export async function buildPage() {
  const { outputFiles } = await build({
    entryPoints: [
      { in: join(folder, 'main.tsx'), out: 'console' },
      { in: join(folder, 'console.css'), out: 'console' },
    ],
    outdir: folder,
    write: false,
    bundle: true,
    minify: true,
    format: 'esm',
    platform: 'browser',
    target: 'es2022',
    jsx: 'automatic',
    jsxImportSource: 'preact',
    legalComments: 'none',
  })
  const built = outputFiles.map(({ path, contents }) => [basename(path), contents])
  return new Map([...built, ['index.html', readFileSync(join(folder, 'index.html'))]])
}

/** Builds the page of the console from `console/`: a script, a style sheet and the page itself. */

import { readFileSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { build } from 'esbuild'

const folder = join(dirname(fileURLToPath(import.meta.url)), 'console')
/** Finds the sources of `rondo` and its forms. */
const tsconfig = join(folder, '../../../tsconfig.json')

/** The files by their names; nothing is written. */
export async function buildPage() {
  return (await bundlePage()).files
}

/** Bundles the page, and returns its files together with the sources that each was built from. */
export async function bundlePage() {
  const { outputFiles, metafile } = await build({
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
    metafile: true,
    tsconfig,
  })
  const built = outputFiles.map(({ path, contents }) => [basename(path), contents])
  const files = new Map([...built, ['index.html', readFileSync(join(folder, 'index.html'))]])
  return { files, metafile }
}

/** Builds the pages of the console from `console/`, that of a server and that of a store: scripts, a style sheet and the pages themselves. */

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
      { in: join(folder, 'store.tsx'), out: 'store' },
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
  const pages = ['index.html', 'store.html'].map((name) => [name, readFileSync(join(folder, name))])
  const files = new Map([...built, ...pages])
  return { files, metafile }
}

/**
 * Builds a program that tests start as a separate process: one JavaScript file from a TypeScript file and the project
 * files it imports. It starts in a fraction of the time that a TypeScript loader takes.
 */

import { mkdirSync, renameSync, writeFileSync } from 'node:fs'
import { basename, dirname, resolve } from 'node:path'
import { buildSync } from 'esbuild'

const FOLDER = resolve('test/dist')
const made = new Map<string, string>()

/** What runs in the thread of a SQLite file, and where a program beside it looks for that file. */
const THREAD = ['packages/rondo/src/store/sqlite/thread-file.ts', 'store/sqlite/thread-file.js'] as const

/** The path of the program. `file` is relative to the root of the project. */
export function processFile(file: string): string {
  build(...THREAD)
  return build(file, basename(file).replace(/\.ts$/, '.js'))
}

function build(file: string, name: string): string {
  const known = made.get(file)
  if (known !== undefined) return known
  const { outputFiles } = buildSync({
    entryPoints: [file],
    bundle: true,
    write: false,
    format: 'esm',
    platform: 'node',
    target: 'node20.19',
    packages: 'external',
    tsconfig: 'tsconfig.json',
    sourcemap: 'inline',
  })
  const path = resolve(FOLDER, name)
  mkdirSync(dirname(path), { recursive: true })
  // Another worker may be building the same file: a rename makes sure that readers see a complete one.
  const draft = `${path}.${process.pid}`
  writeFileSync(draft, outputFiles[0]?.contents ?? '')
  renameSync(draft, path)
  made.set(file, path)
  return path
}

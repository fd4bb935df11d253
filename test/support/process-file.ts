/**
 * Builds a program that tests start as a separate process: one JavaScript file from a TypeScript file and the project
 * files it imports. It starts in a fraction of the time that a TypeScript loader takes.
 */

import { mkdirSync, renameSync, writeFileSync } from 'node:fs'
import { basename, resolve } from 'node:path'
import { buildSync } from 'esbuild'

const FOLDER = resolve('test/dist')
const made = new Map<string, string>()

/** The path of the program. `file` is relative to the root of the project. */
export function processFile(file: string): string {
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
  mkdirSync(FOLDER, { recursive: true })
  const path = resolve(FOLDER, basename(file).replace(/\.ts$/, '.js'))
  // Another worker may be building the same file: a rename makes sure that readers see a complete one.
  const draft = `${path}.${process.pid}`
  writeFileSync(draft, outputFiles[0]?.contents ?? '')
  renameSync(draft, path)
  made.set(file, path)
  return path
}

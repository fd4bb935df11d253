/**
 * The command that runs a file which exports a server, in a process of its own (`serve-file.ts`). Files in TypeScript
 * need a Node that strips types, or `tsx` installed beside them.
 */

import { createRequire } from 'node:module'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { usageError } from './command-error.ts'

/** Within the package: as built, or as written where this file is. */
const RUNNER = import.meta.url.endsWith('.ts') ? 'src/cli/serve-file.ts' : 'dist/cli/serve-file.js'

const TYPESCRIPT = /\.[cm]?ts$/

/** Arguments for `process.execPath`. */
export function scriptArgs(path: string, entrance: readonly string[]): string[] {
  const runner = new URL(RUNNER, pathToFileURL(createRequire(import.meta.url).resolve('rondo/package.json')))
  return [...loaderArgs(path, runner), fileURLToPath(runner), path, ...entrance]
}

function loaderArgs(path: string, runner: URL): string[] {
  const needsTypes = TYPESCRIPT.test(path) || runner.pathname.endsWith('.ts')
  if (!needsTypes || stripsTypes()) return []
  for (const from of [pathToFileURL(path), runner]) {
    const loader = tryResolve(from, 'tsx')
    if (loader !== undefined) return ['--import', pathToFileURL(loader).href]
  }
  throw usageError(`${path} is TypeScript: install tsx beside it, or use a Node that strips types`)
}

function stripsTypes(): boolean {
  return Boolean((process.features as { typescript?: unknown }).typescript)
}

function tryResolve(from: URL, name: string): string | undefined {
  try {
    return createRequire(from).resolve(name)
  } catch {
    return undefined
  }
}

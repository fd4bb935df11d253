/**
 * The command that runs a file which exports a server, in a process of its own (`serve-file.ts`). Files in TypeScript
 * need a Node that strips types, or `tsx` installed beside them.
 */

import { createRequire } from 'node:module'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { usageError } from './command-error.ts'

const TYPESCRIPT = /\.[cm]?ts$/

/** Arguments for `process.execPath`. */
export function scriptArgs(path: string, entrance: readonly string[]): string[] {
  const runner = new URL(import.meta.url.replace(/script-command(\.[jt]s).*$/, 'serve-file$1'))
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

/** The files of the page, read once: built with the package, or built now if the command runs from its sources. */

import { execFileSync } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import { CommandError } from '../command-line.ts'

export type Assets = ReadonlyMap<string, { readonly type: string; readonly bytes: Buffer }>

const FILES = [
  ['/', 'index.html', 'text/html; charset=utf-8'],
  ['/console.js', 'console.js', 'text/javascript; charset=utf-8'],
  ['/console.css', 'console.css', 'text/css; charset=utf-8'],
] as const

export function readAssets(): Assets {
  const root = dirname(createRequire(import.meta.url).resolve('rondo/package.json'))
  const folder = join(root, 'dist', 'console')
  const builder = join(root, 'scripts', 'bundle-console.js')
  if (import.meta.url.endsWith('.ts') && existsSync(builder))
    execFileSync(process.execPath, [builder], { cwd: root })
  try {
    return new Map(
      FILES.map(([path, name, type]) => [path, { type, bytes: readFileSync(join(folder, name)) }]),
    )
  } catch (error) {
    throw new CommandError(
      'fault',
      `The page of the console is missing from this package (${(error as Error).message})`,
    )
  }
}

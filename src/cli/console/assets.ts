/** The files of the page, read once: built with the package, or built now if the command runs from its sources. */

import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { CommandError } from '../command-line.ts'

export type Assets = ReadonlyMap<string, { readonly type: string; readonly bytes: Uint8Array }>

const FILES = [
  ['/', 'index.html', 'text/html; charset=utf-8'],
  ['/console.js', 'console.js', 'text/javascript; charset=utf-8'],
  ['/console.css', 'console.css', 'text/css; charset=utf-8'],
] as const

export async function readAssets(): Promise<Assets> {
  const root = dirname(createRequire(import.meta.url).resolve('rondo/package.json'))
  try {
    const read = import.meta.url.endsWith('.ts') ? await buildNow(root) : readBuilt(root)
    return new Map(FILES.map(([path, name, type]) => [path, { type, bytes: read(name) }]))
  } catch (error) {
    throw new CommandError(
      'fault',
      `The page of the console is missing from this package (${(error as Error).message})`,
    )
  }
}

type ReadFile = (name: string) => Uint8Array

function readBuilt(root: string): ReadFile {
  return (name) => readFileSync(join(root, 'dist', 'console', name))
}

/** Nothing is written: a checkout may be built and tested at the same time. */
async function buildNow(root: string): Promise<ReadFile> {
  const script = pathToFileURL(join(root, 'scripts', 'bundle-console.js')).href
  const { buildPage } = (await import(script)) as { buildPage(): Promise<Map<string, Uint8Array>> }
  const files = await buildPage()
  return (name) => files.get(name) ?? new Uint8Array()
}

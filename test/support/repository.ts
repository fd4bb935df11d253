/** The files of the repository as text, without installed packages, builds and reports. */

import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'

const SKIP = new Set(['node_modules', 'dist', '.git', 'coverage', '.rondo', 'results'])
const SKIP_PATH = new Set(['website/pages'])
const SKIP_FILE = /^test-report.*\.json$|\.tgz$|\.log$/
const BINARY = /\.(png|jpe?g|gif|webp|ico|woff2?|wasm|pdf)$/

/** A map from paths, relative to `root` and with forward slashes, to their text. */
export function readRepository(root = '.'): Map<string, string> {
  const files = new Map<string, string>()
  const visit = (folder: string): void => {
    for (const entry of readdirSync(join(root, folder), { withFileTypes: true })) {
      const path = folder === '' ? entry.name : `${folder}/${entry.name}`
      if (SKIP.has(entry.name) || SKIP_PATH.has(path) || SKIP_FILE.test(entry.name)) continue
      if (entry.isDirectory()) visit(path)
      // A picture can be linked, and has no text.
      else if (entry.isFile())
        files.set(path, BINARY.test(entry.name) ? '' : readFileSync(join(root, path), 'utf8'))
    }
  }
  visit('')
  return files
}

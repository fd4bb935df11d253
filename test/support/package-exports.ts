/** The subpaths in `exports` of every package, with their built files and the entry files that they come from. */

import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'

export interface Subpath {
  /** `rondo` or `rondo/testing`. */
  readonly specifier: string
  readonly built: string
  readonly types: string
  readonly source: string
}

type Exports = Record<string, string | { types: string; default: string }>

export function readSubpaths(): Subpath[] {
  const folders = readdirSync('packages').map((name) => join('packages', name))
  return folders.filter((folder) => existsSync(join(folder, 'package.json'))).flatMap(subpathsOf)
}

function subpathsOf(folder: string): Subpath[] {
  const { name, exports = {} } = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8')) as {
    name: string
    exports?: Exports
  }
  return Object.entries(exports).flatMap(([path, target]) =>
    typeof target === 'string'
      ? []
      : [
          {
            specifier: path.replace(/^\./, name),
            built: join(folder, target.default),
            types: join(folder, target.types),
            source: join(folder, target.default.replace('./dist/', 'src/').replace(/\.js$/, '.ts')),
          },
        ],
  )
}

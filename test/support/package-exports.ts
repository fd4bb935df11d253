/** The subpaths in `exports` of package.json, with their built files and the entry files in `src` they come from. */

import { readFileSync } from 'node:fs'

export interface Subpath {
  /** `.` or `./testing`. */
  readonly name: string
  /** `rondo` or `rondo/testing`. */
  readonly specifier: string
  readonly built: string
  readonly types: string
  readonly source: string
}

type Exports = Record<string, string | { types: string; default: string }>

export function readSubpaths(): Subpath[] {
  const { name, exports } = JSON.parse(readFileSync('package.json', 'utf8')) as {
    name: string
    exports: Exports
  }
  return Object.entries(exports).flatMap(([path, target]) =>
    typeof target === 'string'
      ? []
      : [
          {
            name: path,
            specifier: path.replace(/^\./, name),
            built: target.default,
            types: target.types,
            source: target.default.replace('./dist/', 'src/').replace(/\.js$/, '.ts'),
          },
        ],
  )
}

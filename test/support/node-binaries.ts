/** Other versions of Node, as far as `scripts/test-nodes.js` has fetched them. */

import { existsSync } from 'node:fs'
import { resolve } from 'node:path'

/** The program of a major version, if it is there. */
export function findNode(major: number): string | undefined {
  const name = `node-${process.platform === 'win32' ? 'win' : process.platform}-${process.arch}`
  const program = process.platform === 'win32' ? 'node.exe' : 'node'
  const path = resolve(`node_modules/.cache/rondo-nodes/${major}/node_modules/${name}/bin/${program}`)
  return existsSync(path) ? path : undefined
}

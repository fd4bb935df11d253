/** Other versions of Node that `scripts/test-nodes.js` has downloaded. */

import { existsSync } from 'node:fs'
import { resolve } from 'node:path'

/** The binary of a major version, if it exists. */
export function findNode(major: number): string | undefined {
  const name = `node-${process.platform === 'win32' ? 'win' : process.platform}-${process.arch}`
  const program = process.platform === 'win32' ? 'node.exe' : 'node'
  const path = resolve(`node_modules/.cache/rondo-nodes/${major}/node_modules/${name}/bin/${program}`)
  return existsSync(path) ? path : undefined
}

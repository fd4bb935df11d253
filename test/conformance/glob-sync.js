/**
 * Preloaded (`node --import`) before the official conformance suite: it imports `globSync` from `fs`, which Node has
 * only since version 22. Exports of a built-in module cannot be added later, so only the suite gets another `fs`.
 * The function is used by a command that is never run here; it only has to be importable.
 */

import fs from 'node:fs'
import { register } from 'node:module'

const asModule = (source) => `data:text/javascript,${encodeURIComponent(source)}`

if (fs.globSync === undefined) {
  const withGlob = asModule(`
    export * from 'node:fs'
    export { default } from 'node:fs'
    export function globSync() { throw new Error('globSync needs Node 22') }
  `)
  register(
    asModule(`
      export async function resolve(specifier, context, next) {
        const fromSuite = context.parentURL?.includes('/@modelcontextprotocol/conformance/')
        if (specifier !== 'fs' || !fromSuite) return next(specifier, context)
        return { url: ${JSON.stringify(withGlob)}, format: 'module', shortCircuit: true }
      }
    `),
  )
}

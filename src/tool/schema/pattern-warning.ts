/**
 * Development mode warns of patterns that may take exponential time, if the package `redos-detector` is installed. Nothing is
 * refused: at run time the length of the text is limited (`limits.maxPatternText`).
 */

import type { JsonSchema } from '../../protocol/wire.ts'
import { isObject, listSubschemas } from './subschemas.ts'

/** Milliseconds for one pattern. The detector runs in the event loop of a developer's process. */
const TIMEOUT_MS = 500

/** The regular expressions in a schema; with `own`, without those that a library wrote for a format. */
export function listPatterns(json: JsonSchema, { own = false }: { own?: boolean } = {}): string[] {
  return listSubschemas(json).flatMap(({ pattern, patternProperties, format }) => [
    ...(typeof pattern === 'string' && !(own && format !== undefined) ? [pattern] : []),
    ...(isObject(patternProperties) ? Object.keys(patternProperties) : []),
  ])
}

export async function warnOfPatterns(
  what: string,
  json: JsonSchema,
  warn: (message: string) => void,
  load: () => Promise<typeof import('redos-detector')> = () => import('redos-detector'),
): Promise<void> {
  const patterns = listPatterns(json, { own: true })
  if (patterns.length === 0) return
  const detector = await load().catch(() => undefined)
  for (const pattern of detector ? new Set(patterns) : []) {
    if (isSafe(detector, pattern)) continue
    warn(
      `${what} has the pattern ${pattern}, which redos-detector does not consider safe: some text may take it exponential time. Rewrite it, or set a short maxLength.`,
    )
  }
}

function isSafe(detector: typeof import('redos-detector') | undefined, pattern: string): boolean {
  try {
    return detector?.isSafePattern(pattern, { timeout: TIMEOUT_MS, unicode: true }).safe ?? true
  } catch {
    return true // It reads fewer patterns than the engine does.
  }
}

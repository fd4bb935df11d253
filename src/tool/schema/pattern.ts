/**
 * The regular expressions in a schema. One that does not compile, or is very long, is refused. In development mode one that may
 * take exponential time causes a warning, if the package `redos-detector` is installed; at run time the length of the text
 * is limited instead (`limits.maxPatternText`).
 */

import { misuse } from '../../errors.ts'
import { isRecord } from '../../lib/json.ts'
import type { JsonSchema } from '../../protocol/wire.ts'
import { listSubschemas } from './subschemas.ts'

const MAX_PATTERN = 4_000

/** Milliseconds for one pattern. The detector runs in the event loop of a developer's process. */
const TIMEOUT_MS = 500

/** Refuses patterns that cannot be used. `what` begins the message. */
export function assertPatterns(json: JsonSchema, what: string): void {
  for (const pattern of listPatterns(json)) {
    if (pattern.length > MAX_PATTERN)
      throw misuse(`${what} has a pattern that is longer than ${MAX_PATTERN} characters`)
    if (!compiles(pattern, 'u') && !compiles(pattern, ''))
      throw misuse(`${what} has the pattern ${pattern}, which is not a regular expression`)
  }
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

/** With `own`, without the patterns that a library wrote for a format. */
function listPatterns(json: JsonSchema, { own = false } = {}): string[] {
  return listSubschemas(json).flatMap(({ pattern, patternProperties, format }) => [
    ...(typeof pattern === 'string' && !(own && format !== undefined) ? [pattern] : []),
    ...(isRecord(patternProperties) ? Object.keys(patternProperties) : []),
  ])
}

function compiles(pattern: string, flags: string): boolean {
  try {
    new RegExp(pattern, flags)
    return true
  } catch {
    return false
  }
}

function isSafe(detector: typeof import('redos-detector') | undefined, pattern: string): boolean {
  try {
    return detector?.isSafePattern(pattern, { timeout: TIMEOUT_MS, unicode: true }).safe ?? true
  } catch {
    return true // It reads fewer patterns than the engine does.
  }
}

/**
 * What a call returns in place of its result when it continues as a task and its client reaches tasks through tools
 * (`tasks: { tools: true }`). A tool with an output schema must return structured content that fits it, so the schema that
 * clients see also allows the handle of a task.
 */

import type { JsonSchema } from '../protocol/wire.ts'

/** The structured content of a call that continues as a task. */
export interface HandedTask {
  readonly task: {
    readonly taskId: string
    readonly status: string
    readonly statusMessage?: string
    /** What to do next. */
    readonly next: string
  }
}

const HANDLE: JsonSchema = {
  type: 'object',
  description: 'The call continues as a task: call task_status for its result.',
  properties: {
    task: {
      type: 'object',
      properties: {
        taskId: { type: 'string' },
        status: { type: 'string' },
        statusMessage: { type: 'string' },
        next: { type: 'string' },
      },
      required: ['taskId', 'status', 'next'],
    },
  },
  required: ['task'],
}

/** Keywords that stay at the root, because references name them from there. */
const AT_ROOT = ['$schema', '$defs', 'definitions'] as const

/**
 * The output schema as clients see it: the tool's own, or the handle of a task. Undefined if the schema refers to itself in a
 * way that would mean something else inside of another one; clients then check nothing.
 */
export function orTaskHandle(output: JsonSchema): JsonSchema | undefined {
  if (!hasPlainReferences(output)) return undefined
  const own: Record<string, unknown> = { ...output }
  const root: Record<string, unknown> = {}
  for (const keyword of AT_ROOT) {
    if (own[keyword] === undefined) continue
    root[keyword] = own[keyword]
    delete own[keyword]
  }
  return { ...root, type: 'object', anyOf: [own, HANDLE] } as JsonSchema
}

/** True if every reference leads to a definition at the root. */
function hasPlainReferences(schema: unknown): boolean {
  if (typeof schema !== 'object' || schema === null) return true
  return Object.entries(schema).every(([name, value]) => {
    if (name === '$id' || name === '$anchor' || name === '$dynamicAnchor') return false
    if (name === '$ref' || name === '$dynamicRef')
      return typeof value !== 'string' || /^#\/(\$defs|definitions)\//.test(value)
    return hasPlainReferences(value)
  })
}

/**
 * Schemas at run time: how a value is checked, by the schema's own code where it is a Standard Schema (zod, valibot, arktype).
 * `schema.ts` compiles what is declared once.
 */

import { isRecord } from '../../lib/json.ts'
import type { JsonSchema } from '../../protocol/wire.ts'
import type { Schema, StandardSchema } from '../context.ts'
import { boundValue } from './bound.ts'
import { formatPath, MAX_PROBLEMS, type Problem, type Result, type TextBounds } from './judge.ts'

export interface Compiled {
  readonly json: JsonSchema
  validate(value: unknown): Result | Promise<Result>
}

/** Bounds what a caller sends before any code judges it (T11). */
export function bounded(
  schema: Schema,
  json: JsonSchema,
  check: Compiled['validate'],
  bounds: TextBounds,
): Compiled {
  const findExcess = isStandardSchema(schema)
    ? boundValue(json, { remembers: remembersVerdicts(schema) })
    : undefined
  return {
    json,
    validate(value) {
      const excess = findLongText(value, bounds) ?? findExcess?.(value, bounds)
      return excess === undefined ? check(value) : { ok: false, problems: [excess] }
    },
  }
}

/** The schema's own check. */
export function checkOf(schema: StandardSchema): Compiled['validate'] {
  return (value) => validateStandard(schema, value)
}

/** The first text that is too long for any check. */
export function findLongText(value: unknown, { maxTextLength }: TextBounds): Problem | undefined {
  return hasLongText(value, maxTextLength, 0) ? locateLongText(value, maxTextLength) : undefined
}

/** Allocates nothing: almost every value passes. */
function hasLongText(value: unknown, max: number, depth: number): boolean {
  if (typeof value === 'string') return value.length > max
  if (typeof value !== 'object' || value === null || depth > MAX_TEXT_DEPTH) return false
  for (const name in value) {
    if (Object.hasOwn(value, name) && hasLongText((value as Record<string, unknown>)[name], max, depth + 1))
      return true
  }
  return false
}

function locateLongText(value: unknown, max: number): Problem | undefined {
  const todo: { value: unknown; path: readonly PropertyKey[] }[] = [{ value, path: [] }]
  for (let next = todo.pop(); next !== undefined; next = todo.pop()) {
    const { value: here, path } = next
    if (typeof here === 'string' && here.length > max) {
      return { path: formatPath(path), message: `The text is longer than ${max} characters` }
    }
    if (typeof here !== 'object' || here === null || path.length > MAX_TEXT_DEPTH) continue
    for (const [name, inner] of Object.entries(here)) {
      if (typeof inner === 'object' || typeof inner === 'string')
        todo.push({ value: inner, path: [...path, name] })
    }
  }
  return undefined
}

/** Deeper than guarded input goes. */
const MAX_TEXT_DEPTH = 1_000

/** Since 4.5, zod validates a recursive schema once per value. */
function remembersVerdicts(schema: StandardSchema): boolean {
  const { _zod } = schema as { _zod?: { version?: { major?: number; minor?: number } } }
  const { major = 0, minor = 0 } = _zod?.version ?? {}
  return major > 4 || (major === 4 && minor >= 5)
}

export function isStandardSchema(schema: unknown): schema is StandardSchema {
  const isHolder = typeof schema === 'function' || isRecord(schema)
  return isHolder && isRecord((schema as unknown as Record<string, unknown>)['~standard'])
}

/** Runs the schema's own check. */
export async function validateStandard(schema: StandardSchema, value: unknown): Promise<Result> {
  return fromStandard(await schema['~standard'].validate(value))
}

type StandardOutcome = Awaited<ReturnType<StandardSchema['~standard']['validate']>>

function fromStandard(outcome: StandardOutcome): Result {
  if (outcome.issues === undefined) return { ok: true, value: outcome.value }
  return { ok: false, problems: toProblems(outcome.issues) }
}

function toProblems(issues: NonNullable<StandardOutcome['issues']>): Problem[] {
  return issues.slice(0, MAX_PROBLEMS).map((issue) => ({
    path: formatPath(Array.from(issue.path ?? [], (part) => (typeof part === 'object' ? part.key : part))),
    message: issue.message,
  }))
}

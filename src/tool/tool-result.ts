/**
 * What a tool handler returned, as a `CallToolResult`.
 */

import { misuse } from '../errors.ts'
import type { Compiled } from './schema.ts'
import type { Finished } from './target.ts'

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function text(value: string): { type: 'text'; text: string } {
  return { type: 'text', text: value }
}

function isContent(value: readonly unknown[]): boolean {
  return value.every((item) => isObject(item) && typeof item.type === 'string')
}

export function errorResult(message: string): Finished {
  return { content: [text(message)], isError: true }
}

/** True if the handler built the whole result by hand. */
function isResult(value: Record<string, unknown>): boolean {
  return Array.isArray(value.content) || value.isError === true || 'structuredContent' in value
}

async function structured(output: Compiled, value: unknown): Promise<Finished> {
  const checked = await output.validate(value)
  if (checked.ok) return { content: [text(JSON.stringify(checked.value))], structuredContent: checked.value }
  const problems = checked.problems
    .map(({ path, message }) => (path ? `${path}: ${message}` : message))
    .join('; ')
  throw new TypeError(`The handler returned a value that does not fit the tool's output schema: ${problems}`)
}

async function checkedResult(output: Compiled, value: Record<string, unknown>): Promise<Finished> {
  if (value.isError === true) return { content: [], ...value }
  return {
    ...value,
    ...(await structured(output, value.structuredContent)),
    ...(value.content ? { content: value.content } : {}),
  }
}

export function toToolResult(value: unknown, output: Compiled | undefined): Finished | Promise<Finished> {
  if (output)
    return isObject(value) && isResult(value) ? checkedResult(output, value) : structured(output, value)
  if (value === undefined) return { content: [] }
  if (typeof value === 'string') return { content: [text(value)] }
  if (Array.isArray(value) && isContent(value)) return { content: value }
  if (isObject(value) && isResult(value)) return { content: [], ...value }
  if (isObject(value) || Array.isArray(value)) {
    return { content: [text(JSON.stringify(value))], structuredContent: value }
  }
  throw misuse(
    `A tool returns a string, content blocks, a result or an object; this one returned a ${typeof value}.`,
  )
}

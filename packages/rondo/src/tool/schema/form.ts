/**
 * Compiles the schema of a question: what the client is sent (the restricted form schema of MCP) and how its answer is
 * checked. Whatever no client could show is a TypeError that names the field (form-field.ts); so is a field that asks
 * for a secret, which the protocol forbids in forms (T5).
 *
 * An answer is checked against the form first, with messages for the person who wrote it, then by the schema's own
 * code, whose output the handler receives. Content that the form did not ask for is dropped.
 */

import { misuse } from '../../errors.ts'
import type { Field, FieldValue } from '../../form/field.ts'
import { findSecret, readForm, UNSAFE_NAMES } from '../../form/form.ts'
import { judgeContent } from '../../form/judge.ts'
import { createMemo } from '../../lib/collection.ts'
import { isRecord } from '../../lib/json.ts'
import type { JsonSchema } from '../../protocol/wire.ts'
import type { Schema } from '../context.ts'
import { boundValue } from './bound.ts'
import { refuse, toFormField } from './form-field.ts'
import { formatPath, type Problem, type Result, TEXT_BOUNDS, type TextBounds } from './judge.ts'
import { toJsonSchema } from './schema.ts'
import { findLongText, isStandardSchema, validateStandard } from './standard.ts'

interface FormOptions {
  /** The reason why a field that looks like a secret is not one. */
  readonly allowSecretLike?: string
}

/** `content` is what was asked for, as it was sent; `value` is what the schema's own code makes of it. */
export type FormResult =
  | { readonly ok: true; readonly value: unknown; readonly content: Record<string, FieldValue> }
  | Extract<Result, { ok: false }>

interface CompiledForm {
  /** The `requestedSchema` of the question. */
  readonly json: JsonSchema
  readonly fields: readonly Field[]
  /** Checks the `content` of an answer. The messages are sentences that can be shown to a person. */
  validate(content: unknown, bounds?: TextBounds): Promise<FormResult>
}

/** The part of a form that depends only on the JSON of its schema. */
interface FormShape {
  readonly json: JsonSchema
  readonly fields: readonly Field[]
  /** Required fields that may be null. */
  readonly nullable: readonly string[]
  /** Finds what in an answer must not reach the schema's own code, where its JSON has patterns or references. */
  readonly findExcess: ((answer: unknown, bounds: TextBounds) => Problem | undefined) | undefined
}

/** Forms are cached by the schema, for one that outlives the round, and by its JSON, for one that a handler creates again. */
const [forms, secretForms] = [new WeakMap<Schema, CompiledForm>(), new WeakMap<Schema, CompiledForm>()]
const shapes = createMemo<FormShape>(500)
const MAX_SHAPE_LENGTH = 8_192

export function compileForm(schema: Schema, options: FormOptions = {}): CompiledForm {
  const allowSecrets = (options.allowSecretLike ?? '').trim() !== ''
  const known = allowSecrets ? secretForms : forms
  const form = known.get(schema) ?? compileNew(schema, allowSecrets)
  known.set(schema, form)
  return form
}

function compileNew(schema: Schema, allowSecrets: boolean): CompiledForm {
  const shape = isStandardSchema(schema)
    ? shapeOf(convert(schema), false, allowSecrets)
    : plainShape(schema, allowSecrets)
  const { json, fields } = shape
  return { json, fields, validate: (content, bounds) => validate(schema, shape, content, bounds) }
}

function convert(schema: Schema): JsonSchema {
  return toJsonSchema(schema, 'input', 'The schema of the question')
}

/** Plain JSON Schema is copied only if its text is new. */
function plainShape(schema: Schema, allowSecrets: boolean): FormShape {
  let text: string | undefined
  try {
    text = JSON.stringify(schema)
  } catch {
    // The copy reports why.
  }
  const known = text === undefined ? undefined : shapes.get(`true ${allowSecrets} ${text}`)
  return known ?? shapeOf(convert(schema), true, allowSecrets)
}

function shapeOf(root: JsonSchema, strict: boolean, allowSecrets: boolean): FormShape {
  const key = `${strict} ${allowSecrets} ${JSON.stringify(root)}`
  const known = shapes.get(key)
  if (known !== undefined) return known
  const { json, nullable } = toForm(root, strict)
  const { fields, notes } = readForm(json)
  if (notes.length > 0)
    throw misuse(`The schema of the question cannot be shown as a form: ${notes.join('. ')}`)
  if (!allowSecrets)
    for (const [name, one] of Object.entries(json.properties as object)) assertNoSecret(name, one)
  const shape = { json, fields, nullable, findExcess: boundValue(root) }
  if (key.length <= MAX_SHAPE_LENGTH) shapes.set(key, shape)
  return shape
}

function toForm(root: JsonSchema, strict: boolean): { json: JsonSchema; nullable: string[] } {
  if (root.type !== 'object') throw misuse('The schema of a question must describe an object of fields')
  const properties = isRecord(root.properties) ? Object.entries(root.properties) : []
  if (properties.length === 0) {
    throw misuse(
      'The schema of the question has no fields, and many clients cannot show an empty form: use ctx.confirm to ask for a yes or no',
    )
  }
  const listed: unknown[] = Array.isArray(root.required) ? root.required : []
  const required: string[] = []
  const nullable: string[] = []
  const fields = properties.map(([name, schema]) => {
    if (UNSAFE_NAMES.has(name)) throw refuse({ name }, 'its name is one that JSON parsers refuse')
    const field = toFormField({ name, schema, root, strict })
    if (listed.includes(name)) (field.nullable ? nullable : required).push(name)
    return [name, field.json]
  })
  const json = { type: 'object', properties: Object.fromEntries(fields) }
  return { json: required.length > 0 ? { ...json, required } : json, nullable }
}

function assertNoSecret(name: string, schema: unknown): void {
  const words = findSecret(name, schema)
  if (words === undefined) return
  throw misuse(
    `The field "${name}" looks like a secret (${words}). Secrets must not be asked for in a form, where the client and its model see them: send the user to a page of your own with ctx.visit. If it is not a secret, say why: allowSecretLike: '…'`,
  )
}

async function validate(
  schema: Schema,
  { fields, nullable, findExcess }: FormShape,
  answer: unknown,
  bounds: TextBounds = TEXT_BOUNDS,
): Promise<FormResult> {
  const excess = findLongText(answer, bounds) ?? findExcess?.(answer, bounds)
  if (excess !== undefined) return withTitles(fields, [excess])
  const judged = judgeContent(fields, answer)
  if (!judged.ok) {
    const problems = judged.problems.map(({ name, message }) => ({ path: formatPath([name]), message }))
    return { ok: false, problems }
  }
  const { content } = judged
  if (!isStandardSchema(schema)) return { ok: true, value: content, content }
  const given: Record<string, unknown> = { ...content }
  for (const name of nullable) given[name] ??= null
  const result = await validateStandard(schema, given)
  return result.ok ? { ok: true, value: result.value, content } : withTitles(fields, result.problems)
}

function withTitles(fields: readonly Field[], problems: readonly Problem[]): FormResult {
  const titles = new Map(fields.map((field) => [formatPath([field.name]), field.title]))
  return {
    ok: false,
    problems: problems.map(({ path, message }) => {
      const title = titles.get(path)
      return { path, message: title === undefined ? message : `${title}: ${message}` }
    }),
  }
}

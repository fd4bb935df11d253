/**
 * Differences between hosts: arguments that they add on their own, and fields of forms that they cannot show.
 *
 * A field that a host cannot show is asked for as text. Its schema travels in the sealed state, and the text that comes back is turned
 * into the value that the upstream asked for. A text that cannot be read passes unchanged: the upstream judges it.
 */

import type { InputRequest, InputResponse } from 'rondo/client'
import { checkForm, type Field, readForm } from 'rondo/forms'

type Row = Readonly<Record<string, unknown>>

/** Arguments that hosts add to calls of every tool: Gemini CLI, and Qwen Code, which descends from it. */
const ADDED = new Set(['wait_for_previous'])

/** The arguments without those that a host added, unless the tool has one of that name. */
export function withoutAdded(args: Row, inputSchema: unknown): Row {
  const { properties = {} } = (inputSchema ?? {}) as { readonly properties?: Row }
  const isOwn = (name: string): boolean => !ADDED.has(name) || Object.hasOwn(Object(properties), name)
  return Object.fromEntries(Object.entries(args).filter(([name]) => isOwn(name)))
}

/** Hosts that show neither numbers nor lists. */
const TEXT_ONLY = /^codex/

const AS_TEXT: readonly Field['type'][] = ['number', 'integer', 'choices']

/** A question as the host can show it, and the fields whose answers may be text. */
export function toHost(
  request: InputRequest,
  host: string | undefined,
): { readonly request: InputRequest; readonly fields?: Row } {
  if (request.method !== 'elicitation/create' || request.params.mode === 'url') return { request }
  const { requestedSchema } = request.params
  const properties = requestedSchema.properties as Row
  const affected = readForm(requestedSchema).fields.filter(({ type }) => AS_TEXT.includes(type))
  if (affected.length === 0) return { request }
  const fields = Object.fromEntries(affected.map(({ name }) => [name, properties[name]]))
  if (!TEXT_ONLY.test(host ?? '')) return { request, fields }
  const texts = Object.fromEntries(affected.map((field) => [field.name, toText(field)]))
  const shown = { ...requestedSchema, properties: { ...properties, ...texts } }
  return { request: { ...request, params: { ...request.params, requestedSchema: shown } }, fields }
}

function toText(field: Field): Row {
  const { title, description, type, options = [], default: preset } = field
  const choices = options.map((one) => (one.title === one.value ? one.value : `${one.value} (${one.title})`))
  const hint =
    type === 'choices'
      ? `Any of these, separated by commas: ${choices.join(', ')}`
      : `${type === 'integer' ? 'A whole number' : 'A number'}${rangeOf(field)}`
  return {
    type: 'string',
    title,
    description: description === undefined ? hint : `${description}. ${hint}`,
    ...(preset !== undefined && { default: Array.isArray(preset) ? preset.join(', ') : String(preset) }),
  }
}

function rangeOf({ limits: { min, max } }: Field): string {
  if (min !== undefined && max !== undefined) return ` from ${min} to ${max}`
  if (min !== undefined) return `, at least ${min}`
  return max === undefined ? '' : `, at most ${max}`
}

/** The answer with the values that the upstream asked for. */
export function fromHost(response: InputResponse, fields: Row | undefined): InputResponse {
  const { content } = response as { readonly content?: Record<string, unknown> }
  if (fields === undefined || typeof content !== 'object' || content === null) return response
  const values = Object.entries(content).flatMap(([name, value]) => {
    if (typeof value !== 'string' || !Object.hasOwn(fields, name)) return [[name, value]]
    const form = readForm({ type: 'object', properties: { [name]: fields[name] } })
    const checked = checkForm(form.fields, { [name]: value })
    // A field that was left empty is absent.
    return checked.ok ? Object.entries(checked.content) : [[name, value]]
  })
  return { ...response, content: Object.fromEntries(values) } as InputResponse
}

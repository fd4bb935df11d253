/**
 * The one text of a question, whose digest is sealed with its key (R3).
 */

import { canonicalJson } from '../lib/canonical-json.ts'
import type { JsonSchema } from '../protocol/wire.ts'
import type { Question } from './question.ts'

/** A form is written down once for all rounds that show it; its message may differ each time. */
const forms = new WeakMap<JsonSchema, string>()

export function questionText({ kind, request }: Question): string {
  if (request.method !== 'elicitation/create' || request.params.mode !== 'form') {
    return canonicalJson([kind, request])
  }
  const { message, requestedSchema } = request.params
  return `["${kind}",{"method":"${request.method}","params":{"message":${JSON.stringify(message)},"mode":"form","requestedSchema":${formText(requestedSchema)}}}]`
}

function formText(schema: JsonSchema): string {
  let text = forms.get(schema)
  if (text === undefined) {
    text = canonicalJson(schema)
    forms.set(schema, text)
  }
  return text
}

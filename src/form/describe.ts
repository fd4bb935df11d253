/** Fields in words, for whoever has to answer without seeing the form: a model, or a person who reads a refusal. */

import { cleanText } from './clean-text.ts'
import type { Field } from './field.ts'
import { FORMATS } from './format.ts'

const SHOWN_OPTIONS = 12
const SHOWN_FIELDS = 12
const MAX_NAME = 100

/** The choices as they are sent, each with its title where that is another text. */
export function listOptions({ options = [] }: Pick<Field, 'options'>): string {
  const shown = options.slice(0, SHOWN_OPTIONS).map(({ value, title }) => {
    const sent = cleanText(value, MAX_NAME)
    if (sent === title || sent === '') return title
    return sent.includes(',') ? `"${sent}" (${title})` : `${sent} (${title})`
  })
  const more = options.length - shown.length
  return more > 0 ? `${shown.join(', ')}, and ${more} more` : shown.join(', ')
}

/** `resolution: one of Fixed, Duplicate; note (optional): a text`. */
export function describeFields(fields: readonly Field[]): string {
  const shown = fields
    .slice(0, SHOWN_FIELDS)
    .map(
      (field) =>
        `${cleanText(field.name, MAX_NAME)}${field.required ? '' : ' (optional)'}: ${describe(field)}`,
    )
  const more = fields.length - shown.length
  return more > 0 ? `${shown.join('; ')}; and ${more} more` : shown.join('; ')
}

function describe(field: Field): string {
  switch (field.type) {
    case 'text':
      return field.format === undefined ? 'a text' : FORMATS[field.format].wanted
    case 'number':
      return 'a number'
    case 'integer':
      return 'a whole number'
    case 'boolean':
      return 'yes or no'
    case 'choice':
      return `one of ${listOptions(field)}`
    case 'choices':
      return `any of ${listOptions(field)}`
  }
}

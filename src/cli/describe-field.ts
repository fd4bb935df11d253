/** What a field takes, in a few words: for a prompt, for the list of a pending call. */

import { oneLine } from '../form/clean-text.ts'
import type { Field } from '../form/field.ts'

const FORMAT_WORDS = {
  email: 'an e-mail address',
  uri: 'a URL',
  date: 'a date like 2026-07-28',
  'date-time': 'a date and time like 2026-07-28T09:30:00Z',
} as const

export function describeField(field: Field): string {
  return field.required ? kindOfField(field) : `${kindOfField(field)}, optional`
}

function kindOfField(field: Field): string {
  const { min, max } = field.limits
  switch (field.type) {
    case 'text':
      return `${field.format ? FORMAT_WORDS[field.format] : 'text'}${range(min, max, ' characters')}`
    case 'number':
      return `a number${range(min, max)}`
    case 'integer':
      return `a whole number${range(min, max)}`
    case 'boolean':
      return 'yes or no'
    case 'choice':
      return `one of ${listOptions(field)}`
    case 'choices':
      return `any of ${listOptions(field)}${range(min, max)}`
  }
}

function range(min: number | undefined, max: number | undefined, unit = ''): string {
  if (min !== undefined && max !== undefined) return `, ${min} to ${max}${unit}`
  if (min !== undefined) return `, at least ${min}${unit}`
  return max === undefined ? '' : `, at most ${max}${unit}`
}

const SHOWN = 8

function listOptions({ options = [] }: Field): string {
  const shown = options
    .slice(0, SHOWN)
    .map(({ value, title }) => (value === title ? title : `${oneLine(value)} (${title})`))
  const more = options.length - shown.length
  return more > 0 ? `${shown.join(', ')} and ${more} more` : shown.join(', ')
}

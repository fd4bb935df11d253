/**
 * Asks for one field of a form, in the way its kind is best asked. What was typed is checked by `rondo/forms`, and asked
 * for again with the reason. A yes is never what Enter alone gives: the cursor stands elsewhere, whatever the default says.
 */

import { checkField } from '../../form/check.ts'
import { displayText } from '../../form/clean-text.ts'
import type { Field, FieldValue } from '../../form/field.ts'
import { describeField } from '../describe-field.ts'
import type { Choice, Terminal } from './terminal.ts'

export interface Filled {
  /** Undefined leaves the field out. */
  readonly value: FieldValue | undefined
}

/** One of the ways out of the question was chosen instead. */
export interface Left<W> {
  readonly value?: undefined
  readonly way: W
}

/** `start` is the default, or what was given before. `ways` are offered beside the options of a choice. */
export function askField<W>(
  terminal: Terminal,
  field: Field,
  start: FieldValue | undefined,
  ways: readonly Choice<W>[],
): Promise<Filled | Left<W>> {
  switch (field.type) {
    case 'boolean':
      return askYesNo(terminal, field, start)
    case 'choice':
      return askChoice(terminal, field, start, ways)
    case 'choices':
      return askChoices(terminal, field, start)
    default:
      return askLine(terminal, field, start)
  }
}

function titleOf(field: Field): string {
  const words = `${field.title} (${describeField(field)})`
  return field.description === undefined ? words : `${words}\n${field.description}`
}

async function askLine(terminal: Terminal, field: Field, start: FieldValue | undefined): Promise<Filled> {
  const check = (input: string): string | undefined => {
    const checked = checkField(field, input)
    return checked.ok ? undefined : checked.message
  }
  const input = await terminal.line(titleOf(field), shownStart(terminal, start), check)
  const checked = checkField(field, input)
  return { value: checked.ok ? checked.value : undefined }
}

/** What is sent is what was seen: a default that cannot be shown as it is, is not suggested. */
function shownStart(terminal: Terminal, start: FieldValue | undefined): string {
  if (start === undefined) return ''
  const text = String(start)
  if (displayText(text) === text && !/[\n\t]/.test(text)) return text
  terminal.say('The suggested answer cannot be shown as it is, and was left out.', 'warn')
  return ''
}

function leaveOut<T>(field: Field): Choice<T | undefined>[] {
  return field.required ? [] : [{ value: undefined, label: 'Leave out' }]
}

async function askYesNo(terminal: Terminal, field: Field, start: FieldValue | undefined): Promise<Filled> {
  const hint = start === true ? { hint: 'suggested' } : {}
  const choices: Choice<boolean | undefined>[] = [
    { value: false, label: 'No' },
    { value: true, label: 'Yes', ...hint },
    ...leaveOut<boolean>(field),
  ]
  const safe = start === undefined && !field.required ? undefined : false
  return { value: await terminal.choose(titleOf(field), choices, safe) }
}

async function askChoice<W>(
  terminal: Terminal,
  field: Field,
  start: FieldValue | undefined,
  ways: readonly Choice<W>[],
): Promise<Filled | Left<W>> {
  const fills: Choice<Filled | Left<W>>[] = [
    ...(field.options ?? []).map(({ value, title }) => ({ value: { value }, label: title })),
    ...leaveOut<Filled>(field).map(({ label }) => ({ value: { value: undefined }, label })),
  ]
  const leaves = ways.map(({ value, ...shown }) => ({ ...shown, value: { way: value } }))
  const begin = fills.find(({ value }) => value.value === start) ?? fills[0]
  return terminal.choose(titleOf(field), [...fills, ...leaves], begin?.value ?? { value: undefined })
}

async function askChoices(terminal: Terminal, field: Field, start: FieldValue | undefined): Promise<Filled> {
  const choices = (field.options ?? []).map(({ value, title }) => ({ value, label: title }))
  let picked: readonly string[] = Array.isArray(start) ? start : []
  for (;;) {
    picked = await terminal.pick(titleOf(field), choices, picked)
    if (picked.length === 0 && !field.required) return { value: undefined }
    const checked = checkField(field, picked)
    if (checked.ok) return { value: checked.value }
    terminal.say(checked.message, 'error')
  }
}

/**
 * Asks a form: the user can answer, decline, or leave it for later. Ctrl-C dismisses it at any point. Several answers are
 * shown for review before they are sent; a single one that was just typed is not. If the form begins with a choice,
 * declining and leaving are among its options; otherwise a prompt offers them first. A form with one required yes-or-no
 * field, or with no fields, is a single prompt with the message as its title.
 *
 * Enter alone never approves. A yes-or-no prompt starts on "No". If only Enter was pressed, the answers are reviewed, and
 * the review does not start on "Send".
 */

import { displayText, oneLine } from '../../form/clean-text.ts'
import type { Field, FieldValue, Form } from '../../form/field.ts'
import { checkField, startValues } from '../../form/judge.ts'
import type { ElicitResult } from '../../protocol/wire.ts'
import { describeField } from '../describe.ts'
import type { Choice, Terminal } from './terminal.ts'

export type Given = { readonly kind: 'answer'; readonly response: ElicitResult } | { readonly kind: 'later' }

type Values = Record<string, FieldValue | undefined>

const DECLINE: Given = { kind: 'answer', response: { action: 'decline' } }
const LATER: Given = { kind: 'later' }

/** Offered for a question that need not be answered now. */
export function laterChoice(canKeep: boolean): Choice<'later'>[] {
  return canKeep ? [{ value: 'later', label: 'Later', hint: 'keep the call pending' }] : []
}

export async function askForm(
  terminal: Terminal,
  message: string,
  form: Form,
  canKeep: boolean,
): Promise<Given> {
  for (const note of form.notes) terminal.say(note, 'warn')
  const [first, ...others] = form.fields
  if (first === undefined) return askApproval(terminal, message, canKeep)
  const isOnly = others.length === 0
  if (isOnly && first.type === 'boolean' && first.required)
    return askConfirmation(terminal, message, first, canKeep)
  terminal.say(message)
  if (first.type === 'choice') return fillIn(terminal, form.fields, canKeep)
  const choices: Choice<'answer' | 'decline' | 'later'>[] = [
    { value: 'answer', label: 'Answer' },
    ...waysOut(canKeep),
  ]
  const way = await terminal.choose('What do you want to do?', choices, 'answer')
  return way === 'answer' ? fillIn(terminal, form.fields, canKeep) : leave(way)
}

function waysOut(canKeep: boolean): Choice<'decline' | 'later'>[] {
  return [{ value: 'decline', label: 'Decline', hint: 'refuse to answer' }, ...laterChoice(canKeep)]
}

function leave(way: 'decline' | 'later'): Given {
  return way === 'decline' ? DECLINE : LATER
}

/** A form without fields: the answer itself is the approval. */
async function askApproval(terminal: Terminal, message: string, canKeep: boolean): Promise<Given> {
  const choices: Choice<'decline' | 'approve' | 'later'>[] = [
    { value: 'decline', label: 'Decline' },
    { value: 'approve', label: 'Approve' },
    ...laterChoice(canKeep),
  ]
  const way = await terminal.choose(message, choices, 'decline')
  return way === 'approve' ? accept({}) : leave(way)
}

async function askConfirmation(
  terminal: Terminal,
  message: string,
  field: Field,
  canKeep: boolean,
): Promise<Given> {
  // The field is drawn as a box to tick elsewhere, and its title says what ticking it means.
  const yes = /^yes\b/i.test(field.title) ? field.title : `Yes (${field.title})`
  const choices: Choice<'no' | 'yes' | 'decline' | 'later'>[] = [
    { value: 'no', label: 'No' },
    { value: 'yes', label: yes },
    { value: 'decline', label: 'Decline to answer' },
    ...laterChoice(canKeep),
  ]
  const title = field.description === undefined ? message : `${message}\n${field.description}`
  const way = await terminal.choose(title, choices, 'no')
  return way === 'yes' || way === 'no' ? accept({ [field.name]: way === 'yes' }) : leave(way)
}

async function fillIn(terminal: Terminal, fields: readonly Field[], canKeep: boolean): Promise<Given> {
  const values: Values = startValues(fields)
  const untouched = terminal.keys()
  for (const [index, field] of fields.entries()) {
    const ways = index === 0 && field.type === 'choice' ? waysOut(canKeep) : []
    const given = await askField(terminal, field, values[field.name], ways)
    if ('way' in given) return leave(given.way)
    values[field.name] = given.value
  }
  const isSeen = fields.length === 1 && terminal.keys() > untouched
  return isSeen ? accept(values) : review(terminal, fields, values, untouched, canKeep)
}

/** Shows the answers for review. `untouched` is the number of keys that had been pressed before they were given. */
async function review(
  terminal: Terminal,
  fields: readonly Field[],
  values: Values,
  untouched: number,
  canKeep: boolean,
): Promise<Given> {
  for (;;) {
    terminal.say(summary(fields, values))
    const start = terminal.keys() > untouched ? 'send' : 'change'
    const way = await terminal.choose('Send this?', [...REVIEW, ...waysOut(canKeep)], start)
    if (way === 'send') return accept(values)
    if (way !== 'change') return leave(way)
    const field = await askWhich(terminal, fields)
    values[field.name] = (await askField(terminal, field, values[field.name], [])).value
  }
}

const REVIEW: readonly Choice<'send' | 'change' | 'decline' | 'later'>[] = [
  { value: 'send', label: 'Send' },
  { value: 'change', label: 'Change an answer' },
]

async function askWhich(terminal: Terminal, fields: readonly Field[]): Promise<Field> {
  const [first, ...others] = fields
  if (first === undefined || others.length === 0) return first as Field
  const names = fields.map((field) => ({ value: field, label: field.title }))
  return terminal.choose('Which one?', names, first)
}

function summary(fields: readonly Field[], values: Values): string {
  return fields.map((field) => `${field.title}: ${oneLine(sayValue(field, values[field.name]))}`).join('\n')
}

function sayValue(field: Field, value: FieldValue | undefined): string {
  const titleOf = (one: string): string => field.options?.find((option) => option.value === one)?.title ?? one
  if (value === undefined) return '(left out)'
  if (typeof value === 'boolean') return value ? 'yes' : 'no'
  return Array.isArray(value) ? value.map(titleOf).join(', ') || '(none)' : titleOf(String(value))
}

function accept(values: Values): Given {
  const content = Object.fromEntries(
    Object.entries(values).filter((entry): entry is [string, FieldValue] => entry[1] !== undefined),
  )
  return { kind: 'answer', response: { action: 'accept', content } as ElicitResult }
}

interface Filled {
  /** Undefined leaves the field out. */
  readonly value: FieldValue | undefined
}

/** The user chose to decline or leave the question instead. */
interface Left<W> {
  readonly value?: undefined
  readonly way: W
}

/**
 * Asks for one field, and again with the reason if the input is invalid. `start` is the default or the previous value.
 * `ways` are offered beside the options of a choice.
 */
function askField<W>(
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

/** A default that cannot be shown unchanged is not suggested, so that nothing is sent that was not seen. */
function shownStart(terminal: Terminal, start: FieldValue | undefined): string {
  if (start === undefined) return ''
  const text = String(start)
  if (displayText(text) === text && !/[\n\t]/.test(text)) return text
  terminal.say('The suggested answer contains characters that cannot be shown, and was left out.', 'warn')
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

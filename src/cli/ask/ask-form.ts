/**
 * Asks a form: shows it, lets the person answer, decline or leave it for later, and shows the answers before they are sent.
 * Ctrl-C anywhere dismisses it.
 *
 * Enter alone never approves. A form that only wants a yes or no, or nothing at all, starts on the no; the last look at a
 * form starts on "Send" only if some other key was pressed while it was filled in.
 */

import { startValues } from '../../form/check.ts'
import { oneLine } from '../../form/clean-text.ts'
import type { Field, FieldValue, Form } from '../../form/field.ts'
import type { ElicitResult } from '../../protocol/wire.ts'
import { askField } from './ask-field.ts'
import type { Choice, Terminal } from './terminal.ts'

export type Given = { readonly kind: 'answer'; readonly response: ElicitResult } | { readonly kind: 'later' }

type Values = Record<string, FieldValue | undefined>

const DECLINE: Given = { kind: 'answer', response: { action: 'decline' } }
const LATER: Given = { kind: 'later' }

/** The way out of a question that need not be answered now. */
export function laterChoice(canKeep: boolean): Choice<'later'>[] {
  return canKeep ? [{ value: 'later', label: 'Later', hint: 'keep the call pending' }] : []
}

export async function askForm(terminal: Terminal, form: Form, canKeep: boolean): Promise<Given> {
  for (const note of form.notes) terminal.say(note, 'warn')
  const [first, ...others] = form.fields
  if (first === undefined) return askApproval(terminal, canKeep)
  if (others.length === 0 && first.type === 'boolean' && first.required)
    return askConfirmation(terminal, first, canKeep)
  const choices: Choice<'answer' | 'decline' | 'later'>[] = [
    { value: 'answer', label: 'Answer' },
    { value: 'decline', label: 'Decline', hint: 'say no' },
    ...laterChoice(canKeep),
  ]
  const way = await terminal.choose('What do you want to do?', choices, 'answer')
  if (way !== 'answer') return way === 'decline' ? DECLINE : LATER
  return fillIn(terminal, form.fields, canKeep)
}

/** A form without fields: the answer itself is the approval. */
async function askApproval(terminal: Terminal, canKeep: boolean): Promise<Given> {
  const choices: Choice<'decline' | 'approve' | 'later'>[] = [
    { value: 'decline', label: 'Decline' },
    { value: 'approve', label: 'Approve' },
    ...laterChoice(canKeep),
  ]
  const way = await terminal.choose('Do you approve?', choices, 'decline')
  if (way === 'approve') return accept({})
  return way === 'decline' ? DECLINE : LATER
}

async function askConfirmation(terminal: Terminal, field: Field, canKeep: boolean): Promise<Given> {
  const choices: Choice<'no' | 'yes' | 'decline' | 'later'>[] = [
    { value: 'no', label: 'No' },
    { value: 'yes', label: 'Yes' },
    { value: 'decline', label: 'Decline to answer' },
    ...laterChoice(canKeep),
  ]
  const title = field.description === undefined ? field.title : `${field.title}\n${field.description}`
  const way = await terminal.choose(title, choices, 'no')
  if (way === 'yes' || way === 'no') return accept({ [field.name]: way === 'yes' })
  return way === 'decline' ? DECLINE : LATER
}

async function fillIn(terminal: Terminal, fields: readonly Field[], canKeep: boolean): Promise<Given> {
  const values: Values = startValues(fields)
  const untouched = terminal.keys()
  const fill = async (field: Field): Promise<void> => {
    values[field.name] = (await askField(terminal, field, values[field.name])).value
  }
  for (const field of fields) await fill(field)
  for (;;) {
    terminal.say(summary(fields, values))
    const start = terminal.keys() > untouched ? 'send' : 'change'
    const way = await terminal.choose('Send this?', [...REVIEW, ...laterChoice(canKeep)], start)
    if (way === 'send') return accept(values)
    if (way !== 'change') return way === 'decline' ? DECLINE : LATER
    const names = fields.map(({ name, title }) => ({ value: name, label: title }))
    const name = await terminal.choose('Which one?', names, fields[0]?.name ?? '')
    for (const field of fields) if (field.name === name) await fill(field)
  }
}

const REVIEW: readonly Choice<'send' | 'change' | 'decline' | 'later'>[] = [
  { value: 'send', label: 'Send' },
  { value: 'change', label: 'Change an answer' },
  { value: 'decline', label: 'Decline', hint: 'say no' },
]

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

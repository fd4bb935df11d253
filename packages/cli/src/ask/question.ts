/**
 * Asks one question of a round: first who asks and why, in our words; then the server's message; then the prompts.
 *
 * A form can be answered, declined, or left for later. Ctrl-C dismisses it at any point. Several answers are
 * shown for review before they are sent; a single one that was just typed is not. If the form begins with a choice,
 * declining and leaving are among its options; otherwise a prompt offers them first. A form with one required yes-or-no
 * field, or with no fields, is a single prompt with the message as its title.
 *
 * Enter alone never approves. A yes-or-no prompt starts on "No". If only Enter was pressed, the answers are reviewed, and
 * the review does not start on "Send". Only a form of choices is sent that way: whoever presses Enter at an option chose it,
 * and sees in the review what.
 *
 * A decline is final, so it is confirmed.
 */

import type {
  ElicitResult,
  ElicitUrlParams,
  InputRequest,
  InputResponse,
  PendingCall,
  SamplingParams,
} from 'rondo/client'
import { displayText, inspectLink } from 'rondo/client'
import type { Field, FieldValue, Form } from 'rondo/forms'
import { checkField, readForm, startValues } from 'rondo/forms'
import { isRecord, oneLine } from 'rondo/internal'
import { describeField, sayRequest, sayServer } from '../describe.ts'
import { sayValue } from '../io.ts'
import type { Choice, Terminal } from './terminal.ts'

type QuestionReply =
  | { readonly kind: 'answer'; readonly response: InputResponse }
  | { readonly kind: 'later' }

/** The server that asks, and the request for which it asks. */
export interface Asking extends Pick<PendingCall, 'server' | 'request' | 'round'> {
  /** True if the answer may come later; otherwise the server waits for it. */
  readonly canKeep: boolean
}

interface Place {
  /** This is question `index` of `count` in its round, counted from 1. */
  readonly index: number
  readonly count: number
}

export async function askQuestion(
  terminal: Terminal,
  { server, request, round, canKeep }: Asking,
  question: InputRequest,
  { index, count }: Place,
): Promise<QuestionReply> {
  const waits = canKeep ? '' : '; the server waits for the answer'
  const place = `question ${index} of ${count}, round ${round}${waits}`
  terminal.say(`${sayServer(server)} asks, for ${sayRequest(request)}\n${place}`, 'info')
  switch (question.method) {
    case 'elicitation/create': {
      const { params } = question
      if (params.mode === 'url') {
        terminal.say(params.message)
        return askUrl(terminal, params, canKeep)
      }
      return askForm(terminal, params.message, readForm(params.requestedSchema), canKeep)
    }
    case 'sampling/createMessage':
      return askSampling(terminal, question.params)
    case 'roots/list':
      terminal.say('The server asks for your folders, and none were sent. Pass them with --root.', 'warn')
      return { kind: 'answer', response: { roots: [] } }
  }
}

/** Shows the messages of a sampling request, and lets the user type the completion. */
async function askSampling(
  terminal: Terminal,
  params: SamplingParams,
): Promise<{ readonly kind: 'answer'; readonly response: InputResponse }> {
  terminal.say(`The server requests a completion by a model (at most ${params.maxTokens} tokens).`)
  for (const message of params.messages) terminal.say(sayMessage(message))
  const check = (input: string) =>
    input.trim() === '' ? 'Type the completion; Ctrl-C cancels the question' : undefined
  const text = await terminal.line('The completion, typed by you instead of a model', '', check)
  const content = { type: 'text', text }
  return { kind: 'answer', response: { role: 'assistant', content, model: 'a person at a terminal' } }
}

function sayMessage(message: unknown): string {
  if (!isRecord(message)) return sayValue(message)
  const { role, content } = message
  return `${sayValue(role)}: ${sayValue(isRecord(content) && content.text ? content.text : content)}`
}

const WARNINGS = {
  'not-encrypted': 'The connection is not encrypted.',
  'look-alike-letters':
    'The host name contains letters that look like other letters. Compare it with the name you expect.',
  'bare-address': 'The host is an IP address, not a name.',
} as const

/**
 * Asks for consent to open a URL. Shows the whole URL and its host, with warnings, and never opens or fetches it: the user
 * does. The cursor starts on "Decline".
 */
async function askUrl(terminal: Terminal, { url }: ElicitUrlParams, canKeep: boolean): Promise<Given> {
  const link = inspectLink(url)
  if (link === undefined) {
    terminal.say(
      'The server asks you to open a URL that is not safe to open. The request was declined.',
      'error',
    )
    return { kind: 'answer', response: { action: 'decline' } }
  }
  terminal.say(`${link.url}\nhost: ${link.host}`)
  for (const warning of link.warnings) terminal.say(WARNINGS[warning], 'warn')
  const choices: Choice<'decline' | 'accept' | 'later'>[] = [
    { value: 'decline', label: 'Decline' },
    { value: 'accept', label: 'I agree to open it', hint: 'open it yourself, then continue here' },
    ...laterChoice(canKeep),
  ]
  const way = await chooseWay(
    terminal,
    'Do you want to open this address in your browser?',
    choices,
    'decline',
  )
  return way === 'later' ? { kind: 'later' } : { kind: 'answer', response: { action: way } }
}

type Given = { readonly kind: 'answer'; readonly response: ElicitResult } | { readonly kind: 'later' }

type Values = Record<string, FieldValue | undefined>

const DECLINE: Given = { kind: 'answer', response: { action: 'decline' } }
const LATER: Given = { kind: 'later' }

/** Offered for a question that need not be answered now. */
function laterChoice(canKeep: boolean): Choice<'later'>[] {
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
  const way = await chooseWay(terminal, 'What do you want to do?', choices, 'answer')
  return way === 'answer' ? fillIn(terminal, form.fields, canKeep) : leave(way)
}

function waysOut(canKeep: boolean): Choice<'decline' | 'later'>[] {
  return [{ value: 'decline', label: 'Decline', hint: 'refuse to answer' }, ...laterChoice(canKeep)]
}

/** Lets the user choose, and again if the choice was to decline and they go back. */
async function chooseWay<W>(
  terminal: Terminal,
  message: string,
  choices: readonly Choice<W>[],
  start: W,
): Promise<W> {
  for (;;) {
    const way = await terminal.choose(message, choices, start)
    if (way !== 'decline' || (await isDeclineMeant(terminal))) return way
  }
}

function isDeclineMeant(terminal: Terminal): Promise<boolean> {
  const choices: Choice<boolean>[] = [
    { value: false, label: 'No, go back' },
    { value: true, label: 'Yes, decline' },
  ]
  return terminal.choose('Decline? The server is told that you refuse to answer.', choices, false)
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
  const way = await chooseWay(terminal, message, choices, 'decline')
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
  const way = await chooseWay(terminal, title, choices, 'no')
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
    const isChosen = fields.every(({ type }) => type === 'choice')
    const start = isChosen || terminal.keys() > untouched ? 'send' : 'change'
    const way = await chooseWay(terminal, 'Send this?', [...REVIEW, ...waysOut(canKeep)], start)
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
  return fields.map((field) => `${field.title}: ${oneLine(sayField(field, values[field.name]))}`).join('\n')
}

function sayField(field: Field, value: FieldValue | undefined): string {
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
  for (;;) {
    const given = await terminal.choose(
      titleOf(field),
      [...fills, ...leaves],
      begin?.value ?? { value: undefined },
    )
    if (!('way' in given) || given.way !== 'decline' || (await isDeclineMeant(terminal))) return given
  }
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

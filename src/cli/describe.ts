/** Calls and servers in words. What a server says of itself is marked as its own. */

import { type FlowRequest, openQuestions, type PendingCall, type PendingServer } from '../client/pending.ts'
import { displayText, oneLine } from '../form/clean-text.ts'
import type { Field } from '../form/field.ts'
import { readForm } from '../form/form.ts'
import { kindOf } from '../protocol/common/request.ts'
import type { TaskState } from '../protocol/task.ts'
import type { InputRequest } from '../protocol/wire.ts'
import { formatTable, shellWord } from './io.ts'

export function sayServer({ target, name, version }: PendingServer): string {
  const where = oneLine(target)
  return name === undefined ? where : `"${oneLine(name)}" ${oneLine(version ?? '')} at ${where}`
}

export function sayRequest(request: FlowRequest): string {
  switch (request.method) {
    case 'tools/call':
      return request.name === '' ? 'a task' : `the tool ${oneLine(request.name)}`
    case 'prompts/get':
      return `the prompt ${oneLine(request.name)}`
    case 'resources/read':
      return `the resource ${oneLine(request.uri)}`
  }
}

/** The open questions of a pending call and how to answer them. */
export function sayPending(pending: PendingCall): string {
  const open = openQuestions(pending)
  const answered = Object.keys(pending.answers)
  const who = `${sayServer(pending.server)}${open.length > 0 ? ' asks' : ''}`
  const round = pending.round > 0 ? `, round ${pending.round}` : ''
  const head = `${who}, for ${sayRequest(pending.request)}${round}`
  const lines = open.flatMap(([key, question]) => ['', ...sayQuestion(key, question)])
  const given = answered.length === 0 ? [] : ['', `already answered: ${answered.map(oneLine).join(', ')}`]
  const task =
    pending.task === undefined ? [] : ['', `The server runs it as the task ${oneLine(pending.task.taskId)}.`]
  return [head, ...lines, ...given, ...task, '', ...sayNext(pending, open)].join('\n')
}

/** The words of a question, where it has any. */
export function messageOf(question: InputRequest): string | undefined {
  return question.method === 'elicitation/create' ? question.params.message : undefined
}

function sayQuestion(key: string, question: InputRequest): string[] {
  const name = oneLine(key)
  const kind = kindOf(question)
  if (question.method !== 'elicitation/create') return [`  ${name}  (${kind})`]
  const { params } = question
  const message = displayText(params.message)
    .split('\n')
    .map((line, index) => (index === 0 ? `  ${name}  ${line}` : `    ${line}`))
  if (params.mode === 'url') return [...message, `    ${oneLine(params.url)}`]
  const { fields, notes } = readForm(params.requestedSchema)
  const rows = fields.map(
    (field) => `    ${wordFor(name, field, fields)}=  ${field.title}: ${describeField(field)}`,
  )
  return [...message, ...rows, ...notes.map((note) => `    note: ${note}`)]
}

function sayNext({ id, task }: PendingCall, open: readonly [string, InputRequest][]): string[] {
  const isTask = task !== undefined
  if (open.length === 0 && !isTask) return [`resume:   rondo resume ${id}`]
  if (open.length === 0)
    return [
      `wait:     rondo resume ${id}`,
      `show:     rondo task get ${id}`,
      `cancel:   rondo task cancel ${id}`,
    ]
  const words = open.map(([key, question]) => exampleWord(oneLine(key), question))
  return [
    `answer:   rondo answer ${id} ${words.join(' ')}`,
    `decline:  rondo answer ${id} --decline`,
    `ask me:   rondo resume ${id}`,
    `abandon:  rondo abandon ${id}`,
  ]
}

/** What stands before the "=": the key alone where the form has one field. */
function wordFor(key: string, { name }: Field, fields: readonly Field[]): string {
  return fields.length === 1 ? key : `${key}.${oneLine(name)}`
}

/** What to type as its answer, fit for a shell. */
export function exampleWord(key: string, question: InputRequest): string {
  if (question.method !== 'elicitation/create') return shellWord(`${key}:=JSON`)
  const { params } = question
  const fields = params.mode === 'form' ? readForm(params.requestedSchema).fields : []
  const [field] = fields
  return shellWord(field === undefined ? `${key}=accept` : `${wordFor(key, field, fields)}=…`)
}

/** A task asks, and nobody is there to be asked. */
export function sayHidden({ id, protocolVersion }: PendingCall): string {
  const how = `rondo resume ${id}, at a terminal or with --answers`
  return `The task asks a question. In ${protocolVersion} it is sent only to a client that waits for the result: ${how}`
}

/** How to resume a call that did not end. */
export function sayKept({ id, task }: PendingCall): string {
  if (task === undefined) return `The call is kept: rondo resume ${id}`
  return [
    `The server continues to run the task ${oneLine(task.taskId)}.`,
    `wait:     rondo resume ${id}`,
    `show:     rondo task get ${id}`,
    `cancel:   rondo task cancel ${id}`,
  ].join('\n')
}

const FORMAT_WORDS = {
  email: 'an e-mail address',
  uri: 'a URL',
  date: 'a date like 2026-07-28',
  'date-time': 'a date and time like 2026-07-28T09:30:00Z',
} as const

/** What a field accepts, in a few words. */
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

/** A task as its owner sees it. */
export interface ShownTask {
  readonly state: TaskState
  /** The call, with the questions that are open. */
  readonly pending: PendingCall
  /** Its name on the command line. */
  readonly name: string
  /** The call is kept here. */
  readonly isKept: boolean
  /** Why the questions are not shown. */
  readonly problem?: string
}

export function sayTask({ state, pending, name, isKept, problem }: ShownTask, now: number): string {
  const { status, statusMessage, createdAt, lastUpdatedAt, ttlMs, error } = state
  const rows = [
    ['status', statusMessage === undefined ? status : `${status}: ${oneLine(statusMessage)}`],
    ...(error === undefined ? [] : [['error', `${error.code} ${oneLine(error.message)}`]]),
    ['created', `${sayTime(createdAt)}, ${sayAgo(now - createdAt)}`],
    ['updated', `${sayTime(lastUpdatedAt)}, ${sayAgo(now - lastUpdatedAt)}`],
    ['kept', ttlMs === null ? 'without limit' : `until ${sayTime(createdAt + ttlMs)}`],
    ['server', sayServer(pending.server)],
    ...(isKept ? [['call', `${sayRequest(pending.request)}, pending ${pending.id}`]] : []),
  ]
  const open = openQuestions(pending)
  const asked = open.flatMap(([key, question]) => ['', ...sayQuestion(key, question)])
  const words = open.map(([key, question]) => exampleWord(oneLine(key), question))
  return [
    `task ${oneLine(state.taskId)}`,
    formatTable(rows.map(([label, text = '']) => [`  ${label}`, text])),
    ...(problem === undefined ? [] : ['', `The questions are not shown: ${oneLine(problem)}`]),
    ...asked,
    ...(open.length > 0 ? ['', `answer:   rondo task answer ${oneLine(name)} ${words.join(' ')}`] : []),
    ...(isEnded(state)
      ? []
      : [...(open.length > 0 ? [] : ['']), `cancel:   rondo task cancel ${oneLine(name)}`]),
    ...(isKept && !isEnded(state) ? [`wait:     rondo resume ${pending.id}`] : []),
  ].join('\n')
}

export function taskJson(
  { state, pending, isKept, problem }: ShownTask,
  protocolVersion: string,
): Record<string, unknown> {
  const { inputRequests: _, ...task } = state
  const asks = state.status === 'input_required' && problem === undefined
  return {
    task: { ...task, ...(asks && { inputRequests: pending.questions }), ...(problem && { problem }) },
    server: { ...pending.server, protocolVersion },
    ...(isKept && { id: pending.id }),
  }
}

export function isEnded({ status }: TaskState): boolean {
  return status === 'completed' || status === 'failed' || status === 'cancelled'
}

const LAST_DATE = 8.64e15

export function sayTime(ms: number): string {
  return Math.abs(ms) <= LAST_DATE ? new Date(ms).toISOString() : 'no known time'
}

function sayAgo(ms: number): string {
  const age = sayAge(ms)
  return age === 'now' ? 'just now' : `${age} ago`
}

export function sayAge(ms: number): string {
  const minutes = Math.floor(Math.max(0, ms) / 60_000)
  if (minutes < 1) return 'now'
  if (minutes < 120) return `${minutes} min`
  return minutes < 2880 ? `${Math.floor(minutes / 60)} h` : `${Math.floor(minutes / 1440)} d`
}

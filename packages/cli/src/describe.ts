/**
 * Describes servers, calls, questions and form fields in words, and prints a call that is complete or pending. What a server says
 * about itself is quoted.
 */

import { createRequire } from 'node:module'
import type {
  CallToolResult,
  DriveResult,
  GetPromptResult,
  InputRequest,
  ReadResourceResult,
} from 'rondo/client'
import {
  displayText,
  type FlowRequest,
  type FlowResult,
  kindOf,
  openQuestions,
  type PendingCall,
  type PendingServer,
} from 'rondo/client'
import type { Field } from 'rondo/forms'
import { readForm } from 'rondo/forms'
import { isRecord, oneLine } from 'rondo/internal'
import type { Exit } from './command-line.ts'
import { type Io, print, printJson, sayJson, sayValue, shellWord, tell } from './io.ts'

const { version } = createRequire(import.meta.url)('@rondo/cli/package.json') as { version: string }

/** The version of this command. */
export const VERSION: string = version

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

/** The words with which the user runs this command: in a project, `rondo` alone is not on the path. */
export function commandOf({ env }: Pick<Io, 'env'>): string {
  return env.npm_command === 'exec' ? 'npx rondo' : 'rondo'
}

/** The open questions of a pending call and how to answer them. */
export function sayPending(pending: PendingCall, rondo: string): string {
  const open = openQuestions(pending)
  const answered = Object.keys(pending.answers)
  const who = `${sayServer(pending.server)}${open.length > 0 ? ' asks' : ''}`
  const round = pending.round > 0 ? `, round ${pending.round}` : ''
  const head = `${who}, for ${sayRequest(pending.request)}${round}`
  const lines = open.flatMap(([key, question]) => ['', ...sayQuestion(key, question)])
  const given = answered.length === 0 ? [] : ['', `already answered: ${answered.map(oneLine).join(', ')}`]
  const task =
    pending.task === undefined ? [] : ['', `The server runs it as the task ${oneLine(pending.task.taskId)}.`]
  return [head, ...lines, ...given, ...task, '', ...sayNext(pending, open, rondo)].join('\n')
}

/** The message of a question, if it has one. */
export function messageOf(question: InputRequest): string | undefined {
  return question.method === 'elicitation/create' ? question.params.message : undefined
}

/** The lines that show one question, with a word per field. */
export function sayQuestion(key: string, question: InputRequest): string[] {
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

function sayNext(
  { id, task }: PendingCall,
  open: readonly [string, InputRequest][],
  rondo: string,
): string[] {
  const isTask = task !== undefined
  if (open.length === 0 && !isTask) return [`resume:   ${rondo} resume ${id}`]
  if (open.length === 0)
    return [
      `wait:     ${rondo} resume ${id}`,
      `show:     ${rondo} task get ${id}`,
      `cancel:   ${rondo} task cancel ${id}`,
    ]
  const words = open.map(([key, question]) => exampleWord(oneLine(key), question))
  return [
    `answer:   ${rondo} answer ${id} ${words.join(' ')}`,
    `decline:  ${rondo} answer ${id} --decline`,
    `ask me:   ${rondo} resume ${id}`,
    `abandon:  ${rondo} abandon ${id}`,
  ]
}

/** The part before the "=" in an answer: the key alone if the form has one field. */
function wordFor(key: string, { name }: Field, fields: readonly Field[]): string {
  return fields.length === 1 ? key : `${key}.${oneLine(name)}`
}

/** An example of an answer on the command line, quoted for a shell. */
export function exampleWord(key: string, question: InputRequest): string {
  if (question.method !== 'elicitation/create') return shellWord(`${key}:=JSON`)
  const { params } = question
  const fields = params.mode === 'form' ? readForm(params.requestedSchema).fields : []
  const [field] = fields
  return shellWord(field === undefined ? `${key}=accept` : `${wordFor(key, field, fields)}=…`)
}

/** For a task whose question nobody can answer now. */
export function sayHidden({ id, protocolVersion }: PendingCall, rondo: string): string {
  const how = `${rondo} resume ${id}, at a terminal or with --answers`
  return `The task asks a question. In ${protocolVersion} the server sends it only to a client that waits for the result: ${how}`
}

/** Advice for a server that may wait to be asked for a task before it runs its effects. */
export function sayUnconfirmed({ id }: PendingCall, { message }: Error, rondo: string): string {
  const start = `The task may wait until somebody uses its id: ${rondo} task get ${id}`
  return `rondo: The state of the task could not be read: ${oneLine(message)}\n${start}`
}

/** Advice for a call whose state the server does not open: resuming it would fail in the same way. */
export function sayStateRefused({ id }: PendingCall, rondo: string): string {
  const why = 'probably it has expired, or the server has another key, as after a restart without RONDO_KEYS'
  return `The server refused the state of this call: ${why}. Call the tool again, and remove this call: ${rondo} abandon ${id}`
}

/** The command that resumes a call that did not end. */
export function sayKept({ id, task }: PendingCall, rondo: string): string {
  if (task === undefined)
    return `The call is still pending. To continue it: ${rondo} resume ${id}. To give it up: ${rondo} abandon ${id}`
  return [
    `The server continues to run the task ${oneLine(task.taskId)}.`,
    `wait:     ${rondo} resume ${id}`,
    `show:     ${rondo} task get ${id}`,
    `cancel:   ${rondo} task cancel ${id}`,
  ].join('\n')
}

const FORMAT_WORDS = {
  email: 'an e-mail address',
  uri: 'a URL',
  date: 'a date like 2026-07-28',
  'date-time': 'a date and time like 2026-07-28T09:30:00Z',
} as const

/** The values that a field accepts, in a few words. */
export function describeField(field: Field): string {
  return field.required ? kindOfField(field) : `${kindOfField(field)}, optional`
}

function kindOfField(field: Field): string {
  const { min, max } = field.limits
  switch (field.type) {
    case 'text':
      return `${field.format ? FORMAT_WORDS[field.format] : 'text'}${range(min, max, ' character')}`
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
  const units = unit && (max ?? min) !== 1 ? `${unit}s` : unit
  if (min !== undefined && max !== undefined) return `, ${min} to ${max}${units}`
  if (min !== undefined) return `, at least ${min}${units}`
  return max === undefined ? '' : `, at most ${max}${units}`
}

const SHOWN = 8

function listOptions({ options = [] }: Field): string {
  const shown = options
    .slice(0, SHOWN)
    .map(({ value, title }) => (value === title ? title : `${oneLine(value)} (${title})`))
  const more = options.length - shown.length
  return more > 0 ? `${shown.join(', ')} and ${more} more` : shown.join(', ')
}

/** The report about a completed call besides its result. */
export interface CompletionNotes {
  /** Keys of answers that were not used. */
  readonly unused: readonly string[]
  /** Questions that were cancelled, because the server waited for answers that nobody had. */
  readonly unanswered: readonly string[]
  readonly protocolVersion: string
  readonly interrupted: boolean
}

type Complete = Extract<DriveResult, { status: 'complete' }>

export function printComplete(
  io: Io,
  json: boolean,
  request: FlowRequest,
  { result, rounds }: Complete,
  notes: CompletionNotes,
): Exit {
  const { unused, unanswered } = notes
  if (json) {
    const extra = { ...(unused.length > 0 && { unused }), ...(unanswered.length > 0 && { unanswered }) }
    printJson(io, { status: 'complete', rounds, result, ...extra })
  } else {
    printResult(io, request, result)
    for (const problem of problemsOf(notes)) tell(io, `rondo: ${problem}`)
  }
  if (notes.interrupted) return 'interrupted'
  if (unused.length + unanswered.length > 0) return 'answers'
  return 'isError' in result && result.isError === true ? 'failed' : 'done'
}

function problemsOf({ unused, unanswered, protocolVersion }: CompletionNotes): string[] {
  const list = (words: readonly string[]): string => words.map((word) => `"${oneLine(word)}"`).join(', ')
  return [
    ...(unanswered.length > 0
      ? [
          `No answer for ${list(unanswered)}. In ${protocolVersion} the server waits for answers, so the call cannot be kept ` +
            'for later, and the question was cancelled. Pass --answers with the whole message or question-1, question-2 … as keys, ' +
            'or run the command at a terminal',
        ]
      : []),
    ...(unused.length > 0 ? [`Unused answers: ${list(unused)}`] : []),
  ]
}

export function printPending(io: Io, json: boolean, pending: PendingCall): Exit {
  const idle = pending.task !== undefined && openQuestions(pending).length === 0
  if (json) printJson(io, { status: idle ? 'task' : 'input_required', ...pendingJson(pending) })
  else print(io, `pending ${pending.id}\n${sayPending(pending, commandOf(io))}`)
  return 'pending'
}

/** A pending call as JSON, with the size of the server's state instead of the state itself, which is in the file. */
export function pendingJson({ state, ...pending }: PendingCall): Record<string, unknown> {
  return { ...pending, stateBytes: state === undefined ? 0 : Buffer.byteLength(state) }
}

/** Prints a result as text. */
export function printResult(io: Io, request: FlowRequest, result: FlowResult): Exit {
  switch (request.method) {
    case 'tools/call':
      return printTool(io, result as CallToolResult)
    case 'prompts/get':
      for (const { role, content } of (result as GetPromptResult).messages) {
        print(io, `${sayValue(role)}: ${sayBlock(content)}`)
      }
      return 'done'
    case 'resources/read':
      for (const contents of (result as ReadResourceResult).contents) print(io, sayContents(contents))
      return 'done'
  }
}

function printTool(io: Io, { content, structuredContent, isError }: CallToolResult): Exit {
  if (isError === true) tell(io, 'The tool returned an error:')
  for (const block of content) print(io, sayBlock(block))
  if (content.length === 0 && structuredContent !== undefined) {
    print(io, sayJson(structuredContent, io.stdout))
  }
  return isError === true ? 'failed' : 'done'
}

function sayBlock(block: unknown): string {
  if (!isRecord(block)) return sayValue(block)
  const { type, text, mimeType, data, uri, resource } = block
  if (type === 'text') return sayValue(text)
  if (type === 'resource' && isRecord(resource)) return sayContents(resource)
  if (type === 'resource_link') return `[link ${sayValue(uri)}]`
  return `[${sayValue(type)} ${sayValue(mimeType ?? '')}${sizeOf(data)}]`
}

function sayContents(contents: unknown): string {
  if (!isRecord(contents)) return sayValue(contents)
  const { text, blob, mimeType, uri } = contents
  return typeof text === 'string'
    ? text
    : `[${sayValue(mimeType ?? 'binary')} ${sayValue(uri)}${sizeOf(blob)}]`
}

function sizeOf(base64: unknown): string {
  return typeof base64 === 'string' ? `, ${Math.floor((base64.length * 3) / 4)} bytes` : ''
}

/** Calls and servers in words. What a server says of itself is marked as its own. */

import type { FlowRequest } from '../client/flow-request.ts'
import { openQuestions, type PendingCall, type PendingServer } from '../client/pending.ts'
import { kindOf } from '../client/question.ts'
import { displayText, oneLine } from '../form/clean-text.ts'
import type { Field } from '../form/field.ts'
import { readForm } from '../form/read-form.ts'
import type { InputRequest } from '../protocol/wire.ts'
import { describeField } from './describe-field.ts'
import { shellWord } from './shell-word.ts'

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
  const given = answered.length === 0 ? [] : ['', `answered already: ${answered.map(oneLine).join(', ')}`]
  const task =
    pending.task === undefined
      ? []
      : ['', `The server works on it as the task ${oneLine(pending.task.taskId)}.`]
  return [head, ...lines, ...given, ...task, '', ...sayNext(pending, open)].join('\n')
}

/** The words of a question, where it has any. */
export function messageOf(question: InputRequest): string | undefined {
  return question.method === 'elicitation/create' ? question.params.message : undefined
}

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

function sayNext({ id, task }: PendingCall, open: readonly [string, InputRequest][]): string[] {
  const isTask = task !== undefined
  if (open.length === 0 && !isTask) return [`go on:    rondo resume ${id}`]
  if (open.length === 0)
    return [
      `wait:     rondo resume ${id}`,
      `look:     rondo task get ${id}`,
      `cancel:   rondo task cancel ${id}`,
    ]
  const words = open.map(([key, question]) => exampleWord(oneLine(key), question))
  return [
    `answer:   rondo answer ${id} ${words.join(' ')}`,
    `decline:  rondo answer ${id} --decline`,
    `ask me:   rondo resume ${id}`,
    `give up:  rondo abandon ${id}`,
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
  return `The task asks. In ${protocolVersion} only those see its questions who answer at once: ${how}`
}

/** A call that did not end: how to go on with it. */
export function sayKept({ id, task }: PendingCall): string {
  if (task === undefined) return `The call is kept: rondo resume ${id}`
  return [
    `The server goes on with the task ${oneLine(task.taskId)}.`,
    `wait for it:  rondo resume ${id}`,
    `look at it:   rondo task get ${id}`,
    `end it:       rondo task cancel ${id}`,
  ].join('\n')
}

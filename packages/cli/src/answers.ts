/**
 * Answers the questions of a round: a person at the terminal, answers on the command line (`key.field=value` words, `--decline`,
 * `--cancel`) or in a file, or nobody now. Each answerer takes a pending call and returns it with answers, or undefined if the
 * answers come later.
 *
 * Servers of older revisions wait for the answer while they ask, so it cannot come later: `answerNow` is for those.
 */

import {
  answer,
  type ElicitContent,
  type ElicitFormParams,
  type InputRequest,
  type InputResponse,
  openQuestions,
  type PendingCall,
} from 'rondo/client'
import { checkForm, readForm } from 'rondo/forms'
import { answerProblem, isRecord } from 'rondo/internal'
import { type Asking, askQuestion } from './ask/question.ts'
import { createTerminal, Dismissed } from './ask/terminal.ts'
import { CommandError, type Options, type OptionTable, suggest, usageError } from './command-line.ts'
import { messageOf } from './describe.ts'
import type { Io } from './io.ts'
import { parseJson, splitWord } from './words.ts'

export const DISMISS_OPTIONS: OptionTable = {
  decline: { type: 'boolean', help: 'declines the named questions, or all open ones' },
  cancel: { type: 'boolean', help: 'cancels the named questions, or all open ones' },
}

/** The ways to write an answer on the command line. */
export const ANSWER_WORDS: Readonly<Record<string, string>> = {
  'key.field=value': 'a field of a form; repeat it for a list',
  'field=value': 'the same, if only one question is open',
  'key=value':
    'the same, if the form has one field; the values `accept`, `decline` and `cancel` need `key.field=`',
  'key=accept': 'agrees to open a URL, or approves a form without fields',
  'key=decline, key=cancel': 'declines; cancels',
  'key:=json': 'the whole result object; also for sampling and roots',
}

/** True if the command line has any answer. */
export function hasAnswers(options: Options, words: readonly string[]): boolean {
  return words.length > 0 || options.flag('decline') || options.flag('cancel')
}

/** Returns the call with the answers on the command line. */
export function addGiven(options: Options, words: readonly string[], pending: PendingCall): PendingCall {
  const [decline, cancel] = [options.flag('decline'), options.flag('cancel')]
  if (decline && cancel) throw usageError('Use either --decline or --cancel, not both')
  const given = decline || cancel ? dismissed(pending, words, decline) : readAnswerWords(words, pending)
  return [...given].reduce((now, [key, response]) => answer(now, key, response), pending)
}

function dismissed(
  pending: PendingCall,
  words: readonly string[],
  decline: boolean,
): Map<string, InputResponse> {
  const action = decline ? 'decline' : 'cancel'
  return new Map(
    readKeys(words, pending).map((key) => {
      if (pending.questions[key]?.method === 'elicitation/create') return [key, { action }]
      throw new CommandError('answers', `"${key}" is neither a form nor a URL, so it cannot be declined`)
    }),
  )
}

/**
 * Parses `key.field=value`, `key=accept|decline|cancel` and `key:=json`. `field=value` is enough if one question is open,
 * `key=value` if its form has one field.
 */
function readAnswerWords(words: readonly string[], pending: PendingCall): Map<string, InputResponse> {
  const given = new Map<string, unknown>()
  for (const word of words) {
    const { name, text, json } = splitWord(word)
    const { key, field } = resolveName(name, json ? undefined : text, pending)
    if (field === undefined) given.set(key, json ? parseJson(name, text) : text)
    else addField(given, key, field, json ? parseJson(name, text) : text)
  }
  return new Map([...given].map(([key, value]) => [key, responseFor(key, questionOf(pending, key), value)]))
}

/** The questions to decline or cancel: those named, or all that are open. */
function readKeys(words: readonly string[], pending: PendingCall): string[] {
  for (const key of words) questionOf(pending, key)
  return words.length > 0 ? [...words] : openQuestions(pending).map(([key]) => key)
}

const ACTIONS = new Set<string | undefined>(['accept', 'decline', 'cancel', undefined])

/** The question, and perhaps the field, that a word answers. `text` is its value, unless that is JSON. */
function resolveName(
  name: string,
  text: string | undefined,
  pending: PendingCall,
): { key: string; field?: string } {
  const keys = Object.keys(pending.questions).sort((a, b) => b.length - a.length)
  const key = keys.find((one) => name === one || name.startsWith(`${one}.`))
  if (key !== undefined && name !== key) return { key, field: name.slice(key.length + 1) }
  if (key !== undefined)
    return ACTIONS.has(text) ? { key } : { key, field: onlyField(questionOf(pending, key)) }
  const [only, ...others] = openQuestions(pending)
  if (only !== undefined && others.length === 0) return { key: only[0], field: name }
  const isTask = keys.length === 0 && pending.task !== undefined
  const none = isTask ? `: it runs as a task. Use "rondo task answer ${pending.id}"` : ': nothing is open'
  const open = keys.length === 0 ? none : suggest(name, keys)
  throw new CommandError('answers', `This call has no question "${name}"${open}`)
}

function onlyField(question: InputRequest): string | undefined {
  if (question.method !== 'elicitation/create' || question.params.mode !== 'form') return undefined
  const { fields } = readForm(question.params.requestedSchema)
  return fields.length === 1 ? fields[0]?.name : undefined
}

function questionOf(pending: PendingCall, key: string): InputRequest {
  const question = Object.hasOwn(pending.questions, key) ? pending.questions[key] : undefined
  if (question === undefined) throw new CommandError('answers', `The server did not ask "${key}"`)
  return question
}

/** A field that is given twice becomes a list, for fields with several choices. */
function addField(given: Map<string, unknown>, key: string, field: string, value: unknown): void {
  const old = given.get(key)
  const content = new Map<string, unknown>(typeof old === 'object' && old !== null ? Object.entries(old) : [])
  const before = content.get(field)
  content.set(field, before === undefined ? value : [before, value].flat())
  given.set(key, Object.fromEntries(content))
}

/**
 * The response for an answer, validated against its question. An answer is `"accept"`, `"decline"`, `"cancel"`, the content
 * of a form, or a whole result object.
 */
export function responseFor(key: string, question: InputRequest, value: unknown): InputResponse {
  if (question.method !== 'elicitation/create') return wholeResult(key, question, value)
  if (value === 'decline' || value === 'cancel') return { action: value }
  const { params } = question
  if (params.mode === 'url')
    return value === 'accept' ? { action: 'accept' } : wholeResult(key, question, value)
  if (isResult(value) && value.action !== 'accept') return wholeResult(key, question, value)
  const content = isResult(value) ? value.content : value === 'accept' ? {} : value
  if (!isRecord(content)) throw invalidAnswer(key, 'expected accept, decline, cancel or an object')
  return { action: 'accept', content: checkContent(key, params, content) }
}

const RESULT_MEMBERS = new Set(['action', 'content'])

/** Tells a result object from the content of a form, which may itself have a field named "action". An accepted result always has content. */
function isResult(value: unknown): value is { action: string; content?: unknown } {
  if (!isRecord(value) || !Object.keys(value).every((name) => RESULT_MEMBERS.has(name))) return false
  if (value.action === 'accept') return isRecord(value.content)
  return (value.action === 'decline' || value.action === 'cancel') && value.content === undefined
}

function wholeResult(key: string, question: InputRequest, value: unknown): InputResponse {
  const problem = answerProblem(question, value)
  if (problem !== undefined) throw invalidAnswer(key, problem)
  return value as InputResponse
}

function checkContent(
  key: string,
  params: ElicitFormParams,
  content: Record<string, unknown>,
): ElicitContent {
  const { fields } = readForm(params.requestedSchema)
  const names = fields.map(({ name }) => name)
  const unknown = Object.keys(content).filter((name) => !names.includes(name))
  if (unknown.length > 0) {
    const list = names.length === 0 ? 'it has no fields' : `its fields are ${names.join(', ')}`
    throw invalidAnswer(key, `the form has no field ${unknown.join(', ')}; ${list}`)
  }
  const checked = checkForm(fields, content)
  if (checked.ok) return checked.content as ElicitContent
  throw invalidAnswer(key, checked.problems.map(({ message }) => message).join('; '))
}

function invalidAnswer(key: string, problem: string): CommandError {
  return new CommandError('answers', `Invalid answer to "${key}": ${problem}`)
}

/** Called with the call after every answer. */
type Save = (pending: PendingCall) => void

/** A question for which the server holds its call. */
interface WaitingQuestion extends Asking {
  readonly key: string
  readonly question: InputRequest
  /** Aborted when the server withdraws the question, or is gone. */
  readonly signal: AbortSignal
}

export interface Answerer {
  /** Returns undefined if the answers come later. */
  answer(pending: PendingCall, save: Save): Promise<PendingCall | undefined>
  /** Returns undefined if there is no answer. */
  answerNow(waiting: WaitingQuestion): Promise<InputResponse | undefined>
  /** True if nobody answers now, whatever the question. */
  readonly isNobody?: boolean
  /** True if Ctrl-C was pressed at a question. */
  readonly interrupted?: boolean
  /** True for a complete set of answers: a call that they do not fit is dropped, not kept. */
  readonly isScript?: boolean
  /** Keys of answers that were not used. */
  unused?(): readonly string[]
}

export const answerLater: Answerer = {
  isNobody: true,
  answer: async () => undefined,
  answerNow: async () => undefined,
}

/** Before this version, a question has no key that its author chose. */
const FIRST_WITH_KEYS = '2026'

/**
 * Answers from a file, each used once, found by the key of the question or by its whole message. Older servers send no keys;
 * there `question-1`, `question-2` … count the questions. `partial` leaves missing answers for later instead of failing.
 */
export function answerFrom(answers: Readonly<Record<string, unknown>>, partial: boolean): Answerer {
  const unused = new Set(Object.keys(answers))
  const findAnswer = (key: string, question: InputRequest, counted?: string): string | undefined =>
    [key, messageOf(question), counted].find((name) => name !== undefined && unused.delete(name))
  /** The keys that older servers made up, in the order in which they were asked. */
  const asked: string[] = []
  const countedOf = (key: string, protocolVersion: string): string | undefined => {
    if (protocolVersion >= FIRST_WITH_KEYS) return undefined
    if (!asked.includes(key)) asked.push(key)
    return `question-${asked.indexOf(key) + 1}`
  }
  return {
    isScript: !partial,
    unused: () => [...unused],
    async answer(pending, save) {
      let now = pending
      const missing: string[] = []
      for (const [key, question] of openQuestions(pending)) {
        const counted = countedOf(key, pending.protocolVersion)
        const found = findAnswer(key, question, counted)
        const name = counted === undefined ? key : (messageOf(question) ?? counted)
        if (found === undefined) missing.push(name)
        else now = answer(now, key, responseFor(key, question, answers[found]))
      }
      save(now)
      if (missing.length === 0) return now
      if (partial) return undefined
      const again = missing.filter((key) => Object.hasOwn(answers, key))
      const why = again.length > 0 ? ' (the server did not accept the first answer and asks again)' : ''
      throw new CommandError('answers', `No answer for ${missing.map((key) => `"${key}"`).join(', ')}${why}`)
    },
    async answerNow({ key, question }) {
      const found = findAnswer(key, question)
      return found === undefined ? undefined : responseFor(found, question, answers[found])
    },
  }
}

/** Asks one question at a time. Dismissing one cancels all that follow in the call. */
export function answerAtTerminal(io: Io): Answerer {
  const terminal = createTerminal(io)
  let interrupted = false
  return {
    get interrupted() {
      return interrupted
    },
    async answer(pending, save) {
      const open = openQuestions(pending)
      let now = pending
      for (const [index, [key, question]] of open.entries()) {
        if (interrupted) {
          now = answer(now, key, cancelOf(key, question))
          continue
        }
        try {
          const asking = { ...now, canKeep: true }
          const reply = await askQuestion(terminal, asking, question, {
            index: index + 1,
            count: open.length,
          })
          if (reply.kind === 'later') return undefined
          now = answer(now, key, reply.response)
        } catch (error) {
          if (!(error instanceof Dismissed)) throw error
          interrupted = true
          now = answer(now, key, cancelOf(key, question))
        }
        save(now)
      }
      return now
    },
    async answerNow({ key, question, signal, ...asking }) {
      if (interrupted) return cancelOf(key, question)
      try {
        const place = { index: 1, count: 1 }
        const reply = await askQuestion(createTerminal(io, signal), asking, question, place)
        return reply.kind === 'later' ? undefined : reply.response
      } catch (error) {
        signal.throwIfAborted()
        if (!(error instanceof Dismissed)) throw error
        interrupted = true
        return cancelOf(key, question)
      }
    },
  }
}

/** Only forms and URLs can be cancelled; dismissing any other question ends the call. */
function cancelOf(key: string, { method }: InputRequest): InputResponse {
  if (method === 'elicitation/create') return { action: 'cancel' }
  throw new CommandError('interrupted', `The question "${key}" was cancelled`)
}

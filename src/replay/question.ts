/**
 * A question: what goes to the client, and how its answer is read. Knows nothing of rounds or journals.
 */

import { misuse } from '../errors.ts'
import type { AskEntryKind } from '../journal/journal.ts'
import type { InputRequest, SamplingParams } from '../protocol/wire.ts'
import type { ConfirmOptions, Question as FormQuestion, Outcome } from '../tool/context.ts'
import { compileForm, type FormResult } from '../tool/schema/form.ts'
import type { TextBounds } from '../tool/schema/judge.ts'

export type Reading =
  /** `answer` is what is recorded, where that is not the answer as it came: the same in another spelling. */
  | { readonly ok: true; readonly value: unknown; readonly answer?: unknown }
  /** `empty`: accepted, and none of the fields that are required is filled in. */
  | { readonly ok: false; readonly problem: string; readonly empty?: boolean }

export interface Question {
  readonly kind: AskEntryKind
  readonly request: InputRequest
  /** May be answered by a client that was never shown it: an answer is then no more than an argument. */
  readonly unasked: boolean
  /** What a client that cannot be asked may do instead, in one sentence. */
  readonly instead?: string
  read(answer: unknown): Reading | Promise<Reading>
}

function misfit(problem: string): Reading {
  return { ok: false, problem }
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/**
 * Reads an `ElicitResult`; `accept` reads the content of an accepted one. Only what the handler sees is recorded: whatever
 * else a client adds (`_meta`, a member nobody asked for) must not make another branch of the same answer (R7).
 */
function readElicit(
  answer: unknown,
  accept: (content: unknown) => Reading | Promise<Reading>,
): Reading | Promise<Reading> {
  const action = isObject(answer) ? answer.action : undefined
  if (action === 'decline' || action === 'cancel')
    return { ok: true, value: { action } satisfies Outcome<never>, answer: { action } }
  if (action === 'accept') return accept((answer as Record<string, unknown>).content)
  return misfit('The answer must accept, decline or cancel.')
}

function accepted(content: unknown, answer?: unknown): Reading {
  return { ok: true, value: { action: 'accept', content } satisfies Outcome<unknown>, answer }
}

function isEmpty(content: unknown): boolean {
  return content === undefined || content === null || (isObject(content) && Object.keys(content).length === 0)
}

/** Reads the content of a form. What is recorded is the content that was asked for, with choices by their values. */
function readForm(content: unknown, result: FormResult): Reading {
  if (result.ok) return accepted(result.value, { action: 'accept', content: result.content })
  const problem = result.problems.map(({ message }) => message).join(' ')
  return { ok: false, problem, empty: isEmpty(content) }
}

/** Names the arguments that make a question unnecessary. */
function insteadOf(orArgument: FormQuestion['orArgument']): string | undefined {
  if (orArgument === undefined) return undefined
  const names = (typeof orArgument === 'string' ? [orArgument] : orArgument).map((name) => `"${name}"`)
  const plural = names.length > 1 ? 's' : ''
  return `Ask the user, then call again with the argument${plural} ${names.join(', ')}.`
}

function assertMessage(message: unknown): asserts message is string {
  if (typeof message !== 'string')
    throw misuse('The message of a question must be a string: the person who is asked reads it.')
}

export function formQuestion(
  { message, schema, allowSecretLike, orArgument }: FormQuestion,
  bounds?: TextBounds,
): Question {
  const form = compileForm(schema, { allowSecretLike })
  assertMessage(message)
  return {
    kind: 'form',
    unasked: true,
    instead: insteadOf(orArgument),
    request: { method: 'elicitation/create', params: { mode: 'form', message, requestedSchema: form.json } },
    read: (answer) =>
      readElicit(answer, (content) => {
        const result = form.validate(content, bounds)
        if (result instanceof Promise) return result.then((settled) => readForm(content, settled))
        return readForm(content, result)
      }),
  }
}

export function confirmQuestion(message: string, { label = 'Yes, go ahead' }: ConfirmOptions = {}): Question {
  assertMessage(message)
  return {
    kind: 'confirm',
    unasked: false,
    request: {
      method: 'elicitation/create',
      params: {
        mode: 'form',
        message,
        requestedSchema: {
          type: 'object',
          properties: { confirm: { type: 'boolean', title: label } },
          required: ['confirm'],
        },
      },
    },
    read: (answer) =>
      readElicit(answer, (content) =>
        isObject(content) && typeof content.confirm === 'boolean'
          ? accepted(content.confirm, { action: 'accept', content: { confirm: content.confirm } })
          : { ok: false, problem: 'Answer yes or no.', empty: isEmpty(content) },
      ),
  }
}

const LOOPBACK = new Set(['localhost', '127.0.0.1', '[::1]'])

/** Refuses what no client should be asked to open: other schemes, plain http beyond this machine, credentials. */
function checkedUrl(text: string): string {
  const url = URL.canParse(text) ? new URL(text) : undefined
  const secure = url?.protocol === 'https:' || (url?.protocol === 'http:' && LOOPBACK.has(url.hostname))
  if (!url || !secure) {
    throw misuse('ctx.visit takes an https URL, or http on loopback.')
  }
  if (url.username !== '' || url.password !== '') {
    throw misuse('ctx.visit takes a URL without a user name or password in it.')
  }
  return text
}

export function urlQuestion({ message, url }: { message: string; url: string }): Question {
  assertMessage(message)
  return {
    kind: 'url',
    unasked: false,
    request: { method: 'elicitation/create', params: { mode: 'url', message, url: checkedUrl(url) } },
    read: (answer) => readElicit(answer, () => accepted({}, { action: 'accept' })),
  }
}

export function samplingQuestion(params: SamplingParams): Question {
  return {
    kind: 'sampling',
    unasked: false,
    request: { method: 'sampling/createMessage', params },
    read: (answer) =>
      isObject(answer) &&
      typeof answer.role === 'string' &&
      typeof answer.content === 'object' &&
      answer.content !== null
        ? { ok: true, value: answer }
        : misfit('The answer must be a message with a role and content.'),
  }
}

export function rootsQuestion(): Question {
  return {
    kind: 'roots',
    unasked: false,
    request: { method: 'roots/list' },
    read: (answer) =>
      isObject(answer) &&
      Array.isArray(answer.roots) &&
      answer.roots.every((root) => isObject(root) && typeof root.uri === 'string')
        ? { ok: true, value: answer.roots, answer: { roots: answer.roots } }
        : misfit('The answer must be a list of roots.'),
  }
}

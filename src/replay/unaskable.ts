/**
 * What is said of a question that its client does not show: a model reads it and passes it on to its user. Plain sentences,
 * without control characters, of bounded length: what is asked, what may be answered, what was done, and what to do.
 */

import { RondoError } from '../errors.ts'
import { cleanText } from '../form/clean-text.ts'
import { describeFields } from '../form/describe.ts'
import { readForm } from '../form/read-form.ts'
import { nameCapabilities } from '../protocol/capability.ts'
import type { ClientCapabilities, InputRequest } from '../protocol/wire.ts'

export interface Unasked {
  readonly request: InputRequest
  /** What makes the question unnecessary, in one sentence. */
  readonly instead?: string
  /** Whether an effect of this flow has run; undefined where nobody keeps a record of that. */
  readonly acted?: keyof typeof DONE
}

const DONE = {
  no: 'Nothing was done.',
  perhaps: 'Some of the work of this call may be done already.',
  yes: 'Some of the work of this call is done already.',
}

const MAX_MESSAGE = 500
const MAX_FIELDS = 800

/** The client lacks a capability that the question needs. */
export function unaskable(missing: ClientCapabilities, unasked: Unasked): RondoError {
  const why = `This client cannot be asked: it lacks the capability ${nameCapabilities(missing)}.`
  const detail = `${why} ${describeUnasked(unasked)}`
  return new RondoError('PEER_CAPABILITY', detail, { data: { requiredCapabilities: missing } })
}

/** The question, what was done, and what to do. */
export function describeUnasked({ request, instead, acted }: Unasked): string {
  const advice = instead ?? 'No argument can stand in for the answer: use a client that can be asked.'
  return [describeRequest(request), ...(acted === undefined ? [] : [DONE[acted]]), advice].join(' ')
}

function describeRequest(request: InputRequest): string {
  if (request.method === 'sampling/createMessage') return 'The tool needs an answer of the client’s model.'
  if (request.method === 'roots/list') return 'The tool needs to know the roots of the client.'
  const { params } = request
  const message = cleanText(params.message, MAX_MESSAGE)
  // The link is for the user alone: whoever opens it acts as the user.
  if (params.mode === 'url') return `The tool wants the user to open a page: "${message}"`
  const fields = cleanText(describeFields(readForm(params.requestedSchema).fields), MAX_FIELDS)
  return `The tool asks the user: "${message}" The answer has ${fields}.`
}

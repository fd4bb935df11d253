/**
 * The content of a request, in every revision: its id, the parameters of its method narrowed from JSON, and what its client
 * declares that it can be asked. A reader of parameters takes the envelope that was read before and returns the whole
 * call, or throws what is wrong.
 *
 * `inputResponses` is an object that maps each key to a result object; anything else is refused (B14). It becomes a map
 * without a prototype, so that no key, whatever its name, reaches more than itself. Only shape and size are checked here
 * (T7); whether a key was asked for and whether its response fits is decided later.
 *
 * Capabilities are read from the request at hand, never from an earlier one.
 */

import { RondoError } from '../../errors.ts'
import { isRecord } from '../../lib/json.ts'
import type {
  CompleteCall,
  CompleteRef,
  Envelope,
  FlowCall,
  FlowMethod,
  ListCall,
  ListenCall,
  ListenFilter,
  Listing,
  RequestId,
  TaskCall,
} from '../call.ts'
import { TASKS_EXTENSION } from '../reply.ts'
import { type ClientCapabilities, type InputRequest, LOG_LEVELS, type LogLevel } from '../wire.ts'
import { DRAWS_FORMS, drawsForms } from './apps.ts'
import { CLIENT_INFO, LOG_LEVEL, PROTOCOL_VERSION } from './json-rpc.ts'
import { isRequestId } from './request-id.ts'

type Params = Readonly<Record<string, unknown>>

export interface AnswerLimits {
  /** Responses in one request. */
  readonly count: number
  /** Characters of one response: names, strings and numbers, roughly as in its JSON. */
  readonly size: number
}

export const ANSWER_LIMITS: AnswerLimits = { count: 128, size: 65_536 }

/** The kinds of questions that a client can answer: a form, a visit to a URL, a sample of its model, its roots. */
export type QuestionKind = 'form' | 'url' | 'sampling' | 'roots'

const NO_ARGS: Params = Object.freeze({})

/** The id of a request, even if the rest of it is malformed. */
export function idOf(message: unknown): RequestId | null {
  return isRecord(message) && message.method !== undefined && isRequestId(message.id) ? message.id : null
}

/** The version that a message claims for itself, in `_meta`. */
export function claimedVersion(message: unknown): unknown {
  if (!isRecord(message) || !isRecord(message.params)) return undefined
  const { _meta } = message.params
  return isRecord(_meta) ? _meta[PROTOCOL_VERSION] : undefined
}

export function isInitialize(message: unknown): boolean {
  return isRecord(message) && message.method === 'initialize'
}

export function readFlow(
  envelope: Envelope,
  method: FlowMethod,
  target: string,
  params: Params,
  limits: AnswerLimits,
): FlowCall {
  const { inputResponses, requestState } = params
  if (requestState !== undefined && typeof requestState !== 'string') {
    throw new RondoError('STATE_INVALID', 'requestState is not a string')
  }
  return {
    kind: 'flow',
    method,
    target,
    args: method === 'resources/read' ? NO_ARGS : readArgs(method, params.arguments),
    inputResponses: inputResponses === undefined ? undefined : readAnswers(inputResponses, limits),
    requestState,
    id: envelope.id,
    protocolVersion: envelope.protocolVersion,
    capabilities: envelope.capabilities,
    clientInfo: envelope.clientInfo,
    progressToken: envelope.progressToken,
    logLevel: envelope.logLevel,
    trace: envelope.trace,
    meta: envelope.meta,
  }
}

/** The name of the tool or prompt, or the URI of the resource. */
export function readTarget(method: FlowMethod, params: Params): string {
  const field = method === 'resources/read' ? 'uri' : 'name'
  return readString(params[field], `params.${field}`)
}

function readArgs(method: FlowMethod, value: unknown): Params {
  if (value === undefined) return NO_ARGS
  if (!isRecord(value)) throw invalid('params.arguments must be an object')
  if (method === 'prompts/get') return readStrings(value, 'params.arguments')
  return value
}

export function readList(envelope: Envelope, listing: Listing, params: Params): ListCall {
  const { cursor } = params
  if (cursor !== undefined && typeof cursor !== 'string') throw invalid('params.cursor must be a string')
  return { kind: 'list', listing, cursor, ...envelope }
}

export function readComplete(envelope: Envelope, params: Params): CompleteCall {
  const { ref, argument, context } = params
  if (!isRecord(argument)) throw invalid('params.argument must be an object')
  if (context !== undefined && !isRecord(context)) throw invalid('params.context must be an object')
  const known = context?.arguments
  return {
    kind: 'complete',
    ref: readRef(ref),
    argument: {
      name: readString(argument.name, 'params.argument.name'),
      value: readString(argument.value, 'params.argument.value'),
    },
    context: known === undefined ? {} : readStrings(known, 'params.context.arguments'),
    ...envelope,
  }
}

function readRef(ref: unknown): CompleteRef {
  if (isRecord(ref)) {
    if (ref.type === 'ref/prompt') return { kind: 'prompt', name: readString(ref.name, 'params.ref.name') }
    if (ref.type === 'ref/resource') return { kind: 'template', uri: readString(ref.uri, 'params.ref.uri') }
  }
  throw invalid('params.ref must be of type ref/prompt or ref/resource')
}

export function readListen(envelope: Envelope, params: Params): ListenCall {
  const filter = params.notifications
  if (!isRecord(filter)) throw invalid('params.notifications must be an object')
  for (const field of ['toolsListChanged', 'promptsListChanged', 'resourcesListChanged']) {
    const wanted = filter[field]
    if (wanted !== undefined && typeof wanted !== 'boolean') {
      throw invalid(`params.notifications.${field} must be a boolean`)
    }
  }
  const uris = filter.resourceSubscriptions
  if (uris !== undefined && !(Array.isArray(uris) && uris.every((uri) => typeof uri === 'string'))) {
    throw invalid('params.notifications.resourceSubscriptions must be an array of strings')
  }
  readTaskIds(filter.taskIds, envelope)
  return { kind: 'listen', filter: filter as ListenFilter, ...envelope }
}

function assertFollowsTasks({ capabilities }: Envelope): void {
  if (followsTasks(capabilities)) return
  const data = { requiredCapabilities: { extensions: { [TASKS_EXTENSION]: {} } } }
  const detail = `This client lacks the capability ${nameCapabilities(data.requiredCapabilities)}`
  throw new RondoError('PEER_CAPABILITY', detail, { data })
}

const MAX_TASK_IDS = 1000

function readTaskIds(ids: unknown, envelope: Envelope): void {
  if (ids === undefined) return
  assertFollowsTasks(envelope)
  if (!Array.isArray(ids) || ids.length > MAX_TASK_IDS || !ids.every((id) => typeof id === 'string')) {
    throw invalid(`params.notifications.taskIds must be an array of at most ${MAX_TASK_IDS} strings`)
  }
}

export type TaskMethod = 'tasks/get' | 'tasks/update' | 'tasks/cancel'

const TASK_ACTIONS: Readonly<Record<TaskMethod, TaskCall['action']>> = {
  'tasks/get': 'get',
  'tasks/update': 'update',
  'tasks/cancel': 'cancel',
}

/** Refuses a client that did not declare tasks, before anything is looked up. */
export function readTask(
  envelope: Envelope,
  method: TaskMethod,
  params: Params,
  limits: AnswerLimits,
): TaskCall {
  assertFollowsTasks(envelope)
  const action = TASK_ACTIONS[method]
  return {
    kind: 'task',
    action,
    taskId: readString(params.taskId, 'params.taskId'),
    inputResponses: action === 'update' ? readAnswers(params.inputResponses, limits) : undefined,
    ...envelope,
  }
}

/** The trace context of a request (W3C), as `_meta` carries it. */
export function readTrace(meta: Params): Readonly<Record<string, string>> {
  const found: Record<string, string> = {}
  for (const key of ['traceparent', 'tracestate', 'baggage']) {
    const value = meta[key]
    if (typeof value === 'string') found[key] = value
  }
  return found
}

function readString(value: unknown, name: string): string {
  if (typeof value !== 'string') throw invalid(`${name} must be a string`)
  return value
}

function readStrings(value: unknown, name: string): Readonly<Record<string, string>> {
  if (!isRecord(value)) throw invalid(`${name} must be an object`)
  for (const key of Object.keys(value)) readString(value[key], `Every value of ${name}`)
  return value as Record<string, string>
}

function invalid(detail: string): RondoError {
  return new RondoError('PEER_PARAMS', detail)
}

export function readAnswers(value: unknown, limits: AnswerLimits): Readonly<Record<string, unknown>> {
  if (!isRecord(value)) throw new RondoError('INPUT_MALFORMED')
  const keys = Object.keys(value)
  if (keys.length > limits.count) {
    throw new RondoError('INPUT_MALFORMED', `inputResponses has more than ${limits.count} entries`)
  }
  const answers: Record<string, unknown> = Object.create(null)
  for (const key of keys) {
    const answer = value[key]
    if (!isRecord(answer)) throw new RondoError('INPUT_MALFORMED')
    if (remaining(answer, limits.size) < 0) {
      throw new RondoError(
        'INPUT_MALFORMED',
        `An entry of inputResponses is larger than ${limits.size} characters`,
      )
    }
    answers[key] = answer
  }
  return answers
}

/** Returns the rest of `budget` after `value`; stops once it is below zero. */
function remaining(value: unknown, budget: number): number {
  if (typeof value === 'string') return budget - value.length - 2
  if (typeof value !== 'object' || value === null) return budget - 8
  let left = budget - 2
  if (Array.isArray(value)) {
    for (let i = 0; i < value.length && left >= 0; i++) left = remaining(value[i], left - 1)
    return left
  }
  for (const key of Object.keys(value)) {
    if (left < 0) return left
    left = remaining((value as Record<string, unknown>)[key], left - key.length - 4)
  }
  return left
}

/** True if the request declares that its client can follow a task. */
export function followsTasks({ extensions }: ClientCapabilities): boolean {
  return (
    typeof extensions === 'object' &&
    extensions !== null &&
    Object.hasOwn(extensions, TASKS_EXTENSION) &&
    typeof extensions[TASKS_EXTENSION] === 'object'
  )
}

/** True if the client can be asked this. A bare `elicitation: {}` means forms only. */
export function supports(capabilities: ClientCapabilities, kind: QuestionKind): boolean {
  const { elicitation, sampling, roots } = capabilities
  switch (kind) {
    case 'form':
      return isRecord(elicitation) && (isRecord(elicitation.form) || !isRecord(elicitation.url))
    case 'url':
      return isRecord(elicitation) && isRecord(elicitation.url)
    case 'sampling':
      return isRecord(sampling)
    case 'roots':
      return isRecord(roots)
  }
}

const REQUIRED: Readonly<Record<QuestionKind, ClientCapabilities>> = {
  form: { elicitation: { form: {} } },
  url: { elicitation: { url: {} } },
  sampling: { sampling: {} },
  roots: { roots: {} },
}

/**
 * Returns what kind of question an input request asks: `form`, `url`, `sampling` or `roots`.
 *
 * @example
 * ```ts
 * if (kindOf(question) === 'url') console.log('A page has to be opened.')
 * ```
 */
export function kindOf(request: InputRequest): QuestionKind {
  if (request.method === 'sampling/createMessage') return 'sampling'
  if (request.method === 'roots/list') return 'roots'
  return request.params.mode === 'url' ? 'url' : 'form'
}

const CAPABILITY_OF: Readonly<Record<InputRequest['method'], keyof ClientCapabilities>> = {
  'elicitation/create': 'elicitation',
  'sampling/createMessage': 'sampling',
  'roots/list': 'roots',
}

/** The capabilities of a client that turned out not to implement these methods. */
export function withoutMethods(
  capabilities: ClientCapabilities,
  methods: readonly InputRequest['method'][] = Object.keys(CAPABILITY_OF) as InputRequest['method'][],
): ClientCapabilities {
  return {
    ...capabilities,
    ...Object.fromEntries(methods.map((method) => [CAPABILITY_OF[method], undefined])),
  }
}

/** The part of a client's capabilities that a session has to remember: what may be asked, and how. `experimental` lists more. */
export function rememberedCapabilities(
  given: ClientCapabilities,
  experimental: readonly string[] = [],
): ClientCapabilities {
  const parts: Readonly<Record<string, readonly string[]>> = {
    elicitation: ['form', 'url'],
    sampling: ['tools', 'context'],
    roots: [],
    experimental,
  }
  const kept: Record<string, unknown> = {}
  for (const [name, members] of Object.entries(parts)) {
    const declared = given[name]
    if (!isRecord(declared)) continue
    kept[name] = Object.fromEntries(
      members.filter((member) => isRecord(declared[member])).map((member) => [member, {}]),
    )
  }
  if (drawsForms(given)) kept.extensions = DRAWS_FORMS
  return kept
}

/** All of these capabilities together. */
export function joinCapabilities(list: readonly ClientCapabilities[]): ClientCapabilities {
  const joined: Record<string, object> = {}
  for (const [name, parts] of list.flatMap((one) => Object.entries(one))) {
    joined[name] = { ...joined[name], ...(parts as object) }
  }
  return joined
}

/** For people and models to read: `elicitation.form, sampling`. */
export function nameCapabilities(missing: ClientCapabilities): string {
  return Object.entries(missing)
    .flatMap(([name, parts]) => {
      const members = Object.keys(parts as object)
      return members.length === 0 ? [name] : members.map((member) => `${name}.${member}`)
    })
    .join(', ')
}

/** Returns the capability that the client lacks for this input request; undefined if it has it. */
export function missingCapability(
  capabilities: ClientCapabilities,
  request: InputRequest,
): ClientCapabilities | undefined {
  const kind = kindOf(request)
  if (!supports(capabilities, kind)) return REQUIRED[kind]
  const wantsTools = request.method === 'sampling/createMessage' && request.params.tools !== undefined
  return wantsTools && !isRecord(capabilities.sampling?.tools) ? { sampling: { tools: {} } } : undefined
}

const MAX_RELATED = 16

/** Ids of related tasks, from `_meta`. They are advice, so what is malformed is ignored. */
export function readRelated(value: unknown): readonly string[] {
  const list: readonly unknown[] = Array.isArray(value) ? value.slice(0, MAX_RELATED) : []
  return [...new Set(list.filter((id) => typeof id === 'string'))]
}

export function readClientInfo(value: unknown): Envelope['clientInfo'] {
  if (!isRecord(value) || typeof value.name !== 'string' || typeof value.version !== 'string') {
    throw new RondoError('PEER_META', `"${CLIENT_INFO}" must have a name and a version`)
  }
  return value as unknown as Envelope['clientInfo']
}

export function readProgressToken(value: unknown): string | number {
  if (isRequestId(value)) return value
  throw new RondoError('PEER_META', '"progressToken" must be a string or an integer')
}

export function readLogLevel(value: unknown): LogLevel {
  const level = LOG_LEVELS.find((known) => known === value)
  if (level === undefined) {
    throw new RondoError('PEER_META', `"${LOG_LEVEL}" must be one of ${LOG_LEVELS.join(', ')}`)
  }
  return level
}

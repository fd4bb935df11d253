/// <reference lib="esnext.disposable" preserve="true" />

/** The client that callers hold, over a peer whose dialect is known. */

import { RondoError } from '../errors.ts'
import { cleanText } from '../form/clean-text.ts'
import {
  callable,
  defineOptions,
  flag,
  number,
  type Option,
  type OptionsOf,
  text,
  unchecked,
} from '../options.ts'
import type { ListenFilter } from '../protocol/call.ts'
import type { QuestionKind } from '../protocol/common/request.ts'
import type { TaskState } from '../protocol/reply.ts'
import type {
  CallToolResult,
  Completion,
  Discovery,
  GetPromptResult,
  InputResponses,
  Prompt,
  ReadResourceResult,
  Resource,
  ResourceTemplate,
  Tool,
} from '../protocol/wire.ts'
import type { RoundResult, RoundTask } from './flow.ts'
import { advance, runFlow, sendRound } from './flow.ts'
import type { DriveResult, FlowOptions, TaskMode } from './flow-options.ts'
import {
  answer,
  assertAlive,
  begin,
  type FlowRequest,
  type FlowResult,
  type PendingCall,
  type PendingServer,
  type ResourceRequest,
} from './pending.ts'
import type { RoundPolicy } from './policy.ts'
import type { Flows, Peer } from './port.ts'
import { type Answers, answerableKinds, capabilitiesFor } from './question.ts'
import type { CompleteRequest, ReadOptions } from './reader.ts'
import { type Cache, createReader, createToolBook } from './reader.ts'
import { vetRound } from './round.ts'
import { type ServerChange, type SubscribeOptions, type Subscription, subscribe } from './subscribe.ts'
import {
  declaredFor,
  listTasks,
  type TaskHandle,
  type TaskRequestOptions,
  taskHandle,
} from './task/strategy.ts'
import { createTaskStreams } from './task/stream.ts'

export interface DriveOptions extends FlowOptions {
  /** The kinds of questions that the server may ask in this call. Default: forms, URLs and whatever has a handler. */
  readonly accepts?: readonly QuestionKind[]
  /** Whether forms of this call may name an app that draws them. Default: `answers.apps`. */
  readonly apps?: boolean
  /** Returns after every round, including those without questions. Default: `false`. */
  readonly everyRound?: boolean
}

export interface RoundOptions
  extends Pick<FlowOptions, 'signal' | 'onProgress' | 'onLog' | 'logLevel' | 'trace' | 'meta'> {
  /** The time for the request; progress restarts it. Default: the client's. */
  readonly timeoutMs?: number
  /** Counts the time people take to answer towards the deadline. Default: the client's. */
  readonly countHumanTime?: boolean
  /** Sent unchanged, under the keys of the last round's `inputRequests`. Default: none. */
  readonly inputResponses?: InputResponses
  /** The `requestState` of the last round, byte for byte. Omit it if there was none. Default: none. */
  readonly requestState?: string
  /** The kinds of questions that the server may ask in this round. Default: forms, URLs and whatever has a handler. */
  readonly accepts?: readonly QuestionKind[]
  /** Whether forms of this round may name an app that draws them. Default: `answers.apps`. */
  readonly apps?: boolean
  /** Lets the server make the call of a tool a task, if its revision lets it decide so. Default: `false`. */
  readonly tasks?: boolean
}

export interface Client extends AsyncDisposable {
  /** The server's target, name, version, title, capabilities and instructions. */
  readonly server: PendingServer &
    Pick<Discovery, 'capabilities' | 'instructions'> & { readonly title?: string }
  /** The protocol revision that was negotiated. */
  readonly protocolVersion: string

  /** Calls a tool, answers its questions with the handlers, and returns the final result (C6). */
  callTool(
    name: string,
    args?: Readonly<Record<string, unknown>>,
    options?: FlowOptions,
  ): Promise<CallToolResult>
  /** Gets a prompt; its questions are answered by the handlers. */
  getPrompt(
    name: string,
    args?: Readonly<Record<string, string>>,
    options?: FlowOptions,
  ): Promise<GetPromptResult>
  /** Reads a resource; its questions are answered by the handlers. `fresh: true` skips the cache. */
  readResource(uri: string, options?: FlowOptions & { readonly fresh?: boolean }): Promise<ReadResourceResult>

  /** Sends a request and returns where the server asks or makes the call a task (C10). Calls no handler. */
  start<R extends FlowRequest>(request: R, options?: DriveOptions): Promise<DriveResult<R>>
  /**
   * Continues a call from this process or another (C11), with `answers` added to those it has. A task is awaited until it
   * asks or has ended; to stop waiting does not cancel it.
   */
  resume<R extends FlowRequest>(
    pending: PendingCall<R>,
    answers?: InputResponses,
    options?: DriveOptions,
  ): Promise<DriveResult<R>>

  /** Continues a call to its end; handlers answer the open questions. */
  finish<R extends FlowRequest>(pending: PendingCall<R>, options?: FlowOptions): Promise<FlowResult<R>>

  /**
   * Sends one round of a call and returns what came back; the caller keeps the state and runs the loop (C10). Handlers,
   * policies and round limits do not apply, and the call never becomes a task unless `tasks` allows it.
   */
  round<R extends FlowRequest>(
    request: R,
    options: RoundOptions & { readonly tasks: true },
  ): Promise<RoundResult<R> | RoundTask>
  round<R extends FlowRequest>(request: R, options?: RoundOptions): Promise<RoundResult<R>>

  /** Returns a handle to get, answer or cancel a task. */
  task(taskId: string): TaskHandle

  /**
   * Returns the caller's tasks, newest first and without their content, where the server lists them: 2025-11-25 and
   * the draft.
   */
  listTasks(options?: TaskRequestOptions): Promise<readonly TaskState[]>

  /** Returns all tools, over all pages. */
  listTools(options?: ReadOptions): Promise<readonly Tool[]>
  /** Returns all prompts, over all pages. */
  listPrompts(options?: ReadOptions): Promise<readonly Prompt[]>
  /** Returns all resources with a fixed URI, over all pages. */
  listResources(options?: ReadOptions): Promise<readonly Resource[]>
  /** Returns all resource templates, over all pages. */
  listResourceTemplates(options?: ReadOptions): Promise<readonly ResourceTemplate[]>
  /** Returns suggestions for an argument of a prompt or a resource template. */
  complete(request: CompleteRequest, options?: ReadOptions): Promise<Completion>
  /** Returns the server's `server/discover` result, or what an older server sent in `initialize`. */
  discover(options?: ReadOptions): Promise<Discovery>
  /** Returns an async iterable of changes on the server, until it is closed. */
  subscribe(filter: ListenFilter, options?: SubscribeOptions): Subscription

  /** Aborts open requests and releases sockets and processes. */
  close(): Promise<void>
}

interface ClientParts {
  readonly peer: Peer
  readonly discovery: Discovery
  readonly answers: Answers
  readonly policies: readonly RoundPolicy[]
  readonly cache: Cache
  readonly createId: () => string
  readonly tasks: TaskMode
  readonly random: () => number
}

export function createClient(parts: ClientParts): Client {
  const { peer, answers, cache } = parts
  const server = describeServer(peer, parts.discovery)
  const kinds = answerableKinds(answers)
  const tools = createToolBook(peer.onWarning)
  const reader = createReader(peer, cache, tools, { capabilities: capabilitiesFor(kinds, answers.apps) })
  const flows: Flows = {
    peer,
    answers,
    policies: parts.policies,
    tools,
    tasks: parts.tasks,
    streams: createTaskStreams(peer),
    random: parts.random,
    refreshTools: ({ signal }) => reader.list('tools', { signal, fresh: true }),
  }
  const beginning = <R extends FlowRequest>(request: R) => {
    const { target, name, version } = server
    const protocolVersion = peer.dialect.version
    return begin(request, {
      id: parts.createId(),
      server: { target, ...(name !== undefined && { name, version }) },
      protocolVersion,
      now: peer.clock.now(),
    })
  }
  const { apps } = answers
  const asked = capabilitiesFor(driving(kinds, { apps }).kinds, apps)
  const run = async <R extends FlowRequest>(request: R, options: FlowOptions = {}) =>
    runFlow(flows, beginning(request), { ...options, kinds, apps })
  const suspending = (of: string, options: DriveOptions) => {
    DRIVE_OPTIONS.assert(options, of)
    return driving(kinds, { apps, ...options })
  }
  return {
    server,
    get protocolVersion() {
      return peer.dialect.version
    },
    async callTool(name, args, options) {
      CALL_OPTIONS.assert(options, 'callTool')
      return (await run({ method: 'tools/call', name, arguments: args ?? {} }, options)).result
    },
    async getPrompt(name, args, options) {
      CALL_OPTIONS.assert(options, 'getPrompt')
      return (await run({ method: 'prompts/get', name, arguments: args ?? {} }, options)).result
    },
    async readResource(uri, options = {}) {
      READ_OPTIONS.assert(options, 'readResource')
      return reader.cached(`read ${uri}`, options.fresh, async () => {
        const { result, rounds } = await run({ method: 'resources/read', uri } as ResourceRequest, options)
        // A result that depends on answers is not cached.
        return [result, rounds === 0 ? result : {}]
      })
    },
    start: async (request, options = {}) => advance(flows, beginning(request), suspending('start', options)),
    resume: async (pending, given, options = {}) =>
      advance(flows, continueHere(peer, server.name, pending, given), suspending('resume', options)),
    finish: async (pending, options = {}) => {
      CALL_OPTIONS.assert(options, 'finish')
      const stored = continueHere(peer, server.name, pending)
      // The questions may have been changed in storage.
      const questions = vetRound(stored, peer.limits, kinds, apps)
      return (await runFlow(flows, { ...stored, questions }, { ...options, kinds, apps })).result
    },
    round: (async (request: FlowRequest, given: RoundOptions = {}) => {
      ROUND_OPTIONS.assert(given, 'round')
      const { inputResponses, requestState, tasks: mayBeTask = false, ...options } = given
      const raw = { inputResponses, requestState }
      const sent = mayBeTask ? flows : { ...flows, tasks: 'off' as const }
      return sendRound(sent, beginning(request), raw, driving(kinds, { apps, ...options }))
    }) as Client['round'],
    task: (taskId) => taskHandle(peer, taskId, asked),
    listTasks: (options = {}) => listTasks(peer, options),
    async listTools(options) {
      LIST_OPTIONS.assert(options, 'listTools')
      return (await reader.list('tools', options)) as readonly Tool[]
    },
    async listPrompts(options) {
      LIST_OPTIONS.assert(options, 'listPrompts')
      return (await reader.list('prompts', options)) as unknown as readonly Prompt[]
    },
    async listResources(options) {
      LIST_OPTIONS.assert(options, 'listResources')
      return (await reader.list('resources', options)) as unknown as readonly Resource[]
    },
    async listResourceTemplates(options) {
      LIST_OPTIONS.assert(options, 'listResourceTemplates')
      return (await reader.list('templates', options)) as unknown as readonly ResourceTemplate[]
    },
    async complete(request, options) {
      LIST_OPTIONS.assert(options, 'complete')
      return reader.complete(request, options)
    },
    async discover(options) {
      LIST_OPTIONS.assert(options, 'discover')
      return reader.discover(options)
    },
    subscribe: (filter, options = {}) =>
      subscribe(peer, filter, { ...options, capabilities: declaredFor(options.accepts, asked) }, (change) =>
        forget(cache, change),
      ),
    close: peer.close,
    [Symbol.asyncDispose]: peer.close,
  }
}

const CALL = {
  maxRounds: number(),
  timeoutMs: number(),
  deadlineMs: number(),
  countHumanTime: flag(),
  signal: unchecked(),
  onProgress: callable(),
  onLog: callable(),
  logLevel: unchecked(),
  onRound: unchecked(),
  onPending: callable(),
  onTask: callable(),
  taskTtlMs: number(),
  trace: unchecked(),
  meta: unchecked(),
} satisfies OptionsOf<FlowOptions>
const { signal, timeoutMs, countHumanTime, onProgress, onLog, logLevel, trace, meta } = CALL
const fresh = flag(false)
const accepts: Option<DriveOptions['accepts']> = unchecked()
const apps: Option<DriveOptions['apps']> = flag()

const CALL_OPTIONS = defineOptions('callTool', CALL)
const READ_OPTIONS = defineOptions('readResource', { ...CALL, fresh })
const LIST_OPTIONS = defineOptions('listTools', { signal, timeoutMs, fresh } satisfies OptionsOf<ReadOptions>)
const DRIVE_OPTIONS = defineOptions('start', {
  ...CALL,
  accepts,
  apps,
  everyRound: flag(false),
} satisfies OptionsOf<DriveOptions>)
const ROUND_OPTIONS = defineOptions('round', {
  signal,
  timeoutMs,
  countHumanTime,
  onProgress,
  onLog,
  logLevel,
  trace,
  meta,
  inputResponses: unchecked(),
  requestState: text(),
  accepts,
  apps,
  tasks: flag(false),
} satisfies OptionsOf<RoundOptions>)

const MAX_NAME = 1_000

function describeServer(peer: Peer, { serverInfo, capabilities, instructions }: Discovery): Client['server'] {
  return {
    target: peer.transport.target,
    ...(serverInfo && {
      name: cleanText(serverInfo.name, MAX_NAME),
      version: cleanText(serverInfo.version, MAX_NAME),
    }),
    ...(serverInfo?.title !== undefined && { title: cleanText(serverInfo.title, MAX_NAME) }),
    capabilities,
    ...(instructions !== undefined && { instructions }),
  }
}

function driving(kinds: ReadonlySet<QuestionKind>, options: DriveOptions) {
  const accepts = options.accepts ?? (['form', 'url', ...kinds] as const)
  return { ...options, kinds: new Set<QuestionKind>(accepts), suspends: true }
}

/** The stored call with the new answers. Throws if it cannot continue at this server. */
function continueHere<R extends FlowRequest>(
  peer: Peer,
  name: string | undefined,
  pending: PendingCall<R>,
  given: InputResponses = {},
): PendingCall<R> {
  assertAlive(pending)
  if (pending.server.name !== name) {
    throw new RondoError(
      'INPUT_PENDING',
      `The call belongs to ${pending.server.name ?? 'a server without a name'}, but this server is ${name ?? 'one without a name'}`,
    )
  }
  if (pending.protocolVersion !== peer.dialect.version) {
    throw new RondoError(
      'INPUT_PENDING',
      `The call was made in ${pending.protocolVersion}, but this connection uses ${peer.dialect.version}`,
    )
  }
  return Object.entries(given).reduce((now, [key, response]) => answer(now, key, response), pending)
}

function forget(cache: Cache, change: ServerChange): void {
  if (change.kind === 'task') return
  if (change.kind === 'gap') cache.forget('')
  else if (change.kind === 'resource') cache.forget(`read ${change.uri} `)
  else {
    cache.forget(`list ${change.kind}`)
    if (change.kind === 'resources') cache.forget('list templates')
  }
}

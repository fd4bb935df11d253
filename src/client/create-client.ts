/** Puts a client together over a peer whose dialect is known. */

import { RondoError } from '../errors.ts'
import { displayText } from '../form/clean-text.ts'
import type { Discovery, Prompt, Resource, ResourceTemplate, Tool } from '../protocol/result.ts'
import type { InputResponses } from '../protocol/wire.ts'
import { type Answers, answerableKinds } from './answers.ts'
import type { Cache } from './cache.ts'
import type { Client, DriveOptions } from './client.ts'
import type { FlowOptions, Flows, TaskMode } from './flow-options.ts'
import type { FlowRequest, ResourceRequest } from './flow-request.ts'
import { begin } from './operation.ts'
import type { Peer } from './peer.ts'
import { answer, assertAlive, type PendingCall } from './pending.ts'
import { capabilitiesFor, type QuestionKind } from './question.ts'
import { createReader } from './reader.ts'
import type { RoundPolicy } from './round-policy.ts'
import { advance, runFlow, sendRound } from './run-flow.ts'
import { type Change, subscribe } from './subscribe.ts'
import { taskHandle } from './task-request.ts'
import { createToolBook } from './tool-book.ts'
import { vetRound } from './vet-round.ts'

export interface ClientParts {
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
  const reader = createReader(peer, cache, tools, { capabilities: capabilitiesFor(kinds) })
  const flows: Flows = {
    peer,
    answers,
    policies: parts.policies,
    tools,
    tasks: parts.tasks,
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
  const run = async <R extends FlowRequest>(request: R, options: FlowOptions = {}) =>
    runFlow(flows, beginning(request), { ...options, kinds })
  return {
    server,
    get protocolVersion() {
      return peer.dialect.version
    },
    callTool: async (name, args, options) =>
      (await run({ method: 'tools/call', name, arguments: args ?? {} }, options)).result,
    getPrompt: async (name, args, options) =>
      (await run({ method: 'prompts/get', name, arguments: args ?? {} }, options)).result,
    readResource: (uri, options = {}) =>
      reader.cached(`read ${uri}`, options.fresh, async () => {
        const { result, rounds } = await run({ method: 'resources/read', uri } as ResourceRequest, options)
        // What took questions to find out was an answer to them, and is not kept.
        return [result, rounds === 0 ? result : {}]
      }),
    start: (request, options = {}) => advance(flows, beginning(request), driving(kinds, options)),
    resume: async (pending, given, options = {}) =>
      advance(flows, takeUp(peer, server.name, pending, given), driving(kinds, options)),
    finish: async (pending, options = {}) => {
      const taken = takeUp(peer, server.name, pending)
      // Where it lay, somebody may have changed the questions.
      const questions = vetRound(taken, peer.limits, kinds)
      return (await runFlow(flows, { ...taken, questions }, { ...options, kinds })).result
    },
    round: async (request, { inputResponses, requestState, ...options } = {}) => {
      const raw = { inputResponses, requestState }
      return sendRound({ ...flows, tasks: 'off' }, beginning(request), raw, driving(kinds, options))
    },
    task: (taskId) => taskHandle(peer, taskId),
    listTools: async (options) => (await reader.list('tools', options)) as readonly Tool[],
    listPrompts: async (options) => (await reader.list('prompts', options)) as unknown as readonly Prompt[],
    listResources: async (options) =>
      (await reader.list('resources', options)) as unknown as readonly Resource[],
    listResourceTemplates: async (options) =>
      (await reader.list('templates', options)) as unknown as readonly ResourceTemplate[],
    complete: reader.complete,
    discover: reader.discover,
    subscribe: (filter, options = {}) => subscribe(peer, filter, options, (change) => forget(cache, change)),
    close: peer.close,
    [Symbol.asyncDispose]: peer.close,
  }
}

function describeServer(peer: Peer, { serverInfo, capabilities, instructions }: Discovery): Client['server'] {
  return {
    target: peer.transport.target,
    ...(serverInfo && { name: displayText(serverInfo.name), version: displayText(serverInfo.version) }),
    ...(serverInfo?.title !== undefined && { title: displayText(serverInfo.title) }),
    capabilities,
    ...(instructions !== undefined && { instructions }),
  }
}

function driving(kinds: ReadonlySet<QuestionKind>, options: DriveOptions) {
  const accepts = options.accepts ?? (['form', 'url', ...kinds] as const)
  return { ...options, kinds: new Set<QuestionKind>(accepts), suspends: true }
}

/** A stored call with the new answers, if it can go on at this server. */
function takeUp<R extends FlowRequest>(
  peer: Peer,
  name: string | undefined,
  pending: PendingCall<R>,
  given: InputResponses = {},
): PendingCall<R> {
  assertAlive(pending)
  if (pending.server.name !== name) {
    throw new RondoError(
      'INPUT_PENDING',
      `The call belongs to ${pending.server.name ?? 'a nameless server'}, this is ${name}`,
    )
  }
  if (pending.protocolVersion !== peer.dialect.version) {
    throw new RondoError(
      'INPUT_PENDING',
      `The call was made in ${pending.protocolVersion}, which is not spoken here`,
    )
  }
  return Object.entries(given).reduce((now, [key, response]) => answer(now, key, response), pending)
}

function forget(cache: Cache, change: Change): void {
  if (change.kind === 'task') return
  if (change.kind === 'gap') cache.forget('')
  else if (change.kind === 'resource') cache.forget(`read ${change.uri} `)
  else {
    cache.forget(`list ${change.kind}`)
    if (change.kind === 'resources') cache.forget('list templates')
  }
}

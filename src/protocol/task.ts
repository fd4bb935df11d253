/**
 * A task as clients see it, whatever the dialect.
 */

import type { ClientCapabilities, InputRequest, InputRequests } from './wire.ts'

/** The published extension that carries tasks at 2026-07-28. */
export const TASKS_EXTENSION = 'io.modelcontextprotocol/tasks'

export interface TaskState {
  readonly taskId: string
  readonly status: 'working' | 'input_required' | 'completed' | 'failed' | 'cancelled'
  readonly statusMessage?: string
  /** ms since the epoch. */
  readonly createdAt: number
  readonly lastUpdatedAt: number
  /** From creation on; null where it is kept without limit. */
  readonly ttlMs: number | null
  readonly pollIntervalMs?: number
  readonly inputRequests?: InputRequests
  /** In the draft, where the server gave one with the questions: goes back with the answers. */
  readonly requestState?: string
  /** Of a completed task: what the call would have answered. */
  readonly result?: Readonly<Record<string, unknown>>
  /** Of a failed task. */
  readonly error?: { readonly code: number; readonly message: string; readonly data?: unknown }
}

/** True if the client said, with this request, that it can follow a task. */
export function followsTasks({ extensions }: ClientCapabilities): boolean {
  return (
    typeof extensions === 'object' &&
    extensions !== null &&
    Object.hasOwn(extensions, TASKS_EXTENSION) &&
    typeof extensions[TASKS_EXTENSION] === 'object'
  )
}

/*
 * What a client declared that it can be asked. Read from the request at hand, never from an earlier one.
 */

export type AskKind = 'form' | 'url' | 'sampling' | 'roots'

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** True if the client can be asked this. A bare `elicitation: {}` means forms only. */
export function supports(capabilities: ClientCapabilities, kind: AskKind): boolean {
  const { elicitation, sampling, roots } = capabilities
  switch (kind) {
    case 'form':
      return isObject(elicitation) && (isObject(elicitation.form) || !isObject(elicitation.url))
    case 'url':
      return isObject(elicitation) && isObject(elicitation.url)
    case 'sampling':
      return isObject(sampling)
    case 'roots':
      return isObject(roots)
  }
}

const REQUIRED: Readonly<Record<AskKind, ClientCapabilities>> = {
  form: { elicitation: { form: {} } },
  url: { elicitation: { url: {} } },
  sampling: { sampling: {} },
  roots: { roots: {} },
}

/** The kind of a question on the wire. */
function kindOf(request: InputRequest): AskKind {
  if (request.method === 'sampling/createMessage') return 'sampling'
  if (request.method === 'roots/list') return 'roots'
  return request.params.mode === 'url' ? 'url' : 'form'
}

const CAPABILITY_OF: Readonly<Record<InputRequest['method'], keyof ClientCapabilities>> = {
  'elicitation/create': 'elicitation',
  'sampling/createMessage': 'sampling',
  'roots/list': 'roots',
}

/** What is left of the capabilities of a client that does not know these methods after all. */
export function withoutMethods(
  capabilities: ClientCapabilities,
  methods: readonly InputRequest['method'][] = Object.keys(CAPABILITY_OF) as InputRequest['method'][],
): ClientCapabilities {
  return {
    ...capabilities,
    ...Object.fromEntries(methods.map((method) => [CAPABILITY_OF[method], undefined])),
  }
}

/** The part of a client's capabilities that a session has to remember: what may be asked, and how. `experimental` names what else. */
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
    if (!isObject(declared)) continue
    kept[name] = Object.fromEntries(
      members.filter((member) => isObject(declared[member])).map((member) => [member, {}]),
    )
  }
  return kept
}

/** `elicitation.form`, as people and models may read it. */
export function nameCapabilities(missing: ClientCapabilities): string {
  return Object.entries(missing)
    .map(([name, parts]) => [name, ...Object.keys(parts as object)].join('.'))
    .join(', ')
}

/** What the client would have to declare for this question, or undefined if it has. */
export function missingCapability(
  capabilities: ClientCapabilities,
  request: InputRequest,
): ClientCapabilities | undefined {
  const kind = kindOf(request)
  if (!supports(capabilities, kind)) return REQUIRED[kind]
  const wantsTools = request.method === 'sampling/createMessage' && request.params.tools !== undefined
  return wantsTools && !isObject(capabilities.sampling?.tools) ? { sampling: { tools: {} } } : undefined
}

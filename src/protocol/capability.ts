/**
 * What a client declared that it can be asked. Read from the request at hand, never from an earlier one.
 */

import type { ClientCapabilities, InputRequest } from './wire.ts'

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

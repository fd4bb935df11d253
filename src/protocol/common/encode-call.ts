/**
 * The method and the parameters of a call, which have the same names in every revision. The rest of a request (`_meta`,
 * headers) is up to the revision.
 */

import type { Call, FlowCall, Listing } from '../call.ts'

export interface EncodedRequest {
  /** One JSON-RPC message. */
  readonly body: string
  readonly headers: Readonly<Record<string, string>>
}

const LIST_METHODS: Readonly<Record<Listing, string>> = {
  tools: 'tools/list',
  prompts: 'prompts/list',
  resources: 'resources/list',
  templates: 'resources/templates/list',
}

export function methodOf(call: Call): string {
  switch (call.kind) {
    case 'flow':
      return call.method
    case 'list':
      return LIST_METHODS[call.listing]
    case 'discover':
      return 'server/discover'
    case 'complete':
      return 'completion/complete'
    case 'listen':
      return 'subscriptions/listen'
    case 'task':
      return `tasks/${call.action}`
  }
}

/** The parameters of a call besides `_meta`. */
export function paramsOf(call: Call): Record<string, unknown> {
  switch (call.kind) {
    case 'flow':
      return flowParams(call)
    case 'list':
      return call.cursor === undefined ? {} : { cursor: call.cursor }
    case 'discover':
      return {}
    case 'complete':
      return {
        ref:
          call.ref.kind === 'prompt'
            ? { type: 'ref/prompt', name: call.ref.name }
            : { type: 'ref/resource', uri: call.ref.uri },
        argument: call.argument,
        ...(Object.keys(call.context).length > 0 && { context: { arguments: call.context } }),
      }
    case 'listen':
      return { notifications: call.filter }
    case 'task':
      return {
        taskId: call.taskId,
        ...(call.action === 'update' && { inputResponses: call.inputResponses ?? {} }),
      }
  }
}

function flowParams(call: FlowCall): Record<string, unknown> {
  return {
    ...(call.method === 'resources/read'
      ? { uri: call.target }
      : { name: call.target, arguments: call.args }),
    ...(call.inputResponses && { inputResponses: call.inputResponses }),
    ...(call.requestState !== undefined && { requestState: call.requestState }),
  }
}

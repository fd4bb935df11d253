/**
 * A small real service for the tests of the entrances: it replies to every kind of call from the call itself.
 *
 * Tools: `echo` returns its arguments; `region` has an argument mirrored in a header; `slow` notifies and waits until the
 * test releases it; `ask` asks until it has an answer; `canary` returns what the service knows of the caller.
 */

import { RondoError } from '../../packages/rondo/src/errors.ts'
import type { Call, FlowCall, Line, ListenCall, Principal } from '../../packages/rondo/src/protocol/call.ts'
import type { Reply } from '../../packages/rondo/src/protocol/reply.ts'
import { createCodecs } from '../../packages/rondo/src/protocol/revisions.ts'
import { createChangeBus } from '../../packages/rondo/src/serve/http/subscription.ts'
import type { Service } from '../../packages/rondo/src/serve/port.ts'

export const VERSION = '2026-07-28'

export interface EchoService extends Service {
  /** Tests replace them to inject faults. */
  handle: Service['handle']
  paramHeaders: Service['paramHeaders']
  /** Every call that was served, with its caller. */
  readonly seen: { readonly call: Call; readonly principal: Principal | undefined }[]
  /** Releases the oldest `slow` call. */
  release(): void
  /** Resolves when a `slow` call is waiting. */
  waiting(): Promise<Line>
}

export function createEchoService(): EchoService {
  const state = { draining: false }
  const gates: (() => void)[] = []
  const arrivals: Line[] = []
  const watchers: ((line: Line) => void)[] = []

  async function slow(call: FlowCall, line: Line): Promise<Reply> {
    line.notify('notifications/progress', { progressToken: call.progressToken ?? 'none', progress: 1 })
    const gate = new Promise<void>((resolve) => gates.push(resolve))
    const watcher = watchers.shift()
    if (watcher) watcher(line)
    else arrivals.push(line)
    await gate
    line.notify('notifications/progress', { progressToken: call.progressToken ?? 'none', progress: 2 })
    return text('done')
  }

  const service: EchoService = {
    serverInfo: { name: 'echo', version: '1.2.3' },
    codecs: createCodecs(),
    supportedVersions: [VERSION],
    changes: createChangeBus(),
    changeKinds: ['tools', 'prompts', 'resource'],
    seen: [],
    handle({ call, principal, line }) {
      service.seen.push({ call, principal })
      if (call.kind === 'flow' && call.target === 'slow') return slow(call, line)
      return reply(call, principal)
    },
    paramHeaders: (tool) =>
      tool === 'region'
        ? [
            { header: 'Region', path: ['region'] },
            { header: 'Count', path: ['deep', 'count'] },
          ]
        : [],
    scoped: false,
    needOf: async () => ({ scopes: [] }),
    state,
    drain() {
      state.draining = true
    },
    release: () => gates.shift()?.(),
    waiting: () => {
      const line = arrivals.shift()
      return line ? Promise.resolve(line) : new Promise((resolve) => watchers.push(resolve))
    },
  }
  return service
}

function reply(call: Exclude<Call, ListenCall>, principal: Principal | undefined): Reply | Promise<Reply> {
  if (call.kind !== 'flow') return { kind: 'cacheable', result: { kind: call.kind, ttlMs: 0 } }
  switch (call.target) {
    case 'echo':
    case 'region':
      return { kind: 'complete', result: { content: [{ type: 'text', text: JSON.stringify(call.args) }] } }
    case 'ask':
      return call.inputResponses?.name === undefined
        ? { kind: 'input_required', inputRequests: {}, requestState: 'state' }
        : text('answered')
    case 'canary':
      return Promise.resolve(text(JSON.stringify(principal ?? null)))
    case 'throws':
      throw new Error('a secret reason')
    case 'rejects':
      return Promise.reject(new Error('a secret reason'))
    case 'bigint':
      return { kind: 'complete', result: { content: 1n } }
    default:
      return { kind: 'error', error: new RondoError('PEER_PARAMS', `Unknown tool: ${call.target}`) }
  }
}

function text(value: string): Reply {
  return { kind: 'complete', result: { content: [{ type: 'text', text: value }] } }
}

let nextId = 1

/** A request as a client sends it, and the headers that belong to it. */
export function request(
  method: string,
  params: Record<string, unknown> = {},
  id: string | number = nextId++,
): { readonly message: Record<string, unknown>; readonly headers: Record<string, string> } {
  const name = params.name ?? params.uri
  return {
    message: {
      jsonrpc: '2.0',
      id,
      method,
      params: {
        ...params,
        _meta: {
          'io.modelcontextprotocol/protocolVersion': VERSION,
          'io.modelcontextprotocol/clientCapabilities': {},
          ...(params._meta as object | undefined),
        },
      },
    },
    headers: {
      'content-type': 'application/json',
      accept: 'application/json, text/event-stream',
      'mcp-protocol-version': VERSION,
      'mcp-method': method,
      ...(typeof name === 'string' && { 'mcp-name': name }),
    },
  }
}

export function callTool(
  name: string,
  args: Record<string, unknown> = {},
  more: Record<string, unknown> = {},
) {
  return request('tools/call', { name, arguments: args, ...more })
}

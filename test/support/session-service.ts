/** The entrances of older clients, in front of a service that a test writes. */

import type { FlowHost } from '../../packages/rondo/src/carry/host.ts'
import type { AskingLine } from '../../packages/rondo/src/carry/push.ts'
import { DRAFT_2026_V1 } from '../../packages/rondo/src/drafts/draft-2026-v1/codec.ts'
import { createInFlight } from '../../packages/rondo/src/lib/collection.ts'
import type { OlderCall, Principal } from '../../packages/rondo/src/protocol/call.ts'
import type { OlderReply } from '../../packages/rondo/src/protocol/reply.ts'
import { CODECS, createCodecs } from '../../packages/rondo/src/protocol/revisions.ts'
import type {
  Access,
  HttpHeaders,
  HttpResponse,
  Load,
  Outlet,
  WatchedCall,
} from '../../packages/rondo/src/serve/port.ts'
import { createEntrance } from '../../packages/rondo/src/session/entrance.ts'
import type { SessionLine } from '../../packages/rondo/src/session/line.ts'
import type { Older, PostOptions } from '../../packages/rondo/src/session/older.ts'
import type { SessionOptions } from '../../packages/rondo/src/session/options.ts'
import { createSharedSessions } from '../../packages/rondo/src/session/shared.ts'
import { startInstances } from './session-instances.ts'

/** One request of the service. */
export interface Served {
  readonly call: OlderCall
  readonly principal: Principal | undefined
  readonly line: AskingLine & SessionLine
  readonly unaskable: string | undefined
}

export interface ServiceSetup {
  readonly options?: SessionOptions
  /** Several instances share a store. */
  readonly hasStore?: boolean
  readonly more?: Partial<PostOptions>
  readonly host?: Partial<FlowHost>
  readonly older?: Partial<Older>
  answer?(served: Served): OlderReply | Promise<OlderReply>
}

export const VERSION = '2025-11-25'
export const ADA: Principal = { subject: 'ada' } as Principal
const DONE: OlderReply = { kind: 'complete', result: { content: [] } } as OlderReply

/** The other end of a request. */
export function connect() {
  const seen = {
    text: '',
    headers: undefined as HttpHeaders | undefined,
    sent: undefined as HttpResponse | undefined,
    failed: undefined as HttpResponse | undefined,
    ends: 0,
  }
  const listeners = new Set<() => void>()
  let over = (): void => {}
  const done = new Promise<void>((resolve) => {
    over = resolve
  })
  let isGone = false
  const outlet: Outlet = {
    get gone() {
      return isGone
    },
    ended: false,
    address: '192.0.2.1',
    backlog: 0,
    send(response) {
      seen.sent = response
      over()
    },
    open(headers) {
      seen.headers = headers
    },
    write(text) {
      seen.text += text
    },
    end() {
      seen.ends += 1
      over()
    },
    fail(response) {
      seen.failed = response
      over()
    },
    drop() {},
    onGone(listener) {
      if (isGone) listener()
      listeners.add(listener)
      return () => listeners.delete(listener)
    },
  }
  const leave = (): void => {
    isGone = true
    for (const listener of [...listeners]) listener()
  }
  /** The messages of its body or stream. */
  const messages = (): Record<string, unknown>[] => {
    const body = (seen.sent ?? seen.failed)?.body ?? ''
    if (body !== '') return [JSON.parse(body)].flat()
    return [...seen.text.matchAll(/^data: (.+)$/gm)].map(([, data]) => JSON.parse(data ?? ''))
  }
  return { seen, outlet, done, leave, messages }
}

export type Exchange = ReturnType<typeof connect>

/** A token that allows whatever scopes it names, and what was asked of it. Calls of tools need `needs`. */
export function allowing(scopes: readonly string[], needs: readonly string[] = []) {
  const asked: unknown[] = []
  const allows: Access['allows'] = (wanted) => wanted.every((scope) => scopes.includes(scope))
  const access: Access = {
    active: true,
    async admit(calls, principal, also = []) {
      asked.push({ calls: calls.map(({ kind }) => kind), principal, also })
      if (!allows(also, principal)) throw new Error('scope')
      return calls.map(({ kind }) => ({ scopes: kind === 'flow' ? needs : [] }))
    },
    allows,
  }
  return { access, asked }
}

export function startService({
  options = {},
  hasStore = false,
  more,
  host: facts,
  older: given,
  answer,
}: ServiceSetup = {}) {
  const { instances, clock } = startInstances(2, options, facts)
  const errors: unknown[] = []
  const refused: unknown[] = []
  const served: Served[] = []
  const faults: unknown[] = []
  const notified: unknown[] = []
  const state = { draining: false }
  const open = new Set<() => void>()
  const admitted: unknown[] = []
  const codecs = createCodecs([...CODECS, DRAFT_2026_V1])
  const [first, second] = instances.map((instance) => {
    const { host, table, fleet, every } = instance
    const shared = createSharedSessions(host, table, hasStore ? fleet : undefined, every)
    const older: Older = {
      codecs,
      versions: codecs.sessionVersions,
      sessions: table,
      shared,
      greet: (protocolVersion, greeting) => ({ protocolVersion, ...greeting }),
      async answer(call, principal, line, unaskable) {
        const one = { call, principal, line: line as Served['line'], unaskable }
        served.push(one)
        return (await answer?.(one)) ?? DONE
      },
      continue: async () => DONE,
      watchResource: () => () => {},
      notifyOfTask: (session, task) => void notified.push([session.id, task]),
      storeFailed: (error) => void faults.push(error),
      ...given,
    }
    let inFlightNow = (): Iterable<WatchedCall> => []
    const inFlight = createInFlight<WatchedCall>((calls) => {
      inFlightNow = calls
    })
    const watched = (): WatchedCall[] => [...inFlightNow()]
    const post: PostOptions = {
      service: { state, onRefused: (code, status) => void refused.push([code, status]) },
      older,
      sessions: true,
      inFlight,
      stream: { keepAliveMs: 15_000, maxBacklog: 1_000, every: () => () => {} },
      shareOf: (principal) => principal?.subject ?? 'anonymous',
      access: {
        active: false,
        async admit(calls, principal, also = []) {
          admitted.push({ calls, principal, also })
          return []
        },
        allows: () => true,
      },
      whenDraining: { 'Retry-After': '1' },
      onError: (error) => void errors.push(error),
      ...more,
    }
    const entrance = createEntrance(post)
    const request = (
      method: string,
      message: unknown,
      headers: Record<string, string> = {},
      principal: Principal | undefined = ADA,
      load?: Load,
    ): Exchange => {
      const end = connect()
      const accept = 'application/json, text/event-stream'
      const one = { method, headers: { accept, ...headers }, principal, outlet: end.outlet, load }
      open.add(end.leave)
      if (method === 'POST') entrance.post(message, one)
      else entrance.bare(one)
      return end
    }
    /** Sends a request and waits for its end. */
    const send: (...args: Parameters<typeof request>) => Promise<Exchange> = async (...args) => {
      const end = request(...args)
      await end.done
      return end
    }
    const begin = async (version = VERSION, capabilities: object = { elicitation: {} }) => {
      const clientInfo = { name: 'c', version: '1' }
      const params = { protocolVersion: version, capabilities, clientInfo }
      const { seen } = await send('POST', { jsonrpc: '2.0', id: 0, method: 'initialize', params })
      return { 'mcp-session-id': seen.sent?.headers['Mcp-Session-Id'] ?? '' }
    }
    return { ...instance, older, shared, inFlight, watched, post, request, send, begin }
  })
  if (!first || !second) throw new Error('There are two instances')
  return { first, second, clock, state, errors, refused, served, faults, notified, admitted }
}

export const call = (id: unknown, method = 'tools/call', params: object = { name: 'a', arguments: {} }) => ({
  jsonrpc: '2.0',
  id,
  method,
  params,
})

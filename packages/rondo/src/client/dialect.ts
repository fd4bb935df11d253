/**
 * The revisions the client speaks, best first. A dialect is one object with everything that differs: its codec, its tasks,
 * its questions. Besides `protocol/` and `drafts/`, only `session/` knows wire fields: handshake, streams, pushed questions.
 */

import { DRAFT } from '../drafts/draft-2026-v1/client.ts'
import { TURNS } from '../drafts/turns/client.ts'
import { experimentalOf } from '../drafts/turns/wire.ts'
import { isRecord } from '../lib/json.ts'
import type { Call, FlowCall, Listing, RequestId } from '../protocol/call.ts'
import type { ParamHeader } from '../protocol/common/headers.ts'
import { methodOf } from '../protocol/common/json-rpc.ts'
import {
  decodeCompletion,
  decodeDiscovery,
  decodeNotification,
  decodePage,
  subscriptionOf,
} from '../protocol/common/received.ts'
import type { Notice, Received } from '../protocol/reply.ts'
import {
  decodeResponse as decodeOlder,
  encodeRequest as encodeOlder,
} from '../protocol/rev-2025-11-25/client.ts'
import { hasTasks } from '../protocol/rev-2025-11-25/decode.ts'
import { VERSIONS } from '../protocol/rev-2025-11-25/encode.ts'
import { decodeResponse, encodeCancel, encodeRequest } from '../protocol/rev-2026-07-28/client.ts'
import type { ClientCapabilities, Completion, Discovery, Page } from '../protocol/wire.ts'
import { DECLARED_TASKS, NO_TASKS, PUSHED_TASKS, type TaskStrategy } from './task/strategy.ts'
import type { RequestBuffer } from './transport/transport.ts'

type Fields = Readonly<Record<string, unknown>>

export interface Dialect {
  readonly version: string
  readonly tasks: TaskStrategy
  /** Whether arguments that a tool marks are mirrored into headers. */
  readonly mirrorsArguments: boolean
  methodOf(call: Call): string
  encodeRequest(
    call: Call,
    mirrored?: readonly ParamHeader[],
  ): { body: string; headers: Readonly<Record<string, string>> }
  /** The id of a request that continues an earlier one under its id. */
  legId?(body: Pick<Call, 'kind'> & Partial<Pick<FlowCall, 'requestState'>>): RequestId | undefined
  /** `maxSize` is that of all requests in it together. */
  createBuffer?(maxSize: number): RequestBuffer
  encodeCancel(id: string | number): string
  decodeResponse(
    call: Call,
    message: unknown,
  ): Received | { readonly kind: 'invalid'; readonly problem: string }
  decodeNotification(message: unknown): Notice | undefined
  subscriptionOf(message: unknown): unknown
  decodePage(listing: Listing, result: Fields): Page | undefined
  decodeDiscovery(result: Fields): Discovery | undefined
  decodeCompletion(result: Fields): Completion | undefined
}

const REV_2026_07_28: Dialect = {
  version: '2026-07-28',
  tasks: DECLARED_TASKS,
  mirrorsArguments: true,
  methodOf,
  encodeRequest,
  encodeCancel,
  decodeResponse,
  decodeNotification,
  subscriptionOf,
  decodePage,
  decodeDiscovery,
  decodeCompletion,
}

export const DIALECTS: readonly [Dialect, ...Dialect[]] = [REV_2026_07_28]

/** The best dialect both sides speak. */
export function chooseDialect(versions: readonly unknown[]): Dialect | undefined {
  return DIALECTS.find(({ version }) => versions.includes(version))
}

/** A revision that a client can be told to speak. */
export type Revision =
  | '2026-07-28'
  | 'DRAFT-2026-v1'
  | '2025-11-25'
  | '2025-06-18'
  | '2025-03-26'
  | '2024-11-05'

const SESSION_BASE: Dialect = { ...REV_2026_07_28, mirrorsArguments: false }

/** The revisions that begin with a handshake, best first. */
export const SESSION_VERSIONS = [DRAFT.version, ...VERSIONS] as readonly [Revision, ...Revision[]]

/** True if the revision is a draft. */
export function isDraft(version: string): boolean {
  return version === DRAFT.version
}

/** Whether input requests come in results, with a state to echo, so that no request needs a session. */
export function hasRounds(version: string): boolean {
  return version === DRAFT.version || chooseDialect([version]) !== undefined
}

/** What a client declares in a handshake. `drafts`: that it echoes `state`; `turns`: that it takes questions in turns as well. */
export function sessionCapabilities(
  given: ClientCapabilities | undefined,
  { drafts, turns }: { readonly drafts: boolean; readonly turns: boolean },
): ClientCapabilities {
  return drafts ? { ...given, experimental: experimentalOf(turns) } : { ...given }
}

/**
 * The dialect of a revision that begins with a handshake. `DRAFT-2026-v1` has rounds, the others push their questions. With
 * `turns` the events of each stream show whether the server asks in turns: it has no way to declare so.
 */
export function sessionDialect(version: string, capabilities: Fields, turns: boolean): Dialect {
  if (version === DRAFT.version)
    return { ...SESSION_BASE, ...DRAFT, tasks: offersTasks(capabilities) ? DRAFT.tasks : NO_TASKS }
  const codec = turns ? TURNS : { encodeRequest: encodeOlder, decodeResponse: decodeOlder }
  const tasks = hasTasks(version) && offersTasks(capabilities) ? PUSHED_TASKS : NO_TASKS
  return { ...SESSION_BASE, version, tasks, ...codec }
}

/** Whether the server accepts tool calls as tasks. */
function offersTasks({ tasks }: Fields): boolean {
  const requests = isRecord(tasks) ? tasks.requests : undefined
  const tools = isRecord(requests) ? requests.tools : undefined
  return isRecord(tools) && isRecord(tools.call)
}

/**
 * The revisions that the client speaks, best first. Each combines the client's half of a codec with its way to handle
 * tasks. Besides `protocol/` and `drafts/`, only `session/` knows wire fields: handshake, streams, pushed questions.
 */

import { DRAFT_2026_V1, DRAFT_VERSION } from '../drafts/draft-2026-v1/codec.ts'
import { DRAFT_TASKS } from '../drafts/draft-2026-v1/tasks.ts'
import { TURNS } from '../drafts/turns/client.ts'
import { experimentalOf } from '../drafts/turns/wire.ts'
import { isRecord } from '../lib/json.ts'
import type { SessionCodec } from '../protocol/codec.ts'
import { CODECS, type PublishedVersion } from '../protocol/revisions.ts'
import type { ClientCapabilities } from '../protocol/wire.ts'
import type { Dialect } from './port.ts'
import { DECLARED_TASKS, NO_TASKS, PUSHED_TASKS } from './task/strategy.ts'

type Fields = Readonly<Record<string, unknown>>

/** A revision that a client can be told to speak. */
export type Revision = PublishedVersion | typeof DRAFT_VERSION

const REQUEST_DIALECTS: readonly Dialect[] = CODECS.filter(({ kind }) => kind === 'request').flatMap(
  ({ versions, client }) =>
    versions.map((version) => ({ ...client, version, tasks: DECLARED_TASKS, mirrorsArguments: true })),
)

/** The revisions in which every request stands alone, best first. */
export const DIALECTS = REQUEST_DIALECTS as readonly [Dialect, ...Dialect[]]

/** The best dialect both sides speak. */
export function chooseDialect(versions: readonly unknown[]): Dialect | undefined {
  return DIALECTS.find(({ version }) => versions.includes(version))
}

const SESSION_CODECS: readonly SessionCodec[] = [
  DRAFT_2026_V1,
  ...CODECS.filter((codec) => codec.kind === 'session'),
]

/** The revisions that begin with a handshake, best first. */
export const HANDSHAKE_VERSIONS = SESSION_CODECS.flatMap(({ versions }) => versions) as unknown as readonly [
  Revision,
  ...Revision[],
]

/** True if the revision is a draft. */
export function isDraft(version: string): boolean {
  return version === DRAFT_VERSION
}

/** Whether input requests come in results, with a state to echo, so no request needs a session. */
export function hasRounds(version: string): boolean {
  return isDraft(version) || chooseDialect([version]) !== undefined
}

/**
 * The capabilities that a client declares in a handshake. With `drafts` it declares that it echoes `state`, with `turns`
 * that it takes questions in turns as well.
 */
export function sessionCapabilities(
  given: ClientCapabilities | undefined,
  { drafts, turns }: { readonly drafts: boolean; readonly turns: boolean },
): ClientCapabilities {
  return drafts ? { ...given, experimental: experimentalOf(turns) } : { ...given }
}

/**
 * The dialect of a revision that begins with a handshake. The draft has rounds, the others push their questions. With
 * `turns` the events of each stream show whether the server asks in turns: it has no way to declare so.
 */
export function sessionDialect(version: string, capabilities: Fields, turns: boolean): Dialect {
  const codec = SESSION_CODECS.find(({ versions }) => versions.includes(version)) ?? SESSION_CODECS[1]
  if (codec === undefined) throw new TypeError(`No revision with sessions speaks ${version}`)
  const offered = codec.dialect(version).tasks && offersTasks(capabilities)
  const pushed = { ...codec.client, ...(turns && !codec.draft && TURNS) }
  const tasks = codec.draft ? DRAFT_TASKS : PUSHED_TASKS
  return { ...pushed, version, tasks: offered ? tasks : NO_TASKS, mirrorsArguments: false }
}

/** Whether the server accepts tool calls as tasks. */
function offersTasks({ tasks }: Fields): boolean {
  const requests = isRecord(tasks) ? tasks.requests : undefined
  const tools = isRecord(requests) ? requests.tools : undefined
  return isRecord(tools) && isRecord(tools.call)
}

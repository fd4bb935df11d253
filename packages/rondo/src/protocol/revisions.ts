/** The published revisions. A new one is a folder that implements `codec.ts`, and one line in `CODECS`. */

import type { Codec, Codecs } from './codec.ts'
import { REV_2025_11_25, VERSIONS as SESSIONS, UNSTATED } from './rev-2025-11-25/codec.ts'
import { VERSIONS as REQUESTS, REV_2026_07_28 } from './rev-2026-07-28/codec.ts'

export { hasVersionHeader } from './rev-2025-11-25/client.ts'

/** Newest first. */
export const CODECS: readonly Codec[] = [REV_2026_07_28, REV_2025_11_25]

/** A published version. */
export type PublishedVersion = (typeof REQUESTS)[number] | (typeof SESSIONS)[number]

/** An era of published versions, named after its newest one. */
export type PublishedEra = (typeof REQUESTS)[0] | (typeof SESSIONS)[0]

/** The newest version, in which every request stands alone. */
export const LATEST_VERSION: (typeof REQUESTS)[0] = REQUESTS[0]

/** The versions that begin with `initialize`, newest first. */
export const SESSION_VERSIONS: typeof SESSIONS = SESSIONS

/** The version of a request that states none and belongs to no session. */
export const UNSTATED_VERSION: string = UNSTATED

/** `eras` lists the codecs that are served, each by its newest version. Default: all. */
export function createCodecs(codecs: readonly Codec[] = CODECS, eras?: readonly string[]): Codecs {
  const requests = codecs.filter((codec) => codec.kind === 'request')
  const sessions = codecs.filter((codec) => codec.kind === 'session')
  const isOpen = ({ versions: [newest = ''] }: Codec): boolean => eras?.includes(newest) ?? true
  const served = (some: readonly Codec[]): readonly string[] =>
    some.filter(isOpen).flatMap(({ versions }) => versions)
  const [newest = REV_2026_07_28] = requests
  const dialects = new Map(
    sessions.flatMap((codec) => codec.versions.map((version) => [version, codec.dialect(version)] as const)),
  )
  return {
    requestVersions: served(requests),
    sessionVersions: served(sessions),
    draftVersions: served(sessions.filter(({ draft }) => draft)),
    requests: new Map(
      requests.flatMap((codec) => codec.versions.map((version) => [version, codec] as const)),
    ),
    newest,
    session: (version) => dialects.get(version) ?? REV_2025_11_25.dialect(version),
    opensSession: (version) => dialects.has(version),
  }
}

/** What `initialize` tells, in the form in which newer servers are described. */

import { isRecord } from '../../lib/is-record.ts'
import type { Discovery } from '../result.ts'
import { decodeServerInfo } from '../rev-2026-07-28/decode-result.ts'

/** The version the server chose is the only one it is asked in. */
export function decodeInitialize(result: Readonly<Record<string, unknown>>): Discovery | undefined {
  const { protocolVersion, capabilities, instructions } = result
  if (typeof protocolVersion !== 'string' || !isRecord(capabilities)) return undefined
  const serverInfo = decodeServerInfo(result.serverInfo)
  return {
    supportedVersions: [protocolVersion],
    capabilities,
    ...(typeof instructions === 'string' && { instructions }),
    ...(serverInfo && { serverInfo }),
  }
}

/** The server's own error, kept apart from the errors this client raises by itself. */

import { RondoError } from '../errors.ts'
import { displayText } from '../form/clean-text.ts'
import type { WireError } from '../protocol/received.ts'

/** The server answered with a JSON-RPC error: `peer` has it as it came. */
export class PeerError extends RondoError {
  readonly peer: WireError

  constructor(peer: WireError) {
    super('PEER_ERROR', `${displayText(peer.message)} (${peer.code})`, { data: peer.data })
    this.name = 'PeerError'
    this.peer = peer
  }
}

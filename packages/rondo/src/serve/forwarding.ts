/**
 * The port of a gateway: how a program serves what other servers offer. It is apart from `Server`, because authors of tools
 * have no use for it.
 */

import { misuse } from '../errors.ts'
import type { Listing } from '../protocol/call.ts'
import type { Forwarded, ForwardedTasks, RowsFor } from '../tool/forward.ts'
import type { Server } from './server.ts'

/** What a gateway can do with a server, besides the methods of the server. */
export interface Forwarding {
  /**
   * Declares what another server offers. Nothing of it is checked here: its row is listed unchanged, its result passes as it is,
   * and development mode does not run it twice. `name` is that of the tool or prompt, or the URI or URI template. Replaces what was
   * declared under this name here before. Subscribers are not notified: `changed` does that, once for many.
   */
  declare(listing: Listing, name: string, forwarded: Forwarded): void
  /** Removes what was declared, without a notification. */
  remove(listing: Listing, name: string): void
  /** Notifies subscribers that a list has changed. */
  changed(listing: Listing): void
  /**
   * Lists what this caller may use, in place of what is declared. It gets the declared rows, and is called for every request for a list.
   * Clients may not share the result.
   */
  lists(rowsFor: RowsFor): void
  /** Serves requests about tasks of other servers, and declares tasks to clients. */
  tasks(tasks: ForwardedTasks): void
  /** Replaces the instructions that clients get when they connect. */
  instruct(instructions: string | undefined): void
  /** Writes a warning to the server's log. The message must not contain secrets. */
  warn(message: string): void
}

const PORTS = new WeakMap<Server, Forwarding>()

export function offerForwarding(server: Server, port: Forwarding): void {
  PORTS.set(server, port)
}

/**
 * Returns the port through which a gateway declares what other servers offer.
 *
 * @example
 * ```ts
 * const row = { name: 'search', inputSchema: { type: 'object' } }
 * forwarding(server).declare('tools', 'search', {
 *   row,
 *   run: async (args, ctx) => ({ ...(await client.callTool('search', { ...args }, { signal: ctx.signal })) }),
 * })
 * ```
 */
export function forwarding(server: Server): Forwarding {
  const port = PORTS.get(server)
  if (port === undefined)
    throw misuse('forwarding takes a server that createServer of this package returned.')
  return port
}

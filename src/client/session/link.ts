/**
 * What a session with an older server knows: its id, its version, and how to send something there. The id is the
 * server's own; it goes into a header, so only what may stand in one is taken.
 */

import { RondoError } from '../../errors.ts'
import { headersOf } from '../../protocol/rev-2025-11-25/encode-request.ts'
import type { Clock } from '../clock.ts'
import { openLeg } from '../leg.ts'
import type { Limits } from '../limits.ts'
import { type HeaderSource, requestHeaders } from '../request-headers.ts'
import type { AnswerHead, Outgoing, Transport } from '../transport/transport.ts'

export interface LinkOptions {
  readonly transport: Transport
  readonly clock: Clock
  readonly limits: Limits
  readonly headers?: HeaderSource
  readonly onWarning: (text: string) => void
}

export interface Link extends LinkOptions {
  version: string
  /** `Mcp-Session-Id`, where the server gave one. */
  id: string | undefined
  /** Counts the sessions on this link: a server may forget one. */
  epoch: number
  /** Aborted when the client is closed. */
  readonly signal: AbortSignal
  close(): void
  headersFor(own?: Readonly<Record<string, string>>): Promise<Readonly<Record<string, string>>>
  /** Sends what gets no answer: a notification, an answer of ours, a farewell. */
  tell(body: string, how?: Pick<Outgoing, 'verb'> & { readonly timeout?: number }): Promise<void>
}

const SESSION_ID = /^[\x21-\x7e]{1,1024}$/

export function createLink(options: LinkOptions, version: string): Link {
  const closing = new AbortController()
  const link: Link = {
    ...options,
    version,
    id: undefined,
    epoch: 0,
    signal: closing.signal,
    close: () => closing.abort(new RondoError('PEER_GONE', 'This client was closed')),
    headersFor: (own = headersOf(link.version)) =>
      requestHeaders(link.id === undefined ? own : { ...own, 'Mcp-Session-Id': link.id }, options.headers),
    async tell(body, { verb, timeout = options.limits.timeout } = {}) {
      const leg = openLeg(options.clock, { timeout })
      try {
        await options.transport.exchange({
          id: 'told',
          body,
          verb,
          oneWay: true,
          headers: await link.headersFor(),
          signal: leg.signal,
          maxBytes: options.limits.maxResponseBytes,
        })
      } finally {
        leg.end()
      }
    },
  }
  return link
}

export function sessionIn({ session }: AnswerHead): string | undefined {
  if (session === null || session === undefined) return undefined
  if (SESSION_ID.test(session)) return session
  throw new RondoError('PEER_ANSWER', 'The session id of the server cannot stand in a header')
}

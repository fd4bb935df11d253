/**
 * The one session of a client over stdio. It begins with `initialize`; after that, every message that does not claim a newer
 * version belongs to it.
 */

import { RondoError } from '../errors.ts'
import { negotiate } from '../protocol/codec.ts'
import { claimedVersion, idOf, isInitialize } from '../protocol/common/request.ts'
import { principalTag } from '../seal/state.ts'
import { internalError } from '../serve/failure.ts'
import type { Load, OlderPeer, StdioClient } from '../serve/port.ts'
import { dispatch, isRequest, messagesOf, type ReplyPath } from './dispatch.ts'
import { factsOf, readInitialize } from './handshake.ts'
import type { Channel } from './line.ts'
import type { Older } from './older.ts'
import type { Session } from './session.ts'

interface PeerOptions extends StdioClient {
  readonly older: Older
}

export class SessionPeer implements OlderPeer {
  readonly #options: PeerOptions
  readonly #channel: Channel
  #session: Session | undefined

  constructor(options: PeerOptions) {
    const { output } = options
    this.#options = options
    this.#channel = {
      send(json, droppable) {
        if (!droppable || !output.clogged) output.write(json)
      },
      open: true,
    }
  }

  /** True if the message is of an earlier era. */
  takes(message: unknown): boolean {
    const claim = claimedVersion(message)
    if (claim !== undefined)
      return this.#options.older.codecs.draftVersions.some((version) => version === claim)
    return this.#session !== undefined || isInitialize(message)
  }

  receive(message: unknown, load?: Load): void {
    const { older, output } = this.#options
    try {
      if (isInitialize(message)) this.#greet(message)
      else this.#dispatch(message, load)
    } catch (error) {
      const known = error instanceof RondoError ? error : internalError(error, this.#options.onError).error
      output.write(older.codecs.session('').encodeError(idOf(message), known))
    }
  }

  /** Ends the waiting of all calls, because the server stops. */
  refuseWaiting(): void {
    this.#session?.refuseWaiting(new RondoError('SERVER_DRAINING'))
  }

  end(): void {
    if (this.#session) this.#options.older.sessions.end(this.#session)
    this.#session = undefined
  }

  #greet(message: unknown): void {
    const { older, output, principal, service } = this.#options
    if (service.state.draining) throw new RondoError('SERVER_DRAINING')
    const call = readInitialize(older, message)
    const protocolVersion = negotiate(call.requested, older.versions)
    this.end()
    this.#session = older.sessions.open(factsOf(older, call, protocolVersion), principalTag(principal))
    this.#session.streams.general = this.#channel
    const result = older.greet(protocolVersion, { session: true, known: true, tasks: true })
    output.write(older.codecs.session(protocolVersion).encodeReply(call.id, { kind: 'complete', result }))
  }

  #dispatch(message: unknown, load: Load | undefined): void {
    const { older, principal, inFlight, service, onError } = this.#options
    const claim = claimedVersion(message) as string | undefined
    const session = this.#session ?? this.#transient(claim ?? '')
    const version = claim ?? session.facts.protocolVersion
    const dialect = older.codecs.session(version)
    const messages = messagesOf(message, dialect)
    session.touch()
    const { capabilities, clientInfo } = session.facts
    const peer = { protocolVersion: version, capabilities, clientInfo, logLevel: session.level }
    const decoded = messages.map((one) => dialect.decode(one, peer))
    const path = this.#replyPath(Array.isArray(message), decoded.filter(isRequest).length)
    const context = { older, inFlight, known: true, draining: service.state.draining, load, onError }
    for (const one of decoded) dispatch(context, session, version, one, principal, path)
  }

  /** A session for one message of the draft, which may come without one. */
  #transient(protocolVersion: string): Session {
    const { older, principal } = this.#options
    return older.sessions.transient({ protocolVersion, capabilities: {} }, principalTag(principal))
  }

  #replyPath(batch: boolean, responses: number): ReplyPath {
    const { output } = this.#options
    const collected: string[] = []
    let left = responses
    return {
      channel: this.#channel,
      respond(json) {
        if (!batch && json !== undefined) output.write(json)
        if (!batch) return
        if (json !== undefined) collected.push(json)
        left -= 1
        if (left === 0 && collected.length > 0) output.write(`[${collected.join(',')}]`)
      },
    }
  }
}

/**
 * The one session of a client over stdio. It begins with `initialize`; from then on every message that claims no newer
 * version belongs to it.
 */

import { RondoError } from '../../errors.ts'
import type { Principal } from '../../protocol/call.ts'
import { negotiate } from '../../protocol/codec.ts'
import { idOf } from '../../protocol/common/request.ts'
import { principalTag } from '../../seal/state.ts'
import type { BeatOptions } from '../heartbeat.ts'
import { claimOf, isInitialize } from '../message.ts'
import { type InFlight, internalError, type Service } from '../service.ts'
import type { StdioOutput } from '../stdio/peer.ts'
import type { Channel } from './line.ts'
import type { Older } from './older.ts'
import { factsOf, isRequest, readInitialize, takeMessage, type Way } from './post.ts'
import type { Session } from './session.ts'

export interface SessionPeerOptions {
  readonly older: Older
  readonly output: StdioOutput
  readonly principal?: Principal
  readonly inFlight: InFlight
  readonly beats: BeatOptions
  readonly service: Pick<Service, 'state'>
  onError(error: unknown): void
}

const MAX_BATCH = 64

export class SessionPeer {
  readonly #options: SessionPeerOptions
  readonly #channel: Channel
  #session: Session | undefined

  constructor(options: SessionPeerOptions) {
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
    const claim = claimOf(message)
    if (claim !== undefined)
      return this.#options.older.codecs.draftVersions.some((version) => version === claim)
    return this.#session !== undefined || isInitialize(message)
  }

  receive(message: unknown): void {
    const { older, output } = this.#options
    try {
      if (isInitialize(message)) this.#greet(message)
      else this.#take(message)
    } catch (error) {
      const known = error instanceof RondoError ? error : internalError(error, this.#options.onError).error
      output.write(older.codecs.session('').encodeError(idOf(message), known))
    }
  }

  /** Nobody will answer what is open. */
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
    this.#session.general = this.#channel
    const result = older.greet(protocolVersion, { session: true, known: true, tasks: true })
    output.write(older.codecs.session(protocolVersion).encodeReply(call.id, { kind: 'complete', result }))
  }

  #take(message: unknown): void {
    const { older, principal, inFlight, service, beats, onError } = this.#options
    const claim = claimOf(message) as string | undefined
    const session = this.#session ?? this.#passing(claim ?? '')
    const version = claim ?? session.facts.protocolVersion
    const dialect = older.codecs.session(version)
    const messages = Array.isArray(message) ? message : [message]
    if (Array.isArray(message) && (!dialect.batches || message.length > MAX_BATCH)) {
      throw new RondoError('PEER_REQUEST', 'Batches are not served: send one message')
    }
    session.touch()
    const peer = { ...session.facts, protocolVersion: version, logLevel: session.level }
    const decoded = messages.map((one) => dialect.decode(one, peer))
    const way = this.#wayBack(Array.isArray(message), decoded.filter(isRequest).length)
    const context = { older, inFlight, known: true, draining: service.state.draining, beats, onError }
    for (const one of decoded) takeMessage(context, session, version, one, principal, way)
  }

  /** For a message of the draft that comes without a session. */
  #passing(protocolVersion: string): Session {
    const { older, principal } = this.#options
    return older.sessions.transient({ protocolVersion, capabilities: {} }, principalTag(principal))
  }

  #wayBack(batch: boolean, responses: number): Way {
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

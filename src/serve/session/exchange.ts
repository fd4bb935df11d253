/**
 * HTTP for clients of earlier eras: POST sends messages, GET opens the session's own stream or resumes a lost one, DELETE
 * ends the session.
 */

import { RondoError } from '../../errors.ts'
import type { Principal, RequestId } from '../../protocol/call.ts'
import { type RequestHeaders, versionHeader } from '../../protocol/common/headers.ts'
import { idOf } from '../../protocol/common/request.ts'
import { isSealedSession } from '../../seal/session-id.ts'
import { principalTag } from '../../seal/state.ts'
import { type Outlet, refusal } from '../http/line.ts'
import { internalError } from '../service.ts'
import { type PostOptions, servePost } from './post.ts'
import type { Session } from './session.ts'

export interface SessionExchange {
  post(message: unknown, headers: RequestHeaders, principal: Principal | undefined, outlet: Outlet): void
  /** GET and DELETE, which have no body. */
  bare(method: string, headers: RequestHeaders, principal: Principal | undefined, outlet: Outlet): void
}

export function createSessionExchange(options: PostOptions): SessionExchange {
  const { sessions } = options.older

  const guarded = (outlet: Outlet, id: RequestId | null, serve: () => void): void => {
    try {
      serve()
    } catch (error) {
      if (!(error instanceof RondoError)) throw error
      if (error.code === 'LIMIT_SESSIONS') options.service.onRefused?.(error.code, error.http)
      outlet.send(refusal(error, id))
    }
  }

  return {
    post(message, headers, principal, outlet) {
      const posted = { message, headers, principal, outlet }
      guarded(outlet, idOf(message), () => {
        const { draft } = options.older
        if (!draft?.takes(options, posted)) return servePost(options, posted)
        later(outlet, () => draft.post(options, posted))
      })
    },
    bare(method, headers, principal, outlet) {
      const serve = (session: Session | undefined): void => {
        if (session === undefined) throw new RondoError('PEER_SESSION')
        const last = method === 'GET' ? headers['last-event-id'] : undefined
        options.access.admit([], principal, last === undefined ? [] : session.scopesOfStream(last))
        if (method === 'GET') return serveGet(options, session, headers, outlet)
        sessions.end(session)
        outlet.send({ status: 200, headers: {}, body: '' })
      }
      guarded(outlet, null, () => {
        const { draft } = options.older
        const id = headers['mcp-session-id'] ?? ''
        if (!draft || !isSealedSession(id)) return serve(sessions.find(id, principalTag(principal)))
        if (!options.sessions) {
          return outlet.send(refusal(new RondoError('PEER_HTTP_METHOD'), null, { Allow: 'POST' }))
        }
        later(outlet, async () => {
          const session = await draft.open(options, { headers, principal, outlet })
          // A temporary session receives no notifications, so its stream would stay silent.
          if (session && session !== sessions.find(id, session.owner)) throw new RondoError('LIMIT_SESSIONS')
          serve(session)
        })
      })
    },
  }

  function later(outlet: Outlet, serve: () => Promise<void>): void {
    serve().catch((error: unknown) => {
      const known = error instanceof RondoError ? error : internalError(error, options.onError).error
      outlet.fail(refusal(known))
    })
  }
}

function serveGet(
  { stream, older }: PostOptions,
  session: Session,
  headers: RequestHeaders,
  outlet: Outlet,
): void {
  session.touch()
  const last = headers['last-event-id']
  if (last === undefined) {
    const version = versionHeader(headers) ?? session.facts.protocolVersion
    const primed = older.codecs.session(version).primesStreams
    session.openStream(
      { primed, streams: true, responses: 0, batch: false, onLost: () => {} },
      outlet,
      stream,
    )
    return
  }
  if (session.resumeStream(last, outlet)) return
  // The event is a question of another instance; what follows its answer may be sent here.
  const awaited = older.draft?.awaits(session, last)
  if (awaited === undefined) throw new RondoError('PEER_EVENT')
  session.awaitAnswer(awaited, outlet, stream)
}

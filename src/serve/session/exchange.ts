/**
 * HTTP for clients of earlier eras: POST sends messages, GET opens the session's own stream or resumes a lost one, DELETE
 * ends the session.
 */

import { RondoError } from '../../errors.ts'
import { isThenable } from '../../lib/json.ts'
import type { Principal, RequestId } from '../../protocol/call.ts'
import { type RequestHeaders, versionHeader } from '../../protocol/common/headers.ts'
import { idOf } from '../../protocol/common/request.ts'
import { isTurnsSession } from '../../seal/session-id.ts'
import { principalTag } from '../../seal/state.ts'
import { internalError } from '../failure.ts'
import { type Outlet, refusal } from '../http/line.ts'
import { type PostOptions, servePost } from './post.ts'
import type { Session } from './session.ts'

export interface SessionExchange {
  post(message: unknown, headers: RequestHeaders, principal: Principal | undefined, outlet: Outlet): void
  /** GET and DELETE, which have no body. */
  bare(method: string, headers: RequestHeaders, principal: Principal | undefined, outlet: Outlet): void
}

export function createSessionExchange(options: PostOptions): SessionExchange {
  const { sessions } = options.older

  /** A request that cannot be served at all gets its error as the response. What is thrown otherwise goes to the entrance. */
  const guarded = (outlet: Outlet, id: RequestId | null, serve: () => void | Promise<void>): void => {
    const refuse = (error: RondoError): void => {
      if (error.code === 'LIMIT_SESSIONS') options.service.onRefused?.(error.code, error.http)
      outlet.fail(refusal(error, id))
    }
    try {
      const serving = serve()
      serving?.catch((error: unknown) =>
        refuse(error instanceof RondoError ? error : internalError(error, options.onError).error),
      )
    } catch (error) {
      if (!(error instanceof RondoError)) throw error
      refuse(error)
    }
  }

  return {
    post(message, headers, principal, outlet) {
      const posted = { message, headers, principal, outlet }
      guarded(outlet, idOf(message), () => {
        const { draft } = options.older
        return draft?.takes(options, posted) ? draft.post(options, posted) : servePost(options, posted)
      })
    },
    bare(method, headers, principal, outlet) {
      const serve = (session: Session | undefined): void | Promise<void> => {
        if (session === undefined) throw new RondoError('PEER_SESSION')
        // A temporary session receives no notifications, so its stream would stay silent.
        if (session !== sessions.find(session.id, session.owner)) throw new RondoError('LIMIT_SESSIONS')
        const last = method === 'GET' ? headers['last-event-id'] : undefined
        options.access.admit([], principal, last === undefined ? [] : session.scopesOfStream(last))
        if (method === 'GET') return serveGet(options, session, headers, principal, outlet)
        const done = (): void => outlet.send({ status: 200, headers: {}, body: '' })
        const ending = options.older.shared.end(session)
        return isThenable(ending) ? ending.then(done) : done()
      }
      guarded(outlet, null, () => {
        const { draft } = options.older
        const id = headers['mcp-session-id'] ?? ''
        if (!draft || !isTurnsSession(id)) {
          const share = options.shareOf(principal, headers, outlet)
          const found = options.older.shared.find(id, principalTag(principal), share)
          return isThenable(found) ? found.then(serve) : serve(found)
        }
        if (!options.sessions) {
          return outlet.send(refusal(new RondoError('PEER_HTTP_METHOD'), null, { Allow: 'POST' }))
        }
        return draft.open(options, { headers, principal, outlet }).then(serve)
      })
    },
  }
}

function serveGet(
  options: PostOptions,
  session: Session,
  headers: RequestHeaders,
  principal: Principal | undefined,
  outlet: Outlet,
): void | Promise<void> {
  const { stream, older } = options
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
  if (awaited !== undefined) return session.awaitAnswer(awaited, outlet, stream)
  const detail =
    'There is nothing to resume after this Last-Event-ID. If another instance began the stream, the instances need a store that they share, or sticky routing by Mcp-Session-Id'
  const nothing = new RondoError('PEER_EVENT', session.portable && !older.shared.resume ? detail : undefined)
  if (!older.shared.resume) throw nothing
  return older.shared.resume({ options, session, eventId: last, principal, outlet }).then((resumed) => {
    if (!resumed) throw nothing
  })
}

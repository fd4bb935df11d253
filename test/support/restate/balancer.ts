/**
 * A balancer for HTTP/2: each stream goes to the next endpoint that accepts a connection, and ends with it. Restate sends
 * many calls over one connection, so a balancer of connections would send all of them to one worker.
 */

import {
  type ClientHttp2Session,
  connect,
  constants,
  createServer,
  type IncomingHttpHeaders,
  type ServerHttp2Session,
  type ServerHttp2Stream,
} from 'node:http2'
import type { AddressInfo } from 'node:net'

export interface Balancer {
  readonly url: string
  add(port: number): void
  /** Called with everything that passes, in either direction. */
  onData?: (data: Buffer) => void
  close(): Promise<void>
}

const PING_MS = 500
const SILENT_MS = 3_000
/** The time that an endpoint that failed gets nothing, if there is another. */
const AVOID_MS = 1_000

/** Drops a connection whose other end does not respond: the process is frozen, or its machine is gone. */
function watch(session: ClientHttp2Session): void {
  let heardAt = performance.now()
  const timer = setInterval(() => {
    if (session.destroyed || performance.now() - heardAt > SILENT_MS) {
      clearInterval(timer)
      session.destroy()
      return
    }
    session.ping(() => {
      heardAt = performance.now()
    })
  }, PING_MS)
  session.on('close', () => clearInterval(timer))
}

/** Headers that belong to one connection. */
const HOP = new Set([':status', 'connection', 'keep-alive', 'transfer-encoding'])

/** `watches`: it notices endpoints that are frozen. */
export async function startBalancer({ watches = false } = {}): Promise<Balancer> {
  const ports: number[] = []
  const sessions = new Map<number, Promise<ClientHttp2Session>>()
  const avoided = new Map<number, number>()
  const incoming = new Set<ServerHttp2Session>()
  let next = 0

  const sessionTo = (port: number): Promise<ClientHttp2Session> => {
    const known = sessions.get(port)
    if (known) return known
    const opening = new Promise<ClientHttp2Session>((resolve, reject) => {
      const session = connect(`http://127.0.0.1:${port}`)
      // A frozen process accepts connections too, but says nothing.
      session.on('remoteSettings', () => resolve(session))
      if (watches) watch(session)
      session.on('error', reject)
      session.on('close', () => {
        sessions.delete(port)
        avoided.set(port, performance.now() + AVOID_MS)
        reject(new Error('closed'))
      })
      session.on('goaway', () => sessions.delete(port))
    })
    sessions.set(port, opening)
    opening.catch(() => sessions.delete(port))
    return opening
  }
  const pick = async (): Promise<ClientHttp2Session | undefined> => {
    next++
    const turn = [...ports.slice(next % ports.length), ...ports.slice(0, next % ports.length)]
    const isAvoided = (port: number) => Number((avoided.get(port) ?? 0) > performance.now())
    for (const port of turn.sort((a, b) => isAvoided(a) - isAvoided(b))) {
      const session = await sessionTo(port).catch(() => undefined)
      if (session && !session.closed && !session.destroyed) return session
    }
    return undefined
  }
  const forward = async (stream: ServerHttp2Stream, headers: IncomingHttpHeaders): Promise<void> => {
    stream.on('error', () => {})
    const session = await pick()
    if (stream.destroyed) return
    if (session === undefined) {
      stream.respond({ ':status': 503 })
      stream.end()
      return
    }
    const out = session.request(headers)
    out.on('error', () => stream.close(constants.NGHTTP2_INTERNAL_ERROR))
    out.on('response', (received) => {
      if (stream.destroyed) return
      const kept = Object.entries(received).filter(([name]) => !HOP.has(name))
      stream.respond({ ':status': received[':status'] ?? 502, ...Object.fromEntries(kept) })
    })
    // One that ends before it is complete takes the other with it.
    out.on('close', () => {
      if (!stream.writableEnded) stream.close(constants.NGHTTP2_CANCEL)
    })
    stream.on('close', () => {
      if (!out.destroyed) out.close(constants.NGHTTP2_CANCEL)
    })
    for (const from of [stream, out]) from.on('data', (data: Buffer) => balancer.onData?.(data))
    stream.pipe(out)
    out.pipe(stream)
  }
  const server = createServer()
  server.on('session', (session) => {
    incoming.add(session)
    session.on('close', () => incoming.delete(session))
    session.on('error', () => {})
  })
  server.on('stream', (stream, headers) => void forward(stream, headers))
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const balancer: Balancer = {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    add: (port) => void ports.push(port),
    async close() {
      for (const session of incoming) session.destroy()
      for (const session of sessions.values()) (await session.catch(() => undefined))?.destroy()
      await new Promise((resolve) => server.close(resolve))
    },
  }
  return balancer
}

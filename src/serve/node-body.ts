/**
 * The body of a node:http request, up to a limit.
 *
 * A body that is too large is not kept: what still comes is thrown away, up to a bound, so that the client has sent
 * its request and reads the refusal instead of a broken connection. A client that goes before the end gets nothing.
 */

import { isUtf8 } from 'node:buffer'
import type { IncomingMessage } from 'node:http'

export type Body =
  | { readonly kind: 'text'; readonly text: string }
  | { readonly kind: 'too-large' }
  | { readonly kind: 'not-utf8' }

/** This many times the limit is thrown away before the connection is cut. */
const PATIENCE = 16

export function collectBody(req: IncomingMessage, limit: number, done: (body: Body) => void): void {
  const declared = Number(req.headers['content-length'] ?? 0)
  if (declared > limit * PATIENCE) {
    done({ kind: 'too-large' })
    return
  }
  let size = 0
  let chunks: Buffer[] = []
  let tooLarge = declared > limit

  const onData = (chunk: Buffer): void => {
    size += chunk.length
    if (size > limit) {
      tooLarge = true
      chunks = []
    }
    if (!tooLarge) chunks.push(chunk)
    else if (size > limit * PATIENCE) {
      req.off('data', onData)
      req.off('end', onEnd)
      req.pause()
      done({ kind: 'too-large' })
    }
  }
  const onEnd = (): void => {
    const received = chunks
    // The request lives as long as its response, which may be a stream without an end.
    chunks = []
    done(tooLarge ? { kind: 'too-large' } : toText(received))
  }
  req.on('data', onData)
  req.on('end', onEnd)
}

/** A whole body as text, where the bytes are UTF-8. */
export function toText(chunks: readonly Buffer[]): Body {
  const bytes = chunks.length === 1 && chunks[0] !== undefined ? chunks[0] : Buffer.concat(chunks)
  // A lone bad byte would otherwise become another character, and the body another body.
  if (!isUtf8(bytes)) return { kind: 'not-utf8' }
  return { kind: 'text', text: bytes.toString('utf8') }
}

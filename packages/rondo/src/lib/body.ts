/**
 * Reads a body of bounded length, at the pace of its sender: from a stream of Node or of the web, whole or not at all.
 *
 * body 1: No more than `limit` bytes are ever held. A body whose declared length is too large is not read.
 * body 2: The sender chooses the size of the chunks, so they are collected in one block: a chunk of one byte would cost a
 * hundred in a list.
 * body 3: Where the sender reads nothing before it has sent everything, the rest of a body that is too large is discarded, up
 * to `patience` bytes, so that it reads the refusal instead of a connection error.
 */

import { collectBytes } from './collection.ts'

export type Body =
  | { readonly kind: 'whole'; readonly bytes: Uint8Array }
  | { readonly kind: 'too-large' }
  /** There is no room for it now. */
  | { readonly kind: 'no-room' }
  /** The stream failed, or ended before the body did. */
  | { readonly kind: 'broken'; readonly error?: unknown }

export interface BodyBounds {
  /** Bytes of the longest body that is read. */
  readonly limit: number
  /** The value of `Content-Length`, if there is one. */
  readonly declared?: string | null
  /** Returns whether there is room for a body of this many bytes. */
  readonly hasRoom?: (size: number) => boolean
  /** Bytes of the whole body up to which one that is too large is discarded. Default: 0, reading stops at the limit. */
  readonly patience?: number
  /** Receives the bytes of a body that is too large, as far as they were read. */
  readonly onDiscarded?: (bytes: Uint8Array) => void
}

interface Collector {
  /** Returns false when enough was read. */
  push(chunk: Uint8Array): boolean
  end(): Body
}

function createCollector({ limit, declared, hasRoom, patience = 0, onDiscarded }: BodyBounds): Collector {
  const length = Number(declared ?? Number.NaN)
  const collected = collectBytes()
  let size = 0
  let refused: Body | undefined = length > limit ? { kind: 'too-large' } : undefined
  return {
    push(chunk) {
      size += chunk.byteLength
      if (refused === undefined && size > limit) {
        refused = { kind: 'too-large' }
        onDiscarded?.(collected.take())
      }
      if (refused !== undefined) {
        onDiscarded?.(chunk)
        return size <= patience
      }
      // The last chunk of a body is handed on at once, and not counted.
      if (size !== length && hasRoom?.(size) === false) {
        refused = { kind: 'no-room' }
        return false
      }
      collected.add(chunk)
      return true
    },
    // A request may live as long as an endless response: its bytes are released now.
    end: () => refused ?? { kind: 'whole', bytes: collected.take() },
  }
}

/** True if the body is so long that not even a part of it is read. */
function isHopeless({ limit, declared, patience = 0 }: BodyBounds): boolean {
  return Number(declared ?? 0) > Math.max(limit, patience)
}

/** A stream of Node, as far as it is read here. */
export interface NodeBody {
  readonly readableEnded?: boolean
  readonly destroyed?: boolean
  on(event: 'data', listener: (chunk: Uint8Array) => void): unknown
  on(event: 'end' | 'close', listener: () => void): unknown
  on(event: 'error', listener: (error: unknown) => void): unknown
  pause(): unknown
}

/** Reads a body from a stream of Node. Stops reading, and leaves the stream paused, where enough was read. Never rejects. */
export function readNodeBody(source: NodeBody, bounds: BodyBounds): Promise<Body> {
  if (isHopeless(bounds)) return Promise.resolve({ kind: 'too-large' })
  // Its sender has gone, or somebody else has read it: no event will follow.
  if (source.readableEnded || source.destroyed) return Promise.resolve({ kind: 'broken' })
  return new Promise((resolve) => {
    const collector = createCollector(bounds)
    let enough = false
    source.on('data', (chunk) => {
      if (enough || collector.push(chunk)) return
      enough = true
      source.pause()
      resolve(collector.end())
    })
    source.on('end', () => resolve(collector.end()))
    source.on('close', () => resolve({ kind: 'broken' }))
    source.on('error', (error) => resolve({ kind: 'broken', error }))
  })
}

/** Reads a body from a stream of the web, and cancels it where enough was read. Never rejects. */
export async function readWebBody(
  source: ReadableStream<Uint8Array> | null | undefined,
  bounds: BodyBounds,
): Promise<Body> {
  const collector = createCollector(bounds)
  if (!source) return collector.end()
  try {
    if (isHopeless(bounds)) {
      drop(source)
      return { kind: 'too-large' }
    }
    const reader = source.getReader()
    for (;;) {
      const { done, value } = await reader.read()
      if (done) return collector.end()
      if (collector.push(value)) continue
      drop(reader)
      return collector.end()
    }
  } catch (error) {
    return { kind: 'broken', error }
  }
}

/** Does not wait: whoever sends too much may also take its time to stop. */
function drop(source: { cancel(): Promise<void> }): void {
  source.cancel().catch(() => {})
}

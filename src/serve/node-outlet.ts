/**
 * The way out over node:http. A whole answer is one `writeHead` and one `end`, which Node sends as one packet; whether
 * the client is still there costs nothing until somebody asks.
 */

import type { ServerResponse } from 'node:http'
import { type HttpAnswer, type HttpHeaders, JSON_HEADERS } from './http-answer.ts'
import type { Outlet } from './outlet.ts'

interface OutletServer {
  readonly draining: boolean
  onError(error: unknown): void
}

export class NodeOutlet implements Outlet {
  readonly #res: ServerResponse
  readonly #server: OutletServer

  constructor(res: ServerResponse, server: OutletServer) {
    this.#res = res
    this.#server = server
    // An event without a listener would end the process.
    res.on('error', server.onError)
  }

  /** The connection is not used again: a client that comes back should find another instance. */
  last(): void {
    this.#res.shouldKeepAlive = false
  }

  send({ status, headers, body }: HttpAnswer): void {
    const res = this.#res
    if (isGone(res) || res.headersSent) return
    if (this.#server.draining) this.last()
    const length = Buffer.byteLength(body)
    if (headers === JSON_HEADERS) {
      // The common case, in the form that Node takes without a copy.
      res.writeHead(status, ['Content-Type', 'application/json', 'Content-Length', length])
    } else {
      res.writeHead(status, { ...headers, 'Content-Length': length })
    }
    res.end(body)
  }

  open(headers: HttpHeaders): void {
    if (isGone(this.#res) || this.#res.headersSent) return
    if (this.#server.draining) this.last()
    this.#res.writeHead(200, headers)
  }

  write(text: string): void {
    if (!isGone(this.#res) && !this.#res.writableEnded) this.#res.write(text)
  }

  end(): void {
    if (!isGone(this.#res)) this.#res.end()
  }

  fail(answer: HttpAnswer): void {
    if (this.#res.headersSent) return this.drop()
    // Part of the request may be unread.
    this.last()
    this.send(answer)
  }

  drop(): void {
    this.#res.destroy()
  }

  get gone(): boolean {
    return isGone(this.#res)
  }

  get ended(): boolean {
    return this.#res.writableEnded
  }

  get address(): string | undefined {
    return this.#res.socket?.remoteAddress
  }

  get backlog(): number {
    return this.#res.writableLength
  }

  onGone(listener: () => void): () => void {
    const res = this.#res
    const onClose = (): void => {
      if (res.writableFinished) return
      try {
        listener()
      } catch (error) {
        this.#server.onError(error)
      }
    }
    if (isGone(res)) listener()
    else res.once('close', onClose)
    return () => {
      res.off('close', onClose)
    }
  }
}

function isGone(res: ServerResponse): boolean {
  return res.destroyed || res.socket?.destroyed === true
}

/**
 * One kept-alive HTTP connection that sends a request and reads the response, as cheaply as possible: a client
 * that costs more than the server would keep the server waiting, and measure itself.
 *
 * It parses only what these servers send: a status line, headers, a body with a length or in chunks; of a stream of events, the
 * last one is the body.
 */

import { connect, type Socket } from 'node:net'
import { connect as connectSecurely } from 'node:tls'

export interface Response {
  readonly status: number
  readonly body: string
}

export interface Connection {
  /** One request at a time. */
  send(request: string): Promise<Response>
  close(): void
}

interface Waiting {
  resolve(response: Response): void
  reject(error: Error): void
}

export function openConnection(url: URL): Promise<Connection> {
  return new Promise((resolve, reject) => {
    const isSecure = url.protocol === 'https:'
    const address = { host: url.hostname, port: Number(url.port || (isSecure ? 443 : 80)) }
    const socket = isSecure ? connectSecurely({ ...address, servername: url.hostname }) : connect(address)
    socket.setNoDelay(true)
    socket.once('error', reject)
    socket.once(isSecure ? 'secureConnect' : 'connect', () => {
      socket.off('error', reject)
      resolve(speak(socket))
    })
  })
}

function speak(socket: Socket): Connection {
  let waiting: Waiting | undefined
  let received = ''
  let failure: Error | undefined

  const fail = (error: Error): void => {
    failure ??= error
    waiting?.reject(error)
    waiting = undefined
  }
  // One byte is one character here: lengths are counted in bytes, and only the body is decoded.
  socket.setEncoding('latin1')
  socket.on('data', (text: string) => {
    received += text
    const response = readResponse(received)
    if (response === undefined || waiting === undefined) return
    received = ''
    const { resolve } = waiting
    waiting = undefined
    resolve(response)
  })
  socket.on('error', fail)
  socket.on('close', () => fail(new Error('The server closed the connection')))

  return {
    send(request) {
      if (failure !== undefined) return Promise.reject(failure)
      return new Promise((resolve, reject) => {
        waiting = { resolve, reject }
        socket.write(request)
      })
    },
    close: () => void socket.destroy(),
  }
}

/** The response, if it is complete. */
function readResponse(text: string): Response | undefined {
  const end = text.indexOf('\r\n\r\n')
  if (end < 0) return undefined
  const head = text.slice(0, end)
  const status = Number(head.slice(9, 12))
  const length = /\ncontent-length: *(\d+)/i.exec(head)?.[1]
  const body = length === undefined ? readChunks(text, end + 4) : readLength(text, end + 4, Number(length))
  if (body === undefined) return undefined
  const isStream = /\ncontent-type: *text\/event-stream/i.test(head)
  return { status, body: Buffer.from(isStream ? lastEvent(body) : body, 'latin1').toString('utf8') }
}

function lastEvent(body: string): string {
  const from = body.lastIndexOf('data:') + 'data:'.length
  return body.slice(from, body.indexOf('\n', from)).trim()
}

function readLength(text: string, from: number, length: number): string | undefined {
  return text.length < from + length ? undefined : text.slice(from, from + length)
}

function readChunks(text: string, from: number): string | undefined {
  let body = ''
  for (let at = from; ; ) {
    const lineEnd = text.indexOf('\r\n', at)
    if (lineEnd < 0) return undefined
    const size = Number.parseInt(text.slice(at, lineEnd), 16)
    const chunkEnd = lineEnd + 2 + size
    if (text.length < chunkEnd + 2) return undefined
    if (size === 0) return body
    body += text.slice(lineEnd + 2, chunkEnd)
    at = chunkEnd + 2
  }
}

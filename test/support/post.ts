/** One POST over loopback with full control of its headers, which `fetch` does not allow. */

import { type IncomingHttpHeaders, request } from 'node:http'

export interface Posted {
  readonly status: number
  readonly headers: IncomingHttpHeaders
  readonly text: string
}

export interface PostOptions {
  readonly method?: string
  readonly path?: string
  readonly headers?: Record<string, string>
  readonly body?: string | Buffer
  /** Send no Content-Length. */
  readonly chunked?: boolean
}

export function post(port: number, options: PostOptions): Promise<Posted> {
  return new Promise((resolve, reject) => {
    const { method = 'POST', path = '/mcp', headers = {}, body = '' } = options
    const length = options.chunked ? {} : { 'content-length': String(Buffer.byteLength(body)) }
    const req = request({
      host: '127.0.0.1',
      port,
      method,
      path,
      headers: { ...length, ...headers },
      agent: false,
    })
    req.on('error', reject)
    req.on('response', (res) => {
      const chunks: Buffer[] = []
      res.on('data', (chunk: Buffer) => chunks.push(chunk))
      res.on('error', reject)
      res.on('end', () =>
        resolve({
          status: res.statusCode ?? 0,
          headers: res.headers,
          text: Buffer.concat(chunks).toString('utf8'),
        }),
      )
    })
    if (options.chunked) req.write(body)
    req.end(options.chunked ? undefined : body)
  })
}

/** The messages of a stream of events. */
export function messagesOf(stream: string): Record<string, unknown>[] {
  return stream
    .split('\n\n')
    .filter((event) => event.startsWith('event: message\n'))
    .map((event) => JSON.parse(event.slice('event: message\ndata: '.length)))
}

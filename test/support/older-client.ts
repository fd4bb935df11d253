/**
 * A small client of revision 2025-11-25 and older over Streamable HTTP, written from the specification: it initializes,
 * reads JSON and streams, answers questions while its calls are open, and can lose a stream and resume it.
 */

import { createParser } from 'eventsource-parser'

export type Message = Readonly<Record<string, unknown>>

export interface Asked {
  readonly id: unknown
  readonly method: string
  readonly params: Readonly<Record<string, unknown>>
}

export interface OlderClientOptions {
  readonly version?: string
  readonly capabilities?: Readonly<Record<string, unknown>>
  readonly headers?: Readonly<Record<string, string>>
  /** The client's response: a result, an error (`{ error }`), or a promise that never settles. */
  answer?(asked: Asked): unknown
}

/** The stream of one POST or GET, message by message. */
export interface OpenStream {
  readonly status: number
  readonly response: Response
  /** Ids of the events so far. */
  readonly ids: string[]
  readonly messages: Message[]
  /** The next message, or undefined at the end. */
  next(): Promise<Message | undefined>
  /** Drops the connection. */
  drop(): Promise<void>
}

export interface OlderClient {
  readonly sessionId: string | undefined
  readonly initialized: Message
  /** Everything the server sent on streams, in order. */
  readonly received: Message[]
  readonly asked: Asked[]
  /** Calls, answers the questions asked meanwhile, and returns the response. */
  call(method: string, params?: object): Promise<Message>
  notify(method: string, params?: object): Promise<Response>
  post(body: unknown, headers?: Record<string, string>): Promise<OpenStream>
  get(headers?: Record<string, string>): Promise<OpenStream>
  remove(): Promise<Response>
  respond(id: unknown, result: unknown): Promise<Response>
}

type Send = (request: Request) => Promise<Response>

/** `send` sends a request to the server: `fetch` for one that listens, or a server's own `fetch`. */
export async function connectOlder(
  url: string,
  options: OlderClientOptions = {},
  send: Send = fetch,
): Promise<OlderClient> {
  const { version = '2025-11-25', capabilities = {} } = options
  const received: Message[] = []
  const asked: Asked[] = []
  let sessionId: string | undefined
  let agreed: string | undefined
  let lastId = 0

  const request = (method: string, body: unknown, headers: Record<string, string>): Promise<Response> =>
    send(
      new Request(url, {
        method,
        headers: {
          accept: 'application/json, text/event-stream',
          ...(body === undefined ? {} : { 'content-type': 'application/json' }),
          ...(sessionId === undefined ? {} : { 'mcp-session-id': sessionId }),
          ...(agreed === undefined ? {} : { 'mcp-protocol-version': agreed }),
          ...options.headers,
          ...headers,
        },
        body: body === undefined ? undefined : JSON.stringify(body),
      }),
    )

  const client = {
    received,
    asked,
    post: async (body: unknown, headers = {}) => open(await request('POST', body, headers), received),
    get: async (headers = {}) =>
      open(await request('GET', undefined, { accept: 'text/event-stream', ...headers }), received),
    remove: () => request('DELETE', undefined, {}),
    notify: (method: string, params?: object) => request('POST', { jsonrpc: '2.0', method, params }, {}),
    respond: (id: unknown, answer: unknown) => request('POST', { jsonrpc: '2.0', id, ...toBody(answer) }, {}),
    async call(method: string, params: object = {}) {
      lastId += 1
      const id = lastId
      const stream = await client.post({ jsonrpc: '2.0', id, method, params })
      for (let message = await stream.next(); message; message = await stream.next()) {
        if (message.id === id && message.method === undefined) return message
        if (message.method !== undefined && message.id !== undefined) {
          const question = { params: {}, ...message } as unknown as Asked
          asked.push(question)
          Promise.resolve(options.answer?.(question)).then((answer) => {
            if (answer !== undefined) void client.respond(message.id, answer)
          })
        }
      }
      throw new Error(`no response to ${method} (HTTP ${stream.status})`)
    },
  }

  const clientInfo = { name: 'older', version: '1.0.0' }
  lastId += 1
  const greeting = await client.post({
    jsonrpc: '2.0',
    id: lastId,
    method: 'initialize',
    params: { protocolVersion: version, capabilities, clientInfo },
  })
  const initialized = await greeting.next()
  if (initialized === undefined) throw new Error(`initialize got HTTP ${greeting.status}`)
  sessionId = greeting.response.headers.get('mcp-session-id') ?? undefined
  agreed = (initialized.result as { protocolVersion?: string } | undefined)?.protocolVersion
  if (agreed !== undefined) await client.notify('notifications/initialized')
  return { ...client, initialized, sessionId }
}

function toBody(answer: unknown): object {
  return typeof answer === 'object' && answer !== null && 'error' in answer ? answer : { result: answer }
}

function open(response: Response, received: Message[]): OpenStream {
  const ids: string[] = []
  const messages: Message[] = []
  const queue: Message[] = []
  const isStream = response.headers.get('content-type') === 'text/event-stream'
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader()
  const keep = (message: Message): void => {
    queue.push(message)
    messages.push(message)
    received.push(message)
  }
  const parser = createParser({
    onEvent({ id, data }) {
      if (id !== undefined) ids.push(id)
      if (data !== '') keep(JSON.parse(data))
    },
  })
  let text = ''

  async function next(): Promise<Message | undefined> {
    while (queue.length === 0) {
      const chunk = await reader?.read()
      if (chunk === undefined || chunk.done) {
        if (text !== '') for (const message of [JSON.parse(text)].flat()) keep(message)
        text = ''
        break
      }
      if (isStream) parser.feed(chunk.value)
      else text += chunk.value
    }
    return queue.shift()
  }

  return { status: response.status, response, ids, messages, next, drop: async () => reader?.cancel() }
}

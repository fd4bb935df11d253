/**
 * The proxy before the instances: passes each request of a client to the next instance in turn, and injects the faults that
 * were armed for its flow. Sessions of older clients stay with their instance, since it holds them in memory.
 *
 * Bytes pass unchanged unless a fault changes them. A copy of both bodies is kept for the page, up to a bound.
 */

import {
  type IncomingHttpHeaders,
  type IncomingMessage,
  request as openRequest,
  type ServerResponse,
} from 'node:http'
import { isRecord, readNodeBody } from 'rondo/internal'
import { type Book, MAX_EVENTS } from './book.ts'
import {
  CONSOLE_CLIENT,
  EXCHANGE_HEADER,
  type Message,
  PRINCIPAL_HEADER,
  REWORD_HEADER,
  type SeenExchange,
  SKEW_HEADER,
} from './event.ts'
import type { LocalFleet, Up } from './fleet.ts'

/** The fault for the next round of a flow. */
export interface Fault {
  readonly kind: 'elsewhere' | 'lose' | 'twice' | 'reword'
  /** The instance that must not serve it. */
  readonly avoid?: string
  /** Called with the exchange, or exchanges, in which it happened. */
  done(exchanges: readonly string[]): void
}

export interface ConsoleProxy {
  serve(req: IncomingMessage, res: ServerResponse): void
  /** Sends a request of the console itself, and resolves with its exchange. */
  send(request: OwnRequest): Promise<SeenExchange>
  /** The headers of a request that its next round needs again. Credentials are among them: they stay in this process. */
  headersOf(exchange: string): Readonly<Record<string, string>>
  /** The headers of the request with which a task began: those of its owner. */
  headersOfTask(id: string): Readonly<Record<string, string>>
  /** The number of times that clients have polled a task. */
  pollsOf(id: string): { readonly count: number; readonly at: number } | undefined
  /** Arms a fault for the next round of a flow. */
  arm(flow: string, fault: Fault): void
  /** While it is true, requests of this command's own clients are marked as those of the doctor. */
  examining: boolean
  /** From now on, the flow finds these questions with other wording. */
  reword(flow: string, keys: readonly string[]): void
}

export interface OwnRequest {
  readonly headers: Readonly<Record<string, string>>
  readonly body: Message
  readonly fault?: string
  readonly skewMs?: number
  readonly avoid?: string
}

/** Larger requests are refused, larger responses are passed on but not shown. */
const MAX_REQUEST = 4 * 1024 * 1024
const MAX_SHOWN = 256 * 1024

/** Of the connection, not of the message; and ours. */
const NOT_FORWARDED = new Set([
  'connection',
  'keep-alive',
  'transfer-encoding',
  'te',
  'trailer',
  'upgrade',
  'proxy-authorization',
  'proxy-connection',
  'host',
  'origin',
  'content-length',
  EXCHANGE_HEADER,
  SKEW_HEADER,
  REWORD_HEADER,
])

export function createProxy(fleet: LocalFleet, book: Book, now: () => number = Date.now): ConsoleProxy {
  const armed = new Map<string, Fault[]>()
  /** The instance of each session of an older client, and the name of the client. */
  const homes = new Map<string, { readonly instance: string; readonly client?: string }>()
  const polls = new Map<string, { readonly text: string; readonly count: number; readonly at: number }>()
  const taskHeaders = new Map<string, Readonly<Record<string, string>>>()
  const reworded = new Map<string, readonly string[]>()
  const repeated = new Map<string, Record<string, string>>()
  let count = 0
  const nextId = (): string => {
    count += 1
    return `x${count}`
  }

  const flowOf = (body: Message | undefined): string | undefined =>
    book.flowOf(isRecord(body?.params) ? body.params.requestState : undefined)

  function takeFault(body: Message | undefined): Fault | undefined {
    const flow = flowOf(body)
    const faults = flow === undefined ? undefined : armed.get(flow)
    const fault = faults?.shift()
    if (flow !== undefined && faults?.length === 0) armed.delete(flow)
    return fault
  }

  function pick(headers: IncomingHttpHeaders, avoid?: string): Up | undefined {
    const session = headers['mcp-session-id']
    const home = typeof session === 'string' ? homes.get(session)?.instance : undefined
    return (home !== undefined && fleet.pick({ only: home })) || fleet.pick({ avoid }) || fleet.pick()
  }

  function record(facts: Omit<SeenExchange, 'method' | 'target' | 'revision'>): void {
    const { request } = facts
    const params = isRecord(request?.params) ? request.params : {}
    const meta = isRecord(params._meta) ? params._meta : {}
    const target = params.name ?? params.uri ?? params.taskId
    const exchange: SeenExchange = {
      ...facts,
      ...(typeof request?.method === 'string' && { method: request.method }),
      ...(typeof target === 'string' && { target }),
      ...revisionOf(meta, params),
    }
    if (!isRepeatedPoll(exchange)) book.add({ kind: 'exchange', exchange })
  }

  /** Polls that see what the last one saw are not worth an event. */
  function isRepeatedPoll({ method, target, response, client }: SeenExchange): boolean {
    if (method !== 'tasks/get' || target === undefined) return false
    const text = JSON.stringify(response?.result) ?? ''
    const before = polls.get(target)
    const isOurs = client === CONSOLE_CLIENT
    const { count = 0, at = now() } = before ?? {}
    polls.set(target, isOurs ? { text, count, at } : { text, count: count + 1, at: now() })
    trim(polls)
    return before?.text === text
  }

  /** Remembers who owns a task that a call became. */
  function noteTask({ id, request, response }: Pick<SeenExchange, 'id' | 'request' | 'response'>): void {
    const result = isRecord(response?.result) ? response.result : {}
    if (request?.method === 'tasks/get' || typeof result.taskId !== 'string') return
    taskHeaders.set(result.taskId, repeated.get(id) ?? {})
    trim(taskHeaders)
  }

  interface Passing {
    readonly id: string
    readonly began: number
    readonly method: string
    readonly headers: IncomingHttpHeaders
    readonly raw: Buffer
    readonly body: Message | undefined
    readonly by: SeenExchange['by']
    readonly fault?: string
    readonly skewMs?: number
    readonly avoid?: string
    /** Receives the response; absent if nobody should. */
    readonly res?: ServerResponse
  }

  /** Passes one request to an instance. Resolves when its response has ended, however that was. */
  function pass({ id, began, headers, raw, body, res, ...passing }: Passing): Promise<SeenExchange> {
    const up = pick(headers, passing.avoid)
    repeated.set(id, repeatable(headers))
    trim(repeated)
    const principal = headers[PRINCIPAL_HEADER]
    const session = headers['mcp-session-id']
    const client = clientOf(body) ?? (typeof session === 'string' ? homes.get(session)?.client : undefined)
    const isDoctor = proxy.examining && (client === undefined || /^rondo( doctor)?$/.test(client))
    const fault = passing.fault ?? (isDoctor ? 'doctor' : undefined)
    const facts = {
      id,
      began,
      by: passing.by,
      ...(client !== undefined && { client }),
      ...(fault !== undefined && { fault }),
      ...(typeof principal === 'string' && { principal }),
      ...(raw.length <= MAX_SHOWN && body && { request: body }),
    }
    return new Promise((done) => {
      let ended = false
      let hasResponse = false
      const finish = (status: number, instance?: string, response?: Message): void => {
        if (ended) return
        ended = true
        const exchange = {
          ...facts,
          ms: now() - began,
          status,
          ...(instance && { instance }),
          ...(response && { response }),
        }
        noteTask(exchange)
        record(exchange)
        done(exchange)
      }
      if (up === undefined) {
        sendError(res, 503, 'No instance is up. Start one in the console.')
        return finish(503)
      }
      const forwarded: Record<string, string | string[]> = {
        [EXCHANGE_HEADER]: id,
        host: `127.0.0.1:${up.port}`,
      }
      for (const [name, value] of Object.entries(headers))
        if (value !== undefined && !NOT_FORWARDED.has(name)) forwarded[name] = value
      if (raw.length > 0) forwarded['content-length'] = String(raw.length)
      if (passing.skewMs !== undefined) forwarded[SKEW_HEADER] = String(passing.skewMs)
      const keys = reworded.get(flowOf(body) ?? '')
      if (keys) forwarded[REWORD_HEADER] = keys.map(encodeURIComponent).join(',')
      const out = openRequest(
        {
          host: '127.0.0.1',
          port: up.port,
          path: '/mcp',
          method: passing.method,
          headers: forwarded,
          agent: false,
        },
        (incoming) => {
          hasResponse = true
          const session = incoming.headers['mcp-session-id']
          if (typeof session === 'string' && !homes.has(session)) {
            homes.set(session, { instance: up.name, client: clientOf(body) })
            trim(homes)
          }
          const copy = createCopy(incoming)
          if (res !== undefined && !res.headersSent) {
            const kept = Object.entries(incoming.headers).filter(
              ([name]) => !/^(?:connection|keep-alive|transfer-encoding)$/.test(name),
            )
            res.writeHead(incoming.statusCode ?? 502, Object.fromEntries(kept) as Record<string, string>)
            res.flushHeaders()
            incoming.pipe(res)
          } else incoming.resume()
          const over = (): void => finish(incoming.statusCode ?? 502, up.name, copy.message())
          incoming.once('end', over)
          incoming.once('close', () => {
            if (!incoming.complete) res?.destroy()
            over()
          })
        },
      )
      out.once('error', () => {
        // The instance died with the call: whether it did something is unknown, and the client has to find out.
        sendError(res, 502, `Instance ${up.name} ended before it responded.`)
        finish(502, up.name)
      })
      // One that switches protocols closes the request with neither a response nor an error.
      out.once('close', () => {
        // A response may still be read when its connection is closed.
        if (ended || hasResponse) return
        sendError(res, 502, `Instance ${up.name} closed the connection before it responded.`)
        finish(502, up.name)
      })
      res?.once('close', () => {
        if (!res.writableFinished) out.destroy()
      })
      out.end(raw)
    })
  }

  async function serve(req: IncomingMessage, res: ServerResponse): Promise<void> {
    const raw = await readBody(req)
    if (raw === undefined) return sendError(res, 413, `The request is larger than ${MAX_REQUEST} bytes.`)
    const body = parse(raw)
    const fault = takeFault(body)
    const passing = {
      id: nextId(),
      began: now(),
      method: req.method ?? 'POST',
      headers: req.headers,
      raw,
      body,
      by: 'client' as const,
      ...(fault && { fault: fault.kind, avoid: fault.avoid }),
    }
    if (fault?.kind === 'lose') {
      await pass(passing)
      res.destroy()
      return fault.done([passing.id])
    }
    const first = await pass({ ...passing, res })
    if (fault?.kind !== 'twice') return fault?.done([passing.id])
    const again = { ...passing, id: nextId(), began: now(), avoid: first.instance }
    await pass(again)
    fault.done([passing.id, again.id])
  }

  const proxy: ConsoleProxy = {
    examining: false,
    serve(req, res) {
      serve(req, res).catch(() => res.destroy())
    },
    async send({ headers, body, ...options }) {
      const raw = Buffer.from(JSON.stringify(body))
      const fault = takeFault(body)
      const passing = {
        id: nextId(),
        began: now(),
        method: 'POST',
        headers,
        raw,
        body,
        by: 'console' as const,
        ...(fault && { fault: fault.kind, avoid: fault.avoid }),
        ...options,
      }
      const exchange = await pass(passing)
      if (fault === undefined) return exchange
      if (fault.kind !== 'twice') {
        fault.done([exchange.id])
        return fault.kind === 'lose' ? { ...exchange, status: 0, response: undefined } : exchange
      }
      const again = await pass({ ...passing, id: nextId(), began: now(), avoid: exchange.instance })
      fault.done([exchange.id, again.id])
      return exchange
    },
    headersOf: (id) => repeated.get(id) ?? {},
    headersOfTask: (id) => taskHeaders.get(id) ?? {},
    pollsOf(id) {
      const { count = 0, at = 0 } = polls.get(id) ?? {}
      return count === 0 ? undefined : { count, at }
    },
    reword(flow, keys) {
      reworded.set(flow, [...new Set([...(reworded.get(flow) ?? []), ...keys])])
      trim(reworded)
    },
    arm(flow, fault) {
      armed.set(flow, [...(armed.get(flow) ?? []), fault])
    },
  }
  return proxy
}

function repeatable(headers: IncomingHttpHeaders): Record<string, string> {
  const kept = Object.entries(headers).filter(
    (entry): entry is [string, string] =>
      typeof entry[1] === 'string' &&
      /^(?:mcp-.*|authorization|accept|content-type|x-rondo-principal)$/.test(entry[0]),
  )
  return Object.fromEntries(kept)
}

/** The name that a client calls itself, in every request or when it initializes a session. */
function clientOf(body: Message | undefined): string | undefined {
  const params = isRecord(body?.params) ? body.params : {}
  const meta = isRecord(params._meta) ? params._meta : {}
  const info = meta['io.modelcontextprotocol/clientInfo'] ?? params.clientInfo
  return isRecord(info) && typeof info.name === 'string' ? info.name : undefined
}

function trim(map: Map<string, unknown>): void {
  for (const key of map.keys()) {
    if (map.size <= MAX_EVENTS) return
    map.delete(key)
  }
}

function revisionOf(meta: Message, params: Message): { revision?: string } {
  const version = meta['io.modelcontextprotocol/protocolVersion'] ?? params.protocolVersion
  return typeof version === 'string' ? { revision: version } : {}
}

async function readBody(req: IncomingMessage): Promise<Buffer | undefined> {
  const body = await readNodeBody(req, { limit: MAX_REQUEST })
  return body.kind === 'whole' ? Buffer.from(body.bytes) : undefined
}

function parse(raw: Buffer | string): Message | undefined {
  try {
    const value: unknown = JSON.parse(raw.toString())
    return isRecord(value) ? value : undefined
  } catch {
    return undefined
  }
}

/** Keeps a copy of a response, up to a bound; of a stream, its last message that has a result or an error. */
function createCopy(incoming: IncomingMessage): { message(): Message | undefined } {
  const chunks: Buffer[] = []
  let size = 0
  incoming.on('data', (chunk: Buffer) => {
    size += chunk.length
    if (size <= MAX_SHOWN) chunks.push(chunk)
  })
  return {
    message() {
      if (size > MAX_SHOWN) return undefined
      const text = Buffer.concat(chunks).toString('utf8')
      if (!String(incoming.headers['content-type']).startsWith('text/event-stream')) return parse(text)
      const messages = text.split('\n').flatMap((line): Message[] => {
        const message = line.startsWith('data:') ? parse(line.slice(5)) : undefined
        return message ? [message] : []
      })
      return messages.findLast((message) => 'result' in message || 'error' in message)
    },
  }
}

function sendError(res: ServerResponse | undefined, status: number, message: string): void {
  if (res === undefined) return
  if (res.headersSent) return void res.destroy()
  const body = JSON.stringify({ jsonrpc: '2.0', id: null, error: { code: -32603, message } })
  res.writeHead(status, { 'Content-Type': 'application/json', 'Content-Length': Buffer.byteLength(body) })
  res.end(body)
}

/**
 * One instance of the console: a process that runs the server of a file in development mode, on a free port of loopback, and
 * reports over IPC what happens in it. Every event names the exchange in which it happened, which the proxy numbers with a
 * header. SIGTERM drains; the process exits when its supervisor is gone, or if the file cannot be served.
 */

import { AsyncLocalStorage } from 'node:async_hooks'
import {
  createServer as createHttpServer,
  type Server as HttpServer,
  type IncomingMessage,
  type ServerResponse,
} from 'node:http'
import type { AddressInfo } from 'node:net'
import type { ApprovalVote, Approver } from 'rondo/extension'
import { approverOf, develop, mountedHere, readNodeBody, routesOf } from 'rondo/internal'
import type { OperatorTasks } from 'rondo/store'
import { loadServer, sayFailure, sayReason } from '../load-server.ts'
import {
  type DeliveryReport,
  type DeskReply,
  EXCHANGE_HEADER,
  type InstanceMessage,
  PAGES_VARIABLE,
  type PlainError,
  PRINCIPAL_HEADER,
  REWORD_HEADER,
  SKEW_HEADER,
  type SupervisorMessage,
  type UpstreamRequest,
} from './event.ts'
import { loadGateway } from './load-gateway.ts'

const [path = ''] = process.argv.slice(2)

interface Current {
  readonly exchange?: string
  readonly skewMs: number
  readonly subject?: string
  readonly reworded: readonly string[]
}

const current = new AsyncLocalStorage<Current>()

type Reported = Extract<InstanceMessage, { kind: 'event' }>['happening']

function send(message: InstanceMessage, sent?: () => void): void {
  // The supervisor may be gone: `disconnect` ends this process.
  if (process.connected) process.send?.(message, undefined, undefined, () => sent?.())
  else sent?.()
}

const report = (happening: Reported): void => send({ kind: 'event', happening })
const warn = (message: string, error?: unknown): void =>
  report({ kind: 'log', event: plain({ event: 'warning', message, error }) as never })

function plain<E extends object>(event: E): E {
  if (!('error' in event) || event.error === undefined) return event
  const { error } = event
  const { name, message, code, stack } = (
    error instanceof Error ? error : { name: 'Error', message: String(error) }
  ) as PlainError
  return { ...event, error: { name, message, ...(typeof code === 'string' && { code }), stack } }
}

const stores: { readonly tasks: OperatorTasks; ready(): Promise<void> }[] = []

/** Before the file is loaded, which creates its servers. */
develop({
  log(event) {
    if (event.event === 'round') return
    report({ kind: 'log', exchange: current.getStore()?.exchange, event: plain(event) as never })
  },
  round: (round, operations) =>
    report({ kind: 'round', exchange: current.getStore()?.exchange, round, operations }),
  running: (round) => report({ kind: 'running', round }),
  task: (event) => report({ kind: 'task', event: plain(event) as never }),
  skewMs: () => current.getStore()?.skewMs ?? 0,
  principal() {
    const subject = current.getStore()?.subject
    return subject === undefined ? undefined : { subject }
  },
  reworded: () => current.getStore()?.reworded ?? [],
  store: (store) => void stores.push(store),
  pages: process.env[PAGES_VARIABLE],
})

/** A request belongs to the exchange in which it began, even if it ends later. */
function reportUpstream(): (request: UpstreamRequest) => void {
  const exchange = current.getStore()?.exchange
  return (request) => report({ kind: 'upstream', exchange, request })
}

/** Older tasks are not shown. */
const MAX_TASKS = 200

/** Sends the tasks of the stores. A store that fails says so in its own events. */
async function look(): Promise<void> {
  const lists = await Promise.all(stores.map(({ tasks }) => tasks.list({ limit: MAX_TASKS }).catch(() => [])))
  send({ kind: 'tasks', tasks: lists.flat() })
}

let deliver = async (_hook: string, _event: unknown): Promise<DeliveryReport> => ({
  kind: 'failed',
  problem: 'The console delivers events to servers of this package only',
})

let approver: Approver | undefined

/** Requests that the page shows, of each state. */
const MAX_REQUESTS = 50

/** Votes as a visitor of the pages would, or lists the requests: the open ones first. */
async function approvals(vote?: ApprovalVote): Promise<DeskReply> {
  const desk = approver?.desk?.()
  if (!approver?.vote || !desk) return { kind: 'none', problem: 'The server uses no approvals' }
  if (vote) {
    const problem = await approver.vote(vote)
    return problem === undefined ? { kind: 'voted' } : { kind: 'refused', problem }
  }
  const lists = await Promise.all([
    desk.list(['open'], MAX_REQUESTS),
    desk.list(['closed'], MAX_REQUESTS, { newestFirst: true }),
  ])
  const requests = lists.flatMap((list) => list.requests).map(({ hook: _, ...shown }) => shown)
  return { kind: 'requests', url: desk.url, requests }
}

process.on('message', (message: SupervisorMessage) => {
  if (message.kind === 'look') return void look()
  const { id } = message
  if (message.kind === 'approvals')
    return void approvals(message.vote)
      .catch((error): DeskReply => ({ kind: 'refused', problem: sayReason(error) }))
      .then((reply) => send({ kind: 'approvals', id, reply }))
  deliver(message.hook, message.event)
    .catch((error): DeliveryReport => ({ kind: 'failed', problem: sayReason(error) }))
    .then((delivery) => send({ kind: 'delivered', id, delivery }))
})

/** The time that calls in flight may take while the process stops. */
const GRACE_MS = 8_000

const MAX_BODY = 4 * 1024 * 1024

/**
 * Reads the body first: the events of a stream do not run in the context of the request, what follows does. Only the proxy
 * uses this port, and it sends no Origin: a page of a browser that found the port is refused unread.
 */
async function serve(
  handler: (req: IncomingMessage & { body?: unknown }, res: ServerResponse) => void,
  req: IncomingMessage & { body?: unknown },
  res: ServerResponse,
): Promise<void> {
  if (req.headers.origin !== undefined || !isOurs(req)) return refuse(res, 403)
  if (Number(req.headers['content-length'] ?? 0) > MAX_BODY) return refuse(res, 413)
  if (req.method === 'POST') {
    const body = await readNodeBody(req, { limit: MAX_BODY })
    if (body.kind !== 'whole') return refuse(res, 413)
    req.body = Buffer.from(body.bytes)
  }
  const context = {
    exchange: textOf(req.headers[EXCHANGE_HEADER]),
    skewMs: Number(req.headers[SKEW_HEADER] ?? 0),
    subject: textOf(req.headers[PRINCIPAL_HEADER]),
    reworded: (textOf(req.headers[REWORD_HEADER]) ?? '').split(',').map(decodeURIComponent),
  }
  current.run(context, () => handler(req, res))
}

/** The proxy alone knows this address, as a number: a name that points at it is a page's. */
function isOurs({ headers, socket }: IncomingMessage): boolean {
  return headers.host === `127.0.0.1:${socket.localPort}`
}

function refuse(res: ServerResponse, status: 403 | 413): void {
  res.writeHead(status, { 'Content-Type': 'text/plain', Connection: 'close' }).end('Refused\n')
}

function textOf(header: string | string[] | undefined): string | undefined {
  return typeof header === 'string' && header !== '' ? header : undefined
}

async function start(): Promise<void> {
  let stopping = false
  let stop = async (): Promise<void> => {}
  const end = (): void => {
    if (stopping) return
    stopping = true
    void stop().finally(() => process.exit(0))
  }
  process.on('disconnect', () => {
    setTimeout(() => process.exit(0), GRACE_MS)
    end()
  })
  process.on('SIGTERM', end)
  process.on('SIGINT', () => {})
  // A mistake of the author outside of a call must not look like a crash of the instance.
  process.on('unhandledRejection', (error) => warn('Unhandled rejection: await every promise', error))
  const { server, exported, isOfficial } = path.endsWith('.json')
    ? await loadGateway(path, {
        onCreated(gateway) {
          // Commands that do not end with their stdin would outlive this process.
          stop = () => gateway.close()
        },
        onSent: reportUpstream,
        onLate: warn,
      })
    : await loadServer(path)
  await Promise.all(stores.map((store) => store.ready())).catch((error) => {
    throw new Error(`Its store cannot be used. ${sayReason(error)}`)
  })
  if ('deliver' in server && typeof server.deliver === 'function') deliver = server.deliver.bind(server)
  approver = [server, ...mountedHere()].map(approverOf).find((one) => one !== undefined)
  const handler = server.nodeHandler()
  const calls = new Set<ServerResponse>()
  let onIdle = (): void => {}
  const http = createHttpServer((req, res) => {
    if (req.method === 'POST' && req.headers['mcp-method'] !== 'subscriptions/listen') calls.add(res)
    res.once('close', () => {
      calls.delete(res)
      if (calls.size === 0) onIdle()
    })
    serve(handler, req, res).catch(() => res.destroy())
  })
  stop = async () => {
    server.drain()
    await new Promise<void>((done) => {
      onIdle = done
      if (calls.size === 0) done()
      setTimeout(done, GRACE_MS).unref()
    })
    await server.close()
  }
  const port = await listen(http)
  const routes = [server, ...mountedHere()].flatMap((one) => [...routesOf(one).keys()])
  const pages = routes.length === 0 ? undefined : await listen(createHttpServer(servePages(handler, routes)))
  send({ kind: 'listening', port, exported, isOfficial, routes, ...(pages !== undefined && { pages }) })
}

async function listen(http: HttpServer): Promise<number> {
  await new Promise<void>((done, fail) => {
    http.once('error', fail)
    http.listen(0, '127.0.0.1', done)
  })
  return (http.address() as AddressInfo).port
}

/** Serves the routes of extensions and nothing else, to pages of their own origin. */
function servePages(
  handler: (req: IncomingMessage, res: ServerResponse) => void,
  routes: readonly string[],
): (req: IncomingMessage, res: ServerResponse) => void {
  const origin = process.env[PAGES_VARIABLE]
  return (req, res) => {
    const { headers } = req
    if (`http://${headers.host}` !== origin || (headers.origin ?? origin) !== origin) return refuse(res, 403)
    const { pathname } = new URL(`http://pages${req.url?.startsWith('/') ? req.url : '/'}`)
    if (routes.some((route) => pathname === route || pathname.startsWith(`${route}/`))) handler(req, res)
    else res.writeHead(404, { 'Content-Type': 'text/plain', Connection: 'close' }).end('Not found\n')
  }
}

try {
  await start()
} catch (error) {
  send({ kind: 'failed', message: sayFailure(error) }, () => process.exit(1))
}

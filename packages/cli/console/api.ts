/** The requests of a page to its supervisor: events as a stream, actions as requests; both with the token of the address. */

import type { EventDelivery } from 'rondo'
import type { Tool } from 'rondo/client'
import type { CallReply } from '../src/console/calls.ts'
import type { Action, ActionKind, ConsoleEvent, DeskReply, Served } from '../src/console/event.ts'

export interface Status extends Served {
  readonly file: string
  readonly mcp: string
}

const RETRY_MS = 500

export interface Api {
  status(): Promise<Status>
  act(kind: ActionKind, more?: object): Promise<Action>
  tools(): Promise<readonly Tool[]>
  call(request: object): Promise<CallReply>
  /** Polls a task, after answering or cancelling it. */
  task(id: string, change?: { answers?: object; cancel?: boolean }): Promise<unknown>
  /** Delivers an event to a hook. */
  deliver(hook: string, event: unknown): Promise<EventDelivery>
  /** The requests for approval. */
  approvals(): Promise<DeskReply>
  /** Votes on the request of a task, as somebody. */
  vote(request: { task: string; key: string; approve: boolean; as: string }): Promise<unknown>
  /** Examines the server as `rondo doctor` does; the findings arrive as an event. */
  examine(request: object): Promise<unknown>
  /** Delivers batches of events until the signal fires; reconnects where it left off. */
  follow(
    receive: (events: readonly ConsoleEvent[]) => void,
    lost: (why: string | undefined) => void,
    signal: AbortSignal,
  ): void
}

export interface Requests {
  open(path: string, init?: RequestInit): Promise<Response>
  get<T>(path: string): Promise<T>
  post<T>(path: string, body: object): Promise<T>
}

/** A request that the supervisor did not carry out; the message is for people. */
export class ReplyError extends Error {
  readonly status: number

  constructor(message: string, status: number) {
    super(message)
    this.status = status
  }
}

export function createRequests(token: string): Requests {
  const headers = { authorization: `Bearer ${token}` }
  const open = async (path: string, init: RequestInit = {}): Promise<Response> => {
    const response = await fetch(path, { ...init, headers: { ...headers, ...init.headers } })
    if (response.status === 401)
      throw new Refused('The token in this address is not valid. Open the address that the command printed.')
    return response
  }
  const read = async (response: Response) => {
    const value = await response.json()
    if (!response.ok) throw new ReplyError(value.error, response.status)
    return value
  }
  const get = async (path: string) => read(await open(path))
  const post = async (path: string, body: object) =>
    read(
      await open(path, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify(body),
      }),
    )
  return { open, get, post }
}

export function createApi(token: string): Api {
  const { open, get, post } = createRequests(token)
  return {
    status: () => get('/api/status'),
    tools: () => get('/api/tools'),
    act: (kind, more) => post('/api/actions', { kind, ...more }),
    call: (request) => post('/api/calls', request),
    deliver: (hook, event) => post('/api/deliveries', { hook, event }),
    approvals: () => get('/api/approvals'),
    vote: (request) => post('/api/approvals', request),
    examine: (request) => post('/api/doctor', request),
    task: (id, change) => post('/api/tasks', { id, ...change }),
    follow(receive, lost, signal) {
      let last = 0
      const run = async (): Promise<void> => {
        const response = await open('/api/events', { headers: { 'last-event-id': String(last) }, signal })
        lost(undefined)
        for await (const events of readEvents(response)) {
          last = events.at(-1)?.seq ?? last
          receive(events)
        }
      }
      const loop = async (): Promise<void> => {
        while (!signal.aborted) {
          try {
            await run()
            lost('The console has stopped. Start it again to continue.')
          } catch (error) {
            if (signal.aborted) return
            lost(error instanceof Refused ? error.message : 'The console cannot be reached.')
            if (error instanceof Refused) return
          }
          await new Promise((done) => setTimeout(done, RETRY_MS))
        }
      }
      void loop()
    },
  }
}

/** The token is not that of the supervisor. */
export class Refused extends Error {}

/** The events of a stream, all that arrived together in one batch. */
async function* readEvents(response: Response): AsyncGenerator<ConsoleEvent[]> {
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader()
  let rest = ''
  for (;;) {
    const chunk = await reader?.read()
    if (chunk === undefined || chunk.done) return
    const blocks = (rest + chunk.value).split('\n\n')
    rest = blocks.pop() ?? ''
    const events = blocks.flatMap((block) => {
      const data = block.split('\n').find((line) => line.startsWith('data: '))
      return data === undefined ? [] : [JSON.parse(data.slice(6)) as ConsoleEvent]
    })
    if (events.length > 0) yield events
  }
}

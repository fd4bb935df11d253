/**
 * A client that takes questions in turns, as the two drafts describe it: it buffers while a stream asks, does not
 * resume a stream that ended with `input_required`, and POSTs its responses as one array with the id of the last event.
 * Every part of it can be overridden, so that tests can send what no correct client would.
 */

export type Send = (request: Request) => Promise<Response>
export type Message = Readonly<Record<string, unknown>>

export interface StreamEvent {
  readonly event: string
  readonly id?: string
  readonly data?: string
}

/** The outcome of one POST: a response, or a turn to be answered. */
export type Got =
  | { readonly kind: 'response'; readonly status: number; readonly message: Message; readonly raw: string }
  | { readonly kind: 'turn'; readonly events: readonly StreamEvent[]; readonly requests: readonly Message[] }

export interface TurnsClientOptions {
  /** Declares `multi-turn-sse`. Default: true. */
  readonly turns?: boolean
  /** Declares `request-state`. Default: true. */
  readonly state?: boolean
  readonly capabilities?: Message
  readonly protocolVersion?: string
  readonly headers?: Readonly<Record<string, string>>
}

export interface TurnsClient {
  /** The result of `initialize`. */
  readonly greeting: Message
  readonly session: string | undefined
  request(method: string, params?: Message): Promise<Got>
  /** Answers a turn: a result for each of its requests. */
  answer(turn: Got, results: readonly Message[]): Promise<Got>
  /** POSTs anything. */
  post(body: unknown, headers?: Readonly<Record<string, string>>): Promise<Got>
}

const ASKABLE = { elicitation: { form: {}, url: {} }, sampling: {}, roots: {} }

export function readEvents(stream: string): StreamEvent[] {
  return stream
    .split('\n\n')
    .filter((block) => block !== '' && !block.startsWith(':'))
    .map((block) => {
      const fields: Record<string, string> = {}
      for (const line of block.split('\n')) {
        const colon = line.indexOf(':')
        fields[line.slice(0, colon)] = line.slice(colon + 1).replace(/^ /, '')
      }
      const { event = 'message', id, data } = fields
      return { event, ...(id !== undefined && { id }), ...(data !== undefined && { data }) }
    })
}

async function read(response: Response): Promise<Got> {
  const text = await response.text()
  const { status } = response
  if (!response.headers.get('content-type')?.startsWith('text/event-stream')) {
    return { kind: 'response', status, message: text === '' ? {} : JSON.parse(text), raw: text }
  }
  const events = readEvents(text)
  const messages = events.flatMap(({ data }): Message[] => (data ? [JSON.parse(data)] : []))
  if (events.at(-1)?.event === 'input_required') {
    return { kind: 'turn', events, requests: messages.filter(({ id, method }) => id !== undefined && method) }
  }
  return { kind: 'response', status, message: messages.at(-1) ?? {}, raw: text }
}

/** The array of responses to a turn, each with the state of its request, if that had one. */
export function responsesTo(turn: Got, results: readonly Message[]): Message[] {
  if (turn.kind !== 'turn') throw new Error(`expected a turn, got ${JSON.stringify(turn)}`)
  return turn.requests.map(({ id, state }, index) => ({
    jsonrpc: '2.0',
    id,
    ...(state === undefined ? {} : { state }),
    result: results[index] ?? {},
  }))
}

export function lastEventId(turn: Got): string {
  const id = turn.kind === 'turn' ? turn.events.at(-1)?.id : undefined
  if (id === undefined) throw new Error(`expected a turn, got ${JSON.stringify(turn)}`)
  return id
}

export async function connectTurns(
  send: Send,
  url: string,
  options: TurnsClientOptions = {},
): Promise<TurnsClient> {
  const { turns = true, state = true, protocolVersion = '2025-11-25' } = options
  const experimental = { ...(turns && { 'multi-turn-sse': {} }), ...(state && { 'request-state': {} }) }
  const capabilities = { ...(options.capabilities ?? ASKABLE), experimental }
  const clientInfo = { name: 'turns-client', version: '1' }
  let session: string | undefined
  let lastId = 0
  const raw = (body: unknown, headers: Readonly<Record<string, string>> = {}): Promise<Response> =>
    send(
      new Request(url, {
        method: 'POST',
        headers: {
          'content-type': 'application/json',
          accept: 'application/json, text/event-stream',
          'mcp-protocol-version': protocolVersion,
          ...(session === undefined ? {} : { 'mcp-session-id': session }),
          ...options.headers,
          ...headers,
        },
        body: JSON.stringify(body),
      }),
    )
  const post: TurnsClient['post'] = async (body, headers) => read(await raw(body, headers))
  const toRequest = (method: string, params: Message): Message => {
    lastId += 1
    return { jsonrpc: '2.0', id: lastId, method, params }
  }
  const hello = await raw(toRequest('initialize', { protocolVersion, capabilities, clientInfo }))
  const greeting = ((await hello.json()) as { result: Message }).result
  session = hello.headers.get('mcp-session-id') ?? undefined
  await raw({ jsonrpc: '2.0', method: 'notifications/initialized' })
  return {
    greeting,
    session,
    post,
    request: (method, params = {}) => post(toRequest(method, params)),
    answer: (turn, results) => post(responsesTo(turn, results), { 'last-event-id': lastEventId(turn) }),
  }
}

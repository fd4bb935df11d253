/**
 * Clients of 2025-11-25. Such a client initializes a session, calls, and reads the stream of its call event by event; the
 * questions come there, and each answer is a request of its own, to any instance. A client whose stream breaks resumes it after
 * the last event that it saw. One that has seen none, or that is refused, gives its call up: it never calls again.
 *
 * Whatever crosses the network arrives as an event of the world. All that a connection draws comes from dice of its own, so the
 * number of promise reactions that a web stream needs changes nothing.
 */

import { textOf } from './client.ts'
import type { Fleet } from './fleet.ts'
import { answerTo, type Judge, type Message } from './judge.ts'
import type { CallPlan, Plan } from './plan.ts'
import type { Dice, World } from './world.ts'

const VERSION = '2025-11-25'
/** A client that hears nothing for this long takes its connection for broken. Streams carry a comment every 15 s. */
const PATIENCE_MS = 40_000
/** How often a client notices that the other end is gone. */
const WATCH_MS = 1_000
/** The server or its store is busy: the same request may succeed later. */
const LATER = -32000

interface Outcome {
  /** 0: nothing came; 502: the request has reached no instance. */
  readonly status: number
  readonly session?: string
  readonly isStream?: boolean
}

/** A piece of a response, and how many answers were acknowledged when it was sent. */
interface Piece {
  readonly text: string
  readonly since: number
}

interface Received extends Message {
  readonly id?: unknown
  readonly method?: string
  readonly params?: Parameters<typeof textOf>[0]['params']
}

interface Session {
  readonly id: string
  readonly principal: string
}

export function startOlderClients(
  world: World,
  plan: Plan,
  fleet: Fleet,
  judge: Judge,
  open: Set<string>,
): void {
  const dice = world.dice('older')
  const isFaulty = (dice: Dice, probability: number): boolean => fleet.faulty && dice.chance(probability)
  let connections = 0

  /** Sends a request to some instance. Resolves when the response has ended, its connection is broken, or `receive` returns false. */
  const exchange = (init: RequestInit, receive: (piece: Piece) => boolean): Promise<Outcome> =>
    new Promise((resolve) => {
      const own = world.dice(`connection ${++connections}`)
      const gone = new AbortController()
      const request = new Request('http://127.0.0.1/mcp', { ...init, signal: gone.signal })
      const { process, server } = fleet.balance()
      let outcome: Outcome = { status: 0 }
      let isOver = false
      let sentAt = 0
      let arrivedAt = 0
      let heardAt = world.now
      const travel = (): number =>
        isFaulty(own, plan.noise.slow) ? own.int(500, 15_000) : 1 + own.next() * 20
      const end = (): void => {
        if (isOver) return
        isOver = true
        // The server notices a little later that nobody reads any more. Held here, the request keeps its signal alive.
        world.schedule(travel(), process, () => !request.signal.aborted && gone.abort())
        resolve(outcome)
      }
      const watch = (): void => {
        const isBroken = !process.alive || world.now - heardAt > PATIENCE_MS
        if (isBroken) end()
        else if (!isOver) world.schedule(WATCH_MS, undefined, watch)
      }
      /** What one end sends reaches the other in order, or breaks the connection. */
      const arrive = (act: () => void): void => {
        arrivedAt = Math.max(arrivedAt + 0.01, world.now + travel())
        world.schedule(arrivedAt - world.now, undefined, () => {
          if (isOver) return
          heardAt = world.now
          if (isFaulty(own, plan.noise.lose)) end()
          else act()
        })
      }
      const send = (act: () => void): void => {
        sentAt = Math.max(sentAt, world.now) + 0.01 + own.next()
        world.schedule(sentAt - world.now, process, () => {
          fleet.crossing(process)
          if (process.alive) arrive(act)
        })
      }
      const serve = async (): Promise<void> => {
        fleet.crossing(process)
        if (!process.alive) return
        const { status, headers, body } = await server.fetch(request)
        const session = headers.get('mcp-session-id') ?? undefined
        const isStream = headers.get('content-type')?.startsWith('text/event-stream')
        send(() => {
          outcome = { status, session, isStream }
        })
        const reader = body?.getReader()
        for (;;) {
          const read = await reader?.read().catch(() => undefined)
          if (!read || read.done) break
          const piece = { text: new TextDecoder().decode(read.value), since: judge.acknowledgements }
          judge.pushed(piece.text)
          send(() => receive(piece) || end())
        }
        send(end)
      }
      world.schedule(travel(), undefined, () => {
        if (process.alive) world.schedule(0, process, () => void serve())
        else {
          outcome = { status: 502 }
          end()
        }
      })
      watch()
    })

  const headersOf = ({ id, principal }: Partial<Session>): Record<string, string> => ({
    'content-type': 'application/json',
    accept: 'application/json, text/event-stream',
    'x-caller': principal ?? 'nobody',
    ...(id !== undefined && { 'mcp-session-id': id, 'mcp-protocol-version': VERSION }),
  })
  const posted = (session: Partial<Session>, message: object): RequestInit => ({
    method: 'POST',
    headers: headersOf(session),
    body: JSON.stringify({ jsonrpc: '2.0', ...message }),
  })

  /** Sends a message until some instance has taken it, which must not be too late. Returns the last status. */
  const insist = async (session: Partial<Session>, message: object): Promise<Outcome> => {
    for (let tries = 0; ; tries++) {
      const outcome = await exchange(posted(session, message), () => true)
      const isTaken = outcome.status !== 0 && outcome.status < 500
      if (isTaken || tries > 20) return outcome
      await world.sleep(dice.int(300, 4_000))
    }
  }

  const initialize = async (principal: string): Promise<Session> => {
    const params = {
      protocolVersion: VERSION,
      capabilities: { elicitation: { form: {} } },
      clientInfo: { name: 'older', version: '1' },
    }
    for (;;) {
      const { session } = await insist({ principal }, { id: 'hello', method: 'initialize', params })
      if (session === undefined) continue
      await insist({ principal, id: session }, { method: 'notifications/initialized' })
      return { principal, id: session }
    }
  }

  const run = async (call: CallPlan): Promise<void> => {
    const { habits } = call
    await world.sleep(call.startMs)
    const session = await initialize(call.principal)
    const answered = new Set<unknown>()
    const misfits = new Set<string>()
    let last: string | undefined
    let left = habits.has('leave') || habits.has('cancel') ? dice.int(2, 6) : Number.POSITIVE_INFINITY
    let response: Message | undefined
    let request = 0

    const answer = async (id: unknown, asked: NonNullable<Received['params']>): Promise<void> => {
      const text = textOf({ params: asked })
      const [[field, { type }] = ['v', { type: 'string' }]] = Object.entries(asked.requestedSchema.properties)
      const isYesOrNo = type === 'boolean'
      const value = answerTo(call.id, '', text, isYesOrNo ? 'boolean' : 'string')
      const isMisfit = habits.has('misfit') && value !== 'decline' && !misfits.has(text)
      misfits.add(text)
      const fits = isYesOrNo ? value === 'true' : value
      const accept = (given: unknown): object => ({ action: 'accept', content: { [field]: given } })
      const result = value === 'decline' ? { action: 'decline' } : accept(isMisfit ? 7 : fits)
      const other = { id, result: accept(isYesOrNo ? value !== 'true' : 'stolen') }
      if (habits.has('other-caller')) void insist({ ...session, principal: 'mallory' }, other)
      if (habits.has('other-session')) void initialize(call.principal).then((theirs) => insist(theirs, other))
      await world.sleep(dice.int(50, 8_000))
      if (habits.has('repeat')) void insist(session, { id, result })
      const { status } = await insist(session, { id, result })
      if (status === 202 && !isMisfit) judge.acknowledged(call, '', keyOf(text), text, value)
      if (status === 202 && habits.has('answer-again')) void insist(session, other)
    }

    const receive = ({ id, method, params, ...message }: Received, since: number): void => {
      if (method === undefined && id === request) response = message
      if (method !== 'elicitation/create' || !params || answered.has(id)) return
      answered.add(id)
      const text = textOf({ params })
      judge.asked(call, '', keyOf(text), text, since)
      void answer(id, params)
    }

    /** Reads on until the stream is over. */
    const read = async (init: RequestInit): Promise<Outcome> => {
      let rest = ''
      const outcome = await exchange(init, ({ text, since }) => {
        const events = `${rest}${text}`.split('\n\n')
        rest = events.pop() ?? ''
        for (const event of events) {
          const field = (name: string): string | undefined =>
            event
              .split('\n')
              .flatMap((line) => (line.startsWith(`${name}: `) ? [line.slice(name.length + 2)] : []))[0]
          last = field('id') ?? last
          const data = field('data')
          if (data) receive(JSON.parse(data), since)
          left--
        }
        return left > 0
      })
      if (!outcome.isStream && rest !== '') receive(JSON.parse(rest), 0)
      return outcome
    }

    const params = { name: call.tool, arguments: { call: call.id } }
    for (let lostAt: number | undefined; ; ) {
      const init =
        last === undefined
          ? posted(session, { id: ++request, method: 'tools/call', params })
          : {
              method: 'GET',
              headers: { ...headersOf(session), accept: 'text/event-stream', 'last-event-id': last },
            }
      const before: string | undefined = last
      const { status } = await read(init)
      if (before !== undefined && status === 200) judge.resumed(call)
      // Without a stream the call has asked nothing and begun no effect: calling again does no harm.
      const isRefused = last === undefined && response?.error?.code === LATER
      if (isRefused) response = undefined
      if (response) return judge.ended({ call, branch: '' }, response)
      if (left <= 0) break
      if (status === 200) lostAt = undefined
      lostAt ??= world.now
      const isUnserved = isRefused || status === 502 || status === 503
      if (last === undefined && !isUnserved) break
      if (status >= 400 && !isUnserved) {
        judge.resumed(call, { afterMs: world.now - lostAt, why: `${status} after ${before}` })
        break
      }
      await world.sleep(dice.int(500, 2_000))
    }
    judge.left(call)
    if (habits.has('cancel'))
      await insist(session, { method: 'notifications/cancelled', params: { requestId: request } })
  }

  for (const call of plan.calls) {
    if (!call.older) continue
    open.add(call.id)
    void run(call).then(() => open.delete(call.id))
  }
}

/** The questions of this revision have no key: it is part of the text. */
function keyOf(text: string): string {
  return /Q\[([^ \]]+)/.exec(text)?.[1] ?? text
}

/**
 * The requests and notifications of an older server, on the stream of a call, on the stream of the session, or on the
 * stdout of a process.
 *
 * inbox 1: A question of a task belongs to the call that follows the task; any other to the call on whose stream it arrived,
 *   or else to the latest call. Outside of calls nobody is asked: only fixed roots are returned.
 * inbox 2: At most `maxQuestions` requests for each open call are handled at once; the rest is dropped.
 * inbox 3: A question that cannot be answered is refused and ends its call.
 * inbox 4: A question that the server cancels is dropped, and its call continues.
 * inbox 5: Every response has exactly the `state` of its request, refusals included. An instance that did not ask continues the
 *   call from it, and sends what follows in response.
 */

import { RondoError } from '../../errors.ts'
import { isRecord } from '../../lib/json.ts'
import type { RequestId } from '../../protocol/call.ts'
import { decodeNotification, decodeQuestion } from '../../protocol/common/received.ts'
import { type Notice, relatedTask, relatedTaskOf } from '../../protocol/reply.ts'
import { type Answered, decodeTaskStatus, encodeAnswer } from '../../protocol/rev-2025-11-25/client.ts'
import type { InputResponse, ListRootsResult } from '../../protocol/wire.ts'
import type { Flight } from '../port.ts'
import type { SessionLink } from './send.ts'

type Message = Readonly<Record<string, unknown>>

export interface Inbox {
  /** Registers a request. Returns the function that removes it. */
  enter(flight: Flight): () => void
  handleRequest(message: Message, flight?: Flight): void
  /** `receivers` are the requests that get it. Default: all that wait. */
  handleNotification(message: Message, receivers?: Iterable<Flight>): void
  /** Calls `listener` for every change. Returns the function that removes it. */
  onChange(listener: (notice: Notice) => void): () => void
}

const METHOD_NOT_FOUND = -32601
const INVALID_PARAMS = -32602
const REFUSED = -32000

export function createInbox(link: SessionLink, roots: ListRootsResult | undefined): Inbox {
  const flights = new Set<Flight>()
  const open = new Map<RequestId, AbortController>()
  const listeners = new Set<(notice: Notice) => void>()
  /** Reported once, until requests are accepted again. */
  let dropping = false
  return {
    enter(flight) {
      flights.add(flight)
      return () => void flights.delete(flight)
    },
    onChange(listener) {
      listeners.add(listener)
      return () => void listeners.delete(listener)
    },
    handleRequest(message, flight) {
      const id = message.id as RequestId
      if (open.size >= link.limits.maxQuestions * Math.max(1, flights.size) || open.has(id)) {
        if (!dropping) link.onWarning('The server sends too many requests at once; some are dropped')
        dropping = true
        return
      }
      dropping = false
      const controller = new AbortController()
      open.set(id, controller)
      const asked = followerOf(flights, message) ?? flight ?? [...flights].findLast((one) => one.onQuestion)
      respond(message, asked, controller.signal, roots)
        .then((reply) => {
          if (controller.signal.aborted) return
          const body = encodeAnswer(message, reply)
          return asked?.answer ? asked.answer(body, message.state !== undefined) : link.post(body)
        })
        .catch((error: unknown) =>
          link.onWarning(`The response to a request of the server could not be sent: ${String(error)}`),
        )
        .finally(() => open.delete(id))
    },
    handleNotification(message, receivers = flights) {
      if (message.method === 'notifications/cancelled') {
        const { requestId } = isRecord(message.params) ? message.params : {}
        return open.get(requestId as RequestId)?.abort(CANCELLED)
      }
      for (const one of receivers) one.onNotification?.(message)
      const task = decodeTaskStatus(message)
      const notice = task ? ({ kind: 'task', task } as const) : decodeNotification(message)
      if (notice !== undefined) for (const listener of listeners) listener(notice)
    },
  }
}

function followerOf(flights: Iterable<Flight>, { params }: Message): Flight | undefined {
  const task = relatedTaskOf(params)
  return task === undefined
    ? undefined
    : [...flights].findLast((one) => one.task === task && one.onQuestion !== undefined)
}

const CANCELLED = new RondoError('INPUT_ABORTED', 'The server cancelled its question')

async function respond(
  message: Message,
  flight: Flight | undefined,
  signal: AbortSignal,
  roots: ListRootsResult | undefined,
): Promise<Answered> {
  if (message.method === 'ping') return { result: {} }
  const question = decodeQuestion(message)
  if (question === undefined) return refusalOf(message)
  const asker = flight?.onQuestion
  if (flight === undefined || asker === undefined) {
    if (question.method === 'roots/list' && roots) return { result: roots }
    return refusal(REFUSED, 'This client answers questions only during a call')
  }
  const resume = flight.leg.pause()
  try {
    const answer = await asker(question, AbortSignal.any([flight.leg.signal, signal]))
    return { result: aboutTask(answer, relatedTaskOf(message.params)) }
  } catch (error) {
    // The call ends with the error that a round would end with.
    if (!signal.aborted) flight.leg.abort(error)
    return refusal(REFUSED, 'This client does not answer this question')
  } finally {
    resume()
  }
}

/** A response about a task names the task, as its request does. */
function aboutTask(answer: InputResponse, task: string | undefined): object {
  return task === undefined ? answer : { ...answer, _meta: { ...metaOf(answer), ...relatedTask(task) } }
}

function metaOf(answer: object): object {
  return '_meta' in answer && isRecord(answer._meta) ? answer._meta : {}
}

const QUESTIONS = new Set<unknown>(['elicitation/create', 'sampling/createMessage', 'roots/list'])

function refusalOf({ method }: Message): Answered {
  return QUESTIONS.has(method)
    ? refusal(INVALID_PARAMS, 'The question is not valid')
    : refusal(METHOD_NOT_FOUND, 'Method not found')
}

function refusal(code: number, message: string): Answered {
  return { error: { code, message } }
}

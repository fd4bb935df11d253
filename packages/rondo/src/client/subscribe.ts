/**
 * Changes on the server as an async iterator. A stream that breaks is opened again a few times, and a `gap` reports that
 * changes may have been missed. Unread changes are kept once for each thing that changed, so that a slow reader costs little
 * and misses nothing it could still act on.
 */

import { RondoError } from '../errors.ts'
import { sleep } from '../lib/clock.ts'
import { measureJson } from '../lib/json.ts'
import { defineOptions, number, type OptionsOf, unchecked } from '../options.ts'
import type { ListenFilter } from '../protocol/call.ts'
import type { QuestionKind } from '../protocol/common/request.ts'
import type { Notice } from '../protocol/reply.ts'
import { PeerError } from './peer.ts'
import type { Peer, SendOptions } from './port.ts'
import { withTasks } from './question.ts'

export type ServerChange =
  | Extract<Notice, { kind: 'tools' | 'prompts' | 'resources' | 'resource' | 'task' }>
  /** Changes may have been missed: read everything again. */
  | { readonly kind: 'gap' }

export interface SubscribeOptions {
  /** Ends the subscription. Default: none. */
  readonly signal?: AbortSignal
  /** How often in a row a broken stream is opened again. Default: 5. */
  readonly retries?: number
  /** The kinds of questions of tasks that the server may report. Default: forms, URLs and whatever has a handler. */
  readonly accepts?: readonly QuestionKind[]
}

const OPTIONS = defineOptions('subscribe', {
  signal: unchecked(),
  retries: number(5),
  accepts: unchecked(),
} satisfies OptionsOf<SubscribeOptions>)

export interface Subscription extends AsyncIterable<ServerChange> {
  /** The changes that the server agreed to report. Rejects if the subscription fails before. */
  readonly filter: Promise<ListenFilter>
  close(): void
}

/** How many unread changes are kept, and how large they may be together. */
const MAX_WAITING = 1_024
const MAX_WAITING_SIZE = 16_777_216
const FIRST_DELAY_MS = 250
const LONGEST_DELAY_MS = 10_000

interface Mailbox {
  put(change: ServerChange): void
  end(error?: unknown): void
  take(): Promise<IteratorResult<ServerChange>>
}

export function subscribe(
  peer: Peer,
  filter: ListenFilter,
  { capabilities, ...options }: SubscribeOptions & Pick<SendOptions, 'capabilities'>,
  onChange: (change: ServerChange) => void = () => {},
): Subscription {
  const { signal: given, retries } = OPTIONS.read(options)
  const mailbox = createMailbox()
  const stop = new AbortController()
  const close = () => stop.abort(CLOSED)
  const signal = given ? AbortSignal.any([given, stop.signal]) : stop.signal
  let agree: (filter: ListenFilter) => void = () => {}
  const agreed = new Promise<ListenFilter>((resolve, reject) => {
    agree = resolve
    const deliver = (change: ServerChange) => {
      onChange(change)
      mailbox.put(change)
    }
    keepListening(peer, filter, {
      retries,
      // Servers report tasks only to clients that declare them.
      capabilities: filter.taskIds && withTasks(capabilities),
      signal,
      agree: (one) => agree(one),
      deliver,
    }).then(
      () => {
        reject(new RondoError('PEER_UNREACHABLE', 'The server ended the subscription before accepting it'))
        mailbox.end()
      },
      (error) => {
        reject(error)
        mailbox.end(error === CLOSED ? undefined : error)
      },
    )
  })
  // A caller that only iterates gets the failure there.
  agreed.catch(() => {})
  return {
    filter: agreed,
    close,
    [Symbol.asyncIterator]: () => ({
      next: mailbox.take,
      async return() {
        close()
        return { done: true, value: undefined }
      },
    }),
  }
}

const CLOSED = new RondoError('PEER_UNREACHABLE', 'The subscription was closed')

interface Listening {
  readonly retries: number
  readonly capabilities: SendOptions['capabilities']
  readonly signal: AbortSignal
  readonly agree: (filter: ListenFilter) => void
  readonly deliver: (change: ServerChange) => void
}

async function keepListening(peer: Peer, filter: ListenFilter, listening: Listening): Promise<void> {
  let failures = 0
  for (let attempt = 0; ; attempt++) {
    try {
      const received = await peer.send(
        { kind: 'listen', filter },
        {
          endless: true,
          capabilities: listening.capabilities,
          signal: listening.signal,
          onNotice(notice) {
            failures = 0
            if (notice.kind === 'subscribed') {
              listening.agree(notice.filter)
              if (attempt > 0) listening.deliver({ kind: 'gap' })
            } else if (notice.kind === 'task') {
              if (filter.taskIds?.includes(notice.task.taskId)) listening.deliver(notice)
            } else if (notice.kind !== 'progress' && notice.kind !== 'log') listening.deliver(notice)
          },
        },
      )
      if (received.kind === 'error') throw new PeerError(received.error)
      return
    } catch (error) {
      const broken =
        error instanceof RondoError && error.code === 'PEER_UNREACHABLE' && !listening.signal.aborted
      failures += 1
      if (!broken || failures > listening.retries) throw error
      await sleep(
        peer.clock,
        Math.min(LONGEST_DELAY_MS, FIRST_DELAY_MS * 2 ** (failures - 1)),
        listening.signal,
      )
    }
  }
}

/** Changes with the same key replace each other while unread. */
function keyOf(change: ServerChange): string {
  if (change.kind === 'resource') return `resource ${change.uri}`
  return change.kind === 'task' ? `task ${change.task.taskId}` : change.kind
}

function sizeOf(change: ServerChange): number {
  if (change.kind === 'resource') return change.uri.length
  return change.kind === 'task' ? measureJson(change.task, MAX_WAITING_SIZE, Number.POSITIVE_INFINITY) : 0
}

function createMailbox(): Mailbox {
  const waiting = new Map<string, { readonly change: ServerChange; readonly size: number }>()
  let size = 0
  const remove = (key: string): void => {
    size -= waiting.get(key)?.size ?? 0
    waiting.delete(key)
  }
  let readers: { resolve(result: IteratorResult<ServerChange>): void; reject(error: unknown): void }[] = []
  let ended: { readonly error?: unknown } | undefined
  return {
    put(change) {
      if (ended) return
      const reader = readers.shift()
      if (reader) return reader.resolve({ done: false, value: change })
      const [key, own] = [keyOf(change), sizeOf(change)]
      remove(key)
      if (waiting.size >= MAX_WAITING || size + own > MAX_WAITING_SIZE) {
        waiting.clear()
        waiting.set('gap', { change: { kind: 'gap' }, size: 0 })
        size = 0
      } else {
        waiting.set(key, { change, size: own })
        size += own
      }
    },
    end(error) {
      ended ??= error === undefined ? {} : { error }
      for (const reader of readers) {
        if (error === undefined) reader.resolve({ done: true, value: undefined })
        else reader.reject(error)
      }
      readers = []
    },
    async take() {
      const [next] = waiting
      if (next !== undefined) {
        remove(next[0])
        return { done: false, value: next[1].change }
      }
      if (ended === undefined) return new Promise((resolve, reject) => readers.push({ resolve, reject }))
      const { error } = ended
      ended = {}
      if (error !== undefined) throw error
      return { done: true, value: undefined }
    },
  }
}

/**
 * What the instances of a service tell each other, over the bus of the store that they share.
 *
 * fleet 1  News are sealed for the service: who can read the store learns nothing, and who can write to it can forge nothing.
 * fleet 2  News are handled one after the other, in the order of the bus; one that fails does not stop the next.
 * fleet 3  If news were lost, everything may have changed: subscribers are told so, at most once a second. News that no bus
 *          takes are lost alone, unless they are a change: what one client sends must not make all others read everything.
 */

import type { FlowHost } from '../carry/host.ts'
import { storeClock } from '../lib/clock.ts'
import { createRate } from '../lib/rate.ts'
import type { RequestId } from '../protocol/call.ts'
import { openEnvelope, sealEnvelope } from '../seal/envelope.ts'
import { BUS_LIMITS } from '../store/bus.ts'
import type { BusSubscription, RecordStore, Store } from '../store/store.ts'
import type { Change, ChangeBus } from './port.ts'

export type News =
  | { readonly kind: 'change'; readonly change: Change }
  /** The record of a session changed: its level, its subscriptions, or that it ended. */
  | { readonly kind: 'session'; readonly session: string }
  /** A message for the session's own stream, whichever instance has it. */
  | { readonly kind: 'note'; readonly session: string; readonly json: string }
  /** The client has cancelled a call. */
  | { readonly kind: 'cancel'; readonly session: string; readonly request: RequestId }
  /** The record of a call changed, or there is more of its stream. */
  | { readonly kind: 'call'; readonly call: string }
  /** A client resumes a stream elsewhere, after this event. */
  | ({ readonly kind: 'wanted'; readonly after: number } & Reader)
  /** The client of a stream that was resumed elsewhere is still there, or has gone. */
  | ({ readonly kind: 'reader'; readonly gone: boolean } & Reader)

/** A client that reads a stream of one instance at another. */
interface Reader {
  readonly session: string
  readonly stream: string
  /** Names what is handed over. */
  readonly relay: string
}

type OnNews = (news: News) => void | Promise<void>

export interface Fleet {
  readonly records: RecordStore
  /** Begins to listen. Nothing is told before. */
  start(): void
  stop(): void
  /** Resolves when the news are durable. Rejects if the store fails. */
  tell(news: News): Promise<void>
  /** The same for news that may get lost: a failure is logged. */
  announce(news: News): void
  onNews(listener: OnNews): void
}

const LOST_SPACING_MS = 1_000

/** Undefined without a store that instances can share. */
export function createFleet(
  host: FlowHost,
  store: Pick<Store, 'records' | 'bus'> | undefined,
): Fleet | undefined {
  if (!store?.bus || !store.records) return undefined
  const { bus, records } = store
  const self = host.platform.randomId()
  const place = JSON.stringify(['bus', host.audience])
  const listeners: OnNews[] = []
  const pending = new Map<string, { readonly telling: Promise<void>; again?: Promise<void> }>()
  let subscription: BusSubscription | undefined
  let lostAt = Number.NEGATIVE_INFINITY
  let stopCatchingUp: (() => void) | undefined
  const rate = createRate(60_000, () => host.platform.now())

  const warn = (message: string, error: unknown): void => {
    if (rate() !== undefined) host.log({ event: 'warning', message, error })
  }
  const hand = async (news: News): Promise<void> => {
    for (const listener of listeners) {
      try {
        await listener(news)
      } catch (error) {
        warn('News from another instance could not be handled', error)
      }
    }
  }
  const open = (message: string): News | undefined => {
    const opened = openEnvelope(host.keys.ring, place, message, BUS_LIMITS.message)
    // Another service uses the same store, or the key is not known here yet.
    if (opened.kind === 'refused') return undefined
    const { from, news } = JSON.parse(opened.plaintext.toString('utf8')) as { from: string; news: News }
    return from === self ? undefined : news
  }
  const tell = (news: News): Promise<void> => {
    if (!subscription) return Promise.resolve()
    const json = JSON.stringify(news)
    const known = pending.get(json)
    // What is under way may have been read before the news changed, so it is told once more for everybody who comes now.
    if (known) {
      const repeat = (): Promise<void> => tell(news)
      known.again ??= known.telling.then(repeat, repeat)
      return known.again
    }
    const telling = Promise.resolve(host.keys.ready())
      .then(() => sealEnvelope(host.keys.ring, place, JSON.stringify({ from: self, news })).token)
      .then((token) => {
        if (token.length <= BUS_LIMITS.message) return bus.publish(token)
        if (news.kind === 'change') return bus.publish('')
        throw new RangeError(`News of the kind "${news.kind}" are too long for the bus`)
      })
      .finally(() => pending.delete(json))
    pending.set(json, { telling })
    return telling
  }

  return {
    records,
    tell,
    announce: (news) =>
      void tell(news).catch((error) => warn('Other instances could not be told of a change', error)),
    onNews: (listener) => void listeners.push(listener),
    start() {
      subscription ??= bus.subscribe({
        async receive(messages) {
          await host.keys.ready()
          for (const message of messages) {
            const news = open(message)
            if (news) await hand(news)
          }
        },
        lost() {
          const waitMs = Math.max(0, lostAt + LOST_SPACING_MS - storeClock.elapsed())
          stopCatchingUp ??= storeClock.idly(waitMs, () => {
            stopCatchingUp = undefined
            lostAt = storeClock.elapsed()
            void hand({ kind: 'change', change: { kind: 'everything' } })
          })
        },
      })
    },
    stop() {
      stopCatchingUp?.()
      stopCatchingUp = undefined
      subscription?.stop()
      subscription = undefined
    },
  }
}

/** A bus of changes that reaches the subscribers of every instance. */
export function shareChanges(local: ChangeBus, fleet: Fleet | undefined): ChangeBus {
  if (!fleet) return local
  fleet.onNews((news) => {
    if (news.kind === 'change') local.publish(news.change)
  })
  return {
    publish(change) {
      local.publish(change)
      fleet.announce({ kind: 'change', change })
    },
    subscribe: local.subscribe,
  }
}

/**
 * The memory of the console: the last events, for the page; and the last exchanges with their rounds, for actions. All of it
 * is bounded, and nothing is written to disk.
 */

import { createHash } from 'node:crypto'
import type { ConsoleEvent, Happening, RoundHappening, SeenExchange } from './event.ts'

export const MAX_EVENTS: number = 2_000

/** An exchange and what its instance reported about it. */
export interface Seen {
  exchange: SeenExchange
  round?: RoundHappening
  /** The reason for which the state was refused. */
  refused?: string
}

export interface Book {
  add(happening: Happening): void
  /** Events after `seq` that are still known, oldest first. */
  since(seq: number): readonly ConsoleEvent[]
  /** Calls the listener with every new event; returns a function that ends this. */
  watch(listener: (event: ConsoleEvent) => void): () => void
  seen(exchange: string): Seen | undefined
  /** The exchanges of a flow, oldest first. */
  flow(id: string): readonly Seen[]
  /** The flow for which this state was issued. */
  flowOf(state: unknown): string | undefined
  /** Resolves when the instance has reported the round of an exchange or its refusal, or after `ms`. */
  reported(exchange: string, ms?: number): Promise<Seen | undefined>
}

export function createBook(now: () => number = Date.now, max: number = MAX_EVENTS): Book {
  const events: ConsoleEvent[] = []
  const seen = new Map<string, Seen>()
  /** Reports that arrived before the response did. */
  const early = new Map<string, Pick<Seen, 'round' | 'refused'>>()
  const flows = new Map<string, string[]>()
  const states = new Map<string, string>()
  const watchers = new Set<(event: ConsoleEvent) => void>()
  const waiting = new Map<string, Set<() => void>>()
  let seq = 0

  const bound = (map: Map<string, unknown>): void => {
    for (const key of map.keys()) {
      if (map.size <= max) return
      map.delete(key)
    }
  }

  function settle(id: string): void {
    const one = seen.get(id)
    if (one === undefined || (one.round === undefined && one.refused === undefined)) return
    const flow = one.round?.round.flow
    if (flow !== undefined) {
      const list = flows.get(flow) ?? []
      if (!list.includes(id)) flows.set(flow, [...list, id].slice(-max))
      bound(flows)
      const state = stateOf(one.exchange)
      if (state !== undefined) states.set(digest(state), flow)
      bound(states)
    }
    for (const wake of waiting.get(id) ?? []) wake()
    waiting.delete(id)
  }

  function note(id: string | undefined, report: Pick<Seen, 'round' | 'refused'>): void {
    if (id === undefined) return
    const one = seen.get(id)
    if (one) Object.assign(one, report)
    else {
      early.set(id, { ...early.get(id), ...report })
      bound(early)
    }
    settle(id)
  }

  function index(happening: Happening): void {
    if (happening.kind === 'round') note(happening.exchange, { round: happening })
    if (happening.kind === 'log' && happening.event.event === 'state_refused')
      note(happening.exchange, { refused: happening.event.reason })
    if (happening.kind !== 'exchange') return
    const { id } = happening.exchange
    seen.set(id, { exchange: happening.exchange, ...early.get(id) })
    early.delete(id)
    bound(seen)
    settle(id)
  }

  /** Of these, only the last one about a task or a flow is worth remembering. */
  const findReplaced = (happening: Happening): number => {
    if (happening.kind === 'stored')
      return events.findIndex((event) => event.kind === 'stored' && event.task.id === happening.task.id)
    if (happening.kind === 'running')
      return events.findIndex(
        (event) => event.kind === 'running' && event.round.flow === happening.round.flow,
      )
    return -1
  }

  return {
    add(happening) {
      seq += 1
      const event: ConsoleEvent = { seq, at: now(), ...happening }
      const old = findReplaced(happening)
      if (old >= 0) events.splice(old, 1)
      events.push(event)
      if (events.length > max) events.shift()
      index(happening)
      for (const watcher of watchers) watcher(event)
    },
    since: (after) => events.filter((event) => event.seq > after),
    watch(listener) {
      watchers.add(listener)
      return () => void watchers.delete(listener)
    },
    seen: (id) => seen.get(id),
    flow: (id) => (flows.get(id) ?? []).flatMap((one) => seen.get(one) ?? []),
    flowOf: (state) => (typeof state === 'string' ? states.get(digest(state)) : undefined),
    async reported(id, ms = 2_000) {
      const one = seen.get(id)
      if (one && (one.round || one.refused !== undefined)) return one
      await new Promise<void>((done) => {
        const timer = setTimeout(done, ms)
        const wakes = waiting.get(id) ?? new Set()
        waiting.set(id, wakes)
        wakes.add(() => {
          clearTimeout(timer)
          done()
        })
      })
      return seen.get(id)
    },
  }
}

/** The state that the response of an exchange carries. */
export function stateOf({ response }: SeenExchange): string | undefined {
  const state = (response?.result as { requestState?: unknown } | undefined)?.requestState
  return typeof state === 'string' ? state : undefined
}

function digest(text: string): string {
  return createHash('sha256').update(text).digest('base64url')
}

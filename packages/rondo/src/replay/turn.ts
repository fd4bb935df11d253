/**
 * One run of a handler, seen as a sequence of moments. A moment ends when the handler has nothing left to do; then, and
 * only then, one thing happens: a point where the run may stop is passed, or one result is delivered, or new work begins, or the
 * run is suspended.
 *
 * turn 1: Results reach the handler one at a time, in journal order: a replay settles promises as the first run did.
 * turn 2: New work begins only when every known result that the handler waits for was delivered (R5 sees the whole moment).
 * turn 3: A run is suspended only when no work is running, so that all work is recorded (R7).
 * turn 4: A suspended run is dropped: its promises never settle (R8).
 *
 * It does not know what a question or a step is; `ask.ts` and `work.ts` do.
 */

import { RondoError } from '../errors.ts'
import type { Idle } from '../lib/clock.ts'
import type { Ending, MoveReason, OpenQuestion } from './run-state.ts'

interface Delivery {
  readonly index: number
  readonly at: number
  hand(): void
}

export interface Work {
  readonly key: string
  /** Changes nothing and records nothing: only a point where the run may stop, and else continues at once. */
  readonly passing?: true
  /** Ends the run here, to continue as a task. */
  readonly leaving?: true
  /** Must not begin before the client holds the flow's id (R6). */
  readonly strict?: boolean
  /** Must not begin while a state of the call may count twice. */
  readonly linear?: true
  /** Why this must not begin now, if so. */
  check?(): RondoError | undefined
  begin(): void
}

export interface Turn {
  /** A result is known: calls `hand` when its place in the journal is due. */
  deliver(index: number, at: number, hand: () => void): void
  /**
   * The result at this place is still being read or written: until the returned function is called, nothing after it is
   * delivered and no new work begins.
   */
  hold(index: number): () => void
  /** Work that is not in the journal begins when the moment ends. */
  enqueue(work: Work): void
  /** Something runs whose result the run waits for; call the returned function when it has settled. */
  busy(): () => void
  /** A question without an answer. */
  open(key: string, question: OpenQuestion): void
  /** Something is open that ends by itself. */
  wake(): void
  /** The question needs no answer any more. */
  close(key: string): void
  /** The client has shown that it holds the flow's id (R6): effects that were held back may begin. */
  anchor(): void
  /** The handler waits for an event from outside. */
  listen(name: string): void
  /** The event is there. */
  heard(name: string): void
  end(ending: Ending): void
  refuse(error: RondoError): void
  /** Refuses when this moment ends, before anything else happens. */
  doom(error: () => RondoError): void
  returned(value: unknown): void
  ended(): boolean
  /** The place in the journal up to which the handler has received results; -1 before the first. */
  position(): number
  /** The time of the last delivered result. */
  now(): number
  readonly ending: Promise<Ending>
}

export interface TurnOptions {
  readonly startedAt: number
  readonly idle: Idle
  /** The client holds the flow's id. */
  readonly anchored: boolean
  /** A state of the call counts once. */
  readonly linear?: boolean
  /** Nothing new may run: the run ends where new work would begin. */
  readonly frozen?: boolean
  /** Why this instance wants to release the call now, if it does. */
  mayMove(): MoveReason | undefined
  /** Shows questions while work goes on. */
  publish(questions: ReadonlyMap<string, OpenQuestion>): void
  /** Called when nothing else is left: how the run ends if it only sleeps, unless it waits until a sleep is over. */
  rest(): Ending | undefined
}

export function createTurn(options: TurnOptions): Turn {
  const { startedAt, idle, frozen, linear, mayMove, rest } = options
  let { anchored } = options
  const due: Delivery[] = []
  const holds = new Set<{ readonly index: number }>()
  const fresh: Work[] = []
  const held: Work[] = []
  const questions = new Map<string, OpenQuestion>()
  const events = new Set<string>()
  /** Open questions that were not published. */
  const unshown = new Set<string>()
  let running = 0
  let leaving = false
  let scheduled = false
  let now = startedAt
  let position = -1
  let ended: Ending | undefined
  let doomed: (() => Ending) | undefined
  let settle: (ending: Ending) => void
  const ending = new Promise<Ending>((resolve) => {
    settle = resolve
  })

  const end = (how: Ending): void => {
    if (ended) return
    ended = doomed?.() ?? how
    if (running === 0) settle(ended)
  }

  const wake = (): void => {
    if (scheduled || ended) return
    scheduled = true
    idle(moment)
  }

  const moment = (): void => {
    scheduled = false
    if (ended) return
    if (doomed) return end(doomed())
    if (fresh.some(isPoint)) return passPoints()
    if (due.length > 0) return handNext()
    if (fresh.length > 0 && holds.size === 0) beginFresh()
    if (ended) return
    if (running > 0) return publish()
    if (leaving) end({ kind: 'background' })
    else if (questions.size > 0 || events.size > 0) end({ kind: 'asking', questions, events })
    else if (held.length > 0) end({ kind: 'moved', reason: 'effect' })
    else {
      const sleeping = rest()
      if (sleeping) end(sleeping)
    }
  }

  /** The handler waits, and other work goes on: the client may answer meanwhile. */
  const publish = (): void => {
    if (unshown.size === 0) return
    const shown = [...questions].filter(([key]) => unshown.has(key))
    unshown.clear()
    options.publish(new Map(shown))
  }

  const handNext = (): void => {
    let first = 0
    for (let i = 1; i < due.length; i++) if (at(due, i).index < at(due, first).index) first = i
    for (const { index } of holds) if (index < at(due, first).index) return
    const next = at(due, first)
    due.splice(first, 1)
    now = Math.max(now, next.at)
    position = Math.max(position, next.index)
    next.hand()
    wake()
  }

  /**
   * Passes the points where the run may stop before anything is delivered, or stops there. The journal does not contain them,
   * so this is the only place that a replay finds again.
   */
  const passPoints = (): void => {
    const reason = frozen ? undefined : mayMove()
    if (reason !== undefined) return stop(reason)
    for (const point of fresh.filter(isPoint)) {
      fresh.splice(fresh.indexOf(point), 1)
      point.begin()
    }
    wake()
  }

  const stop = (reason: MoveReason): void => {
    if (running === 0)
      end(questions.size > 0 ? { kind: 'asking', questions, events } : { kind: 'moved', reason })
    else publish()
  }

  const beginFresh = (): void => {
    const reason = frozen ? frozenReason() : mayMove()
    if (reason !== undefined) return stop(reason)
    for (const work of fresh.splice(0)) {
      const error = work.check?.()
      if (error) return end({ kind: 'refused', error })
      if (work.leaving) leaving = true
      else if ((work.strict && !anchored) || (work.linear && !linear)) held.push(work)
      else work.begin()
    }
  }

  const frozenReason = (): MoveReason | undefined =>
    fresh.every((work) => work.leaving) ? undefined : 'drain'

  return {
    deliver(index, time, hand) {
      due.push({ index, at: time, hand })
      wake()
    },
    hold(index) {
      const hold = { index }
      holds.add(hold)
      return () => {
        holds.delete(hold)
        wake()
      }
    },
    enqueue(work) {
      fresh.push(work)
      wake()
    },
    busy() {
      running += 1
      return () => {
        running -= 1
        if (!ended) wake()
        else if (running === 0) settle(ended)
      }
    },
    open(key, question) {
      questions.set(key, question)
      unshown.add(key)
      wake()
    },
    wake,
    close(key) {
      questions.delete(key)
      unshown.delete(key)
    },
    anchor() {
      anchored = true
      fresh.push(...held.splice(0))
      wake()
    },
    listen(name) {
      events.add(name)
      wake()
    },
    heard: (name) => void events.delete(name),
    end,
    refuse: (error) => end({ kind: 'refused', error }),
    doom(error) {
      doomed = () => ({ kind: 'refused', error: error() })
      wake()
    },
    returned(value) {
      const [asked] = questions.keys()
      const left = asked ?? fresh[0]?.key ?? held[0]?.key
      if (left === undefined) return end({ kind: 'returned', value })
      const detail = `The handler returned while "${left}" was still open. Await it, and everything else it starts.`
      end({ kind: 'refused', error: new RondoError('REPLAY_NOT_AWAITED', detail) })
    },
    ended: () => ended !== undefined,
    position: () => position,
    now: () => now,
    ending,
  }
}

function isPoint({ passing }: Work): boolean {
  return passing === true
}

function at(list: readonly Delivery[], index: number): Delivery {
  return list[index] as Delivery
}

/**
 * One virtual time for everything that a schedule simulates. An event belongs to a process; while the event runs, and all
 * promise reactions that follow from it, that process is `current`, so the timers that it starts belong to it too. A process
 * that is killed loses its events; one that is frozen gets them late. Nothing here uses a real clock, a real timer or real
 * randomness: a seed determines the order of all events.
 */

export interface Process {
  readonly name: string
  /** Milliseconds by which its clock differs from the time of the world. */
  readonly skewMs: number
  alive: boolean
  frozenUntil: number
  /** When a request of it to the store failed last. */
  brokenAt: number
}

/** Random numbers of one purpose: what another purpose draws does not change them. */
export interface Dice {
  /** A number in [0, 1). */
  next(): number
  /** A whole number from `low` to `high`, both included. */
  int(low: number, high: number): number
  chance(probability: number): boolean
  pick<T>(list: readonly T[]): T
}

interface Event {
  at: number
  readonly order: number
  readonly owner: Process | undefined
  readonly run: () => void
  cancelled: boolean
}

export interface World {
  /** Milliseconds since 1970, with fractions. */
  now: number
  /** Events that have run. */
  events: number
  current: Process | undefined
  /** Whether something real is running that has to end before the next event. */
  busy: () => boolean
  dice(purpose: string): Dice
  /** Runs `run` after `ms` in the name of `owner`; returns a function that cancels it. */
  schedule(ms: number, owner: Process | undefined, run: () => void): () => void
  /** Resolves after `ms` for the process that calls it; never, if that process dies. */
  sleep(ms: number): Promise<void>
  /** Runs events until `done` returns true, or none is left, or the time is `until`. */
  run(until: number, done: () => boolean): Promise<void>
}

/** The longest time that a message between a process and the store takes, and a slow one. */
export const FAST_MS = 10
export const SLOW_MS = 8_000

/** Captured: the runtime under test gets timers of the world. */
const { setImmediate: nextTurn } = globalThis
/** The time between an event and what it leaves for the end of its turn. */
const TURN_MS = 0.01

export function createWorld(seed: number): World {
  const queue: Event[] = []
  const dice = new Map<string, Dice>()
  let order = 0

  const world: World = {
    now: Date.UTC(2026, 6, 28),
    events: 0,
    current: undefined,
    busy: () => false,
    dice(purpose) {
      const known = dice.get(purpose) ?? createDice(`${seed} ${purpose}`)
      dice.set(purpose, known)
      return known
    },
    schedule(ms, owner, run) {
      const event = { at: world.now + Math.max(ms, TURN_MS), order: order++, owner, run, cancelled: false }
      push(queue, event)
      return () => {
        event.cancelled = true
      }
    },
    sleep: (ms) => new Promise((resolve) => world.schedule(ms, world.current, resolve)),
    async run(until, done) {
      for (let event = pop(queue); event; event = pop(queue)) {
        const { owner, cancelled } = event
        if (cancelled || owner?.alive === false) continue
        if (owner && owner.frozenUntil > event.at) {
          push(queue, Object.assign(event, { at: owner.frozenUntil }))
          continue
        }
        if (event.at > until) return push(queue, event)
        world.now = Math.max(world.now, event.at)
        world.current = owner
        world.events++
        event.run()
        // Every promise reaction that can run has run when the next macrotask begins.
        do await new Promise((resolve) => nextTurn(resolve))
        while (world.busy())
        world.current = undefined
        if (done()) return
      }
    },
  }
  return world
}

function before(a: Event, b: Event): boolean {
  return a.at < b.at || (a.at === b.at && a.order < b.order)
}

/** Adds to a binary heap whose first event is the next one. */
function push(heap: Event[], event: Event): void {
  let at = heap.push(event) - 1
  while (at > 0) {
    const parent = (at - 1) >> 1
    const above = heap[parent] as Event
    if (!before(event, above)) break
    heap[at] = above
    at = parent
  }
  heap[at] = event
}

function pop(heap: Event[]): Event | undefined {
  const [first] = heap
  const last = heap.pop()
  if (!first || !last || heap.length === 0) return first
  let at = 0
  for (;;) {
    const left = 2 * at + 1
    const right = left + 1
    if (left >= heap.length) break
    const child = right < heap.length && before(heap[right] as Event, heap[left] as Event) ? right : left
    if (!before(heap[child] as Event, last)) break
    heap[at] = heap[child] as Event
    at = child
  }
  heap[at] = last
  return first
}

/** The generator sfc32, seeded from text. */
export function createDice(seed: string): Dice {
  let [a, b, c, d] = [1, 2, 3, 4].map((salt) => hashText(`${salt} ${seed}`)) as [
    number,
    number,
    number,
    number,
  ]
  const next = (): number => {
    const sum = (((a + b) | 0) + d) | 0
    d = (d + 1) | 0
    a = b ^ (b >>> 9)
    b = (c + (c << 3)) | 0
    c = ((c << 21) | (c >>> 11)) + sum
    return (sum >>> 0) / 2 ** 32
  }
  for (let i = 0; i < 12; i++) next()
  const int = (low: number, high: number): number => low + Math.floor(next() * (high - low + 1))
  return {
    next,
    int,
    chance: (probability) => next() < probability,
    pick: (list) => list[int(0, list.length - 1)] as (typeof list)[number],
  }
}

/** FNV-1a, 32 bits. */
export function hashText(text: string): number {
  let hash = 0x811c9dc5
  for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193)
  return hash >>> 0
}

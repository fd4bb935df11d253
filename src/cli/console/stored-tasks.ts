/**
 * Follows the tasks in the stores of the instances: what a store knows and no log says, such as when a task that sleeps is
 * due. Looks when something happened to a task, and regularly while one is open.
 */

import type { Book } from './book.ts'
import type { StoredTask } from './event.ts'
import type { LocalFleet } from './fleet.ts'
import type { ConsoleProxy } from './proxy.ts'

export interface FollowOptions {
  readonly fleet: Pick<LocalFleet, 'look'>
  readonly proxy: Pick<ConsoleProxy, 'pollsOf'>
  readonly book: Book
  /** Asks for a task as its owner, so that its questions are seen. */
  look(id: string): Promise<unknown>
}

const OPEN: readonly string[] = ['working', 'input_required']
const SOON_MS = 60
const EVERY_MS = 700

/** Returns a function that stops it. */
export function followTasks({ fleet, proxy, book, look }: FollowOptions): () => void {
  const known = new Map<string, string>()
  const asked = new Map<string, string>()
  let timer: NodeJS.Timeout | undefined
  let due = Number.POSITIVE_INFINITY
  let looking: Promise<unknown> = Promise.resolve()
  let stopped = false

  function note(task: StoredTask): void {
    const polls = proxy.pollsOf(task.id)
    const whole = polls ? { ...task, polls } : task
    const text = JSON.stringify(whole)
    if (known.get(task.id) === text) return
    known.set(task.id, text)
    book.add({ kind: 'stored', task: whole })
    const questions = task.openKeys.join()
    if (questions !== '' && asked.get(task.id) !== questions) {
      // Another caller's task stays unread; what it waits for is shown all the same.
      look(task.id).catch(() => {})
    }
    asked.set(task.id, questions)
  }

  async function run(): Promise<void> {
    const seen = new Map<string, StoredTask>()
    let missed = false
    const looks = fleet.look().map(async (look) => {
      const tasks = await look
      missed ||= tasks === undefined
      for (const task of [...(tasks ?? [])].reverse()) {
        if (!stopped) note(task)
        seen.set(task.id, task)
      }
    })
    await Promise.all(looks)
    // An instance that was too busy may have an open task, and no event says when that one changes.
    if (missed) return soon(EVERY_MS)
    for (const id of known.keys()) {
      if (seen.has(id)) continue
      known.delete(id)
      asked.delete(id)
    }
    if ([...seen.values()].some(({ status }) => OPEN.includes(status))) soon(EVERY_MS)
  }

  /** Looks in this time at the latest, after the look that is under way. */
  function soon(ms: number): void {
    const at = Date.now() + ms
    if (stopped || at >= due) return
    clearTimeout(timer)
    due = at
    timer = setTimeout(() => {
      due = Number.POSITIVE_INFINITY
      looking = looking.then(run, run)
    }, ms)
    timer.unref()
  }
  const unwatch = book.watch((event) => {
    const isTask =
      event.kind === 'task'
        ? event.event.kind !== 'queue'
        : event.kind === 'round' && event.round.task !== undefined
    if (isTask) soon(SOON_MS)
  })
  soon(0)
  return () => {
    stopped = true
    unwatch()
    clearTimeout(timer)
  }
}

/**
 * Watches tasks for their owners: changes made by this process are reported at once, others after a hint or a poll.
 *
 * A listener gets the current view first, so that no change is missed, and then only views with a higher revision. A
 * poll is one small query for all watched tasks; nothing is polled while no task is watched.
 */

import { repeat, type StoreClock } from '../../lib/clock.ts'
import type { EmitEngineEvent, TaskEngine, TaskOwner, TaskView, WatchTask } from '../task-engine.ts'
import type { TaskStore } from '../task-store.ts'

interface Watcher {
  readonly id: string
  readonly owner: TaskOwner
  readonly listener: WatchTask
  readonly read: TaskStore['get']
  /** The last revision that the listener saw; 0 before the first. */
  revision: number
  closed: boolean
}

/** Returns how to watch with a given way to read a task. All watchers share one poll. */
export function createWatch(
  store: Pick<TaskStore, 'onHint' | 'revisions'>,
  clock: StoreClock,
  pollMs: number,
  emit: EmitEngineEvent,
): (read: TaskStore['get']) => TaskEngine['watch'] {
  const watchers = new Map<string, Set<Watcher>>()
  let stopAll: (() => void) | undefined
  let pending: Set<string> | 'all' | undefined
  let busy = false

  const close = (watcher: Watcher) => {
    watcher.closed = true
    const others = watchers.get(watcher.id)
    others?.delete(watcher)
    if (others?.size === 0) watchers.delete(watcher.id)
    if (watchers.size > 0) return
    stopAll?.()
    stopAll = undefined
  }
  const showView = (watcher: Watcher, view: TaskView | undefined) => {
    if (watcher.closed || (view !== undefined && view.revision <= watcher.revision)) return
    if (view === undefined) close(watcher)
    else watcher.revision = view.revision
    watcher.listener(watcher.id, view)
  }
  const readView = async (watcher: Watcher) =>
    showView(watcher, await watcher.read(watcher.id, watcher.owner))

  const refresh = async () => {
    if (busy) return
    busy = true
    try {
      while (pending !== undefined) await refreshPending()
    } catch (error) {
      emit({ kind: 'store-error', during: 'watch', error })
    } finally {
      busy = false
    }
  }
  const refreshPending = async () => {
    const ids =
      pending === 'all' ? [...watchers.keys()] : [...(pending ?? [])].filter((id) => watchers.has(id))
    pending = undefined
    const revisions = ids.length > 0 ? await store.revisions(ids) : new Map<string, number>()
    const stale = ids
      .flatMap((id) => [...(watchers.get(id) ?? [])])
      .filter((watcher) => revisions.get(watcher.id) !== watcher.revision)
    await Promise.all(stale.map(readView))
  }
  const request = (what: string | 'all') => {
    if (what === 'all' || pending === 'all') pending = 'all'
    else pending = (pending ?? new Set()).add(what)
    void refresh()
  }
  const startAll = () => {
    const stopHints = store.onHint((hint) => {
      if (hint.kind !== 'changed') return
      if (hint.id === undefined) request('all')
      else if (watchers.has(hint.id)) request(hint.id)
    })
    const stopPoll = repeat(
      clock,
      () => pollMs,
      () => request('all'),
    )
    return () => {
      stopHints()
      stopPoll()
    }
  }
  return (read) => async (ids, owner, listener) => {
    const mine = ids.map((id): Watcher => ({ id, owner, listener, read, revision: 0, closed: false }))
    stopAll ??= startAll()
    for (const watcher of mine) {
      const others = watchers.get(watcher.id) ?? new Set()
      watchers.set(watcher.id, others.add(watcher))
    }
    const stop = () => mine.forEach(close)
    try {
      await Promise.all(mine.map(readView))
    } catch (error) {
      stop()
      throw error
    }
    return stop
  }
}

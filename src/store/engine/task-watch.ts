/**
 * Tells listeners about changes of tasks: at once for those made in this process, by hint or by polling for others.
 *
 * A listener first gets the view as it is, so nothing is missed between looking and watching; after that only views
 * with a higher revision. It costs one small query per poll, whatever the number of tasks watched, and none if none is.
 */

import { repeat, type StoreClock } from '../../lib/clock.ts'
import type { OnEngineEvent, TaskOwner, TaskView, WatchTask } from '../task-engine.ts'
import type { TaskStore } from '../task-store.ts'

interface Watcher {
  readonly id: string
  readonly owner: TaskOwner
  readonly listener: WatchTask
  /** The last revision told; 0 before the first. */
  revision: number
  closed: boolean
}

export interface TaskWatch {
  watch(ids: readonly string[], owner: TaskOwner, listener: WatchTask): Promise<() => void>
}

export function createTaskWatch(
  store: TaskStore,
  get: TaskStore['get'],
  clock: StoreClock,
  pollMs: number,
  tell: OnEngineEvent,
): TaskWatch {
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
  const tellView = (watcher: Watcher, view: TaskView | undefined) => {
    if (watcher.closed || (view !== undefined && view.revision <= watcher.revision)) return
    if (view === undefined) close(watcher)
    else watcher.revision = view.revision
    watcher.listener(watcher.id, view)
  }
  const look = async (watcher: Watcher) => tellView(watcher, await get(watcher.id, watcher.owner))

  const refresh = async () => {
    if (busy) return
    busy = true
    try {
      while (pending !== undefined) await refreshPending()
    } catch (error) {
      tell({ kind: 'store-error', during: 'watch', error })
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
    await Promise.all(stale.map(look))
  }
  const ask = (what: string | 'all') => {
    if (what === 'all' || pending === 'all') pending = 'all'
    else pending = (pending ?? new Set()).add(what)
    void refresh()
  }
  const startAll = () => {
    const stopHints = store.onHint((hint) => {
      if (hint.kind !== 'changed') return
      if (hint.id === undefined) ask('all')
      else if (watchers.has(hint.id)) ask(hint.id)
    })
    const stopPoll = repeat(
      clock,
      () => pollMs,
      () => ask('all'),
    )
    return () => {
      stopHints()
      stopPoll()
    }
  }
  return {
    async watch(ids, owner, listener) {
      const mine = ids.map((id): Watcher => ({ id, owner, listener, revision: 0, closed: false }))
      stopAll ??= startAll()
      for (const watcher of mine) {
        const others = watchers.get(watcher.id) ?? new Set()
        watchers.set(watcher.id, others.add(watcher))
      }
      const stop = () => mine.forEach(close)
      try {
        await Promise.all(mine.map(look))
      } catch (error) {
        stop()
        throw error
      }
      return stop
    },
  }
}

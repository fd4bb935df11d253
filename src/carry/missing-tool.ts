/**
 * A task whose tool this instance does not have. While releases change, another instance may have it, so the task is left
 * to others for a while before it ends.
 */

const PATIENCE_MS = 15 * 60_000
/** Forgetting one only makes us wait longer. */
const MAX_REMEMBERED = 1000

/** Tells whether a task is still worth waiting for. */
export function createMissingTools(now: () => number): (taskId: string) => boolean {
  const firstSeen = new Map<string, number>()
  return (taskId) => {
    const since = firstSeen.get(taskId) ?? now()
    firstSeen.delete(taskId)
    if (now() - since >= PATIENCE_MS) return false
    firstSeen.set(taskId, since)
    const [oldest] = firstSeen.keys()
    if (firstSeen.size > MAX_REMEMBERED && oldest !== undefined) firstSeen.delete(oldest)
    return true
  }
}

/**
 * Notifications about all tasks that a client follows, in as few streams as possible. The filter of a subscription cannot be changed,
 * so a stream with room is replaced by one that has the new tasks as well.
 *
 * stream 1: A stream is opened at most every `PAUSE_MS`, for all tasks that have come meanwhile. Shorter tasks are polled.
 * stream 2: A stream is closed after the one that replaces it was acknowledged, so no notification falls between them.
 * stream 3: Tasks without a stream are polled: nothing here fails a call.
 */

import { sleep } from '../../lib/clock.ts'
import type { Peer, SendOptions, TaskFollower, TaskStreams } from '../port.ts'
import { type Subscription, subscribe } from '../subscribe.ts'

interface Stream {
  readonly followers: Set<TaskFollower>
  readonly subscription: Subscription
}

/** The tasks of calls that declare the same capabilities. */
interface Group {
  readonly capabilities: SendOptions['capabilities']
  readonly waiting: Set<TaskFollower>
  /** The streams of the tasks that are not waiting. */
  readonly streams: Map<TaskFollower, Stream>
  newest?: Stream
  /** Whether a stream is being opened, or was opened just now. */
  busy: boolean
}

/** Tasks of one stream. Servers limit the size of a subscription. */
const MAX_TASKS = 128
const PAUSE_MS = 100

export function createTaskStreams(peer: Peer): TaskStreams {
  const groups = new Map<string, Group>()

  const leave = (group: Group, follower: TaskFollower): void => {
    group.waiting.delete(follower)
    const stream = group.streams.get(follower)
    group.streams.delete(follower)
    stream?.followers.delete(follower)
    if (stream?.followers.size === 0) stream.subscription.close()
  }

  /** Opens a stream for the tasks that wait, and for those of the newest stream if it has room. */
  const open = async (group: Group): Promise<void> => {
    const { capabilities, newest } = group
    const former = newest !== undefined && newest.followers.size < MAX_TASKS ? newest : undefined
    const added = [...group.waiting].slice(0, MAX_TASKS - (former?.followers.size ?? 0))
    for (const follower of added) group.waiting.delete(follower)
    const followers = new Set([...(former?.followers ?? []), ...added])
    const taskIds = [...new Set([...followers].map(({ taskId }) => taskId))]
    const subscription = subscribe(peer, { taskIds }, { signal: peer.closed, capabilities })
    const stream: Stream = { followers, subscription }
    for (const follower of added) group.streams.set(follower, stream)
    try {
      const { taskIds: agreed = [] } = await subscription.filter
      for (const follower of [...followers]) {
        // It may have left its former stream since.
        if (!group.streams.has(follower)) followers.delete(follower)
        else group.streams.set(follower, stream)
        if (group.streams.has(follower)) follower.live(agreed.includes(follower.taskId))
      }
      group.newest = stream
      former?.subscription.close()
      if (followers.size === 0) subscription.close()
      void deliver(group, stream)
    } catch {
      for (const follower of added) group.streams.delete(follower)
    }
  }

  /** Passes on the notifications of a stream until it ends. */
  const deliver = async (group: Group, { followers, subscription }: Stream): Promise<void> => {
    try {
      for await (const change of subscription) {
        if (change.kind !== 'task') continue
        for (const follower of [...followers])
          if (follower.taskId === change.task.taskId) follower.changed(change.task)
      }
    } catch {
      // The tasks are polled.
    }
    if (group.newest?.subscription === subscription) group.newest = undefined
    for (const follower of [...followers]) {
      if (group.streams.get(follower)?.subscription !== subscription) continue
      group.streams.delete(follower)
      follower.live(false)
    }
  }

  const openAll = async (group: Group): Promise<void> => {
    group.busy = true
    // Calls that begin at the same time share a stream.
    await undefined
    try {
      while (group.waiting.size > 0) {
        await open(group)
        await sleep(peer.clock, PAUSE_MS, peer.closed)
      }
    } catch {
      // The client was closed.
    } finally {
      group.busy = false
    }
  }

  return {
    follow(follower, capabilities) {
      const key = JSON.stringify(capabilities ?? null)
      const group = groups.get(key) ?? { capabilities, waiting: new Set(), streams: new Map(), busy: false }
      groups.set(key, group)
      group.waiting.add(follower)
      if (!group.busy) void openAll(group)
      return () => leave(group, follower)
    },
  }
}

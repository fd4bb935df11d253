/**
 * A subscription at an older server, which has no request for it. Changes of lists arrive unasked where the server declared
 * them; a resource is watched with `resources/subscribe`, once for all subscriptions.
 */

import { RondoError } from '../../errors.ts'
import { isRecord } from '../../lib/json.ts'
import type { ListenFilter } from '../../protocol/call.ts'
import type { Notice } from '../../protocol/reply.ts'
import type { SendOptions } from '../peer.ts'
import type { Inbox } from './inbox.ts'
import type { SessionLink } from './send.ts'

export interface Watches {
  add(uris: readonly string[]): Promise<void>
  remove(uris: readonly string[]): Promise<void>
  /** For a new session, which watches nothing. */
  reset(): void
}

export function createWatches(ask: (method: string, params: { uri: string }) => Promise<unknown>): Watches {
  const counts = new Map<string, number>()
  return {
    async add(uris) {
      for (const uri of uris) {
        const count = counts.get(uri) ?? 0
        counts.set(uri, count + 1)
        if (count === 0) await ask('resources/subscribe', { uri })
      }
    },
    async remove(uris) {
      for (const uri of uris) {
        const count = counts.get(uri)
        if (count === undefined) continue
        if (count > 1) counts.set(uri, count - 1)
        else {
          counts.delete(uri)
          await ask('resources/unsubscribe', { uri })
        }
      }
    },
    reset: () => counts.clear(),
  }
}

interface Parts {
  readonly link: SessionLink
  readonly inbox: Inbox
  readonly watches: Watches
  /** Called when the stream was lost or the session was replaced. */
  readonly gaps: Set<() => void>
  readonly capabilities: Readonly<Record<string, unknown>>
}

/** Reports changes until the signal is aborted or some may have been missed. */
export async function listen(
  { link, inbox, watches, gaps, capabilities }: Parts,
  filter: ListenFilter,
  { signal = link.signal, onNotice }: Pick<SendOptions, 'signal' | 'onNotice'>,
): Promise<never> {
  const agreed = agreeOn(filter, capabilities)
  const uris = agreed.resourceSubscriptions ?? []
  const ended = AbortSignal.any([signal, link.signal])
  let stop = () => {}
  const over = new Promise<never>((_, reject) => {
    if (ended.aborted) return reject(ended.reason)
    const abort = () => reject(ended.reason)
    const onGap = () => reject(new RondoError('PEER_GONE', 'Changes may have been missed'))
    ended.addEventListener('abort', abort)
    gaps.add(onGap)
    const remove = inbox.onChange((notice) => {
      if (isWanted(notice, agreed)) onNotice?.(notice)
    })
    stop = () => {
      ended.removeEventListener('abort', abort)
      gaps.delete(onGap)
      remove()
    }
  })
  try {
    await Promise.race([watches.add(uris), over])
    onNotice?.({ kind: 'subscribed', filter: agreed })
    return await over
  } finally {
    stop()
    if (!link.signal.aborted) watches.remove(uris).catch(() => {})
  }
}

/** The part of the filter that the server can report. */
function agreeOn(filter: ListenFilter, capabilities: Readonly<Record<string, unknown>>): ListenFilter {
  const has = (what: string, flag: string) =>
    isRecord(capabilities[what]) && (capabilities[what] as Record<string, unknown>)[flag] === true
  const uris = filter.resourceSubscriptions
  return {
    ...(filter.toolsListChanged && has('tools', 'listChanged') && { toolsListChanged: true }),
    ...(filter.promptsListChanged && has('prompts', 'listChanged') && { promptsListChanged: true }),
    ...(filter.resourcesListChanged && has('resources', 'listChanged') && { resourcesListChanged: true }),
    ...(uris && has('resources', 'subscribe') && { resourceSubscriptions: uris }),
    // Such a server may notify of tasks, and need not.
    ...(filter.taskIds && isRecord(capabilities.tasks) && { taskIds: filter.taskIds }),
  }
}

function isWanted(notice: Notice, filter: ListenFilter): boolean {
  switch (notice.kind) {
    case 'tools':
      return filter.toolsListChanged === true
    case 'prompts':
      return filter.promptsListChanged === true
    case 'resources':
      return filter.resourcesListChanged === true
    case 'task':
      return filter.taskIds?.includes(notice.task.taskId) === true
    case 'resource':
      return filter.resourceSubscriptions?.includes(notice.uri) === true
    default:
      return false
  }
}

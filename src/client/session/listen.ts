/** Reports changes at an older server until nobody wants them any more, or until some may have been missed. */

import { RondoError } from '../../errors.ts'
import type { ListenFilter } from '../../protocol/call.ts'
import type { Notice } from '../../protocol/received.ts'
import type { Inbox } from './inbox.ts'
import type { Link } from './link.ts'
import { agreeOn, isWanted, type Watches } from './watch.ts'

export interface Listening {
  readonly signal?: AbortSignal
  readonly onNotice?: (notice: Notice) => unknown
}

interface Parts {
  readonly link: Link
  readonly inbox: Inbox
  readonly watches: Watches
  /** Called when the stream was lost or the session is new. */
  readonly gaps: Set<() => void>
  readonly capabilities: Readonly<Record<string, unknown>>
}

export async function listen(
  { link, inbox, watches, gaps, capabilities }: Parts,
  filter: ListenFilter,
  { signal = link.signal, onNotice }: Listening,
): Promise<never> {
  const agreed = agreeOn(filter, capabilities)
  const uris = agreed.resourceSubscriptions ?? []
  const ended = AbortSignal.any([signal, link.signal])
  let stop = () => {}
  const over = new Promise<never>((_, reject) => {
    if (ended.aborted) return reject(ended.reason)
    const abort = () => reject(ended.reason)
    const lose = () => reject(new RondoError('PEER_GONE', 'Changes may have been missed'))
    ended.addEventListener('abort', abort)
    gaps.add(lose)
    const quiet = inbox.onChange((notice) => {
      if (isWanted(notice, agreed)) onNotice?.(notice)
    })
    stop = () => {
      ended.removeEventListener('abort', abort)
      gaps.delete(lose)
      quiet()
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

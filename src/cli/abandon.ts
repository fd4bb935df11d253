/**
 * `rondo abandon`: gives pending calls up. Between rounds the server holds nothing and is not told; a task it works on is
 * cancelled.
 */

import { PeerError } from '../client/peer-error.ts'
import { JSON_OPTION, openStore } from './call-session.ts'
import type { Command, Invocation } from './command.ts'
import { usageError } from './command-error.ts'
import { CONNECT_OPTIONS, openConnection } from './connection.ts'
import { printJson, tell } from './io.ts'
import type { PendingStore } from './pending-store.ts'
import { SEAL_OPTIONS } from './seal-key.ts'

export const abandonCommand: Command = {
  name: 'abandon',
  usage: '<id> [id …]',
  summary: 'gives pending calls up; a task is cancelled',
  options: {
    keep: { type: 'boolean', help: 'lets the server go on with a task' },
    ...JSON_OPTION,
    ...SEAL_OPTIONS,
    ...CONNECT_OPTIONS,
  },
  async run(invocation) {
    const { io, words, options } = invocation
    if (words.length === 0)
      throw usageError('Name the pending calls by their ids. "rondo pending" lists them')
    const store = openStore(invocation)
    const ids = words.map((word) => store.find(word))
    for (const id of ids) {
      const release = store.claim(id)
      try {
        if (!options.flag('keep')) await cancelTask(invocation, store, id)
        store.remove(id)
      } finally {
        release()
      }
    }
    if (options.flag('json')) printJson(io, { abandoned: ids })
    else tell(io, `Given up: ${ids.join(', ')}`)
    return 'done'
  },
}

const UNKNOWN_TASK = -32602

async function cancelTask({ io, options }: Invocation, store: PendingStore, id: string): Promise<void> {
  // A file that cannot be read any more can still be given up.
  const call = store.list().find((one) => one.id === id)?.call
  if (call?.pending.task === undefined) return
  const { client, close } = await openConnection(io, call.target, options, {
    version: call.pending.protocolVersion,
  })
  try {
    await client.task(call.pending.task.taskId).cancel()
  } catch (error) {
    // One that the server does not know any more has ended.
    if (!(error instanceof PeerError) || error.peer.code !== UNKNOWN_TASK) throw error
  } finally {
    await close()
  }
}

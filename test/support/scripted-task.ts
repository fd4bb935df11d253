/** Tasks of a scripted server, and a client that polls them on a clock of the test. */

import type { ConnectOptions } from '../../packages/rondo/src/client.ts'
import type { ElicitResult } from '../../packages/rondo/src/protocol/wire.ts'
import type { createManualClock } from './manual-clock.ts'
import {
  formQuestion,
  type Said,
  type ScriptedServer,
  type Seen,
  said,
  scriptServer,
} from './scripted-server.ts'

const AT = '2026-07-28T00:00:00.000Z'

/** A task in some status, with whatever belongs to it. */
export const task = (status: string, more: object = {}) => ({
  resultType: 'complete',
  taskId: 'task-1',
  status,
  createdAt: AT,
  lastUpdatedAt: AT,
  ttlMs: 60_000,
  pollIntervalMs: 1_000,
  ...more,
})

export const created = (more: object = {}) => ({ ...task('working'), resultType: 'task', ...more })
export const asks = (inputRequests: object) => task('input_required', { inputRequests })
export const completed = (text: string) => task('completed', { result: said(text) })
export const ACK = { resultType: 'complete' }

export const EXTENSIONS = { 'io.modelcontextprotocol/tasks': {} }
export const question = formQuestion('Which?', 'x')
export const yes = (): ElicitResult => ({ action: 'accept', content: { x: 'y' } })

/** A client that polls its tasks and answers their questions. */
export const polling = (more: ConnectOptions = {}): ConnectOptions => ({
  answers: { elicitation: { form: yes } },
  tasks: 'poll',
  random: () => 0,
  ...more,
})

export const methods = (seen: readonly Seen[]): string[] => seen.map(({ method }) => method)
export const capabilities = ({ meta }: Seen): unknown => meta['io.modelcontextprotocol/clientCapabilities']

/** A server whose tool call becomes a task; `states` are what successive polls return. */
export function taskServer(...states: (Said | ((seen: Seen) => Said))[]): ScriptedServer {
  let look = 0
  return scriptServer((seen) => {
    if (seen.method === 'tools/call') return created()
    if (seen.method !== 'tasks/get') return ACK
    const state = states[Math.min(look++, states.length - 1)] ?? ACK
    return typeof state === 'function' ? state(seen) : state
  })
}

/** Runs a call on a clock that jumps to the next timer. */
export async function rush<T>(
  work: Promise<T>,
  clock: ReturnType<typeof createManualClock>,
  ms = 1_000,
): Promise<T> {
  let done = false
  const end = work.finally(() => {
    done = true
  })
  end.catch(() => {})
  for (let i = 0; i < 5_000 && !done; i++) {
    await new Promise((resolve) => setImmediate(resolve))
    if (!done && clock.open > 0) clock.advance(ms)
  }
  return end
}

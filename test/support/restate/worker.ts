/**
 * A worker process that tests kill and freeze. Its effects are applied by the parent, which acts as a service that honours
 * idempotency keys, and it reports every entry and every end that Restate accepted.
 *
 * It does not notice that Restate dropped its connection, as if it were frozen in between: only the epoch keeps it from
 * writing to a task that another worker has.
 */

import { assembleStore } from '../../../packages/restate/src/store.ts'
import { createTaskObject, type TaskHandlers } from '../../../packages/restate/src/task-object.ts'
import type { RunTurn } from '../../../packages/rondo/src/store/task-engine.ts'

export interface RestateWorkerOptions {
  readonly ingress: readonly string[]
  readonly admin: readonly string[]
  readonly namespace: string
  readonly url: string
  readonly port: number
  readonly identityKey: string
  readonly maxFailures: number
  /** False: the objects accept every write, whatever its epoch. */
  readonly fenced: boolean
}

/** The head of a task, as JSON. */
export interface RestatePlan {
  readonly steps: number
  readonly stepMs: number
  /** The step before which it asks, and the one before which it sleeps. */
  readonly askAt?: number
  readonly sleepAt?: number
  /** Kills its process in every attempt. */
  readonly poison?: true
}

export type FromRestateWorker =
  | { readonly kind: 'ready' }
  | { readonly kind: 'began'; readonly id: string; readonly step: number }
  | { readonly kind: 'apply'; readonly n: number; readonly key: string }
  | { readonly kind: 'recorded'; readonly id: string; readonly step: number }
  | { readonly kind: 'settled'; readonly id: string }

export type ToRestateWorker =
  | { readonly kind: 'applied'; readonly n: number; readonly value: number }
  | { readonly kind: 'stop' }

const SLEEP_MS = 300

const options = JSON.parse(process.argv[2] ?? '') as RestateWorkerOptions
const send = (message: FromRestateWorker) => void process.send?.(message)
const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms))

let calls = 0
const waiting = new Map<number, (value: number) => void>()
const apply = (key: string) =>
  new Promise<number>((resolve) => {
    const n = calls++
    waiting.set(n, resolve)
    send({ kind: 'apply', n, key })
  })

const run: RunTurn = async (turn) => {
  const { id, head } = turn.task
  const plan = JSON.parse(head) as RestatePlan
  const entries = turn.journal.map((entry) => JSON.parse(entry) as { value?: number; due?: number })
  const values = entries.flatMap(({ value }) => (value === undefined ? [] : [value]))
  let due = entries.find((entry) => entry.due !== undefined)?.due
  for (let step = values.length; step < plan.steps; step++) {
    if (plan.askAt === step && !turn.answers.has('go'))
      return { kind: 'park', inputs: new Map([['go', 'on?']]) }
    if (plan.sleepAt === step) {
      if (due === undefined) {
        due = turn.claimedAt + SLEEP_MS
        await turn.record(JSON.stringify({ due }))
      }
      if (turn.claimedAt < due) return { kind: 'park', inputs: new Map(), wakeAt: due }
    }
    send({ kind: 'began', id, step })
    if (plan.poison) process.kill(process.pid, 'SIGKILL')
    await pause(plan.stepMs)
    const value = await apply(`${id}/${step}`)
    await pause(plan.stepMs)
    await turn.record(JSON.stringify({ value }))
    send({ kind: 'recorded', id, step })
    values.push(value)
  }
  return { kind: 'complete', result: JSON.stringify(values) }
}

/** The fields of a task's state that are needed to ignore the epoch. */
interface RawTask {
  readonly entries: number
  readonly row: { readonly epoch: number }
}

/** The objects without the check of the epoch: an entry replaces the one in its place, and every end is accepted. */
function unfenced(strict: TaskHandlers): TaskHandlers {
  return {
    ...strict,
    held: async () => ({ held: true, revision: 0 }),
    async append(ctx, { from, entries }) {
      const stored = await ctx.get<RawTask>('row')
      if (stored === null) return false
      ctx.set(`journal.${String(from).padStart(9, '0')}`, entries)
      ctx.set('row', { ...stored, entries: Math.max(stored.entries, from + entries.length) })
      return true
    },
    async settle(ctx, input) {
      const stored = await ctx.get<RawTask>('row')
      await strict.settle(ctx, { ...input, epoch: stored?.row.epoch ?? 0 })
      return true
    },
  }
}

const { ingress, admin, namespace, url, port, identityKey, maxFailures, fenced } = options
const store = assembleStore(
  { ingress, admin, namespace, retryMs: 60_000, endpoint: { port, url, identityKeys: [identityKey] } },
  {
    defineTask: (names) => (fenced ? createTaskObject(names) : unfenced(createTaskObject(names))),
    deliver: (deliver) => (wake) => deliver(wake, new AbortController().signal),
  },
)
const engine = store.createEngine({
  maxFailures,
  statsMs: 0,
  onEvent(event) {
    if (event.kind === 'turn' && event.outcome === 'complete') send({ kind: 'settled', id: event.id })
  },
})
const serving = await engine.serve(run, { concurrency: 16 })
process.on('message', async (message: ToRestateWorker) => {
  if (message.kind === 'applied') return waiting.get(message.n)?.(message.value)
  await serving.stop()
  await store.close()
  process.exit()
})
process.on('disconnect', () => process.exit())
send({ kind: 'ready' })

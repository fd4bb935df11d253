/**
 * A worker process that tests kill and freeze. Its effects are applied by the parent, which acts as a service that
 * honours idempotency keys.
 */

import { type StoreClock, storeClock } from '../../../packages/rondo/src/lib/clock.ts'
import { createLeaseEngine } from '../../../packages/rondo/src/store/engine/lease-engine.ts'
import { createPostgresStore } from '../../../packages/rondo/src/store/postgres/store.ts'
import { createSqliteStore } from '../../../packages/rondo/src/store/sqlite/store.ts'
import type { Store } from '../../../packages/rondo/src/store/store.ts'
import type { RunTurn, TaskTurnOutcome } from '../../../packages/rondo/src/store/task-engine.ts'
import { alice, answers, inputs, newTask, type StoreAddress } from './store-harness.ts'
import { openUnfenced, openUnguarded } from './unfenced-store.ts'
import type {
  Entry,
  EventEntry,
  FromWorker,
  Plan,
  ToWorker,
  WaitEntry,
  WorkerOptions,
} from './worker-plan.ts'

const options = JSON.parse(process.argv[2] ?? '') as WorkerOptions
const send = (message: FromWorker) => void process.send?.(message)
const sleep = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms))

/**
 * A clock that does not notice when it was stopped, as in a virtual machine that was suspended: then only the store
 * keeps a late worker from writing to the task.
 */
function createBlindClock(): StoreClock {
  let last = performance.now()
  let time = 0
  const elapsed = () => {
    const now = performance.now()
    time += Math.min(now - last, 200)
    last = now
    return time
  }
  return { ...storeClock, elapsed }
}

let calls = 0
const waiting = new Map<number, (value: number) => void>()
const apply = (key: string, notBefore?: number) =>
  new Promise<number>((resolve) => {
    const n = calls++
    waiting.set(n, resolve)
    send({ kind: 'apply', n, key, notBefore })
  })

const run: RunTurn = async (turn) => {
  const plan = JSON.parse(turn.task.head) as Plan
  const records = turn.journal.map((entry) => JSON.parse(entry) as Entry | WaitEntry | EventEntry)
  const values = records.flatMap((record) => ('value' in record ? [record.value] : []))
  let due = records.find((record) => 'due' in record)?.due
  let event = records.find((record) => 'event' in record)?.event
  for (let step = values.length; step < plan.steps; step++) {
    if (plan.askAt === step && !turn.answers.has('go')) return { kind: 'park', inputs: inputs('go') }
    if (plan.sleepAt === step || plan.expireAt === step) {
      if (due === undefined) {
        due = turn.claimedAt + (plan.waitMs ?? 0)
        await turn.record(JSON.stringify({ due, pid: process.pid } satisfies WaitEntry))
      }
      if (turn.claimedAt < due) return waitUntil(plan.expireAt === step, due, turn.slots().length > 0)
    }
    if (plan.hookAt === step && event === undefined) {
      const hook = turn.slots().find(({ role }) => role === 'hook')
      if (hook === undefined) await turn.publish({ open: [{ key: 'paid', role: 'hook', request: 'event' }] })
      if (hook?.kind !== 'answered') return { kind: 'park', inputs: inputs() }
      event = hook.answer
      await turn.record(JSON.stringify({ event, pid: process.pid } satisfies EventEntry))
    }
    send({ kind: 'began', id: turn.task.id, step })
    if (plan.poison) process.kill(process.pid, 'SIGKILL')
    await sleep(plan.stepMs)
    const value = await apply(`${turn.task.id}/${step}`, due)
    await sleep(plan.stepMs)
    const entry: Entry = { step, value, pid: process.pid }
    await turn.record(JSON.stringify(entry))
    values.push(value)
  }
  return { kind: 'complete', result: JSON.stringify(event === undefined ? values : [...values, event]) }
}

/** Parks until a time, with a question that closes then if it asks one. */
function waitUntil(asks: boolean, due: number, isAsked: boolean): TaskTurnOutcome {
  const open = asks && !isAsked ? inputs('late') : inputs()
  return { kind: 'park', inputs: open, until: new Map([['late', due]]), wakeAt: due }
}

function open(address: StoreAddress): Store {
  if (!options.fenced) return openUnfenced(address)
  if (options.guarded === false) return openUnguarded(address)
  if (address.kind === 'sqlite') return createSqliteStore({ file: address.file })
  const { connectionString, schema } = address
  return createPostgresStore({ connectionString, schema, retryMs: 20_000 })
}

const store = open(options.address)
const { leaseMs, maxFailures, concurrency } = options
const engine = createLeaseEngine(store, {
  leaseMs,
  maxFailures,
  pollMs: 100,
  maxOpenTasks: Number.POSITIVE_INFINITY,
  worker: `pid:${process.pid}`,
  clock: createBlindClock(),
})

process.on('message', async (message: ToWorker) => {
  if (message.kind === 'applied') waiting.get(message.n)?.(message.value)
  if (message.kind === 'stop') {
    await serving.stop()
    await store.close()
    process.exit()
  }
  // A message that could not be written is sent again.
  if (message.kind === 'answer')
    await engine
      .deliver(message.id, alice, answers({ go: 'yes', ...(message.late ? { late: 'too late' } : {}) }))
      .catch(() => 'lost')
  if (message.kind === 'deliver') {
    const { n, id, event } = message
    const outcome = await engine.deliverHook(id, alice, 'paid', event).catch(() => 'lost' as const)
    send({ kind: 'delivered', n, outcome })
  }
  if (message.kind === 'create') {
    const { id, plan } = message
    await engine.create(newTask({ id, head: JSON.stringify(plan) })).then(
      () => send({ kind: 'created', id }),
      () => send({ kind: 'failed', id }),
    )
  }
})
const serving = await engine.serve(run, { concurrency })
send({ kind: 'ready' })

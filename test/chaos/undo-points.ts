/**
 * A call whose effects can be undone, on an instance that dies at a chosen point: before or after any operation of the store, any
 * effect and any undo. Another instance continues; the client sends its request again, or is gone. In the end nothing may be left
 * of a call that did not end well.
 */

import { createServer, type Server, ToolError } from 'rondo'
import { createMemoryStore } from '../../packages/rondo/src/store/memory/store.ts'
import type { Store } from '../../packages/rondo/src/store/store.ts'
import { send } from '../support/task-client.ts'

export type Ending = 'yes' | 'no' | 'fails' | 'gone' | 'cancelled'

export interface Plan {
  readonly ending: Ending
  readonly mode: 'rounds' | 'task'
  /** The point at which the first instance dies; it survives if it never gets there. */
  readonly killAt: number
  /** Forgets what is kept for an undo: the negative control. */
  readonly forgetful?: boolean
}

export interface Outcome {
  /** Points that the first instance passed. */
  readonly points: number
  readonly died: boolean
  readonly reply: string
  /** Rooms that are reserved in the end. */
  readonly left: readonly string[]
  /** The most keys under which one effect was undone. */
  readonly undoKeys: number
  readonly undone: number
}

const KEYS = 'k:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE='
const never = new Promise<never>(() => {})

/** The life of an instance. */
interface Life {
  dead: boolean
  readonly died: Promise<void>
  /** Never resolves once the instance has died. */
  pass(): Promise<void>
}

function createLife(killAt: number): Life & { points: number } {
  let die = (): void => {}
  const died = new Promise<void>((resolve) => {
    die = resolve
  })
  const life = {
    dead: false,
    died,
    points: 0,
    async pass() {
      life.points += 1
      if (life.points === killAt) {
        life.dead = true
        die()
      }
      if (life.dead) await never
    },
  }
  return life
}

/** Heartbeats and polls go on by themselves, so their number is not that of the run. */
const UNCOUNTED = new Set([
  'renew',
  'claim',
  'stats',
  'sweep',
  'views',
  'revisions',
  'list',
  'epoch',
  'touch',
])

function mortal<T extends object>(port: T, life: Life, forgets: boolean): T {
  return new Proxy(port, {
    get(target, name, receiver) {
      const member = Reflect.get(target, name, receiver) as unknown
      if (typeof member === 'object' && member !== null) return mortal(member, life, forgets)
      if (typeof member !== 'function') return member
      return (...params: unknown[]) => {
        if (life.dead) return never
        if (forgets && name === 'put') return Promise.resolve('stored')
        const result: unknown = member.apply(target, params)
        if (!(result instanceof Promise)) return result
        if (UNCOUNTED.has(String(name))) return result.then((value) => (life.dead ? never : value))
        return result.then(async (value) => {
          await life.pass()
          return value
        })
      }
    },
  })
}

const wait = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms))

/** Runs the call to its end, and lets everything expire. */
export async function runPlan({ ending, mode, killAt, forgetful = false }: Plan): Promise<Outcome> {
  const clock = { now: Date.UTC(2026, 6, 28) }
  const store = createMemoryStore({ now: () => clock.now })
  const reserved = new Map<string, string>()
  const undoKeys = new Map<string, Set<string>>()
  const first = createLife(killAt)
  const make = (life: Life): Server => {
    const records = mortal(store.records as object, life, forgetful)
    const own = { ...mortal(store as object, life, false), ...portsOf(store, life), records } as Store
    const server = createServer({
      name: 'hotel',
      version: '1.0.0',
      keys: KEYS,
      log: 'off',
      now: () => clock.now,
      restTimer(ms, fn) {
        clock.now += ms
        const timer = setImmediate(fn)
        return () => clearImmediate(timer)
      },
      store: own,
    })
    server.tool('trip', { task: mode === 'task' ? 'always' : 'never' }, async (_args, ctx) => {
      for (const room of ['one', 'two'])
        await ctx.effect(
          room,
          async ({ key }) => {
            await life.pass()
            reserved.set(key, room)
            await life.pass()
            return { room }
          },
          {
            async undo(_result, { key, effectKey }) {
              await life.pass()
              undoKeys.set(effectKey, (undoKeys.get(effectKey) ?? new Set()).add(key))
              reserved.delete(effectKey)
              await life.pass()
            },
          },
        )
      const sure = await ctx.confirm('sure', 'Book both?')
      if (ending === 'fails') throw new ToolError('Sold out.')
      if (sure) return 'Booked.'
      await ctx.undo()
      return 'Released.'
    })
    return server
  }
  let current = make(first)
  let life: Life = first
  /** Sends a request; on an instance that dies, again to the next one. */
  const request = async (method: string, params: Record<string, unknown>) => {
    for (;;) {
      const reply = await Promise.race([send(current, method, params), life.died.then(() => undefined)])
      const busy = reply?.error && /Retry in|Send it again/.test(String(reply.error.message))
      if (reply && !busy) return reply
      if (!reply) {
        life = createLife(0)
        current = make(life)
      }
      clock.now += 120_000
      await wait(1)
    }
  }
  const reply = await (mode === 'task' ? runTask : runRounds)(request, ending, clock)
  await expire(store, clock, async () => {
    // A worker starts with the first request of its instance.
    await request('server/discover', {})
  })
  await Promise.race([current.close(), life.died])
  const most = Math.max(0, ...[...undoKeys.values()].map((keys) => keys.size))
  return {
    points: first.points,
    died: first.dead,
    reply,
    left: [...reserved.values()],
    undoKeys: most,
    undone: undoKeys.size,
  }
}

function portsOf(store: Store, life: Life): Partial<Store> {
  return {
    tasks: mortal(store.tasks, life, false),
    once: mortal(store.once, life, false),
    blobs: mortal(store.blobs, life, false),
  }
}

type Request = (
  method: string,
  params: Record<string, unknown>,
) => Promise<{ result?: Record<string, unknown>; error?: { message?: unknown } }>

const answer = (ending: Ending) => ({ sure: { action: 'accept', content: { confirm: ending !== 'no' } } })

async function runRounds(request: Request, ending: Ending): Promise<string> {
  const params = { name: 'trip', arguments: {} }
  let reply = await request('tools/call', params)
  for (let rounds = 0; reply.result?.resultType === 'input_required' && rounds < 12; rounds++) {
    const { requestState, inputRequests } = reply.result
    if (inputRequests && (ending === 'gone' || ending === 'cancelled')) return 'gone'
    reply = await request('tools/call', {
      ...params,
      requestState,
      ...(inputRequests ? { inputResponses: answer(ending) } : {}),
    })
  }
  return textOf(reply)
}

async function runTask(request: Request, ending: Ending, clock: { now: number }): Promise<string> {
  const { result } = await request('tools/call', { name: 'trip', arguments: {} })
  const taskId = String(result?.taskId)
  let isAnswered = false
  for (let i = 0; i < 5_000; i++) {
    const { result: task, error } = await request('tasks/get', { taskId })
    if (error) return String(error.message)
    if (task?.status === 'input_required' && ending === 'gone') return 'gone'
    if (task?.status === 'input_required' && !isAnswered) {
      if (ending === 'cancelled') {
        await request('tasks/cancel', { taskId })
        return 'cancelled'
      }
      await request('tasks/update', { taskId, inputResponses: answer(ending) })
      isAnswered = true
    }
    if (task?.status === 'completed') return textOf({ result: task.result as Record<string, unknown> })
    if (task?.status === 'failed') return 'failed'
    await wait(2)
    // The lease of a worker that died runs out.
    if (i % 20 === 19) clock.now += 60_000
  }
  throw new Error('The task did not end')
}

function textOf({
  result,
  error,
}: {
  result?: Record<string, unknown>
  error?: { message?: unknown }
}): string {
  if (error) return String(error.message)
  return ((result?.content ?? []) as { text?: string }[]).map(({ text }) => text).join('\n')
}

/** Lets two days pass, and waits until nothing is due. */
async function expire(store: Store, clock: { now: number }, revive: () => Promise<void>): Promise<void> {
  await revive()
  for (let step = 0; step < 16; step++) {
    clock.now += 6 * 3_600_000
    for (let i = 0; i < 2_000; i++) {
      const { due, running } = await store.tasks.stats()
      if (due === 0 && running === 0) break
      await wait(2)
      if (i % 25 === 24) {
        clock.now += 60_000
        await revive()
      }
    }
  }
}

/** Kills an instance at each of these points, and returns what went wrong. `which` chooses the points of a whole run. */
export async function killAtPoints(
  { ending, mode }: Pick<Plan, 'ending' | 'mode'>,
  which: (point: number) => boolean,
): Promise<{ readonly deaths: number; readonly problems: readonly string[] }> {
  const whole = await runPlan({ ending, mode, killAt: 0 })
  const problems = judge({ ending, mode, killAt: 0 }, whole).map((problem) => `without a kill: ${problem}`)
  let deaths = 0
  for (let killAt = 1; killAt <= whole.points; killAt++) {
    if (!which(killAt)) continue
    const plan = { ending, mode, killAt }
    const outcome = await runPlan(plan)
    if (outcome.died) deaths += 1
    problems.push(...judge(plan, outcome).map((problem) => `killed at ${killAt}: ${problem}`))
  }
  return { deaths, problems }
}

/** Problems of a history, in words. */
export function judge({ ending }: Plan, { reply, left, undoKeys }: Outcome): string[] {
  const isBooked = reply === 'Booked.'
  return [
    isBooked && left.length !== 2 && `booked, and ${left.length} rooms are reserved`,
    !isBooked && left.length > 0 && `not booked (${reply}), and ${left.join(', ')} is reserved`,
    undoKeys > 1 && `one effect was undone under ${undoKeys} keys`,
    ending === 'yes' && !isBooked && `the client says yes and gets: ${reply}`,
    (ending === 'no' || ending === 'fails') && isBooked && 'booked without a yes',
  ].filter((problem) => problem !== false)
}

/** Requests about one task that overtake each other on their way through the gateway. */

import { createServer, generateKey } from 'rondo'
import { connect, type RoundPolicy, type TaskHandle } from 'rondo/client'
import { describe, expect, it, onTestFinished } from 'vitest'
import { z } from 'zod'
import { createMemoryStore } from '../../packages/rondo/src/store/memory/store.ts'
import { fake, modern, said, toolRows } from './fake.ts'
import { serveGateway } from './peers.ts'

const YES = { sure: { action: 'accept', content: { sure: 'yes' } } } as const
const CALL = { method: 'tools/call', name: 't', arguments: {} } as const
const DONE = { resultType: 'complete' }

type Status = 'input_required' | 'completed' | 'cancelled'

interface Tasked {
  readonly url: string
  /** The requests in the order in which they arrived, and the keys that were answered. */
  readonly arrived: string[]
  readonly answered: string[]
  status: Status
  /** What a cancellation makes of the task. */
  cancelledAs: Status
  /** Keeps the replies to these methods back. Returns the function that sends them. */
  hold(...methods: string[]): () => void
}

/**
 * A server of 2026-07-28 with one task that asks `sure`. The first answer completes it, the first cancellation ends it, and it refuses
 * requests about a task that has ended. A request counts when it arrives, or when its reply is sent (`late`).
 */
async function tasked({ late = false } = {}): Promise<Tasked> {
  const arrived: string[] = []
  const answered: string[] = []
  const gates = new Map<string, Promise<void>>()
  const at = new Date(0).toISOString()
  const head = { taskId: 'secret-id', createdAt: at, lastUpdatedAt: at, ttlMs: null, pollIntervalMs: 1 }
  const requestedSchema = { type: 'object', properties: { sure: { type: 'string' } } }
  const sure = { method: 'elicitation/create', params: { mode: 'form', message: 'Sure?', requestedSchema } }
  const apply = (method: string, keys: readonly string[]): object => {
    if (up.status !== 'input_required') return { error: { code: -32602, message: 'secret-id has ended' } }
    answered.push(...keys)
    up.status = method === 'tasks/cancel' ? up.cancelledAs : 'completed'
    return { result: DONE }
  }
  const { url } = await fake(async (message) => {
    const { method = '', params = {} } = message
    if (method === 'tools/call') return { result: { ...head, status: 'working', resultType: 'task' } }
    if (!method.startsWith('tasks/')) return modern({ tools: toolRows('t') })(message)
    arrived.push(method)
    if (method === 'tasks/get') {
      const more = {
        input_required: { inputRequests: { sure } },
        completed: { result: said('done') },
        cancelled: {},
      }
      const state = { ...head, status: up.status, ...more[up.status], ...DONE }
      await gates.get(method)
      return { result: state }
    }
    const keys = Object.keys(params.inputResponses ?? {})
    const early = late ? undefined : apply(method, keys)
    await gates.get(method)
    return early ?? apply(method, keys)
  })
  const up: Tasked = {
    url,
    arrived,
    answered,
    status: 'input_required',
    cancelledAs: 'cancelled',
    hold(...methods) {
      let open = (): void => {}
      const gate = new Promise<void>((resolve) => {
        open = resolve
      })
      for (const one of methods) gates.set(one, gate)
      return () => {
        for (const one of methods) gates.delete(one)
        open()
      }
    },
  }
  return up
}

/** The task of a call through a gateway. */
async function handed(url: string, onRound?: RoundPolicy): Promise<TaskHandle> {
  const gateway = await serveGateway({ up: { url } }, { ...(onRound && { onRound }) })
  const form = () => ({ action: 'cancel' }) as const
  const client = await connect(gateway.url, { answers: { elicitation: { form } } })
  onTestFinished(() => client.close())
  const round = await client.round(CALL, { tasks: true })
  if (round.resultType !== 'task') throw new Error('The call is not a task')
  return client.task(round.task.taskId)
}

const outcome = (request: Promise<unknown>): Promise<string> =>
  request.then(
    () => 'accepted',
    (error) => String(error.peer?.message ?? error),
  )
const count = ({ arrived }: Tasked, method: string): number => arrived.filter((one) => one === method).length

describe('an answer and a cancellation of one task', () => {
  it('that is cancelled first gets no answer, and stays cancelled', async () => {
    const up = await tasked()
    const task = await handed(up.url)
    await task.cancel()
    expect(await outcome(task.answer(YES))).toBe('accepted')
    expect(up.answered).toEqual([])
    expect(count(up, 'tasks/update')).toBe(0)
    expect(await task.get()).toMatchObject({ status: 'cancelled' })
  })

  it('that is cancelled between the reading of its question and the answer is not reported as completed', async () => {
    const up = await tasked()
    const task = await handed(up.url)
    const release = up.hold('tasks/get')
    const answering = outcome(task.answer(YES))
    await expect.poll(() => count(up, 'tasks/get')).toBe(1)
    await task.cancel()
    release()
    expect(await answering).toBe('… has ended')
    expect(up.answered).toEqual([])
    expect(await task.get()).toMatchObject({ status: 'cancelled' })
  })

  it('that is answered first is completed, and the late cancellation is refused in the words of its server', async () => {
    const up = await tasked()
    const task = await handed(up.url)
    await task.answer(YES)
    expect(await outcome(task.cancel())).toBe('… has ended')
    expect(await task.get()).toMatchObject({ status: 'completed', result: said('done') })
    expect(up.answered).toEqual(['sure'])
  })

  it.each([
    ['the answer first', ['tasks/update', 'tasks/cancel'], 'completed', ['sure']],
    ['the cancellation first', ['tasks/cancel', 'tasks/update'], 'cancelled', []],
  ] as const)(
    'whose server is slow and takes %s ends as the server says',
    async (_what, order, status, answered) => {
      const up = await tasked({ late: true })
      const task = await handed(up.url)
      const releases = Object.fromEntries(order.map((method) => [method, up.hold(method)]))
      const requests = { 'tasks/update': outcome(task.answer(YES)), 'tasks/cancel': outcome(task.cancel()) }
      await expect.poll(() => order.map((method) => count(up, method))).toEqual([1, 1])
      const [first, second] = order
      releases[first]?.()
      expect(await requests[first]).toBe('accepted')
      // The other request waits, and keeps nobody from reading the task.
      expect(await task.get()).toMatchObject({ status })
      releases[second]?.()
      expect(await requests[second]).toBe('… has ended')
      expect(await task.get()).toMatchObject({ status })
      expect(up.answered).toEqual(answered)
    },
  )

  it('that are sent twice each count once, and every request gets a reply', async () => {
    const up = await tasked({ late: true })
    const task = await handed(up.url)
    const release = up.hold('tasks/update', 'tasks/cancel')
    const all = [task.answer(YES), task.cancel(), task.answer(YES), task.cancel()].map(outcome)
    await expect.poll(() => [count(up, 'tasks/update'), count(up, 'tasks/cancel')]).toEqual([2, 2])
    release()
    expect((await Promise.all(all)).toSorted()).toEqual(
      ['accepted', ...Array(3).fill('… has ended')].toSorted(),
    )
    expect(up.answered.length).toBe(up.status === 'completed' ? 1 : 0)
    expect((await task.get()).status).toBe(up.status)
    // The gateway sends no request a second time by itself.
    expect([count(up, 'tasks/update'), count(up, 'tasks/cancel')]).toEqual([2, 2])
  })

  it('of a Rondo server has its effect at most once, and has had it if it is completed', async () => {
    let runs = 0
    const server = createServer({
      name: 'jobs',
      version: '1.0.0',
      keys: generateKey(),
      log: () => {},
      store: createMemoryStore(),
      tasks: { pollMs: 5 },
    })
    server.tool('t', { task: 'always' }, async (_args, ctx) => {
      await ctx.ask('sure', { message: 'Sure?', schema: z.object({ sure: z.string() }) })
      await ctx.effect('run', () => {
        runs += 1
      })
      return 'ran'
    })
    const { url } = await server.listen({ port: 0, signals: false, graceMs: 100 })
    onTestFinished(() => server.close())
    const task = await handed(url)
    await expect.poll(async () => (await task.get()).status).toBe('input_required')
    await Promise.all([task.answer(YES), task.answer(YES), task.cancel(), task.cancel()].map(outcome))
    await expect.poll(async () => (await task.get()).status).toMatch(/completed|cancelled/)
    const { status } = await task.get()
    expect(runs).toBeLessThanOrEqual(1)
    if (status === 'completed') expect(runs).toBe(1)
  })
})

describe('W4 a policy', () => {
  const answering: RoundPolicy = () => ({ kind: 'rewrite', answers: YES })
  const refusing: RoundPolicy = () => ({ kind: 'refuse', reason: 'no' })
  const REFUSED =
    'A question of "up" is not shown here: no. The call is cancelled, and may have had effects there.'

  it.each([
    ['answers a question', 'completed', answering],
    ['answers a question', 'cancelled', answering],
    ['refuses a question', 'completed', refusing],
    ['refuses a question', 'cancelled', refusing],
  ] as const)(
    'that %s of a task that is %s meanwhile shows the task as it is',
    async (_what, status, policy) => {
      const up = await tasked()
      const task = await handed(up.url, (round) => {
        // The task ends after it was read, and before the request that follows from the policy.
        if (up.status === 'input_required') up.status = status
        return policy(round)
      })
      expect(await task.get()).toMatchObject({ status })
      expect(up.answered).toEqual([])
    },
  )

  it('that refuses a question shows the task as its server ended it, with the reason if it is cancelled', async () => {
    for (const status of ['completed', 'cancelled'] as const) {
      const up = await tasked()
      up.cancelledAs = status
      const task = await handed(up.url, refusing)
      const shown = { completed: { result: said('done') }, cancelled: { statusMessage: REFUSED } }
      expect(await task.get()).toMatchObject({ status, ...shown[status] })
    }
  })

  it('that refuses a question says so until the task has ended, and then how it ended', async () => {
    const up = await tasked()
    up.cancelledAs = 'input_required'
    const task = await handed(up.url, refusing)
    const reason = `${REFUSED} It has not ended yet; ask again later how it ended.`
    expect(await outcome(task.get())).toBe(reason)
    expect(await outcome(task.answer(YES))).toBe(reason)
    up.status = 'completed'
    expect(await task.get()).toMatchObject({ status: 'completed', result: said('done') })
    expect(up.answered).toEqual([])
  })
})

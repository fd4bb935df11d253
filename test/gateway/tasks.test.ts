/** Tools that run as tasks at their server, for clients that follow tasks and for those that cannot. */

import type { GatewayOptions } from '@rondo/gateway'
import { createServer, generateKey } from 'rondo'
import { type Client, connect } from 'rondo/client'
import { describe, expect, it, onTestFinished } from 'vitest'
import { z } from 'zod'
import { createMemoryStore } from '../../packages/rondo/src/store/memory/store.ts'
import { send } from '../support/task-client.ts'
import { fake, modern, toolRows } from './fake.ts'
import { serveGateway } from './peers.ts'

interface Jobs {
  readonly url: string
  readonly seen: { runs: number; slow: string }
  stop(): Promise<void>
}

async function jobs(onTask: (id: string) => void = () => {}): Promise<Jobs> {
  const seen = { runs: 0, slow: '' }
  const store = createMemoryStore()
  const server = createServer({
    name: 'jobs',
    version: '1.0.0',
    keys: generateKey(),
    log: () => {},
    store,
    tasks: { pollMs: 20, onEvent: (event) => event.kind === 'began' && onTask(event.id) },
  })
  server.tool('job', { input: z.object({ n: z.number() }), task: 'always' }, async ({ n }, ctx) => {
    const { sure } = await ctx.ask('sure', { message: `Run ${n}?`, schema: z.object({ sure: z.string() }) })
    await ctx.effect('run', () => {
      seen.runs += 1
    })
    return `ran ${n}: ${sure}`
  })
  server.tool('slow', { task: 'always' }, async (_args, ctx) => {
    seen.slow = 'running'
    await new Promise<void>((resolve) => ctx.signal.addEventListener('abort', () => resolve()))
    seen.slow = 'cancelled'
    return 'late'
  })
  const { url } = await server.listen({ port: 0, signals: false, graceMs: 100 })
  onTestFinished(() => server.close())
  return { url, seen, stop: () => server.close() }
}

const REVISIONS = ['2026-07-28', '2025-11-25'] as const
const cells = REVISIONS.flatMap((host) => REVISIONS.map((behind) => ({ host, behind })))

describe.each(cells)('K4 a client of $host without tasks, before $behind', ({ host, behind }) => {
  it('calls a tool that runs only as a task, answers its question, and gets the result', async () => {
    const { url, seen } = await jobs()
    const gateway = await serveGateway({ up: { url, revision: behind } })
    const client = await connect(gateway.url, {
      mode: host,
      drafts: false,
      tasks: false,
      answers: { elicitation: { form: () => ({ action: 'accept', content: { sure: 'yes' } }) } },
    })
    onTestFinished(() => client.close())
    expect((await client.callTool('job', { n: 3 })).content).toEqual([{ type: 'text', text: 'ran 3: yes' }])
    expect(seen.runs).toBe(1)
    expect(gateway.gateway.heldCalls()).toBe(0)
  })

  it('W7 cancels the task with the call', async () => {
    const { url, seen } = await jobs()
    const gateway = await serveGateway({ up: { url, revision: behind } })
    const client = await connect(gateway.url, { mode: host, drafts: false, tasks: false })
    onTestFinished(() => client.close())
    const stop = new AbortController()
    const calling = client.callTool('slow', {}, { signal: stop.signal })
    calling.catch(() => {})
    await expect.poll(() => seen.slow).toBe('running')
    stop.abort()
    await expect(calling).rejects.toThrow()
    await expect.poll(() => seen.slow).toBe('cancelled')
  })
})

/** Our client at the gateway, as the caller that its header names. */
async function follower(url: string, who: string, accepts: 'form' | 'nothing' = 'form') {
  const client = await connect(url, {
    mode: '2026-07-28',
    headers: { 'x-user': who },
    ...(accepts === 'form' && { answers: { elicitation: { form: () => ({ action: 'cancel' }) } } }),
  })
  onTestFinished(() => client.close())
  return client
}

/** Knows `ann`, `ann` of another login as `ann@issuer`, and `ann` in another program as `ann@@client`. */
const authenticate: GatewayOptions['authenticate'] = ({ headers }) => {
  const [subject = '', issuer, client] = (headers('x-user') ?? '').split('@')
  return { subject, ...(issuer && { issuer }), ...(client && { client }) }
}

async function begun(client: Client, name: string, args: Readonly<Record<string, unknown>> = {}) {
  const round = await client.round({ method: 'tools/call', name, arguments: args }, { tasks: true })
  if (round.resultType !== 'task') throw new Error(`The call of ${name} is not a task`)
  return round.task
}

const YES = { action: 'accept', content: { sure: 'yes' } } as const

/** A server that knows every id as a task with the open question `sure`, for those that declare forms, and accepts every answer. */
async function anyTask() {
  const requests: string[] = []
  const answered: unknown[] = []
  const now = new Date(0).toISOString()
  const requestedSchema = { type: 'object', properties: { sure: { type: 'string' } } }
  const sure = { method: 'elicitation/create', params: { mode: 'form', message: 'Sure?', requestedSchema } }
  const server = await fake((message) => {
    const { method = '', params } = message
    if (method.startsWith('tasks/')) requests.push(method)
    if (method === 'tasks/update') answered.push(params?.inputResponses)
    if (method === 'tasks/update' || method === 'tasks/cancel') return { result: { resultType: 'complete' } }
    const head = { taskId: params?.taskId ?? 'task', createdAt: now, lastUpdatedAt: now, ttlMs: null }
    if (method === 'tools/call') return { result: { ...head, status: 'working', resultType: 'task' } }
    if (method !== 'tasks/get') return modern({ tools: toolRows('t') })(message)
    const declared = params?._meta as Record<string, { elicitation?: object }> | undefined
    const isShown = declared?.['io.modelcontextprotocol/clientCapabilities']?.elicitation !== undefined
    const open = { status: 'input_required', inputRequests: isShown ? { sure } : {} }
    return { result: { ...head, ...open, resultType: 'complete' } }
  })
  return { ...server, requests, answered }
}

describe('a client that follows tasks', () => {
  it('W2 gets a handle, answers and gets the result on any instance with the same keys', async () => {
    const { url, seen } = await jobs()
    const keys = generateKey()
    const one = await serveGateway({ up: { url } }, { keys, authenticate })
    const two = await serveGateway({ up: { url } }, { keys, authenticate })
    const { taskId, status } = await begun(await follower(one.url, 'ann'), 'job', { n: 4 })
    expect(status).toBe('working')
    const task = (await follower(two.url, 'ann')).task(taskId)
    await expect.poll(() => task.get()).toMatchObject({ taskId, status: 'input_required' })
    const { inputRequests } = await task.get()
    expect(inputRequests).toMatchObject({ sure: { params: { message: 'Run 4?' } } })
    await task.answer({ sure: { action: 'accept', content: { sure: 'yes' } } })
    await expect.poll(async () => (await task.get()).status).toBe('completed')
    expect((await task.get()).result).toMatchObject({ content: [{ type: 'text', text: 'ran 4: yes' }] })
    expect(seen.runs).toBe(1)
  })

  it('is served by callTool, from the call to the result', async () => {
    const { url } = await jobs()
    const gateway = await serveGateway({ up: { url } })
    const client = await connect(gateway.url, {
      answers: { elicitation: { form: () => ({ action: 'accept', content: { sure: 'yes' } }) } },
    })
    onTestFinished(() => client.close())
    expect((await client.callTool('job', { n: 5 })).content).toEqual([{ type: 'text', text: 'ran 5: yes' }])
  })

  it('has its call followed where a person on this machine is asked, who could not be asked about a task', async () => {
    const { url } = await jobs()
    const asked: string[] = []
    const ask: GatewayOptions['ask'] = {
      kinds: ['form'],
      async ask({ target }) {
        asked.push(target)
        return YES
      },
    }
    const gateway = await serveGateway({ up: { url } }, { ask })
    const client = await follower(gateway.url, 'ann', 'nothing')
    const call = { method: 'tools/call', name: 'job', arguments: { n: 8 } } as const
    expect(await client.round(call, { tasks: true, accepts: [] })).toMatchObject({
      resultType: 'complete',
      result: { content: [{ text: 'ran 8: yes' }] },
    })
    expect(asked).toEqual(['job'])
  })

  it('cancels the task at its server', async () => {
    const { url, seen } = await jobs()
    const gateway = await serveGateway({ up: { url } })
    const client = await follower(gateway.url, 'ann')
    const { taskId } = await begun(client, 'slow')
    await expect.poll(() => seen.slow).toBe('running')
    await client.task(taskId).cancel()
    await expect.poll(() => seen.slow).toBe('cancelled')
    expect((await client.task(taskId).get()).status).toBe('cancelled')
  })

  it('W7 is notified of its own task, under its handle', async () => {
    const { url } = await jobs()
    const gateway = await serveGateway({ up: { url } }, { authenticate })
    const client = await follower(gateway.url, 'ann')
    const { taskId } = await begun(client, 'job', { n: 6 })
    const other = (await follower(gateway.url, 'bob')).subscribe({ taskIds: [taskId] })
    onTestFinished(() => other.close())
    let leaked = 0
    void (async () => {
      for await (const _ of other) leaked += 1
    })()
    await other.filter
    const statuses = new Set<string>()
    const subscription = client.subscribe({ taskIds: [taskId] })
    await subscription.filter
    for await (const change of subscription) {
      if (change.kind !== 'task') continue
      expect(change.task.taskId).toBe(taskId)
      statuses.add(change.task.status)
      if (change.task.status === 'input_required')
        await client.task(taskId).answer({ sure: { action: 'accept', content: { sure: 'yes' } } })
      if (change.task.status === 'completed') break
    }
    expect(statuses).toContain('completed')
    expect(leaked).toBe(0)
  })

  it('W2 gets nothing with the handle of another caller, a made-up one, or the id at the server', async () => {
    const { url, seen } = await jobs()
    const gateway = await serveGateway({ up: { url } }, { authenticate })
    const ann = await follower(gateway.url, 'ann')
    const names = ['bob', 'ann@other.example', 'ann@@other-program']
    const others = await Promise.all(names.map((name) => follower(gateway.url, name)))
    const { taskId } = await begun(ann, 'slow')
    await expect.poll(() => seen.slow).toBe('running')
    const direct = await connect(url)
    onTestFinished(() => direct.close())
    const last = taskId.at(-2) === 'A' ? 'B' : 'A'
    const ids = [
      taskId,
      `${taskId.slice(0, -2)}${last}${taskId.at(-1)}`,
      'up.',
      'up.r1.x',
      `up.${'x'.repeat(9_000)}`,
    ]
    for (const id of ids) {
      for (const other of others.map((one) => one.task(id))) {
        await expect(other.get()).rejects.toMatchObject({ peer: { code: -32602 } })
        const answering = other.answer({ a: { action: 'cancel' } })
        await expect(answering).rejects.toMatchObject({ peer: { code: -32602 } })
        await expect(other.cancel()).rejects.toMatchObject({ peer: { code: -32602 } })
      }
      if (id !== taskId) await expect(ann.task(id).get()).rejects.toMatchObject({ peer: { code: -32602 } })
    }
    expect(seen.slow).toBe('running')
    expect((await ann.task(taskId).get()).status).toBe('working')
    await ann.task(taskId).cancel()
  })

  it('W2 sees the id at the server nowhere: not in the handle, the states or the notifications', async () => {
    const ids = new Set<string>()
    const { url } = await jobs((id) => ids.add(id))
    const gateway = await serveGateway({ up: { url } })
    const client = await follower(gateway.url, 'ann')
    const task = await begun(client, 'job', { n: 7 })
    await expect.poll(async () => (await client.task(task.taskId).get()).status).toBe('input_required')
    const seen = JSON.stringify([task, await client.task(task.taskId).get(), gateway.events])
    expect(ids.size).toBe(1)
    for (const id of ids) expect(seen).not.toContain(id)
    expect(JSON.stringify([...ids])).not.toBe('[]')
  })

  it('W2 reads that a task is unknown after its name was given to another server, which gets no request', async () => {
    const keys = generateKey()
    const [first, second] = [await anyTask(), await anyTask()]
    const before = await serveGateway({ up: { url: first.url } }, { keys })
    const after = await serveGateway({ up: { url: second.url } }, { keys })
    const { taskId } = await begun(await follower(before.url, 'ann'), 't')
    const client = await follower(after.url, 'ann')
    const unknown = { peer: { code: -32602 } }
    await expect(client.task(taskId).get()).rejects.toMatchObject(unknown)
    await expect(client.task(taskId).answer({ sure: YES })).rejects.toMatchObject(unknown)
    await expect(client.task(taskId).cancel()).rejects.toMatchObject(unknown)
    expect(second.requests).toEqual([])
    // The control: the server accepts every id, of a task of its own too.
    await client.task((await begun(client, 't')).taskId).cancel()
    expect(second.requests).toEqual(['tasks/cancel'])
  })

  it('W3 sees the questions that its request declares', async () => {
    const { url } = await jobs()
    const gateway = await serveGateway({ up: { url } }, { authenticate })
    const { taskId } = await begun(await follower(gateway.url, 'ann'), 'job', { n: 8 })
    const blind = (await follower(gateway.url, 'ann', 'nothing')).task(taskId)
    await expect.poll(async () => (await blind.get({ accepts: [] })).status).toBe('input_required')
    expect((await blind.get({ accepts: [] })).inputRequests).toEqual({})
    expect((await blind.get({ accepts: ['form'] })).inputRequests).toHaveProperty('sure')
  })

  it('W4 reads in a cancelled task which question was refused, and the work ends at the server', async () => {
    const { url, seen } = await jobs()
    const onRound = () => ({ kind: 'refuse', reason: 'not here' }) as const
    const gateway = await serveGateway({ up: { url }, other: { url } }, { onRound })
    const client = await follower(gateway.url, 'ann')
    const { taskId } = await begun(client, 'up_job', { n: 9 })
    await expect.poll(async () => (await client.task(taskId).get()).status).toBe('cancelled')
    expect(await client.task(taskId).get()).toMatchObject({ status: 'cancelled' })
    expect(seen.runs).toBe(0)
  })

  it.each(['refuse', 'rewrite'] as const)(
    'W4 cannot answer a question that it never read before a policy has judged it: %s',
    async (kind) => {
      const { url, seen } = await jobs()
      const onRound = () =>
        kind === 'refuse'
          ? ({ kind, reason: 'not here' } as const)
          : ({ kind, answers: { sure: { action: 'decline' } } } as const)
      const gateway = await serveGateway({ up: { url } }, { onRound })
      const client = await follower(gateway.url, 'ann')
      const { taskId } = await begun(client, 'job', { n: 9 })
      const task = client.task(taskId)
      const yes = { sure: { action: 'accept', content: { sure: 'yes' } } } as const
      const isOpen = (status: string): boolean => status === 'working' || status === 'input_required'
      for (let status = 'working'; isOpen(status); ) {
        await task.answer(yes)
        status = (await task.get({ accepts: [] })).status
      }
      expect(seen.runs).toBe(0)
    },
  )

  it('W2 answers the questions that are open, and no others', async () => {
    const { url, seen } = await jobs()
    const gateway = await serveGateway({ up: { url } })
    const client = await follower(gateway.url, 'ann')
    const task = client.task((await begun(client, 'job', { n: 9 })).taskId)
    await expect.poll(async () => (await task.get()).status).toBe('input_required')
    await task.answer({ other: { action: 'accept', content: { sure: 'yes' } } })
    expect((await task.get()).status).toBe('input_required')
    await task.answer({ sure: { action: 'accept', content: { sure: 'no' } } })
    await expect.poll(async () => (await task.get()).status).toBe('completed')
    expect(seen.runs).toBe(1)
  })

  it('W2 W4 sends the answers to open questions to the server, after the questions were read', async () => {
    const up = await anyTask()
    const gateway = await serveGateway({ up: { url: up.url } })
    const client = await follower(gateway.url, 'ann')
    const { taskId } = await begun(client, 't')
    const task = client.task(taskId)
    await task.answer({ other: YES })
    expect(up.requests).toEqual(['tasks/get'])
    await task.answer({ sure: YES, other: YES })
    expect(up.requests).toEqual(['tasks/get', 'tasks/get', 'tasks/update'])
    expect(up.answered).toEqual([{ sure: YES }])
    // A request that declares no kind of question may answer what another one has read.
    const capabilities = { extensions: { 'io.modelcontextprotocol/tasks': {} } }
    await send(gateway.gateway, 'tasks/update', { taskId, inputResponses: { sure: YES } }, { capabilities })
    expect(up.answered).toEqual([{ sure: YES }, { sure: YES }])
  })

  it('W4 sends no answer to a question that a policy refuses, and the task is cancelled', async () => {
    const up = await anyTask()
    const onRound = () => ({ kind: 'refuse', reason: 'not here' }) as const
    const gateway = await serveGateway({ up: { url: up.url } }, { onRound })
    const client = await follower(gateway.url, 'ann')
    const answering = client.task((await begun(client, 't')).taskId).answer({ sure: YES })
    await expect(answering).rejects.toThrow(/not shown here: not here.*has not ended yet/)
    expect(up.requests).toEqual(['tasks/get', 'tasks/cancel', 'tasks/get'])
  })

  it('W2 opens no handle with other keys, and cancels a task whose id does not fit into a handle', async () => {
    const { url, seen } = await jobs()
    const before = await serveGateway({ up: { url } })
    const after = await serveGateway({ up: { url } })
    const ann = await follower(before.url, 'ann')
    const { taskId } = await begun(ann, 'slow')
    await expect.poll(() => seen.slow).toBe('running')
    const other = (await follower(after.url, 'ann')).task(taskId)
    await expect(other.cancel()).rejects.toMatchObject({ peer: { code: -32602 } })
    expect(seen.slow).toBe('running')
    await ann.task(taskId).cancel()
    const cancelled: unknown[] = []
    const long = '\u0001'.repeat(2_000)
    const now = new Date(0).toISOString()
    const up = await fake((message) => {
      if (message.method === 'tasks/cancel') cancelled.push(message.params?.taskId)
      if (message.method === 'tasks/cancel') return { result: { resultType: 'complete' } }
      if (message.method !== 'tools/call') return modern({ tools: toolRows('t') })(message)
      const head = { taskId: long, status: 'working', createdAt: now, lastUpdatedAt: now, ttlMs: null }
      return { result: { ...head, resultType: 'task' } }
    })
    const gateway = await serveGateway({ up: { url: up.url } })
    const calling = begun(await follower(gateway.url, 'ann'), 't')
    await expect(calling).rejects.toThrow()
    expect(cancelled).toEqual([long])
  })

  it('W8 reads that the server of its task does not answer, and gets the task when it does', async () => {
    const { url, stop } = await jobs()
    const gateway = await serveGateway({ up: { url } })
    const client = await follower(gateway.url, 'ann')
    const { taskId } = await begun(client, 'job', { n: 1 })
    await stop()
    await expect(client.task(taskId).get()).rejects.toThrow(/The task at "up" cannot be reached now/)
  })

  it('reads the error of the server with followTasks: false, and the call is followed for it otherwise', async () => {
    const { url } = await jobs()
    for (const followTasks of [false, true]) {
      const gateway = await serveGateway({ up: { url } }, { followTasks })
      const client = await connect(gateway.url, {
        tasks: false,
        answers: { elicitation: () => ({ action: 'accept', content: { sure: 'yes' } }) },
      })
      onTestFinished(() => client.close())
      const calling = client.callTool('job', { n: 2 })
      if (followTasks) await expect(calling).resolves.toMatchObject({ content: [{ text: 'ran 2: yes' }] })
      else await expect(calling).rejects.toMatchObject({ peer: { code: -32021 } })
    }
  })
})

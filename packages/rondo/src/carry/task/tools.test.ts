/** The tools through which a model reaches its tasks: what they declare, what they answer, and how long they wait. */

import { getEventListeners } from 'node:events'
import { beforeEach, describe, expect, it } from 'vitest'
import type { TaskState } from '../../protocol/reply.ts'
import type { ClientCapabilities, InputRequest } from '../../protocol/wire.ts'
import { createHost, type OpenHost } from '../../serve/host.ts'
import { createMemoryStore } from '../../store/memory/store.ts'
import { createTaskId, type TaskView, type WatchTask } from '../../store/task-engine.ts'
import type { Context } from '../../tool/context.ts'
import type { BuiltInTool } from '../../tool/registry.ts'
import { isInputRequired, type Target } from '../../tool/target.ts'
import type { FlowHost, TaskHost } from '../host.ts'
import { openPiece, ownerOf, sealPiece } from './journal.ts'
import { createTaskTools, toHandleReply } from './tools.ts'

const START = 1_800_000_000_000
const ada = { subject: 'ada' }
const id = createTaskId('orders:read')
const form = {
  method: 'elicitation/create',
  params: { mode: 'form', message: 'Who?', requestedSchema: { type: 'object', properties: {} } },
} as InputRequest
const FORMS: ClientCapabilities = { elicitation: { form: {} } }

let host: OpenHost
let tasks: TaskHost
let view: TaskView | undefined
let watchers: Set<WatchTask>
let timers: Map<() => void, number>
let delivered: unknown[] = []
let cancelled: 'unknown' | 'cancelled' | 'ended'

const of = () => ({ id, owner: ownerOf(host, ada) })
const seal = (piece: Parameters<typeof sealPiece>[2], value: unknown) => sealPiece(host, of(), piece, value)
const change = (more: Partial<TaskView>): void => {
  view = { ...(view as TaskView), ...more }
  for (const watcher of watchers) watcher(id, view)
}

beforeEach(async () => {
  watchers = new Set()
  timers = new Map()
  delivered = []
  cancelled = 'cancelled'
  const created = createHost({
    audience: 'shop',
    keys: 'k:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=',
    log: 'off',
    store: createMemoryStore(),
    now: () => START,
    tasks: { tools: true },
    limits: { maxQuestions: 2 },
  })
  await created.keys.ready()
  const after = (ms: number, fn: () => void) => {
    timers.set(fn, ms)
    return () => void timers.delete(fn)
  }
  host = Object.assign(created, { platform: { ...created.platform, after } })
  const { engine, ...rest } = host.tasks as TaskHost
  tasks = {
    ...rest,
    tools: { waitMs: 20_000 },
    engine: {
      ...engine,
      get: async () => view,
      async deliver(_id, _owner, answers) {
        for (const [key, sealed] of answers)
          delivered.push([key, openPiece(host, tasks, of(), `answer ${key}`, sealed)])
        return 'resumed'
      },
      cancel: async () => cancelled,
      async watch(ids, _owner, listener) {
        if (!ids.includes(id)) throw new Error(`watches ${ids}`)
        watchers.add(listener)
        listener(id, view)
        return () => void watchers.delete(listener)
      },
    },
  }
  view = {
    id,
    status: 'working',
    createdAt: START,
    updatedAt: START,
    expiresAt: START + 60_000,
    pollMs: 4_500,
    known: true,
    revision: 2,
    inputs: new Map(),
  }
})

const asking = (...keys: string[]): Partial<TaskView> => ({
  status: 'input_required',
  inputs: new Map(keys.map((key) => [key, seal(`input ${key}`, form)])),
})
const toolNamed = (name: string, more: Partial<TaskHost> = {}): BuiltInTool =>
  createTaskTools(host, { ...tasks, ...more }).find((tool) => tool.name === name) as BuiltInTool

interface Asked extends Omit<Partial<Context>, 'client'> {
  readonly after?: unknown
  readonly capabilities?: ClientCapabilities
  readonly tasks?: Partial<TaskHost>
}
async function call(
  name: string,
  { after, capabilities = FORMS, tasks: more, ...ctx }: Asked = {},
): Promise<unknown> {
  const signal = new AbortController().signal
  const given = { principal: ada, signal, round: 1, client: { capabilities }, ...ctx } as unknown as Context
  return await toolNamed(name, more).handler({ taskId: id, after }, given)
}
const status = (more?: Asked) => call('task_status', more)
const told = async (more: Asked = {}): Promise<string> => {
  const result = (await status({ tasks: { tools: undefined }, ...more })) as {
    content: { type: string; text: string }[]
  }
  expect(result.content).toEqual([{ type: 'text', text: expect.any(String) }])
  return result.content[0]?.text ?? ''
}

describe('the tools for tasks', () => {
  it('declare what they take, and whether they change anything', () => {
    const input = { type: 'object', required: ['taskId'], additionalProperties: false }
    expect(toolNamed('task_status').definition).toMatchObject({
      title: 'Status of a task',
      input: { ...input, properties: { taskId: { type: 'string' }, after: { type: 'integer', minimum: 0 } } },
      annotations: { destructiveHint: false, idempotentHint: true, openWorldHint: false },
    })
    expect(toolNamed('task_cancel').definition).toMatchObject({
      title: 'Cancel a task',
      input: { ...input, properties: { taskId: { type: 'string' } } },
      annotations: { destructiveHint: true, idempotentHint: true, openWorldHint: false },
    })
  })

  it('need the scopes of the task', () => {
    for (const name of ['task_status', 'task_cancel']) {
      const { scopes } = toolNamed(name).definition
      expect(typeof scopes === 'function' && scopes({ taskId: id })).toEqual(['orders:read'])
    }
  })
})

describe('a call that continues as a task', () => {
  const task = { taskId: id, status: 'working', statusMessage: 'Started' } as TaskState
  const reply = (target: Partial<Target>) => toHandleReply({ name: 'pay', ...target } as Target, task)

  it('says to the model how to go on', () => {
    const text = expect.stringMatching(
      `^"pay" continues in the background as the task ${id}\\. Call task_status with`,
    )
    expect(reply({})).toEqual({ kind: 'complete', result: { content: [{ type: 'text', text }] } })
    expect(reply({ structured: true })).toMatchObject({
      result: { structuredContent: { task: { taskId: id, status: 'working', statusMessage: 'Started' } } },
    })
  })
})

describe('the status of a task', () => {
  it('is its result, its error, or that it was cancelled', async () => {
    change({ status: 'completed', result: seal('result', { content: [], own: 1 }) })
    expect(await status()).toEqual({ content: [], own: 1 })
    change({ status: 'failed', result: undefined, error: seal('error', { code: -32000, message: 'No' }) })
    expect(await status()).toMatchObject({ isError: true, content: [{ text: `The task ${id} failed: No` }] })
    change({ status: 'cancelled', error: undefined })
    expect(await told()).toBe(`The task ${id} was cancelled. It has no result.`)
  })

  it('E6 is unknown for an id that is wrong', async () => {
    view = undefined
    expect(await status()).toMatchObject({
      isError: true,
      content: [{ text: expect.stringContaining(id.slice(0, 60)) }],
    })
  })

  it.each([
    [undefined, 1],
    [1, 2],
    [41, 42],
    ['41', 1],
    [Number.MAX_SAFE_INTEGER, 1],
    [Number.NaN, 1],
  ])('names a call that no host takes for a repetition: after %s, %i', async (after, next) => {
    const again = `Call task_status again with ${JSON.stringify({ taskId: id, after: next })} in 5 s.`
    expect(await told({ after })).toBe(`The task ${id} is working: Working. ${again}`)
  })

  it('asks the user what the task asks, as many questions as the server allows at once', async () => {
    change(asking('a', 'b', 'c'))
    const asks = await status()
    if (!isInputRequired(asks)) throw new Error('no question')
    expect(asks).toMatchObject({ inputRequests: { a: form, b: form }, requestState: 'task_status' })
    expect(Object.keys(asks.inputRequests ?? {})).toEqual(['a', 'b'])
  })

  it('asks in six rounds of one call, and then says how to be asked again', async () => {
    change(asking('a'))
    expect(isInputRequired(await status({ round: 6 }))).toBe(true)
    expect(await told({ round: 7 })).toBe(
      `The task ${id} waits for an answer. Waiting for an answer to "a" Call task_status again with ${JSON.stringify({ taskId: id, after: 1 })} to ask the user.`,
    )
  })

  it('says that this client cannot ask, or cannot ask that', async () => {
    change(asking('a'))
    expect(await told({ capabilities: {} })).toContain('This client cannot ask its user')
    expect(await told({ capabilities: { elicitation: { url: {} } } })).toContain(
      'This client cannot ask that',
    )
  })

  it('takes answers only with the state that came with the questions', async () => {
    const inputResponses = { a: { action: 'decline' } } as Context['inputResponses']
    await told({ inputResponses })
    expect(delivered).toEqual([])
    await told({ inputResponses, requestState: 'task_status' })
    expect(delivered).toEqual([['a', { action: 'decline' }]])
    await told({ requestState: 'task_status' })
    expect(delivered).toHaveLength(1)
  })
})

describe('waiting for a task', () => {
  const begin = async (more: Asked = {}) => {
    const signal = new AbortController()
    const waiting = status({ signal: signal.signal, ...more })
    for (let turns = 0; turns < 5; turns++) await new Promise((resolve) => setImmediate(resolve))
    return { waiting, signal }
  }
  const isWaiting = () => watchers.size > 0
  const nothingIsLeft = (signal: AbortController) => {
    expect([watchers.size, timers.size, getEventListeners(signal.signal, 'abort')]).toEqual([0, 0, []])
  }

  it('ends as soon as the task is not working', async () => {
    const { waiting, signal } = await begin()
    expect([...timers.values()]).toEqual([20_000])
    change({})
    expect(isWaiting()).toBe(true)
    change({ status: 'cancelled' })
    expect(await waiting).toMatchObject({ structuredContent: { task: { status: 'cancelled' } } })
    nothingIsLeft(signal)
  })

  it('ends after a while, with the task as it is then', async () => {
    const { waiting, signal } = await begin()
    change({ message: seal('message', 'Almost done') })
    for (const timer of timers.keys()) timer()
    expect(await waiting).toMatchObject({ structuredContent: { task: { statusMessage: 'Almost done' } } })
    nothingIsLeft(signal)
  })

  it('ends if the client has gone, the server stops, or the task is gone', async () => {
    for (const end of [
      (signal: AbortController) => signal.abort(),
      () => host.drain(),
      () => {
        for (const watcher of watchers) watcher(id, undefined)
      },
    ]) {
      const { waiting, signal } = await begin()
      end(signal)
      await waiting
      nothingIsLeft(signal)
      Object.assign(host, { draining: false })
    }
  })

  it.each<[string, Asked, Partial<FlowHost>]>([
    ['the server stops', {}, { draining: true }],
    ['the server says so', { tasks: { tools: { waitMs: 0 } } }, {}],
    ['clients do not reach tasks through tools', { tasks: { tools: undefined } }, {}],
    ['the client has gone', { signal: AbortSignal.abort() }, {}],
  ])('does not begin if %s', async (_name, more, given) => {
    Object.assign(host, given)
    const { waiting } = await begin(more)
    expect([isWaiting(), timers.size]).toEqual([false, 0])
    expect(await waiting).toMatchObject({ structuredContent: { task: { status: 'working' } } })
  })

  it('does not begin for a task that is not working, or is gone', async () => {
    change({ status: 'cancelled' })
    let watched = 0
    const { watch } = tasks.engine
    const engine: TaskHost['engine'] = {
      ...tasks.engine,
      watch(...given) {
        watched += 1
        return watch(...given)
      },
    }
    await status({ tasks: { engine } })
    view = undefined
    await status({ tasks: { engine } })
    expect(watched).toBe(0)
  })
})

describe('cancelling a task', () => {
  it.each([
    ['cancelled', /^The task .* was cancelled\./],
    ['ended', /^The task .* had already ended/],
    ['unknown', /^No task has the id/],
  ] as const)('says what came of it: %s', async (outcome, text) => {
    cancelled = outcome
    expect(await call('task_cancel')).toMatchObject({
      content: [{ type: 'text', text: expect.stringMatching(text) }],
      ...(outcome === 'unknown' && { isError: true }),
    })
  })
})

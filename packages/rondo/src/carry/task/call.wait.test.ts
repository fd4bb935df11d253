/** Clients that wait for a task or watch it: what they are asked, and when they are asked again. */

import { getEventListeners } from 'node:events'
import { beforeEach, describe, expect, it } from 'vitest'
import { RondoError } from '../../errors.ts'
import type { Line, Principal, TaskCall } from '../../protocol/call.ts'
import type { OlderReply, TaskState } from '../../protocol/reply.ts'
import type { ClientCapabilities, InputRequest } from '../../protocol/wire.ts'
import { sealEnvelope } from '../../seal/envelope.ts'
import { createHost, type OpenHost } from '../../serve/host.ts'
import { createMemoryStore } from '../../store/memory/store.ts'
import { createTaskId, type TaskView, type WatchTask } from '../../store/task-engine.ts'
import type { TaskHost } from '../host.ts'
import {
  type AskNow,
  type AwaitOptions,
  awaitTask,
  handleTask,
  listTasks,
  observeTask,
  respondToTask,
  toTaskState,
} from './call.ts'
import { openPiece, ownerOf, sealPiece } from './journal.ts'

const START = 1_800_000_000_000
const ANYTHING: ClientCapabilities = { elicitation: { form: {}, url: {} }, sampling: {}, roots: {} }
const FORMS: ClientCapabilities = { elicitation: { form: {} } }
const ada: Principal = { subject: 'ada' }
const id = createTaskId()
const requestedSchema = { type: 'object', properties: { name: { type: 'string' } }, required: ['name'] }
const form = {
  method: 'elicitation/create',
  params: { mode: 'form', message: 'Who?', requestedSchema },
} as InputRequest
const roots = { method: 'roots/list' } as InputRequest

let host: OpenHost
let tasks: TaskHost
/** The task in the store, who watches it, and the answers that arrived. */
let view: TaskView
let watchers: Set<WatchTask>
let delivered: [key: string, answer: unknown][] = []
/** What becomes of the task when answers arrive. */
let onDelivery = (_keys: readonly string[]): void => {}

const of = () => ({ id, owner: ownerOf(host, ada) })
const seal = (piece: Parameters<typeof sealPiece>[2], value: unknown) => sealPiece(host, of(), piece, value)
const change = (more: Partial<TaskView>): void => {
  view = { ...view, ...more, revision: view.revision + 1 }
  for (const watcher of watchers) watcher(id, view)
}
const asking = (questions: Record<string, InputRequest>): Partial<TaskView> => ({
  status: 'input_required',
  inputs: new Map(Object.entries(questions).map(([key, request]) => [key, seal(`input ${key}`, request)])),
})

beforeEach(async () => {
  host = createHost({
    audience: 'shop',
    keys: 'k:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=',
    log: 'off',
    store: createMemoryStore(),
    now: () => START,
  })
  await host.keys.ready()
  view = {
    id,
    status: 'working',
    createdAt: START,
    updatedAt: START,
    expiresAt: START + 1,
    pollMs: 1,
    known: true,
    revision: 1,
    inputs: new Map(),
  }
  watchers = new Set()
  delivered = []
  onDelivery = () => {}
  const watch: TaskHost['engine']['watch'] = async (_ids, _owner, listener) => {
    watchers.add(listener)
    listener(id, view)
    return () => void watchers.delete(listener)
  }
  const { engine, ...rest } = host.tasks as TaskHost
  tasks = {
    ...rest,
    engine: {
      ...engine,
      get: async () => view,
      list: async () => [view],
      watch,
      observe: watch,
      async deliver(_id, _owner, answers) {
        for (const [key, sealed] of answers)
          delivered.push([key, openPiece(host, tasks, of(), `answer ${key}`, sealed)])
        onDelivery([...answers.keys()])
        return 'partial'
      },
    },
  }
})

function line(): Line & { readonly signal: AbortSignal } {
  const { signal } = new AbortController()
  return {
    signal,
    closed: false,
    notify: () => {},
    onClose(listener) {
      signal.addEventListener('abort', listener)
      return () => signal.removeEventListener('abort', listener)
    },
  }
}
const done = () => change({ status: 'completed', inputs: new Map(), result: seal('result', { content: [] }) })
const RESULT = {
  kind: 'complete',
  result: { content: [], _meta: { 'io.modelcontextprotocol/related-task': { taskId: id } } },
}
const callOf = (more: Partial<TaskCall> = {}): TaskCall =>
  ({ kind: 'task', action: 'result', taskId: id, capabilities: ANYTHING, ...more }) as TaskCall
const wait = (ask?: AskNow, more: Partial<TaskCall> = {}, options: AwaitOptions = {}, on: Line = line()) =>
  awaitTask(host, tasks, callOf(more), ada, on, { ask, ...options })

/** Asks with these replies, one after the other; a question too many fails. */
function replies(...given: (Awaited<ReturnType<AskNow>> | ((signal: AbortSignal) => void))[]) {
  const asked: string[][] = []
  const ask: AskNow = async (questions, signal) => {
    asked.push(Object.keys(questions))
    const next = given.shift()
    if (typeof next !== 'function') return next ?? { kind: 'failed', error: new RondoError('INPUT_FAILED') }
    next(signal)
    return { kind: 'answers', answers: {} }
  }
  return { ask, asked }
}
const decline = { action: 'decline' }

describe('a client that waits for a task', () => {
  it('D7 waits while the task is working, and watches nothing afterwards', async () => {
    const on = line()
    const waiting = wait(undefined, {}, {}, on)
    await new Promise((resolve) => setImmediate(resolve))
    change({})
    done()
    expect(await waiting).toEqual(RESULT)
    expect(watchers.size).toBe(0)
    expect(getEventListeners(on.signal, 'abort')).toEqual([])
  })

  it('B10 gets the questions that it declares, and learns why it gets none', async () => {
    change(asking({ a: form, b: roots }))
    expect(await wait(undefined, { capabilities: FORMS })).toMatchObject({
      kind: 'input_required',
      inputRequests: { a: form },
    })
    const refused = async (options: AwaitOptions) => {
      const reply = await wait(undefined, { capabilities: {} }, options)
      return reply.kind === 'error' ? reply.error.message : reply.kind
    }
    expect(await refused({})).toMatch(/does not declare\.$/)
    expect(await refused({ unaskable: 'Nobody is there.' })).toMatch(/does not declare\. Nobody is there\.$/)
  })

  it('is asked once, even if the task takes no more answers', async () => {
    change(asking({ a: form }))
    const { ask, asked } = replies({ kind: 'answers', answers: { a: decline } })
    expect(await wait(ask)).toMatchObject({ kind: 'input_required', inputRequests: { a: form } })
    expect(asked).toEqual([['a']])
    expect(delivered).toEqual([['a', decline]])
  })

  it('its answers name the request that brought them', async () => {
    change(asking({ a: form }))
    onDelivery = done
    const { ask } = replies({ kind: 'answers', answers: { a: decline } })
    expect(await wait(ask, {}, { span: 'span' })).toEqual(RESULT)
    expect(delivered).toEqual([['a', { ...decline, _meta: { 'rondo/span': 'span' } }]])
  })

  it('is asked again for what it did not answer, and the task for what it cannot answer', async () => {
    change(asking({ a: roots, b: form, c: roots }))
    onDelivery = (keys) => (keys.includes('a') ? change(asking({ b: form })) : done())
    const { ask, asked } = replies({ kind: 'unable', key: 'a' }, { kind: 'answers', answers: { b: decline } })
    expect(await wait(ask)).toEqual(RESULT)
    expect(asked).toEqual([['a', 'b', 'c'], ['b']])
    expect(delivered).toEqual([
      ['a', 'roots/list'],
      ['c', 'roots/list'],
      ['b', decline],
    ])
  })

  it('is asked again for the others if one question was answered elsewhere', async () => {
    change(asking({ a: form, b: form }))
    const { ask, asked } = replies(
      (signal) => {
        change(asking({ b: form }))
        expect(signal.aborted).toBe(true)
      },
      (signal) => {
        expect(signal.aborted).toBe(false)
        done()
        expect(signal.aborted).toBe(true)
      },
    )
    expect(await wait(ask)).toEqual(RESULT)
    expect(asked).toEqual([['a', 'b'], ['b']])
    expect(delivered).toEqual([])
    expect(watchers.size).toBe(0)
  })

  it('is not asked any more once the task is gone', async () => {
    change(asking({ a: form }))
    const { ask, asked } = replies((signal) => {
      for (const watcher of watchers) watcher(id, undefined)
      expect(signal.aborted).toBe(true)
      done()
    })
    expect(await wait(ask)).toEqual(RESULT)
    expect(asked).toEqual([['a']])
  })

  it('is not asked at all if the task ends before', async () => {
    change(asking({ a: form }))
    const { watch } = tasks.engine
    let watched = 0
    tasks = {
      ...tasks,
      engine: {
        ...tasks.engine,
        watch(...given) {
          watched += 1
          if (watched === 2) done()
          return watch(...given)
        },
      },
    }
    const { ask, asked } = replies()
    expect(await wait(ask)).toEqual(RESULT)
    expect(asked).toEqual([])
  })

  it('keeps the `_meta` of the result', async () => {
    const related = RESULT.result._meta
    for (const [own, all] of [
      [{ own: 1 }, { own: 1, ...related }],
      ['odd', related],
    ]) {
      change({ status: 'completed', result: seal('result', { content: [], _meta: own }) })
      expect(await wait()).toEqual({ kind: 'complete', result: { content: [], _meta: all } })
    }
  })

  it('gets an error for a task that failed, was cancelled, or is gone', async () => {
    change({ status: 'failed' })
    expect(await wait()).toEqual({
      kind: 'task_failed',
      error: { code: -32603, message: 'The task could not be finished' },
    })
    change({ status: 'cancelled' })
    expect(await wait()).toMatchObject({ kind: 'error', error: { code: 'PEER_TASK' } })
    const on = line()
    const gone = wait(undefined, {}, {}, on)
    for (const watcher of watchers) watcher(id, undefined)
    expect(await gone).toMatchObject({ kind: 'error', error: { code: 'PEER_TASK' } })
  })
})

describe('an answer of an older client', () => {
  it('D6 is refused with an error if the task does not ask', async () => {
    expect(await respondToTask(host, tasks, callOf(), ada)).toMatchObject({
      kind: 'error',
      error: { code: 'PEER_TASK' },
    })
  })

  it('D6 may be consent to open a page, whatever its content', async () => {
    const page = {
      method: 'elicitation/create',
      params: { mode: 'url', message: 'Visit', url: 'https://a.example' },
    }
    change(asking({ a: page as InputRequest, b: form }))
    const accept = { action: 'accept', content: 'none' }
    await respondToTask(host, tasks, callOf({ inputResponses: { a: accept, b: accept } }), ada, 'span')
    expect(delivered).toEqual([['a', { ...accept, _meta: { 'rondo/span': 'span' } }]])
  })
})

describe('a task as a client sees it', () => {
  it('G7 has the message that its handler has set', () => {
    const message = seal('message', 'Almost done')
    expect(toTaskState(host, tasks, of().owner, { ...view, message }).statusMessage).toBe('Almost done')
  })

  it('has questions only while it asks', async () => {
    expect(toTaskState(host, tasks, of().owner, view).inputRequests).toBeUndefined()
    change(asking({ a: roots }))
    const call = callOf({ action: 'get', capabilities: {} })
    const reply = await handleTask({ ...host, tasks }, call, ada)
    expect(reply).toMatchObject({ kind: 'task', task: { status: 'input_required' } })
    expect(reply.kind === 'task' && reply.task.inputRequests).toEqual({})
    expect(await handleTask({ ...host, tasks }, callOf(), ada)).toMatchObject({
      kind: 'error',
      error: { code: 'PEER_METHOD' },
    })
  })

  it('is left out of a list if it does not open, and a full page has a cursor', async () => {
    const list = (limit: number, cursor?: string) =>
      listTasks(host, tasks, { kind: 'tasks', cursor } as never, ada, limit) as Promise<
        Extract<OlderReply, { kind: 'tasks' }>
      >
    expect(await list(2)).toMatchObject({ tasks: [{ taskId: id }] })
    expect((await list(1)).nextCursor).toBeTypeOf('string')
    change({ status: 'completed', result: 'odd' })
    expect((await list(2)).tasks).toEqual([])
    const place = JSON.stringify(['task list', of().owner.principal, 'shop'])
    const text = JSON.stringify({ id: 'last', createdAt: START })
    const pages: unknown[] = []
    tasks = {
      ...tasks,
      engine: {
        ...tasks.engine,
        async list(_owner, page) {
          pages.push(page)
          return []
        },
      },
    }
    await list(3, sealEnvelope(host.keys.ring, place, text).token)
    expect(pages).toEqual([{ after: { id: 'last', createdAt: START }, limit: 3 }])
  })
})

describe('a client that observes a task', () => {
  it('B10 G7 is told of each change once, in what its request declares', async () => {
    const seen: (TaskState | undefined)[] = []
    const last = toTaskState(host, tasks, of().owner, view)
    const stop = await observeTask(host, tasks, last, ada, {}, (task) => void seen.push(task))
    expect(seen).toEqual([])
    change({ ...asking({ a: roots }), updatedAt: START + 1 })
    change({})
    expect(seen).toMatchObject([{ status: 'input_required', inputRequests: {} }])
    expect(seen[0]?.inputRequests).toEqual({})
    for (const watcher of watchers) {
      watcher(id, undefined)
      watcher(id, view)
    }
    expect(seen.slice(1)).toEqual([undefined, expect.objectContaining({ status: 'input_required' })])
    stop()
    expect(watchers.size).toBe(0)
  })
})

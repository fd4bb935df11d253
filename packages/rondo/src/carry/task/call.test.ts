import { beforeEach, describe, expect, it } from 'vitest'
import { RondoError } from '../../errors.ts'
import type { Line, Principal, TaskCall } from '../../protocol/call.ts'
import type { OlderReply, TaskState } from '../../protocol/reply.ts'
import type { ClientCapabilities, InputRequest, InputRequests } from '../../protocol/wire.ts'
import { createHost, type OpenHost } from '../../serve/host.ts'
import { createMemoryStore } from '../../store/memory/store.ts'
import { createTaskId, type TaskTurnOutcome, type TaskView } from '../../store/task-engine.ts'
import type { TaskHost } from '../host.ts'
import {
  type AskNow,
  awaitTask,
  handleTask,
  listTasks,
  observeTask,
  respondToTask,
  toTaskState,
  visibleTo,
  watchTasks,
} from './call.ts'
import { ownerOf, type PieceOf, sealPiece } from './journal.ts'

const START = 1_800_000_000_000
const DAY = 86_400_000
const ANYTHING: ClientCapabilities = { elicitation: { form: {}, url: {} }, sampling: {}, roots: {} }
const ada: Principal = { subject: 'ada' }
const bob: Principal = { subject: 'bob' }

let time = START
let host: OpenHost
let tasks: TaskHost
beforeEach(async () => {
  time = START
  host = createHost({
    audience: 'shop',
    keys: 'k:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=',
    log: 'off',
    store: createMemoryStore({ now: () => time }),
    now: () => time,
  })
  tasks = host.tasks as TaskHost
  await host.keys.ready()
})

const requestedSchema = { type: 'object', properties: { name: { type: 'string' } }, required: ['name'] }
const form = {
  method: 'elicitation/create',
  params: { mode: 'form', message: 'Who?', requestedSchema },
} as InputRequest
const url = {
  method: 'elicitation/create',
  params: { mode: 'url', message: 'Visit', url: 'https://a.example' },
} as InputRequest
const roots = { method: 'roots/list' } as InputRequest
const sampling = { method: 'sampling/createMessage', params: { messages: [], maxTokens: 1 } } as InputRequest

const of = (id: string, principal: Principal | undefined = ada) => ({ id, owner: ownerOf(host, principal) })

/** A task whose only turn ends so. */
async function begin(
  end: (one: PieceOf) => TaskTurnOutcome,
  principal: Principal | undefined = ada,
): Promise<string> {
  const id = createTaskId()
  const one = of(id, principal)
  await tasks.engine.create({ ...one, head: 'h', ttlMs: DAY, pollMs: 6_000 })
  let turned = (): void => {}
  const over = new Promise<void>((resolve) => {
    turned = resolve
  })
  const serving = await tasks.engine.serve(async (turn) => {
    turned()
    return turn.task.id === id ? end(one) : { kind: 'release', delayMs: DAY }
  })
  await over
  await serving.stop()
  return id
}
const asking = (questions: InputRequests, principal?: Principal) =>
  begin((one) => {
    const sealed = Object.entries(questions).map(
      ([key, request]) => [key, sealPiece(host, one, `input ${key}`, request)] as const,
    )
    return { kind: 'park', inputs: new Map(sealed) }
  }, principal)
const completed = () =>
  begin((one) => ({ kind: 'complete', result: sealPiece(host, one, 'result', { content: [] }) }))
const failed = () =>
  begin((one) => ({
    kind: 'fail',
    error: sealPiece(host, one, 'error', { code: -32000, message: 'No', data: 1 }),
  }))

const view = async (id: string, principal = ada): Promise<TaskView> =>
  (await tasks.engine.get(id, ownerOf(host, principal))) as TaskView
const state = async (id: string): Promise<TaskState> =>
  toTaskState(host, tasks, ownerOf(host, ada), await view(id))
const callOf = (taskId: string, more: Partial<TaskCall> = {}): TaskCall =>
  ({ kind: 'task', action: 'get', taskId, capabilities: ANYTHING, ...more }) as TaskCall

const line = (): Line & { close(): void } => {
  const listeners = new Set<() => void>()
  return {
    closed: false,
    notify: () => {},
    onClose(listener) {
      listeners.add(listener)
      return () => void listeners.delete(listener)
    },
    close() {
      for (const listener of listeners) listener()
    },
  }
}
const unknown = { kind: 'error', error: { code: 'PEER_TASK' } }
const accept = (content: object) => ({ action: 'accept', content })

describe('a request about a task', () => {
  it.each(['get', 'update', 'cancel'] as const)(
    'E6 for %s, knows no task of another caller, and none that is made up',
    async (action) => {
      const id = await asking({ q: form })
      const call = callOf(id, { action, inputResponses: { q: accept({ name: 'eve' }) } })
      expect(await handleTask(host, call, bob)).toMatchObject(unknown)
      expect(await handleTask(host, call, undefined)).toMatchObject(unknown)
      expect(await handleTask(host, { ...call, taskId: createTaskId() }, ada)).toMatchObject(unknown)
      expect(await handleTask({ ...host, tasks: undefined }, call, ada)).toMatchObject(unknown)
      expect(await state(id)).toMatchObject({ status: 'input_required', inputRequests: { q: form } })
    },
  )

  it('E3 is acknowledged, whether or not it changes anything', async () => {
    const id = await asking({ q: form })
    const done = { kind: 'complete', result: {} }
    expect(await handleTask(host, callOf(id, { action: 'update' }), ada)).toEqual(done)
    const answer = callOf(id, { action: 'update', inputResponses: { q: accept({ name: 'Ada' }) } })
    expect(await handleTask(host, answer, ada)).toEqual(done)
    expect(await state(id)).toMatchObject({ status: 'working' })
    for (let i = 0; i < 2; i++)
      expect(await handleTask(host, callOf(id, { action: 'cancel' }), ada)).toEqual(done)
    expect(await state(id)).toMatchObject({ status: 'cancelled' })
    expect(await handleTask(host, callOf(id, { action: 'result' }), ada)).toMatchObject({
      error: { code: 'PEER_METHOD' },
    })
  })

  it('E3 shows the result, the error, and what it asks', async () => {
    expect(await state(await completed())).toMatchObject({
      status: 'completed',
      result: { content: [] },
      error: undefined,
    })
    const error = { code: -32000, message: 'No', data: 1 }
    expect(await state(await failed())).toMatchObject({
      status: 'failed',
      error,
      statusMessage: 'No',
      result: undefined,
    })
    const id = await asking({ a: form, b: roots })
    expect(await state(id)).toEqual({
      taskId: id,
      status: 'input_required',
      statusMessage: 'Waiting for an answer to "a", "b"',
      createdAt: START,
      lastUpdatedAt: START,
      ttlMs: DAY,
      pollIntervalMs: 6_000,
      inputRequests: { a: form, b: roots },
      result: undefined,
      error: undefined,
    })
  })

  it('E9 shows an error for a task whose workers died, which has none of its own', async () => {
    const seen = { ...(await view(await failed())), error: undefined }
    expect(toTaskState(host, tasks, ownerOf(host, ada), seen)).toMatchObject({
      error: { code: -32603, message: 'The task could not be finished' },
    })
  })

  it('E3 shows a task whose message does not open', async () => {
    const seen = { ...(await view(await asking({ q: form }))), message: 'odd' }
    expect(toTaskState(host, tasks, ownerOf(host, ada), seen)).toMatchObject({ inputRequests: { q: form } })
  })

  it.each([
    [{}, 0, 500],
    [{}, 499, 500],
    [{}, 1_500.5, 1_501],
    [{}, 60_000, 6_000],
    // The intervals begin again with an answer, but not with a message of the handler.
    [{ updatedAt: START + 1_000 }, 2_000, 1_000],
    [{ updatedAt: START + 1_000, message: 'sealed' }, 2_000, 2_000],
    [{ status: 'completed' }, 0, 6_000],
    [{ status: 'input_required' }, 0, 6_000],
  ])(
    'is polled again after as long as it has been working: %j, after %d ms in %d ms',
    async (more, after, ms) => {
      time = START + after
      const seen = {
        id: 'task',
        status: 'working',
        inputs: new Map(),
        createdAt: START,
        updatedAt: START,
        pollMs: 6_000,
        ...more,
      }
      expect(toTaskState(host, tasks, ownerOf(host, ada), seen as unknown as TaskView).pollIntervalMs).toBe(
        ms,
      )
    },
  )
})

describe('what a request sees of a task', () => {
  const task = (inputRequests: InputRequests | undefined, statusMessage?: string) =>
    ({ taskId: 't', status: 'input_required', statusMessage, inputRequests }) as unknown as TaskState

  it('B10 are the questions that it declares, and the message names the others', () => {
    const only: ClientCapabilities = { elicitation: { form: {} } }
    const given = task({ a: form, b: roots, c: sampling }, 'Waiting for an answer to "a", "b", "c"')
    expect(visibleTo(only, given)).toEqual({
      ...given,
      inputRequests: { a: form },
      statusMessage: expect.stringMatching(/^The task waits for input that needs .*roots.*sampling/),
    })
    expect(visibleTo(only, { ...given, statusMessage: 'Almost done' })?.statusMessage).toMatch(
      /^Almost done The task waits/,
    )
    expect(visibleTo({}, given).inputRequests).toEqual({})
  })

  it('B10 is the whole task if it declares everything, or nothing is asked', () => {
    for (const given of [task({ a: form, b: url }), task({}), task(undefined)])
      expect(visibleTo(ANYTHING, given)).toBe(given)
  })

  it('M6 has no app that draws a form, unless it declares them', () => {
    const _meta = { ui: { resourceUri: 'ui://shop/form' } }
    const drawn = { ...form, params: { ...form.params, _meta } } as InputRequest
    const given = task({ a: drawn, b: roots })
    expect(visibleTo(ANYTHING, given).inputRequests).toEqual({ a: form, b: roots })
    const ui = { elicitation: {}, mimeTypes: ['text/html;profile=mcp-app'] }
    const draws = { ...ANYTHING, extensions: { 'io.modelcontextprotocol/ui': ui } } as ClientCapabilities
    expect(visibleTo(draws, given)).toBe(given)
  })
})

describe('the list of tasks', () => {
  type Page = Extract<OlderReply, { kind: 'tasks' }>
  const page = (cursor?: string, principal: Principal = ada, allows?: (id: string) => boolean) =>
    listTasks(host, tasks, { kind: 'tasks', cursor, allows } as never, principal, 2) as Promise<Page>

  it('E6 has the tasks of its caller, the newest first, page by page', async () => {
    const ids: string[] = []
    for (let i = 0; i < 3; i++) {
      time += 1
      ids.unshift(await asking({ q: form }))
    }
    await asking({ q: form }, bob)
    const first = await page()
    expect(first.tasks.map(({ taskId }) => taskId)).toEqual(ids.slice(0, 2))
    const second = await page(first.nextCursor)
    expect(second.tasks.map(({ taskId }) => taskId)).toEqual(ids.slice(2))
    expect(second.nextCursor).toBeUndefined()
    const [, hidden] = ids
    expect((await page(undefined, ada, (id) => id !== hidden)).tasks.map(({ taskId }) => taskId)).toEqual([
      ids[0],
    ])
  })

  it('E6 refuses a cursor that was altered, or that belongs to another caller', async () => {
    for (let i = 0; i < 2; i++) await asking({ q: form })
    const { nextCursor = '' } = await page()
    for (const [cursor, who] of [
      [nextCursor, bob],
      [`${nextCursor}A`, ada],
      ['', ada],
    ] as const)
      await expect(page(cursor, who)).rejects.toMatchObject({ code: 'PEER_PARAMS' })
  })

  it('E6 is empty for a caller without tasks', async () => {
    expect(await page()).toEqual({ kind: 'tasks', tasks: [], nextCursor: undefined })
  })
})

describe('an answer to a task of an older client', () => {
  it.each<[string, InputRequest, unknown, boolean]>([
    ['content that fits', form, accept({ name: 'Ada' }), true],
    ['content that does not fit', form, accept({ name: 7 }), false],
    ['no content', form, { action: 'accept' }, false],
    ['a No', form, { action: 'decline' }, true],
    ['a cancellation', form, { action: 'cancel' }, true],
    ['an unknown action', form, { action: 'agree', content: { name: 'Ada' } }, false],
    ['nothing', form, null, false],
    ['consent to open a page', url, { action: 'accept' }, true],
    ['roots', roots, { roots: [] }, true],
    ['roots that are no list', roots, { roots: 'all' }, false],
    ['a message', sampling, { role: 'assistant' }, true],
    ['no message', sampling, { role: 7 }, false],
  ])('D6 counts if it is of use: %s', async (_name, request, answer, counts) => {
    const id = await asking({ q: request })
    const call = callOf(id, { inputResponses: { q: answer, toString: { action: 'decline' } } as never })
    expect(await respondToTask(host, tasks, call, ada)).toEqual({
      kind: 'complete',
      result: { _meta: { 'io.modelcontextprotocol/related-task': { taskId: id } } },
    })
    expect((await state(id)).status).toBe(counts ? 'working' : 'input_required')
  })

  it('D6 is refused if the task is not waiting for one, and if there is no such task', async () => {
    const call = callOf(await completed())
    expect(await respondToTask(host, tasks, call, ada)).toMatchObject({
      error: { code: 'PEER_TASK', message: expect.stringContaining('completed') },
    })
    expect(await respondToTask(host, tasks, call, bob)).toMatchObject(unknown)
  })
})

describe('a client that waits for a task', () => {
  const wait = (id: string, ask?: AskNow, more: Partial<TaskCall> = {}, on: Line = line()) =>
    awaitTask(host, tasks, callOf(id, more), ada, on, { ask })
  const _meta = (taskId: string) => ({ 'io.modelcontextprotocol/related-task': { taskId } })

  it('gets the result, the error, or that it was cancelled', async () => {
    const [one, two, three] = [await completed(), await failed(), await asking({ q: form })]
    await handleTask(host, callOf(three, { action: 'cancel' }), ada)
    expect(await wait(one)).toEqual({ kind: 'complete', result: { content: [], _meta: _meta(one) } })
    expect(await wait(two)).toEqual({ kind: 'task_failed', error: { code: -32000, message: 'No', data: 1 } })
    expect(await wait(three)).toMatchObject({
      error: { code: 'PEER_TASK', message: expect.stringContaining('cancelled') },
    })
    expect(await awaitTask(host, tasks, callOf(one), bob, line())).toMatchObject(unknown)
  })

  it('gets the questions if they are not pushed', async () => {
    const id = await asking({ q: form })
    expect(await wait(id)).toEqual({ kind: 'input_required', inputRequests: { q: form }, _meta: _meta(id) })
  })

  it('B10 is told which capability it lacks if it can see no question', async () => {
    const id = await asking({ q: roots })
    const reply = await wait(id, undefined, { capabilities: {} })
    expect(reply).toMatchObject({ error: { code: 'PEER_TASK', message: expect.stringContaining('roots') } })
  })

  it('is asked once, and the answers reach the task', async () => {
    const id = await asking({ a: form, b: roots })
    const asked: string[][] = []
    const ask: AskNow = async (questions) => {
      asked.push(Object.keys(questions))
      return { kind: 'answers', answers: { a: accept({ name: 'Ada' }), b: { roots: [] } } }
    }
    const on = line()
    const waiting = wait(id, ask, {}, on)
    await expect.poll(async () => (await view(id)).status).toBe('working')
    on.close()
    expect(await waiting).toMatchObject(unknown)
    expect(asked).toEqual([['a', 'b']])
  })

  it('is asked again what it has not answered', async () => {
    const id = await asking({ a: form, b: roots })
    const asked: string[][] = []
    const ask: AskNow = async (questions) => {
      const [key = ''] = Object.keys(questions)
      asked.push(Object.keys(questions))
      return { kind: 'answers', answers: { [key]: { action: 'decline', roots: [] } } }
    }
    const on = line()
    const waiting = wait(id, ask, {}, on)
    await expect.poll(async () => (await view(id)).status).toBe('working')
    on.close()
    await waiting
    expect(asked).toEqual([['a', 'b'], ['b']])
  })

  it('is not asked for a method that it turned out not to implement, and the task goes on without it', async () => {
    const id = await asking({ a: roots, b: form, c: roots })
    const asked: string[][] = []
    const ask: AskNow = async (questions) => {
      asked.push(Object.keys(questions))
      return asked.length === 1
        ? { kind: 'unable', key: 'a' }
        : { kind: 'answers', answers: { b: { action: 'decline' } } }
    }
    const on = line()
    const waiting = wait(id, ask, {}, on)
    await expect.poll(async () => (await view(id)).status).toBe('working')
    on.close()
    await waiting
    expect(asked).toEqual([['a', 'b', 'c'], ['b']])
  })

  it('gets the error if nobody can be asked', async () => {
    const id = await asking({ q: form })
    const error = new RondoError('INPUT_TIMEOUT')
    expect(await wait(id, async () => ({ kind: 'failed', error }))).toEqual({ kind: 'error', error })
  })

  it('is not asked any more once the question was answered elsewhere', async () => {
    const id = await asking({ q: form })
    const on = line()
    let withdrawn = false
    const ask: AskNow = (_questions, signal) =>
      new Promise((resolve) => {
        signal.addEventListener('abort', () => {
          withdrawn = true
          resolve({ kind: 'answers', answers: { q: accept({ name: 'late' }) } })
        })
        void handleTask(
          host,
          callOf(id, { action: 'update', inputResponses: { q: { action: 'decline' } } }),
          ada,
        )
      })
    const waiting = wait(id, ask, {}, on)
    await expect.poll(() => withdrawn).toBe(true)
    on.close()
    expect(await waiting).toMatchObject(unknown)
  })
})

describe('a client that watches tasks', () => {
  it('E6 sees its own as they change, in what its request declares, and no other', async () => {
    const id = await asking({ q: roots })
    const foreign = await asking({ q: roots }, bob)
    const seen: TaskState[] = []
    const stop = await watchTasks(host)(
      [id, foreign, createTaskId()],
      ada,
      {},
      (task) => void seen.push(task),
    )
    await handleTask(host, callOf(id, { action: 'cancel' }), ada)
    await expect.poll(() => seen.map(({ status }) => status)).toEqual(['input_required', 'cancelled'])
    expect(seen.every(({ taskId }) => taskId === id)).toBe(true)
    expect(seen[0]).toMatchObject({ inputRequests: {} })
    stop()
    expect(await watchTasks({ ...host, tasks: undefined })([id], ada, {}, () => {})).toBeTypeOf('function')
  })

  it('R6 is told of changes after the last one that it knows, and does not count as a request about the task', async () => {
    const id = createTaskId()
    await tasks.engine.create({ ...of(id), head: 'h', ttlMs: DAY, pollMs: 1, known: false })
    const list = (await listTasks(host, tasks, { kind: 'tasks' } as never, ada, 9)) as Extract<
      OlderReply,
      { kind: 'tasks' }
    >
    const [last] = list.tasks as [TaskState]
    const seen: (string | undefined)[] = []
    const stop = await observeTask(host, tasks, last, ada, ANYTHING, (task) => void seen.push(task?.status))
    expect(seen).toEqual([])
    const [row] = await tasks.engine.list(ownerOf(host, ada), { limit: 1 })
    expect(row?.known).toBe(false)
    await tasks.engine.cancel(id, ownerOf(host, ada))
    await expect.poll(() => seen).toEqual(['cancelled'])
    stop()
  })
})

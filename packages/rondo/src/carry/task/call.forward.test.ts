/** Requests about tasks of other servers, which a gateway passes on, and about tasks that a call names as related. */

import { beforeEach, describe, expect, it } from 'vitest'
import type { FlowCall, Principal, TaskCall } from '../../protocol/call.ts'
import type { TaskState } from '../../protocol/reply.ts'
import type { ClientCapabilities } from '../../protocol/wire.ts'
import { createHost, type OpenHost } from '../../serve/host.ts'
import { createMemoryStore } from '../../store/memory/store.ts'
import { createTaskId } from '../../store/task-engine.ts'
import type { ForwardedTasks, TaskCaller } from '../../tool/forward.ts'
import type { FlowHost, TaskHost } from '../host.ts'
import { handleTask, watchTasks, withRelatedTasks } from './call.ts'
import { ownerOf } from './journal.ts'

const FORMS: ClientCapabilities = { elicitation: { form: {} } }
const ada: Principal = { subject: 'ada' }
const THEIRS = 'their-task'
const unknown = { kind: 'error', error: { code: 'PEER_TASK' } }
const acknowledged = { kind: 'complete', result: {} }

let host: OpenHost
let tasks: TaskHost
let passed: unknown[] = []
let callers: TaskCaller[] = []
let report: (task: TaskState) => void = () => {}
const state = {
  taskId: THEIRS,
  status: 'input_required',
  inputRequests: { r: { method: 'roots/list' } },
} as unknown as TaskState

const forwarded: ForwardedTasks = {
  owns: (id) => id.startsWith('their-'),
  async get(id, caller) {
    callers.push(caller)
    return id === THEIRS ? state : undefined
  },
  async answer(id, responses, caller) {
    callers.push(caller)
    passed.push(['answer', id, responses])
    return id === THEIRS
  },
  async cancel(id, caller) {
    callers.push(caller)
    passed.push(['cancel', id])
    return id === THEIRS
  },
  watch(ids, caller, changed) {
    callers.push(caller)
    passed.push(['watch', ids])
    report = changed
    return () => void passed.push('stop')
  },
}

beforeEach(async () => {
  passed = []
  callers = []
  host = createHost({
    audience: 'shop',
    keys: 'k:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=',
    log: 'off',
    store: createMemoryStore(),
  })
  tasks = host.tasks as TaskHost
  await host.keys.ready()
})

const gateway = (more: Partial<FlowHost> = {}): FlowHost => ({ ...host, forwarded, ...more })
const callOf = (taskId: string, more: Partial<TaskCall> = {}): TaskCall =>
  ({ kind: 'task', action: 'get', taskId, capabilities: FORMS, ...more }) as TaskCall
const create = async (owner = ada): Promise<string> => {
  const id = createTaskId()
  await tasks.engine.create({ id, owner: ownerOf(host, owner), head: 'h', ttlMs: 60_000, pollMs: 1 })
  return id
}

describe('a request about a task of another server', () => {
  it('is passed on, also by a gateway without a store', async () => {
    for (const more of [{}, { tasks: undefined }])
      expect(await handleTask(gateway(more), callOf(THEIRS), ada)).toMatchObject({
        kind: 'task',
        task: { taskId: THEIRS },
      })
    const [caller] = callers
    expect(caller?.principal).toBe(ada)
    expect([caller?.can('form'), caller?.can('roots')]).toEqual([true, false])
  })

  it('B10 sees only what it declares', async () => {
    const reply = await handleTask(gateway(), callOf(THEIRS), ada)
    expect(reply).toMatchObject({
      task: { inputRequests: {}, statusMessage: expect.stringContaining('roots') },
    })
  })

  it('passes answers and a cancellation on', async () => {
    const inputResponses = { q: { action: 'decline' } }
    for (const call of [
      callOf(THEIRS, { action: 'update', inputResponses }),
      callOf(THEIRS, { action: 'update' }),
    ])
      expect(await handleTask(gateway(), call, ada)).toEqual(acknowledged)
    expect(await handleTask(gateway(), callOf(THEIRS, { action: 'cancel' }), ada)).toEqual(acknowledged)
    expect(passed).toEqual([
      ['answer', THEIRS, inputResponses],
      ['answer', THEIRS, {}],
      ['cancel', THEIRS],
    ])
  })

  it('E6 knows no task that the other server does not know, and waits for none', async () => {
    for (const action of ['get', 'update', 'cancel', 'result'] as const)
      expect(await handleTask(gateway(), callOf('their-other', { action }), ada)).toMatchObject(unknown)
    expect(await handleTask(gateway(), callOf(THEIRS, { action: 'result' }), ada)).toMatchObject(unknown)
    expect(passed).toEqual([
      ['answer', 'their-other', {}],
      ['cancel', 'their-other'],
    ])
  })

  it('is not taken for a request about a task of this server', async () => {
    const id = await create()
    expect(await handleTask(gateway(), callOf(id), ada)).toMatchObject({ kind: 'task', task: { taskId: id } })
    expect(callers).toEqual([])
  })
})

describe('watching tasks of this server and of others', () => {
  /** Watches, and notes what reaches the engine of this server. */
  async function watch(ids: readonly string[], more: Partial<FlowHost> = {}) {
    const own: unknown[] = []
    const seen: TaskState[] = []
    const engine: TaskHost['engine'] = {
      ...tasks.engine,
      async watch(watched, ...rest) {
        own.push(watched)
        const stop = await tasks.engine.watch(watched, ...rest)
        return () => {
          own.push('stop')
          stop()
        }
      },
    }
    const watching = watchTasks(gateway({ tasks: { ...tasks, engine }, ...more }))
    const stop = await watching(ids, ada, FORMS, (task) => void seen.push(task))
    return { own, seen, stop }
  }

  it('asks each server for its own, and stops both', async () => {
    const id = await create()
    const { own, seen, stop } = await watch([id, THEIRS])
    report(state)
    expect(seen.map(({ taskId }) => taskId)).toEqual([id, THEIRS])
    expect(seen[1]?.inputRequests).toEqual({})
    expect([own, passed]).toEqual([[[id]], [['watch', [THEIRS]]]])
    stop()
    expect([own.at(-1), passed.at(-1)]).toEqual(['stop', 'stop'])
  })

  it('asks nobody who has none of them', async () => {
    const theirs = await watch([THEIRS])
    expect(theirs.own).toEqual([])
    theirs.stop()
    passed = []
    const id = await create()
    const own = await watch([id])
    own.stop()
    expect(passed).toEqual([])
    const alone = await watch([id, THEIRS], { forwarded: undefined })
    expect(alone.own).toEqual([[id, THEIRS]])
    alone.stop()
    const none = await watch([id, THEIRS], { tasks: undefined })
    none.stop()
    expect(passed).toEqual([['watch', [THEIRS]], 'stop'])
  })
})

describe('a call that names related tasks', () => {
  const call = { kind: 'flow', target: 'pay' } as FlowCall

  it('learns of those that its caller has, if the server is told to', async () => {
    const own = await create()
    const relatedTaskIds = [own, await create({ subject: 'bob' }), createTaskId()]
    const related = { ...host, tasks: { ...tasks, related: true } }
    expect(await withRelatedTasks(related, { ...call, relatedTaskIds }, ada)).toEqual({
      ...call,
      relatedTaskIds: [own],
    })
    expect(await withRelatedTasks(related, call, ada)).toEqual({ ...call, relatedTaskIds: [] })
    for (const silent of [host, { ...host, tasks: undefined }])
      expect(await withRelatedTasks(silent, { ...call, relatedTaskIds }, ada)).toEqual(call)
  })
})

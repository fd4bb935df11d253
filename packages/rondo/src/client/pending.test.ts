/** Tasks that are kept, resumed and looked at by the caller instead of followed. */

import { describe, expect, it } from 'vitest'
import { createManualClock } from '../../../../test/support/manual-clock.ts'
import { type Stream, scriptSession } from '../../../../test/support/scripted-session.ts'
import {
  asks,
  capabilities,
  completed,
  EXTENSIONS,
  methods,
  polling,
  question,
  rush,
  task,
  taskServer,
  yes,
} from '../../../../test/support/scripted-task.ts'
import { connect } from './connect.ts'
import type { PendingCall } from './pending.ts'
import { parsePending } from './stored-pending.ts'

describe('a task that the caller drives', () => {
  const request = { method: 'tools/call', name: 'book' } as const

  it('C10 C11 is plain JSON, which another process can answer and continue', async () => {
    const clock = createManualClock()
    const server = taskServer(asks({ a: question }), completed('done'))
    const first = await connect(server, polling({ clock, createId: () => 'call-1' }))
    const started = await first.start(request)
    expect(started).toMatchObject({
      status: 'task',
      pending: {
        id: 'call-1',
        request,
        server: { name: 'scripted' },
        task: { taskId: 'task-1', pollIntervalMs: 1_000, ttlMs: 60_000 },
      },
    })
    expect(methods(server.seen)).toEqual(['tools/call'])
    const stored = JSON.stringify((started as { pending: PendingCall }).pending)

    const second = await connect(server, polling({ clock }))
    const asked = await rush(second.resume(parsePending(stored)), clock)
    if (asked.status !== 'input_required') throw new Error(asked.status)
    await expect(second.resume(asked.pending)).rejects.toMatchObject({ code: 'INPUT_MISSING' })
    const again = parsePending(JSON.stringify(asked.pending))
    expect(
      await rush((await connect(server, polling({ clock }))).resume(again, { a: yes() }), clock),
    ).toEqual({
      status: 'complete',
      result: { content: [{ type: 'text', text: 'done' }] },
      rounds: 1,
    })
  })

  it('is reported after each change, and finished by handlers', async () => {
    const clock = createManualClock()
    const server = taskServer(asks({ a: question }), completed('done'))
    const client = await connect(server, polling({ clock }))
    const saved: PendingCall[] = []
    await rush(client.callTool('t', {}, { onPending: (pending) => void saved.push(pending) }), clock)
    expect(
      saved.map(({ questions, answers, task: own }) => [
        Object.keys(questions).length,
        Object.keys(answers).length,
        own?.answered,
      ]),
    ).toEqual([
      [0, 0, []],
      [1, 0, []],
      [1, 1, []],
      [0, 0, ['a']],
    ])
    // A process that finds the answered call delivers the answer again: the first one counts.
    const found = parsePending(JSON.stringify(saved[2]))
    const other = taskServer(completed('done'))
    expect(await rush((await connect(other, polling({ clock }))).finish(found), clock)).toMatchObject({
      content: [{ text: 'done' }],
    })
    expect(methods(other.seen)).toEqual(['tasks/update', 'tasks/get'])
  })

  it('is not cancelled if only the waiting for it is aborted', async () => {
    const clock = createManualClock()
    const stop = new AbortController()
    const server = taskServer(() => {
      stop.abort(new Error('enough'))
      return task('working')
    })
    const client = await connect(server, polling({ clock }))
    const started = await client.start(request)
    if (started.status !== 'task') throw new Error(started.status)
    await expect(rush(client.resume(started.pending, {}, { signal: stop.signal }), clock)).rejects.toThrow(
      'enough',
    )
    expect(methods(server.seen)).not.toContain('tasks/cancel')
  })

  it('C11 is not cancelled if `finish` is aborted, since it may be stored and resumed', async () => {
    const clock = createManualClock()
    const server = taskServer(task('working'))
    const client = await connect(server, polling({ clock, deadlineMs: 30_000 }))
    const started = await client.start(request)
    if (started.status !== 'task') throw new Error(started.status)
    await expect(rush(client.finish(started.pending), clock)).rejects.toMatchObject({
      code: 'LIMIT_CLIENT_DEADLINE',
    })
    expect(methods(server.seen)).not.toContain('tasks/cancel')
  })

  it('can be read, answered and cancelled by its id alone', async () => {
    const server = taskServer(asks({ a: question }))
    const handle = (await connect(server)).task('task-1')
    expect(await handle.get()).toMatchObject({ taskId: 'task-1', inputRequests: { a: question } })
    await handle.answer({ a: yes() })
    await handle.cancel()
    expect(methods(server.seen)).toEqual(['tasks/get', 'tasks/update', 'tasks/cancel'])
    const declared = { elicitation: { form: {}, url: {} }, extensions: EXTENSIONS }
    for (const seen of server.seen) expect(capabilities(seen)).toEqual(declared)
  })

  it('reports each change once, with messages cleaned for display', async () => {
    const clock = createManualClock()
    const at = (minute: number, statusMessage: string) =>
      task('working', { statusMessage, lastUpdatedAt: `2026-07-28T00:0${minute}:00Z` })
    const server = taskServer(at(1, 'one'), at(1, 'one'), at(2, 'two\u001b[2J'), completed('done'))
    const seen: unknown[] = []
    const client = await connect(server, polling({ clock }))
    await rush(
      client.callTool('t', {}, { onTask: ({ status, statusMessage }) => seen.push([status, statusMessage]) }),
      clock,
    )
    expect(seen).toEqual([
      ['working', 'one'],
      ['working', 'two[2J'],
      ['completed', undefined],
    ])
  })
})

describe('a task of the draft whose questions come with a state', () => {
  const TASK = {
    taskId: 'task-1',
    createdAt: '2026-01-01T00:00:00Z',
    lastUpdatedAt: '2026-01-01T00:00:00Z',
    ttl: 60_000,
    pollInterval: 1_000,
  }
  const script = (states: readonly (string | undefined)[]) => {
    let answered = 0
    const told: Record<string, unknown>[] = []
    const reply = (stream: Stream): object => {
      const { method, params } = stream.message as { method: string; params: Record<string, unknown> }
      const status = answered < states.length ? 'input_required' : 'completed'
      if (method === 'tools/call') return { resultType: 'complete', task: { ...TASK, status: 'working' } }
      if (method === 'tasks/get') return { resultType: 'complete', ...TASK, status }
      if (method === 'tasks/input_response') {
        told.push(params)
        answered += 1
        return { resultType: 'complete' }
      }
      if (status === 'completed') return { resultType: 'complete', content: [{ type: 'text', text: 'done' }] }
      return {
        resultType: 'input_required',
        inputRequests: { [`q${answered}`]: question },
        requestState: states[answered],
      }
    }
    const capabilities = { tools: {}, tasks: { requests: { tools: { call: {} } } } }
    const onCall = (stream: Stream) => {
      stream.send({ id: stream.message.id, result: reply(stream) })
      stream.end()
    }
    return { told, server: scriptSession({ version: 'DRAFT-2026-v1', capabilities, onCall }) }
  }
  const mode = 'DRAFT-2026-v1'

  it('D4 sends exactly that state with its answers, and none if there was none', async () => {
    const clock = createManualClock()
    const { told, server } = script(['first \u0007', undefined, ''])
    const client = await connect(server, polling({ clock, mode }))
    await rush(client.callTool('t', {}, { taskTtlMs: 60_000 }), clock)
    expect(told.map(({ requestState }) => requestState)).toEqual(['first \u0007', undefined, ''])
    expect(told[1]).not.toHaveProperty('requestState')
  })

  it('D4 C11 keeps the state in the pending call, and accepts it by hand', async () => {
    const clock = createManualClock()
    const { told, server } = script(['one', 'two'])
    const client = await connect(server, polling({ clock, mode }))
    const begun = await client.start({ method: 'tools/call', name: 't' }, { taskTtlMs: 60_000 })
    const asked = await rush(client.resume((begun as { pending: PendingCall }).pending), clock)
    const stored = parsePending(JSON.stringify((asked as { pending: PendingCall }).pending))
    await rush(client.resume(stored, { q0: yes() }), clock)
    const { requestState } = await client.task('task-1').get()
    expect(requestState).toBe('two')
    await client.task('task-1').answer({ q1: yes() }, { requestState })
    expect(told.map((params) => params.requestState)).toEqual(['one', 'two'])
  })
})

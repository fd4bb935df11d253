/** Tasks as a client lives through them, over a server in memory that says what it is told to. */

import { describe, expect, it } from 'vitest'
import { createManualClock } from '../../test/support/manual-clock.ts'
import {
  asking,
  formQuestion,
  type Said,
  type Seen,
  scriptServer,
} from '../../test/support/scripted-server.ts'
import { ACK, asks, completed, created, task } from '../../test/support/scripted-task.ts'
import type { ElicitResult } from '../protocol/wire.ts'
import { type ConnectOptions, connect } from './connect.ts'
import { parsePending } from './parse-pending.ts'
import type { PendingCall } from './pending.ts'

const yes = (): ElicitResult => ({ action: 'accept', content: { x: 'y' } })
const question = formQuestion('Which?', 'x')
const polling = (more: ConnectOptions = {}): ConnectOptions => ({
  answers: { elicitation: { form: yes } },
  tasks: 'poll',
  random: () => 0,
  ...more,
})
const methods = (seen: readonly Seen[]) => seen.map(({ method }) => method)
const EXTENSIONS = { 'io.modelcontextprotocol/tasks': {} }
const capabilities = ({ meta }: Seen) => meta['io.modelcontextprotocol/clientCapabilities']

/** A server whose tool call becomes a task; `states` are what it looks like, one look after the other. */
const taskServer = (...states: (Said | ((seen: Seen) => Said))[]) => {
  let look = 0
  return scriptServer((seen) => {
    if (seen.method === 'tools/call') return created()
    if (seen.method !== 'tasks/get') return ACK
    const state = states[Math.min(look++, states.length - 1)] ?? ACK
    return typeof state === 'function' ? state(seen) : state
  })
}

/** Lets a call run on a clock that jumps to whatever it waits for next. */
async function rush<T>(
  work: Promise<T>,
  clock: ReturnType<typeof createManualClock>,
  ms = 1_000,
): Promise<T> {
  let done = false
  const end = work.finally(() => {
    done = true
  })
  end.catch(() => {})
  for (let i = 0; i < 5_000 && !done; i++) {
    await new Promise((resolve) => setImmediate(resolve))
    if (!done && clock.open > 0) clock.advance(ms)
  }
  return end
}

describe('a call that becomes a task', () => {
  it('C6 E3 is looked at, answered and followed to its result', async () => {
    const clock = createManualClock()
    const server = taskServer(task('working'), asks({ a: question }), completed('done'))
    const client = await connect(server, polling({ clock }))
    expect(await rush(client.callTool('book', { id: 1 }), clock)).toEqual({
      content: [{ type: 'text', text: 'done' }],
    })
    expect(methods(server.seen)).toEqual([
      'tools/call',
      'tasks/get',
      'tasks/get',
      'tasks/update',
      'tasks/get',
    ])
    expect(server.seen[3]?.params).toMatchObject({ taskId: 'task-1', inputResponses: { a: yes() } })
    for (const { headers } of server.seen.slice(1)) expect(headers.get('mcp-name')).toBe('task-1')
  })

  it('E1 declares the extension on tool calls and on what follows, and nowhere else', async () => {
    const clock = createManualClock()
    const server = taskServer(completed('done'))
    const client = await connect(server, polling({ clock }))
    await rush(client.callTool('t'), clock)
    for (const seen of server.seen) {
      expect(capabilities(seen)).toEqual({ elicitation: { form: {} }, extensions: EXTENSIONS })
    }
    await client.getPrompt('p').catch(() => {})
    expect(server.seen.map(capabilities).at(-1)).toEqual({ elicitation: { form: {} } })
  })

  it('declares nothing and takes no task with tasks: false', async () => {
    const server = scriptServer(created())
    const client = await connect(server, { tasks: false })
    await expect(client.callTool('t')).rejects.toMatchObject({ code: 'PEER_ANSWER' })
    expect(server.seen.map(capabilities)).toEqual([{}])
  })

  it.each([
    ['prompts/get', (client: Awaited<ReturnType<typeof connect>>) => client.getPrompt('p')],
    ['resources/read', (client: Awaited<ReturnType<typeof connect>>) => client.readResource('x:y')],
    ['tools/list', (client: Awaited<ReturnType<typeof connect>>) => client.listTools()],
  ])('refuses a task as the answer to %s', async (_method, call) => {
    const client = await connect(scriptServer(created()))
    await expect(call(client)).rejects.toMatchObject({ code: 'PEER_ANSWER' })
  })

  it.each([
    ['without an id', created({ taskId: undefined })],
    ['in a status nobody knows', created({ status: 'resting' })],
    ['without a time', created({ createdAt: 'yesterday' })],
  ])('refuses a task %s', async (_what, answer) => {
    await expect((await connect(scriptServer(answer))).callTool('t')).rejects.toMatchObject({
      code: 'PEER_ANSWER',
    })
  })

  it.each([
    ['another task', task('working', { taskId: 'task-2' })],
    ['a result that is none', task('completed', { result: { content: 'text' } })],
    ['a result that asks', task('completed', { result: asking({ a: question }) })],
    ['a failure without an error', task('failed')],
    ['questions that are none', asks({ a: { method: 'ping' } })],
  ])('refuses %s as the state of its task', async (_what, state) => {
    const clock = createManualClock()
    const client = await connect(taskServer(state), polling({ clock }))
    await expect(rush(client.callTool('t'), clock)).rejects.toMatchObject({ code: 'PEER_ANSWER' })
  })
})

describe('looking', () => {
  it('waits as long as the server says, and a little longer by chance', async () => {
    for (const [random, expected] of [
      [0, [1_000, 3_000, 6_000]],
      [1, [1_100, 3_300, 6_600]],
    ] as const) {
      const clock = createManualClock(0)
      const looks: number[] = []
      const server = scriptServer(({ method }) => {
        if (method === 'tools/call') return created()
        looks.push(clock.now())
        return looks.length === 3
          ? completed('done')
          : task('working', { pollIntervalMs: 1_000 * (looks.length + 1) })
      })
      const client = await connect(server, polling({ clock, random: () => random }))
      await rush(client.callTool('t'), clock, 100)
      expect(looks).toEqual(expected)
    }
  })

  it('does not look more often than every 50 ms, whatever the server says', async () => {
    const clock = createManualClock(0)
    const looks: number[] = []
    const server = scriptServer(({ method }) => {
      if (method === 'tools/call') return created({ pollIntervalMs: 0 })
      looks.push(clock.now())
      return looks.length === 3 ? completed('done') : task('working', { pollIntervalMs: 0 })
    })
    await rush((await connect(server, polling({ clock }))).callTool('t'), clock, 10)
    expect(looks).toEqual([50, 100, 150])
  })

  it('lives through a server that is gone for a while, and gives up on one that stays away', async () => {
    const gone = () => new Response('', { status: 503, headers: { 'Retry-After': '60' } })
    const clock = createManualClock()
    const client = await connect(taskServer(gone, gone, completed('done')), polling({ clock }))
    expect(await rush(client.callTool('t'), clock)).toMatchObject({ content: [{ text: 'done' }] })
    const other = await connect(taskServer(gone), polling({ clock }))
    await expect(rush(other.callTool('t'), clock)).rejects.toMatchObject({ code: 'PEER_BUSY' })
  })
})

describe('questions of a task', () => {
  it('E3 are shown once, though the server goes on naming them', async () => {
    const clock = createManualClock()
    const shown: string[] = []
    const server = taskServer(
      asks({ a: question }),
      asks({ a: question }),
      asks({ a: question, b: question }),
      completed('done'),
    )
    const form = (_: unknown, { key }: { key: string }) => {
      shown.push(key)
      return yes()
    }
    const client = await connect(server, polling({ clock, answers: { elicitation: { form } } }))
    await rush(client.callTool('t'), clock)
    expect(shown).toEqual(['a', 'b'])
    const updates = server.seen.filter(({ method }) => method === 'tasks/update')
    expect(updates.map(({ params }) => Object.keys(params.inputResponses as object))).toEqual([['a'], ['b']])
  })

  it('C8 T22 are asked no more often than rounds may be, and the task is cancelled', async () => {
    const clock = createManualClock()
    let n = 0
    const server = taskServer(() => asks({ [`q${n++}`]: question }))
    const client = await connect(server, polling({ clock, maxRounds: 3 }))
    await expect(rush(client.callTool('t'), clock)).rejects.toMatchObject({ code: 'LIMIT_CLIENT_ROUNDS' })
    expect(methods(server.seen).at(-1)).toBe('tasks/cancel')
    expect(methods(server.seen).filter((method) => method === 'tasks/update')).toHaveLength(3)
  })

  it('C7 C13 go through the same checks and policies as those of rounds', async () => {
    const clock = createManualClock()
    const server = taskServer(asks({ a: question }))
    const client = await connect(server, polling({ clock, answers: {} }))
    await expect(rush(client.callTool('t'), clock)).rejects.toMatchObject({ code: 'INPUT_NO_HANDLER' })
    const rounds: string[][] = []
    const strict = await connect(
      server,
      polling({
        clock,
        onRound: ({ questions }) => {
          rounds.push(Object.keys(questions))
          return { kind: 'refuse', reason: 'no' }
        },
      }),
    )
    await expect(rush(strict.callTool('t'), clock)).rejects.toMatchObject({ code: 'INPUT_REFUSED' })
    expect(rounds).toEqual([['a']])
    expect(methods(server.seen).filter((method) => method === 'tasks/cancel')).toHaveLength(2)
  })
})

describe('the end of a task', () => {
  it('E8 is the server’s own error if it failed', async () => {
    const clock = createManualClock()
    const server = taskServer(task('failed', { error: { code: -32603, message: 'broke', data: 7 } }))
    const client = await connect(server, polling({ clock }))
    await expect(rush(client.callTool('t'), clock)).rejects.toMatchObject({
      code: 'PEER_ERROR',
      peer: { code: -32603, message: 'broke', data: 7 },
    })
    expect(methods(server.seen)).not.toContain('tasks/cancel')
  })

  it('is an error of its own if it was cancelled', async () => {
    const clock = createManualClock()
    const client = await connect(taskServer(task('cancelled')), polling({ clock }))
    await expect(rush(client.callTool('t'), clock)).rejects.toMatchObject({ code: 'PEER_TASK_CANCELLED' })
  })

  it('C12 T22 comes at the deadline for a task that never ends; the server is told', async () => {
    const clock = createManualClock()
    const server = taskServer(task('working'))
    const client = await connect(server, polling({ clock, deadline: 30_000 }))
    await expect(rush(client.callTool('t'), clock)).rejects.toMatchObject({ code: 'LIMIT_CLIENT_DEADLINE' })
    expect(methods(server.seen).at(-1)).toBe('tasks/cancel')
    expect(methods(server.seen).filter((method) => method === 'tasks/get').length).toBeLessThanOrEqual(30)
  })

  it('C12 does not count the time people take against the deadline', async () => {
    const clock = createManualClock()
    const slowly = () => {
      clock.advance(86_400_000)
      return yes()
    }
    const server = taskServer(asks({ a: question }), task('working'), completed('done'))
    const options = polling({ clock, deadline: 30_000, answers: { elicitation: { form: slowly } } })
    expect(await rush((await connect(server, options)).callTool('t'), clock)).toMatchObject({
      content: [{ text: 'done' }],
    })
    const impatient = await connect(taskServer(asks({ a: question }), completed('done')), {
      ...options,
      countHumanTime: true,
    })
    await expect(rush(impatient.callTool('t'), clock)).rejects.toMatchObject({
      code: 'LIMIT_CLIENT_DEADLINE',
    })
  })

  it('C12 cancels the task when the caller aborts', async () => {
    const clock = createManualClock()
    const stop = new AbortController()
    const server = taskServer(() => {
      stop.abort(new Error('enough'))
      return task('working')
    })
    const client = await connect(server, polling({ clock }))
    await expect(rush(client.callTool('t', {}, { signal: stop.signal }), clock)).rejects.toThrow('enough')
    expect(methods(server.seen).at(-1)).toBe('tasks/cancel')
  })

  it('leaves the task alone when the client is closed', async () => {
    const clock = createManualClock()
    const server = taskServer(task('working'))
    const client = await connect(server, polling({ clock }))
    const call = client.callTool('t')
    const failed = expect(call).rejects.toMatchObject({ code: 'PEER_GONE' })
    await clock.elapse(1_000)
    await client.close()
    await failed
    expect(methods(server.seen)).not.toContain('tasks/cancel')
  })

  it('T22 reads no result larger than an answer may be', async () => {
    const clock = createManualClock()
    const huge = completed('x'.repeat(2_000_000))
    const client = await connect(taskServer(huge), polling({ clock, maxResponseBytes: 1_000_000 }))
    await expect(rush(client.callTool('t'), clock)).rejects.toMatchObject({ code: 'LIMIT_CLIENT_BYTES' })
    const patient = await connect(taskServer(huge), polling({ clock }))
    expect((await rush(patient.callTool('t'), clock)).content).toHaveLength(1)
  })
})

describe('a task in the caller’s own hands', () => {
  const request = { method: 'tools/call', name: 'book' } as const

  it('C10 C11 is plain JSON that another process can go on with, answers and all', async () => {
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

  it('is written down at each change, and finished by handlers', async () => {
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
    // Whoever finds the answered call delivers the answer again: the first one counts.
    const found = parsePending(JSON.stringify(saved[2]))
    const other = taskServer(completed('done'))
    expect(await rush((await connect(other, polling({ clock }))).finish(found), clock)).toMatchObject({
      content: [{ text: 'done' }],
    })
    expect(methods(other.seen)).toEqual(['tasks/update', 'tasks/get'])
  })

  it('does not end when only the waiting for it is stopped', async () => {
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

  it('can be looked at, answered and cancelled by its id alone', async () => {
    const server = taskServer(asks({ a: question }))
    const handle = (await connect(server)).task('task-1')
    expect(await handle.get()).toMatchObject({ taskId: 'task-1', inputRequests: { a: question } })
    await handle.answer({ a: yes() })
    await handle.cancel()
    expect(methods(server.seen)).toEqual(['tasks/get', 'tasks/update', 'tasks/cancel'])
    for (const seen of server.seen) expect(capabilities(seen)).toEqual({ extensions: EXTENSIONS })
  })

  it('tells of each change once, in words that are safe to show', async () => {
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

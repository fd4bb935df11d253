/** Tasks as a client lives through them, over a server in memory that says what it is told to. */

import { describe, expect, it } from 'vitest'
import { createManualClock } from '../../../../../test/support/manual-clock.ts'
import { asking, scriptServer } from '../../../../../test/support/scripted-server.ts'
import {
  ACK,
  asks,
  capabilities,
  completed,
  created,
  EXTENSIONS,
  methods,
  polling,
  question,
  rush,
  task,
  taskServer,
  yes,
} from '../../../../../test/support/scripted-task.ts'
import { connect } from '../connect.ts'

const HOUR = 3_600_000

describe('a call that becomes a task', () => {
  it('C6 E3 is polled, answered and followed to its result', async () => {
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

  it('E1 declares the extension on tool calls and task requests only', async () => {
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

  it('E4 declares on the subscription what it can be asked, so that notifications have the questions', async () => {
    const server = scriptServer(({ method }) => {
      if (method === 'tools/call') return created()
      return method === 'subscriptions/listen' ? {} : completed('done')
    })
    const client = await connect(server, polling({ tasks: true }))
    expect(await client.callTool('t')).toMatchObject({ content: [{ text: 'done' }] })
    const listening = server.seen.filter(({ method }) => method === 'subscriptions/listen')
    expect(listening.map(capabilities)).toEqual([{ elicitation: { form: {} }, extensions: EXTENSIONS }])
    await client.close()
  })

  it('declares nothing and accepts no task with tasks: false', async () => {
    const server = scriptServer(created())
    const client = await connect(server, { tasks: false })
    await expect(client.callTool('t')).rejects.toMatchObject({ code: 'PEER_BAD_RESPONSE' })
    expect(server.seen.map(capabilities)).toEqual([{}])
  })

  it.each([
    ['prompts/get', (client: Awaited<ReturnType<typeof connect>>) => client.getPrompt('p')],
    ['resources/read', (client: Awaited<ReturnType<typeof connect>>) => client.readResource('x:y')],
    ['tools/list', (client: Awaited<ReturnType<typeof connect>>) => client.listTools()],
  ])('refuses a task as the result of %s', async (_method, call) => {
    const client = await connect(scriptServer(created()))
    await expect(call(client)).rejects.toMatchObject({ code: 'PEER_BAD_RESPONSE' })
  })

  it.each([
    ['without an id', created({ taskId: undefined })],
    ['in a status nobody knows', created({ status: 'resting' })],
    ['without a time', created({ createdAt: 'yesterday' })],
  ])('refuses a task %s', async (_what, answer) => {
    await expect((await connect(scriptServer(answer))).callTool('t')).rejects.toMatchObject({
      code: 'PEER_BAD_RESPONSE',
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
    await expect(rush(client.callTool('t'), clock)).rejects.toMatchObject({ code: 'PEER_BAD_RESPONSE' })
  })
})

describe('polling a task', () => {
  it('waits for the interval of the server plus jitter', async () => {
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

  it('happens at most every 50 ms, whatever the server says', async () => {
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

  it('waits as long as Retry-After says, of a poll that succeeded and of one that was refused', async () => {
    const clock = createManualClock(0)
    const looks: number[] = []
    const json = (result: object, id: unknown) =>
      new Response(JSON.stringify({ jsonrpc: '2.0', id, result }), {
        headers: { 'Content-Type': 'application/json', 'Retry-After': '30' },
      })
    const server = scriptServer(({ method, id }) => {
      if (method === 'tools/call') return created()
      looks.push(clock.now())
      if (looks.length === 1) return json(task('working'), id)
      if (looks.length === 2) return new Response('', { status: 429, headers: { 'Retry-After': '60' } })
      return looks.length === 3 ? task('working') : completed('done')
    })
    await rush((await connect(server, polling({ clock, random: () => 0 }))).callTool('t'), clock, 100)
    // The interval is a second; without Retry-After it counts again.
    expect(looks).toEqual([1_000, 31_000, 91_000, 92_000])
  })

  it.each([
    ['a billion seconds', '1000000000', HOUR],
    ['400 digits', '9'.repeat(400), HOUR],
    ['minus one', '-1', 1_000],
    ['1e9', '1e9', 1_000],
    ['NaN', 'NaN', 1_000],
    ['0x10', '0x10', 1_000],
    ['0', '0', 1_000],
    ['a date', 'Thu, 01 Jan 1970 00:00:30 GMT', 29_000],
    ['a date in the past', 'Thu, 01 Jan 1970 00:00:00 GMT', 1_000],
    ['a date far away', 'Fri, 31 Dec 9999 23:59:59 GMT', HOUR],
    ['no real date', 'Thu, 99 Foo 1970 00:00:00 GMT', 1_000],
    ['a date of 5,000 digits', `Thu, ${'9'.repeat(5_000)} GMT`, 1_000],
  ])(
    'T18 a hostile Retry-After of %s neither floods the server nor stops the client for ever',
    async (_, when, ms) => {
      const clock = createManualClock(0)
      const looks: number[] = []
      const server = scriptServer(({ method, id }) => {
        if (method === 'tools/call') return created()
        looks.push(clock.now())
        if (looks.length > 1) return completed('done')
        const body = JSON.stringify({ jsonrpc: '2.0', id, result: task('working') })
        return new Response(body, { headers: { 'Content-Type': 'application/json', 'Retry-After': when } })
      })
      await rush(
        (await connect(server, polling({ clock, random: () => 0, deadlineMs: 2 * HOUR }))).callTool('t'),
        clock,
      )
      expect(looks).toEqual([1_000, 1_000 + ms])
    },
  )

  it('survives a server that is unreachable for a while, and fails if it stays unreachable', async () => {
    const gone = () => new Response('', { status: 503, headers: { 'Retry-After': '60' } })
    const clock = createManualClock()
    const client = await connect(taskServer(gone, gone, completed('done')), polling({ clock }))
    expect(await rush(client.callTool('t'), clock)).toMatchObject({ content: [{ text: 'done' }] })
    const other = await connect(taskServer(gone), polling({ clock }))
    await expect(rush(other.callTool('t'), clock)).rejects.toMatchObject({ code: 'PEER_BUSY' })
  })
})

describe('questions of a task', () => {
  it('T18 of a server that names an endless interval wait an hour at most, also for answers that are sent again', async () => {
    const clock = createManualClock(0)
    const gone = new Response('', { status: 503, headers: { 'Retry-After': '60' } })
    const endless = { pollIntervalMs: 1e300 }
    let updates = 0
    const server = scriptServer(({ method }) => {
      if (method === 'tools/call') return created(endless)
      if (method === 'tasks/get')
        return updates > 1 ? completed('done') : { ...asks({ a: question }), ...endless }
      return method === 'tasks/update' && updates++ === 0 ? gone.clone() : ACK
    })
    const client = await connect(server, polling({ clock, deadlineMs: 10 * HOUR }))
    expect(await rush(client.callTool('t'), clock, HOUR)).toMatchObject({ content: [{ text: 'done' }] })
    expect(clock.now()).toBeLessThanOrEqual(4 * HOUR)
  })

  it('E3 are shown once, even if the server still lists them', async () => {
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

  it('E3 have their answers sent again after a lost connection, and nobody is asked twice', async () => {
    const clock = createManualClock()
    const gone = new Response('', { status: 503, headers: { 'Retry-After': '60' } })
    let shown = 0
    const answers = {
      elicitation: {
        form: () => {
          shown += 1
          return yes()
        },
      },
    }
    const serve = (lost: number) => {
      let updates = 0
      return scriptServer(({ method }) => {
        if (method === 'tools/call') return created()
        if (method === 'tasks/get') return updates > lost ? completed('done') : asks({ a: question })
        updates += 1
        return method === 'tasks/update' && updates <= lost ? gone.clone() : ACK
      })
    }
    const client = await connect(serve(3), polling({ clock, answers }))
    expect(await rush(client.callTool('t'), clock)).toMatchObject({ content: [{ text: 'done' }] })
    expect(shown).toBe(1)
    const away = await connect(serve(100), polling({ clock, answers }))
    await expect(rush(away.callTool('t'), clock)).rejects.toMatchObject({ code: 'PEER_BUSY' })
  })

  it('C8 T22 are limited like rounds, and the task is cancelled beyond the limit', async () => {
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

it('C12 the client follows many tasks and answers many questions at once without a warning of Node', async () => {
  const warnings: Error[] = []
  const hear = (warning: Error) => void warnings.push(warning)
  process.on('warning', hear)
  try {
    const clock = createManualClock()
    const many = Object.fromEntries(Array.from({ length: 20 }, (_, i) => [`q${i}`, question]))
    const server = taskServer(asks(many), completed('done'))
    const own = new AbortController()
    const together = { answers: { elicitation: { form: yes }, together: true } }
    const client = await connect(server, polling({ clock, ...together }))
    const follow = () => client.callTool('t')
    const shared = () => client.callTool('t', {}, { signal: own.signal })
    const calls = Array.from({ length: 40 }, (_, i) => (i % 2 === 0 ? follow() : shared()))
    expect(await rush(Promise.all(calls), clock)).toHaveLength(40)
    await new Promise((resolve) => setImmediate(resolve))
    expect(warnings).toEqual([])
  } finally {
    process.off('warning', hear)
  }
})

/** The loop, end to end over a server in memory that says what it is told to. */

import { describe, expect, it } from 'vitest'
import { createManualClock } from '../../../../test/support/manual-clock.ts'
import {
  asking,
  formQuestion,
  type Said,
  type Seen,
  said,
  scriptServer,
} from '../../../../test/support/scripted-server.ts'
import type { ElicitResult } from '../protocol/wire.ts'
import { type ConnectOptions, connect } from './connect.ts'
import type { PendingCall } from './pending.ts'
import type { AskInfo } from './question.ts'

const yes = (): ElicitResult => ({ action: 'accept', content: { x: 'y' } })
const answering: ConnectOptions = { answers: { elicitation: { form: yes } } }
const question = formQuestion('Which?', 'x')
const meta = (name: string) => `io.modelcontextprotocol/${name}`

describe('the loop', () => {
  it('C1 C2 C3 C6 answers the questions, echoes the state, and sends the same request under a new id', async () => {
    const state = '{"looks":"like JSON"}\u2028\u0000 \ud83d\ude00'
    const server = scriptServer(asking({ a: question, b: question }, state), said('done'))
    const client = await connect(server, answering)
    const result = await client.callTool('book', { id: 1 })
    expect(result).toEqual({ content: [{ type: 'text', text: 'done' }] })
    const [first, second] = server.seen
    expect(first?.params).toMatchObject({ name: 'book', arguments: { id: 1 } })
    expect(first?.params).not.toHaveProperty('inputResponses')
    expect(first?.params).not.toHaveProperty('requestState')
    expect(second?.method).toBe('tools/call')
    expect(second?.params).toMatchObject({
      name: 'book',
      arguments: { id: 1 },
      inputResponses: { a: yes(), b: yes() },
      requestState: state,
    })
    expect(second?.id).not.toBe(first?.id)
  })

  it('C2 sends no state if it received none', async () => {
    const server = scriptServer(asking({ a: question }, 's'), asking({ a: question }), said('done'))
    await (await connect(server, answering)).callTool('t')
    expect(server.seen.map(({ params }) => params.requestState)).toEqual([undefined, 's', undefined])
    expect(server.seen[2]?.params).not.toHaveProperty('requestState')
  })

  it('A4 treats a result without a type as complete', async () => {
    const server = scriptServer({ content: [] })
    expect(await (await connect(server)).callTool('t')).toEqual({ content: [] })
    expect(server.seen).toHaveLength(1)
  })

  it('C4 keeps the answers and states of parallel calls apart', async () => {
    const server = scriptServer(({ params }) => {
      const { name, inputResponses, requestState } = params
      if (inputResponses === undefined) return asking({ [`of ${name}`]: question }, `state of ${name}`)
      return said(`${name}: ${requestState} ${Object.keys(inputResponses as object)}`)
    })
    const client = await connect(server, answering)
    const names = Array.from({ length: 50 }, (_, i) => `tool${i}`)
    const results = await Promise.all(names.map((name) => client.callTool(name)))
    expect(results.map(({ content }) => (content[0] as { text: string }).text)).toEqual(
      names.map((name) => `${name}: state of ${name} of ${name}`),
    )
    expect(new Set(server.seen.map(({ id }) => id)).size).toBe(100)
  })

  it('C5 declares exactly the kinds that have a handler, on every request', async () => {
    const server = scriptServer(said('x'))
    const declared = async (options: ConnectOptions) => {
      await (await connect(server, { ...options, tasks: false })).callTool('t')
      return server.seen.at(-1)?.meta[meta('clientCapabilities')]
    }
    expect(await declared({})).toEqual({})
    expect(await declared(answering)).toEqual({ elicitation: { form: {} } })
    expect(await declared({ answers: { elicitation: yes } })).toEqual({ elicitation: { form: {}, url: {} } })
    expect(await declared({ answers: { roots: [] } })).toEqual({ roots: {} })
  })

  it('C7 fails on the first round without a handler, and asks nobody anything', async () => {
    let asked = 0
    const server = scriptServer(asking({ a: question, b: { method: 'roots/list' } }), said('x'))
    const form = () => {
      asked += 1
      return yes()
    }
    const client = await connect(server, { answers: { elicitation: { form } } })
    await expect(client.callTool('t')).rejects.toMatchObject({ code: 'INPUT_NO_HANDLER' })
    expect(asked).toBe(0)
    expect(server.seen).toHaveLength(1)
  })

  it.each([
    ['by default', {}, 10],
    ['as configured', { maxRounds: 2 }, 2],
  ])('C8 stops a server that never stops asking, %s', async (_how, options, rounds) => {
    const server = scriptServer(asking({ a: question }, 's'))
    const client = await connect(server, { ...answering, ...options })
    await expect(client.callTool('t')).rejects.toMatchObject({ code: 'LIMIT_CLIENT_ROUNDS' })
    expect(server.seen).toHaveLength(rounds + 1)
  })

  it('C9 pauses between rounds that have only a state', async () => {
    const clock = createManualClock()
    const server = scriptServer(...Array<Said>(5).fill(asking(undefined, 's')), said('done'))
    const call = (await connect(server, { clock })).callTool('t')
    for (const ms of [50, 100, 200, 250, 250]) await clock.elapse(ms)
    await call
    expect(server.seen).toHaveLength(6)
    expect(clock.open).toBe(0)
  })

  it('C13 shows every round to the policies of the client and of the call', async () => {
    const seen: string[] = []
    const note = (who: string) => (round: { round: number }) => void seen.push(`${who} ${round.round}`)
    const server = scriptServer(asking({ a: question }), asking(undefined, 's'), said('done'))
    const client = await connect(server, { ...answering, onRound: note('client') })
    await client.callTool('t', {}, { onRound: [note('call')] })
    expect(seen).toEqual(['client 1', 'call 1', 'client 2', 'call 2'])
  })

  it('C13 sends nothing more once a policy refuses', async () => {
    const server = scriptServer(asking({ a: question }), said('done'))
    const client = await connect(server, {
      ...answering,
      onRound: () => ({ kind: 'refuse', reason: 'no' }),
    })
    await expect(client.callTool('t')).rejects.toMatchObject({ code: 'INPUT_REFUSED' })
    expect(server.seen).toHaveLength(1)
  })

  it('C13 continues without asking anybody if a policy answered', async () => {
    const server = scriptServer(asking({ a: question }), said('done'))
    const client = await connect(server, {
      answers: { elicitation: { form: () => Promise.reject(new Error('asked')) } },
      onRound: () => ({ kind: 'rewrite', answers: { a: { action: 'decline' } } }),
    })
    await client.callTool('t')
    expect(server.seen[1]?.params.inputResponses).toEqual({ a: { action: 'decline' } })
  })

  it('C11 reports the call after every change, so that a crash loses no answer', async () => {
    const kept: [round: number, answers: string[]][] = []
    const onPending = ({ round, answers }: PendingCall) => void kept.push([round, Object.keys(answers)])
    const server = scriptServer(
      asking({ a: question, b: question }, 's'),
      asking(undefined, 't'),
      said('done'),
    )
    await (await connect(server, answering)).callTool('t', {}, { onPending })
    expect(kept).toEqual([
      [1, []],
      [1, ['a']],
      [1, ['a', 'b']],
      [2, []],
    ])
  })

  it('tells a handler which server asks, and in which call', async () => {
    const infos: Omit<AskInfo, 'signal'>[] = []
    const form = (_params: unknown, { signal: _, ...info }: AskInfo) => {
      infos.push(info)
      return yes()
    }
    const server = scriptServer(asking({ a: question }), said('done'))
    await (await connect(server, { answers: { elicitation: { form } } })).callTool('t', { b: 1 })
    expect(infos).toEqual([
      {
        key: 'a',
        server: { target: 'memory:', name: 'scripted', version: '1.0.0' },
        request: { method: 'tools/call', name: 't', arguments: { b: 1 } },
        round: 1,
        index: 1,
        count: 1,
      },
    ])
  })
})

describe('notifications of a running call', () => {
  const event = (message: object) => `data: ${JSON.stringify({ jsonrpc: '2.0', ...message })}\n\n`
  const talking = ({ id, meta: { progressToken } }: Seen) => {
    const progress = { progressToken, progress: 1, message: 'half\u0007way' }
    const other = { progressToken: 'not ours', progress: 9 }
    const log = { level: 'info', data: 'log\u001b[1m', logger: 'l' }
    const events = [
      event({ method: 'notifications/progress', params: progress }),
      event({ method: 'notifications/progress', params: other }),
      event({ method: 'notifications/message', params: log }),
      event({ id, result: said('done') }),
    ]
    return new Response(events.join(''), { headers: { 'Content-Type': 'text/event-stream' } })
  }

  it('reach the callbacks of that call, cleaned for display', async () => {
    const heard: unknown[] = []
    const server = scriptServer(talking)
    const client = await connect(server)
    await client.callTool('t', {}, { onProgress: (one) => heard.push(one), onLog: (one) => heard.push(one) })
    expect(heard).toMatchObject([
      { kind: 'progress', progress: 1, message: 'halfway' },
      { kind: 'log', level: 'info', data: 'log[1m', logger: 'l' },
    ])
    expect(server.seen[0]?.meta).toMatchObject({
      [meta('logLevel')]: 'info',
      progressToken: server.seen[0]?.id,
    })
  })

  it('are not requested, and are ignored, if there is no callback', async () => {
    const server = scriptServer(talking)
    await (await connect(server)).callTool('t')
    expect(server.seen[0]?.meta).not.toHaveProperty('progressToken')
    expect(server.seen[0]?.meta).not.toHaveProperty(meta('logLevel'))
  })

  it('do not break the call if a callback throws', async () => {
    const warnings: string[] = []
    const client = await connect(scriptServer(talking), { onWarning: (text) => warnings.push(text) })
    const onProgress = () => {
      throw new Error('oops')
    }
    expect(await client.callTool('t', {}, { onProgress })).toMatchObject({ content: [{ text: 'done' }] })
    expect(warnings).toEqual([expect.stringContaining('oops')])
  })
})

describe('one round at a time', () => {
  const request = { method: 'tools/call', name: 'book', arguments: { id: 1 } } as const

  it('C10 sends exactly the state and the responses it is passed, and returns what came back', async () => {
    const server = scriptServer(asking({ a: question }, ''), asking({ b: question }), said('done'))
    const client = await connect(server, { maxRounds: 0 })
    expect(await client.round(request)).toEqual({
      resultType: 'input_required',
      inputRequests: { a: question },
      requestState: '',
    })
    // The process that sends the next round may have nothing but these two.
    const other = await connect(server)
    const raw = { inputResponses: { a: yes(), unasked: { action: 'cancel' } }, requestState: '' } as const
    expect(await other.round(request, raw)).toEqual({
      resultType: 'input_required',
      inputRequests: { b: question },
    })
    expect(await other.round(request)).toEqual({
      resultType: 'complete',
      result: { content: [{ type: 'text', text: 'done' }] },
    })
    const sent = server.seen.map(({ params: { _meta, ...params } }) => params)
    const { name, arguments: args } = request
    expect(sent).toEqual([
      { name, arguments: args },
      { name, arguments: args, ...raw },
      { name, arguments: args },
    ])
    const declared = server.seen[0]?.meta[meta('clientCapabilities')]
    expect(declared).toEqual({ elicitation: { form: {}, url: {} } })
  })

  it('C10 T22 checks its questions like any other round, and throws the server’s errors', async () => {
    const evil = { method: 'elicitation/create', params: { mode: 'url', message: 'm', url: 'javascript:1' } }
    const server = scriptServer(asking({ a: evil }), { error: { code: -32602, message: 'no' } })
    const client = await connect(server)
    await expect(client.round(request)).rejects.toMatchObject({ code: 'PEER_LINK' })
    await expect(client.round(request, { requestState: 'old' })).rejects.toMatchObject({
      peer: { code: -32602 },
    })
  })
})

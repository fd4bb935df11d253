import { describe, expect, it } from 'vitest'
import { createManualClock } from '../../../../../test/support/manual-clock.ts'
import { formQuestion } from '../../../../../test/support/scripted-server.ts'
import {
  ADA,
  type Heard,
  type Stream,
  scriptSession,
  textOf,
} from '../../../../../test/support/scripted-session.ts'
import { connect } from '../connect.ts'
import type { Answers, UrlHandler } from '../question.ts'
import { parsePending } from '../stored-pending.ts'

const isAnswer =
  (id: unknown) =>
  ({ message }: Heard) =>
    message.id === id && message.method === undefined
const ask = (stream: Stream, id: unknown, message = 'Name?') =>
  stream.send({ id, ...formQuestion(message, 'name') })

describe('requests of an older server', () => {
  it('C5 ping is answered, unknown methods are refused, and nobody is asked outside of a call', async () => {
    let open: Stream | undefined
    const server = scriptSession({
      onGet(stream) {
        open = stream
      },
    })
    await using client = await connect(server, { answers: { ...ADA, roots: [{ uri: 'file:///srv' }] } })
    await server.next(({ verb }) => verb === 'GET')
    await expect.poll(() => open).toBeDefined()
    open?.send({ id: 'p', method: 'ping' })
    open?.send({ id: 'x', method: 'tools/call' })
    open?.send({ id: 'r', method: 'roots/list' })
    if (open) ask(open, 'e')
    open?.send({ id: 'bad', method: 'elicitation/create', params: {} })
    expect((await server.next(isAnswer('p'))).message.result).toEqual({})
    expect((await server.next(isAnswer('x'))).message.error).toMatchObject({ code: -32601 })
    expect((await server.next(isAnswer('r'))).message.result).toEqual({ roots: [{ uri: 'file:///srv' }] })
    expect((await server.next(isAnswer('e'))).message.error).toMatchObject({ code: -32000 })
    expect((await server.next(isAnswer('bad'))).message.error).toMatchObject({ code: -32602 })
    expect(textOf(await client.callTool('t'))).toBe('done')
  })

  it('F2 get responses with exactly their state, and with none if they had none', async () => {
    let open: Stream | undefined
    const state = { fields: { 'System.State': 'Resolved' }, list: [1, null, ''] }
    const onCall = async (stream: Stream) => {
      stream.send({ id: 'q', state: '', ...formQuestion('Name?', 'name') })
      server.next(isAnswer('q')).then(() => stream.result('thanks'))
    }
    const server = scriptSession({
      onCall,
      onGet(stream) {
        open = stream
      },
    })
    await using client = await connect(server, { answers: { ...ADA, roots: [] } })
    await expect.poll(() => open).toBeDefined()
    open?.send({ id: 'p', state, method: 'ping' })
    open?.send({ id: 'r', state: 'opaque \u0007', method: 'roots/list' })
    open?.send({ id: 'x', state: 'x', method: 'tools/call' })
    open?.send({ id: 'n', method: 'ping' })
    expect((await server.next(isAnswer('p'))).message).toEqual({ jsonrpc: '2.0', id: 'p', state, result: {} })
    expect((await server.next(isAnswer('r'))).message.state).toBe('opaque \u0007')
    expect((await server.next(isAnswer('x'))).message).toMatchObject({ state: 'x', error: { code: -32601 } })
    expect((await server.next(isAnswer('n'))).message).not.toHaveProperty('state')
    expect(textOf(await client.callTool('t'))).toBe('thanks')
    const answered = server.heard.find(isAnswer('q'))
    expect(answered?.message).toMatchObject({ state: '', result: { action: 'accept' } })
  })

  it('C5 C7 end their call if they have no handler, and the server is told', async () => {
    const server = scriptSession({ onCall: (stream) => ask(stream, 'e') })
    await using client = await connect(server, { answers: { sampling: () => ({}) as never } })
    await expect(client.callTool('t')).rejects.toMatchObject({
      code: 'INPUT_NO_HANDLER',
      message: expect.stringContaining('answers.elicitation.form'),
    })
    expect((await server.next(isAnswer('e'))).message.error).toMatchObject({ code: -32000 })
    const cancelled = await server.next(({ message }) => message.method === 'notifications/cancelled')
    const call = server.heard.find(({ message }) => message.method === 'tools/call')
    expect(cancelled.message.params).toEqual({ requestId: call?.message.id })
  })

  it('C10 cannot be stored, because the server waits, and the error says so', async () => {
    const server = scriptSession({ onCall: (stream) => ask(stream, 'e') })
    await using client = await connect(server)
    const step = client.start({ method: 'tools/call', name: 't' })
    await expect(step).rejects.toMatchObject({ code: 'INPUT_PENDING' })
  })

  it('C10 are answered by handlers even if the call was begun with `start`', async () => {
    const onCall = async (stream: Stream) => {
      ask(stream, 'e')
      server.next(isAnswer('e')).then(() => stream.result('thanks'))
    }
    const server = scriptSession({ onCall })
    await using client = await connect(server, { answers: ADA })
    const step = await client.start({ method: 'tools/call', name: 't' })
    expect(step).toMatchObject({ status: 'complete', rounds: 1, result: { content: [{ text: 'thanks' }] } })
  })

  it('T22 are cleaned for display, and refused if they have an unsafe URL', async () => {
    const shown: string[] = []
    const onCall = (stream: Stream) => {
      ask(stream, 'e', 'Na\u202eme?')
      const params = { mode: 'url', message: 'Go', url: 'javascript:alert(1)' }
      server.next(isAnswer('e')).then(() => stream.send({ id: 'u', method: 'elicitation/create', params }))
    }
    const server = scriptSession({ onCall })
    const elicitation = ({ message }: { message: string }) => {
      shown.push(message)
      return { action: 'accept' as const, content: { name: 'Ada' } }
    }
    await using client = await connect(server, { answers: { elicitation } })
    await expect(client.callTool('t')).rejects.toMatchObject({ code: 'PEER_LINK' })
    expect(shown).toEqual(['Name?'])
  })

  it('T22 are handled up to the limit at once, and reported once beyond it', async () => {
    const warnings: string[] = []
    let asked = 0
    const onCall = (stream: Stream) => {
      for (let id = 0; id < 40; id++) ask(stream, `q${id}`)
    }
    const server = scriptSession({ onCall })
    const never = () => {
      asked += 1
      return new Promise<never>(() => {})
    }
    const client = await connect(server, {
      answers: { elicitation: never, together: true },
      maxQuestions: 8,
      maxRounds: 100,
      onWarning: (text) => warnings.push(text),
    })
    const call = client.callTool('t').catch((error) => error)
    await expect.poll(() => warnings.length).toBe(1)
    await expect.poll(() => asked).toBe(8)
    await client.close()
    expect(await call).toMatchObject({ code: 'PEER_UNREACHABLE' })
    expect([asked, warnings.length]).toEqual([8, 1])
  })

  it('are dropped if the server cancels them, and the call continues', async () => {
    let aborted = false
    const onCall = (stream: Stream) => {
      ask(stream, 'e')
      asked.then(() => {
        stream.send({ method: 'notifications/cancelled', params: { requestId: 'e' } })
        stream.result('never mind')
      })
    }
    const server = scriptSession({ onCall })
    let begin = () => {}
    const asked = new Promise<void>((resolve) => {
      begin = resolve
    })
    const elicitation: Answers['elicitation'] = (_params, { signal }) =>
      new Promise(() => {
        signal.addEventListener('abort', () => {
          aborted = true
        })
        begin()
      })
    await using client = await connect(server, { answers: { elicitation } })
    expect(textOf(await client.callTool('t'))).toBe('never mind')
    expect(aborted).toBe(true)
    expect(server.heard.some(isAnswer('e'))).toBe(false)
  })

  it('C12 do not count the time people take', async () => {
    const clock = createManualClock()
    const onCall = (stream: Stream) => {
      ask(stream, 'e')
      server.next(isAnswer('e')).then(() => stream.result('in time'))
    }
    const server = scriptSession({ onCall })
    const elicitation: Answers['elicitation'] = () => {
      clock.advance(3_600_000)
      return { action: 'decline' }
    }
    await using client = await connect(server, { answers: { elicitation }, clock })
    expect(textOf(await client.callTool('t'))).toBe('in time')
    const call = client.callTool('t', {}, { countHumanTime: true })
    await expect(call).rejects.toMatchObject({ code: 'LIMIT_CLIENT_DEADLINE' })
  })
})

describe('a request that is served only after a URL was visited', () => {
  const visit = (url: string) => ({ mode: 'url', elicitationId: 'e1', message: 'Log in', url })
  const refused = (stream: Stream, elicitations: unknown) =>
    Response.json({
      jsonrpc: '2.0',
      id: stream.message.id,
      error: { code: -32042, message: 'URL needed', data: { elicitations } },
    })

  it('C5 calls the URL handler, and is sent again unchanged', async () => {
    let calls = 0
    const onCall = (stream: Stream) =>
      ++calls === 1 ? refused(stream, [visit('https://good.example/login')]) : stream.result('in')
    const server = scriptSession({ onCall })
    const seen: unknown[] = []
    const url: UrlHandler = (params) => {
      seen.push(params)
      return { action: 'accept' }
    }
    await using client = await connect(server, { answers: { elicitation: { url } } })
    expect(textOf(await client.callTool('t', { a: 1 }))).toBe('in')
    expect(seen).toEqual([visit('https://good.example/login')])
    const sent = server.heard.filter(({ message }) => message.method === 'tools/call')
    expect(sent.map(({ message }) => message.params)).toEqual(
      Array(2).fill({ name: 't', arguments: { a: 1 } }),
    )
  })

  it('C8 is not sent without end, nor after a decline, nor for an unsafe URL', async () => {
    const server = scriptSession({ onCall: (stream) => refused(stream, [visit('https://good.example/')]) })
    const sent = () => server.heard.filter(({ message }) => message.method === 'tools/call').length
    const answering = (action: 'accept' | 'decline') =>
      connect(server, { answers: { elicitation: { url: () => ({ action }) } } })
    await using patient = await answering('accept')
    await expect(patient.callTool('t', {}, { maxRounds: 3 })).rejects.toThrow('LIMIT_CLIENT_ROUNDS')
    expect(sent()).toBe(4)
    await using unwilling = await answering('decline')
    await expect(unwilling.callTool('t')).rejects.toThrow('INPUT_ABORTED')
    expect(sent()).toBe(5)
    const evil = scriptSession({ onCall: (stream) => refused(stream, [visit('javascript:alert(1)')]) })
    await using other = await connect(evil, {
      answers: { elicitation: { url: () => ({ action: 'accept' }) } },
    })
    await expect(other.callTool('t')).rejects.toThrow('PEER_LINK')
  })

  it.each([
    ['no URL handler', [visit('https://good.example/')], ADA],
    ['no URL', [{ mode: 'form' }], { elicitation: () => ({ action: 'accept' as const }) }],
    ['no list', undefined, { elicitation: () => ({ action: 'accept' as const }) }],
  ])('throws the error of the server with %s', async (_what, elicitations, answers) => {
    const server = scriptSession({ onCall: (stream) => refused(stream, elicitations) })
    await using client = await connect(server, { answers })
    await expect(client.callTool('t')).rejects.toMatchObject({ code: 'PEER_ERROR', peer: { code: -32042 } })
  })

  it('C11 can be stored for later', async () => {
    let calls = 0
    const onCall = (stream: Stream) =>
      ++calls === 1 ? refused(stream, [visit('https://good.example/login')]) : stream.result('in')
    await using client = await connect(scriptSession({ onCall }))
    const step = await client.start({ method: 'tools/call', name: 't' })
    if (step.status !== 'input_required') throw new Error('should ask')
    const stored = parsePending(JSON.stringify(step.pending))
    const after = await client.resume(stored, { 'url-1': { action: 'accept' } })
    expect(after).toMatchObject({ status: 'complete', rounds: 1 })
  })
})

describe('a call that is started without handlers', () => {
  const failing = (text: string) =>
    scriptSession({
      onCall(stream) {
        const result = { content: [{ type: 'text', text }], isError: true }
        stream.send({ id: stream.message.id, result })
        stream.end()
      },
    })
  const request = { method: 'tools/call', name: 't', arguments: {} } as const

  it.each([
    'This client cannot be asked: it lacks the capability elicitation.form. The tool asks the user: "Sure?"',
    'Client does not support form elicitation.',
  ])('C10 fails, and says that nobody can be asked: %s', async (text) => {
    await using client = await connect(failing(text))
    const expected = { code: 'INPUT_PENDING', message: expect.stringMatching(/Nobody can be asked.*answers/) }
    await expect(client.start(request)).rejects.toMatchObject(expected)
    await expect(client.round(request)).rejects.toMatchObject(expected)
    // With callTool, the error of the tool is the result.
    expect(await client.callTool('t')).toMatchObject({ isError: true })
  })

  it('C10 returns every other error of the tool as its result, and this one too if there is a handler', async () => {
    await using client = await connect(failing('The disk is full'))
    expect(await client.start(request)).toMatchObject({ status: 'complete', result: { isError: true } })
    await using able = await connect(failing('cannot be asked'), { answers: ADA })
    expect(await able.start(request)).toMatchObject({ status: 'complete', result: { isError: true } })
  })
})

import { describe, expect, it } from 'vitest'
import { createManualClock } from '../../../test/support/manual-clock.ts'
import { formQuestion } from '../../../test/support/scripted-server.ts'
import { type Heard, type Stream, scriptSession } from '../../../test/support/scripted-session.ts'
import type { Answers } from '../answers.ts'
import { connect } from '../connect.ts'

const form: Answers = { elicitation: { form: () => ({ action: 'accept', content: { name: 'Ada' } }) } }
const isAnswer =
  (id: unknown) =>
  ({ message }: Heard) =>
    message.id === id && message.method === undefined
const textOf = (result: { content: readonly unknown[] }) => (result.content[0] as { text: string }).text
const ask = (stream: Stream, id: unknown, message = 'Name?') =>
  stream.send({ id, ...formQuestion(message, 'name') })

interface Introduction {
  readonly capabilities: { readonly elicitation?: object }
}

describe('the handshake', () => {
  it('says once who asks, and repeats version and session on every request', async () => {
    const server = scriptSession()
    const client = await connect(server, { answers: form, clientInfo: { name: 'me', version: '1' } })
    await client.callTool('t')
    await client.close()
    const [, hello, ready, ...rest] = server.heard
    expect(hello?.message.params).toMatchObject({
      protocolVersion: '2025-11-25',
      capabilities: { elicitation: { form: {} } },
      clientInfo: { name: 'me', version: '1' },
    })
    expect(hello?.headers.get('mcp-session-id')).toBeNull()
    expect(ready?.message.method).toBe('notifications/initialized')
    for (const { headers } of [ready, ...rest].flatMap((one) => one ?? [])) {
      expect(headers.get('mcp-session-id')).toBe('s1')
      expect(headers.get('mcp-protocol-version')).toBe('2025-11-25')
      expect(headers.get('mcp-method')).toBeNull()
    }
    expect(rest.map((one) => one.verb).sort()).toEqual(['DELETE', 'GET', 'POST'])
    expect(rest.find((one) => one.verb === 'POST')?.message.params).toEqual({ name: 't', arguments: {} })
  })

  it.each([
    ['2025-11-25', { form: {}, url: {} }],
    ['2025-06-18', {}],
    ['2025-03-26', undefined],
    ['2024-11-05', undefined],
  ] as const)('declares in %s what that revision knows', async (mode, elicitation) => {
    const server = scriptSession()
    const answers: Answers = { elicitation: () => ({ action: 'cancel' }), roots: [] }
    await using client = await connect(server, { mode, answers })
    expect(client.protocolVersion).toBe(mode)
    const [hello] = server.heard
    const capabilities = (hello?.message.params as Introduction | undefined)?.capabilities
    expect(capabilities).toMatchObject({ roots: {} })
    expect(capabilities?.elicitation).toEqual(elicitation)
    await client.callTool('t')
    const sent = server.heard.at(-1)?.headers.get('mcp-protocol-version')
    expect(sent).toBe(mode >= '2025-06-18' ? mode : null)
  })

  it('takes an older version that the server prefers', async () => {
    await using client = await connect(scriptSession({ version: '2024-11-05' }))
    expect(client.protocolVersion).toBe('2024-11-05')
  })

  it('asks for the version that a refusal names', async () => {
    const data = { supported: ['2025-06-18', '2031-01-01'], requested: '2026-07-28' }
    const onDiscover = (id: unknown) =>
      Response.json({ jsonrpc: '2.0', id, error: { code: -32022, message: 'no', data } }, { status: 400 })
    await using client = await connect(scriptSession({ onDiscover }))
    expect(client.protocolVersion).toBe('2025-06-18')
  })

  it.each([
    ['another version than the one it is held to', { version: '2025-06-18' }, 'PEER_ERA'],
    ['a version nobody knows', { version: '1999-01-01' }, 'PEER_ERA'],
    ['a session id that is no header', { session: 'a b' }, 'PEER_ANSWER'],
  ])('fails on %s', async (_what, script, code) => {
    const connecting = connect(scriptSession(script), { mode: '2025-11-25' })
    await expect(connecting).rejects.toMatchObject({ code })
  })

  it('does without a session where the server has none', async () => {
    const server = scriptSession({ session: null })
    const client = await connect(server)
    await client.callTool('t')
    await client.close()
    expect(server.heard.every(({ headers }) => headers.get('mcp-session-id') === null)).toBe(true)
    expect(server.heard.map(({ verb }) => verb)).not.toContain('DELETE')
  })

  it('does not fall back where it is held to rounds', async () => {
    const server = scriptSession()
    await expect(connect(server, { mode: '2026-07-28' })).rejects.toMatchObject({ code: 'PEER_ERA' })
    expect(server.heard).toHaveLength(1)
  })
})

describe('what a server sends by itself', () => {
  it('C5 answers ping, refuses what it does not know, and asks nobody outside of a call', async () => {
    let open: Stream | undefined
    const server = scriptSession({
      onGet(stream) {
        open = stream
      },
    })
    await using client = await connect(server, { answers: { ...form, roots: [{ uri: 'file:///srv' }] } })
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

  it('C5 C7 ends a call whose question has no handler, and tells the server', async () => {
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

  it('C10 says clearly that a call cannot be kept while the server waits', async () => {
    const server = scriptSession({ onCall: (stream) => ask(stream, 'e') })
    await using client = await connect(server)
    const step = client.start({ method: 'tools/call', name: 't' })
    await expect(step).rejects.toMatchObject({ code: 'INPUT_PENDING' })
  })

  it('C10 has the handlers answer a call that was only started', async () => {
    const onCall = async (stream: Stream) => {
      ask(stream, 'e')
      server.next(isAnswer('e')).then(() => stream.result('thanks'))
    }
    const server = scriptSession({ onCall })
    await using client = await connect(server, { answers: form })
    const step = await client.start({ method: 'tools/call', name: 't' })
    expect(step).toMatchObject({ status: 'complete', rounds: 1, result: { content: [{ text: 'thanks' }] } })
  })

  it('T22 cleans what people are shown and refuses a link that is not safe', async () => {
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

  it('T22 works on no more questions at once than it may', async () => {
    const warnings: string[] = []
    const onCall = (stream: Stream) => {
      for (let id = 0; id < 40; id++) ask(stream, `q${id}`)
    }
    const server = scriptSession({ onCall })
    const never = () => new Promise<never>(() => {})
    const client = await connect(server, {
      answers: { elicitation: never, together: true },
      maxQuestions: 8,
      maxRounds: 100,
      onWarning: (text) => warnings.push(text),
    })
    const call = client.callTool('t').catch((error) => error)
    await expect.poll(() => warnings.length).toBe(32)
    await client.close()
    expect(await call).toMatchObject({ code: 'PEER_GONE' })
  })

  it('drops a question that the server takes back, and goes on with the call', async () => {
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

  it('C12 does not count the time people take', async () => {
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

describe('a stream that breaks', () => {
  it('is taken up where it stood, after the time the server asks for', async () => {
    const clock = createManualClock()
    let call: Stream | undefined
    const server = scriptSession({
      onCall(stream) {
        call = stream
        stream.write('id: e7\nretry: 700\ndata: \n\n')
        stream.end()
      },
      onGet(stream) {
        if (stream.headers.get('last-event-id') !== 'e7') return new Response(null, { status: 405 })
        stream.send({ id: call?.message.id, result: { content: [{ type: 'text', text: 'resumed' }] } }, 'e8')
      },
    })
    await using client = await connect(server, { clock })
    const answer = client.callTool('t')
    await clock.elapse(700)
    expect(textOf(await answer)).toBe('resumed')
  })

  it('is given up after a few attempts that bring nothing', async () => {
    const clock = createManualClock()
    let attempts = 0
    const server = scriptSession({
      onCall(stream) {
        stream.write('id: e7\nretry: 700\ndata: \n\n')
        stream.end()
      },
      onGet(stream) {
        if (stream.headers.get('last-event-id') === null) return new Response(null, { status: 405 })
        attempts += 1
        stream.end()
      },
    })
    await using client = await connect(server, { clock })
    const answer = client.callTool('t').catch((error) => error)
    for (let attempt = 0; attempt < 5; attempt++) await clock.elapse(700)
    expect(await answer).toMatchObject({ code: 'PEER_GONE' })
    expect(attempts).toBe(5)
  })

  it('fails the call at once where events have no ids', async () => {
    const server = scriptSession({ onCall: (stream) => stream.end() })
    await using client = await connect(server)
    await expect(client.callTool('t')).rejects.toMatchObject({ code: 'PEER_GONE' })
  })

  it('fails a call in flight when its session is gone', async () => {
    const clock = createManualClock()
    const server = scriptSession({
      onCall(stream) {
        stream.write('id: e7\nretry: 700\ndata: \n\n')
        stream.end()
      },
      onGet: () => new Response('gone', { status: 404 }),
    })
    await using client = await connect(server, { clock })
    const answer = client.callTool('t').catch((error) => error)
    await clock.elapse(700)
    expect(await answer).toMatchObject({ code: 'PEER_HTTP', data: { status: 404 } })
    expect(server.heard.filter(({ message }) => message.method === 'tools/call')).toHaveLength(1)
  })
})

describe('a session that the server forgot', () => {
  const gone = () => new Response('no such session', { status: 404 })

  it('is opened anew once, and the request sent again', async () => {
    let refusals = 1
    const onCall = (stream: Stream) => (refusals-- > 0 ? gone() : stream.result('back'))
    const server = scriptSession({ onCall })
    await using client = await connect(server)
    expect(textOf(await client.callTool('t'))).toBe('back')
    expect(server.heard.filter(({ message }) => message.method === 'initialize')).toHaveLength(2)
  })

  it('is not opened for ever', async () => {
    const server = scriptSession({ onCall: gone })
    await using client = await connect(server)
    await expect(client.listTools()).rejects.toMatchObject({ code: 'PEER_GONE' })
    expect(server.heard.filter(({ message }) => message.method === 'initialize')).toHaveLength(2)
  })
})

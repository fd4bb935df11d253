import { describe, expect, it } from 'vitest'
import type { Message, OpenStream } from '../../../../test/support/older-client.ts'
import { startOlder } from '../../../../test/support/older-server.ts'

const ask = (id: number, _meta?: object) => ({
  jsonrpc: '2.0',
  id,
  method: 'tools/call',
  params: { name: 'ask', _meta },
})
const ADA = { action: 'accept', content: { name: 'Ada' } }

async function until(stream: OpenStream, fits: (message: Message) => boolean): Promise<Message> {
  for (let message = await stream.next(); message; message = await stream.next()) {
    if (fits(message)) return message
  }
  throw new Error('the stream ended')
}
const question = (stream: OpenStream) => until(stream, ({ method }) => method === 'elicitation/create')
const response = (stream: OpenStream) => until(stream, ({ method }) => method === undefined)

describe('a call that waits', () => {
  it('F1 continues with the first answer and ignores every later one', async () => {
    const { connect, runs } = await startOlder()
    const client = await connect()
    const stream = await client.post(ask(1))
    const { id, params } = await question(stream)
    expect(params).toEqual({
      mode: 'form',
      message: 'Name?',
      requestedSchema: { type: 'object', properties: { name: { type: 'string' } }, required: ['name'] },
    })
    await client.respond('ask-99', { action: 'accept', content: { name: 'Eve' } })
    await client.respond(99, { action: 'accept', content: { name: 'Eve' } })
    await client.respond(id, ADA)
    await client.respond(id, { action: 'accept', content: { name: 'Eve' } })
    expect((await response(stream)).result).toMatchObject({ content: [{ text: 'Hello Ada' }] })
    expect(runs()).toBe(2)
  })

  it('T1 ignores an answer that comes from another session', async () => {
    const { connect } = await startOlder()
    const [alice, eve] = [await connect(), await connect()]
    const stream = await alice.post(ask(1))
    const { id } = await question(stream)
    expect((await eve.respond(id, { action: 'accept', content: { name: 'Eve' } })).status).toBe(202)
    await alice.respond(id, ADA)
    expect((await response(stream)).result).toMatchObject({ content: [{ text: 'Hello Ada' }] })
  })

  it('B17 asks again after an invalid answer, as often as other carriers do', async () => {
    const { connect } = await startOlder()
    const client = await connect({ answer: () => ({ action: 'accept', content: { name: 7 } }) })
    const { result } = await client.call('tools/call', { name: 'ask' })
    expect(result).toMatchObject({ isError: true })
    expect(client.asked).toHaveLength(4)
    expect(client.asked[1]?.params.message).not.toBe(client.asked[0]?.params.message)
  })

  it('F1 ends with a result that quotes the error if the client answers with one', async () => {
    const { connect } = await startOlder()
    const client = await connect({ answer: () => ({ error: { code: -1, message: 'User rejected it' } }) })
    const { result } = await client.call('tools/call', { name: 'ask' })
    const text = 'The client did not answer "name": User rejected it'
    expect(result).toEqual({ content: [{ type: 'text', text }], isError: true })
  })

  it('F1 says what to do if the client declared a capability but does not know its method', async () => {
    const { connect, runs } = await startOlder()
    const answer = () => ({ error: { code: -32601, message: 'Method not found' } })
    const client = await connect({ answer })
    const { result } = await client.call('tools/call', { name: 'ask' })
    const text =
      'This client cannot be asked: it lacks the capability elicitation.form. ' +
      'The tool asks the user: "Name?" The answer has name: a text. Nothing was done. ' +
      'Ask the user, then call again with the arguments "name", "nickname".'
    expect(result).toEqual({ content: [{ type: 'text', text }], isError: true })
    expect([client.asked.length, runs()]).toEqual([1, 2])
  })

  it.each([7, null, [], 'text'])('T7 does not accept %j as an answer', async (answer) => {
    const { connect } = await startOlder()
    const client = await connect()
    const stream = await client.post(ask(1))
    const { id } = await question(stream)
    await client.respond(id, answer)
    expect((await response(stream)).result).toMatchObject({ isError: true })
  })

  it('can be cancelled by its client: the question is withdrawn, and no response follows', async () => {
    const { connect, aborted, runs } = await startOlder()
    const client = await connect()
    const stream = await client.post(ask(1))
    const { id } = await question(stream)
    await client.notify('notifications/cancelled', { requestId: 1 })
    expect(await stream.next()).toMatchObject({
      method: 'notifications/cancelled',
      params: { requestId: id },
    })
    expect(await stream.next()).toBeUndefined()
    await aborted
    await client.respond(id, ADA)
    expect((await client.call('ping')).result).toEqual({})
    expect(runs()).toBe(1)
  })

  it('ends for a client that cancels even if its handler keeps running', async () => {
    const { connect, server } = await startOlder()
    let release = (): void => {}
    server.tool('deaf', {}, async (_args, ctx) => {
      ctx.log('info', 'working')
      await new Promise<void>((resolve) => {
        release = resolve
      })
      return 'done'
    })
    const client = await connect()
    const stream = await client.post({ ...ask(1), params: { name: 'deaf' } })
    await stream.next()
    await client.notify('notifications/cancelled', { requestId: 1 })
    expect(await stream.next()).toBeUndefined()
    release()
    expect((await client.call('ping')).result).toEqual({})
  })

  it('R9 ends with an error when nobody answers in time', async () => {
    const { connect } = await startOlder({ limits: { roundTtlMs: 60 }, sessions: { resumeMs: 200 } })
    const client = await connect()
    const stream = await client.post(ask(1))
    const { id } = await question(stream)
    expect(await stream.next()).toMatchObject({
      method: 'notifications/cancelled',
      params: { requestId: id },
    })
    expect((await response(stream)).result).toEqual({
      content: [{ type: 'text', text: 'A question was not answered in time' }],
      isError: true,
    })
  })

  it('F1 sends heartbeats to a client that asked for progress, and the progress only grows', async () => {
    const { connect } = await startOlder({ heartbeatMs: 60 })
    const client = await connect()
    const stream = await client.post(ask(1, { progressToken: 'p' }))
    const { id } = await question(stream)
    const sign = await until(stream, ({ method }) => method === 'notifications/progress')
    expect(sign.params).toMatchObject({ progressToken: 'p' })
    await until(stream, ({ method }) => method === 'notifications/progress')
    await client.respond(id, ADA)
    await response(stream)
    const told = stream.messages.filter(({ method }) => method === 'notifications/progress')
    const numbers = told.map(({ params }) => (params as { progress: number }).progress)
    expect(numbers[0]).toBe(1)
    expect(numbers.at(-1)).toBe(2)
    expect(numbers).toEqual([...new Set(numbers)].sort((a, b) => a - b))
  })

  it('R9 is refused if there is no room for another call that waits', async () => {
    // Three sessions, and two calls of at least 8 KiB each.
    const { connect } = await startOlder({ sessions: { maxKeptBytes: 29_000 } })
    const [one, two, three] = [await connect(), await connect(), await connect()]
    const refused = {
      isError: true,
      content: [{ text: expect.stringContaining('There is no room for another call that waits') }],
    }
    const first = await one.post(ask(1))
    const { id } = await question(first)
    await question(await two.post(ask(1)))
    expect((await response(await three.post(ask(1)))).result).toMatchObject(refused)
    await one.respond(id, ADA)
    await response(first)
    await question(await three.post(ask(2)))
  })

  it('R9 T18 is refused if there is no room for another waiting call of its caller; other callers are not affected', async () => {
    const { connect } = await startOlder({
      // Two sessions, and one call of at least 8 KiB.
      sessions: { maxKeptBytesPerCaller: 20_000 },
      authenticate: ({ headers }) => {
        const subject = headers('x-user')
        return subject === undefined ? undefined : { subject }
      },
    })
    const as = (user?: string) => connect(user === undefined ? {} : { headers: { 'x-user': user } })
    const [one, two, bob, nobody] = [await as('ada'), await as('ada'), await as('bob'), await as()]
    const first = await one.post(ask(1))
    const { id } = await question(first)
    expect((await response(await two.post(ask(1)))).result).toMatchObject({
      isError: true,
      content: [{ text: expect.stringContaining('There is no room for another call that waits') }],
    })
    for (const client of [bob, nobody]) await question(await client.post(ask(1)))
    await one.respond(id, ADA)
    await response(first)
    await question(await two.post(ask(2)))
  })

  it('ends with an error when the server stops and the drain time is over', async () => {
    const { connect, server } = await startOlder()
    const client = await connect()
    const stream = await client.post(ask(1))
    await question(stream)
    await server.close()
    expect((await response(stream)).error).toMatchObject({ code: -32000 })
    expect(await stream.next()).toBeUndefined()
  })

  it('can still be answered while the server drains, when new calls are refused', async () => {
    const { connect, server } = await startOlder()
    const client = await connect()
    const stream = await client.post(ask(1))
    const { id } = await question(stream)
    server.drain()
    expect((await response(await client.post(ask(2)))).error).toMatchObject({ code: -32000 })
    expect((await client.respond(id, ADA)).status).toBe(202)
    expect((await response(stream)).result).toMatchObject({ content: [{ text: 'Hello Ada' }] })
    await expect(connect()).resolves.toMatchObject({ initialized: { error: { code: -32000 } } })
  })
})

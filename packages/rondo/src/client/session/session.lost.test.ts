/** Streams that break and sessions that the server forgot. */

import { describe, expect, it } from 'vitest'
import { createManualClock } from '../../../../../test/support/manual-clock.ts'
import { type Stream, scriptSession, textOf } from '../../../../../test/support/scripted-session.ts'
import { connect } from '../connect.ts'

describe('a stream that breaks', () => {
  it('is resumed where it broke, after the time that the server asks for', async () => {
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

  it('is abandoned after a few attempts without an event', async () => {
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
    expect(await answer).toMatchObject({ code: 'PEER_UNREACHABLE' })
    expect(attempts).toBe(5)
  })

  it('fails the call at once if its events have no ids', async () => {
    const server = scriptSession({ onCall: (stream) => stream.end() })
    await using client = await connect(server)
    await expect(client.callTool('t')).rejects.toMatchObject({ code: 'PEER_UNREACHABLE' })
  })

  it('fails an open call if its session is gone', async () => {
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

  it('is opened again once, and the request is sent again', async () => {
    let refusals = 1
    const onCall = (stream: Stream) => (refusals-- > 0 ? gone() : stream.result('back'))
    const server = scriptSession({ onCall })
    await using client = await connect(server)
    expect(textOf(await client.callTool('t'))).toBe('back')
    expect(server.heard.filter(({ message }) => message.method === 'initialize')).toHaveLength(2)
  })

  it('is not opened again without end', async () => {
    const server = scriptSession({ onCall: gone })
    await using client = await connect(server)
    await expect(client.listTools()).rejects.toMatchObject({ code: 'PEER_UNREACHABLE' })
    expect(server.heard.filter(({ message }) => message.method === 'initialize')).toHaveLength(2)
  })
})

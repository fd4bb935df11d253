/** Our client and 2025-11-25 servers whose tasks break the specification, or follow it in an unusual way. */

import { connect } from 'rondo/client'
import { describe, expect, it } from 'vitest'
import { ADA, type Stream, scriptSession, textOf } from '../support/scripted-session.ts'

const mode = '2025-11-25'

describe('a server that sends malformed tasks', () => {
  const good = {
    taskId: 't1',
    status: 'completed',
    createdAt: '2026-01-01T00:00:00Z',
    lastUpdatedAt: '2026-01-01T00:00:00Z',
    ttl: null,
    pollInterval: 0,
  }
  const result = { content: [{ type: 'text', text: 'done' }] }

  it.each([
    ['control: a valid one is accepted', { task: good }, good, result, undefined],
    ['a task without an id', { task: { ...good, taskId: '' } }, good, result, 'PEER_BAD_RESPONSE'],
    ['a task without a time', { task: { ...good, createdAt: 'soon' } }, good, result, 'PEER_BAD_RESPONSE'],
    ['a task of another id', { task: good }, { ...good, taskId: 't2' }, result, 'PEER_BAD_RESPONSE'],
    ['an unknown status', { task: good }, { ...good, status: 'bored' }, result, 'PEER_BAD_RESPONSE'],
    ['a result that is not a result', { task: good }, good, { content: 'done' }, 'PEER_BAD_RESPONSE'],
    ['a task instead of a result', { task: good }, good, { task: good }, 'PEER_BAD_RESPONSE'],
  ])('T22 %s', async (_name, created, seen, end, code) => {
    const execution = { taskSupport: 'required' }
    const server = scriptSession({
      version: mode,
      capabilities: { tools: {}, tasks: { requests: { tools: { call: {} } } } },
      onCall({ message, send, end: close }) {
        const replies: Record<string, object> = {
          'tools/list': { tools: [{ name: 'odd', inputSchema: { type: 'object' }, execution }] },
          'tools/call': created,
          'tasks/get': seen,
          'tasks/result': end,
          'tasks/cancel': {},
        }
        send({ id: message.id, result: replies[String(message.method)] })
        close()
      },
    })
    await using client = await connect(server, { mode, answers: ADA })
    const call = client.callTool('odd')
    if (code === undefined) expect(textOf(await call)).toBe('done')
    else await expect(call).rejects.toMatchObject({ code })
  })
})

describe('a server that pushes the questions of a task on an unrelated stream', () => {
  it('C5 F1 gets the answers of the call that follows the task, with the task named', async () => {
    const RELATED = 'io.modelcontextprotocol/related-task'
    const _meta = { [RELATED]: { taskId: 't1' } }
    let own: Stream | undefined
    let answered = false
    const task = (status: string) => ({
      taskId: 't1',
      status,
      createdAt: '2026-01-01T00:00:00Z',
      lastUpdatedAt: '2026-01-01T00:00:00Z',
      ttl: null,
      pollInterval: 50,
    })
    const ask = () =>
      own?.send({
        id: 'q1',
        method: 'elicitation/create',
        params: {
          message: 'Name?',
          requestedSchema: { type: 'object', properties: { name: { type: 'string' } } },
          _meta,
        },
      })
    const server = scriptSession({
      version: mode,
      capabilities: { tools: {}, tasks: { requests: { tools: { call: {} } } } },
      onGet(stream) {
        own = stream
      },
      onCall({ message, send, end }) {
        const reply = (value: object) => {
          send({ id: message.id, result: value })
          end()
        }
        const execution = { taskSupport: 'required' }
        if (message.method === 'tools/list') {
          return reply({ tools: [{ name: 'odd', inputSchema: { type: 'object' }, execution }] })
        }
        if (message.method === 'tools/call') {
          // Between two polls.
          setTimeout(ask, 10)
          return reply({ task: task('working') })
        }
        if (message.method === 'tasks/get') return reply(task(answered ? 'completed' : 'working'))
        return reply({ content: [{ type: 'text', text: 'done' }], _meta })
      },
    })
    server
      .next(({ message }) => message.id === 'q1')
      .then(() => {
        answered = true
      })
    await using client = await connect(server, { mode, answers: ADA })
    await expect.poll(() => own !== undefined).toBe(true)
    expect(textOf(await client.callTool('odd'))).toBe('done')
    const answer = server.heard.find(({ message }) => message.id === 'q1')
    expect(answer?.message.result).toEqual({ action: 'accept', content: { name: 'Ada' }, _meta })
  })
})

/** Tasks whose changes are sent as notifications instead of polled. */

import { describe, expect, it } from 'vitest'
import { create, EXTENSION, start } from '../support/published-tasks.ts'
import { send } from '../support/task-client.ts'

describe('notifications', () => {
  it('E4 reports changes of a task through subscriptions/listen, to its owner alone', async () => {
    const server = start()
    const taskId = await create(server, 'asks')
    const stop = new AbortController()
    const response = await server.fetch(
      new Request('http://127.0.0.1/mcp', {
        method: 'POST',
        signal: stop.signal,
        headers: {
          'content-type': 'application/json',
          accept: 'application/json, text/event-stream',
          'mcp-protocol-version': '2026-07-28',
          'mcp-method': 'subscriptions/listen',
        },
        body: JSON.stringify({
          jsonrpc: '2.0',
          id: 'sub',
          method: 'subscriptions/listen',
          params: {
            notifications: { taskIds: [taskId] },
            _meta: {
              'io.modelcontextprotocol/protocolVersion': '2026-07-28',
              'io.modelcontextprotocol/clientCapabilities': {
                elicitation: {},
                extensions: { [EXTENSION]: {} },
              },
            },
          },
        }),
      }),
    )
    const seen: string[] = []
    const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader()
    const answer = { action: 'accept', content: { value: 'x' } }
    let buffer = ''
    while (!seen.includes('completed')) {
      const { value, done } = (await reader?.read()) ?? { done: true }
      if (done) break
      buffer += value
      for (let end = buffer.indexOf('\n\n'); end >= 0; end = buffer.indexOf('\n\n')) {
        const data = /^data: (.*)$/m.exec(buffer.slice(0, end))?.[1]
        buffer = buffer.slice(end + 2)
        if (data === undefined) continue
        const { method, params } = JSON.parse(data)
        seen.push(method === 'notifications/tasks' ? params.status : method)
        expect(params._meta['io.modelcontextprotocol/subscriptionId']).toBe('sub')
        if (params.status === 'input_required' && params.inputRequests.a) {
          await send(server, 'tasks/update', { taskId, inputResponses: { a: answer, b: answer } })
        }
      }
    }
    stop.abort()
    expect(seen[0]).toBe('notifications/subscriptions/acknowledged')
    expect(seen).toContain('input_required')
    expect(seen.at(-1)).toBe('completed')
  })
})

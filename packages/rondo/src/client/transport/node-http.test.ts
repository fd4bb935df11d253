import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterEach, describe, expect, it } from 'vitest'
import { DISCOVERY, said } from '../../../../../test/support/scripted-server.ts'
import { task } from '../../../../../test/support/scripted-task.ts'
import { connect } from '../connect.ts'

const servers: Server[] = []

afterEach(() => {
  for (const server of servers.splice(0)) {
    server.closeAllConnections()
    server.close()
  }
})

type Answer = (response: ServerResponse, id: number, turn: number, request: IncomingMessage) => void

/** Responds to discovery, and passes every other request to `answer`. */
async function serve(answer: Answer) {
  const counts = { connections: 0, requests: 0 }
  const server = createServer(async (request, response) => {
    let body = ''
    for await (const chunk of request) body += chunk
    const { id, method } = JSON.parse(body)
    if (method === 'server/discover') reply(response, id, DISCOVERY)
    else answer(response, id, counts.requests++, request)
  })
  server.on('connection', () => counts.connections++)
  servers.push(server)
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/mcp?tenant=1`, counts }
}

function reply(response: ServerResponse, id: number, result: object): void {
  response.setHeader('Content-Type', 'application/json').end(JSON.stringify({ jsonrpc: '2.0', id, result }))
}

const list = { resultType: 'complete', tools: [] }

describe('HTTP on Node', () => {
  it('reuses its connection after responses, streams and errors', async () => {
    const { url, counts } = await serve((response, id, turn) => {
      if (turn % 3 === 0) return reply(response, id, said('x'))
      if (turn % 3 === 1) {
        const data = JSON.stringify({ jsonrpc: '2.0', id, result: said('x') })
        return void response.setHeader('Content-Type', 'text/event-stream').end(`data: ${data}\n\n`)
      }
      const error = { jsonrpc: '2.0', id, error: { code: -32602, message: 'no' } }
      response.writeHead(400, { 'Content-Type': 'application/json' }).end(JSON.stringify(error))
    })
    await using client = await connect(url)
    for (let turn = 0; turn < 9; turn++) await client.callTool('t').catch(() => {})
    expect(counts).toEqual({ connections: 1, requests: 9 })
  })

  it('sends path and query, but does not show the query', async () => {
    const paths: (string | undefined)[] = []
    const { url } = await serve((response, id, _turn, request) => {
      paths.push(request.url)
      reply(response, id, said('x'))
    })
    await using client = await connect(url)
    await client.callTool('t')
    expect(paths).toEqual(['/mcp?tenant=1'])
    expect(client.server.target).toMatch(/\/mcp$/)
  })

  it('retries a read if its connection was closed, and never a tool call', async () => {
    const { url, counts } = await serve((response, id, turn, request) => {
      if (turn % 2 === 0) request.socket.destroy()
      else reply(response, id, list)
    })
    await using client = await connect(url)
    expect(await client.listTools({ fresh: true })).toEqual([])
    expect(counts.requests).toBe(2)
    await expect(client.callTool('t')).rejects.toMatchObject({ code: 'PEER_UNREACHABLE' })
    expect(counts.requests).toBe(3)
  })

  it('retries a read on a new connection if the server closes all idle ones as the next request arrives', async () => {
    const used = new WeakSet<object>()
    let held: (() => void)[] = []
    const { url, counts } = await serve((response, id, _turn, request) => {
      if (used.has(request.socket)) return void request.socket.destroy()
      used.add(request.socket)
      held.push(() => reply(response, id, list))
      if (held.length < 3 && counts.requests <= 3) return
      for (const release of held) release()
      held = []
    })
    await using client = await connect(url)
    // Three at once leave three idle connections.
    await Promise.all([1, 2, 3].map(() => client.listTools({ fresh: true })))
    const { connections } = counts
    expect(await client.listTools({ fresh: true })).toEqual([])
    expect(counts).toEqual({ connections: connections + 1, requests: 5 })
  })

  it('R7 never sends a tool call again, although its connection was used before', async () => {
    const { url, counts } = await serve((response, id, turn, request) => {
      if (turn === 0) reply(response, id, list)
      else request.socket.destroy()
    })
    await using client = await connect(url)
    await client.listTools({ fresh: true })
    await expect(client.callTool('t')).rejects.toMatchObject({ code: 'PEER_UNREACHABLE' })
    // The control: it was sent on the connection of the read.
    expect(counts).toEqual({ connections: 1, requests: 2 })
  })

  it('R7 does not send a read again if its response breaks off, on a connection that was used before', async () => {
    const { url, counts } = await serve((response, id, turn, request) => {
      if (turn === 0) return reply(response, id, list)
      response.setHeader('Content-Type', 'text/event-stream').write(': begun\n\n', () => {
        setTimeout(() => request.socket.resetAndDestroy(), 20)
      })
    })
    await using client = await connect(url)
    await client.listTools({ fresh: true })
    await expect(client.listTools({ fresh: true })).rejects.toMatchObject({ code: 'PEER_UNREACHABLE' })
    expect(counts).toEqual({ connections: 1, requests: 2 })
  })

  it('polls hundreds of tasks over a bounded number of connections', async () => {
    const [polls, room] = [300, 64]
    const sockets = new Set<object>()
    const waiting: (() => void)[] = []
    const { url, counts } = await serve((response, id, turn, request) => {
      sockets.add(request.socket)
      waiting.push(() => reply(response, id, task('working', { taskId: `task-${turn}` })))
      // A response only comes when as many have been sent as may be.
      if (waiting.length === room || counts.requests === polls) {
        for (const release of waiting.splice(0)) release()
      }
    })
    await using client = await connect(url)
    const states = await Promise.all(
      Array.from({ length: polls }, (_, index) => client.task(`task-${index}`).get()),
    )
    expect(states.every(({ status }) => status === 'working')).toBe(true)
    expect(sockets.size).toBe(room)
  })

  it('aborts a poll at once that waits for others', async () => {
    const room = 64
    let sent = (): void => {}
    const full = new Promise<void>((resolve) => {
      sent = resolve
    })
    const { url, counts } = await serve((_response, _id, turn) => {
      if (turn === room - 1) sent()
    })
    await using client = await connect(url)
    const all = new AbortController()
    const hanging = Array.from({ length: room }, (_, index) =>
      client
        .task(`task-${index}`)
        .get({ signal: all.signal })
        .catch(() => 'aborted'),
    )
    await full
    const one = new AbortController()
    const waiting = client.task('task-waiting').get({ signal: one.signal })
    one.abort(new Error('enough'))
    await expect(waiting).rejects.toThrow('enough')
    expect(counts.requests).toBe(room)
    all.abort()
    expect(await Promise.all(hanging)).toEqual(hanging.map(() => 'aborted'))
  })

  it('reports that nobody listens', async () => {
    const { url } = await serve(() => {})
    await new Promise((resolve) => servers.splice(0)[0]?.close(resolve))
    await expect(connect(url)).rejects.toThrowError(/PEER_UNREACHABLE.*ECONNREFUSED/)
  })
})

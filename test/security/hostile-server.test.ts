/**
 * T22: a malicious server against our client, over real sockets. Each limit is shown to be what stops the attack: a
 * client with a higher limit completes the same call.
 */

import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { gzipSync } from 'node:zlib'
import { afterEach, describe, expect, it } from 'vitest'
import { type ConnectOptions, connect, type ElicitResult } from '../../packages/rondo/src/client.ts'
import { createServer as createRondo } from '../../packages/rondo/src/index.ts'
import { asking, DISCOVERY, formQuestion, said } from '../support/scripted-server.ts'

interface Message {
  readonly id: number
  readonly params: Readonly<Record<string, unknown>>
}

type Attack = (message: Message, response: ServerResponse, request: IncomingMessage) => void

const servers: Server[] = []

afterEach(() => {
  for (const server of servers.splice(0)) {
    server.closeAllConnections()
    server.close()
  }
})

async function hostile(attack: Attack): Promise<string> {
  const server = createServer(async (request, response) => {
    let body = ''
    for await (const chunk of request) body += chunk
    const message = JSON.parse(body)
    if (message.method === 'server/discover') reply(response, message.id, DISCOVERY)
    else attack(message, response, request)
  })
  servers.push(server)
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/mcp`
}

function reply(response: ServerResponse, id: number, result: object): void {
  response.setHeader('Content-Type', 'application/json').end(JSON.stringify({ jsonrpc: '2.0', id, result }))
}

const yes = (): ElicitResult => ({ action: 'accept', content: {} })
const answering: ConnectOptions = { answers: { elicitation: yes } }

/** Asks as often as the client allows, and completes after `rounds`. */
const asks = (round: (turn: number) => object, rounds = 1): Attack => {
  let turn = 0
  return ({ id }, response) => {
    turn += 1
    reply(response, id, turn > rounds ? said('gave in') : round(turn))
  }
}

async function attacked(attack: Attack, options: ConnectOptions = {}): Promise<unknown> {
  const client = await connect(await hostile(attack), { ...answering, ...options })
  try {
    return await client.callTool('t').catch((error) => error.code ?? String(error))
  } finally {
    await client.close()
  }
}

const question = formQuestion('?', 'x')
const gaveIn = { content: [{ text: 'gave in' }] }

describe('a hostile server', () => {
  it('C8 is answered ten times if it never stops asking', async () => {
    const round = () => asking({ a: question }, 's')
    expect(await attacked(asks(round, 12))).toBe('LIMIT_CLIENT_ROUNDS')
    expect(await attacked(asks(round, 12), { maxRounds: 12 })).toMatchObject(gaveIn)
  })

  it('is refused if it sends a huge state', async () => {
    const round = () => asking({ a: question }, 'x'.repeat(2_000_000))
    expect(await attacked(asks(round))).toBe('LIMIT_CLIENT_STATE')
    expect(await attacked(asks(round), { maxStateBytes: 2_000_000 })).toMatchObject(gaveIn)
  })

  it('is refused if it asks a thousand questions at once', async () => {
    const many = Object.fromEntries(Array.from({ length: 1_000 }, (_, i) => [`q${i}`, question]))
    expect(await attacked(asks(() => asking(many)))).toBe('LIMIT_CLIENT_QUESTIONS')
    const patient = { maxQuestions: 1_000, maxQuestionSize: 10_000_000 }
    expect(
      await attacked(
        asks(() => asking(many)),
        patient,
      ),
    ).toMatchObject(gaveIn)
  })

  it('is refused if it sends a giant schema, before anybody sees it', async () => {
    const giant = formQuestion('?', ...Array.from({ length: 20_000 }, (_, i) => `field${i}`))
    expect(await attacked(asks(() => asking({ a: giant })))).toBe('LIMIT_CLIENT_QUESTIONS')
    expect(
      await attacked(
        asks(() => asking({ a: giant })),
        { maxQuestionSize: 10_000_000 },
      ),
    ).toMatchObject(gaveIn)
  })

  it.each([
    [100, 'LIMIT_CLIENT_QUESTIONS'],
    [100_000, 'PEER_BAD_RESPONSE'],
  ])('ends the call, not the process, with a schema nested %d levels deep', async (levels, code) => {
    const deep = `${'{"not":'.repeat(levels)}{}${'}'.repeat(levels)}`
    const attack: Attack = ({ id }, response) => {
      const params = `{"mode":"form","message":"m","requestedSchema":${deep}}`
      const round = `{"resultType":"input_required","inputRequests":{"a":{"method":"elicitation/create","params":${params}}}}`
      response
        .setHeader('Content-Type', 'application/json')
        .end(`{"jsonrpc":"2.0","id":${id},"result":${round}}`)
    }
    expect(await attacked(attack)).toBe(code)
  })

  it.each(['javascript:alert(1)', 'file:///etc/passwd', 'http://example.com/', 'https://good.com@evil.com/'])(
    'C14 cannot make anybody see the link %s',
    async (url) => {
      const asked: string[] = []
      const elicitation = (params: { message: string }): ElicitResult => {
        asked.push(params.message)
        return { action: 'accept' }
      }
      const visit = (address: string) => ({
        method: 'elicitation/create',
        params: { mode: 'url', message: 'Open', url: address },
      })
      const options = { answers: { elicitation } }
      expect(
        await attacked(
          asks(() => asking({ a: visit(url) })),
          options,
        ),
      ).toBe('PEER_LINK')
      expect(asked).toEqual([])
      expect(
        await attacked(
          asks(() => asking({ a: visit('https://good.com/') })),
          options,
        ),
      ).toMatchObject(gaveIn)
      expect(asked).toEqual(['Open'])
    },
  )

  it('C2 cannot control the terminal, and gets its state back unchanged', async () => {
    const shown: string[] = []
    const states: unknown[] = []
    const state = '\u001b]0;title\u0007 \u202e'
    const elicitation = (params: { message: string }): ElicitResult => {
      shown.push(params.message)
      return yes()
    }
    const attack: Attack = ({ id, params }, response) => {
      states.push(params.requestState)
      const round = asking({ a: formQuestion('\u001b[2JPay \u202enow', 'x') }, state)
      reply(response, id, params.requestState === undefined ? round : said('done'))
    }
    await attacked(attack, { answers: { elicitation } })
    expect(shown).toEqual(['[2JPay now'])
    expect(states).toEqual([undefined, state])
  })

  it('is disconnected if it never stops sending', async () => {
    const attack: Attack = (_message, response) => {
      response.setHeader('Content-Type', 'application/json')
      const flood = () => {
        while (response.writable && response.write(' '.repeat(65_536)));
        response.once('drain', flood)
      }
      flood()
    }
    expect(await attacked(attack, { maxResponseBytes: 1_000_000 })).toBe('LIMIT_CLIENT_BYTES')
  })

  it('is disconnected if it never stops sending comments', async () => {
    const attack: Attack = (_message, response) => {
      response.setHeader('Content-Type', 'text/event-stream')
      const flood = () => {
        while (response.writable && response.write(': keep-alive\n\n'.repeat(1_000)));
        response.once('drain', flood)
      }
      flood()
    }
    expect(await attacked(attack, { maxResponseBytes: 1_000_000 })).toBe('LIMIT_CLIENT_BYTES')
  })

  it('C12 times out if it never responds', async () => {
    await using client = await connect(await hostile(() => {}))
    const call = client.callTool('t', {}, { timeoutMs: 50 })
    await expect(call).rejects.toMatchObject({ code: 'LIMIT_CLIENT_TIMEOUT' })
  })

  it('C12 reaches the deadline if it reports progress for ever', async () => {
    const attack: Attack = ({ params }, response) => {
      const { progressToken } = params._meta as { progressToken: number }
      response.setHeader('Content-Type', 'text/event-stream')
      let progress = 0
      const timer = setInterval(() => {
        const message = { method: 'notifications/progress', params: { progressToken, progress: ++progress } }
        response.write(`data: ${JSON.stringify({ jsonrpc: '2.0', ...message })}\n\n`)
      }, 5)
      response.on('close', () => clearInterval(timer))
    }
    const client = await connect(await hostile(attack), { timeoutMs: 1_000, deadlineMs: 2_000 })
    let seen = 0
    const call = client.callTool('t', {}, { onProgress: () => seen++ })
    await expect(call).rejects.toMatchObject({ code: 'LIMIT_CLIENT_DEADLINE' })
    expect(seen).toBeGreaterThan(0)
    await client.close()
  })

  it('is reported as gone if it closes the connection in the middle', async () => {
    const attack: Attack = (_message, response) => {
      response.setHeader('Content-Type', 'application/json')
      response.write('{"jsonrpc"', () => response.destroy())
    }
    expect(await attacked(attack)).toBe('PEER_UNREACHABLE')
    expect(await attacked((_message, response) => response.destroy())).toBe('PEER_UNREACHABLE')
  })

  it('is reported as gone if it switches to another protocol, or speaks none', async () => {
    const raw =
      (text: string): Attack =>
      (_message, response) =>
        void response.socket?.end(text)
    const switching = 'HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n'
    for (const text of [switching, 'HTTP/9.9 what\r\n\r\n', '\0'.repeat(1_000)]) {
      expect(await attacked(raw(text), { timeoutMs: 60_000 })).toBe('PEER_UNREACHABLE')
    }
  })

  it('T3 cannot redirect our credentials elsewhere', async () => {
    let reached = 0
    const elsewhere = await hostile(() => void reached++)
    const attack: Attack = (_message, response) => response.writeHead(307, { Location: elsewhere }).end()
    expect(await attacked(attack, { headers: { Authorization: 'Bearer x' } })).toBe('PEER_HTTP')
    expect(await attacked(attack, { headers: { Authorization: 'Bearer x' }, fetch })).toBe('PEER_HTTP')
    expect(reached).toBe(0)
  })

  it('cannot make the client decompress a bomb', async () => {
    const bomb = gzipSync(Buffer.alloc(50_000_000, ' '))
    const attack: Attack = (_message, response) =>
      response.writeHead(200, { 'Content-Type': 'application/json', 'Content-Encoding': 'gzip' }).end(bomb)
    expect(await attacked(attack)).toBe('PEER_BAD_RESPONSE')
  })

  it('cannot hold the client by keeping the stream open after the result', async () => {
    const attack: Attack = ({ id }, response) => {
      response.setHeader('Content-Type', 'text/event-stream')
      response.write(`data: ${JSON.stringify({ jsonrpc: '2.0', id, result: said('done') })}\n\n`)
    }
    expect(await attacked(attack)).toMatchObject({ content: [{ text: 'done' }] })
  })

  it.each([
    ['has another id', { id: 'x' }],
    ['has no id', { id: undefined }],
    ['names another protocol', { jsonrpc: '1.0' }],
    ['has an unknown result type', { result: { resultType: 'surprise', content: [] } }],
    ['asks without a question or a state', { result: { resultType: 'input_required' } }],
    ['requests an unknown kind of input', { result: asking({ a: { method: 'eval', params: {} } }) }],
  ])('is refused if its response %s', async (_what, change) => {
    const attack: Attack = ({ id }, response) =>
      void response
        .setHeader('Content-Type', 'application/json')
        .end(JSON.stringify({ jsonrpc: '2.0', id, result: said('x'), ...change }))
    expect(await attacked(attack)).toBe('PEER_BAD_RESPONSE')
  })
})

type Older = (
  request: IncomingMessage,
  response: ServerResponse,
  message: { id?: number; method?: string },
) => void

/** A server of 2025-11-25 that follows the specification until `attack` receives the request. */
async function hostileOlder(attack: Older, session = 's1'): Promise<string> {
  const server = createServer(async (request, response) => {
    let body = ''
    for await (const chunk of request) body += chunk
    const message = body === '' ? {} : JSON.parse(body)
    if (message.method === 'server/discover') response.writeHead(404).end()
    else if (message.method === 'initialize') {
      const serverInfo = { name: 'old', version: '1' }
      response.setHeader('Mcp-Session-Id', session)
      reply(response, message.id, { protocolVersion: '2025-11-25', capabilities: {}, serverInfo })
    } else if (message.method === 'tools/call' || request.headers['last-event-id']) {
      attack(request, response, message)
    } else response.writeHead(request.method === 'GET' ? 405 : 202).end()
  })
  servers.push(server)
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/mcp`
}

const EVENTS = { 'Content-Type': 'text/event-stream' }

describe.each([
  ['node:http', undefined],
  ['fetch', fetch],
])('a hostile older server, over %s,', (_name, transport) => {
  it.each([404, 405, 500])(
    'T22 fails only the call if it breaks its stream and returns %d on resumption',
    async (status) => {
      const url = await hostileOlder((request, response) => {
        if (request.method === 'GET') response.writeHead(status).end('no')
        else response.writeHead(200, EVENTS).end('id: e1\nretry: 1\ndata:\n\n')
      })
      await using client = await connect(url, { fetch: transport })
      await expect(client.callTool('t')).rejects.toMatchObject({ code: 'PEER_HTTP', data: { status } })
      // The client is still usable.
      await expect(client.callTool('t')).rejects.toMatchObject({ code: 'PEER_HTTP' })
    },
  )

  it.each([
    ['with a blank', 'a b'],
    ['of 1,025 characters', 'x'.repeat(1_025)],
  ])('T22 is refused if it sends a session id %s', async (_what, session) => {
    const url = await hostileOlder(() => {}, session)
    await expect(connect(url, { fetch: transport })).rejects.toMatchObject({ code: 'PEER_REVISION' })
    await expect(connect(url, { fetch: transport, mode: '2025-11-25' })).rejects.toMatchObject({
      code: 'PEER_BAD_RESPONSE',
    })
    const good = await hostileOlder((_request, response, { id = 0 }) => reply(response, id, said('x')), 'a')
    await using client = await connect(good, { fetch: transport })
    expect(await client.callTool('t')).toMatchObject({ content: [{ text: 'x' }] })
  })

  it('T22 is not resumed at an event id that no header can carry', async () => {
    const asked: unknown[] = []
    const url = await hostileOlder((request, response) => {
      asked.push(request.headers['last-event-id'])
      response.writeHead(200, EVENTS).end('id: \u{1f642}\nretry: 1\ndata:\n\n')
    })
    await using client = await connect(url, { fetch: transport })
    await expect(client.callTool('t')).rejects.toMatchObject({ code: 'PEER_UNREACHABLE' })
    expect(asked).toEqual([undefined])
  })
})

describe('a restarted server', () => {
  it('fails the pushed call that waits, and the client stays usable', async () => {
    const start = async (port: number): Promise<Server> => {
      const desk = createRondo({ name: 'desk', version: '1.0.0', log: 'off' })
      desk.tool('t', {}, async (_args, ctx) => ((await ctx.confirm('sure', 'Sure?')) ? 'yes' : 'no'))
      const server = createServer(desk.nodeHandler())
      servers.push(server)
      await new Promise<void>((resolve) => server.listen(port, '127.0.0.1', resolve))
      return server
    }
    const first = await start(0)
    const { port } = first.address() as AddressInfo
    const restart = async () => {
      first.closeAllConnections()
      await new Promise((resolve) => first.close(resolve))
      await start(port)
    }
    await using client = await connect(`http://127.0.0.1:${port}/mcp`, {
      mode: '2025-11-25',
      turns: false,
      answers: {
        async elicitation() {
          await restart()
          // The connection of the call is lost, and the call with it.
          return new Promise<never>(() => {})
        },
      },
    })
    await expect(client.callTool('t')).rejects.toMatchObject({ code: expect.stringMatching(/^PEER_/) })
    expect(await client.listTools()).toHaveLength(1)
  })
})

describe('callbacks of the caller', () => {
  it('end neither the call nor the process if they throw or reject', async () => {
    const note = { jsonrpc: '2.0', method: 'notifications/progress' }
    const attack: Attack = ({ id, params }, response) => {
      const { progressToken } = params._meta as { progressToken: number }
      const progress = JSON.stringify({ ...note, params: { progressToken, progress: 1 } })
      const result = JSON.stringify({ jsonrpc: '2.0', id, result: said('done') })
      response.writeHead(200, EVENTS).end(`data: ${progress}\n\ndata: ${result}\n\n`)
    }
    const broken = () => Promise.reject(new Error('from a callback')) as never
    await using client = await connect(await hostile(attack), { onWarning: broken })
    const result = await client.callTool('t', {}, { onProgress: broken })
    expect(result).toMatchObject({ content: [{ text: 'done' }] })
  })
})

import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { serve } from '@hono/node-server'
import express from 'express'
import { Hono } from 'hono'
import { afterEach, describe, expect, it } from 'vitest'
import { callTool, createEchoService } from '../../../../../test/support/echo-service.ts'
import { messagesOf, post } from '../../../../../test/support/post.ts'
import { createExchange } from './exchange.ts'
import { createFetchHandler } from './fetch.ts'
import { createNodeHandler, type NodeHandler } from './node.ts'

const closers: (() => void)[] = []
afterEach(() => {
  for (const close of closers.splice(0)) close()
})

async function start(mount: (handle: NodeHandler) => NodeHandler) {
  const service = createEchoService()
  const server = createServer(mount(createNodeHandler(createExchange(service))))
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  closers.push(() => server.close())
  return { service, port: (server.address() as AddressInfo).port }
}

const inExpress =
  (...middlewares: express.RequestHandler[]) =>
  (handle: NodeHandler): NodeHandler => {
    const app = express()
    for (const middleware of middlewares) app.use(middleware)
    app.post('/mcp', handle)
    return app
  }

function send(port: number, sent: ReturnType<typeof callTool>, body = JSON.stringify(sent.message)) {
  return post(port, { headers: sent.headers, body })
}

describe('inside Express', () => {
  it.each([
    ['no body parser', []],
    ['express.json', [express.json()]],
    ['express.text', [express.text({ type: '*/*' })]],
    ['express.raw', [express.raw({ type: '*/*' })]],
  ])('serves behind %s', async (_, middlewares) => {
    const { port } = await start(inExpress(...middlewares))
    const posted = await send(port, callTool('echo', { a: 'é' }))
    expect(posted.status).toBe(200)
    expect(JSON.parse(posted.text).result.content[0].text).toBe('{"a":"é"}')
  })

  it('T9 guards a body that Express has parsed', async () => {
    const { port, service } = await start(inExpress(express.json()))
    const sent = callTool('echo')
    const body = JSON.stringify(sent.message).replace(
      '"arguments":{}',
      '"arguments":{},"inputResponses":{"__proto__":{"action":"accept"}}',
    )
    const posted = await send(port, sent, body)
    expect(posted.status).toBe(400)
    expect(JSON.parse(posted.text).error.code).toBe(-32600)
    expect(service.seen).toEqual([])
  })

  it('T8 survives a deep body that Express has parsed', async () => {
    const { port } = await start(inExpress(express.json({ strict: false })))
    const posted = await send(port, callTool('echo'), `${'['.repeat(20_000)}${']'.repeat(20_000)}`)
    expect(posted.status).toBe(400)
    expect(JSON.parse(posted.text).error.code).toBe(-32600)
  })

  it('streams', async () => {
    const { port, service } = await start(inExpress())
    const posting = send(port, callTool('slow'))
    await service.waiting()
    service.release()
    expect(messagesOf((await posting).text)).toHaveLength(3)
  })

  it('does not overwrite a response that somebody else has sent', async () => {
    const { port, service } = await start((handle) => (req, res) => {
      handle(req, res)
      void service.waiting().then(() => {
        res.writeHead(504).end('too late')
        service.release()
      })
    })
    const sent = callTool('slow')
    const posted = await post(port, {
      headers: { ...sent.headers, accept: 'application/json' },
      body: JSON.stringify(sent.message),
    })
    expect(posted).toMatchObject({ status: 504, text: 'too late' })
  })
})

describe('inside Hono', () => {
  it('serves calls and streams', async () => {
    const service = createEchoService()
    const handle = createFetchHandler(createExchange(service))
    const app = new Hono().post('/mcp', (c) => handle(c.req.raw))
    const port = await new Promise<number>((resolve) => {
      const server = serve({ fetch: app.fetch, port: 0, hostname: '127.0.0.1' }, (info) => resolve(info.port))
      closers.push(() => server.close())
    })
    expect(JSON.parse((await send(port, callTool('echo', { a: 1 }))).text).result.content[0].text).toBe(
      '{"a":1}',
    )
    const posting = send(port, callTool('slow'))
    await service.waiting()
    service.release()
    expect(messagesOf((await posting).text)).toHaveLength(3)
  })
})

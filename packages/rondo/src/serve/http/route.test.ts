import { createServer, request } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterEach, expect, it } from 'vitest'
import type { LogEvent } from '../../log/event.ts'
import { generateKey } from '../../seal/key-ring.ts'
import type { Outlet, Route } from '../port.ts'
import { createServer as createMcpServer } from '../server.ts'
import type { HttpArrival } from './arrival.ts'
import { serveRoute } from './route.ts'

it('route 3: a handler that never settles yields 500, and its signal fires', async () => {
  const errors: unknown[] = []
  let signal: AbortSignal | undefined
  const route: Route = (request) => {
    signal = request.signal
    return new Promise(() => {})
  }
  const arrival: HttpArrival = {
    method: 'POST',
    url: '/slow',
    headers: {},
    outlet: { gone: false, onGone: () => () => {} } as unknown as Outlet,
    maxBodyBytes: 10,
    read: async () => ({ kind: 'whole', bytes: new Uint8Array(0) }),
    share() {},
    abandon() {},
    async respond() {},
  }
  const response = await serveRoute(
    arrival,
    { route, url: new URL('http://127.0.0.1/slow') },
    {
      admit: () => undefined,
      busy: () => ({ status: 429, headers: {}, body: '' }),
      room: { hasRoom: () => true, release() {} },
      onError: (error) => errors.push(error),
      routeMs: 5,
    },
  )
  expect(response.status).toBe(500)
  expect(signal?.aborted).toBe(true)
  expect(errors.map(String)).toEqual([
    expect.stringContaining('The route for /slow did not settle within 5 ms'),
  ])
})

const closing: (() => Promise<unknown>)[] = []
afterEach(() => Promise.all(closing.splice(0).map((close) => close())))

/** Serves a route, behind a middleware that has read the body into `body` if `toBody` is given. */
async function servePage(route: Route, toBody?: (text: string) => unknown) {
  const events: LogEvent[] = []
  const log = (event: LogEvent) => void events.push(event)
  const server = createMcpServer({ name: 's', version: '1', keys: generateKey(), log })
  server.use({ name: 'pages', routes: { '/page': route } })
  const handler = server.nodeHandler()
  const http = createServer(async (req, res) => {
    if (toBody === undefined) return handler(req, res)
    const chunks: Buffer[] = []
    for await (const chunk of req) chunks.push(chunk as Buffer)
    handler(Object.assign(req, { body: toBody(Buffer.concat(chunks).toString()) }), res)
  })
  await new Promise<void>((resolve) => http.listen(0, '127.0.0.1', resolve))
  closing.push(async () => {
    http.closeAllConnections()
    http.close()
    await server.close()
  })
  return { port: (http.address() as AddressInfo).port, events }
}

const echo: Route = async (sent) => new Response(`got ${await sent.text()}`)

it('receives the bytes that a middleware has read', async () => {
  const { port } = await servePage(echo, (text) => Buffer.from(text))
  const response = await fetch(`http://127.0.0.1:${port}/page`, { method: 'POST', body: 'a=1' })
  expect(await response.text()).toBe('got a=1')
})

it('R11 refuses a body that a middleware has parsed, instead of waiting for it', async () => {
  const { port, events } = await servePage(echo, (text) => ({ text }))
  const response = await fetch(`http://127.0.0.1:${port}/page`, { method: 'POST', body: 'a=1' })
  expect(response.status).toBe(500)
  expect(events).toContainEqual(
    expect.objectContaining({
      error: expect.objectContaining({ message: expect.stringContaining('a middleware has read it') }),
    }),
  )
})

it('R11 responds to HEAD although the stream of the response cannot be cancelled', async () => {
  const stuck = () => new Response(new ReadableStream({ cancel: () => new Promise(() => {}) }))
  const { port } = await servePage(stuck)
  expect((await fetch(`http://127.0.0.1:${port}/page`, { method: 'HEAD' })).status).toBe(200)
})

it('R11 survives a listener of its signal that throws when the client leaves', async () => {
  const faults: unknown[] = []
  const onFault = (error: unknown): void => void faults.push(error)
  process.on('uncaughtException', onFault)
  try {
    const ended = new Promise<void>((resolve) => {
      const route: Route = ({ signal }) =>
        new Promise((respond) => {
          signal.addEventListener('abort', () => {
            respond(new Response('late'))
            setImmediate(resolve)
            throw new Error('The listener broke')
          })
          sent.destroy()
        })
      let sent: ReturnType<typeof request>
      void servePage(route).then(({ port }) => {
        sent = request({ port, path: '/page', method: 'POST' })
        sent.on('error', () => {})
        sent.end()
      })
    })
    await ended
    expect(faults).toEqual([])
  } finally {
    process.off('uncaughtException', onFault)
  }
})

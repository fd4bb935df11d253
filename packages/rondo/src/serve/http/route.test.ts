import { expect, it } from 'vitest'
import type { Outlet, Route } from '../port.ts'
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

import { describe, expect, it } from 'vitest'
import { errorOf, send, startEcho } from '../../../../../test/support/echo-listening.ts'
import { callTool } from '../../../../../test/support/echo-service.ts'

describe('admission', () => {
  it.each([
    'evil.example.com',
    'evil.example.com:3000',
    'localhost.evil.example.com',
    '127.0.0.1.evil.example',
  ])('T12 refuses the host %s', async (host) => {
    const { port, service } = await startEcho()
    const posted = await send(port, callTool('echo'), { host })
    expect(posted.status).toBe(403)
    expect(errorOf(posted).code).toBe(-32000)
    expect(service.seen).toEqual([])
  })

  it('T12 refuses a foreign origin on an allowed host, and allows its own', async () => {
    const { port, service } = await startEcho()
    expect((await send(port, callTool('echo'), { origin: 'http://evil.example.com' })).status).toBe(403)
    expect((await send(port, callTool('echo'), { origin: 'null' })).status).toBe(403)
    expect(service.seen).toEqual([])
    expect((await send(port, callTool('echo'), { origin: `http://localhost:${port}` })).status).toBe(200)
    expect((await send(port, callTool('echo'), { host: `127.0.0.1:${port}` })).status).toBe(200)
  })

  it('passes the principal to the service, and nothing of the token', async () => {
    const { port, service } = await startEcho({
      authenticate: async ({ headers }) =>
        headers('authorization') === 'Bearer canary-token' ? { subject: 'alice' } : undefined,
    })
    const posted = await send(port, callTool('canary'), { authorization: 'Bearer canary-token' })
    expect(JSON.parse(posted.text).result.content[0].text).toBe('{"subject":"alice"}')
    expect(JSON.stringify(service.seen)).not.toContain('canary-token')
    expect(service.seen[0]?.principal).toEqual({ subject: 'alice' })
  })

  it('sends the refusal of the hook', async () => {
    const { port, service } = await startEcho({
      authenticate: () => ({ status: 401, headers: { 'WWW-Authenticate': 'Bearer realm="x"' } }),
    })
    const posted = await send(port, callTool('echo'))
    expect(posted.status).toBe(401)
    expect(posted.headers['www-authenticate']).toBe('Bearer realm="x"')
    expect(service.seen).toEqual([])
  })
})

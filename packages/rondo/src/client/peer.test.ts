import { describe, expect, it } from 'vitest'
import { createManualClock } from '../../../../test/support/manual-clock.ts'
import { said, scriptServer } from '../../../../test/support/scripted-server.ts'
import { connect } from './connect.ts'

describe('a busy server', () => {
  const busy = (retryAfter: string) => () =>
    new Response('busy', { status: 503, headers: { 'Retry-After': retryAfter } })

  it('gets the request again after the time it named, under a new id', async () => {
    const clock = createManualClock()
    const server = scriptServer(busy('2'), busy('1'), said('done'))
    const call = (await connect(server, { clock, random: () => 0.8 })).callTool('t')
    // With jitter: up to a quarter more.
    for (const ms of [2_400, 1_200]) await clock.elapse(ms)
    expect(await call).toMatchObject({ content: [{ text: 'done' }] })
    expect(new Set(server.seen.map(({ id }) => id)).size).toBe(3)
    expect(clock.open).toBe(0)
  })

  it('is not retried for ever', async () => {
    const server = scriptServer(busy('0'))
    await expect((await connect(server)).callTool('t')).rejects.toMatchObject({ code: 'PEER_BUSY' })
    expect(server.seen).toHaveLength(4)
  })

  it.each(['3600', 'Wed, 21 Oct 2026 07:28:00 GMT'])(
    'is not retried if the time it names is %s',
    async (when) => {
      const server = scriptServer(busy(when))
      await expect((await connect(server)).callTool('t')).rejects.toMatchObject({ code: 'PEER_BUSY' })
      expect(server.seen).toHaveLength(1)
    },
  )

  it('C12 is not retried past the deadline of the call', async () => {
    const clock = createManualClock()
    const client = await connect(scriptServer(busy('9')), { clock, timeoutMs: 4_000 })
    const call = expect(client.callTool('t')).rejects.toMatchObject({ code: 'LIMIT_CLIENT_TIMEOUT' })
    await clock.elapse(4_000)
    await call
  })

  it('is reported as any other error if it names no time', async () => {
    const server = scriptServer(() => new Response('broken', { status: 503 }))
    await expect((await connect(server)).callTool('t')).rejects.toMatchObject({ code: 'PEER_HTTP' })
    expect(server.seen).toHaveLength(1)
  })
})

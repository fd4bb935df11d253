import { describe, expect, it } from 'vitest'
import { createManualClock } from '../../../../test/support/manual-clock.ts'
import { processFile } from '../../../../test/support/process-file.ts'
import { connect } from './connect.ts'

const stubborn = (manner: string) => ({
  command: process.execPath,
  // A process that takes ten seconds to start would count as one that is silent.
  args: [processFile('test/support/stubborn-stdio.ts'), manner],
  stderr: 'ignore' as const,
})

describe('an older process', () => {
  it('is started again if it exits at the first request', async () => {
    await using client = await connect(stubborn('exit'))
    expect(client.server).toMatchObject({ name: 'stubborn' })
    expect(client.protocolVersion).toBe('2025-03-26')
    expect(await client.callTool('t')).toMatchObject({ content: [{ text: 'done' }] })
  })

  it('is recognised by ten seconds of silence', async () => {
    const clock = createManualClock()
    const connecting = connect(stubborn('silent'), { clock })
    await clock.elapse(10_000)
    await clock.elapse(500)
    await using client = await connecting
    expect(client.protocolVersion).toBe('2025-03-26')
    expect(await client.callTool('t')).toMatchObject({ content: [{ text: 'done' }] })
  })

  it('is not mistaken for one if it is only slow to start', async () => {
    const clock = createManualClock()
    const connecting = connect(
      { command: process.execPath, args: ['--import', 'tsx', 'test/support/own-stdio.ts'], stderr: 'ignore' },
      { clock },
    )
    await clock.elapse(10_000)
    await using client = await connecting
    expect(client.protocolVersion).toBe('2026-07-28')
    expect((await client.listTools()).length).toBeGreaterThan(0)
  })

  it('is started again if the first request made its bridge initialize the server behind it', async () => {
    await using client = await connect(stubborn('bridge'))
    expect(client.server).toMatchObject({ name: 'stubborn' })
    expect(await client.callTool('t')).toMatchObject({ content: [{ text: 'done' }] })
  })

  it('is named as what it is if its server was initialized for somebody else', async () => {
    await expect(connect(stubborn('shared'))).rejects.toMatchObject({
      code: 'PEER_REVISION',
      message: expect.stringMatching(/Server already initialized.*share one session.*restart the proxy/),
    })
  })

  it('is reported as gone if it exits, and as silent if it is silent, where mode allows only 2026-07-28', async () => {
    const mode = '2026-07-28'
    await expect(connect(stubborn('exit'), { mode })).rejects.toMatchObject({
      code: 'PEER_UNREACHABLE',
      message: expect.stringContaining('exited'),
    })
    const clock = createManualClock()
    const silent = connect(stubborn('silent'), { mode, clock })
    silent.catch(() => {})
    await clock.elapse(60_000)
    await expect(silent).rejects.toMatchObject({ code: 'LIMIT_CLIENT_TIMEOUT' })
  })

  it('is reported as an error if the second start fails too', async () => {
    const connecting = connect({ command: process.execPath, args: ['-e', ''] })
    await expect(connecting).rejects.toMatchObject({ code: 'PEER_UNREACHABLE' })
  })
})

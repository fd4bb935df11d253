import { describe, expect, it } from 'vitest'
import { createManualClock } from '../../test/support/manual-clock.ts'
import { connect } from './connect.ts'

const stubborn = (manner: string) => ({
  command: process.execPath,
  args: ['--import', 'tsx', 'test/support/stubborn-stdio.ts', manner],
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
    await using client = await connecting
    expect(client.protocolVersion).toBe('2025-03-26')
    expect(await client.callTool('t')).toMatchObject({ content: [{ text: 'done' }] })
  })

  it('is reported as an error if the second start fails too', async () => {
    const connecting = connect({ command: process.execPath, args: ['-e', ''] })
    await expect(connecting).rejects.toMatchObject({ code: 'PEER_GONE' })
  })
})

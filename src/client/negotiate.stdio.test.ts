import { describe, expect, it } from 'vitest'
import { createManualClock } from '../../test/support/manual-clock.ts'
import { connect } from './connect.ts'

const stubborn = (manner: string) => ({
  command: process.execPath,
  args: ['--import', 'tsx', 'test/support/stubborn-stdio.ts', manner],
  stderr: 'ignore' as const,
})

describe('an older process', () => {
  it('is started anew if it ends at the first request', async () => {
    await using client = await connect(stubborn('exit'))
    expect(client.server).toMatchObject({ name: 'stubborn' })
    expect(client.protocolVersion).toBe('2025-03-26')
    expect(await client.callTool('t')).toMatchObject({ content: [{ text: 'done' }] })
  })

  it('is taken for one if it is silent for ten seconds', async () => {
    const clock = createManualClock()
    const connecting = connect(stubborn('silent'), { clock })
    await clock.elapse(10_000)
    await using client = await connecting
    expect(client.protocolVersion).toBe('2025-03-26')
    expect(await client.callTool('t')).toMatchObject({ content: [{ text: 'done' }] })
  })

  it('is an error if it can be started no better the second time', async () => {
    const connecting = connect({ command: process.execPath, args: ['-e', ''] })
    await expect(connecting).rejects.toMatchObject({ code: 'PEER_GONE' })
  })
})

import { describe, expect, it } from 'vitest'
import { ADA, scriptSession } from '../../../../../test/support/scripted-session.ts'
import { connect } from '../connect.ts'
import type { Answers } from '../question.ts'

interface Introduction {
  readonly capabilities: { readonly elicitation?: object }
}

describe('the handshake', () => {
  it('introduces the client once, and repeats version and session on every request', async () => {
    const server = scriptSession()
    const client = await connect(server, { answers: ADA, clientInfo: { name: 'me', version: '1' } })
    await client.callTool('t')
    await client.close()
    const [, hello, ready, ...rest] = server.heard
    expect(hello?.message.params).toMatchObject({
      protocolVersion: '2025-11-25',
      capabilities: { elicitation: { form: {} } },
      clientInfo: { name: 'me', version: '1' },
    })
    expect(hello?.headers.get('mcp-session-id')).toBeNull()
    expect(ready?.message.method).toBe('notifications/initialized')
    for (const { headers } of [ready, ...rest].flatMap((one) => one ?? [])) {
      expect(headers.get('mcp-session-id')).toBe('s1')
      expect(headers.get('mcp-protocol-version')).toBe('2025-11-25')
      expect(headers.get('mcp-method')).toBeNull()
    }
    expect(rest.map((one) => one.verb).sort()).toEqual(['DELETE', 'GET', 'POST'])
    expect(rest.find((one) => one.verb === 'POST')?.message.params).toEqual({ name: 't', arguments: {} })
  })

  it.each([
    ['2025-11-25', { form: {}, url: {} }],
    ['2025-06-18', {}],
    ['2025-03-26', undefined],
    ['2024-11-05', undefined],
  ] as const)('declares in %s only what that revision knows', async (mode, elicitation) => {
    const server = scriptSession()
    const answers: Answers = { elicitation: () => ({ action: 'cancel' }), roots: [] }
    await using client = await connect(server, { mode, answers })
    expect(client.protocolVersion).toBe(mode)
    const [hello] = server.heard
    const capabilities = (hello?.message.params as Introduction | undefined)?.capabilities
    expect(capabilities).toMatchObject({ roots: {} })
    expect(capabilities?.elicitation).toEqual(elicitation)
    await client.callTool('t')
    const sent = server.heard.at(-1)?.headers.get('mcp-protocol-version')
    expect(sent).toBe(mode >= '2025-06-18' ? mode : null)
  })

  it('accepts an older version that the server prefers', async () => {
    await using client = await connect(scriptSession({ version: '2024-11-05' }))
    expect(client.protocolVersion).toBe('2024-11-05')
  })

  it('asks for the version that a refusal names', async () => {
    const data = { supported: ['2025-06-18', '2031-01-01'], requested: '2026-07-28' }
    const onDiscover = (id: unknown) =>
      Response.json({ jsonrpc: '2.0', id, error: { code: -32022, message: 'no', data } }, { status: 400 })
    await using client = await connect(scriptSession({ onDiscover }))
    expect(client.protocolVersion).toBe('2025-06-18')
  })

  it.each([[[]], [['2031-01-01']], ['x'], [undefined]])(
    'is tried if a refusal names no version in common: %j',
    async (supported) => {
      const error = { code: -32022, message: 'no', data: { supported } }
      const onDiscover = (id: unknown) => Response.json({ jsonrpc: '2.0', id, error }, { status: 400 })
      await using client = await connect(scriptSession({ onDiscover }))
      expect(client.protocolVersion).toBe('2025-11-25')
      await using draft = await connect(scriptSession({ onDiscover, version: 'DRAFT-2026-v1' }))
      expect(draft.protocolVersion).toBe('DRAFT-2026-v1')
    },
  )

  it.each([
    ['another version than the one it is held to', { version: '2025-06-18' }, 'PEER_REVISION'],
    ['a version nobody knows', { version: '1999-01-01' }, 'PEER_REVISION'],
    ['a session id that is no header', { session: 'a b' }, 'PEER_BAD_RESPONSE'],
  ])('fails on %s', async (_what, script, code) => {
    const connecting = connect(scriptSession(script), { mode: '2025-11-25' })
    await expect(connecting).rejects.toMatchObject({ code })
  })

  it('works without a session if the server has none', async () => {
    const server = scriptSession({ session: null })
    const client = await connect(server)
    await client.callTool('t')
    await client.close()
    expect(server.heard.every(({ headers }) => headers.get('mcp-session-id') === null)).toBe(true)
    expect(server.heard.map(({ verb }) => verb)).not.toContain('DELETE')
  })

  it('is not tried if the caller insists on 2026-07-28', async () => {
    const server = scriptSession()
    await expect(connect(server, { mode: '2026-07-28' })).rejects.toMatchObject({ code: 'PEER_REVISION' })
    expect(server.heard).toHaveLength(1)
  })
})

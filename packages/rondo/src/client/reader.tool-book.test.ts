import { describe, expect, it } from 'vitest'
import { asking, said, scriptServer } from '../../../../test/support/scripted-server.ts'
import { connect } from './connect.ts'

describe('mirrored arguments', () => {
  const inputSchema = { type: 'object', properties: { region: { type: 'string', 'x-mcp-header': 'Region' } } }
  const tools = { resultType: 'complete', tools: [{ name: 't', inputSchema }] }

  it('are sent in headers once the tools are known', async () => {
    const server = scriptServer(tools, said('x'))
    const client = await connect(server)
    await client.listTools()
    await client.callTool('t', { region: 'eu' })
    expect(server.seen[1]?.headers.get('mcp-param-region')).toBe('eu')
  })

  it('are learned once, when a server refuses a request without them', async () => {
    const mismatch = { error: { code: -32020, message: 'header missing' } }
    const server = scriptServer(mismatch, tools, said('x'), mismatch, tools)
    const client = await connect(server)
    await client.callTool('t', { region: 'eu' })
    expect(server.seen.map(({ method }) => method)).toEqual(['tools/call', 'tools/list', 'tools/call'])
    expect(server.seen[2]?.headers.get('mcp-param-region')).toBe('eu')
    await expect(client.callTool('t', { region: 'eu' })).rejects.toMatchObject({ peer: { code: -32020 } })
    expect(server.seen).toHaveLength(5)
  })

  it('are sent on every leg', async () => {
    const server = scriptServer(tools, asking(undefined, 's'), said('x'))
    const client = await connect(server)
    await client.listTools()
    await client.callTool('t', { region: 'eu' })
    expect(server.seen.slice(1).map(({ headers }) => headers.get('mcp-param-region'))).toEqual(['eu', 'eu'])
  })
})

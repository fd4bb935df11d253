/** The official client as it connects when it is told nothing: it negotiates down, and is asked by pushed requests. */

import { StreamableHTTPClientTransport } from '@modelcontextprotocol/client'
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio'
import { createServer, generateKey, type Server } from 'rondo'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createWorld, scenarios } from '../scenarios/scenario.ts'
import { connectOfficial, MODERN, type OfficialClient, OLDER } from '../support/official-client.ts'
import { processFile } from '../support/process-file.ts'

let server: Server
let url: URL
const clients: Record<string, OfficialClient> = {}

beforeAll(async () => {
  server = createServer({ name: 'scenarios', version: '1.0.0', log: 'off', keys: generateKey() })
  for (const scenario of scenarios) scenario.declare(server, createWorld())
  url = new URL((await server.listen({ port: 0, signals: false })).url)
  clients.HTTP = await connectOfficial(new StreamableHTTPClientTransport(url), OLDER)
  clients.stdio = await connectOfficial(
    new StdioClientTransport({
      command: process.execPath,
      args: [processFile('test/support/scenario-stdio.ts')],
      env: { RONDO_KEYS: generateKey() },
      stderr: 'ignore',
    }),
    OLDER,
  )
})

afterAll(async () => {
  for (const client of Object.values(clients)) await client.close()
  await server.close()
})

describe.each(['HTTP', 'stdio'])('over %s', (way) => {
  it.each(scenarios)('F1 runs "$name" to the result that every carrier returns', async (scenario) => {
    const ended = await clients[way]?.run(scenario, scenario.script)
    expect(ended).toEqual({ text: scenario.text, isError: scenario.isError ?? false })
  })

  it('F1 was asked, in a session of 2025-11-25', () => {
    expect(clients[way]?.asked).toContain('Name?')
    expect(clients[way]?.client.getNegotiatedProtocolVersion()).toBe('2025-11-25')
  })
})

describe('one endpoint', () => {
  it('F1 serves both eras at once', async () => {
    const modern = await connectOfficial(new StreamableHTTPClientTransport(url), MODERN)
    const [scenario] = scenarios.filter(({ name }) => name === 'three rounds')
    if (scenario === undefined || clients.HTTP === undefined) throw new Error('nothing to run')
    const both = await Promise.all([
      modern.run(scenario, scenario.script),
      clients.HTTP.run(scenario, scenario.script),
    ])
    expect(both.map(({ text }) => text)).toEqual([scenario.text, scenario.text])
    await modern.close()
  })
})

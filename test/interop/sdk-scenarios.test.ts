/**
 * The scenarios on an official server with our callbacks, driven by the official client: the same results and the same
 * effect keys as on a server of ours, for clients with rounds and for older ones.
 */

import { createServer as createHttpServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { type ClientOptions, StreamableHTTPClientTransport } from '@modelcontextprotocol/client'
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio'
import { toNodeHandler } from '@modelcontextprotocol/node'
import { createMcpHandler, InMemoryTransport, type ServerOptions } from '@modelcontextprotocol/server'
import { serveStdio } from '@modelcontextprotocol/server/stdio'
import { generateKey } from 'rondo'
import { createRondo } from 'rondo/sdk'
import { afterAll, describe, expect, it } from 'vitest'
import { type Scenario, scenarios, type World } from '../scenarios/scenario.ts'
import { connectOfficial, MODERN, type OfficialClient, OLDER } from '../support/official-client.ts'
import { onOurServer, type Ran } from '../support/our-server.ts'
import { processFile } from '../support/process-file.ts'
import { serveScenarios, UP_FRONT } from '../support/sdk-server.ts'

async function overHttp(scenario: Scenario): Promise<Ran> {
  const { factory, world } = serveScenarios([scenario], { keys: generateKey() })
  const http = createHttpServer(toNodeHandler(createMcpHandler(factory)))
  await new Promise<void>((resolve) => http.listen(0, '127.0.0.1', resolve))
  const url = new URL(`http://127.0.0.1:${(http.address() as AddressInfo).port}/mcp`)
  const client = await connectOfficial(new StreamableHTTPClientTransport(url))
  try {
    return { ...(await client.run(scenario, scenario.script)), world }
  } finally {
    await client.close()
    await new Promise((resolve) => http.close(resolve))
  }
}

const inMemory =
  (options: ClientOptions, serverOptions?: ServerOptions) =>
  async (scenario: Scenario): Promise<Ran> => {
    const { factory, world } = serveScenarios([scenario], { keys: generateKey() }, serverOptions)
    const [near, far] = InMemoryTransport.createLinkedPair()
    const served = serveStdio(factory, { transport: far })
    const client = await connectOfficial(near as never, options)
    try {
      return { ...(await client.run(scenario, scenario.script)), world }
    } finally {
      await client.close()
      await served.close()
    }
  }

let child: Promise<OfficialClient> | undefined

/** The manual form is there too, as the official package has it: `sdk-by-hand.test.ts`. */
const mounted = scenarios.filter(({ manual }) => !manual)

/** One process for all scenarios: it tells what happened outside since it was last asked. */
async function olderOverStdio(scenario: Scenario): Promise<Ran> {
  child ??= connectOfficial(
    new StdioClientTransport({
      command: process.execPath,
      args: [processFile('test/support/sdk-stdio.ts')],
      env: { PATH: process.env.PATH ?? '', RONDO_KEYS: generateKey() },
      stderr: 'ignore',
    }),
    OLDER,
  )
  const client = await child
  const ran = await client.run(scenario, scenario.script)
  const { text } = await client.run({ method: 'tools/call', target: 'world' })
  return { ...ran, world: JSON.parse(text) as World }
}

afterAll(async () => (await child)?.close())

/** On a server whose own check refuses every state that it is given. */
const CHECKED: ServerOptions = {
  requestState: {
    verify: createRondo({ audience: 'checked', keys: generateKey() }).verify(() => {
      throw new Error('not ours')
    }),
  },
}

const ways: [string, (scenario: Scenario) => Promise<Ran>][] = [
  ['HTTP', overHttp],
  ['memory', inMemory(MODERN)],
  ['memory, an older client', inMemory(OLDER)],
  ['memory, capabilities given up front', inMemory(MODERN, UP_FRONT)],
  ['memory, capabilities given up front, an older client', inMemory(OLDER, UP_FRONT)],
  ['memory, beside a check of states', inMemory(MODERN, CHECKED)],
  ['memory, beside a check of states, an older client', inMemory(OLDER, { ...CHECKED, ...UP_FRONT })],
  ['stdio, an older client', olderOverStdio],
]

describe.each(ways)('the official server over %s', (_name, runOn) => {
  it.each(mounted)('R10 P20 $name: the same result and effect keys as on our server', async (scenario) => {
    const [ours, theirs] = await Promise.all([onOurServer(scenario), runOn(scenario)])
    expect(theirs.text).toBe(scenario.text)
    expect(theirs).toEqual(ours)
    expect(theirs.world.effects.map(({ name }) => name)).toEqual(scenario.effects)
    expect(theirs.isError).toBe(scenario.isError ?? false)
  })
})

/** Every tool of the scenarios as a task that a host without tasks reaches through `task_status`: in rounds, and by push. */

import { createServer, type LogEvent, type Server } from 'rondo'
import { afterEach, describe, expect, it } from 'vitest'
import { createMemoryStore } from '../../packages/rondo/src/store/memory/store.ts'
import { type Host, idIn, pushHost, roundsHost, untilEnded } from '../support/task-tools.ts'
import { effectsUnderToken } from './effects-under-token.ts'
import { createWorld, type Scenario, scenarios, taskScenarios, type World } from './scenario.ts'

const randomId = () => 'the same in every carrier'
const tools = [...scenarios.filter(({ method }) => method === 'tools/call'), ...taskScenarios]
const servers: Server[] = []

afterEach(async () => {
  await Promise.all(servers.splice(0).map((server) => server.close()))
})

function start(scenario: Scenario, world: World, log: 'off' | ((event: LogEvent) => void) = 'off'): Server {
  const server = createServer({
    name: 'scenarios',
    version: '1.0.0',
    keys: 'k:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=',
    log,
    dev: true,
    store: createMemoryStore(),
    tasks: { tools: true },
    randomId,
  })
  const tool: Server['tool'] = (name, definition, handler) =>
    server.tool(name, { ...definition, task: 'auto' }, handler)
  scenario.declare({ ...server, tool }, world)
  servers.push(server)
  return server
}

async function check(scenario: Scenario, world: World, host: Host): Promise<void> {
  const started = await host.call(scenario.target, scenario.args)
  expect(started.isError).toBe(false)
  const { text, isError } = await untilEnded(host, idIn(started), scenario.script)
  expect({ text, isError }).toEqual({ text: scenario.text, isError: scenario.isError ?? false })
  expect(world.effects).toEqual(await effectsUnderToken(scenario, randomId))
}

describe.each(tools)('task_status: $name', (scenario) => {
  it('G6 R10 has the result and the effect keys of the rounds, asked in rounds', async () => {
    const world = createWorld()
    await check(scenario, world, roundsHost(start(scenario, world)))
  })

  it.each(['2025-11-25', '2025-06-18'])(
    'G6 R10 has the result and the effect keys of the rounds, pushed at %s',
    async (version) => {
      const world = createWorld()
      const order: string[] = []
      const log = (event: LogEvent): void => {
        if (event.event === 'round' && event.target === 'task_status')
          order.push(...(event.asks ?? []).map(({ key }) => key))
      }
      const { url } = await start(scenario, world, log).listen({ port: 0, signals: false })
      let asked = 0
      await check(scenario, world, await pushHost(url, () => order[asked++] ?? '', { version }))
      expect(asked).toBe(order.length)
    },
  )
})

import { createServer, type Server, type ServerOptions } from 'rondo'
import { createBench } from 'rondo/testing'
import { afterEach, describe, expect, it } from 'vitest'
import { createMemoryStore } from '../../src/store/memory/memory-store.ts'
import type { Store } from '../../src/store/store.ts'
import { follow, send } from '../support/task-client.ts'
import { createWorld, type Scenario, scenarios, type World } from './scenario.ts'

const servers: Server[] = []

afterEach(async () => {
  await Promise.all(servers.splice(0).map((server) => server.close()))
})

function instance(
  scenario: Scenario,
  world: World,
  store: Store,
  options: Partial<ServerOptions> = {},
): Server {
  const server = createServer({
    name: 'scenarios',
    version: '1.0.0',
    keys: 'k:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=',
    log: 'off',
    dev: true,
    store,
    randomId: () => 'the same in every carrier',
    ...options,
  })
  // The scenario's tool, run as a task whenever the client can follow one.
  const tool: Server['tool'] = (name, definition, handler) =>
    server.tool(name, { ...definition, task: 'auto' }, handler)
  scenario.declare({ ...server, tool }, world)
  servers.push(server)
  return server
}

async function tokenRun({ target, args, script, declare }: Scenario): Promise<World> {
  const world = createWorld()
  const bench = createBench((options) => {
    const server = createServer({
      name: 'scenarios',
      version: '1.0.0',
      ...options,
      randomId: () => 'the same in every carrier',
    })
    declare(server, world)
    return server
  })
  await bench.tool(target, { ...args }).run(script)
  return world
}

const tools = scenarios.filter(({ method }) => method === 'tools/call')

describe.each(tools)('task: $name', (scenario) => {
  it('R10 P20 gives the result and the effect keys of the rounds', async () => {
    const world = createWorld()
    const server = instance(scenario, world, createMemoryStore())
    const created = await send(server, 'tools/call', { name: scenario.target, arguments: scenario.args })
    expect(created.result).toMatchObject({ resultType: 'task', status: 'working' })
    const ended = await follow(server, String(created.result?.taskId), scenario.script)
    expect(ended).toMatchObject({
      status: 'completed',
      result: { resultType: 'complete', content: [{ text: scenario.text }] },
    })
    expect((ended.result as { isError?: boolean }).isError ?? false).toBe(scenario.isError ?? false)
    expect(world.effects).toEqual((await tokenRun(scenario)).effects)
  })

  it('E9 goes on in another instance after a restart', async () => {
    const world = createWorld()
    const store = createMemoryStore()
    const first = instance(scenario, world, store)
    const created = await send(first, 'tools/call', { name: scenario.target, arguments: scenario.args })
    await first.close()
    const second = instance(scenario, world, store)
    expect(await follow(second, String(created.result?.taskId), scenario.script)).toMatchObject({
      status: 'completed',
      result: { content: [{ text: scenario.text }] },
    })
  })
})

/** What a scenario does to the world outside when its journal travels in the token: what every other carrier is held to. */

import { createServer } from 'rondo'
import { createBench } from 'rondo/testing'
import { createWorld, type Scenario, type World } from './scenario.ts'

/** `randomId` gives the flow its id, and with it the keys of its effects. */
export async function effectsUnderToken(
  { method, target, args, script, declare }: Scenario,
  randomId: () => string,
): Promise<World['effects']> {
  const world = createWorld()
  const bench = createBench((options) => {
    const server = createServer({ name: 'scenarios', version: '1.0.0', ...options, randomId })
    declare(server, world)
    return server
  })
  if (method === 'tools/call') await bench.tool(target, { ...args }).run(script)
  else await (method === 'prompts/get' ? bench.prompt(target) : bench.resource(target)).run(script)
  return world.effects
}

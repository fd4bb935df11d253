/** The effects of a scenario under the token carrier: the reference for every other carrier. */

import { createServer } from 'rondo'
import { createBench } from 'rondo/testing'
import { createWorld, type Scenario, type World } from './scenario.ts'

/** `randomId` generates the id of the flow, from which the effect keys are derived. */
export async function effectsUnderToken(
  { method, target, args, script, declare, rounds = declare }: Scenario,
  randomId: () => string,
): Promise<World['effects']> {
  const world = createWorld()
  const bench = createBench((options) => {
    const server = createServer({ name: 'scenarios', version: '1.0.0', ...options, randomId })
    rounds(server, world)
    return server
  })
  if (method === 'tools/call') await bench.tool(target, { ...args }).run(script)
  else await (method === 'prompts/get' ? bench.prompt(target) : bench.resource(target)).run(script)
  return world.effects
}

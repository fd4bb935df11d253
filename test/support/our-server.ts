/** A scenario on Rondo's own server, as the reference for others. */

import { createServer } from 'rondo'
import { createBench } from 'rondo/testing'
import { createWorld, type Scenario, type World } from '../scenarios/scenario.ts'
import { FIXED_IDS } from './sdk-server.ts'

export interface Ran {
  readonly text: string
  readonly isError: boolean
  readonly world: World
}

export async function onOurServer(scenario: Scenario): Promise<Ran> {
  const world = createWorld()
  const bench = createBench((options) => {
    const server = createServer({ name: 'scenarios', version: '1.0.0', ...options, ...FIXED_IDS })
    scenario.declare(server, world)
    return server
  })
  const { method, target, args } = scenario
  const call =
    method === 'tools/call'
      ? bench.tool(target, { ...args })
      : method === 'prompts/get'
        ? bench.prompt(target)
        : bench.resource(target)
  const round = await call.run(scenario.script)
  if (round.kind !== 'complete') throw new Error(`expected a result, got ${JSON.stringify(round)}`)
  return { text: round.text, isError: round.result.isError === true, world }
}

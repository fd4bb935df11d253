import { createServer } from 'rondo'
import { createBench, type TestCall, type TestRound } from 'rondo/testing'
import { describe, expect, it } from 'vitest'
import { createWorld, type Scenario, scenarios, type World } from './scenario.ts'

function start({ method, target, args, declare }: Scenario, world: World): TestCall {
  const bench = createBench((options) => {
    const server = createServer({ name: 'scenarios', version: '1.0.0', ...options })
    declare(server, world)
    return server
  })
  if (method === 'tools/call') return bench.tool(target, { ...args })
  return method === 'prompts/get' ? bench.prompt(target) : bench.resource(target)
}

function check(scenario: Scenario, world: World, round: TestRound): void {
  if (round.kind !== 'complete') throw new Error(`expected a result, got ${JSON.stringify(round)}`)
  expect(round.text).toBe(scenario.text)
  expect(round.result.isError ?? false).toBe(scenario.isError ?? false)
  expect([...new Set(world.effects.map(({ name }) => name))]).toEqual(scenario.effects)
}

/** Sends one round after the other with `send`. */
async function drive(scenario: Scenario, call: TestCall, send: TestCall['next']): Promise<TestRound> {
  let round = await send()
  while (round.kind === 'input_required' && call.rounds < 20) {
    const keys = Object.keys(round.questions)
    round = await send(
      Object.fromEntries(Object.entries(scenario.script).filter(([key]) => keys.includes(key))),
    )
  }
  return round
}

describe.each(scenarios)('token: $name', (scenario) => {
  it('R10 runs to its result', async () => {
    const world = createWorld()
    check(scenario, world, await start(scenario, world).run(scenario.script))
    expect(world.effects.length).toBe(scenario.effects.length)
  })

  it('B2 R10 runs to the same result with every round on another instance', async () => {
    const world = createWorld()
    const call = start(scenario, world)
    check(scenario, world, await drive(scenario, call, (answers) => call.otherInstance().next(answers)))
    expect(world.effects.length).toBe(scenario.effects.length)
  })

  it('R7 runs to the same result with every reply lost once, each effect under one key', async () => {
    const world = createWorld()
    const call = start(scenario, world)
    const twice: TestCall['next'] = async (answers) => {
      await call.loseReply(answers)
      return call.otherInstance().next(answers)
    }
    check(scenario, world, await drive(scenario, call, twice))
    for (const name of scenario.effects) {
      const keys = world.effects.filter((effect) => effect.name === name).map(({ key }) => key)
      expect(keys.length).toBeGreaterThan(1)
      expect(new Set(keys).size).toBe(1)
    }
  })
})

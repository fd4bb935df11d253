/**
 * Every tool of the scenarios as a task that our client requests, in 2025-11-25 and in the draft: the same result and
 * effect keys as under any other carrier (R10).
 */

import { createServer, generateKey, type Server } from 'rondo'
import { type ConnectOptions, connect } from 'rondo/client'
import { afterEach, describe, expect, it } from 'vitest'
import { createMemoryStore } from '../../packages/rondo/src/store/memory/store.ts'
import { toResponse } from '../../packages/rondo/src/testing/call.ts'
import { effectsUnderToken } from './effects-under-token.ts'
import { createWorld, type Scenario, scenarios, taskScenarios, type World } from './scenario.ts'

const closing: (() => Promise<void>)[] = []
afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close()
})

const randomId = () => 'the-same-in-every-carrier'
const keys = generateKey('scenarios')

async function serve(scenario: Scenario, world: World): Promise<string> {
  const server = createServer({
    name: 'scenarios',
    version: '1.0.0',
    keys,
    log: 'off',
    dev: true,
    turns: false,
    store: createMemoryStore(),
    randomId,
  })
  const tool: Server['tool'] = (name, definition, handler) =>
    server.tool(name, { ...definition, task: 'always', taskPollMs: 50 }, handler)
  scenario.declare({ ...server, tool }, world)
  closing.push(() => server.close())
  return (await server.listen({ port: 0, signals: false })).url
}

/** The answers of the script, in the order of its questions. */
function answersOf({ script }: Scenario): ConnectOptions['answers'] {
  const all = Object.values(script)
  const forms = all.filter((one) => !('roots' in one) && !('model' in one))
  const find = (field: string) => all.find((one) => field in one)
  return {
    elicitation: (params) =>
      toResponse({ method: 'elicitation/create', params }, forms.shift() ?? {}) as never,
    sampling: () => find('model') as never,
    roots: () => find('roots') as never,
  }
}

const tools = [...scenarios.filter(({ method }) => method === 'tools/call'), ...taskScenarios]

describe.each(['2025-11-25', 'DRAFT-2026-v1'] as const)('tasks of %s', (mode) => {
  it.each(tools)(
    'F1 D10 R10 P20 have the result and the effect keys of the rounds: $name',
    async (scenario) => {
      const world = createWorld()
      const client = await connect(await serve(scenario, world), { mode, answers: answersOf(scenario) })
      closing.push(() => client.close())
      const seen = new Set<string>()
      const result = await client.callTool(scenario.target, scenario.args, {
        onTask: ({ status }) => void seen.add(status),
      })
      expect(result).toMatchObject({ content: [{ text: scenario.text }] })
      expect(result.isError ?? false).toBe(scenario.isError ?? false)
      expect(seen.size).toBeGreaterThan(0)
      expect(world.effects.map(({ name }) => name)).toEqual(scenario.effects)
      expect(world.effects).toEqual(await effectsUnderToken(scenario, randomId))
    },
  )
})

import { createServer, generateKey, type LogEvent } from 'rondo'
import { afterEach, describe, expect, it } from 'vitest'
import { toResponse } from '../../packages/rondo/src/testing/call.ts'
import { connectOlder, type Message } from '../support/older-client.ts'
import { effectsUnderToken } from './effects-under-token.ts'
import { createWorld, type Scenario, scenarios, type World } from './scenario.ts'

const CAPABILITIES = { elicitation: { form: {}, url: {} }, sampling: {}, roots: {} }
const VERSIONS = ['2025-11-25', '2025-06-18', '2025-03-26', '2024-11-05']
/** Every flow has the same seed, so that keys can be compared across carriers. */
const randomId = () => 'the-same-for-every-flow'
const keys = generateKey('scenarios')

const closing: (() => Promise<void>)[] = []

afterEach(async () => {
  for (const close of closing.splice(0)) await close()
})

const paramsOf = ({ method, target, args }: Scenario): object =>
  method === 'resources/read' ? { uri: target } : { name: target, arguments: args ?? {} }

/** Questions have no key in this revision: they arrive in the order in which the server logs their keys. */
async function runPushed(scenario: Scenario, world: World, version: string, dev: boolean) {
  const order: string[] = []
  const log = (event: LogEvent) => {
    if (event.event === 'round') order.push(...(event.asks ?? []).map(({ key }) => key))
  }
  const server = createServer({ name: 'scenarios', version: '1.0.0', log, dev, randomId, keys })
  scenario.declare(server, world)
  const { url } = await server.listen({ port: 0, signals: false })
  closing.push(() => server.close())
  let answered = 0
  const client = await connectOlder(url, {
    version,
    capabilities: CAPABILITIES,
    answer({ method, params }) {
      const key = order[answered++] ?? ''
      const scripted = scenario.script[key]
      if (scripted === undefined) throw new Error(`The script has no answer to "${key}"`)
      return toResponse({ method, params } as never, scripted)
    },
  })
  const response = await client.call(scenario.method, paramsOf(scenario))
  return { response, client, order }
}

function textOf({ result }: Message): string {
  const { content, messages, contents } = result as Record<
    string,
    { text?: string; content?: { text: string } }[]
  >
  return (content ?? messages ?? contents ?? []).map((one) => one.text ?? one.content?.text).join('\n')
}

function check(scenario: Scenario, world: World, response: Message): void {
  expect(response.error).toBeUndefined()
  expect(textOf(response)).toBe(scenario.text)
  const { isError = false, resultType } = response.result as { isError?: boolean; resultType?: string }
  expect(isError).toBe(scenario.isError ?? false)
  expect(resultType).toBeUndefined()
  expect(world.effects.map(({ name }) => name)).toEqual(scenario.effects)
}

describe.each(scenarios)('push: $name', (scenario) => {
  it.each(VERSIONS)('F1 R10 runs to its result for a client of %s', async (version) => {
    const world = createWorld()
    const { response, client, order } = await runPushed(scenario, world, version, false)
    check(scenario, world, response)
    expect([...new Set(order)].sort()).toEqual(Object.keys(scenario.script).sort())
    expect(client.asked).toHaveLength(order.length)
  })

  it('R10 P20 has the same effect keys as under a token', async () => {
    const world = createWorld()
    await runPushed(scenario, world, '2025-11-25', false)
    expect(world.effects).toEqual(await effectsUnderToken(scenario, randomId))
  })

  it('R10 replays identically in development mode', async () => {
    const world = createWorld()
    const { response } = await runPushed(scenario, world, '2025-11-25', true)
    check(scenario, world, response)
  })
})

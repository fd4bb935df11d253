/** Every scenario in turns: the same result and the same effects as under any other carrier (R10). */

import { createServer, generateKey, type Server, type ServerOptions } from 'rondo'
import { describe, expect, it } from 'vitest'
import { createMemoryStore } from '../../packages/rondo/src/store/memory/store.ts'
import { toResponse } from '../../packages/rondo/src/testing/call.ts'
import { connectTurns, type Got, type Message, type TurnsClientOptions } from '../support/turns-client.ts'
import { effectsUnderToken } from './effects-under-token.ts'
import { createWorld, type Scenario, scenarios, type World } from './scenario.ts'

const URL = 'http://127.0.0.1/mcp'
/** Every flow has the same seed, so that keys can be compared across carriers. */
const randomId = () => 'the-same-for-every-flow'

interface Setup {
  readonly server?: Partial<ServerOptions>
  readonly client?: TurnsClientOptions
  /** Each request reaches a new instance. */
  readonly fresh?: boolean
  /** Each POST is sent twice, and the first reply is lost. */
  readonly twice?: boolean
}

/** The answers of the script, in the order of its questions. */
function answerer({ script }: Scenario): (requests: readonly Message[]) => Message[] {
  const left = Object.values(script)
  return (requests) =>
    requests.map((request) => {
      const next = request.method === 'ping' ? {} : left.shift()
      return next === undefined ? {} : (toResponse(request as never, next) as Message)
    })
}

function paramsOf({ method, target, args }: Scenario): Message {
  return method === 'resources/read' ? { uri: target } : { name: target, arguments: args ?? {} }
}

function textOf(message: Message): string {
  const { content, messages, contents } = message.result as Record<string, Message[] | undefined>
  const blocks = content ?? messages ?? contents ?? []
  return blocks.map((block) => block.text ?? (block.content as Message | undefined)?.text).join('\n')
}

async function run(scenario: Scenario, world: World, { server, client, fresh, twice }: Setup) {
  const keys = generateKey('turns')
  const make = (): Server => {
    const options = { name: 'scenarios', version: '1.0.0', keys, dev: true, log: 'off' } as const
    const made = createServer({ ...options, ...server })
    scenario.declare(made, world)
    return made
  }
  let instance = make()
  const peer = await connectTurns(
    async (request) => {
      const again = twice ? request.clone() : undefined
      if (fresh) instance = make()
      if (again) await (await instance.fetch(again)).text()
      if (fresh && again) instance = make()
      return instance.fetch(request)
    },
    URL,
    client,
  )
  const toAnswers = answerer(scenario)
  const turns: Got[] = []
  let got = await peer.request(scenario.method, paramsOf(scenario))
  while (got.kind === 'turn' && turns.length < 20) {
    turns.push(got)
    got = await peer.answer(got, toAnswers(got.requests))
  }
  return { got, turns }
}

function check(scenario: Scenario, world: World, got: Got): void {
  if (got.kind !== 'response' || got.message.result === undefined) throw new Error(JSON.stringify(got))
  expect(textOf(got.message)).toBe(scenario.text)
  expect((got.message.result as Message).isError ?? false).toBe(scenario.isError ?? false)
  expect(got.message.id).toBe(2)
  expect([...new Set(world.effects.map(({ name }) => name))]).toEqual(scenario.effects)
}

const WAYS: [string, Setup][] = [
  ['with a shared state, on any instance', { fresh: true }],
  ['with a state per request, on any instance', { fresh: true, server: { turns: { state: 'per-request' } } }],
  ['with a state that is an object', { fresh: true, server: { turns: { form: 'object' } } }],
  ['for a client that has no states, on the instance that asked', { client: { state: false } }],
]

describe.each(scenarios)('turns: $name', (scenario) => {
  it.each(WAYS)('F2 F3 F5 R10 runs to its result %s', async (_name, setup) => {
    const world = createWorld()
    const { got, turns } = await run(scenario, world, setup)
    check(scenario, world, got)
    expect(world.effects.length).toBe(scenario.effects.length)
    expect(turns.length > 0).toBe(Object.keys(scenario.script).length > 0)
  })

  it.each(WAYS)('R10 P20 has the same effect keys as under a token, %s', async (_name, setup) => {
    const world = createWorld()
    const { got } = await run(scenario, world, { ...setup, server: { ...setup.server, randomId } })
    check(scenario, world, got)
    expect(world.effects).toEqual(await effectsUnderToken(scenario, randomId))
  })

  it('F4 R10 runs to its result through the store for a client without states', async () => {
    const world = createWorld()
    const store = createMemoryStore()
    const server = { continuation: 'stored', store } as const
    check(
      scenario,
      world,
      (await run(scenario, world, { fresh: true, server, client: { state: false } })).got,
    )
    expect(world.effects.length).toBe(scenario.effects.length)
  })

  it('R7 runs to the same result with every reply lost once, each effect under one key', async () => {
    const world = createWorld()
    check(scenario, world, (await run(scenario, world, { fresh: true, twice: true })).got)
    for (const name of scenario.effects) {
      const keys = world.effects.filter((effect) => effect.name === name).map(({ key }) => key)
      expect(keys.length).toBeGreaterThan(1)
      expect(new Set(keys).size).toBe(1)
    }
  })
})

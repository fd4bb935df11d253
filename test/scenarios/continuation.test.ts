/**
 * Migration from stored to sealed state (F4): every scenario in every mode, each round on another instance, and a fleet
 * that changes its mode while calls are open.
 */

import { createServer, generateKey, type ServerOptions } from 'rondo'
import { createBench, type TestBench, type TestCall, type TestRound } from 'rondo/testing'
import { describe, expect, it } from 'vitest'
import { createMemoryStore } from '../../packages/rondo/src/store/memory/store.ts'
import { createMemoryBlobs } from '../support/memory-blobs.ts'
import { createWorld, type Scenario, scenarios, type World } from './scenario.ts'

const MODES = ['stored', 'dual', 'sealed-first', 'sealed'] as const
type Overrides = Partial<ServerOptions>

function bench({ declare }: Scenario, world: World, overrides: () => Overrides): TestBench {
  return createBench((options) => {
    const server = createServer({ name: 'scenarios', version: '1.0.0', ...options, ...overrides() })
    declare(server, world)
    return server
  })
}

function begin(on: TestBench, { method, target, args }: Scenario): TestCall {
  if (method === 'tools/call') return on.tool(target, { ...args })
  return method === 'prompts/get' ? on.prompt(target) : on.resource(target)
}

/** Runs a call to its end, each round on a new instance; `between` runs before each retry. */
async function drive(call: TestCall, { script }: Scenario, between = () => {}): Promise<TestRound> {
  let round = await call.next()
  for (let i = 0; round.kind === 'input_required' && i < 20; i++) {
    const asked = Object.keys(round.questions)
    const answers = Object.entries(script).filter(([key]) => asked.includes(key))
    between()
    round = await call.otherInstance().next(Object.fromEntries(answers))
  }
  return round
}

describe.each(MODES)('continuation %s', (continuation) => {
  it.each(scenarios)('F4 R10 runs "$name" to the same result and effects', async (scenario) => {
    const world = createWorld()
    const store = { ...createMemoryStore(), blobs: createMemoryBlobs() }
    const on = bench(scenario, world, () => ({ continuation, store }))
    expect(await drive(begin(on, scenario), scenario)).toMatchObject({
      kind: 'complete',
      text: scenario.text,
    })
    expect(world.effects.map(({ name }) => name)).toEqual(scenario.effects)
    expect(on.events.filter(({ event }) => event === 'continuation')).toEqual([])
    const suspended = Object.keys(scenario.script).length > 0
    expect(store.blobs.rows.size > 0).toBe(suspended && continuation !== 'sealed')
  })
})

describe('a fleet that changes its continuation mode', () => {
  const scenario = scenarios.find(({ name }) => name === 'three rounds') as Scenario

  it('F4 an open call survives the way from stored to dual to sealed-first to sealed', async () => {
    const blobs = createMemoryBlobs()
    const modes = [...MODES]
    let mode = modes.shift()
    const on = bench(scenario, createWorld(), () => ({
      continuation: mode,
      store: { ...createMemoryStore(), blobs },
    }))
    const states: string[] = []
    const call = begin(on, scenario)
    const round = await drive(call, scenario, () => {
      states.push(call.state ?? '')
      mode = modes.shift()
    })
    expect(round).toMatchObject({ kind: 'complete', text: '1 2 3' })
    expect(states.map((state) => state.slice(0, 3))).toEqual(['h1.', 'r1.', 'r1.'])
    expect(mode).toBe('sealed')
    expect(on.events.filter(({ event }) => event === 'continuation')).toEqual([])
  })

  it('F4 open calls survive a change from any mode to any other, in both directions', async () => {
    for (const from of MODES) {
      for (const to of MODES) {
        const store = { ...createMemoryStore(), blobs: createMemoryBlobs() }
        let mode: (typeof MODES)[number] = from
        const on = bench(scenario, createWorld(), () => ({ continuation: mode, store }))
        const round = await drive(begin(on, scenario), scenario, () => {
          mode = mode === from ? to : from
        })
        expect([from, to, round.kind]).toEqual([from, to, 'complete'])
        expect(round).toMatchObject({ text: '1 2 3' })
      }
    }
  })

  it('B4 every mode refuses a state that no mode issued', async () => {
    for (const continuation of MODES) {
      const store = { ...createMemoryStore(), blobs: createMemoryBlobs() }
      const on = bench(scenario, createWorld(), () => ({ continuation, store }))
      const other = bench(scenario, createWorld(), () => ({ continuation: 'sealed', keys: generateKey() }))
      const foreign = begin(other, scenario)
      await foreign.next()
      for (const state of [
        'h1.AAAAAAAAAAAAAAAAAAAAAA',
        `h1.${'A'.repeat(70_000)}`,
        'r1.AAAA',
        foreign.state,
      ]) {
        const call = begin(on, scenario)
        await call.next()
        call.state = state
        expect(await call.next(scenario.script)).toMatchObject({ kind: 'error', code: -32602 })
      }
    }
  })

  it('F4 calls survive the loss of their key, except in the mode sealed', async () => {
    for (const continuation of MODES) {
      const store = { ...createMemoryStore(), blobs: createMemoryBlobs() }
      const on = bench(scenario, createWorld(), () => ({ continuation, store, keys: generateKey() }))
      const round = await drive(begin(on, scenario), scenario)
      const kind = continuation === 'sealed' ? 'error' : 'complete'
      expect([continuation, round.kind]).toEqual([continuation, kind])
      const findings = on.events.filter(({ event }) => event === 'continuation')
      const finding = { dual: 'not_sealed', 'sealed-first': 'fell_back' }[continuation as string]
      expect(findings).toMatchObject(finding ? Array(3).fill({ finding, reason: 'key' }) : [])
    }
  })

  it('F4 createServer refuses an unknown mode, and a mode without its store', () => {
    const make = (options: object) => () => createServer({ name: 'a', version: '1', ...options })
    expect(make({ continuation: 'dual' })).toThrow(/needs a store/)
    expect(make({ continuation: 'both' })).toThrow(/one of stored, dual, sealed-first, sealed/)
    expect(make({ continuation: 'sealed' })).not.toThrow()
  })
})

/**
 * The short form of `npm run conformance`: the rounds, on one instance and on two behind a round robin, and tasks on two
 * instances that share a SQLite file.
 */

import { randomBytes } from 'node:crypto'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { startRoundRobin } from '../support/round-robin.ts'
import { startFixture } from './fixture-process.ts'
import { runScenario } from './run-scenario.ts'
import { openSharedStore } from './shared-store.ts'

const closers: (() => Promise<void>)[] = []
afterAll(async () => {
  for (const close of closers.reverse()) await close()
})
let alone = ''
let together = ''
let counts: readonly number[] = []

beforeAll(async () => {
  const store = await openSharedStore('sqlite')
  closers.push(store.close)
  const env = { ...store.env, RONDO_KEYS: `test:${randomBytes(32).toString('base64url')}` }
  const fixtures = await Promise.all([startFixture(env), startFixture(env)])
  for (const fixture of fixtures) closers.push(fixture.stop)
  const [first] = fixtures
  const robin = await startRoundRobin(fixtures.map((fixture) => fixture.url))
  closers.push(robin.close)
  alone = first.url.href
  together = new URL(first.url.pathname, robin.url).href
  counts = robin.counts
})

async function problems(url: string, scenario: string, revision?: string): Promise<readonly string[]> {
  return (await runScenario({ kind: 'server', url }, scenario, { revision })).problems
}

describe('the official suite', () => {
  it.each(['tools-list', 'resources-templates-read'])('passes %s', async (scenario) => {
    expect(await problems(alone, scenario)).toEqual([])
  })

  it.each([
    ['A6', 'input-required-result-unsupported-methods'],
    ['B10', 'input-required-result-capability-check'],
    ['B14', 'input-required-result-validate-input'],
    ['B15', 'input-required-result-ignore-extra-params'],
    ['B16', 'input-required-result-missing-input-response'],
  ])('%s passes %s', async (_id, scenario) => {
    expect(await problems(alone, scenario)).toEqual([])
  })

  it.each([
    ['E3', 'tasks-mrtr-input'],
    ['E5', 'tasks-request-headers'],
    ['D9', 'tasks-mrtr-composition'],
  ])('%s passes %s with each request on another instance', async (_id, scenario) => {
    expect(await problems(together, scenario)).toEqual([])
  })

  it.each([
    ['input-required-result-multi-round'],
    ['input-required-result-multiple-input-requests'],
    ['input-required-result-tampered-state'],
    ['input-required-result-non-tool-request'],
  ])('B2 passes %s with each round on another instance', async (scenario) => {
    const before = counts.reduce((sum, count) => sum + count, 0)
    expect(await problems(together, scenario)).toEqual([])
    expect(counts.reduce((sum, count) => sum + count, 0)).toBeGreaterThan(before)
    expect(Math.min(...counts)).toBeGreaterThan(0)
  })

  it.each([
    'server-initialize',
    'tools-call-elicitation',
    'tools-call-sampling',
    'server-sse-polling',
    'server-session-lifecycle',
  ])('F1 passes %s at 2025-11-25, on the same endpoint', async (scenario) => {
    expect(await problems(alone, scenario, '2025-11-25')).toEqual([])
  })
})

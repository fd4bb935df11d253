/**
 * The official suite through a gateway, with the fixture server behind it: every scenario of both revisions, with one instance, and
 * with two behind a round robin that share a SQLite file.
 */

import { randomBytes } from 'node:crypto'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { startRoundRobin } from '../support/round-robin.ts'
import { startFixture, startGateway } from './fixture-process.ts'
import { runScenario } from './run-scenario.ts'
import { ALWAYS_SKIPPED, REVISIONS, readServerScenarios } from './scenario.ts'
import { openSharedStore } from './shared-store.ts'

const COUNTS: Readonly<Record<string, number>> = { '2026-07-28': 49, '2025-11-25': 33 }

const closers: (() => Promise<void>)[] = []
afterAll(async () => {
  for (const close of closers.reverse()) await close()
})
const urls = { one: '', two: '', none: '' }
let counts: readonly number[] = []

beforeAll(async () => {
  const behind = await startFixture()
  closers.push(behind.stop)
  const store = await openSharedStore('sqlite')
  closers.push(store.close)
  const env = { ...store.env, RONDO_KEYS: `test:${randomBytes(32).toString('base64url')}` }
  const alone = await startGateway(behind.url)
  const gateways = [await startGateway(behind.url, env), await startGateway(behind.url, env)]
  for (const { stop } of [alone, ...gateways]) closers.push(stop)
  const robin = await startRoundRobin(gateways.map(({ url }) => url))
  closers.push(robin.close)
  counts = robin.counts
  urls.one = alone.url.href
  urls.two = new URL(alone.url.pathname, robin.url).href
  // Instances without a common key: the control.
  const strangers = [alone.url, gateways[0]?.url ?? alone.url]
  const control = await startRoundRobin(strangers)
  closers.push(control.close)
  urls.none = new URL(alone.url.pathname, control.url).href
})

describe.each(REVISIONS)('the official suite at %s', (revision) => {
  const scenarios = readServerScenarios(revision).filter((name) => !ALWAYS_SKIPPED.has(name))

  it('has as many scenarios as are known', () => {
    expect(scenarios).toHaveLength(COUNTS[revision] ?? 0)
  })

  it.each(scenarios)('passes %s through a gateway', async (scenario) => {
    const { problems, kind } = await runScenario({ kind: 'server', url: urls.one }, scenario, { revision })
    expect({ problems, kind }).toEqual({ problems: [], kind: 'passed' })
  })

  it.each(scenarios)('passes %s through two instances behind a round robin', async (scenario) => {
    const { problems, kind } = await runScenario({ kind: 'server', url: urls.two }, scenario, { revision })
    expect({ problems, kind }).toEqual({ problems: [], kind: 'passed' })
    expect(Math.min(...counts)).toBeGreaterThan(0)
  })
})

it('a scenario of several rounds fails with instances that have different keys', async () => {
  const { kind } = await runScenario(
    { kind: 'server', url: urls.none },
    'input-required-result-multi-round',
    { revision: '2026-07-28' },
  )
  expect(kind).toBe('failed')
})

import { describe, expect, it } from 'vitest'
import { probe } from './fixture-process.ts'
import { judge, runScenario } from './run-scenario.ts'
import { CLIENT_SCENARIOS, NOT_YET, readServerScenarios } from './scenario.ts'

const check = (status: 'SUCCESS' | 'FAILURE' | 'WARNING' | 'SKIPPED' | 'INFO', id = 'x') => ({
  id,
  name: id,
  status,
})

describe('the runner of the official conformance suite', () => {
  it('finds the scenarios of the revision', () => {
    const scenarios = readServerScenarios()
    expect(scenarios.length).toBe(50)
    expect(new Set(scenarios).size).toBe(50)
    expect(scenarios.filter((scenario) => NOT_YET.has(scenario))).toHaveLength(NOT_YET.size)
    expect(CLIENT_SCENARIOS['2026-07-28']).toHaveLength(39)
    expect(CLIENT_SCENARIOS['2025-11-25']).toHaveLength(25)
  })

  it.each([
    ['passed', [check('SUCCESS'), check('INFO'), check('SKIPPED')], []],
    ['failed', [check('SUCCESS'), check('FAILURE')], []],
    ['failed', [check('SUCCESS'), check('WARNING')], []],
    ['failed', [check('SUCCESS'), check('WARNING', 'y')], [/^x$/]],
    ['passed', [check('SUCCESS'), check('WARNING')], [/^x$/]],
    ['failed', [check('SUCCESS'), check('FAILURE')], [/^x$/]],
    ['skipped', [check('SKIPPED')], []],
    ['skipped', [], []],
  ] as const)('says "%s" of %j', (kind, checks, allow) => {
    expect(judge('s', checks, allow).kind).toBe(kind)
  })

  const nobody = new URL('http://127.0.0.1:9/mcp')

  it('fails if no server is listening', async () => {
    await expect(probe(nobody)).rejects.toThrow('No server responds')
  })

  it('fails a scenario that the suite itself would pass with a warning', async () => {
    const verdict = await runScenario(
      { kind: 'server', url: nobody.href },
      'input-required-result-validate-input',
    )
    expect(verdict.problems.join('\n')).toMatch(/WARNING|FAILURE/)
    expect(verdict.kind).toBe('failed')
  })

  it('fails a scenario that does not exist', async () => {
    const verdict = await runScenario({ kind: 'server', url: nobody.href }, 'no-such-scenario')
    expect(verdict).toMatchObject({ kind: 'failed', problems: [expect.stringContaining('wrote no result')] })
  })
})

/** `docs/reference/telemetry.md` names what the code names, and nothing else. */

import { readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { ATTRIBUTE, CONVENTION, METRIC } from '../../packages/rondo/src/telemetry/otel.ts'

function namesUnder(page: string, heading: string): string[] {
  const table = page.split(`<!-- names ${heading} -->`)[1]?.split('\n## ')[0] ?? ''
  return Array.from(table.matchAll(/^\| `([^`]+)` \|/gm), ([, name]) => name ?? '').sort()
}

const page = readFileSync('docs/reference/telemetry.md', 'utf8')

describe('the reference of telemetry', () => {
  it('lists every attribute', () => {
    const names = [...Object.values(CONVENTION), ...Object.values(ATTRIBUTE)]
    expect(namesUnder(page, 'attributes')).toEqual([...new Set(names)].sort())
    expect(names.length).toBeGreaterThan(15)
  })

  it('lists every metric', () => {
    expect(namesUnder(page, 'metrics')).toEqual(Object.values(METRIC).sort())
  })

  it('is found to lack a name that was removed from it', () => {
    expect(namesUnder(page.replace('| `rondo.round` |', '| round |'), 'attributes')).not.toContain(
      'rondo.round',
    )
  })

  it('names no attribute in the code that is not in the list', () => {
    const code = readFileSync('packages/rondo/src/telemetry/otel.ts', 'utf8')
    const written = Array.from(
      code.matchAll(/['"]((?:rondo|mcp|gen_ai|rpc|http|jsonrpc|error)\.[\w.]+)/g),
      ([, name]) => name,
    )
    const listed = [CONVENTION, ATTRIBUTE, METRIC].flatMap((names): string[] => Object.values(names))
    // Once each, in the tables: everything else refers to them.
    expect(written.sort()).toEqual(listed.sort())
  })
})

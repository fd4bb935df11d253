/** Every name of telemetry is in the tables from which `docs/reference/telemetry.md` is generated. */

import { readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { ATTRIBUTE, CONVENTION, METRIC } from '../../packages/rondo/src/telemetry/otel.ts'

describe('telemetry', () => {
  it('has every name that the code uses in its tables, once', () => {
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

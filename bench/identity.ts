/**
 * What identity adds to a request, beside a plain server in the same process: access tokens that are verified and then
 * remembered, opaque ones that are introspected and then remembered, and tokens that are bound to a key (DPoP), whose proof is
 * checked in every request.
 */

import { type Aim, aimTable } from './aim.ts'
import type { RunBench, Table } from './bench.ts'
import {
  addedMicros,
  addedPercent,
  type FormCosts,
  measureForms,
  plainMicros,
  shownPercent,
} from './forms.ts'
import { LEG_NAMES, LEGS } from './load/legs.ts'
import { type FormName, pinLoad } from './server/spawn-server.ts'
import { fixed } from './stat.ts'

/** The first is the control: it should add nothing. */
const FORMS: readonly FormName[] = ['rondo-plain', 'rondo-oauth', 'rondo-introspection', 'rondo-dpop']

const FULL = { processes: 6, effort: { warmUp: 2_000, rounds: 8, requests: 500 } }
const QUICK = { processes: 2, effort: { warmUp: 2_000, rounds: 8, requests: 300 } }

export const run: RunBench = async (settings) => {
  const { processes, effort } = settings.quick ? QUICK : FULL
  if (!pinLoad()) settings.progress('load and servers share their cores (no taskset)')
  const forms = FORMS.map((name) => ({ name, processes }))
  const costs = await measureForms(forms, effort, settings)
  return { tables: [aimTable(aimsOf(costs), 'identity-aims'), costTable(costs)], data: costs }
}

function aimsOf(costs: FormCosts): readonly Aim[] {
  return LEGS.flatMap((leg): Aim[] => {
    const adds = (what: string): string => `${LEG_NAMES[leg]}: ${what} adds`
    const percent = (form: FormName) => ({
      found: addedPercent(costs, leg, form),
      unit: ' %' as const,
      most: 10,
    })
    return [
      { what: adds('a token'), ...percent('rondo-oauth') },
      { what: adds('an introspected token'), ...percent('rondo-introspection') },
      {
        what: adds('a bound token with its proof'),
        found: addedMicros(costs, leg, 'rondo-dpop'),
        unit: ' µs',
        most: 60,
      },
    ]
  })
}

function costTable(costs: FormCosts): Table {
  return {
    title:
      'What identity adds to the server CPU of one request: median of several processes, and their range',
    mark: 'identity',
    columns: [
      'request',
      'plain µs',
      'control',
      'token',
      'introspected token',
      'bound token',
      'bound token, µs',
    ],
    rows: LEGS.map((leg) => [
      LEG_NAMES[leg],
      fixed(plainMicros(costs, leg)),
      ...FORMS.map((form) => shownPercent(costs, leg, form)),
      fixed(addedMicros(costs, leg, 'rondo-dpop'), 1),
    ]),
  }
}

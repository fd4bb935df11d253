/**
 * What something adds to a request: Rondo with it, beside a plain server in the same process.
 *
 * It is a few percent: less than two processes of the same program differ by, or two servers in one process, since each is
 * optimized in its own way. So each form runs beside a plain server in one process, in short rounds, in many processes.
 * Being first has a price as well, when they start and in a round; so the plain server starts first in half of the
 * processes, and goes first in half of the rounds.
 */

import type { Settings } from './bench.ts'
import { LEGS, type Leg, prepareLegs } from './load/legs.ts'
import { type Effort, type Racer, race } from './race.ts'
import { type FormName, type ServerProcess, spawnServer } from './server/spawn-server.ts'
import { fixed, median, medianRatio } from './stat.ts'

/** By leg and form: the CPU time of a plain server's request, and of that of the form as its multiple; one figure per process. */
export type FormCosts = Readonly<Record<Leg, Record<FormName, { micros: number; ratio: number }[]>>>

/** A form, and how many processes it takes to measure it: fewer for one that adds much. */
export interface MeasuredForm {
  readonly name: FormName
  readonly processes: number
}

export async function measureForms(
  forms: readonly MeasuredForm[],
  effort: Effort,
  settings: Settings,
): Promise<FormCosts> {
  const none = () => Object.fromEntries(forms.map(({ name }) => [name, []])) as unknown as FormCosts[Leg]
  const costs: FormCosts = { plain: none(), asks: none(), answers: none() }
  const most = Math.max(...forms.map(({ processes }) => processes))
  for (let number = 1; number <= most; number++) {
    for (const { name } of forms.filter(({ processes }) => number <= processes)) {
      const plainLast = number % 2 === 0
      const server = await spawnServer(name, 1, { plainLast })
      const beside = { ...server, name: 'plain' as const, url: plainOf(server), credential: undefined }
      try {
        const racers: Racer<FormName | 'plain', Leg>[] = []
        for (const one of plainLast ? [server, beside] : [beside, server])
          racers.push({ server: one, exchanges: await prepareLegs(one.url, one.credential) })
        const measured = await race(`${name}, process ${number} of ${most}`, racers, LEGS, effort, settings)
        for (const leg of LEGS) {
          const { plain: base } = measured[leg]
          costs[leg][name].push({ micros: median(base), ratio: medianRatio(measured[leg][name], base) })
        }
      } finally {
        await server.stop()
      }
    }
  }
  return costs
}

function plainOf({ name, plain }: ServerProcess<string>): URL {
  if (plain === undefined) throw new Error(`${name} starts no plain server to compare it with`)
  return plain
}

/** The percentage that a form adds to a request: the median of its processes. */
export function addedPercent(costs: FormCosts, leg: Leg, form: FormName): number {
  return 100 * (median(costs[leg][form].map(({ ratio }) => ratio)) - 1)
}

/** The time that a form adds to a request, in µs. */
export function addedMicros(costs: FormCosts, leg: Leg, form: FormName): number {
  return median(costs[leg][form].map(({ micros, ratio }) => micros * (ratio - 1)))
}

/** The percentage that a form adds, with its range. */
export function shownPercent(costs: FormCosts, leg: Leg, form: FormName): string {
  const percent = (ratio: number): string => fixed(100 * (ratio - 1), 1)
  const ratios = costs[leg][form].map(({ ratio }) => ratio)
  return `${percent(median(ratios))} (${percent(Math.min(...ratios))} to ${percent(Math.max(...ratios))}) %`
}

/** The CPU time of a plain server's request in µs, over all processes. */
export function plainMicros(costs: FormCosts, leg: Leg): number {
  return median(Object.values(costs[leg]).flatMap((all) => all.map(({ micros }) => micros)))
}
